"""Gaussian PSD models with one diagonal precision for all anchors."""

from abc import abstractmethod

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from .. import _results
from .._checks import (
    Demand,
    Numbers,
    all_finite,
    as_floats,
    as_points,
    check_values,
    is_concrete,
    looked_at,
    require_finite,
    verified,
)
from .._gaussian.linalg import psd_root
from .anchors import TensorGrid, as_anchors, dimension, num_points, shifted_feature_product

# Points evaluated at a time: the block of kernel values stays in cache (measured: 1.05 times the
# time of a bare exp, against 1.45 for all points at once).
_POINTS_PER_BLOCK = 4096
# A density with large tables is evaluated at fewer points at a time, so that memory stays bounded.
_NUMBERS_PER_BLOCK, _LEAST_BLOCK = 2**23, 32


class AbstractDensity(eqx.Module):
    """A non-negative function on R^d that can be evaluated anywhere.

    `f(x)`, `f.log_density(x)` and `f.gradient(x)` take points `(..., d)`.
    """

    @property
    @abstractmethod
    def dim(self) -> int:
        """Number of coordinates d."""

    @abstractmethod
    def _scaled_value(self, x: Float[Array, " d"]) -> tuple[Float[Array, ""], Float[Array, ""]]:
        """v >= 0 and s with f(x) = v exp(s), v neither tiny nor huge unless f is zero."""

    def _demands(self, name: str) -> list[Demand]:
        """What must hold of the numbers that f is made of for any operation to make sense."""
        del name
        return []

    def __call__(self, x: Numbers) -> Float[Array, "..."]:
        """f(x), never negative."""
        return self._evaluate(x, "value")

    def log_density(self, x: Numbers) -> Float[Array, "..."]:
        """log f(x), finite far from all anchors; -inf where f is exactly zero."""
        return self._evaluate(x, "log")

    def gradient(self, x: Numbers) -> Float[Array, "... d"]:
        """The gradient of f in x."""
        return self._evaluate(x, "gradient")

    def _evaluate(self, x: Numbers, what: str) -> Array:
        points = as_points("x", x, self.dim)
        require_finite("x", points)
        f, points = verified(f=self, x=points)
        return over_points(f, points, what)


@eqx.filter_jit
def over_points(f: AbstractDensity, x: Float[Array, "... d"], what: str) -> Array:
    """The "value", the "log" or the "gradient" of f at points that are known to be good."""

    def value(point: Float[Array, " d"]) -> Float[Array, ""]:
        size, log_scale = f._scaled_value(point)
        return size * jnp.exp(log_scale)

    def log_value(point: Float[Array, " d"]) -> Float[Array, ""]:
        size, log_scale = f._scaled_value(point)
        return jnp.log(size) + log_scale

    fn = {"value": value, "log": log_value, "gradient": jax.grad(value)}[what]
    points = x.reshape(-1, x.shape[-1])
    largest = max((leaf.size for leaf in jax.tree.leaves(f)), default=1)
    block = max(_LEAST_BLOCK, min(_POINTS_PER_BLOCK, _NUMBERS_PER_BLOCK // max(largest, 1)))
    if points.shape[0] > block:
        values = jax.lax.map(fn, points, batch_size=block)
    else:
        values = jax.vmap(fn)(points)
    return values.reshape(*x.shape[:-1], *values.shape[1:])


class AbstractFactored(AbstractDensity):
    """A density whose weight matrix A = exp(log_scale) L L' is kept as its factor L."""

    factor: eqx.AbstractVar[Float[Array, "m r"]]
    log_scale: eqx.AbstractVar[Float[Array, ""]]

    @property
    def rank(self) -> int:
        """Number of columns of the factor."""
        return self.factor.shape[-1]

    @property
    def weights(self) -> Float[Array, "m m"]:
        """A = exp(log_scale) L L'."""
        return jnp.exp(self.log_scale) * self.factor @ self.factor.T


class GaussianPSD(AbstractFactored):
    """f(x) = exp(log_scale) |L' k(x)|^2,  k_i(x) = exp(-sum_l eta_l (x_l - X_il)^2).

    The weight matrix A = L L' is kept as its factor, so that f is never negative. `anchors` is an
    array of m points or a `TensorGrid`; a vector for `factor` is a model of rank one. `precision`
    is eta in the kernel convention: a bump k_i^2 of f has variance 1 / (4 eta).
    """

    anchors: Float[Array, "m d"] | TensorGrid  # X
    factor: Float[Array, "m r"]  # L
    precision: Float[Array, " d"]  # eta > 0
    log_scale: Float[Array, ""]

    def __init__(
        self,
        anchors: Numbers | TensorGrid,
        factor: Numbers,
        precision: Numbers,
        log_scale: Numbers = 0.0,
    ):
        self.anchors = as_anchors("anchors", anchors)
        order, dim = num_points(self.anchors), dimension(self.anchors)
        factor = as_floats("factor", factor)
        factor = factor[:, None] if factor.ndim == 1 else factor
        if factor.ndim != 2 or factor.shape[0] != order or factor.shape[1] == 0:
            raise ValueError(
                f"factor must have shape ({order}, r) or ({order},), one row for each of the "
                f"{order} anchors, got {factor.shape}"
            )
        self.factor = factor
        self.precision = as_precision("precision", precision, dim)
        self.log_scale = as_floats("log_scale", log_scale, ndim=0)

    @staticmethod
    def from_weights(
        anchors: Numbers | TensorGrid, weights: Numbers, precision: Numbers
    ) -> "GaussianPSD":
        """f(x) = k(x)' A k(x) for a symmetric positive semidefinite A.

        Eigenvalues down to -1e-12 of the largest count as rounding and are set to zero. A traced A
        is compared with the square of its root, to 1e-10 of its largest entry.
        """
        order = num_points(as_anchors("anchors", anchors))
        return GaussianPSD(anchors, weights_root("weights", weights, order), precision)

    @property
    def dim(self) -> int:
        """Number of coordinates d."""
        return dimension(self.anchors)

    @property
    def order(self) -> int:
        """Number of anchors m."""
        return num_points(self.anchors)

    def _demands(self, name: str) -> list[Demand]:
        xp, eta = looked_at(self.precision)
        positive = xp.all((eta > 0) & xp.isfinite(eta))
        return [
            Demand.of(name, _results.BAD_ANCHORS, all_finite(*jax.tree.leaves(self.anchors))),
            Demand.of(name, _results.BAD_FACTOR, finite_squares(self.factor)),
            Demand.of(name, _results.BAD_PRECISION, positive),
            Demand.of(name, _results.BAD_LOG_SCALE, all_finite(self.log_scale)),
        ]

    def _scaled_value(self, x: Float[Array, " d"]) -> tuple[Float[Array, ""], Float[Array, ""]]:
        g, distance = shifted_feature_product(self.anchors, self.precision, self.factor, x)
        return jnp.sum(jnp.square(g)), self.log_scale - 2 * distance


class ProductPSD(GaussianPSD):
    """A `GaussianPSD` that is f g, and remembers f and g: what a step of the filter gives.

    Expanded, the terms of f and those of g cancel together, and the rounding of a value is the
    product of two condition numbers. Values are therefore taken of f and of g, one after the other,
    and their roundings add up. All operations take the expanded fields for what they are; one that
    replaces `anchors`, `factor` or `precision` has to make a `GaussianPSD`.
    """

    left: GaussianPSD
    right: GaussianPSD

    @staticmethod
    def of(expanded: GaussianPSD, left: GaussianPSD, right: GaussianPSD) -> "ProductPSD":
        """The product of two models, given its expansion."""
        # The scale of the product is its own, so that it can be changed like any other.
        parts = (
            eqx.tree_at(lambda m: m.log_scale, part, jnp.zeros_like(part.log_scale))
            for part in (left, right)
        )
        fields = (expanded.anchors, expanded.factor, expanded.precision, expanded.log_scale)
        return ProductPSD(*fields, *parts)

    def __init__(
        self,
        anchors: Numbers | TensorGrid,
        factor: Numbers,
        precision: Numbers,
        log_scale: Numbers,
        left: GaussianPSD,
        right: GaussianPSD,
    ):
        super().__init__(anchors, factor, precision, log_scale)
        self.left, self.right = left, right

    def _scaled_value(self, x: Float[Array, " d"]) -> tuple[Float[Array, ""], Float[Array, ""]]:
        one, of_one = self.left._scaled_value(x)
        other, of_other = self.right._scaled_value(x)
        return one * other, self.log_scale + of_one + of_other


def as_precision(name: str, precision: Numbers, dim: int) -> Float[Array, " d"]:
    """`precision` as `dim` positive numbers; a single number serves every axis."""
    eta = as_floats(name, precision)
    if eta.ndim == 0:
        eta = jnp.full((dim,), eta)
    if eta.shape != (dim,):
        raise ValueError(
            f"{name} must be a number or have shape ({dim},), one for each axis, got {eta.shape}"
        )
    if is_concrete(eta) and not bool(jnp.all(eta > 0)):
        raise ValueError(f"{name} must be positive on every axis, got {np.asarray(eta)}")
    return eta


def finite_squares(factor: Float[Array, "m r"]) -> Bool[Array, ""] | np.bool_:
    """Whether the weights L L' are finite."""
    xp, values = looked_at(factor)
    with np.errstate(over="ignore", invalid="ignore"):
        return xp.isfinite(xp.sum(xp.square(values)))


def weights_root(name: str, weights: Numbers, order: int) -> Float[Array, "m m"]:
    """L with L L' = A, for a symmetric positive semidefinite A."""
    matrix = as_weights(name, weights, order)
    if is_concrete(matrix):
        return jax.jit(psd_root)(matrix)
    root = psd_root(matrix)
    size = jnp.max(jnp.abs(matrix))
    gap = jnp.max(jnp.abs(jax.lax.stop_gradient(root @ root.T - matrix)))
    message = f"{name} must be finite, symmetric and positive semidefinite"
    return check_values(root, (gap <= 1e-10 * size) & jnp.isfinite(size), message)


def as_weights(name: str, weights: Numbers, order: int) -> Float[Array, "m m"]:
    """`weights` as a symmetric positive semidefinite matrix, checked when concrete."""
    matrix = as_floats(name, weights)
    if matrix.shape != (order, order):
        raise ValueError(
            f"{name} must have shape ({order}, {order}), the number of anchors squared, "
            f"got {matrix.shape}"
        )
    if is_concrete(matrix):
        values = np.asarray(matrix)
        largest = float(np.abs(values).max())
        skew = float(np.abs(values - values.T).max())
        if skew > 1e-10 * largest:
            raise ValueError(
                f"{name} must be symmetric, but differs from its transpose by {skew:.3g}; "
                f"pass ({name} + {name}.T) / 2 if that is rounding"
            )
        eigenvalues = np.linalg.eigvalsh(0.5 * (values + values.T))
        if eigenvalues[0] < -1e-12 * max(eigenvalues[-1], largest):
            raise ValueError(
                f"{name} must be positive semidefinite, but its smallest eigenvalue is "
                f"{eigenvalues[0]:.6g} (largest {eigenvalues[-1]:.6g})"
            )
    return matrix
