"""The laws of states and observations after the data."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray

from .._checks import as_count
from .._statespace.model import Inputs
from .model import LearnedModel
from .nodes import predict_nodes
from .observations import ObservationLaws
from .posterior import (
    AbstractFilterPosterior,
    AbstractPosterior,
    checked_sample,
    moment_features,
    moments_from_features,
)
from .product import ProductDensity
from .refine import FineNodes, fine_nodes, predict_onto
from .series import as_rows, host_tables


class Forecast(AbstractPosterior):
    """p(x_{T+k} | y_1 ... y_T) for k = 1 ... K, renormalised on the box at each step."""

    model: Any
    mean: Float[Array, "k d"]
    covariance: Float[Array, "k d d"]
    sources: Float[Array, "k n"]
    steps: Int[Array, " k"]
    rows: Any
    log_kept: Float[Array, " k"]

    def _values_on(self, fine: FineNodes) -> Float[Array, "k n"]:
        def one(source: Array, t: Array, row: Any, log_kept: Array) -> Array:
            return predict_onto(self.model, source, fine.nodes, t, row) * jnp.exp(-log_kept)

        return jax.lax.map(lambda a: one(*a), (self.sources, self.steps, self.rows, self.log_kept))

    @property
    def _times(self) -> Int[Array, " k"]:
        return self.steps

    def _facts(self) -> dict[str, float]:
        return {"tolerance": self.model.tol}

    def sample(self, *, key: PRNGKeyArray, num: int) -> Float[Array, "n k d"]:
        """Independent draws from every marginal, (num, K, d)."""
        return checked_sample(self, key, num)

    def density(self, k: int) -> ProductDensity:
        """The density k + 1 steps ahead, in user units."""
        num = self.sources.shape[0]
        if not -num <= k < num:
            raise ValueError(f"k must lie in 0..{num - 1}, got {k}")
        row = None if self.rows is None else jax.tree.map(lambda a: a[k], self.rows)
        tables = self.model.tables_at(self.steps[k], row)
        v = self.model.plan.node_weights() * self.sources[k]
        return ProductDensity.predicted(self.model, tables.rows, v, [], -self.log_kept[k])

    @property
    def observations(self) -> Any:
        """The laws of y at the same times, by quadrature over `observation_box`."""
        fine = fine_nodes(self.model)
        return ObservationLaws.make(self.model, fine, self._values_on(fine), self.steps, self.rows)


@eqx.filter_jit
def _forecast(model: LearnedModel, density: Array, steps: Array, rows, given) -> Forecast:
    weights = model.plan.node_weights()
    features = moment_features(model.plan)

    def step(p, xs):
        t, row, stacked = xs
        tables = model.tables_at(t, row) if stacked is None else stacked
        ahead = predict_nodes(model.plan, tables.squares, weights * p)
        kept = weights @ ahead
        ahead = ahead / kept
        return ahead, (p, jnp.log(kept), (ahead * weights) @ features)

    _, (sources, log_kept, moments) = jax.lax.scan(step, density, (steps, rows, given))
    mean, covariance = moments_from_features(model.plan, moments)
    return Forecast(model, mean, covariance, sources, steps, rows, log_kept)


def forecast(
    model: LearnedModel, post: AbstractFilterPosterior, steps: int, *, inputs: Inputs = None
) -> Forecast:
    """The laws of x (and, by `.observations`, of y) 1 ... `steps` transitions after the data.

    `inputs` are the future ones, with `steps` rows, for models that take them.
    """
    from .blocks.model import AbstractBlocksModel

    if isinstance(model, AbstractBlocksModel):
        return model.forecast(post, steps, inputs=inputs)
    num = as_count("steps", steps)
    if not isinstance(post, AbstractFilterPosterior):
        raise ValueError(f"post must come from run_filter, got {type(post).__name__}")
    filtered = post.on_nodes()
    # The posterior's own model: data may have resized the one that was learned.
    own = filtered.model
    ahead = filtered.series.steps[-1] + 1 + jnp.arange(num)
    given = host_tables(own, ahead) if own.ssm.vectorized and own.tables is None else None
    return _forecast(own, filtered.last, ahead, as_rows(inputs, num), given)
