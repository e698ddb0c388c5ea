"""The filter one observation at a time."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from .. import _results
from .._checks import Numbers, is_traced
from .._statespace.model import Inputs
from .model import LearnedModel
from .nodes import predict_nodes
from .series import host_logs
from .step import correct, likelihood_at_nodes, observation_logs, observation_status


class FilterState(eqx.Module):
    """The filter between two calls: the density at the nodes, and what has been summed up."""

    density: Float[Array, " n"]  # at the nodes, mass one
    log_likelihood: Float[Array, ""]
    step: Int[Array, ""]
    code: Int[Array, ""]


def init(model: LearnedModel) -> FilterState:
    """The state of an online filter before anything has been seen."""
    if not isinstance(model, LearnedModel):
        raise ValueError(f"model must come from psdfilter.learn, got {type(model).__name__}")
    return FilterState(model.prior, jnp.zeros(()), jnp.zeros((), int), jnp.zeros((), int))


def _predict_state(model: LearnedModel, state: FilterState, row) -> FilterState:
    step = state.step + 1
    tables = model.tables_at(step, row)
    weights = model.plan.node_weights()
    predicted = predict_nodes(model.plan, tables.squares, weights * state.density)
    return FilterState(predicted, state.log_likelihood, step, state.code)


def _update_state(model: LearnedModel, state: FilterState, y: Array, row) -> FilterState:
    weights = model.plan.node_weights()
    missing, code = observation_status(y)
    logs = observation_logs(model, y, state.step, row)
    likelihood, scale = likelihood_at_nodes(model, logs, missing)
    out = correct(weights, state.density, likelihood, scale, missing, code)
    code = jnp.where(state.code == _results.OK, out.code, state.code)
    return FilterState(out.density, state.log_likelihood + out.log_mass, state.step, code)


def _online(model: LearnedModel, name: str, fn, *args: Any) -> FilterState:
    """fn(model, *args), compiled once with a concrete model's tables as constants.

    Handing all tables over at every call would take longer than the step itself.
    """
    if not isinstance(model, LearnedModel):
        raise ValueError(f"model must come from psdfilter.learn, got {type(model).__name__}")
    kernels = model.sizing.kernels
    if name not in kernels:
        if is_traced(model):
            return fn(model, *args)
        kernels[name] = jax.jit(lambda *rest: fn(model, *rest))
    return kernels[name](*args)


def predict(model: LearnedModel, state: FilterState, *, inputs: Inputs = None) -> FilterState:
    """One transition: the density of the next state."""
    return _online(model, "predict", _predict_state, state, inputs)


def update(
    model: LearnedModel, state: FilterState, y: Numbers, *, inputs: Inputs = None
) -> FilterState:
    """Bayes' rule for one observation; NaN is missing. Several calls are several sensors."""
    seen = y if isinstance(y, jax.Array) else np.asarray(y, dtype=np.float64)
    seen = seen[None] if seen.ndim == 0 else seen
    if model.ssm.vectorized:
        return _host_update(model, state, seen)
    return _online(model, "update", _update_state, state, seen, inputs)


def _host_update(model: LearnedModel, state: FilterState, y: Any) -> FilterState:
    """An update of a NumPy model: G is evaluated before the compiled part."""
    logs = host_logs(model, jnp.asarray(y)[None], state.step[None])[0]

    def finish(model, state, seen, logs):
        missing, code = observation_status(seen)
        likelihood, scale = likelihood_at_nodes(model, logs, missing)
        weights = model.plan.node_weights()
        out = correct(weights, state.density, likelihood, scale, missing, code)
        return FilterState(out.density, state.log_likelihood + out.log_mass, state.step, out.code)

    return _online(model, "host_update", finish, state, jnp.asarray(y), logs)
