"""The values of a model, made once for it."""

from ..._statespace.model import StateSpaceModel
from ..compiled import remembered
from .reach import Frame, frame_of
from .tables import Values, values_of


def known_values(ssm: StateSpaceModel) -> Values:
    """Where exact values of Q, G and the prior come from."""
    return remembered(ssm, values_of, lambda: values_of(ssm))


def known_frame(ssm: StateSpaceModel) -> Frame:
    """The support and the Gaussians that are known."""
    return remembered(ssm, frame_of, lambda: frame_of(ssm))


def known_width(ssm: StateSpaceModel) -> int | None:
    """Number of coordinates of an observation: to ask a sampler takes longer than a step."""
    return remembered(ssm, "num_observed", lambda: ssm.num_observed)
