"""Priors whose components interfere and have precisions of their own: a Gaussian for each pair.

    |L'k(x)|^2 = sum_ij (L L')_ij k_i(x) k_j(x),    k_i k_j = exp(c_ij + 2 h_ij'x - x'P_ij x)

Pairs have weights of either sign and covariances of their own, so that each is a block of a bank.
Linear steps act on every pair by itself; the sum stays non-negative, and comes back as pairs.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.linalg import cho_solve
from jaxtyping import Array, Float

from ..._density.canonical import definite_cholesky
from ..._density.generalized import (
    GeneralizedGaussianPSD,
    PairwiseGaussianPSD,
    middle_of,
    pairwise,
)
from .bank import Bank, Layout

# The log of nothing, as a finite number: pairs of weight zero have no size to be found again.
_NOTHING = -1e6


def interferes(f: object) -> bool:
    """Whether f needs its pairs: precisions that differ, and a factor that is not diagonal."""
    if not isinstance(f, GeneralizedGaussianPSD) or f.is_shared:
        return False
    weights = np.asarray(f.factor @ f.factor.T)
    return bool(np.count_nonzero(weights - np.diag(np.diag(weights))))


def _log_volume(chol: Float[Array, "*b d d"]) -> Float[Array, "*b"]:
    """log of int exp(-x'Px) = pi^{d/2} |P|^{-1/2}."""
    dim = chol.shape[-1]
    logs = jnp.log(jnp.diagonal(chol, axis1=-2, axis2=-1))
    return 0.5 * dim * np.log(np.pi) - jnp.sum(logs, axis=-1)


def pair_bank(f: GeneralizedGaussianPSD) -> tuple[Bank, Layout]:
    """f / int f as a bank with one block for each pair i <= j."""
    pairs = pairwise(f)
    i, j = np.triu_indices(f.order)
    chol = jax.vmap(definite_cholesky)(pairs.precision[i, j])
    if not bool(jnp.all(jnp.isfinite(chol))):
        raise ValueError("prior must have positive definite precisions to be a law on R^d")
    inverse = jax.vmap(lambda r: cho_solve((r, True), jnp.eye(f.dim)))(chol)
    linear = pairs.linear[i, j]
    means = jnp.einsum("bde,be->bd", inverse, linear)
    logs = pairs.offset[i, j] + jnp.sum(linear * means, axis=-1) + _log_volume(chol)
    weights = (f.factor @ f.factor.T)[i, j] * np.where(i == j, 1.0, 2.0)
    some = weights != 0
    sizes = jnp.where(some, logs + jnp.log(jnp.abs(jnp.where(some, weights, 1.0))), -jnp.inf)
    peak = jnp.max(sizes)
    total = jnp.sum(jnp.sign(weights) * jnp.exp(sizes - peak))
    means = f.origin[None, :] + means
    bank = Bank((sizes - peak - jnp.log(total))[:, None], means[:, None], 0.5 * inverse)
    return bank, Layout(jnp.sign(weights)[:, None], None, f.factor)


@eqx.filter_jit
def pairs_of(bank: Bank, factor: Float[Array, "m r"]) -> PairwiseGaussianPSD:
    """The bank of one time as a density: pairs of the same factor."""
    order, dim = factor.shape[0], bank.means.shape[-1]
    i, j = np.triu_indices(order)
    chol = jax.vmap(definite_cholesky)(bank.covariances)
    precision = 0.5 * jax.vmap(lambda r: cho_solve((r, True), jnp.eye(dim)))(chol)
    origin = middle_of(bank.means[:, 0], precision)
    means = bank.means[:, 0] - origin[None, :]
    linear = jnp.einsum("bde,be->bd", precision, means)
    volume = _log_volume(jax.vmap(definite_cholesky)(precision))
    weights = (factor @ factor.T)[i, j] * np.where(i == j, 1.0, 2.0)
    sizes = bank.log_sizes[:, 0] - jnp.log(jnp.abs(jnp.where(weights != 0, weights, 1.0)))
    offset = sizes - jnp.sum(linear * means, axis=-1) - volume
    offset = jnp.where(jnp.isfinite(offset), offset, _NOTHING)

    def matrix(values: Array) -> Array:
        empty = jnp.zeros((order, order, *values.shape[1:]))
        return empty.at[i, j].set(values).at[j, i].set(values)

    return PairwiseGaussianPSD(
        factor, matrix(precision), matrix(linear), matrix(offset), jnp.zeros(()), origin
    )
