"""Axes of a lattice: equispaced nodes with coarser lattices inside, drawn together at walls."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from ..rules import embedded_error, smooth_error

# Power of s (1 - s) in the derivative of the map that draws nodes together at walls: the trapezoid
# rule then errs by h^6, as the integrand and its first derivatives vanish at both ends.
_POWER = 5
# Least share of the difference of two lattices that counts: a fifth of that on a line, as errors of
# many lines are added up, of which few agree by chance.
LEAST_SHARE = 0.01


class Axis(NamedTuple):
    """`num` intervals between two ends; a single point if there are none.

    Attributes:
        walls: whether the state cannot be beyond the lower, and the upper end.
        drawn: nodes are drawn together at both ends, for densities that do not fade out there.
    """

    low: float
    high: float
    num: int
    walls: tuple[bool, bool] = (False, False)
    drawn: bool = False

    @property
    def nodes(self) -> Float[np.ndarray, " n"]:
        """Where the nodes lie."""
        return self.low + (self.high - self.low) * self._place(np.arange(self.num + 1))

    def _place(self, k: np.ndarray) -> np.ndarray:
        if self.num == 0:
            return np.zeros(1)
        s = k / self.num
        if not self.drawn:
            return s
        return np.polyval(_drawn()[0], s) / np.polyval(_drawn()[0], 1.0)

    @property
    def weights(self) -> Float[np.ndarray, " n"]:
        """Of the trapezoid rule, ends counted in full: densities vanish there."""
        if self.num == 0:
            return np.ones(1)
        s = np.arange(self.num + 1) / self.num
        slope = np.ones(self.num + 1)
        if self.drawn:
            slope = np.polyval(_drawn()[1], s) / np.polyval(_drawn()[0], 1.0)
        return (self.high - self.low) / self.num * np.maximum(slope, 0.0)

    def companions(self) -> tuple[np.ndarray, np.ndarray]:
        """Weights of every second, and of every fourth node, over those of all."""
        if self.num == 0:
            return np.ones(1), np.ones(1)
        k = np.arange(self.num + 1)
        return np.where(k % 2 == 0, 2.0, 0.0), np.where(k % 4 == 0, 4.0, 0.0)

    def finer(self) -> "Axis":
        """Twice the nodes."""
        return self._replace(num=2 * self.num)

    def cut(self, first: int, last: int, num: int) -> "Axis":
        """Between two of its nodes, with nodes anew."""
        x = self.nodes
        walls = (self.walls[0] and first == 0, self.walls[1] and last == self.num)
        return Axis(float(x[first]), float(x[last]), num, walls)


def _drawn() -> tuple[np.ndarray, np.ndarray]:
    """int_0^s (z (1 - z))^p dz and its derivative, as polynomials."""
    slope = np.poly1d([-1.0, 1.0, 0.0]) ** _POWER
    return np.asarray(np.polyint(slope)), np.asarray(slope)


Axes = tuple[Axis, Axis]


def lattice_weights(axes: Axes) -> Float[np.ndarray, "n m"]:
    """Weights of all nodes."""
    return axes[0].weights[:, None] * axes[1].weights[None, :]


def shape_of(axes: Axes) -> tuple[int, int]:
    """Numbers of nodes."""
    return axes[0].num + 1, axes[1].num + 1


def line_errors(
    axes: Axes, values: Float[np.ndarray, "n m"], smooth: bool
) -> Float[np.ndarray, " 2"]:
    """Errors of the sum of `values` (weights included), by axis: of every line, and added up.

    Lines of their own: over the whole plane two rules may agree by chance.
    """
    out = np.zeros(2)
    for k in range(2):
        if axes[k].num == 0:
            continue
        lines = np.moveaxis(values, k, 0)
        half, quarter = axes[k].companions()
        full, two, four = lines.sum(0), half @ lines, quarter @ lines
        if smooth:
            out[k] = smooth_error(full - two, two - four)
        else:
            out[k] = np.sum(embedded_error(full - two, two - four, LEAST_SHARE))
    return out


def children(
    axes: Axes, keep: Bool[np.ndarray, "n m"], which: Bool[np.ndarray, " 2"]
) -> tuple[Axes, Bool[np.ndarray, "n m"]]:
    """Axes with twice the nodes, and the nodes on and between those that are kept."""
    for k in range(2):
        if not which[k]:
            continue
        new = np.zeros((axes[k].num * 2 + 1, keep.shape[1 - k]), bool)
        old = np.moveaxis(keep, k, 0)
        new[::2] = old
        new[1::2] = old[1:] | old[:-1]
        keep = np.moveaxis(new, 0, k)
    refined = tuple(a.finer() if w else a for a, w in zip(axes, which, strict=True))
    return (refined[0], refined[1]), keep


def dilated(keep: Bool[np.ndarray, "n m"]) -> Bool[np.ndarray, "n m"]:
    """A set of nodes and their neighbours."""
    out = keep.copy()
    out[1:] |= keep[:-1]
    out[:-1] |= keep[1:]
    out[:, 1:] |= keep[:, :-1]
    out[:, :-1] |= keep[:, 1:]
    return out


def is_edge(axes: Axes, keep: Bool[np.ndarray, "n m"]) -> Bool[np.ndarray, "n m"]:
    """Kept nodes with a neighbour that is not kept, or that a lattice without a wall lacks."""
    out = np.zeros(keep.shape, bool)
    for k in range(2):
        if axes[k].num == 0:
            continue
        lines, edge = np.moveaxis(keep, k, 0), np.moveaxis(out, k, 0)
        edge[1:] |= lines[1:] & ~lines[:-1]
        edge[:-1] |= lines[:-1] & ~lines[1:]
        if not axes[k].walls[0]:
            edge[0] |= lines[0]
        if not axes[k].walls[1]:
            edge[-1] |= lines[-1]
    return out


def hull(keep: Bool[np.ndarray, "n m"]) -> Int[np.ndarray, "2 2"]:
    """First and last index of the kept nodes, by axis."""
    out = np.zeros((2, 2), int)
    for k in range(2):
        there = np.flatnonzero(keep.any(axis=1 - k))
        out[k] = there[0], there[-1]
    return out


def upper_bound(
    logs: Float[np.ndarray, "n m"], known: Bool[np.ndarray, "n m"]
) -> Float[np.ndarray, "n m"]:
    """What a log-density may reach within half a cell of its nodes.

    Slopes of a concave function fall: from a node it rises no faster than it has risen towards it.
    Nodes that are not known say nothing.
    """
    bound = logs.copy()
    with np.errstate(invalid="ignore"):
        for k in range(2):
            lines, seen = np.moveaxis(logs, k, 0), np.moveaxis(known, k, 0)
            rise = np.zeros(lines.shape)
            both = seen[1:] & seen[:-1] & np.isfinite(lines[1:])
            rise[1:] = np.where(both, np.maximum(rise[1:], lines[1:] - lines[:-1]), rise[1:])
            both = seen[1:] & seen[:-1] & np.isfinite(lines[:-1])
            rise[:-1] = np.where(both, np.maximum(rise[:-1], lines[:-1] - lines[1:]), rise[:-1])
            np.moveaxis(bound, k, 0)[...] += 0.5 * rise
    return bound
