"""Models in the plane that a lattice cannot serve, as far as that is known beforehand."""

import numpy as np

from ...._statespace.model import StateSpaceModel
from .known import plane_values
from .steps import MOST_NODES, depth_for

# The depth of a first law, at a tolerance of 1e-3; the count below is an order of magnitude.
_REACH = 2 * np.sqrt(2 * depth_for(1e-4))


def plane_obstacle(ssm: StateSpaceModel) -> str | None:
    """Why a lattice cannot serve; None if it can, as far as is known."""
    space = plane_values(ssm).space
    start = space.start
    if start is None:
        return None
    known = start.sd == 0
    if np.any(known) and not np.all(known) and space.frame[1, 0] != 0:
        return "P0 is singular along an axis that the noise mixes with the other"
    # Nodes one deviation of the noise apart, along the axes of the lattice.
    spread = np.linalg.eigvalsh(start.covariance) if space.turns else np.square(start.sd)
    nodes = float(np.prod(np.maximum(_REACH * np.sqrt(np.maximum(spread, 0.0)), 1.0)))
    if nodes > MOST_NODES:
        return (
            f"the prior is so much wider than the noise that it takes {nodes:.2g} nodes, more than "
            f"{MOST_NODES}"
        )
    return None
