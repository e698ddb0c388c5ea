"""Other families as sums of blocks, and sums of blocks as a generalised model."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.linalg import cho_solve, solve_triangular
from jaxtyping import Array

from .._checks import is_concrete
from .._gaussian.conditioning import definite_cholesky as covariance_cholesky
from .._gaussian.conditioning import symmetric
from .anchors import expand
from .blocks import GaussianBlocks
from .canonical import definite_cholesky
from .generalized import GeneralizedGaussianPSD, middle_of
from .psd import AbstractDensity, GaussianPSD

_LOG_2PI = float(np.log(2 * np.pi))


def as_blocks(name: str, f: AbstractDensity) -> GaussianBlocks:
    """f as a sum of blocks, of its own order.

    A model with one shared precision is one block; a mixture, that is a diagonal factor, as many as
    it has components. Components of different precisions that interfere fit in no block.
    """
    if isinstance(f, GaussianBlocks):
        return f
    if isinstance(f, GaussianPSD):
        variance = 0.25 / f.precision
        log_weight = f.log_scale + 0.5 * jnp.sum(jnp.log(variance) + _LOG_2PI)
        return _block(expand(f.anchors), jnp.diag(variance), f.factor, log_weight)
    if not isinstance(f, GeneralizedGaussianPSD):
        raise ValueError(
            f"{name} must be a GaussianPSD, a GeneralizedGaussianPSD or a GaussianBlocks, got "
            f"{type(f).__name__}"
        )
    matrices = f.precision[None] if f.is_shared else f.precision
    chol = jax.vmap(definite_cholesky)(matrices)
    if is_concrete(chol) and not bool(jnp.all(jnp.isfinite(chol))):
        raise ValueError(f"{name} must have positive definite precisions to be a law on R^d")
    eye = jnp.eye(f.dim)
    covariance = 0.25 * jax.vmap(lambda r: cho_solve((r, True), eye))(chol)
    every = jnp.broadcast_to(chol, (f.order, f.dim, f.dim))
    white = jax.vmap(lambda r, h: solve_triangular(r, h, lower=True))(every, f.linear)
    means = jax.vmap(lambda r, w: solve_triangular(r.T, w, lower=False))(every, white)
    means = f.origin[None, :] + means
    # |2 pi S|^{1/2} = (pi / 2)^{d/2} / |P|^{1/2}
    log_volume = 0.5 * f.dim * np.log(np.pi / 2) - jnp.sum(
        jnp.log(jnp.diagonal(chol, axis1=1, axis2=2)), axis=1
    )
    heights = f.offset + jnp.sum(jnp.square(white), axis=1)
    if f.is_shared:
        peak = jax.lax.stop_gradient(jnp.max(heights))
        factor = jnp.exp(heights - peak)[:, None] * f.factor
        return _block(means, covariance[0], factor, f.log_scale + 2 * peak + log_volume[0])
    if not _is_mixture(f.factor):
        raise ValueError(
            f"{name} must be a mixture (a diagonal factor), or have one precision shared by all "
            "components: pairs of components of different precisions that interfere have weights "
            "of either sign, which no sum of blocks holds. It stays exact as the generalised model "
            "that it is: filter it with filter_step, on models of conditional_gaussian"
        )
    rows = jnp.sum(jnp.square(f.factor), axis=1)
    log_weights = jnp.log(rows) + f.log_scale + log_volume + 2 * heights
    return GaussianBlocks.of_mixture(log_weights, means, covariance)


@eqx.filter_jit
def generalize_blocks(f: GaussianBlocks) -> GeneralizedGaussianPSD:
    """All components as one model, with a factor of one group of columns for each block.

    phi = N(x; m, S)^{1/2} has P = S^{-1} / 4, h = P m and c = -m'P m - log|2 pi S| / 4.
    """
    num, size, dim = f.means.shape
    rank = f.factor.shape[2]
    used = f.log_weights > -jnp.inf
    matrices = jnp.where(used[:, None, None], f.covariance, jnp.eye(dim)[None])
    means = jnp.where(used[:, None, None], f.means, 0.0)
    num_used = jnp.maximum(jnp.sum(jnp.where(used, 1.0, 0.0)), 1.0)
    chol = jax.vmap(covariance_cholesky)(matrices)
    eye = jnp.eye(dim)
    precision = symmetric(0.25 * jax.vmap(lambda r: cho_solve((r, True), eye))(chol))
    middle = jnp.sum(jnp.mean(means, axis=1), axis=0) / num_used
    origin = middle_of(middle[None, :], precision)
    means = jnp.where(used[:, None, None], means - origin[None, None, :], 0.0)
    linear = jnp.einsum("bde,bne->bnd", precision, means)
    log_det = jnp.sum(jnp.log(jnp.diagonal(chol, axis1=1, axis2=2)), axis=1)
    height = -0.5 * log_det - 0.25 * dim * _LOG_2PI
    offset = height[:, None] - jnp.sum(linear * means, axis=-1)
    peak = jax.lax.stop_gradient(jnp.max(f.log_weights))
    peak = jnp.where(jnp.isfinite(peak), peak, 0.0)
    weighted = jnp.exp(0.5 * (f.log_weights - peak))[:, None, None] * f.factor
    index = np.arange(num)
    columns = jnp.zeros((num, size, num, rank)).at[index, :, index, :].set(weighted)
    shared = num == 1
    return GeneralizedGaussianPSD(
        columns.reshape(num * size, num * rank),
        precision[0] if shared else jnp.repeat(precision, size, axis=0),
        linear.reshape(num * size, dim),
        offset.ravel(),
        peak,
        origin,
    )


def only_used(f: GaussianBlocks) -> GaussianBlocks:
    """f without the blocks of weight zero, where they can be told; one block is always left."""
    if not is_concrete(f.log_weights):
        return f
    kept = np.flatnonzero(np.asarray(f.log_weights) > -np.inf)
    if kept.size in (0, f.log_weights.shape[0]):
        return f
    return jax.tree.map(lambda leaf: leaf[kept], f)


def _is_mixture(factor: Array) -> bool:
    """Whether L L' is diagonal; a traced factor cannot be looked at."""
    if not is_concrete(factor):
        return False
    weights = np.asarray(factor @ factor.T)
    return np.count_nonzero(weights - np.diag(np.diag(weights))) == 0


def _block(means: Array, covariance: Array, factor: Array, log_weight: Array) -> GaussianBlocks:
    if _is_mixture(factor):
        log_weights = log_weight + jnp.log(jnp.sum(jnp.square(factor), axis=1))
        every = jnp.broadcast_to(covariance[None], (means.shape[0], *covariance.shape))
        return GaussianBlocks.of_mixture(log_weights, means, every)
    return GaussianBlocks(log_weight[None], means[None], covariance[None], factor[None])
