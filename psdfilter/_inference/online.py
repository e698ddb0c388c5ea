"""The filter one observation at a time."""

import warnings

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jax.scipy.linalg import solve_triangular
from jaxtyping import Array, Float, Int

from .. import _results
from .._checks import Numbers, as_reals, counted, is_concrete
from .._density.psd import AbstractDensity
from .._statespace.doubtful import why_impossible
from .._statespace.functions import Row
from .._statespace.model import Inputs
from .ability import Ability
from .model import AbstractModel
from .notices import unresolved_state
from .registry import as_model, require
from .run import ResolutionWarning
from .series import as_observation, is_partly, refuse_beyond_list, sub_steps
from .times import as_days
from .trace import Law, held_to

# The standard normal density at one.
_PHI_1 = np.exp(-0.5) / np.sqrt(2 * np.pi)


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
    row: Row = Row()  # real time, its last difference, and the last observation, if asked for

    def __str__(self) -> str:
        if not is_concrete(self.log_likelihood):
            return "FilterState(traced)"
        return (
            f"FilterState after {counted(int(self.step), 'transition')}: log-likelihood "
            f"{float(self.log_likelihood):.6g}, error {float(self.error):.2g}, code "
            f"{int(self.code)} (moments and density: state.moments(model), state.density(model))"
        )

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
    known = as_model(model)
    names, row = known.asked.names, Row()
    if "dt" in names:
        row = row._replace(time=none, dt=none)
    if "last_y" in names:
        row = row._replace(last_y=known.asked.first_y)
    return FilterState(known.start(), none, zero, zero, none, row)


def predict(
    model: AbstractModel, state: FilterState, *, inputs: Inputs = None, dt: Numbers = 1.0
) -> FilterState:
    """One transition: the law of the next state, `dt` later for models that take it."""
    known = as_model(model)
    if inputs is not None:
        require(known, Ability.INPUTS)
    row = state.row
    if "dt" in known.asked.names:
        passed = as_reals("dt", as_days(dt))
        if passed.ndim or (is_concrete(passed) and not 0 < float(passed) < np.inf):
            raise ValueError(f"dt must be a positive number, got {dt!r}")
        if known.asked.step is not None:
            return _compose(known, state, inputs, passed)
        row = row._replace(time=jnp.asarray(row.time) + passed, dt=passed)
    elif not (isinstance(dt, float | int | np.number) and dt == 1):
        raise ValueError(
            f"dt must be left out, got {dt!r}: no function of the model takes it, and every call "
            "of predict is one transition"
        )
    new, code = _moved(known, state, inputs, row)
    _warn_unresolved(known, state, code, new)
    return new


def _moved(
    model: AbstractModel, state: FilterState, inputs: Inputs, row: Row
) -> tuple[FilterState, Int[Array, ""]]:
    """One transition, and its code."""
    step = state.step + 1
    refuse_beyond_list(model.num_listed, step)
    law, moved = model.predict(state.law, step, _row_of(model, row, inputs, "the transition"))
    code, error = _first_bad(state.code, moved.code), state.error + moved.error
    return FilterState(law, state.log_likelihood, step, code, error, row), moved.code


def _compose(
    model: AbstractModel, state: FilterState, inputs: Inputs, passed: Array
) -> FilterState:
    """A time made of short transitions; with others, half as long, what their length does."""
    assert model.asked.step is not None
    parts = int(sub_steps(passed[None], model.asked.step)[0])

    def walked(count: int) -> tuple[FilterState, Int[Array, ""]]:
        now, first = state, jnp.zeros((), int)
        for _ in range(count):
            row = now.row._replace(time=jnp.asarray(now.row.time) + passed / count)
            now, code = _moved(model, now, inputs, row._replace(dt=passed / count))
            first = _first_bad(first, code)
        return now, first

    (rough, _), (fine, code) = walked(parts), walked(2 * parts)
    # What halving changes is more than what it leaves, at whatever order.
    added = _between(model.moments(rough.law), model.moments(fine.law))
    code = held_to(code, added, model.tol)
    total = _first_bad(state.code, code)
    new = FilterState(fine.law, fine.log_likelihood, fine.step, total, fine.error + added, fine.row)
    _warn_unresolved(model, state, code, new)
    return new


def _between(old: tuple[Array, Array], new: tuple[Array, Array]) -> Float[Array, ""]:
    """int |p - q| of two laws that are nearly the same, by their means and covariances.

    That of Gaussian laws: sqrt(2 / pi) for a shift of one standard deviation, and 2 phi(1) for
    each part by which a variance changes.
    """
    factor = jnp.linalg.cholesky(new[1])
    shift = jnp.linalg.norm(solve_triangular(factor, new[0] - old[0], lower=True))
    inner = solve_triangular(factor, solve_triangular(factor, old[1], lower=True).T, lower=True)
    stretch = jnp.linalg.norm(inner - jnp.eye(len(inner)))
    return np.sqrt(2 / np.pi) * shift + 2 * _PHI_1 * stretch


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
    if is_concrete(observed) and (cause := why_impossible(known.source, observed)) is not None:
        raise ValueError(cause)
    row = _row_of(known, state.row, inputs, "the sensor")
    if "u" in known.asked.names:
        assert isinstance(row, Row)
        row = row._replace(y=jnp.asarray(observed, dtype=jnp.float64))
    law, seen = known.update(state.law, observed, state.step, row)
    total, code = state.log_likelihood + seen.log_mass, _first_bad(state.code, seen.code)
    after = state.row
    if "last_y" in known.asked.names:
        after = after._replace(last_y=jnp.asarray(observed))
    new = FilterState(law, total, state.step, code, state.error + seen.error, after)
    _warn_unresolved(known, state, seen.code, new)
    return new


def _row_of(model: AbstractModel, row: Row, inputs: Inputs, where: str) -> Inputs:
    """What a step gets: inputs alone, or a row with all that the model asks for."""
    if not model.asked.names:
        return inputs
    if "last_y" in model.asked.names:
        last = row.last_y
        needed = where != "the sensor" or model.asked.by_sensor
        unknown = last is None or (is_concrete(last) and bool(np.isnan(np.asarray(last)).any()))
        if unknown and needed:
            raise ValueError(
                f"{where} takes last_y, but there is none: the observation before is missing. "
                "Before the first one it is first_y of the model"
            )
        if unknown:
            width = model.num_observed or 1
            row = row._replace(last_y=jnp.zeros(width))
    return row._replace(inputs=inputs)


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
