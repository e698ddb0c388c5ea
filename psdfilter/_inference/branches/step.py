"""Steps of a linear-Gaussian model with regimes: Gaussians branch, are updated, and then merge.

The exact law of (regime, state) has a Gaussian for every history of regimes. Each regime keeps a
few of them: a transition makes K times as many, each is updated exactly, and only then do those
that lie together merge, regime by regime, with mass, mean and covariance preserved. (IMM merges
before the transition, to one for each regime.) A second filter of half as many runs beside the
first, and what they differ by is the estimate of the error.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import logsumexp
from jaxtyping import Array, Bool, Float, Int

from ... import _results
from ..._gaussian.conditioning import LinearSensor, move_covariance, observe, sensor_gain
from ..._gaussian.entries import inverse_roots
from ..._gaussian.linalg import psd_root
from ..gaussian.linear import MAX_SPREAD, Dynamics, Sensor
from ..gaussian.mixture import Mixture, padded
from ..mixture.compress import Divergences, choose_clusters, clustered, pruned

# Variances below this share of the largest count as that in densities of an error estimate.
_FLOOR = 1e-12
# How fast old losses are forgotten, in the ratio of those of both filters.
_FADE = 0.9
# What the losses of both filters say of their errors, give or take.
_SAFETY = 3.0
_LOG_2PI = float(np.log(2 * np.pi))


class Parts(NamedTuple):
    """The matrices of all regimes, stacked, and the chain between them."""

    dynamics: Dynamics
    sensor: Sensor
    floor: Float[Array, "k p"]  # least variance of each coordinate of y
    log_switch: Float[Array, "k k"]


# Gaussians of all regimes: leaves of a `Mixture` with a leading axis.
Branches = Mixture


class Law(NamedTuple):
    """The filter, the coarser one beside it, and what each has lost by merging."""

    fine: Branches
    coarse: Branches
    lost: Float[Array, " 2"]  # faded sums
    exact: Bool[Array, ""]  # nothing has been lost yet
    error: Float[Array, ""]  # estimated, of the filter


class Outcome(NamedTuple):
    """What one row leaves behind."""

    log_mass: Float[Array, ""]
    error: Float[Array, ""]
    used: Bool[Array, ""]
    code: Int[Array, ""]


def branched(law: Branches, parts: Parts) -> Branches:
    """One transition: every Gaussian of every regime into every regime."""
    num, size, dim = law.means.shape
    flat = Mixture(
        law.log_weights.ravel(), law.means.reshape(-1, dim), law.covariances.reshape(-1, dim, dim)
    )
    old = np.repeat(np.arange(num), size)

    def into(dynamics: Dynamics, log_column: Float[Array, " k"]) -> Mixture:
        F, b, Q = dynamics
        return Mixture(
            flat.log_weights + log_column[old],
            flat.means @ F.T + b[None, :],
            jax.vmap(lambda S: move_covariance(S, F, Q))(flat.covariances),
        )

    return jax.vmap(into)(parts.dynamics, parts.log_switch.T)


class Updated(NamedTuple):
    """After an observation, of mass one; the law itself if it was missing or impossible."""

    law: Branches
    log_mass: Float[Array, ""]
    possible: Bool[Array, ""]
    precise: Bool[Array, ""]


def updated(law: Branches, parts: Parts, y: Float[Array, " p"]) -> Updated:
    """Kalman's formulas for every Gaussian, with the sensor of its regime."""

    def regime(mixture: Mixture, sensor: Sensor, floor: Array) -> tuple[Mixture, Array]:
        part = LinearSensor.of(*sensor, y)

        def one(log_weight: Array, m: Array, S: Array) -> tuple[Mixture, Array]:
            gain = sensor_gain(S, part)
            mean, logs = observe(m[None], gain, part, y)
            spread = jnp.sum(jnp.square(gain.chol), axis=1)
            there = jnp.isfinite(log_weight)
            precise = jnp.all((spread <= MAX_SPREAD * floor) | ~part.seen | ~there)
            return Mixture(log_weight + logs[0], mean[0], gain.covariance), precise

        return jax.vmap(one)(*mixture)

    new, precise = jax.vmap(regime)(law, parts.sensor, parts.floor)
    total = logsumexp(new.log_weights)
    good = jnp.isfinite(total)
    shift = jnp.where(good, total, 0.0)
    new = new._replace(log_weights=new.log_weights - shift)
    kept = jax.tree.map(lambda a, b: jnp.where(good, a, b), new, law)
    return Updated(kept, shift, good, jnp.all(precise))


def merged(law: Branches, size: int, prune: float) -> tuple[Branches, Float[Array, ""]]:
    """At most `size` Gaussians for each regime, and about int |before - after|."""
    if law.log_weights.shape[1] <= size:
        return jax.vmap(lambda m: padded(m, size))(law), jnp.zeros(())

    def regime(mixture: Mixture) -> tuple[Mixture, Array]:
        mass = logsumexp(mixture.log_weights)
        some = jnp.isfinite(mass)
        # A regime that cannot be is left as any of its Gaussians, without weight.
        safe = jnp.where(some, mixture.log_weights, 0.0)
        kept, dropped = pruned(mixture._replace(log_weights=safe), prune)
        fixed = jax.lax.stop_gradient(kept)
        weights = jax.nn.softmax(fixed.log_weights)
        cluster = choose_clusters(weights, Divergences.of(fixed), size)
        member = (cluster[None, :] == jnp.arange(size)[:, None]).astype(weights.dtype)
        new, _ = clustered(kept, member)
        # What was lost is no function to be differentiated: its root has no slope at zero.
        _, loss = clustered(fixed, member)
        logs = jnp.where(some, new.log_weights, -jnp.inf)
        share = jnp.where(some, jnp.exp(jnp.where(some, mass, 0.0)), 0.0)
        return new._replace(log_weights=logs), share * (loss + dropped)

    new, losses = jax.vmap(regime)(law)
    return new, jax.lax.stop_gradient(jnp.sum(losses))


def gap(fine: Branches, coarse: Branches) -> Float[Array, ""]:
    """About int |p - q| of two laws of regime and state, at points of the Gaussians of p."""
    dim = fine.means.shape[2]
    axes = np.sqrt(1.5 * dim) * np.concatenate([np.eye(dim), -np.eye(dim)])
    points = jnp.asarray(np.concatenate([np.zeros((1, dim)), axes]))

    def log_density(mixture: Mixture, x: Float[Array, "n d"]) -> Float[Array, " n"]:
        inverse, log_root = inverse_roots(mixture.covariances, _FLOOR)
        z = jnp.einsum("cij,ncj->nci", inverse, x[:, None, :] - mixture.means[None])
        heights = mixture.log_weights - log_root - 0.5 * dim * _LOG_2PI
        return logsumexp(heights[None, :] - 0.5 * jnp.sum(jnp.square(z), axis=2), axis=1)

    def regime(p: Mixture, q: Mixture) -> Float[Array, ""]:
        roots = jax.vmap(psd_root)(p.covariances)
        x = p.means[:, None, :] + jnp.einsum("cij,nj->cni", roots, points)
        flat = x.reshape(-1, dim)
        one, two = log_density(p, flat), log_density(q, flat)
        away = jnp.abs(jnp.expm1(jnp.minimum(jnp.where(jnp.isnan(two - one), 0.0, two - one), 5.0)))
        mean = jnp.mean(jnp.minimum(away, 2.0).reshape(-1, points.shape[0]), axis=1)
        return jnp.sum(jnp.exp(p.log_weights) * mean)

    inside = jnp.sum(jax.vmap(regime)(fine, coarse))
    masses = [jnp.exp(logsumexp(m.log_weights, axis=1)) for m in (fine, coarse)]
    return jnp.minimum(jnp.maximum(inside, jnp.sum(jnp.abs(masses[0] - masses[1]))), 2.0)


def predicted_law(law: Law, parts: Parts) -> Law:
    """One transition of both filters."""
    return law._replace(fine=branched(law.fine, parts), coarse=branched(law.coarse, parts))


def seen_law(
    law: Law, parts: Parts, y: Float[Array, " p"], sizes: tuple[int, int], prune: float
) -> tuple[Law, Outcome]:
    """Bayes' rule for both filters, then room for the next transition."""
    infinite = jnp.any(jnp.isinf(y))
    usable = jnp.where(infinite, jnp.nan, y)
    missing = jnp.all(jnp.isnan(usable))
    one, two = updated(law.fine, parts, usable), updated(law.coarse, parts, usable)
    fine, loss = merged(one.law, sizes[0], prune)
    coarse, more = merged(two.law, sizes[1], prune)
    lost = _FADE * law.lost + jnp.stack([loss, more])
    exact = law.exact & (loss == 0)
    ratio = jnp.minimum(_SAFETY * lost[0] / jnp.maximum(lost[1], 1e-300), 1.0)
    difference = jnp.abs(one.log_mass - two.log_mass)
    error = jax.lax.stop_gradient(ratio * jnp.maximum(gap(fine, coarse), difference) + loss)
    error = jnp.where(exact, 0.0, jnp.minimum(error, 2.0))
    # Numbers that have lost their digits say nothing of their own error.
    error = jnp.where(one.precise | missing, error, 2.0)
    log_mass = jnp.where(missing, 0.0, one.log_mass)
    log_mass = jnp.where(infinite | ~one.possible, -jnp.inf, log_mass)
    code = jnp.where(one.possible, _results.OK, _results.SINGULAR)
    code = jnp.where(infinite, _results.BAD_OBSERVATION, code)
    used = one.possible & ~missing
    return Law(fine, coarse, lost, exact, error), Outcome(log_mass, error, used, code)
