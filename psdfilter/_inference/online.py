"""The filter one observation at a time."""

from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from .. import _results
from .._checks import Numbers
from .._statespace.model import Inputs
from .blocks.model import AbstractBlocksModel
from .compiled import compiled_into
from .model import LearnedModel
from .nodes import predict_nodes
from .posterior import moments_from_features
from .series import has_gaps, host_logs
from .step import correct, likelihood_at_nodes, observation_logs, observation_status
from .workspace import Workspace


class FilterState(eqx.Module):
    """The filter between two calls: the density at the nodes, and what has been summed up."""

    density: Float[Array, " n"]  # at the nodes, mass one
    log_likelihood: Float[Array, ""]
    step: Int[Array, ""]
    code: Int[Array, ""]

    def moments(self, model: LearnedModel) -> tuple[Float[Array, " d"], Float[Array, "d d"]]:
        """Mean and covariance of the state, under the model that this is a filter of."""
        return compiled_into(model, "moments", _moments)(self.density)


def _moments(
    model: LearnedModel, space: Workspace, density: Float[Array, " n"]
) -> tuple[Float[Array, " d"], Float[Array, "d d"]]:
    masses = density * space.weights
    features = (masses @ space.features) / jnp.sum(masses)
    mean, covariance = moments_from_features(model.plan, features[None])
    return mean[0], covariance[0]


def init(model: LearnedModel) -> FilterState:
    """The state of an online filter before anything has been seen."""
    if isinstance(model, AbstractBlocksModel):
        return model.init()
    if not isinstance(model, LearnedModel):
        raise ValueError(f"model must come from psdfilter.learn, got {type(model).__name__}")
    return FilterState(model.prior, jnp.zeros(()), jnp.zeros((), int), jnp.zeros((), int))


def _predict_state(model: LearnedModel, space: Workspace, state: FilterState, row) -> FilterState:
    step = state.step + 1
    tables = model.tables_at(step, row)
    weights = space.weights
    predicted = predict_nodes(model.plan, tables.squares, weights * state.density)
    return FilterState(predicted, state.log_likelihood, step, state.code)


def _update_state(
    model: LearnedModel,
    space: Workspace,
    state: FilterState,
    y: Array,
    row,
    partly: bool = False,
) -> FilterState:
    weights = space.weights
    missing, code = observation_status(y, model.joint)
    if model.joint is None:
        logs = observation_logs(model, y, state.step, row, partly, space)
        likelihood, scale = likelihood_at_nodes(model, logs, missing, space)
    else:
        likelihoods, scales = model.joint.likelihoods(y[None], missing[None], partly)
        likelihood, scale = likelihoods[0], scales[0]
    out = correct(weights, state.density, likelihood, scale, missing, code)
    code = jnp.where(state.code == _results.OK, out.code, state.code)
    return FilterState(out.density, state.log_likelihood + out.log_mass, state.step, code)


def predict(model: LearnedModel, state: FilterState, *, inputs: Inputs = None) -> FilterState:
    """One transition: the density of the next state."""
    if not isinstance(model, LearnedModel):
        return _blocks(model).predict(state, inputs=inputs)
    return compiled_into(model, "predict", _predict_state)(state, inputs)


def update(
    model: LearnedModel, state: FilterState, y: Numbers, *, inputs: Inputs = None
) -> FilterState:
    """Bayes' rule for one observation; NaN is missing. Several calls are several sensors."""
    if not isinstance(model, LearnedModel):
        return _blocks(model).update(state, y, inputs=inputs)
    seen = y if isinstance(y, jax.Array) else np.asarray(y, dtype=np.float64)
    seen = seen[None] if seen.ndim == 0 else seen
    expected = model.ssm.num_observed
    if seen.ndim != 1 or (expected is not None and seen.shape[0] != expected):
        wanted = "(p,)" if expected is None else f"({expected},)"
        raise ValueError(f"y must have shape {wanted}, one observation, got {seen.shape}")
    if model.ssm.vectorized and model.joint is None:
        return _host_update(model, state, seen)
    if has_gaps(model.ssm, seen):
        partly = partial(_update_state, partly=True)
        return compiled_into(model, "update_partly", partly)(state, seen, inputs)
    return compiled_into(model, "update", _update_state)(state, seen, inputs)


def _blocks(model: Any) -> AbstractBlocksModel:
    if not isinstance(model, AbstractBlocksModel):
        raise ValueError(f"model must come from psdfilter.learn, got {type(model).__name__}")
    return model


def _host_update(model: LearnedModel, state: FilterState, y: Any) -> FilterState:
    """An update of a NumPy model: G is evaluated before the compiled part."""
    logs = host_logs(model, jnp.asarray(y)[None], state.step[None])[0]

    def finish(model, space, state, seen, logs):
        missing, code = observation_status(seen)
        likelihood, scale = likelihood_at_nodes(model, logs, missing, space)
        weights = space.weights
        out = correct(weights, state.density, likelihood, scale, missing, code)
        return FilterState(out.density, state.log_likelihood + out.log_mass, state.step, out.code)

    return compiled_into(model, "host_update", finish)(state, jnp.asarray(y), logs)
