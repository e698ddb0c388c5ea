"""The filter one observation at a time."""

import warnings

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from .. import _results
from .._checks import Numbers, is_concrete
from .._density.psd import AbstractDensity
from .._statespace.model import Inputs
from .ability import Ability
from .model import AbstractModel
from .notices import unresolved_state
from .registry import as_model, require
from .run import ResolutionWarning
from .series import as_observation, is_partly
from .trace import Law


class FilterState(eqx.Module):
    """The filter between two calls: the law of the state, and what has been summed up.

    Attributes:
        law: in the form of the engine; see `density` and `moments`.
        log_likelihood: of all observations so far.
        step: number of transitions so far.
        code: of the first step that was not fine, else 0.
        error: estimated total variation error: with engine "adaptive" that of the law, as in
            `post.error_estimates`; with others the sum of what steps have been estimated to add.
    """

    law: Law
    log_likelihood: Float[Array, ""]
    step: Int[Array, ""]
    code: Int[Array, ""]
    error: Float[Array, ""]

    def moments(self, model: AbstractModel) -> tuple[Float[Array, " d"], Float[Array, "d d"]]:
        """Mean and covariance of the state, under the model that this is a filter of."""
        return as_model(model).moments(self.law)

    def density(self, model: AbstractModel) -> AbstractDensity:
        """The law of the state as a density, under the model that this is a filter of."""
        return as_model(model).density(self.law)

    def regimes(self, model: AbstractModel) -> Float[Array, " k"]:
        """Probabilities of the regimes, under the model that this is a filter of."""
        return as_model(model).regimes(self.law)


def init(model: AbstractModel) -> FilterState:
    """The state of an online filter before anything has been seen."""
    zero, none = jnp.zeros((), int), jnp.zeros(())
    return FilterState(as_model(model).start(), none, zero, zero, none)


def predict(model: AbstractModel, state: FilterState, *, inputs: Inputs = None) -> FilterState:
    """One transition: the law of the next state."""
    known = as_model(model)
    if inputs is not None:
        require(known, Ability.INPUTS)
    step = state.step + 1
    law, moved = known.predict(state.law, step, inputs)
    code = _first_bad(state.code, moved.code)
    new = FilterState(law, state.log_likelihood, step, code, state.error + moved.error)
    _warn_unresolved(known, state, moved.code, new)
    return new


def update(
    model: AbstractModel, state: FilterState, y: Numbers, *, inputs: Inputs = None
) -> FilterState:
    """Bayes' rule for one observation; NaN is missing. Several calls are several sensors.

    With engine "adaptive" an outlier goes back to earlier steps, as in `run_filter`: the state
    keeps the last 64 of them.
    """
    known = as_model(model)
    if inputs is not None:
        require(known, Ability.INPUTS)
    observed = as_observation(y, known.num_observed)
    if is_partly(observed):
        require(known, Ability.PARTLY_MISSING)
    law, seen = known.update(state.law, observed, state.step, inputs)
    total, code = state.log_likelihood + seen.log_mass, _first_bad(state.code, seen.code)
    new = FilterState(law, total, state.step, code, state.error + seen.error)
    _warn_unresolved(known, state, seen.code, new)
    return new


def _first_bad(before: Int[Array, ""], now: Int[Array, ""]) -> Int[Array, ""]:
    return jnp.where(before == _results.OK, now, before)


def _warn_unresolved(
    model: AbstractModel, before: FilterState, code: Int[Array, ""], after: FilterState
) -> None:
    """Say it at the first of several steps that miss the tolerance."""
    if not is_concrete(code) or int(np.asarray(code)) != _results.UNRESOLVED:
        return
    was_bad = int(np.asarray(before.code)) != _results.OK and float(before.error) > model.tol
    if not was_bad:
        step, error = int(np.asarray(after.step)), float(after.error)
        message = unresolved_state(model.engine, model.tol, step, error)
        warnings.warn(message, ResolutionWarning, stacklevel=3)
