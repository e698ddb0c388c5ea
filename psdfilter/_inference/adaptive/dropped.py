"""What a law has left out, and where the next one misses it.

Panels without mass are dropped. What they would add to a prediction is nothing where that is high.
Deep in its tail they may be all there is: a map that is not monotone leads from far away, where the
law has next to nothing, to places that no node comes near. An observation there, now or some steps
later, rests on what was dropped. So its nodes are kept, as coarse as they were when they were
dropped, to tell errors of sums by.
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from .tables import Idle, Source, Values

# Relative errors that are larger are told as this: a share of a sum is nothing near it.
_MOST = 1e6


class LeftOut(NamedTuple):
    """What a prediction lacks at points, over what it has, and how much of that is on the left."""

    ratio: Float[np.ndarray, " m"]
    left: Float[np.ndarray, " m"]

    def sides(self, omega: Float[np.ndarray, " m"]) -> Float[np.ndarray, " 2"]:
        """Mass of a law with masses `omega` that is missing, by the side on which it was."""
        lacks = omega * self.ratio
        return np.array([np.sum(lacks * self.left), np.sum(lacks * (1 - self.left))])


def left_out(
    values: Values,
    idle: Idle | None,
    source: Source,
    x: Float[np.ndarray, " m"],
    log_p: Float[np.ndarray, " m"],
) -> LeftOut:
    """What dropped nodes would add at points x, where the others give exp(log_p)."""
    if idle is None or len(idle.nodes) == 0:
        return LeftOut(np.zeros(len(x)), np.zeros(len(x)))
    left = (idle.nodes < source.nodes[0]).astype(float)
    there = Source(idle.nodes, idle.log_masses, np.tile(left, (4, 1)), None, source.t, source.row)
    lacks = values.push(there, x)
    with np.errstate(invalid="ignore", over="ignore"):
        ratio = np.exp(np.minimum(lacks.log_p - log_p, np.log(_MOST)))
    ratio = np.where(np.isfinite(lacks.log_p), np.nan_to_num(ratio, nan=_MOST), 0.0)
    return LeftOut(ratio, lacks.companions[3])
