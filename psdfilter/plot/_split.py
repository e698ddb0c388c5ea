"""Laws of several modes over time: regions of highest density instead of a band and a median."""

# Drawing is done for its effect on the axes.
# pyright: reportUnusedCallResult=false

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from .._inference.numerics.gridded import marginal_densities
from .._inference.numerics.regions import GAP_LEVELS, have_gaps, highest_regions, modes_within
from .._inference.result import AbstractResult

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_POINTS = 301
_POINTS_PER_INCH = 72.0
# Points of a figure's width that bars of all times share, and the most that one of them gets.
_ROOM, _WIDEST = 300.0, 7.0


@dataclass(frozen=True)
class Split:
    """Densities (T, k) of one coordinate at points (k,), for laws whose modes are apart."""

    points: np.ndarray
    values: np.ndarray

    def regions(self, mass: float) -> list[np.ndarray]:
        """Intervals (r, 2) of every time."""
        return [highest_regions(self.points, row, mass) for row in self.values]

    def modes(self, mass: float) -> list[np.ndarray]:
        """The highest point of each region."""
        pairs = zip(self.values, self.regions(mass), strict=True)
        return [modes_within(self.points, row, regions) for row, regions in pairs]


def split_of(*results: AbstractResult, coordinate: int) -> list[Split] | None:
    """Densities of a coordinate if in one of the results its modes are apart.

    Medians, and ends of central intervals, may then lie where the state never is.
    """
    levels = list(GAP_LEVELS)
    if not any(have_gaps(np.asarray(each.quantile(levels)))[coordinate] for each in results):
        return None
    found = (marginal_densities(each.laws, each.mean.shape, _POINTS) for each in results)
    return [Split(points[coordinate], values[:, coordinate]) for points, values in found]


def draw_regions(
    ax: "Axes", at: np.ndarray, regions: list[np.ndarray], *, num: int, **style: object
) -> None:
    """A bar for every interval of every time, as wide as `num` times allow."""
    times = np.repeat(at, [len(each) for each in regions])
    ends = np.concatenate([np.empty((0, 2)), *regions])
    ax.vlines(times, ends[:, 0], ends[:, 1], lw=_width(num), **style)  # pyright: ignore[reportArgumentType]


def _width(num: int) -> float:
    """Of the bars of `num` times, in points."""
    return max(1.0, min(_WIDEST, _ROOM / num))


def bar_margin(ax: "Axes", num: int) -> float:
    """Room beside the first and the last of `num` times for all of their bars."""
    width = ax.get_window_extent().width * _POINTS_PER_INCH / ax.figure.dpi
    # A bar on each side, of which half is needed: axes may shrink when labels are laid out.
    return _width(num) / max(width, _WIDEST)


def draw_points(ax: "Axes", at: np.ndarray, values: list[np.ndarray], **style: object) -> None:
    """Modes of every time, or ends of its regions."""
    each = [np.ravel(v) for v in values]
    times = np.repeat(at, [len(v) for v in each])
    ax.plot(times, np.concatenate([[], *each]), ".", ms=3, **style)  # pyright: ignore[reportArgumentType]
