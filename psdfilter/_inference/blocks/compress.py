"""Fewer Gaussians: prune what weighs nothing, merge what lies together, moments preserved.

Pivots are chosen greedily, each the component with the largest weight that those before it do not
cover, exp(-KL(i || p) / 4); every component then joins the pivot nearest to it, and each
cluster becomes the Gaussian of its mass, mean and covariance. All Kullback-Leibler divergences come
from one matrix product.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..._gaussian.entries import inverse_roots
from .mixture import Mixture

# Of the mass, what may be dropped in one step; more was seen to bias the weights of modes.
PRUNED = 1e-4
# Pivots below this share of a variance: a direction without noise, along which nothing is near.
_FLOOR = 1e-10
# Divergence over which a pivot covers others; errors were lowest between 3 and 6.
_REACH = 4.0


class Compressed(NamedTuple):
    """The smaller mixture, and about int |before - after|."""

    mixture: Mixture
    loss: Float[Array, ""]


def pruned(mixture: Mixture, share: float = PRUNED) -> tuple[Mixture, Float[Array, ""]]:
    """Without the smallest components that together hold at most `share` of the mass."""
    weights = jax.nn.softmax(mixture.log_weights)
    order = jnp.argsort(weights)
    tail = jnp.cumsum(weights[order])
    dropped = jnp.zeros(weights.shape, dtype=bool).at[order].set(tail <= share)
    lost = jnp.sum(jnp.where(dropped, weights, 0.0))
    return mixture._replace(log_weights=jnp.where(dropped, -jnp.inf, mixture.log_weights)), 2 * lost


def divergences(mixture: Mixture, others: Mixture) -> Float[Array, "n r"]:
    """KL(N_i || N_p) for every component i of one mixture and p of another."""
    dim = mixture.dim
    # About a common origin: the quadratic forms below are differences.
    origin = jnp.mean(mixture.means, axis=0)[None, :]
    m, n = mixture.means - origin, others.means - origin
    inverse, log_root = inverse_roots(others.covariances, _FLOOR)
    _, own_log_root = inverse_roots(mixture.covariances, _FLOOR)
    precision = jnp.einsum("pki,pkj->pij", inverse, inverse)
    second = mixture.covariances + m[:, :, None] * m[:, None, :]
    linear = jnp.einsum("pij,pj->pi", precision, n)
    quadratic = second.reshape(-1, dim * dim) @ precision.reshape(-1, dim * dim).T
    quadratic = quadratic - 2 * m @ linear.T + jnp.sum(linear * n, axis=1)[None, :]
    total = 0.5 * (quadratic - dim) + log_root[None, :] - own_log_root[:, None]
    return jnp.maximum(total, 0.0)


def choose_pivots(weights: Float[Array, " n"], distances: Float[Array, "n n"], size: int) -> Array:
    """Indices of `size` components; those after all weight is covered repeat the last.

    Roots of weights, so that the flanks get pivots of their own: a far component that joins a heavy
    one widens it.
    """
    covered = -jnp.expm1(-distances / _REACH)

    def step(k, carry):
        left, chosen = carry
        pivot = jnp.argmax(left)
        left = left * covered[:, pivot]
        return left.at[pivot].set(0.0), chosen.at[k].set(pivot)

    start = jnp.sqrt(weights), jnp.zeros(size, dtype=int)
    return jax.lax.fori_loop(0, size, step, start)[1]


def clustered(mixture: Mixture, member: Float[Array, "r n"]) -> tuple[Mixture, Float[Array, ""]]:
    """Each row of 0s and 1s a Gaussian of the same mass, mean and covariance; and the loss."""
    weights = jax.nn.softmax(mixture.log_weights)
    total = jax.scipy.special.logsumexp(mixture.log_weights)
    shares = member * weights[None, :]
    mass = jnp.sum(shares, axis=1)
    safe = jnp.where(mass > 0, mass, 1.0)
    shares = shares / safe[:, None]
    used = mass > 0
    origin = jnp.mean(mixture.means, axis=0)[None, :]
    m = mixture.means - origin
    centers = shares @ m
    own = jnp.argmax(member, axis=0)
    delta = m - centers[own]
    spread = mixture.covariances + delta[:, :, None] * delta[:, None, :]
    dim = mixture.dim
    covariances = (shares @ spread.reshape(-1, dim * dim)).reshape(-1, dim, dim)
    covariances = jnp.where(used[:, None, None], covariances, jnp.eye(dim)[None])
    loss = jnp.sum(mass * _non_gaussian(mixture, shares, own, delta, covariances))
    log_weights = jnp.where(used, jnp.log(safe) + total, -jnp.inf)
    means = jnp.where(used[:, None], centers + origin, mixture.means[:1])
    return Mixture(log_weights, means, covariances), loss


def _non_gaussian(
    mixture: Mixture,
    shares: Float[Array, "r n"],
    own: Array,
    delta: Float[Array, "n d"],
    covariances: Float[Array, "r d d"],
) -> Float[Array, " r"]:
    """About int |cluster - its Gaussian|, from skewness and kurtosis along its principal axes.

    1-d: the first terms of the Gram-Charlier series, sqrt(skew^2 / 6 + excess^2 / 24) in the norm
    that bounds 0.8 of total variation for small ones.
    """
    inverse = inverse_roots(covariances, _FLOOR)[0][own]
    z = jnp.einsum("nij,nj->ni", inverse, delta)
    v = jnp.einsum("nij,njk,nik->ni", inverse, mixture.covariances, inverse)
    third = shares @ (z**3 + 3 * z * v)
    fourth = shares @ (z**4 + 6 * jnp.square(z) * v + 3 * jnp.square(v)) - 3.0
    return jnp.sqrt(jnp.sum(jnp.square(third) / 6 + jnp.square(fourth) / 24, axis=1))


def merge(mixture: Mixture, size: int) -> Compressed:
    """At most `size` Gaussians, and the mass, mean and covariance of the whole kept."""
    mixture, dropped = pruned(mixture)
    weights = jax.nn.softmax(mixture.log_weights)
    distances = divergences(mixture, mixture)
    pivots = choose_pivots(weights, distances, size)
    nearest = jnp.argmin(distances[:, pivots], axis=1)
    member = (nearest[None, :] == jnp.arange(size)[:, None]).astype(weights.dtype)
    merged, loss = clustered(mixture, member)
    return Compressed(merged, loss + dropped)
