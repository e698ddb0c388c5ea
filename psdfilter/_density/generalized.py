"""Generalised Gaussian PSD models: components with full precision matrices.

A Gaussian component is kept in canonical form, exp(c + 2 h'z - z'Pz), because P may be singular: a
conditional Gaussian N(y | F x + b, S) is one component in (x, y) whose P has rank dim(y).

z = x - o is measured from an origin o, which is zero unless that is far from the mass of a model:
at x = 5e6 with a deviation of 0.1 the three terms are 1e15 each, and nothing is left of their sum.

Two classes, for the two ways in which f(x) = tr(A B(x)), B(x) >= 0, can be known:

    GeneralizedGaussianPSD    B(x) = k(x) k(x)', one component k_i for each of m anchors
    PairwiseGaussianPSD       B_ij(x), one component for each pair: what marginals leave behind,
                              because a Schur complement of P_i + P_j is not a sum
"""

from typing import TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from .. import _results
from .._checks import Demand, Numbers, all_finite, as_floats, is_concrete, looked_at
from .psd import AbstractFactored, finite_squares, weights_root

# An exponent of this size has lost two of sixteen digits.
_FAR = 100.0


class AbstractCanonical(AbstractFactored):
    """What components in canonical form have in common, one for each anchor or each pair."""

    precision: eqx.AbstractVar[Float[Array, "..."]]
    linear: eqx.AbstractVar[Float[Array, "..."]]
    offset: eqx.AbstractVar[Float[Array, "..."]]
    origin: eqx.AbstractVar[Float[Array, " d"]]

    @property
    def dim(self) -> int:
        """Number of coordinates d."""
        return self.linear.shape[-1]

    @property
    def order(self) -> int:
        """m, the size of the weight matrix."""
        return self.linear.shape[-2]

    def _demands(self, name: str) -> list[Demand]:
        """Numbers that are finite, and precisions without a negative number on their diagonal.

        That is less than positive semidefinite, which integrals find out by their Cholesky factors;
        it costs nothing.
        """
        xp, matrices = looked_at(self.precision)
        diagonal = xp.diagonal(matrices, axis1=-2, axis2=-1)
        rounding = 1e-10 * xp.max(xp.abs(matrices))
        positive = xp.all(diagonal >= -rounding) & all_finite(self.precision)
        return [
            Demand.of(name, _results.BAD_FACTOR, finite_squares(self.factor)),
            Demand.of(name, _results.BAD_PRECISION, positive),
            Demand.of(
                name, _results.BAD_COMPONENTS, all_finite(self.linear, self.offset, self.origin)
            ),
            Demand.of(name, _results.BAD_LOG_SCALE, all_finite(self.log_scale)),
        ]


Canonical = TypeVar("Canonical", bound=AbstractCanonical)


class GeneralizedGaussianPSD(AbstractCanonical):
    """f(x) = exp(log_scale) |L' k(z)|^2,  k_i(z) = exp(c_i + 2 h_i'z - z'P_i z),  z = x - origin.

    `precision` of shape (d, d) is one P shared by all components; such models stay of this form
    under every operation, the cross terms of marginals going into L by a Schur product.
    """

    factor: Float[Array, "m r"]  # L
    precision: Float[Array, "m d d"] | Float[Array, "d d"]  # P >= 0
    linear: Float[Array, "m d"]  # h
    offset: Float[Array, " m"]  # c
    log_scale: Float[Array, ""]
    origin: Float[Array, " d"]  # o

    def __init__(
        self,
        factor: Numbers,
        precision: Numbers,
        linear: Numbers,
        offset: Numbers,
        log_scale: Numbers = 0.0,
        origin: Numbers | None = None,
    ):
        self.linear = as_floats("linear", linear, ndim=2)
        order, dim = self.linear.shape
        if order == 0 or dim == 0:
            raise ValueError(
                f"linear must hold at least one component, got shape {self.linear.shape}"
            )
        self.factor = _as_factor(factor, order)
        self.precision = as_floats("precision", precision)
        if self.precision.shape not in ((order, dim, dim), (dim, dim)):
            raise ValueError(
                f"precision must have shape ({order}, {dim}, {dim}), or ({dim}, {dim}) if it is "
                f"shared, got {self.precision.shape}"
            )
        self.offset = as_floats("offset", offset, ndim=1)
        if self.offset.shape != (order,):
            raise ValueError(f"offset must have shape ({order},), got {self.offset.shape}")
        self.log_scale = as_floats("log_scale", log_scale, ndim=0)
        self.origin = jnp.zeros(dim) if origin is None else as_floats("origin", origin, ndim=1)
        if self.origin.shape != (dim,):
            raise ValueError(f"origin must have shape ({dim},), got {self.origin.shape}")
        _check_precision("precision", self.precision)

    @staticmethod
    def from_centers(
        centers: Numbers, factor: Numbers, precision: Numbers
    ) -> "GeneralizedGaussianPSD":
        """Components k_i(x) = exp(-(x - m_i)' P_i (x - m_i)); P is (m, d, d) or shared (d, d)."""
        points = as_floats("centers", centers, ndim=2)
        matrix = as_floats("precision", precision)
        if matrix.shape == (points.shape[1],) * 2:
            origin = middle_of(points, matrix[None])
            points = points - origin[None, :]
            linear = points @ matrix.T
        else:
            if matrix.shape != (*points.shape, points.shape[1]):
                raise ValueError(
                    f"precision must have shape {(*points.shape, points.shape[1])} or "
                    f"{(points.shape[1],) * 2}, got {matrix.shape}"
                )
            origin = middle_of(points, matrix)
            points = points - origin[None, :]
            linear = jnp.einsum("mde,me->md", matrix, points)
        offset = -jnp.sum(linear * points, axis=1)
        return GeneralizedGaussianPSD(factor, matrix, linear, offset, 0.0, origin)

    @property
    def is_shared(self) -> bool:
        """Whether one precision serves all components."""
        return self.precision.ndim == 2

    def precisions(self) -> Float[Array, "m d d"]:
        """P_i for every component, a shared one repeated."""
        shape = (self.order, self.dim, self.dim)
        shared = self.precision[None] if self.is_shared else self.precision
        return jnp.broadcast_to(shared, shape)

    def _scaled_value(self, x: Float[Array, " d"]) -> tuple[Float[Array, ""], Float[Array, ""]]:
        exponent = log_components(self, x)
        peak = _peak(exponent)
        g = jnp.exp(exponent - peak) @ self.factor
        return jnp.sum(jnp.square(g)), self.log_scale + 2 * peak


class PairwiseGaussianPSD(AbstractCanonical):
    """f(x) = exp(log_scale) sum_ij (L L')_ij B_ij(z),  B_ij(z) = exp(c_ij + 2 h_ij'z - z'P_ij z).

    z = x - origin. B must be positive semidefinite at every x, which arbitrary components do not
    give: build models by operations, or by `from_pairs`, which checks it on points.
    """

    factor: Float[Array, "m r"]  # L
    precision: Float[Array, "m m d d"]  # P_ij
    linear: Float[Array, "m m d"]  # h_ij
    offset: Float[Array, "m m"]  # c_ij
    log_scale: Float[Array, ""]
    origin: Float[Array, " d"]  # o

    @staticmethod
    def from_pairs(
        weights: Numbers,
        centers: Numbers,
        precision: Numbers,
        offset: Numbers,
        *,
        check_points: Numbers | None = None,
    ) -> "PairwiseGaussianPSD":
        """B_ij(x) = exp(C_ij - (x - m_ij)' P_ij (x - m_ij)), refused where B(x) is not PSD.

        B is looked at in `check_points` (n, d), by default the centres, the points between them
        and a shell around them: a necessary condition on finitely many points, not a proof.
        """
        points = as_floats("centers", centers, ndim=3)
        order, _, dim = points.shape
        if points.shape[1] != order or order == 0 or dim == 0:
            raise ValueError(f"centers must have shape (m, m, d), got {points.shape}")
        matrix = as_floats("precision", precision)
        if matrix.shape != (order, order, dim, dim):
            raise ValueError(
                f"precision must have shape {(order, order, dim, dim)}, got {matrix.shape}"
            )
        constant = as_floats("offset", offset)
        if constant.shape != (order, order):
            raise ValueError(f"offset must have shape {(order, order)}, got {constant.shape}")
        _check_precision("precision", matrix)
        root = weights_root("weights", weights, order)
        origin = middle_of(points.reshape(-1, dim), matrix.reshape(-1, dim, dim))
        near = points - origin[None, None, :]
        linear = jnp.einsum("ijde,ije->ijd", matrix, near)
        constant = constant - jnp.sum(linear * near, axis=-1)
        f = PairwiseGaussianPSD(root, matrix, linear, constant, jnp.zeros(()), origin)
        if check_points is None:
            check_points = _probe_points(points, matrix)
        probes = as_floats("check_points", check_points, ndim=2)
        if probes.shape[1] != dim:
            raise ValueError(f"check_points must have shape (n, {dim}), got {probes.shape}")
        _check_kernel_matrix(f, probes)
        return f

    def kernel_matrix(self, x: Float[Array, " d"]) -> tuple[Float[Array, "m m"], Float[Array, ""]]:
        """B and s with B_ij(x) = B_ij exp(s), the largest entry being one."""
        exponent = log_components(self, x)
        peak = _peak(exponent)
        return jnp.exp(exponent - peak), peak

    def _scaled_value(self, x: Float[Array, " d"]) -> tuple[Float[Array, ""], Float[Array, ""]]:
        kernel, peak = self.kernel_matrix(x)
        # B(x) is PSD only up to rounding: a sum that ends below zero is zero.
        value = jnp.maximum(jnp.sum(self.factor * (kernel @ self.factor)), 0.0)
        return value, self.log_scale + peak


def _peak(exponent: Float[Array, "..."]) -> Float[Array, ""]:
    """The largest exponent, kept finite where all have overflowed to -inf."""
    return jax.lax.stop_gradient(jnp.maximum(jnp.max(exponent), jnp.finfo(exponent.dtype).min))


def middle_of(points: Float[Array, "n d"], precision: Float[Array, "k d d"]) -> Float[Array, " d"]:
    """An origin amid some points; zero if that is as good."""
    middle = jax.lax.stop_gradient(jnp.mean(points, axis=0))
    return jnp.where(is_far(middle, jax.lax.stop_gradient(precision)), middle, 0.0)


def is_far(shift: Float[Array, " d"], precision: Float[Array, "*c d d"]) -> Bool[Array, ""]:
    """Whether exponents so far from the origin, of size s'Ps, lose more than two digits."""
    return jnp.max(jnp.einsum("d,...de,e->...", shift, precision, shift)) > _FAR


def log_components(f: AbstractCanonical, x: Float[Array, " d"]) -> Float[Array, "*c"]:
    """c + 2 h'z - z'Pz = c + (2h - Pz)'z for every component."""
    z = x - f.origin
    return f.offset + (2 * f.linear - jnp.broadcast_to(f.precision @ z, f.linear.shape)) @ z


def about(f: Canonical, origin: Float[Array, " d"]) -> Canonical:
    """f with another origin: h - P s and c + (2h - P s)'s for a shift s.

    No value depends on which origin that is, so no derivative passes through it.
    """
    shift = jax.lax.stop_gradient(origin) - f.origin
    pulled = jnp.broadcast_to(f.precision @ shift, f.linear.shape)
    offset = f.offset + (2 * f.linear - pulled) @ shift
    return eqx.tree_at(
        lambda m: (m.linear, m.offset, m.origin),
        f,
        (f.linear - pulled, offset, f.origin + shift),
    )


def pairwise(f: GeneralizedGaussianPSD | PairwiseGaussianPSD) -> PairwiseGaussianPSD:
    """All pairs of components: P_i + P_j, h_i + h_j, c_i + c_j."""
    if isinstance(f, PairwiseGaussianPSD):
        return f
    matrices = f.precisions()
    return PairwiseGaussianPSD(
        f.factor,
        matrices[:, None] + matrices[None, :],
        f.linear[:, None] + f.linear[None, :],
        f.offset[:, None] + f.offset[None, :],
        f.log_scale,
        f.origin,
    )


def _as_factor(factor: Numbers, order: int) -> Float[Array, "m r"]:
    array = as_floats("factor", factor)
    array = array[:, None] if array.ndim == 1 else array
    if array.ndim != 2 or array.shape[0] != order or array.shape[1] == 0:
        raise ValueError(
            f"factor must have shape ({order}, r) or ({order},), one row for each of the "
            f"{order} components, got {array.shape}"
        )
    return array


def _check_precision(name: str, precision: Array) -> None:
    """Symmetric positive semidefinite, up to rounding; looked at only when concrete."""
    if not is_concrete(precision):
        return
    matrices = np.asarray(precision)
    size = np.abs(matrices).max()
    if np.abs(matrices - np.swapaxes(matrices, -1, -2)).max() > 1e-10 * size:
        raise ValueError(f"{name} must hold symmetric matrices; pass (P + P.T) / 2")
    lowest = np.linalg.eigvalsh(matrices)[..., 0]
    if lowest.min() < -1e-10 * size:
        raise ValueError(
            f"{name} must hold positive semidefinite matrices, but the smallest eigenvalue is "
            f"{lowest.min():.6g}"
        )


def _probe_points(centers: Array, precision: Array) -> Array:
    order, _, dim = centers.shape
    flat = centers.reshape(order * order, dim)
    scale = jnp.sqrt(jnp.diagonal(precision, axis1=-2, axis2=-1)).reshape(-1, dim)
    widths = jnp.where(scale > 0, 1 / jnp.where(scale > 0, scale, 1.0), 1.0)
    middle = 0.5 * (flat[:, None] + flat[None, :]).reshape(-1, dim)
    shell = [
        flat + s * widths * jnp.eye(dim)[None, axis] for axis in range(dim) for s in (-1.0, 1.0)
    ]
    return jnp.concatenate([flat, middle[:: max(1, middle.shape[0] // 512)], *shell])


def _check_kernel_matrix(f: PairwiseGaussianPSD, points: Array) -> None:
    if not all(is_concrete(leaf) for leaf in jax.tree.leaves((f, points))):
        return
    kernels = np.asarray(eqx.filter_vmap(lambda x: f.kernel_matrix(x)[0])(points))
    if not np.allclose(kernels, np.swapaxes(kernels, 1, 2), rtol=1e-10, atol=1e-12):
        raise ValueError("centers, precision and offset must be symmetric in the pair (i, j)")
    lowest = np.linalg.eigvalsh(kernels)[:, 0]
    worst = int(np.argmin(lowest))
    if lowest[worst] < -1e-10 * f.order:
        raise ValueError(
            "centers, precision and offset must make B(x) positive semidefinite at every x, but at "
            f"x = {np.asarray(points[worst])} its smallest eigenvalue is {lowest[worst]:.3g} of "
            "its largest entry"
        )
