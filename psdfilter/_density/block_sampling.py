"""Draws from sums of blocks."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from .._gaussian.conditioning import symmetric
from .._gaussian.linalg import graded_root
from .blocks import GaussianBlocks, Line, pair_terms


@eqx.filter_jit
def sample_blocks(f: GaussianBlocks, key: PRNGKeyArray, num: int) -> Float[Array, "n d"]:
    """Independent draws from f / int f."""
    terms = pair_terms(f)
    masses = jnp.maximum(jnp.sum(terms.shares, axis=(1, 2)), 0.0)
    which_key, inner_key = jax.random.split(key)
    which = jax.random.categorical(which_key, jnp.log(masses), shape=(num,))
    used = (masses > 0)[:, None, None]
    covariance = jnp.where(used, f.covariance, 0.0)
    if f.is_mixture:
        roots = jax.vmap(graded_root)(covariance)
        white = jax.random.normal(inner_key, (num, f.dim), dtype=jnp.float64)
        return f.means[which, 0] + jnp.einsum("nde,ne->nd", roots[which], white)
    levels = jax.random.uniform(inner_key, (num, f.dim), dtype=jnp.float64)

    def one(block: Array, level: Float[Array, " d"]) -> Float[Array, " d"]:
        shares, middles = terms.shares[block].ravel(), terms.middles[block].reshape(-1, f.dim)
        return draw_by_coordinates(shares, middles, covariance[block], level)

    return jax.lax.map(lambda a: one(*a), (which, levels), batch_size=256)


def draw_by_coordinates(
    shares: Float[Array, " k"],
    middles: Float[Array, "k d"],
    covariance: Float[Array, "d d"],
    levels: Float[Array, " d"],
) -> Float[Array, " d"]:
    """One draw from sum_k shares_k N(x; middles_k, S), shares of any sign and sum.

    A coordinate from its law, then the law of the others given it, and so on.

    To be given a coordinate is to observe it without noise: gains S_{.a} / S_aa, weights times
    N(x_a; m_a, S_aa). A coordinate that has no variance left is where its mean is.
    """
    size = shares.size

    def coordinate(carry, at):
        log_size, sign, means, S = carry
        axis, level = at
        variance = S[axis, axis]
        free = variance > 4 * S.shape[0] * jnp.finfo(S.dtype).eps * covariance[axis, axis]
        sd = jnp.sqrt(jnp.where(free, variance, 0.0))
        weights = sign * jnp.exp(log_size - jnp.max(log_size))
        total = jnp.sum(weights)
        line = Line(weights / total, means[:, axis], jnp.full((size,), sd))
        value = line.quantile(level)
        residual = value - means[:, axis]
        safe = jnp.where(free, variance, 1.0)
        log_size = log_size - jnp.where(free, 0.5 * jnp.square(residual) / safe, 0.0)
        gain = jnp.where(free, S[:, axis] / safe, 0.0)
        means = means + residual[:, None] * gain[None, :]
        S = symmetric(S - jnp.outer(gain, gain) * safe)
        return (log_size, sign, means, S), value

    start = (jnp.log(jnp.abs(shares)), jnp.sign(shares), middles, covariance)
    return jax.lax.scan(coordinate, start, (jnp.arange(levels.size), levels))[1]
