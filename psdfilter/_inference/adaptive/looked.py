"""A first look at a model: what it says before any data have been seen."""

import warnings

import numpy as np
from jax.errors import JAXTypeError

from ..._statespace.model import Inputs, StateSpaceModel
from ..notices import NO_DENSITY, loses_mass, no_density, traced_model
from . import robust
from .known import known_frame, known_values
from .smooth import forecast

# The prior and a few states after it are looked at, roughly: no number of the filter rests on it.
_STEPS, _ROUGH = 3, 1e-2
_LARGE_LEAK = 0.05


def look_at(ssm: StateSpaceModel, inputs: Inputs) -> None:
    """Refuse a prior without mass; warn of what is no density, and of a box that is left.

    Models that need inputs are looked at when these come.
    """
    values, frame = known_values(ssm), known_frame(ssm)
    try:
        law = robust.start(values, frame, _ROUGH)
        if not np.isfinite(law.log_norm):
            box = ssm.state_box
            raise ValueError(
                "log_prior must put mass on state_box, but it is -inf or NaN at every point tried: "
                f"is the box [{np.asarray(box.lower)}, {np.asarray(box.upper)}] the right one?"
            )
        if not (np.isfinite(frame.lower) or np.isfinite(frame.upper)) or inputs is not None:
            return
        laws = forecast(values, frame, law, [(t, None) for t in range(1, _STEPS + 1)], _ROUGH)
    except JAXTypeError as error:
        raise ValueError(traced_model) from error
    kept = np.exp([law.log_norm for law in laws])
    if kept[0] > NO_DENSITY:
        warnings.warn(no_density(float(kept[0])), stacklevel=5)
    elif 1 - np.min(kept) > _LARGE_LEAK:
        warnings.warn(loses_mass(float(1 - np.min(kept))), stacklevel=5)
