"""The values of a model, made once for it."""

from ..._statespace.model import StateSpaceModel
from ..compiled import remembered
from .tables import Values, values_of


def known_values(ssm: StateSpaceModel) -> Values:
    """Where exact values of Q, G and the prior come from."""
    return remembered(ssm, values_of, lambda: values_of(ssm))
