"""The laws of states after the data."""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from ..._statespace.model import Inputs
from ..sizing.tables import predict_nodes
from .densities import ProductDensity
from .filled import Filled
from .host import host_squares
from .laws import AbstractNodeLaws, moments_from_features, of_mass_one
from .refine import FineNodes, predict_onto
from .workspace import moment_features


class Advanced(NamedTuple):
    """K transitions, one after the other."""

    mean: Float[Array, "k d"]
    covariance: Float[Array, "k d d"]
    sources: Float[Array, "k n"]  # before each transition
    log_kept: Float[Array, " k"]


class AheadLaws(AbstractNodeLaws):
    """p(x_{T+k} | y_1 ... y_T), renormalised on the box at each step."""

    model: Filled
    sources: Float[Array, "k n"]
    log_kept: Float[Array, " k"]
    steps: Int[Array, " k"]
    rows: Inputs

    def values_on(self, fine: FineNodes) -> Float[Array, "k n"]:
        """Densities on other nodes."""

        def one(at: tuple[Array, Array, Inputs, Array]) -> Array:
            source, t, row, log_kept = at
            return predict_onto(self.model, source, fine.nodes, t, row) * jnp.exp(-log_kept)

        return jax.lax.map(one, (self.sources, self.steps, self.rows, self.log_kept))

    def density(self, t: int) -> ProductDensity:
        """The density at index t, in user units."""
        return of_mass_one(self.unscaled(t), self.model)

    def unscaled(self, t: int) -> ProductDensity:
        """The same, normalised as the recursion did."""
        row = jax.tree.map(lambda a: a[t], self.rows)
        tables = self.model.tables_at(self.steps[t], row)
        v = self.model.plan.node_weights() * self.sources[t]
        return ProductDensity.predicted(self.model, tables.rows, v, [], -self.log_kept[t])


def advance(
    model: Filled, values: Float[Array, " n"], steps: Int[Array, " k"], rows: Inputs
) -> Advanced:
    """Transitions into these steps, from a density at the nodes."""
    host = None
    if model.ssm.vectorized and model.tables is None:
        host = host_squares(model, steps)
    return _advance(model, values, steps, rows, host)


@eqx.filter_jit
def _advance(
    model: Filled,
    values: Float[Array, " n"],
    steps: Int[Array, " k"],
    rows: Inputs,
    host: tuple[Array, ...] | None,
) -> Advanced:
    plan, weights = model.plan, model.plan.node_weights()
    features = moment_features(plan)

    def step(p: Array, xs: tuple[Array, Inputs, tuple[Array, ...] | None]):
        t, row, stacked = xs
        squares = model.tables_at(t, row).squares if stacked is None else stacked
        ahead = predict_nodes(plan, squares, weights * p)
        kept = weights @ ahead
        ahead = ahead / kept
        return ahead, (p, jnp.log(kept), (ahead * weights) @ features)

    _, (sources, log_kept, moments) = jax.lax.scan(step, values, (steps, rows, host))
    mean, covariance = moments_from_features(plan.box.center, plan.box.half_width, moments)
    return Advanced(mean, covariance, sources, log_kept)


def ahead_laws(model: Filled, out: Advanced, steps: Int[Array, " k"], rows: Inputs) -> AheadLaws:
    """The laws of what was advanced."""
    return AheadLaws(model, out.sources, out.log_kept, steps, rows)
