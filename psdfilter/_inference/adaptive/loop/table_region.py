"""Values of a model whose transition is known by its values alone, on a box, for the loop."""

import numpy as np
from jaxtyping import Array, Float, Int

from ...._statespace.model import StateSpaceModel, log_transition_table
from ...numerics.compiled import call_compiled
from ..rules import no_nan
from .looks import ROWS, Rows, filled, line_likelihoods
from .records import AXES, Active, Tables
from .roughness import between

# Points of a box where a transition that is given by its values is looked at, from so many nodes.
_LOOKS, _NODES = 2**13, 64


class TableRegion:
    """A model on a line whose transition is known by its values, on a box.

    Args:
        ssm: a model whose transition is the same at every step.
        ends: the box.
        num: nodes on it.
    """

    sensor = None
    changes = False
    dim = 1
    is_empty = False
    rows_at_once = ROWS

    def __init__(self, ssm: StateSpaceModel, ends: tuple[float, float], num: int):
        self.ssm, self.h = ssm, (ends[1] - ends[0]) / num
        # Nodes are multiples of the spacing: the first inside of the box.
        first = int(np.ceil(ends[0] / self.h))
        self.low = np.array([0, 0, 0, first])
        last = int(np.floor(ends[1] / self.h))
        self.size = np.array([1, 1, 1, last - first + 1])
        self.x = np.arange(first, last + 1) * self.h
        inside = np.ones(len(self.x), np.int64)
        inside[[0, 1, -2, -1]] = 2
        self._inside, self._kernel = inside, self._tabulated()
        self._missed = self._looked()

    def _tabulated(self) -> Float[np.ndarray, "r r"]:
        size = -(-len(self.x) // 64) * 64
        x = filled(self.x[:, None], size)
        logs = np.asarray(call_compiled(_pairs, self.ssm, x))[: len(self.x), : len(self.x)]
        return np.exp(no_nan(logs))

    def _looked(self) -> Float[np.ndarray, " r"]:
        """Mass of Q(u, .) that the nodes miss, or count too much, by a look between them."""
        num = len(self.x)
        looks = -(-_LOOKS // num)
        some = np.unique(np.linspace(0, num - 1, _NODES).astype(int))
        fine = between(self.x, looks)[: (num - 1) * looks + 1]
        u, x = (
            filled(self.x[some, None], _NODES),
            filled(fine[:, None], -(-len(fine) // 1024) * 1024),
        )
        logs = np.asarray(call_compiled(_old_and_new, self.ssm, u, x))[: len(some), : len(fine)]
        values = np.exp(no_nan(logs))
        gaps = np.abs(np.sum(values[:, ::looks], axis=1) - np.sum(values, axis=1) / looks)
        return self.h * np.interp(np.arange(num), some, gaps)

    def tables(self, rows: Rows, active: Active, tail: float) -> Tables:
        """What the loop reads for some rows."""
        del active
        num, none = len(self.x), np.zeros((0, 0))
        seen = line_likelihoods(self.ssm, self.x, 1.0, rows)
        return Tables(
            self.low,
            self.size,
            np.zeros((num, AXES)),
            none,
            none,
            none,
            self._inside,
            # Nobody knows how smooth a transition is that is known by its values alone.
            np.stack([np.ones(num, bool), np.zeros(num, bool)]),
            self._missed,
            np.zeros(num, bool),
            logs=seen.logs,
            between=seen.between,
            bent=seen.bent,
            kernel=self._kernel,
            band=self._band(tail),
            peak=float(np.max(self._kernel)),
            hides=False,
        )

    def _band(self, tail: float) -> Int[np.ndarray, "r 2"]:
        """Where a node of mass one has more than `tail`."""
        there = self._kernel > tail
        some = np.any(there, axis=1)
        first = np.where(some, np.argmax(there, axis=1), 0)
        last = np.where(some, len(self.x) - np.argmax(there[:, ::-1], axis=1), 0)
        return np.stack([first, last], axis=1)

    def reached(self, active: Active, tail: float, row: Rows) -> bool:
        """All that there is is tabulated."""
        del active, tail, row
        return False


def _pairs(ssm: StateSpaceModel, x: Array) -> Array:
    return log_transition_table(ssm, (0,), x, x)


def _old_and_new(ssm: StateSpaceModel, u: Array, x: Array) -> Array:
    return log_transition_table(ssm, (0,), u, x)
