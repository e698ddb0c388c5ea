"""Whether a density in the plane is smooth, from its logarithm at the nodes that hold mass."""

import numpy as np
from jaxtyping import Bool, Float

from ..loop.roughness import is_bent

# Neighbours of a node that its fourth differences of both strides take in.
_REACH = 4


def rough_mass(logs: Float[np.ndarray, "n m"], masses: Float[np.ndarray, "n m"]) -> float:
    """Mass beside kinks and jumps, and where nobody can tell; `logs` are -inf where nothing is.

    Nodes too near to where nothing is are judged by the others on their lines. A jump to nothing
    shows in the mass of the last nodes before it, which is next to none where a density has been
    cut far down in its tail.
    """
    there = np.isfinite(logs)
    rough = np.zeros(logs.shape, bool)
    for k in range(2):
        lines, inside = np.moveaxis(logs, k, 0), np.moveaxis(there, k, 0)
        out = np.moveaxis(rough, k, 0)
        if len(lines) <= 2 * _REACH:
            return float(np.sum(masses))
        known, bent = is_bent(np.where(inside, lines, np.nan))
        out |= _beside(bent, _REACH)
        out |= ~np.any(known, axis=0)
        out |= inside & _beside(~inside, 1)
    return float(np.sum(masses[rough & there]))


def _beside(flags: Bool[np.ndarray, "n m"], reach: int) -> Bool[np.ndarray, "n m"]:
    """Flagged, or within so many nodes of one that is, along the first axis."""
    out = flags.copy()
    for s in range(1, reach + 1):
        out[s:] |= flags[:-s]
        out[:-s] |= flags[s:]
    return out
