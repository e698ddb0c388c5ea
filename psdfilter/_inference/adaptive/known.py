"""The values of a model, made once for it."""

from ..._statespace.model import StateSpaceModel
from ..numerics.compiled import remembered
from .reach import Frame, frame_of
from .sparse import Grid, grid_of
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


def known_grid(ssm: StateSpaceModel, level: int) -> Grid:
    """The model on a sparse lattice; tables of a transition on a box are made once."""
    frame = known_frame(ssm)
    if frame.noise is not None:
        return grid_of(ssm, frame, level)
    return remembered(ssm, (grid_of, level), lambda: grid_of(ssm, frame, level))
