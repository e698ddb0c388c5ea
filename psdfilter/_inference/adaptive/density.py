"""The law of one time on a line as a density."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import logsumexp
from jaxtyping import Array, Float
from scipy import special

from ..._checks import Numbers, as_points, is_traced, require_finite
from ..._density.box import Box
from ..._density.psd import AbstractDensity, GaussianPSD, over_points
from ..._learning.rank_one import learn_rank_one
from ..._statespace.model import Inputs, StateSpaceModel
from .known import known_values
from .laws import log_density
from .state import Law
from .values import parts_of


class Sink(NamedTuple):
    """What is known after the next transition: beta(x) = sum_j b_j Q(x, x_j)."""

    nodes: Float[np.ndarray, " n"]
    log_weights: Float[np.ndarray, " n"]  # log of the smoothed mass over the prediction
    t: int
    row: Inputs


def log_ratio(
    log_masses: Float[np.ndarray, " n"], log_p: Float[np.ndarray, " n"]
) -> Float[np.ndarray, " n"]:
    """log of masses over densities; nothing over nothing is nothing."""
    there = np.isfinite(log_masses)
    return np.where(there, log_masses - np.where(there, log_p, 0.0), -np.inf)


class LineDensity(AbstractDensity):
    """p(x) = prod_i G(x, y_i) sum_m v_m Q(u_m, x) / norm, in exact values of Q and G.

    For additive Gaussian noise the sum is a Gaussian mixture with means f(u_m).
    """

    ssm: StateSpaceModel
    law: Law
    sink: Sink | None = None  # of a smoothed law

    @staticmethod
    def of(ssm: StateSpaceModel, law: Law, sink: Sink | None = None) -> "LineDensity":
        """Without the laws between two rows: a thousand, one inside the other, are no tree."""
        return LineDensity(ssm, law._replace(before=None), sink)

    @property
    def dim(self) -> int:
        """One."""
        return 1

    def expand(self, tol: float = 1e-6) -> GaussianPSD:
        """A `GaussianPSD` of rank one, fitted where the law has mass to `tol` of its peak."""
        nodes = self.law.nodes
        margin = 0.05 * (nodes[-1] - nodes[0])
        box = Box(nodes[:1] - margin, nodes[-1:] + margin)
        return learn_rank_one(lambda x: self(x), box, tol=tol, vectorized=True).model

    def _scaled_value(self, x: Float[Array, " d"]) -> tuple[Float[Array, ""], Float[Array, ""]]:
        parts, law = parts_of(self.ssm), self.law
        logs = -jnp.asarray(law.log_norm)
        for seen in law.seen:
            logs = logs + parts.log_g(x, jnp.asarray(seen.y), seen.t, seen.row)[0]
        if law.source is None:
            logs = logs + parts.log_p0(x)[0]
        else:
            source = law.source
            rows = parts.log_q(jnp.asarray(source.nodes), x, source.t, source.row)[:, 0]
            logs = logs + logsumexp(rows + jnp.asarray(source.log_masses))
        if self.sink is not None:
            sink = self.sink
            rows = parts.log_q(x, jnp.asarray(sink.nodes), sink.t, sink.row)[0]
            logs = logs + logsumexp(rows + jnp.asarray(sink.log_weights))
        logs = jnp.where(jnp.isnan(logs), -jnp.inf, logs)
        peak = jax.lax.stop_gradient(jnp.where(jnp.isfinite(logs), logs, 0.0))
        return jnp.exp(logs - peak), peak

    def _evaluate(self, x: Numbers, what: str) -> Array:
        points = as_points("x", x, 1)
        require_finite("x", points)
        if what == "gradient" or is_traced(points):
            return over_points(self, points, what)
        # On the host rough transitions are integrated anew at every point.
        logs = log_density(known_values(self.ssm), self.law, np.asarray(points).ravel())
        if self.sink is not None:
            sink, flat = self.sink, np.asarray(points).ravel()
            rows = known_values(self.ssm).log_q(flat, sink.nodes, sink.t, sink.row)
            logs = logs + special.logsumexp(rows + sink.log_weights[None, :], axis=1)
        values = np.exp(logs) if what == "value" else logs
        return jnp.asarray(values.reshape(points.shape[:-1]))
