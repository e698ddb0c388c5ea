"""Fewer Gaussians: prune what weighs nothing, merge what lies together, moments preserved.

Pivots are chosen greedily, each the component with the largest weight that those before it do not
cover, exp(-KL(i || p) / 4); every component then joins the pivot nearest to it, and each
cluster becomes the Gaussian of its mass, mean and covariance.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from ..._gaussian.entries import inverse_roots
from ..gaussian.mixture import Mixture

# Of the mass, what may be dropped in one step; more was seen to bias the weights of modes.
PRUNED = 1e-4
# Pivots below this share of a variance: a direction without noise, along which nothing is near.
_FLOOR = 1e-10
# Divergence over which a pivot covers others; errors were lowest between 3 and 6.
_REACH = 4.0
# What a divergence of the whole state counts next to one of its measured part.
_REST = 0.3


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
    # The others take over the mass, so that likelihoods do not drift.
    logs = jnp.where(dropped, -jnp.inf, mixture.log_weights - jnp.log1p(-lost))
    return mixture._replace(log_weights=logs), 2 * lost


class Divergences(NamedTuple):
    """KL(N_i || N_p) = features[:, i] . coefficients[p] + own[i] + other[p].

    With `measured` (d, q), a weighted sum of the divergence of the whole state and that of V'x.
    Columns are cheap one by one, and most are never asked for.
    """

    features: Float[Array, "k n"]
    coefficients: Float[Array, "n k"]
    own: Float[Array, " n"]
    other: Float[Array, " n"]

    @classmethod
    def of(cls, mixture: Mixture, measured: np.ndarray | None = None) -> "Divergences":
        """Between all components of a mixture."""
        dim = mixture.dim
        # About a common origin: the quadratic forms below are differences.
        m = mixture.means - jnp.mean(mixture.means, axis=0)[None, :]
        inverse, log_root = inverse_roots(mixture.covariances, _FLOOR)
        precision = jnp.einsum("pki,pkj->pij", inverse, inverse)
        total = log_root - 0.5 * dim
        if measured is not None and measured.shape[1] < dim:
            V = jnp.asarray(measured)
            seen = jnp.einsum("ip,kij,jq->kpq", V, mixture.covariances, V)
            inverse, log_root = inverse_roots(seen, _FLOOR)
            rows = jnp.einsum("kpq,iq->kpi", inverse, V)
            precision = _REST * precision + jnp.einsum("kpi,kpj->kij", rows, rows)
            total = _REST * total + log_root - 0.5 * measured.shape[1]
            dimension = _REST * dim + measured.shape[1]
        else:
            dimension = float(dim)
        second = mixture.covariances + m[:, :, None] * m[:, None, :]
        linear = jnp.einsum("pij,pj->pi", precision, m)
        row, column = np.tril_indices(dim)
        twice = jnp.asarray(np.where(row == column, 0.5, 1.0))[None, :]
        features = jnp.concatenate([second[:, row, column], m], axis=1).T
        coefficients = jnp.concatenate([twice * precision[:, row, column], -linear], axis=1)
        other = 0.5 * jnp.sum(linear * m, axis=1) + total
        return cls(features, coefficients, -total - 0.5 * dimension, other)

    def to(self, p: Int[Array, ""]) -> Float[Array, " n"]:
        """KL(N_i || N_p) for every i."""
        # A sum of products instead of a product with a vector: no call of a library for each.
        product = jnp.sum(self.features * self.coefficients[p][:, None], axis=0)
        return jnp.maximum(product + self.own + self.other[p], 0.0)


def choose_clusters(
    weights: Float[Array, " n"], divergences: Divergences, size: int
) -> Int[Array, " n"]:
    """For every component, which of at most `size` clusters it belongs to.

    Roots of weights, so that the flanks get pivots of their own: a far component that joins a heavy
    one widens it.
    """

    def step(k, carry):
        left, nearest, cluster = carry
        pivot = jnp.argmax(left)
        distance = divergences.to(pivot).at[pivot].set(-1.0)
        # Nothing left: the clusters are complete.
        closer = (distance < nearest) & (left[pivot] > 0)
        left = left * (1.0 - jnp.exp(-distance / _REACH))
        left = left.at[pivot].set(0.0)
        return left, jnp.where(closer, distance, nearest), jnp.where(closer, k, cluster)

    start = jnp.sqrt(weights), jnp.full(weights.shape, jnp.inf), jnp.zeros(weights.shape, int)
    return jax.lax.fori_loop(0, size, step, start)[2]


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


def merge(mixture: Mixture, size: int, measured: np.ndarray | None = None) -> Compressed:
    """At most `size` Gaussians, and the mass, mean and covariance of the whole kept.

    With `measured` (d, q), divergences of V'x count more than those of the rest: a component that
    is wide there has to be split at the next observation, one that is wide in a velocity has not.
    """
    mixture, dropped = pruned(mixture)
    weights = jax.nn.softmax(mixture.log_weights)
    cluster = choose_clusters(weights, Divergences.of(mixture, measured), size)
    member = (cluster[None, :] == jnp.arange(size)[:, None]).astype(weights.dtype)
    merged, loss = clustered(mixture, member)
    return Compressed(merged, loss + dropped)
