"""What the functions of a state-space model say at a few points, to know them again in a file."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from .._checks import is_concrete
from .._density.box import Box
from .._statespace.functions import call, requires
from .._statespace.model import (
    StateSpaceModel,
    log_observation_grid,
    log_prior_table,
    log_transition_table,
)

# Places in a box, as shares of its width; those of other axes are shifted, so that no two axes are
# asked at the same ones.
_SHARES, _SHIFT = np.array([0.41, 0.53, 0.67]), 0.09
# Steps that functions of time are asked at.
_STEPS = (1, 2)
# Observations where no box says what they are like: in the support of reals, counts and shares.
_OBSERVED = np.array([0.5, 0.75])
# Other processors, and other versions of XLA, round the functions of a model differently: by 1e-12
# of a value, and by more where a map iterates or cancels. What two models differ by in the eighth
# digit, no tolerance of learning would see.
_SAME = 1e-7

Values = dict[str, list[float]]


def values_of(ssm: StateSpaceModel) -> Values:
    """The values of each function that can be asked without inputs."""
    if ssm.regimes is None:
        return _values_of(ssm)
    found: Values = {}
    for k, model in enumerate(ssm.regimes.models):
        own = _values_of(model)
        found |= {f"{name} of regime {k}": values for name, values in own.items()}
    P, at = ssm.regimes.P, jnp.asarray(_points(ssm.state_box))
    if not requires(P, "inputs"):
        each = [jax.vmap(lambda u, t=t: jnp.asarray(call(P, u, t=t)))(at) for t in _STEPS]
        found["P"] = _listed(each)
    return {**found, "initial": _listed([ssm.regimes.initial])}


def different(given: Values, saved: Values) -> str | None:
    """The first function whose values differ, and how; None if there is none."""
    for name, values in saved.items():
        if name not in given or len(given[name]) != len(values):
            return f"its {name} takes other arguments than in the file"
        own, kept = np.array(given[name]), np.array(values, dtype=float)
        same = np.isclose(own, kept, rtol=_SAME, atol=_SAME, equal_nan=True)
        if not same.all():
            k = int(np.argmin(same))
            return f"its {name} gives {own[k]:.8g} where that of the file gives {kept[k]:.8g}"
    return None


def _values_of(ssm: StateSpaceModel) -> Values:
    x = jnp.asarray(_points(ssm.state_box))
    every = tuple(range(ssm.dim))
    found: Values = {"log_prior": _listed([log_prior_table(ssm, x)])}
    if not requires(ssm.log_transition, "inputs"):
        found["log_transition"] = _over_time(lambda t: log_transition_table(ssm, every, x, x, t))
    axis = ssm.log_transition_axis
    if axis is not None and ssm.dim > 1 and not requires(axis, "inputs"):
        for i in every:
            found[f"log_transition_axis {i}"] = _over_time(
                lambda t, i=i: log_transition_table(ssm, (i,), x, x[:, i : i + 1], t)
            )
    if ssm.num_observed is not None and not requires(ssm.log_observation, "inputs"):
        y = jnp.asarray(_observations(ssm, ssm.num_observed))
        found["log_observation"] = _over_time(lambda t: log_observation_grid(ssm, x, y, t, None))
    return found


def _over_time(table: Callable[[int], jax.Array]) -> list[float]:
    return _listed([table(t) for t in _STEPS])


def _listed(tables: list[jax.Array]) -> list[float]:
    if not is_concrete(tables):
        raise ValueError(
            "the functions of the model hold numbers that are being traced by JAX: save and load "
            "outside jit, grad and vmap"
        )
    return [float(value) for table in tables for value in np.ravel(np.asarray(table))]


def _points(box: Box) -> Float[np.ndarray, "k d"]:
    low, high = np.asarray(box.lower), np.asarray(box.upper)
    # Of an axis without an end, what is next to the other one.
    low = np.where(np.isfinite(low), low, np.where(np.isfinite(high), high - 1.0, 0.0))
    high = np.where(np.isfinite(high), high, low + 1.0)
    shares = np.mod(_SHARES[:, None] + _SHIFT * np.arange(box.dim)[None, :], 1.0)
    return low + (high - low) * shares


def _observations(ssm: StateSpaceModel, num: int) -> Float[np.ndarray, "k p"]:
    if ssm.observation_box is None:
        return np.repeat(_OBSERVED[:, None], num, axis=1)
    points = _points(ssm.observation_box)
    return np.round(points) if ssm.counts else points
