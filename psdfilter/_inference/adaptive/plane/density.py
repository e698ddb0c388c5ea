"""The law of one time in the plane as a density."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import logsumexp
from jaxtyping import Array, Float
from scipy import special

from ...._checks import Numbers, as_points, is_traced, require_finite
from ...._density.box import Box
from ...._density.psd import AbstractDensity, GaussianPSD, over_points
from ...._learning.rank_one import learn_rank_one
from ...._statespace.model import (
    Inputs,
    StateSpaceModel,
    log_observation_table,
    log_prior_table,
    log_transition_table,
)
from .known import plane_values
from .law import Law, log_law
from .sums import Source, log_sums
from .values import PlaneValues

# Pairs of points and nodes that are looked at together.
_PAIRS = 2**22


class PlaneSink(NamedTuple):
    """What is known after the next transition: beta(x) = sum_j b_j Q(x, x_j)."""

    nodes: Float[np.ndarray, "n 2"]  # in z
    log_weights: Float[np.ndarray, " n"]  # log of the smoothed mass over the prediction
    t: int
    row: Inputs


class PlaneDensity(AbstractDensity):
    """p(x) = prod_i G(x, y_i) sum_m v_m Q(u_m, x) / norm, in exact values of Q and G.

    For additive Gaussian noise the sum is a Gaussian mixture with means f(u_m).
    """

    ssm: StateSpaceModel
    law: Law
    sink: PlaneSink | None = None  # of a smoothed law

    @property
    def dim(self) -> int:
        """Two."""
        return 2

    def expand(self, tol: float = 1e-6) -> GaussianPSD:
        """A `GaussianPSD` of rank one, fitted where the law has mass to `tol` of its peak."""
        x = plane_values(self.ssm).space.x_of(self.law.nodes)
        low, high = x.min(axis=0), x.max(axis=0)
        margin = 0.05 * (high - low)
        return learn_rank_one(
            lambda x: self(x), Box(low - margin, high + margin), tol=tol, vectorized=True
        ).model

    def _scaled_value(self, x: Float[Array, " d"]) -> tuple[Float[Array, ""], Float[Array, ""]]:
        ssm, law = self.ssm, self.law
        space = plane_values(ssm).space
        # Norms are those of densities of z.
        logs = jnp.asarray(-law.log_norm)
        for seen in law.seen:
            logs += log_observation_table(ssm, x[None], jnp.asarray(seen.y), seen.t, seen.row)[0]
        if law.source is None:
            logs += log_prior_table(ssm, x[None])[0]
        else:
            source = law.source
            u = jnp.asarray(space.x_of(source.nodes))
            rows = log_transition_table(ssm, (0, 1), u, x[None], source.t, source.row)[:, 0]
            logs += logsumexp(rows + jnp.asarray(source.log_masses))
        if self.sink is not None:
            sink = self.sink
            after = jnp.asarray(space.x_of(sink.nodes))
            rows = log_transition_table(ssm, (0, 1), x[None], after, sink.t, sink.row)[0]
            logs += logsumexp(rows + jnp.asarray(sink.log_weights) + space.log_det)
        logs = jnp.where(jnp.isnan(logs), -jnp.inf, logs)
        peak = jax.lax.stop_gradient(jnp.where(jnp.isfinite(logs), logs, 0.0))
        return jnp.exp(logs - peak), peak

    def _evaluate(self, x: Numbers, what: str) -> Array:
        points = as_points("x", x, 2)
        require_finite("x", points)
        if what == "gradient" or is_traced(points):
            return over_points(self, points, what)
        flat = np.asarray(points).reshape(-1, 2)
        logs = log_density(plane_values(self.ssm), self.law, flat, self.sink)
        out = np.exp(logs) if what == "value" else logs
        return jnp.asarray(out.reshape(points.shape[:-1]))


def log_density(
    values: PlaneValues, law: Law, x: Float[np.ndarray, "n 2"], sink: PlaneSink | None = None
) -> Float[np.ndarray, " n"]:
    """log p(x_j) in user units, exact between nodes."""
    if law.is_flat:
        raise ValueError("a state of which a coordinate is known exactly has no density")
    space = values.space
    z = space.z_of(x)
    inside = np.all((z >= space.low) & (z <= space.high), axis=1)
    logs = np.full(len(z), -np.inf)
    size = max(1, _PAIRS // max(1, 1 if law.source is None else len(law.source.nodes)))
    there = np.flatnonzero(inside)
    for k in range(0, len(there), size):
        some = there[k : k + size]
        logs[some] = log_law(values, law, z[some]) - space.log_det
        if sink is not None:
            logs[some] += _seen_from(values, sink, z[some])
    return logs


def _seen_from(values: PlaneValues, sink: PlaneSink, z: np.ndarray) -> np.ndarray:
    if values.space.gaussian:
        # N(x_j; f(z), I) is N(f(z); x_j, I).
        after = Source(sink.nodes, sink.log_weights, np.zeros((0, 1)), sink.nodes, 0, None)
        return log_sums(values, after, values.means(z, sink.t, sink.row))
    out = np.zeros(len(z))
    size = max(1, _PAIRS // len(sink.nodes))
    for k in range(0, len(z), size):
        rows = values.log_pairs(z[k : k + size], sink.nodes, sink.t, sink.row)
        out[k : k + size] = special.logsumexp(rows + sink.log_weights[None, :], axis=1)
    return out
