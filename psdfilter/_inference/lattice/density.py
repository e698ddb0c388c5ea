"""The law of one time as a density, in exact values of Q and G between the nodes."""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.scipy.special import logsumexp
from jaxtyping import Array, Float, Int

from ..._density.psd import AbstractDensity
from ..._statespace.model import Inputs, StateSpaceModel
from .run import Law
from .space import Space, Window, grid_of
from .step import log_seen, push, source_of
from .values import log_transitions, parts_of, switch_matrices


class Sink(NamedTuple):
    """What is known after the next transition: weights of x' in every regime."""

    lower: Float[Array, " d"]
    upper: Float[Array, " d"]
    log_weights: Float[Array, "k n"]  # log of smoothed masses over predicted densities
    t: Int[Array, ""]
    row: Inputs


def log_future(
    ssm: StateSpaceModel, space: Space, sink: Sink, u: Float[Array, "m d"], num: int
) -> Float[Array, "k m"]:
    """log sum_k' P_kk'(u) sum_n Q_k'(u, x_n) b_k'n: what the future says of (k, u)."""
    old = space.wrapped(u)
    new = space.wrapped(grid_of(space, Window(sink.lower, sink.upper), num).nodes)
    each = []
    for k, model in enumerate(parts_of(ssm)):
        table = log_transitions(model, old, new, sink.t, sink.row) + sink.log_weights[k][None, :]
        each.append(logsumexp(table, axis=1))
    after = jnp.stack(each)
    peak = jnp.max(after, axis=0)
    peak = jnp.where(jnp.isfinite(peak), peak, 0.0)
    P = switch_matrices(ssm, old, sink.t, sink.row)
    return jnp.log(jnp.einsum("mkj,jm->km", P, jnp.exp(after - peak[None, :]))) + peak[None, :]


class LatticeDensity(AbstractDensity):
    """p(x) = sum_k p_k(x) prod_s G_k(x, y_s) / norm; with a regime, of x given that regime.

    On circles a function of the angle, whatever its number of turns.
    """

    ssm: StateSpaceModel
    space: Space
    law: Law
    sink: Sink | None
    log_keep: Float[Array, " k"]  # of regimes: 0, or -inf for those that are left out
    log_scale: Float[Array, ""]
    num: int = eqx.field(static=True)

    @property
    def dim(self) -> int:
        """Number of coordinates."""
        return self.space.dim

    def log_parts(self, x: Float[Array, "n d"]) -> Float[Array, "k n"]:
        """log p(x, k) of the regimes that are kept."""
        law = self.law
        source = source_of(self.ssm, self.space, law.before, self.num)
        logs = push(self.ssm, self.space, law.before, source, x).logs
        logs = logs + log_seen(self.ssm, self.space, law.before, law.seen, x) - law.log_norm
        if self.sink is not None:
            logs = logs + log_future(self.ssm, self.space, self.sink, x, self.num)
        walls = jnp.asarray(self.space.is_kind("walls"))[None, :]
        low, high = self.space.lower[None, :], self.space.upper[None, :]
        inside = jnp.all(~walls | ((x >= low) & (x <= high)), axis=1)
        usable = inside[None, :] & ~jnp.isnan(logs)
        return jnp.where(usable, logs, -jnp.inf) + self.log_keep[:, None]

    def _scaled_value(self, x: Float[Array, " d"]) -> tuple[Float[Array, ""], Float[Array, ""]]:
        logs = self.log_parts(x[None, :])[:, 0]
        logs = logs - self.log_scale
        peak = jax.lax.stop_gradient(jnp.max(logs))
        peak = jnp.where(jnp.isfinite(peak), peak, 0.0)
        return jnp.sum(jnp.exp(logs - peak)), peak
