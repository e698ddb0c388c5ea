"""Ways into and out of the two families, and changes of units."""

from typing import NamedTuple, TypeVar, overload

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.linalg import cho_solve, solve_triangular
from jaxtyping import Array, Float

from .._checks import Numbers, as_floats, check_values, is_concrete, verified
from .._gaussian.kernel import log_total_mass, midpoints, squared_distances
from . import block_calculus
from .anchors import TensorGrid, expand
from .block_conversions import generalize_blocks, only_used
from .blocks import NO_DENSITY, GaussianBlocks
from .generalized import GeneralizedGaussianPSD, PairwiseGaussianPSD, middle_of
from .psd import AbstractDensity, GaussianPSD, as_precision

# Models with precisions, and all.
PSDModel = GaussianPSD | GeneralizedGaussianPSD | PairwiseGaussianPSD
Model = PSDModel | GaussianBlocks
SameModel = TypeVar("SameModel", bound=Model)


def describe_foreign(f: object) -> str:
    """The type of what is no model of the calculus, and how to make one of it."""
    remedy = ""
    if hasattr(f, "expand"):
        remedy = ": use its expand()"
    elif isinstance(f, AbstractDensity):
        remedy = ": fit it with psdfilter.learn_rank_one(f, box, vectorized=True)"
    return f"{type(f).__name__}{remedy}"


class SignedMixture(NamedTuple):
    """f(x) = sum_k weights_k exp(-sum_l precision_l (x_l - centers_kl)^2), weights of any sign."""

    weights: Float[Array, " k"]
    centers: Float[Array, "k d"]
    precision: Float[Array, " d"]


def from_mixture(
    weights: Numbers, means: Numbers, covariance: Numbers
) -> GaussianPSD | GeneralizedGaussianPSD:
    """sum_k w_k N(x | m_k, S) as a PSD model with a diagonal weight matrix.

    `covariance` says which family: a vector (d,) of variances shared by all components gives a
    `GaussianPSD` with eta = 1 / (4 variance); matrices (k, d, d), one for each component, give a
    `GeneralizedGaussianPSD`.
    """
    points = as_floats("means", means, ndim=2)
    order, dim = points.shape
    shares = as_floats("weights", weights, ndim=1)
    if shares.shape != (order,):
        raise ValueError(f"weights must have shape ({order},), one per mean, got {shares.shape}")
    shares = check_values(
        shares, shares >= 0, f"weights must be non-negative, got {_lowest(shares)}"
    )
    points, spread = verified(means=points, covariance=as_floats("covariance", covariance))
    if spread.shape == (dim,):
        spread = as_precision("covariance", spread, dim)
        variance = check_values(spread, spread > 0, "covariance must be positive on every axis")
        eta = 0.25 / variance
        height = jnp.exp(-0.5 * log_total_mass(2 * eta))
        return GaussianPSD(points, jnp.diag(jnp.sqrt(shares) * height), eta)
    if spread.shape != (order, dim, dim):
        raise ValueError(
            f"covariance must have shape ({dim},), variances shared by all components, or "
            f"({order}, {dim}, {dim}), one matrix for each; got {spread.shape}"
        )
    chol = _cholesky(spread, "covariance must hold symmetric positive definite matrices")
    eye = jnp.eye(dim)
    matrix = 0.25 * jax.vmap(lambda r: cho_solve((r, True), eye))(chol)
    log_det = jnp.sum(jnp.log(jnp.diagonal(chol, axis1=-2, axis2=-1)), axis=-1)
    height = -0.25 * dim * np.log(2 * np.pi) - 0.5 * log_det
    f = GeneralizedGaussianPSD.from_centers(points, jnp.diag(jnp.sqrt(shares)), matrix)
    return eqx.tree_at(lambda m: m.offset, f, f.offset + height)


def _cholesky(matrix: Float[Array, "*k d d"], message: str) -> Float[Array, "*k d d"]:
    """R with R R' = S; LAPACK would read one triangle of a lopsided S and not complain."""
    chol = jnp.linalg.cholesky(matrix)
    skew = jnp.abs(matrix - jnp.swapaxes(matrix, -1, -2))
    even = jnp.all(skew <= 1e-10 * jnp.max(jnp.abs(matrix)))
    return check_values(chol, jnp.isfinite(chol) & even, message)


def _lowest(array: Array) -> str:
    return f"{float(jnp.min(array)):.6g}" if is_concrete(array) else "a negative one"


def from_linear(
    anchors: Numbers | TensorGrid, coefficients: Numbers, precision: Numbers
) -> GaussianPSD:
    """(sum_i a_i k_i(x))^2, the square of a Gaussian linear model: A = a a'."""
    return GaussianPSD(anchors, as_floats("coefficients", coefficients, ndim=1), precision)


def to_mixture(f: GaussianPSD) -> SignedMixture:
    """f as a signed mixture: centres (X_i + X_j)/2, weights A_ij k_{eta/2}(X_i, X_j).

    For looking at and for export: evaluating the signed sum loses the digits that f itself keeps.
    """
    if not isinstance(f, GaussianPSD):
        raise ValueError(f"f must be a GaussianPSD, got {type(f).__name__}")
    return _to_mixture(verified(f=f))


@eqx.filter_jit
def _to_mixture(f: GaussianPSD) -> SignedMixture:
    x = expand(f.anchors)
    i, j = np.triu_indices(f.order)
    twice = jnp.asarray(np.where(i == j, 1.0, 2.0))
    cross = jnp.exp(-squared_distances(x, x, 0.5 * f.precision))
    weights = twice * (f.weights * cross)[i, j]
    return SignedMixture(weights, midpoints(x)[i, j], 2 * f.precision)


@overload
def generalize(f: GaussianPSD | GaussianBlocks) -> GeneralizedGaussianPSD: ...
@overload
def generalize(f: Model) -> GeneralizedGaussianPSD | PairwiseGaussianPSD: ...
def generalize(f: Model) -> GeneralizedGaussianPSD | PairwiseGaussianPSD:
    """f as a generalised model: of shared precision diag(eta) for a `GaussianPSD`.

    `GaussianBlocks` give all their components, order one for the law of a Kalman filter; their
    covariances must not be singular.
    """
    if isinstance(f, GaussianPSD):
        return _generalize(f)
    if not isinstance(f, Model):
        raise ValueError(f"f must be a model of the calculus, got {describe_foreign(f)}")
    if not isinstance(f, GaussianBlocks):
        return f
    model = generalize_blocks(only_used(f))
    offset = check_values(model.offset, jnp.isfinite(model.offset), NO_DENSITY)
    return eqx.tree_at(lambda m: m.offset, model, offset)


@eqx.filter_jit
def _generalize(f: GaussianPSD) -> GeneralizedGaussianPSD:
    points = expand(f.anchors)
    model = GeneralizedGaussianPSD.from_centers(points, f.factor, jnp.diag(f.precision))
    return eqx.tree_at(lambda m: m.log_scale, model, f.log_scale)


def with_precisions(f: Model) -> PSDModel:
    """f, sums of blocks as the generalised model that they are."""
    return generalize(f) if isinstance(f, GaussianBlocks) else f


def conditional_gaussian(
    matrix: Numbers,
    covariance: Numbers,
    shift: Numbers | None = None,
    *,
    damping: float = 0.0,
) -> GeneralizedGaussianPSD:
    """N(y | F x + b, S) exp(-damping |(x, y)|^2) as a model of order one in (x, y).

    With D = (F, -I) the joint precision D'S^{-1}D / 2 is singular, which the canonical form takes
    as it is: at damping 0 the model is the conditional density itself.

    Args:
        matrix: F, (p, d).
        covariance: S, (p, p), positive definite.
        shift: b, (p,); zero if None.
        damping: lambda >= 0 times the squared norm, which makes the joint integrable.
    """
    F = as_floats("matrix", matrix, ndim=2)
    out, into = F.shape
    S = as_floats("covariance", covariance, ndim=2)
    if S.shape != (out, out):
        raise ValueError(f"covariance must have shape ({out}, {out}), got {S.shape}")
    b = jnp.zeros(out) if shift is None else as_floats("shift", shift, ndim=1)
    if b.shape != (out,):
        raise ValueError(f"shift must have shape ({out},), got {b.shape}")
    F, S, b = verified(matrix=F, covariance=S, shift=b)
    lam = as_floats("damping", damping, ndim=0)
    lam = check_values(lam, lam >= 0, f"damping must be >= 0, got {damping}")
    chol = _cholesky(S, "covariance must be symmetric and positive definite")
    white = solve_triangular(chol, jnp.concatenate([F, -jnp.eye(out)], axis=1), lower=True)
    # A rank-one model is a square: its component is the root of the density, half the exponent.
    precision = 0.25 * white.T @ white + 0.5 * lam * jnp.eye(into + out)
    # Measured from (0, b), where the density has its ridge, if b is far; the damping is about zero.
    origin = middle_of(jnp.concatenate([jnp.zeros(into), b])[None, :], precision[None])
    gap = solve_triangular(chol, b - origin[into:], lower=True)  # zero, but for its derivatives
    linear = -0.25 * white.T @ gap - 0.5 * lam * origin
    offset = -0.25 * gap @ gap - 0.5 * lam * origin @ origin
    log_det = jnp.sum(jnp.log(jnp.diagonal(chol)))
    height = -0.5 * out * np.log(2 * np.pi) - log_det
    return GeneralizedGaussianPSD(
        jnp.ones((1, 1)), precision, linear[None], offset[None], height, origin
    )


def change_units(f: SameModel, center: Numbers, scale: Numbers) -> SameModel:
    """f((x - center) / scale) / prod scale: the density of x = center + scale z if z has f."""
    if not isinstance(f, Model):
        raise ValueError(f"f must be a PSD model, got {describe_foreign(f)}")
    s = as_precision("scale", scale, f.dim)
    c = as_floats("center", center)
    c = jnp.full((f.dim,), c) if c.ndim == 0 else c
    if c.shape != (f.dim,):
        raise ValueError(f"center must be a number or have shape ({f.dim},), got {c.shape}")
    s = check_values(s, s > 0, "scale must be positive on every axis")
    return _in_units(*verified(f=f, center=c, scale=s))


@eqx.filter_jit
def _in_units(f: SameModel, c: Float[Array, " d"], s: Float[Array, " d"]) -> SameModel:
    if isinstance(f, GaussianBlocks):
        return block_calculus.in_units(f, c, s)
    log_scale = f.log_scale - jnp.sum(jnp.log(s))
    if isinstance(f, GaussianPSD):
        if isinstance(f.anchors, TensorGrid):
            axes = [c[a] + s[a] * points for a, points in enumerate(f.anchors.axes)]
            anchors: Array | TensorGrid = TensorGrid(axes)
        else:
            anchors = c[None, :] + s[None, :] * f.anchors
        eta = f.precision / jnp.square(s)
        return GaussianPSD(anchors, f.factor, eta, log_scale)  # pyright: ignore[reportReturnType]
    tall = (1,) * (f.precision.ndim - 2)
    matrix = f.precision / jnp.outer(s, s).reshape(*tall, f.dim, f.dim)
    linear = f.linear / s.reshape((1,) * (f.linear.ndim - 1) + s.shape)
    kind = type(f)
    return kind(f.factor, matrix, linear, f.offset, log_scale, c + s * f.origin)
