"""States over time with bands."""

# Drawing is done for its effect on the axes.
# pyright: reportUnusedCallResult=false

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from .._checks import Numbers
from .._inference.numerics.circles import copies_of, placed
from .._inference.result import AbstractResult
from ._axes import (
    BAND,
    LINE,
    OTHERS,
    TRUTH,
    as_result,
    axes_for,
    coordinate_of,
    finish,
    name_of_times,
    names_of,
    once,
    panels_for,
    rows_of,
    times_of,
)
from ._circles import circle_of
from ._split import bar_margin, draw_points, draw_regions, split_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def states(
    post: AbstractResult,
    *,
    truth: Numbers | None = None,
    times: Numbers | None = None,
    mass: float = 0.9,
    names: Sequence[str] | None = None,
    axes: object = None,
) -> np.ndarray:
    """Median and central interval of every coordinate of the state, one below the other.

    Where modes are apart, regions of highest density and the modes in them are drawn instead.

    Args:
        post: from `run_filter`, `run_smoother` or `forecast`.
        truth: true states (T, d), to be drawn too.
        times: what to write on the axis of time; by default the times of the result.
        mass: of the interval.
        names: of the coordinates.
        axes: d Matplotlib axes to draw on; by default a new figure.
    """
    post = as_result("post", post)
    lower, upper = (np.asarray(end) for end in post.interval(mass))
    middle = np.asarray(post.quantile(0.5))
    count, dim = middle.shape
    at, labels = times_of(post, times), names_of(names, dim)
    true = None if truth is None else rows_of("truth", truth, (count, dim))
    called = name_of_times(post, times)
    panels = panels_for(axes, dim, 1, (8.0, 2.4))[:dim]
    for i, ax in enumerate(panels):
        circle = circle_of(post, i)
        # Regions of a circle have no ends: bands wrap around it.
        split = split_of(post, coordinate=i) if circle is None else None
        if split is None:
            curves = middle[:, i], lower[:, i], upper[:, i]
            for k, (line, low, high) in enumerate(copies_of(curves, circle)):
                band = once(k, f"{mass:.0%} band")
                ax.fill_between(at, low, high, color=BAND, lw=0, label=band)
                ax.plot(at, line, color=LINE, lw=1.2, label=once(k, "median"))
        else:
            label = f"{mass:.0%} region"
            draw_regions(ax, at, split[0].regions(mass), num=count, color=BAND, label=label)
            draw_points(ax, at, split[0].modes(mass), color=LINE, label="modes")
        if true is not None:
            for k, (line,) in enumerate(copies_of([true[:, i]], circle)):
                ax.plot(at, line, color=TRUTH, lw=1, label=once(k, "truth"))
        _ = None if circle is None else ax.set_ylim(*circle)
        ax.margins(x=0 if split is None else bar_margin(ax, count))
        finish(ax, called if i == dim - 1 else None, labels[i], legend=i == 0)
    return panels


def comparison(
    results: Mapping[str, AbstractResult],
    coordinate: int = 0,
    *,
    truth: Numbers | None = None,
    mass: float = 0.9,
    names: Sequence[str] | None = None,
    ax: "Axes | None" = None,
) -> "Axes":
    """Medians and central intervals of several results, such as a filter and its smoother.

    Where modes are apart, regions of highest density and the modes in them are drawn instead.

    Args:
        results: by the names that the legend gives them; `truth` has the times of the first.
        coordinate: which.
        truth: true states (T, d), to be drawn too.
        mass: of the intervals.
        names: of all coordinates.
        ax: Matplotlib axes to draw on; by default a new figure.
    """
    if not results:
        raise ValueError("results must hold at least one result, got none")
    for name, each in results.items():
        as_result(f"results[{name!r}]", each)
    ax, first = axes_for(ax), next(iter(results.values()))
    i = coordinate_of(coordinate, first.mean.shape[1])
    circle = circle_of(first, i)
    split = split_of(*results.values(), coordinate=i) if circle is None else None
    for k, ((name, result), colour) in enumerate(zip(results.items(), OTHERS, strict=False)):
        if split is not None:
            at, style = times_of(result), {"color": colour, "alpha": 0.3, "num": len(result.mean)}
            draw_regions(
                ax, at, split[k].regions(mass), label=f"{name}, {mass:.0%} region", **style
            )
            draw_points(ax, at, split[k].modes(mass), color=colour)
            continue
        lower, upper = (np.asarray(end)[:, i] for end in result.interval(mass))
        at = times_of(result)
        curves = np.asarray(result.quantile(0.5))[:, i], lower, upper
        for copy, (middle, low, high) in enumerate(copies_of(curves, circle)):
            ax.fill_between(at, low, high, color=colour, alpha=0.2, lw=0)
            for end in (low, high):
                ax.plot(at, end, color=colour, lw=0.6)
            band = once(copy, f"{name}, {mass:.0%} band")
            ax.plot(at, middle, color=colour, lw=1.2, label=band)
    if truth is not None:
        true = placed(rows_of("truth", truth, first.mean.shape)[:, i], circle)
        ax.plot(times_of(first), true, ".", color=TRUTH, ms=4, label="truth")
    if circle is not None:
        ax.set_ylim(*circle)
    ax.margins(x=0 if split is None else bar_margin(ax, len(first.mean)))
    return finish(ax, name_of_times(first), names_of(names, first.mean.shape[1])[i])
