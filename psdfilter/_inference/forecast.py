"""The laws of states and observations after the data."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array

from .._checks import as_count
from .._statespace.model import Inputs
from .filtered import FilterPosterior, Forecast
from .model import LearnedModel
from .nodes import predict_nodes
from .posterior import moment_features, moments_from_features
from .series import as_rows


@eqx.filter_jit
def _forecast(model: LearnedModel, density: Array, steps: Array, rows) -> Forecast:
    weights = model.plan.node_weights()
    features = moment_features(model.plan)

    def step(p, xs):
        t, row = xs
        tables = model.tables_at(t, row)
        ahead = predict_nodes(model.plan, tables.squares, weights * p)
        kept = weights @ ahead
        ahead = ahead / kept
        return ahead, (p, jnp.log(kept), (ahead * weights) @ features)

    _, (sources, log_kept, moments) = jax.lax.scan(step, density, (steps, rows))
    mean, covariance = moments_from_features(model.plan, moments)
    return Forecast(model, mean, covariance, sources, steps, rows, log_kept)


def forecast(
    model: LearnedModel, post: FilterPosterior, steps: int, *, inputs: Inputs = None
) -> Forecast:
    """The laws of x (and, by `.observations`, of y) 1 ... `steps` transitions after the data.

    `inputs` are the future ones, with `steps` rows, for models that take them.
    """
    num = as_count("steps", steps)
    if not isinstance(post, FilterPosterior):
        raise ValueError(f"post must come from run_filter, got {type(post).__name__}")
    ahead = post.series.steps[-1] + 1 + jnp.arange(num)
    return _forecast(model, post.last, ahead, as_rows(inputs, num))
