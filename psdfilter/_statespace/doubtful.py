"""Data that a model cannot have made, or hardly: the reason in words."""

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array
from scipy.stats import qmc

from .._checks import is_traced
from .functions import GaussianObservation, wanted_by
from .model import StateSpaceModel, log_observation_table
from .structure import AdditiveGaussian

# Turns to either side beyond which angles in radians are taken for degrees: 25 of them.
_TURNS = 4
# States of a box where a sensor is asked whether it gives a number.
_POINTS = 256


def why_impossible(ssm: StateSpaceModel | None, y: Array | np.ndarray) -> str | None:
    """Why an observation is impossible, if it is none of the numbers that the sensor gives."""
    value = np.asarray(y)
    if ssm is None or np.isnan(value).any():
        return None
    if ssm.counts and bool(np.any((value < 0) | (value != np.round(value)))):
        return f"y must hold counts, whole numbers from 0 on, got {value}"
    axis = ssm.seen_axis
    if axis is not None and not bool(np.all(np.asarray(axis.contains(jnp.asarray(value))))):
        return f"y must lie in the support of the sensor, {axis.words}, got {value}"
    return None


def first_impossible(ssm: StateSpaceModel | None, ys: Array | np.ndarray) -> tuple[int, str] | None:
    """The first row that the sensor cannot give, and why."""
    if ssm is None or not (ssm.counts or ssm.seen_axis is not None):
        return None
    for k, y in enumerate(np.asarray(ys)):
        cause = why_impossible(ssm, y)
        if cause is not None:
            return k, cause
    return None


@eqx.filter_jit
def _seen_at(ssm: StateSpaceModel, x: Array, y: Array) -> Array:
    return log_observation_table(ssm, x, y, None, None)


def no_number(ssm: StateSpaceModel | None, ys: Array | np.ndarray) -> str | None:
    """A question, if the likelihood of the first observation is NaN somewhere in the box."""
    if ssm is None or is_traced(ssm) or ssm.vectorized or ssm.regimes is not None:
        return None
    if isinstance(ssm.log_observation, GaussianObservation) or wanted_by(ssm.log_observation):
        return None
    seen = np.flatnonzero(np.isfinite(np.asarray(ys)).all(axis=1))
    if len(seen) == 0:
        return None
    y, box = np.asarray(ys)[seen[0]], ssm.state_box
    shares = qmc.Halton(ssm.dim, scramble=False).random(_POINTS)[1:]
    x = np.asarray(box.lower) + shares * np.asarray(box.upper - box.lower)
    bad = np.isnan(np.asarray(_seen_at(ssm, jnp.asarray(x), jnp.asarray(y))))
    if not bad.any():
        return None
    return (
        f"log_observation is NaN at x = {x[int(np.argmax(bad))]} for y = {y}, which counts as a "
        "likelihood of zero: return -jnp.inf there if that is meant"
    )


def as_if_degrees(ssm: StateSpaceModel | None, ys: Array | np.ndarray) -> str | None:
    """A question, if angles of a sensor in radians are many turns away from zero."""
    form = None if ssm is None else ssm.structure
    if not isinstance(form, AdditiveGaussian) or form.turns is None:
        return None
    values, periods = np.asarray(ys), np.asarray(form.turns.periods)
    for i in form.turns.axes:
        largest = np.max(np.abs(values[:, i]), initial=0.0, where=np.isfinite(values[:, i]))
        if np.isclose(periods[i], 2 * np.pi) and largest > _TURNS * periods[i]:
            return (
                f"ys[:, {i}] has angles of up to {largest:.4g}, {largest / periods[i]:.0f} turns, "
                "for a sensor that wraps at 2 pi: are they degrees? Then say wrap=360.0 for that "
                "coordinate, and h and R in degrees. If turns were counted, pass them modulo 2 pi"
            )
    return None
