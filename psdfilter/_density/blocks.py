"""Sums of PSD models with full covariances, one covariance for each block of components.

Between a Gaussian mixture (blocks of one component) and a PSD model with one shared precision (one
block). Covariances are kept, not precisions, and may be singular: moments, marginals, distribution
functions and draws need no inverse; only the density itself asks for one.
"""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.linalg import solve_triangular
from jax.scipy.special import ndtr
from jaxtyping import Array, Float

from .. import _results
from .._checks import (
    Demand,
    Numbers,
    as_axes,
    as_floats,
    check_values,
    is_concrete,
    looked_at,
)
from .._gaussian.conditioning import definite_cholesky, move_covariance, symmetric
from .._gaussian.linalg import psd_root
from .diagonal import schur_factor
from .psd import AbstractDensity

_LOG_2PI = float(np.log(2 * np.pi))
NO_DENSITY = (
    "this law has no density: a covariance is singular, so that some combination of coordinates is "
    "known exactly. Take moments, quantiles or samples, or the marginal of coordinates with noise"
)


class GaussianBlocks(AbstractDensity):
    """f(x) = sum_b exp(w_b) |L_b' phi_b(x)|^2,  phi_bc(x)^2 = N(x; m_bc, S_b).

    Components of one block share their covariance and have the Gram matrix
    int phi_c phi_c' = exp(-(m_c - m_c')' S^{-1} (m_c - m_c') / 8), of unit diagonal. A block with
    w = -inf is no part of f, whatever its other numbers are.
    """

    log_weights: Float[Array, " b"]
    means: Float[Array, "b n d"]
    covariance: Float[Array, "b d d"]
    factor: Float[Array, "b n r"]

    @staticmethod
    def mixture(weights: Numbers, means: Numbers, covariances: Numbers) -> "GaussianBlocks":
        """sum_b w_b N(x; m_b, S_b); one covariance (d, d) serves all, and may be singular."""
        points = as_floats("means", means, ndim=2)
        order, dim = points.shape
        shares = as_floats("weights", weights, ndim=1)
        if shares.shape != (order,):
            raise ValueError(
                f"weights must have shape ({order},), one per mean, got {shares.shape}"
            )
        shares = check_values(shares, shares >= 0, "weights must be non-negative")
        matrices = as_floats("covariances", covariances)
        if matrices.shape == (dim, dim):
            matrices = jnp.broadcast_to(matrices[None], (order, dim, dim))
        if matrices.shape != (order, dim, dim):
            raise ValueError(
                f"covariances must have shape ({order}, {dim}, {dim}), or ({dim}, {dim}) for all, "
                f"got {matrices.shape}"
            )
        if is_concrete(matrices):
            _check_covariances(np.asarray(matrices))
        return GaussianBlocks.of_mixture(jnp.log(shares), points, matrices)

    @staticmethod
    def of_mixture(
        log_weights: Float[Array, " b"],
        means: Float[Array, "b d"],
        covariances: Float[Array, "b d d"],
    ) -> "GaussianBlocks":
        """The same without checks, from the logarithms of the weights."""
        factor = jnp.ones((means.shape[0], 1, 1))
        return GaussianBlocks(log_weights, means[:, None, :], covariances, factor)

    @property
    def dim(self) -> int:
        """Number of coordinates d."""
        return self.means.shape[-1]

    @property
    def order(self) -> int:
        """Number of components."""
        return self.means.shape[-3] * self.means.shape[-2]

    @property
    def is_mixture(self) -> bool:
        """Whether every block holds one component."""
        return self.means.shape[-2] == 1

    def _demands(self, name: str) -> list[Demand]:
        xp, weights, means, matrices = looked_at(self.log_weights, self.means, self.covariance)
        used = weights > -np.inf
        numbers = xp.where(used, weights, 0.0)
        finite = xp.all(xp.isfinite(numbers)) & ~xp.any(xp.isnan(weights))
        for array in (means, matrices):
            finite = finite & xp.all(xp.isfinite(array) | ~used[:, None, None])
        square = xp.where(used[:, None, None], looked_at(self.factor)[1], 0.0)
        return [
            Demand.of(name, _results.BAD_BLOCKS, finite),
            Demand.of(name, _results.BAD_FACTOR, xp.isfinite(xp.sum(xp.square(square)))),
        ]

    def _scaled_value(self, x: Float[Array, " d"]) -> tuple[Float[Array, ""], Float[Array, ""]]:
        used = self.log_weights > -jnp.inf
        matrices = jnp.where(used[:, None, None], self.covariance, jnp.eye(self.dim)[None])
        chol = jax.vmap(definite_cholesky)(matrices)
        chol = eqx.error_if(chol, ~jnp.isfinite(chol), NO_DENSITY)
        log_det = jnp.sum(jnp.log(jnp.diagonal(chol, axis1=1, axis2=2)), axis=1)
        height = 0.5 * (self.log_weights - log_det - 0.5 * self.dim * _LOG_2PI)

        def roots(chol: Array, means: Array, height: Array) -> Array:
            white = solve_triangular(chol, (x[None, :] - means).T, lower=True)
            return height - 0.25 * jnp.sum(jnp.square(white), axis=0)

        exponent = jax.vmap(roots)(chol, self.means, height)
        largest = jax.lax.stop_gradient(jnp.max(exponent))
        peak = jnp.where(jnp.isfinite(largest), largest, 0.0)
        g = jnp.einsum("bn,bnr->br", jnp.exp(exponent - peak), self.factor)
        return jnp.sum(jnp.square(g)), 2 * peak

    def integral(self) -> Float[Array, ""]:
        """int f over R^d."""
        terms = pair_terms(self)
        return jnp.sum(terms.shares) * jnp.exp(terms.log_scale)

    def moments(self) -> tuple[Float[Array, " d"], Float[Array, "d d"]]:
        """Mean and covariance of f / int f."""
        return block_moments(self)

    def marginal(self, keep: int | tuple[int, ...]) -> "GaussianBlocks":
        """int f over the other coordinates."""
        axes = np.asarray(as_axes("keep", keep, self.dim))
        return push_forward(self, jnp.eye(self.dim)[axes])

    def cdf(self, axis: int, t: Numbers) -> Float[Array, "..."]:
        """P(x_axis <= t) under f / int f."""
        (axis,) = as_axes("axis", axis, self.dim)
        points = as_floats("t", t)
        return _cdf(self, axis, points.ravel()).reshape(points.shape)

    def quantile(self, axis: int, q: Numbers) -> Float[Array, "..."]:
        """The t with P(x_axis <= t) = q, by bisection; infinite at q = 0 and q = 1."""
        (axis,) = as_axes("axis", axis, self.dim)
        levels = as_floats("q", q)
        levels = check_values(
            levels, (levels >= 0) & (levels <= 1), f"q must lie in [0, 1], got {q}"
        )
        inner = _quantile(self, axis, levels.ravel()).reshape(levels.shape)
        return jnp.where(levels == 0, -jnp.inf, jnp.where(levels == 1, jnp.inf, inner))


def _check_covariances(matrices: np.ndarray) -> None:
    largest = np.abs(matrices).max(axis=(1, 2))
    skew = np.abs(matrices - np.swapaxes(matrices, 1, 2)).max(axis=(1, 2))
    lowest = np.linalg.eigvalsh(matrices)[:, 0]
    bad = np.flatnonzero((skew > 1e-10 * largest) | (lowest < -1e-12 * largest))
    if bad.size:
        raise ValueError(
            "covariances must be symmetric and positive semidefinite, but number "
            f"{int(bad[0])} is not (smallest eigenvalue {lowest[bad[0]]:.6g})"
        )


class PairTerms(NamedTuple):
    """f / exp(log_scale) = sum_b sum_ij shares_bij N(x; (m_bi + m_bj) / 2, S_b), shares signed."""

    shares: Float[Array, "b n n"]
    log_scale: Float[Array, ""]
    middles: Float[Array, "b n n d"]


class Roots(NamedTuple):
    """R and T with R R' = S and T T' = S^+: z = T' delta has |z|^2 = delta' S^+ delta, R z = delta.

    Differences of means lie in the range of S whenever S is singular (they were moved by the same
    maps), so that what the pseudo-inverse cuts off is rounding.
    """

    root: Float[Array, "d d"]
    inverse: Float[Array, "d d"]

    @staticmethod
    def of(covariance: Float[Array, "d d"]) -> "Roots":
        """By eigenvalues, after scaling S to a unit diagonal."""
        scale = jnp.sqrt(jnp.diagonal(covariance))
        scale = jnp.where(scale > 0, scale, 1.0)
        values, vectors = jnp.linalg.eigh(symmetric(covariance / jnp.outer(scale, scale)))
        kept = values > 4 * values.size * jnp.finfo(values.dtype).eps * values[-1]
        roots = jnp.where(kept, jnp.sqrt(jnp.where(kept, values, 1.0)), 0.0)
        inverse = jnp.where(kept, 1.0 / jnp.where(kept, roots, 1.0), 0.0)
        return Roots(
            scale[:, None] * vectors * roots[None, :],
            vectors * inverse[None, :] / scale[:, None],
        )


def log_gram(covariance: Float[Array, "d d"], means: Float[Array, "n d"]) -> Float[Array, "n n"]:
    """-(m_i - m_j)' S^{-1} (m_i - m_j) / 8, the log of int phi_i phi_j."""
    z = (means - means[:1]) @ Roots.of(covariance).inverse
    return -0.125 * _squares_between(z)


def _squares_between(z: Float[Array, "n d"]) -> Float[Array, "n n"]:
    return jnp.sum(jnp.square(z[:, None, :] - z[None, :, :]), axis=-1)


def pair_terms(f: GaussianBlocks) -> PairTerms:
    """f as a signed mixture over pairs of components."""
    peak = jax.lax.stop_gradient(jnp.max(f.log_weights))
    peak = jnp.where(jnp.isfinite(peak), peak, 0.0)
    weights = jnp.exp(f.log_weights - peak)
    shares = jnp.einsum("bnr,bmr->bnm", f.factor, f.factor) * weights[:, None, None]
    if not f.is_mixture:
        used = (f.log_weights > -jnp.inf)[:, None, None]
        matrices = jnp.where(used, f.covariance, jnp.eye(f.dim)[None])
        shares = shares * jnp.exp(jax.vmap(log_gram)(matrices, f.means))
    middles = 0.5 * (f.means[:, :, None, :] + f.means[:, None, :, :])
    return PairTerms(shares, peak, middles)


@eqx.filter_jit
def block_moments(f: GaussianBlocks) -> tuple[Array, Array]:
    """Mean and covariance of f / int f."""
    terms = pair_terms(f)
    shares = terms.shares / jnp.sum(terms.shares)
    # About one of the means, so that an offset of the units costs no digits.
    origin = f.means[jnp.argmax(f.log_weights), 0]
    shifted = jnp.where(shares[..., None] != 0, terms.middles - origin.reshape(1, 1, 1, -1), 0.0)
    mean = jnp.einsum("bij,bijd->d", shares, shifted)
    delta = jnp.where(shares[..., None] != 0, shifted - mean.reshape(1, 1, 1, -1), 0.0)
    own = jnp.sum(shares, axis=(1, 2))
    spread = jnp.where(own[:, None, None] != 0, f.covariance, 0.0)
    covariance = jnp.einsum("b,bde->de", own, spread)
    covariance = covariance + jnp.einsum("bij,bijd,bije->de", shares, delta, delta)
    return origin + mean, symmetric(covariance)


@eqx.filter_jit
def push_forward(
    f: GaussianBlocks,
    F: Float[Array, "k d"],
    b: Float[Array, " k"] | None = None,
    W: Float[Array, "k k"] | None = None,
) -> GaussianBlocks:
    """The law of F x + b + N(0, W) if x has f: a Markov transition, or a marginal.

        m <- F m + b,   S <- F S F' + W,   A <- A o exp(-delta' E delta / 8),
        E = S^{-1} - F' (F S F' + W)^{-1} F,

    where delta' E delta = |z - R'F'v|^2 + v'Wv with R R' = S, R z = delta and
    v = (F S F' + W)^+ F delta: squares of what is linear in delta, so that the entrywise product
    is with a Gram matrix, and no difference of large numbers.
    """
    out = F.shape[0]
    shift = jnp.zeros(out) if b is None else b
    noise = jnp.zeros((out, out)) if W is None else W
    moved = jax.vmap(lambda S: move_covariance(S, F, noise))(f.covariance)
    means = jnp.einsum("kd,bnd->bnk", F, f.means) + shift[None, None, :]
    if f.is_mixture:
        return GaussianBlocks(f.log_weights, means, moved, f.factor)
    noise_root = psd_root(noise)

    def lost(S: Array, after: Array, m: Array) -> Array:
        delta, roots = m - m[:1], Roots.of(S)
        inverse = Roots.of(after).inverse
        v = (delta @ F.T) @ inverse @ inverse.T
        own = delta @ roots.inverse - v @ (F @ roots.root)
        return jnp.exp(-0.125 * (_squares_between(own) + _squares_between(v @ noise_root)))

    used = (f.log_weights > -jnp.inf)[:, None, None]
    before = jnp.where(used, f.covariance, jnp.eye(f.dim)[None])
    after = jnp.where(used, moved, jnp.eye(out)[None])
    kernels = jax.vmap(lost)(before, after, f.means)
    factor = jax.vmap(schur_factor)(f.factor, kernels)
    return GaussianBlocks(f.log_weights, means, moved, factor)


class Line(NamedTuple):
    """sum_k shares_k N(t; middles_k, deviations_k^2), shares signed and of sum one."""

    shares: Float[Array, " k"]
    middles: Float[Array, " k"]
    deviations: Float[Array, " k"]

    def below(self, t: Float[Array, ""]) -> Float[Array, ""]:
        """The mass below t; a deviation of zero is a step."""
        gap = t - self.middles
        spread = self.deviations > 0
        z = gap / jnp.where(spread, self.deviations, 1.0)
        return jnp.sum(self.shares * jnp.where(spread, ndtr(z), (gap >= 0).astype(gap.dtype)))

    def density(self, t: Float[Array, ""]) -> Float[Array, ""]:
        """The derivative of `below`, steps left out."""
        spread = self.deviations > 0
        sd = jnp.where(spread, self.deviations, 1.0)
        power = -0.5 * jnp.square((t - self.middles) / sd) - 0.5 * _LOG_2PI
        return jnp.sum(jnp.where(spread, self.shares * jnp.exp(power) / sd, 0.0))

    def quantile(self, level: Float[Array, ""], num_halvings: int = 64) -> Float[Array, ""]:
        """The t with `below(t)` = level, differentiable: dt = (dlevel - dF) / F'."""
        still, target = jax.lax.stop_gradient((self, level))
        used = still.shares != 0
        reach = 10.0 * still.deviations
        low = jnp.min(jnp.where(used, still.middles - reach, jnp.inf))
        high = jnp.max(jnp.where(used, still.middles + reach, -jnp.inf))

        def halve(_, bracket):
            low, high = bracket
            middle = low + 0.5 * (high - low)
            left = still.below(middle) < target
            return jnp.where(left, middle, low), jnp.where(left, high, middle)

        low, high = jax.lax.fori_loop(0, num_halvings, halve, (low, high))
        root = low + 0.5 * (high - low)
        slope = still.density(root)
        gap = level - self.below(root)
        gap = gap - jax.lax.stop_gradient(gap)
        return root + gap / jnp.where(slope > 0, slope, jnp.inf)


def line_of(f: GaussianBlocks, axis: int) -> Line:
    """The marginal of one coordinate, normalised."""
    terms = pair_terms(f)
    shares = terms.shares / jnp.sum(terms.shares)
    sd = jnp.sqrt(jnp.maximum(f.covariance[:, axis, axis], 0.0))
    deviations = jnp.broadcast_to(sd[:, None, None], shares.shape)
    return Line(shares.ravel(), terms.middles[..., axis].ravel(), deviations.ravel())


@eqx.filter_jit
def _cdf(f: GaussianBlocks, axis: int, t: Float[Array, " n"]) -> Float[Array, " n"]:
    line = line_of(f, axis)
    return jnp.clip(jax.lax.map(line.below, t, batch_size=64), 0.0, 1.0)


@eqx.filter_jit
def _quantile(f: GaussianBlocks, axis: int, q: Float[Array, " n"]) -> Float[Array, " n"]:
    line = line_of(f, axis)
    return jax.lax.map(line.quantile, q, batch_size=64)
