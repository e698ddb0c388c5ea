"""Generalised models as signed sums of Gaussians: what samplers and exact recursions run on.

    f(x) = exp(log_scale) sum_k shares_k N(x; m_k, S_k),   one k for each pair of components.

Components of different precisions that interfere have no other exact form of this kind: a pair's
weight is of either sign, so that no sum of blocks holds them.
"""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.linalg import cho_solve
from jaxtyping import Array, Float, PRNGKeyArray

from .._gaussian.conditioning import symmetric
from .blocks import Line
from .canonical import definite_cholesky, log_pair_integrals
from .generalized import GeneralizedGaussianPSD, PairwiseGaussianPSD, pairwise


class SignedTerms(NamedTuple):
    """f(x) = exp(log_scale) sum_k shares_k N(x; means_k, covariances_k); shares of any sign."""

    shares: Float[Array, " k"]
    means: Float[Array, "k d"]
    covariances: Float[Array, "k d d"]
    log_scale: Float[Array, ""]


@eqx.filter_jit
def signed_terms(f: GeneralizedGaussianPSD | PairwiseGaussianPSD) -> SignedTerms:
    """All pairs i <= j; NaN unless every precision is positive definite."""
    i, j = np.triu_indices(f.order)
    pairs = pairwise(f)
    twice = jnp.asarray(np.where(i == j, 1.0, 2.0))
    logs = log_pair_integrals(pairs)[i, j]
    peak = jax.lax.stop_gradient(jnp.max(logs))
    shares = twice * jnp.sum(f.factor[i] * f.factor[j], axis=-1) * jnp.exp(logs - peak)

    def gaussian(precision: Array, linear: Array) -> tuple[Array, Array]:
        chol = definite_cholesky(precision)
        return cho_solve((chol, True), linear), 0.5 * cho_solve((chol, True), jnp.eye(f.dim))

    means, covariances = jax.vmap(gaussian)(pairs.precision[i, j], pairs.linear[i, j])
    means = f.origin[None, :] + means
    return SignedTerms(shares, means, symmetric(covariances), f.log_scale + peak)


@eqx.filter_jit
def draw_terms(terms: SignedTerms, key: PRNGKeyArray, num: int) -> Float[Array, "n d"]:
    """Independent draws: a coordinate from its law, then the others given it, and so on."""
    dim = terms.means.shape[1]
    levels = jax.random.uniform(key, (num, dim), dtype=jnp.float64)

    def one(level: Float[Array, " d"]) -> Float[Array, " d"]:
        def coordinate(carry, at):
            logs, means, S = carry
            axis, u = at
            variance = S[:, axis, axis]
            weights = jnp.sign(terms.shares) * jnp.exp(logs - jnp.max(logs))
            line = Line(weights / jnp.sum(weights), means[:, axis], jnp.sqrt(variance))
            value = line.quantile(u)
            residual = value - means[:, axis]
            # A coordinate is fixed like an exact observation of it.
            logs = logs - 0.5 * (jnp.square(residual) / variance + jnp.log(variance))
            gain = S[:, :, axis] / variance[:, None]
            means = means + residual[:, None] * gain
            after = S - gain[:, :, None] * S[:, axis, None, :]
            return (logs, means, symmetric(after)), value

        start = (jnp.log(jnp.abs(terms.shares)), terms.means, terms.covariances)
        return jax.lax.scan(coordinate, start, (jnp.arange(dim), level))[1]

    return jax.lax.map(one, levels, batch_size=256)
