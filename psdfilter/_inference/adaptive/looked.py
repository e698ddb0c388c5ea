"""A first look at a model: what it says before any data have been seen."""

import warnings
from collections.abc import Iterator

import numpy as np
from jax.errors import JAXTypeError

from ..._statespace.model import Inputs, StateSpaceModel
from ..._statespace.probe import odd_mass
from ..notices import (
    NO_DENSITY,
    loses_mass,
    no_density,
    no_mass_ahead,
    no_normal_density,
    traced_model,
)
from . import robust
from .known import known_frame, known_values
from .plane import smooth as plane_smooth
from .plane.chain import started
from .plane.known import plane_values
from .plane.law import Law as PlaneLaw
from .smooth import forecast
from .state import Law

# The prior and a few states after it are looked at, roughly: no number of the filter rests on it.
_STEPS, _ROUGH = 3, 1e-2
_TIMES: list[tuple[int, Inputs]] = [(t, None) for t in range(1, _STEPS + 1)]
# Share of the mass that may leave a box in a step before users are told.
_LARGE_LEAK = 0.05


def _on_a_line(ssm: StateSpaceModel) -> Iterator[Law]:
    """The prior, and states to come if a box confines them."""
    values, frame = known_values(ssm), known_frame(ssm)
    law = robust.start(values, frame, _ROUGH)
    yield law
    if np.isfinite(frame.lower) or np.isfinite(frame.upper):
        yield from forecast(values, frame, law, _TIMES, _ROUGH)


def _in_the_plane(ssm: StateSpaceModel) -> Iterator[PlaneLaw]:
    """Likewise."""
    values = plane_values(ssm)
    law = started(values, _ROUGH).law
    yield law
    if values.space.walled:
        yield from plane_smooth.forecast(values, law, _TIMES, _ROUGH)


def _certain(law: Law | PlaneLaw) -> float:
    """The mass of a law; one as far as its own error explains the difference."""
    mass, doubt = np.exp(law.log_norm), law.error + law.sampling
    return float(mass + np.clip(1 - mass, -doubt, doubt))


def look_at(ssm: StateSpaceModel, inputs: Inputs) -> None:
    """Refuse a prior without mass; warn of what is no density, and of a box that is left.

    Models that need inputs are looked at when these come. A diffusion has no box of the user's, and
    a transition over one unit of time, longer than its step, is none that the filter would take.
    """
    laws = _on_a_line(ssm) if ssm.dim == 1 else _in_the_plane(ssm)
    try:
        if not np.isfinite(next(laws).log_norm):
            box = ssm.state_box
            raise ValueError(
                "log_prior must put mass on state_box, but it is -inf or NaN at every point tried: "
                f"is the box [{np.asarray(box.lower)}, {np.asarray(box.upper)}] the right one?"
            )
        steps = inputs is None and ssm.step is None
        kept = np.array([_certain(law) for law in laws] if steps else [])
    except JAXTypeError as error:
        raise ValueError(traced_model) from error
    if len(kept) == 0:
        return
    odd = odd_mass(ssm) if np.max(np.abs(1 - kept)) > _LARGE_LEAK else None
    if not np.max(kept) > 0:
        warnings.warn(no_mass_ahead(), stacklevel=5)
    elif odd is not None:
        warnings.warn(no_normal_density(odd), stacklevel=5)
    elif kept[0] > NO_DENSITY:
        warnings.warn(no_density(float(kept[0])), stacklevel=5)
    elif 1 - np.min(kept) > _LARGE_LEAK:
        warnings.warn(loses_mass(float(1 - np.min(kept))), stacklevel=5)
