"""The values of a model of two coordinates, made once for it."""

from ...._statespace.model import StateSpaceModel
from ...numerics.compiled import remembered
from .values import PlaneValues


def plane_values(ssm: StateSpaceModel) -> PlaneValues:
    """Where exact values of Q, G and the prior come from."""
    return remembered(ssm, PlaneValues, lambda: PlaneValues(ssm))
