"""A density over time: a heat map, or a curve for every time."""

# Drawing is done for its effect on the axes.
# pyright: reportUnusedCallResult=false

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from .._checks import Numbers
from .._frames.words import plain_times
from .._inference.numerics.circles import copies_of
from .._inference.numerics.gridded import widened
from .._inference.result import AbstractResult
from ._axes import (
    BAND,
    DATA,
    HEAT,
    LINE,
    ON_HEAT,
    TRUTH,
    as_result,
    axes_for,
    coordinate_of,
    finish,
    name_of_times,
    names_of,
    rows_of,
    times_of,
)
from ._circles import circle_of
from ._limits import (
    Limits,
    given_limits,
    limits_of_result,
    masses_over_time,
    values_on_line,
)
from ._split import draw_points, split_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Points of one coordinate; the masses between as many edges are exact, but cost a call each.
_POINTS, _EDGES = 301, 121
# Times that curves can be told apart for, and how far a curve reaches into the next one's room.
_MAX_RIDGES, _OVERLAP = 40, 1.8


def over_time(
    result: AbstractResult,
    coordinate: int = 0,
    *,
    style: str = "heat",
    truth: Numbers | None = None,
    observations: Numbers | None = None,
    mass: float | None = None,
    limits: Limits = None,
    times: Numbers | None = None,
    names: Sequence[str] | None = None,
    ax: "Axes | None" = None,
) -> "Axes":
    """The density of one coordinate of the state at all times.

    Args:
        result: from `run_filter`, `run_smoother` or `forecast`.
        coordinate: which.
        style: "heat" for a map whose colour is the square root of the density, as tails are pale
            otherwise; "ridges" for a curve at each of at most forty times.
        truth: true states (T, d), or (T,) if d = 1.
        observations: numbers (T,) in units of the state, drawn as points.
        mass: of a central interval, drawn as lines, on a heat map; where modes are apart, ends of
            the regions of highest density, drawn as points.
        limits: a box or a pair (lower, upper); by default what holds nearly all of the mass.
        times: instead of the result's.
        names: of all coordinates.
        ax: Matplotlib axes to draw on; by default a new figure.
    """
    if style not in ("heat", "ridges"):
        raise ValueError(f'style must be "heat" or "ridges", got {style!r}')
    count, dim = as_result("result", result).mean.shape
    i, at = coordinate_of(coordinate, dim), times_of(result, times)
    name, states = names_of(names, dim)[i], None
    if truth is not None:
        states = rows_of("truth", truth, (count, dim))[:, i]
    seen = None if observations is None else rows_of("observations", observations, (count, 1))[:, 0]
    marks = [marked for marked in (states, seen) if marked is not None]
    window = _window(result, i, given_limits(limits, 1), marks)
    x, values = _values(result, i, window)
    if style == "ridges":
        labels = name, name_of_times(result, times)
        return _ridges(at, x, values, states, labels, axes_for(ax, (6.0, 5.0)))
    ax = axes_for(ax)
    # Several rows at one time, as of several sensors, are one column: the last of them.
    last = np.append(at[1:] != at[:-1], True)
    image = ax.pcolormesh(at[last], x, np.sqrt(values[last]).T, cmap=HEAT, shading="nearest")
    image.set_edgecolor("face")
    if mass is not None:
        circle = circle_of(result, i)
        if circle is None:
            _draw_ends(ax, at, result, i, mass)
        else:
            ends = [np.asarray(end)[:, i] for end in result.interval(mass)]
            for k, (lower, upper) in enumerate(copies_of(ends, circle)):
                label = None if k else f"{mass:.0%} interval"
                ax.plot(at, lower, color=ON_HEAT, lw=1.1, label=label)
                ax.plot(at, upper, color=ON_HEAT, lw=1.1)
            ax.set_ylim(*window)
    if seen is not None:
        ax.plot(at, seen, "x", color=DATA, ms=4, mew=0.9, label="observed")
    if states is not None:
        ax.plot(at, states, ".", color=TRUTH, ms=4, label="truth")
    return finish(ax, name_of_times(result, times), name)


def _window(
    result: AbstractResult, i: int, given: np.ndarray | None, marks: list[np.ndarray]
) -> np.ndarray:
    """The given limits, or what holds the mass and all marks."""
    if given is not None:
        return given[0]
    circle = circle_of(result, i)
    low, high = limits_of_result(result)[i] if circle is None else circle
    outside = [m for m in np.concatenate([[], *marks]) if not low <= m <= high and np.isfinite(m)]
    if not outside:
        return np.array([low, high])
    return widened(np.fmin(low, min(outside))[None], np.fmax(high, max(outside))[None])[0]


def _values(result: AbstractResult, i: int, window: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Points, and the density there at all times, (T, k)."""
    count, dim = result.mean.shape
    if dim == 1:
        x = np.linspace(window[0], window[1], _POINTS)
        laws = result.laws
        each = [values_on_line(laws.density(t), window[None], _POINTS)[1] for t in range(count)]
        return x, np.stack(each)
    edges = np.linspace(window[0], window[1], _EDGES)
    return 0.5 * (edges[1:] + edges[:-1]), masses_over_time(result, i, edges)


def _draw_ends(ax: "Axes", at: np.ndarray, result: AbstractResult, i: int, mass: float) -> None:
    """Of the interval or of the regions that hold the mass."""
    split = split_of(result, coordinate=i)
    if split is not None:
        regions = split[0].regions(mass)
        draw_points(ax, at, regions, color=ON_HEAT, label=f"{mass:.0%} region")
        return
    lower, upper = (np.asarray(end)[:, i] for end in result.interval(mass))
    ax.plot(at, lower, color=ON_HEAT, lw=1.1, label=f"{mass:.0%} interval")
    ax.plot(at, upper, color=ON_HEAT, lw=1.1)


def _ridges(
    at: np.ndarray,
    x: np.ndarray,
    values: np.ndarray,
    truth: np.ndarray | None,
    labels: tuple[str, str],
    ax: "Axes",
) -> "Axes":
    rows = np.unique(np.linspace(0, len(at) - 1, min(len(at), _MAX_RIDGES)).round().astype(int))
    height = _OVERLAP / values[rows].max()
    for place, row in enumerate(rows):
        curve = place + height * values[row]
        # Later times are in front, so that every curve hides what lies behind it.
        ax.fill_between(x, place, curve, color=BAND, alpha=0.85, lw=0, zorder=len(rows) - place)
        ax.plot(x, curve, color=LINE, lw=0.9, zorder=len(rows) - place + 0.5)
        if truth is not None:
            mark = {"color": TRUTH, "ms": 4, "zorder": len(rows) + 1}
            ax.plot(truth[row], place, ".", label="truth" if place == 0 else None, **mark)
    shown = np.unique(np.linspace(0, len(rows) - 1, min(len(rows), 8)).round().astype(int))
    ax.set_yticks(shown, [str(time) for time in plain_times(at[rows[shown]])])
    ax.margins(x=0)
    return finish(ax, *labels)
