"""Smoothed laws of regimes and states by paths drawn backwards through the filtered ones.

Averages are of conditional probabilities, means and covariances of all Gaussians given what a path
drew after them, not of the Gaussians that were drawn.
"""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import logsumexp
from jaxtyping import Array, Float, Int, PRNGKeyArray

from ..._gaussian.conditioning import symmetric
from ..._gaussian.linalg import psd_root
from ..gaussian.linear import Dynamics
from ..gaussian.mixture import Mixture
from ..gaussian.paths import reverse_of, weigh
from .step import Branches, Parts


class Back(NamedTuple):
    """Smoothed laws of all times, and the paths, time first."""

    laws: Branches
    states: Float[Array, "t n d"]
    regimes: Int[Array, "t n"]


@eqx.filter_jit
def go_back(
    laws: Branches, parts: Parts, moves: Array | np.ndarray, key: PRNGKeyArray, count: int
) -> Back:
    """`count` paths from the last time to the first; rows of one time share their states."""
    num, size, dim = laws.means.shape[1:]
    first, inner, rest = jax.random.split(key, 3)
    last = jax.tree.map(lambda a: a[-1], laws)
    flat = _flat(last)
    which = jax.random.categorical(first, flat.log_weights, shape=(count,))
    roots = jax.vmap(psd_root)(flat.covariances)
    white = jax.random.normal(inner, (count, dim), dtype=jnp.float64)
    state = flat.means[which] + jnp.einsum("nij,nj->ni", roots[which], white)

    def step(after: tuple[Array, Array, Branches], at: tuple[Branches, Array, Array]):
        points, regime, smoothed = after
        law, move, own = at
        new_points, new_which, new_law = _one_back(_flat(law), parts, points, regime, own, num)
        same = jnp.where(move, new_points, points), jnp.where(move, new_which // size, regime)
        shaped = jax.tree.map(lambda a, b: a.reshape(b.shape), new_law, law)
        found = jax.tree.map(lambda a, b: jnp.where(move, a, b), shaped, smoothed)
        return (*same, found), (*same, found)

    earlier = jax.tree.map(lambda a: a[:-1], laws)
    keys = jax.random.split(rest, laws.means.shape[0] - 1)
    start = state, which // size, last
    _, (states, regimes, found) = jax.lax.scan(
        step, start, (earlier, jnp.asarray(moves[1:]), keys), reverse=True
    )

    def closed(values: Array, end: Array) -> Array:
        return jnp.concatenate([values, end[None]])

    return Back(
        jax.tree.map(closed, found, last), closed(states, state), closed(regimes, which // size)
    )


def _flat(law: Branches) -> Mixture:
    dim = law.means.shape[-1]
    return Mixture(
        law.log_weights.reshape(-1),
        law.means.reshape(-1, dim),
        law.covariances.reshape(-1, dim, dim),
    )


def _one_back(
    law: Mixture, parts: Parts, points: Array, regime: Array, key: PRNGKeyArray, num: int
) -> tuple[Array, Array, Mixture]:
    """States before a transition, given those after it; and the law of all of them."""
    old = jnp.arange(law.size) // (law.size // num)

    def into(dynamics: Dynamics, log_column: Array):
        """Of all Gaussians, for the paths that went into one regime."""
        reverse = jax.vmap(lambda S: reverse_of(S, dynamics))(law.covariances)
        ahead = law.means @ dynamics.F.T + dynamics.b[None, :]
        residual = points[:, None, :] - ahead[None]
        logs = jax.vmap(weigh, in_axes=(0, 1), out_axes=1)(reverse, residual)
        logs = logs + (law.log_weights + log_column[old])[None, :]
        means = law.means[None] + jnp.einsum("cij,ncj->nci", reverse.gain, residual)
        return logs, means, reverse.covariance, reverse.root

    logs, means, covariances, roots = jax.vmap(into)(parts.dynamics, parts.log_switch.T)
    paths = jnp.arange(points.shape[0])
    logs, means = logs[regime, paths], means[regime, paths]
    which_key, inner = jax.random.split(key)
    which = jax.random.categorical(which_key, logs, axis=1)
    white = jax.random.normal(inner, points.shape, dtype=jnp.float64)
    spread = roots[regime, which]
    state = means[paths, which] + jnp.einsum("nij,nj->ni", spread, white)
    shares = jnp.exp(logs - logsumexp(logs, axis=1, keepdims=True))
    total = jnp.sum(shares, axis=0)
    safe = jnp.where(total > 0, total, 1.0)
    mean = jnp.einsum("nc,nci->ci", shares, means) / safe[:, None]
    delta = means - mean[None]
    own = jnp.einsum("nc,nk,kcij->cij", shares, jax.nn.one_hot(regime, num), covariances)
    outer = jnp.einsum("nc,nci,ncj->cij", shares, delta, delta)
    some = (total > 0)[:, None, None]
    covariance = jnp.where(some, symmetric(own + outer) / safe[:, None, None], law.covariances)
    mean = jnp.where(some[:, :, 0], mean, law.means)
    logs = jnp.where(total > 0, jnp.log(safe / points.shape[0]), -jnp.inf)
    return state, which, Mixture(logs, mean, covariance)
