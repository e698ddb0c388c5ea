"""Other families as sums of blocks."""

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.linalg import cho_solve, solve_triangular
from jaxtyping import Array

from .._checks import is_concrete
from .anchors import expand
from .blocks import GaussianBlocks
from .canonical import _definite_cholesky
from .generalized import GeneralizedGaussianPSD
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
    chol = jax.vmap(_definite_cholesky)(matrices)
    if is_concrete(chol) and not bool(jnp.all(jnp.isfinite(chol))):
        raise ValueError(f"{name} must have positive definite precisions to be a law on R^d")
    eye = jnp.eye(f.dim)
    covariance = 0.25 * jax.vmap(lambda r: cho_solve((r, True), eye))(chol)
    every = jnp.broadcast_to(chol, (f.order, f.dim, f.dim))
    white = jax.vmap(lambda r, h: solve_triangular(r, h, lower=True))(every, f.linear)
    means = jax.vmap(lambda r, w: solve_triangular(r.T, w, lower=False))(every, white)
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
            "components: components of different precisions that interfere leave the family at "
            "the first transition"
        )
    rows = jnp.sum(jnp.square(f.factor), axis=1)
    log_weights = jnp.log(rows) + f.log_scale + log_volume + 2 * heights
    return GaussianBlocks.of_mixture(log_weights, means, covariance)


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
