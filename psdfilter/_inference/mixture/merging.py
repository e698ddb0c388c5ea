"""Making room in a mixture: pairs that merge at little loss, and components of no weight.

Each component looks for its nearest neighbour, by Runnalls' bound on the Kullback-Leibler
divergence of a merge, weights aside; pairs that choose each other may merge, all at once if need
be. A merge preserves mass, mean and covariance. What it costs in total variation is estimated from
the L2 distance between the pair and the merged Gaussian, which is a closed form.
"""

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from ..._gaussian.conditioning import symmetric
from ..._gaussian.entries import cholesky_entries, entries_of
from ..._gaussian.small import (
    backward_solve,
    forward_solve,
    log_volume,
    semidefinite_cholesky,
)
from ..gaussian.mixture import Mixture, moments

# int |p - q| over the L2 distance relative to |q|, for a q times a third or fourth Hermite
# polynomial: 1.28 and 1.25.
_VARIATION = 1.27
_TWINS = 0.1


class Neighbours(NamedTuple):
    """For every component the one it would merge with, and what would come of it."""

    nearest: Int[Array, " r"]
    mutual: Bool[Array, " r"]  # and the other way round
    loss: Float[Array, " r"]  # estimated total variation of the merge, for a pair of mass one
    merged: Mixture


def _pair(
    share: Float[Array, ""],
    first: tuple[Float[Array, " d"], Float[Array, "d d"]],
    second: tuple[Float[Array, " d"], Float[Array, "d d"]],
) -> tuple[Float[Array, " d"], Float[Array, "d d"]]:
    """Moments of share N(first) + (1 - share) N(second)."""
    (m, S), (n, U) = first, second
    delta = n - m
    spread = share * (1 - share) * jnp.outer(delta, delta)
    return m + (1 - share) * delta, symmetric(share * S + (1 - share) * U + spread)


def _log_overlap(delta: Float[Array, " d"], covariance: Float[Array, "d d"]) -> Float[Array, ""]:
    """log N(delta; 0, covariance) without its power of 2 pi."""
    chol = semidefinite_cholesky(covariance)
    return -0.5 * jnp.sum(jnp.square(forward_solve(chol, delta))) - log_volume(chol)


def merge_loss(
    share: Float[Array, ""],
    first: tuple[Float[Array, " d"], Float[Array, "d d"]],
    second: tuple[Float[Array, " d"], Float[Array, "d d"]],
) -> Float[Array, ""]:
    """About int |p - q| for p = share N(first) + (1 - share) N(second), q of the same moments."""
    (m, S), (n, U) = first, second
    mean, covariance = _pair(share, first, second)
    none = jnp.zeros_like(m)
    # All six overlaps of the three Gaussians, those of the merged one with itself first.
    deltas = jnp.stack([none, none, none, n - m, m - mean, n - mean])
    totals = jnp.stack([2 * covariance, 2 * S, 2 * U, S + U, S + covariance, U + covariance])
    logs = jax.vmap(_log_overlap)(deltas, totals)
    rest = 1 - share
    one, two = jnp.ones_like(share), 2.0
    factors = jnp.stack([one, share**2, rest**2, two * share * rest, -two * share, -two * rest])
    squared = jnp.sum(factors * jnp.exp(logs - logs[0]))
    return jnp.minimum(_VARIATION * jnp.sqrt(jnp.maximum(squared, 0.0)), 2.0)


def find_neighbours(mixture: Mixture) -> Neighbours:
    """Nearest neighbours among the components that have weight."""
    size = mixture.size
    weights = jax.nn.softmax(mixture.log_weights)
    alive = jnp.isfinite(mixture.log_weights)
    # In units of the whole, so that volumes of singular covariances have a floor.
    whole = jnp.sqrt(jnp.maximum(jnp.diagonal(moments(mixture)[1]), 0.0))
    scale = jnp.where(whole > 0, whole, 1.0)
    # Who merges with whom is no function to be differentiated; what comes of it is.
    means = jax.lax.stop_gradient(mixture.means / scale[None, :])
    covariances = mixture.covariances / (scale[:, None] * scale[None, :])[None]
    covariances = jax.lax.stop_gradient(covariances)
    bound = _pair_bounds(means, covariances)
    usable = alive[:, None] & alive[None, :] & ~jnp.asarray(np.eye(size, dtype=bool))
    bound = jnp.where(usable, bound, jnp.inf)
    nearest = jnp.argmin(bound, axis=1)
    mutual = (nearest[nearest] == jnp.arange(size)) & jnp.any(usable, axis=1)
    pick = (mixture.means, mixture.covariances)
    first, second = pick, (pick[0][nearest], pick[1][nearest])
    total = weights + weights[nearest]
    share = jnp.where(mutual & (total > 0), weights / jnp.where(total > 0, total, 1.0), 0.5)
    # In scaled units: only ratios count.
    loss = jax.vmap(merge_loss)(share, (means, covariances), (means[nearest], covariances[nearest]))
    mean, covariance = jax.vmap(_pair)(share, first, second)
    # Empty places aside: the derivative of log(0 + 0) is no number, even where it is not used.
    logs = jnp.where(mutual, mixture.log_weights, 0.0)
    log_weights = jnp.logaddexp(logs, logs[nearest])
    return Neighbours(nearest, mutual, loss, Mixture(log_weights, mean, covariance))


def _pair_bounds(
    means: Float[Array, "r d"], covariances: Float[Array, "r d d"]
) -> Float[Array, "r r"]:
    """Runnalls' bound for every pair, 2 log |merged| - log |S_i| - log |S_j|.

    Of equal weights: otherwise the lightest component would be nearest to all others.
    """
    size = means.shape[0]
    i, j = np.triu_indices(size, 1)
    delta = 0.5 * (means[i] - means[j])
    merged = 0.5 * (covariances[i] + covariances[j]) + delta[:, :, None] * delta[:, None, :]
    own = _floored_log_volumes(covariances)
    half = 2 * _floored_log_volumes(merged) - own[i] - own[j]
    return jnp.zeros((size, size)).at[i, j].set(half).at[j, i].set(half)


def _floored_log_volumes(covariances: Float[Array, "n d d"]) -> Float[Array, " n"]:
    """log |L|, with sizes below 1e-8 of the whole as that."""
    chol = cholesky_entries(entries_of(covariances))
    sizes = [jnp.maximum(chol[k][k], 1e-8) for k in range(len(chol))]
    return jnp.log(math.prod(sizes[1:], start=sizes[0]))


class Removal(NamedTuple):
    """What it takes to empty each place."""

    cost: Float[Array, " r"]  # by importance, per step; infinite if it cannot be
    loss: Float[Array, " r"]  # in total variation
    merges: Bool[Array, " r"]  # into its neighbour; otherwise the weight is dropped


def bend_of_merges(
    neighbours: Neighbours,
    roots: Float[Array, "r d d"],
    directions: Float[Array, "r d"],
    errors: Float[Array, " r"],
    importance: Float[Array, " r"],
) -> Float[Array, " r"]:
    """By how much the error of the linearisations grows if a component merges.

    The error grows with the variance along its main direction, which a merge widens; otherwise
    parts of one Gaussian would merge again as soon as they are made.
    """
    partner = neighbours.nearest
    across = jax.vmap(backward_solve)(roots, directions)
    wider = jnp.einsum("ri,rij,rj->r", across, neighbours.merged.covariances, across)
    worst = jnp.maximum(wider * errors, (wider * errors)[partner])
    before = importance * errors
    after = (importance + importance[partner]) * worst
    return jnp.maximum(after - before - before[partner], 0.0)


def twin_pairs(
    neighbours: Neighbours,
    grown: Float[Array, " r"],
    errors: Float[Array, " r"],
    importance: Float[Array, " r"],
    patience: float,
) -> Bool[Array, " r"]:
    """Components of pairs whose merge costs next to nothing against the errors they have."""
    partner = neighbours.nearest
    weighted = importance * errors
    loss = (importance + importance[partner]) * neighbours.loss
    return neighbours.mutual & (loss / patience + grown < _TWINS * (weighted + weighted[partner]))


def removal(
    mixture: Mixture,
    neighbours: Neighbours,
    kept: Bool[Array, " r"],
    grown: Float[Array, " r"],
    importance: Float[Array, " r"],
    prune: float,
    patience: float,
) -> Removal:
    """What it takes to empty each place.

    `importance` are the weights after what comes next. Impossible for components that are `kept`,
    for the heavier one of a pair, and for those of more weight than `prune` without a partner. A
    loss comes once and counts 1 / `patience`, what a merge adds to the error of linearisations
    comes again.
    """
    weights = jax.nn.softmax(mixture.log_weights)
    alive = jnp.isfinite(mixture.log_weights)
    partner = neighbours.nearest
    own, other = mixture.log_weights, mixture.log_weights[partner]
    lighter = (own < other) | ((own == other) & (jnp.arange(mixture.size) > partner))
    allowed = neighbours.mutual & lighter & ~kept & ~kept[partner]
    loss = (importance + importance[partner]) * neighbours.loss
    by_merge = jnp.where(allowed, loss / patience + grown, jnp.inf)
    # Dropping moves the mass to the others: int |p - q| = 2 w. Not next to a merge into it.
    by_drop = jnp.where((weights <= prune) & ~kept, 2 * importance / patience, jnp.inf)
    by_drop = jnp.where(neighbours.mutual & ~lighter, jnp.inf, by_drop)
    cost = jnp.where(alive, jnp.minimum(by_merge, by_drop), 0.0)
    merges = alive & (by_merge <= by_drop)
    merged_loss = (weights + weights[partner]) * neighbours.loss
    return Removal(cost, jnp.where(merges, merged_loss, 2 * weights), merges)


def emptied(
    mixture: Mixture, neighbours: Neighbours, removed: Bool[Array, " r"], merges: Bool[Array, " r"]
) -> Mixture:
    """The mixture with these places empty, merged into their neighbours where `merges` says so."""
    partner = neighbours.nearest
    receives = removed[partner] & merges[partner] & neighbours.mutual & ~removed
    new = Mixture(
        *(
            jnp.where(receives.reshape(-1, *([1] * (a.ndim - 1))), b, a)
            for a, b in zip(mixture, neighbours.merged, strict=True)
        )
    )
    return new._replace(log_weights=jnp.where(removed, -jnp.inf, new.log_weights))
