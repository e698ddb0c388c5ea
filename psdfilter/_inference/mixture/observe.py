"""One observation of a mixture: tilt every component, split where needed, merge again."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..gaussian.mixture import Mixture, normalized, padded
from .compress import merge
from .observation import FACTORS, LogLikelihood, Tilted, tilt
from .splitting import affordable, granted, split

# Posterior shares below this lose their place in the next round of splitting.
_NEGLIGIBLE = 1e-9
# Errors this many times the target call for a second round: predicted errors are rough.
_PATIENCE = 1.5


class Sizes(NamedTuple):
    """Static choices of the engine."""

    order: int  # components kept
    capacity: int  # components while an observation is worked on
    rounds: int  # of tilting; between them components are split
    target: float  # error of a component that calls for no split


class Observed(NamedTuple):
    """A mixture after an observation."""

    mixture: Mixture
    log_mass: Float[Array, ""]
    fit_error: Float[Array, ""]
    loss: Float[Array, ""]


class _Work(NamedTuple):
    mixture: Mixture
    tilted: Tilted
    alive: Array
    rows: Array
    slack: Array  # how many times the targets, for lack of places
    unfinished: Array


def _targets(shares: Float[Array, " r"], sizes: Sizes) -> Float[Array, " r"]:
    """The error a component may have: heavier ones less, light ones more."""
    ratio = jnp.sqrt(1.0 / (sizes.order * shares + 1e-12))
    return sizes.target * jnp.clip(ratio, 0.5, 100.0)


def observe_mixture(
    mixture: Mixture, measured: np.ndarray, log_likelihood: LogLikelihood, sizes: Sizes
) -> Observed:
    """Bayes' rule, with errors estimated."""
    start = padded(mixture, sizes.capacity)
    size, dim = start.means.shape
    nothing = Tilted(
        jnp.zeros(size), start.means, start.covariances, jnp.zeros(size),
        jnp.zeros((len(FACTORS), size), int),
        jnp.zeros((size, dim)),
    )  # fmt: skip

    def work(at: _Work) -> _Work:
        parts, parent = split(at.mixture, at.alive, at.rows, at.tilted.directions, size)
        shares = jax.nn.softmax(at.mixture.log_weights + at.tilted.log_masses)[parent]
        tilted = tilt(parts, measured, log_likelihood, at.slack * _targets(shares, sizes))
        after = jax.nn.softmax(parts.log_weights + tilted.log_masses)
        alive = after > _NEGLIGIBLE
        slack = at.slack * jnp.asarray(FACTORS)
        asking = tilted.errors[None, :] > slack[:, None] * _targets(after, sizes)[None, :]
        wanted = jnp.where(asking & alive[None, :], tilted.rows, 0)
        which = affordable(wanted, size)
        rows = granted(wanted[which], alive, after * tilted.errors, size)
        slack = _PATIENCE * slack[which]
        return _Work(parts, tilted, alive, rows, slack, jnp.any(rows > 0))

    def round_(at: _Work, _: None) -> tuple[_Work, None]:
        return jax.lax.cond(at.unfinished, work, lambda same: same, at), None

    used = start.log_weights > -jnp.inf
    first = _Work(start, nothing, used, jnp.zeros(size, int), jnp.ones(()), jnp.asarray(True))
    done, _ = jax.lax.scan(round_, first, None, length=sizes.rounds)
    tilted = done.tilted
    after = Mixture(done.mixture.log_weights + tilted.log_masses, tilted.means, tilted.covariances)
    after, total = normalized(after)
    shares = jnp.exp(after.log_weights)
    fit_error = jnp.sum(jnp.where(shares > 0, shares * tilted.errors, 0.0))
    small = merge(after, sizes.order, measured)
    return Observed(small.mixture, total, fit_error, small.loss)
