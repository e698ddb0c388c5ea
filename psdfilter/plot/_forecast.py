"""Forecasts, attached to the history they come from."""

# Drawing is done for its effect on the axes.
# pyright: reportUnusedCallResult=false

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from .._checks import Numbers
from .._inference.laws import central_levels
from .._inference.posterior import Forecast, Posterior, Smoothed
from .._inference.result import AbstractResult
from ._axes import (
    BAND,
    DATA,
    LINE,
    OTHERS,
    TRUTH,
    axes_for,
    coordinate_of,
    finish,
    names_of,
    observed_names,
    rows_of,
    shared_times,
)
from ._split import Split, draw_points, draw_regions, split_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes

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
    future: AbstractResult = ahead if of == "state" else ahead.observations
    dim = future.mean.shape[1]
    i, ax = coordinate_of(coordinate, dim), axes_for(ax)
    past = slice(None) if history is None else slice(-history, None)
    before, after = shared_times(post, ahead)
    at = before[past]
    split = split_of(post, future, coordinate=i) if of == "state" else None
    if split is not None:
        _draw_split(ax, split, (at, after), past)
    elif of == "state":
        lower, upper = (np.asarray(end)[past, i] for end in post.interval(0.95))
        middle = np.asarray(post.quantile(0.5))[past, i]
        ax.fill_between(at, lower, upper, color=BAND, lw=0, label="95% band")
        ax.plot(at, middle, color=LINE, lw=1.2, label="median")
        _fan([post, future], np.concatenate([before[-1:], after]), i, ax)
    else:
        filtered = post.filtered if isinstance(post, Smoothed) else post
        ax.plot(at, np.asarray(filtered.series.ys)[past, i], ".", color=DATA, label="observed")
        _fan([future], after, i, ax)
    if truth is not None:
        came = rows_of("truth", truth, (future.mean.shape[0], 1))[:, 0]
        ax.plot(after, came, ".", color=TRUTH, ms=5, label="what came")
    ax.margins(x=0.01)
    if of == "state":
        return finish(ax, "time", names_of(names, dim)[i])
    return finish(ax, "time", names_of(observed_names(names, post, dim), dim, "y")[i])


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


def _fan(parts: list[AbstractResult], at: np.ndarray, i: int, ax: "Axes") -> None:
    """Nested intervals; those of states begin where the history, the first of two parts, ends."""
    colour = OTHERS[1]

    def attached(levels: list[float]) -> np.ndarray:
        ends = [np.asarray(part.quantile(levels))[:, :, i] for part in parts]
        return ends[0] if len(ends) == 1 else np.concatenate([ends[0][:, -1:], ends[1]], axis=1)

    for mass, alpha in _FAN:
        ax.fill_between(at, *attached(central_levels(mass)), color=colour, alpha=alpha, lw=0)
    ax.plot(at, attached([0.5])[0], color=colour, lw=1.4, marker=".", ms=3, label=_fan_label())
