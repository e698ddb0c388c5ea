"""Where something went, in the plane of two coordinates."""

# Drawing is done for its effect on the axes.
# pyright: reportUnusedCallResult=false

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import scipy.stats

from .._checks import Numbers
from .._inference.result import AbstractResult
from ._axes import BAND, DATA, LINE, TRUTH, axes_for, coordinate_of, finish, names_of, rows_of
from ._limits import levels_of, limits_of_result, values_on_plane

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Regions that do not hide one another, and points on each side of the grid that one is read off.
_MAX_REGIONS, _POINTS = 12, 121
_CIRCLE = np.linspace(0.0, 2 * np.pi, 73)


def track(
    result: AbstractResult,
    coordinates: tuple[int, int] = (0, 1),
    *,
    truth: Numbers | None = None,
    landmarks: Numbers | None = None,
    mass: float = 0.9,
    every: int | None = None,
    names: Sequence[str] | None = None,
    ax: "Axes | None" = None,
) -> "Axes":
    """The path of the means in the plane of two coordinates, with credible regions.

    States of two coordinates get regions of highest density, which may be several; others the
    ellipse of the covariance that would hold the mass of a normal law.

    Args:
        result: from `run_filter`, `run_smoother` or `forecast`.
        coordinates: the two that are drawn.
        truth: true states (T, d).
        landmarks: places (k, 2), such as sensors.
        mass: of the regions.
        every: draw the region of every so many times; by default about a dozen of them.
        names: of all coordinates.
        ax: Matplotlib axes to draw on; by default a new figure.
    """
    count, dim = result.mean.shape
    if dim < 2:
        raise ValueError("track needs at least two coordinates, got one: see over_time")
    if not 0 < mass < 1:
        raise ValueError(f"mass must lie in (0, 1), got {mass}")
    pair = [coordinate_of(i, dim) for i in coordinates]
    ax, labels = axes_for(ax, (5.6, 5.0)), names_of(names, dim)
    step = max(1, count // _MAX_REGIONS) if every is None else every
    for t in range(count - 1, -1, -step):
        _region(result, t, pair, mass, ax)
    ax.plot([], [], color=LINE, lw=0.6, label=f"{mass:.0%} regions")
    mean = np.asarray(result.mean)[:, pair]
    ax.plot(*mean.T, color=LINE, lw=1.4, marker=".", ms=4, label="mean")
    if truth is not None:
        states = rows_of("truth", truth, (count, dim))[:, pair]
        ax.plot(*states.T, color=TRUTH, lw=1.1, label="truth")
    if landmarks is not None:
        ax.plot(*np.asarray(landmarks).T, "^", color=DATA, ms=7, label="landmarks")
    ax.set_aspect("equal", adjustable="datalim")
    return finish(ax, labels[pair[0]], labels[pair[1]])


def _region(result: AbstractResult, t: int, pair: list[int], mass: float, ax: "Axes") -> None:
    outline = {"colors": [LINE], "linewidths": 0.6}
    if result.mean.shape[1] == 2:
        x, y, values = values_on_plane(result.density(t), limits_of_result(result, [t]), _POINTS)
        level, top = levels_of(values, (mass,))[0], values.max()
        shown = values.T if pair == [0, 1] else values
        axes = (x, y) if pair == [0, 1] else (y, x)
        if level < top:
            ax.contourf(*axes, shown, levels=[level, top], colors=[BAND], alpha=0.35)
            ax.contour(*axes, shown, levels=[level], **outline)
        return
    covariance = np.asarray(result.covariance)[t][np.ix_(pair, pair)]
    values, vectors = np.linalg.eigh(covariance)
    radius = np.sqrt(scipy.stats.chi2.ppf(mass, 2) * np.maximum(values, 0.0))
    circle = np.stack([np.cos(_CIRCLE), np.sin(_CIRCLE)])
    edge = np.asarray(result.mean)[t, pair][:, None] + vectors @ (radius[:, None] * circle)
    ax.fill(*edge, color=BAND, alpha=0.35, lw=0)
    ax.plot(*edge, color=LINE, lw=0.6)
