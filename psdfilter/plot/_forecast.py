"""Forecasts, attached to the history they come from."""

# Drawing is done for its effect on the axes.
# pyright: reportUnusedCallResult=false

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from .._checks import Numbers
from .._inference.laws import central_levels
from .._inference.numerics.circles import Circle, copies_of, placed, sensor_circle
from .._inference.posterior import Forecast, Posterior, Smoothed
from .._inference.result import AbstractResult
from ._axes import (
    BAND,
    DATA,
    LINE,
    OTHERS,
    TRUTH,
    as_result,
    axes_for,
    coordinate_of,
    finish,
    name_of_times,
    names_of,
    observed_names,
    once,
    rows_of,
    shared_times,
)
from ._circles import circle_of
from ._split import Split, bar_margin, draw_points, draw_regions, split_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Room beside the first and the last time.
_MARGIN = 0.01
# Nested intervals of a forecast, from the widest, and their opacities.
_FAN = ((0.95, 0.18), (0.8, 0.22), (0.5, 0.3))


def forecast(
    post: Posterior | Smoothed,
    ahead: Forecast,
    coordinate: int = 0,
    *,
    of: str = "state",
    history: int | None = None,
    truth: Numbers | None = None,
    names: Sequence[str] | None = None,
    ax: "Axes | None" = None,
) -> "Axes":
    """The last times of a filter or smoother, and from there a fan of what is to come.

    Where modes are apart, regions of highest density are drawn instead of central intervals.

    Args:
        post: from `run_filter` or `run_smoother`.
        ahead: from `forecast`, of the same model.
        coordinate: of the state, or of y.
        of: "state" or "observations".
        history: how many of the last times are drawn; by default all.
        truth: what came (K,), at the times of the forecast.
        names: of all coordinates.
        ax: Matplotlib axes to draw on; by default a new figure.
    """
    if of not in ("state", "observations"):
        raise ValueError(f'of must be "state" or "observations", got {of!r}')
    post = as_result("post", post, Posterior, Smoothed)
    ahead = as_result("ahead", ahead, Forecast)
    future: AbstractResult = ahead if of == "state" else ahead.observations
    dim = future.mean.shape[1]
    i, ax = coordinate_of(coordinate, dim), axes_for(ax)
    past = slice(None) if history is None else slice(-history, None)
    before, after = shared_times(post, ahead)
    at = before[past]
    ys = np.asarray((post.filtered if isinstance(post, Smoothed) else post).series.ys)
    circle = circle_of(post, i) if of == "state" else sensor_circle(post.model.source, ys, i)
    split = split_of(post, future, coordinate=i) if of == "state" and circle is None else None
    margin = _MARGIN
    if split is not None:
        _draw_split(ax, split, (at, after), past)
        margin = max(margin, bar_margin(ax, len(at) + len(after)))
    elif of == "state":
        levels = [0.5, *central_levels(0.95)]
        curves = np.asarray(post.quantile(levels))[:, past, i]
        for k, (middle, lower, upper) in enumerate(copies_of(list(curves), circle)):
            ax.fill_between(at, lower, upper, color=BAND, lw=0, label=once(k, "95% band"))
            ax.plot(at, middle, color=LINE, lw=1.2, label=once(k, "median"))
        _fan([post, future], np.concatenate([before[-1:], after]), (i, circle), ax)
    else:
        ax.plot(at, placed(ys[past, i], circle), ".", color=DATA, label="observed")
        _fan([future], after, (i, circle), ax)
    if truth is not None:
        came = placed(rows_of("truth", truth, (future.mean.shape[0], 1))[:, 0], circle)
        ax.plot(after, came, ".", color=TRUTH, ms=5, label="what came")
    ax.margins(x=margin)
    if circle is not None:
        ax.set_ylim(*circle)
    if of == "state":
        return finish(ax, _heading(post, ahead), names_of(names, dim)[i])
    called = observed_names(names, post, dim)
    return finish(ax, _heading(post, ahead), names_of(called, dim, "y")[i])


def _heading(post: AbstractResult, ahead: AbstractResult) -> str:
    """The name of dates, unless the forecast has none and both count transitions."""
    named = name_of_times(post)
    return named if name_of_times(ahead) == named else name_of_times(None)


def _draw_split(
    ax: "Axes", split: list[Split], times: tuple[np.ndarray, np.ndarray], past: slice
) -> None:
    """Regions and modes of the history, and nested regions of what is to come."""
    num = len(times[0]) + len(times[1])
    before, label = split[0].regions(0.95)[past], "95% region"
    draw_regions(ax, times[0], before, num=num, color=BAND, label=label)
    draw_points(ax, times[0], split[0].modes(0.95)[past], color=LINE, label="modes")
    for mass, alpha in _FAN:
        style = {"color": OTHERS[1], "alpha": alpha}
        draw_regions(ax, times[1], split[1].regions(mass), num=num, **style)
    draw_points(ax, times[1], split[1].modes(0.95), color=OTHERS[1], label=_fan_label())


def _fan_label() -> str:
    return f"forecast, {', '.join(f'{mass:.0%}' for mass, _ in reversed(_FAN))}"


def _fan(
    parts: list[AbstractResult], at: np.ndarray, shown: tuple[int, Circle | None], ax: "Axes"
) -> None:
    """Nested intervals; those of states begin where the history, the first of two parts, ends."""
    colour, (i, circle) = OTHERS[1], shown

    def attached(levels: list[float]) -> np.ndarray:
        ends = [np.asarray(part.quantile(levels))[:, :, i] for part in parts]
        return ends[0] if len(ends) == 1 else np.concatenate([ends[0][:, -1:], ends[1]], axis=1)

    levels = [level for mass, _ in _FAN for level in central_levels(mass)]
    for k, (middle, *ends) in enumerate(copies_of(list(attached([0.5, *levels])), circle)):
        for j, (_, alpha) in enumerate(_FAN):
            low, high = ends[2 * j : 2 * j + 2]
            ax.fill_between(at, low, high, color=colour, alpha=alpha, lw=0)
        label = once(k, _fan_label())
        ax.plot(at, middle, color=colour, lw=1.4, marker=".", ms=3, label=label)
