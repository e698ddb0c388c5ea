"""Observations, and what was expected before they were made."""

# Drawing is done for its effect on the axes.
# pyright: reportUnusedCallResult=false

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from .._inference.posterior import Posterior
from ._axes import (
    BAND,
    DATA,
    LINE,
    TRUTH,
    axes_for,
    coordinate_of,
    finish,
    names_of,
    observed_names,
    times_of,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def observations(
    post: Posterior,
    coordinate: int = 0,
    *,
    mass: float = 0.9,
    names: Sequence[str] | None = None,
    ax: "Axes | None" = None,
) -> "Axes":
    """One observed coordinate, on the interval that the data before it predicted.

    Observations outside of their interval are marked; a share of 1 - mass of them should be.

    Args:
        post: from `run_filter`, of an engine that knows the law of y.
        coordinate: of y.
        mass: of the predicted central interval.
        names: of the coordinates of y.
        ax: Matplotlib axes to draw on; by default a new figure.
    """
    ahead, ys = post.predicted_observations, np.asarray(post.series.ys)
    i = coordinate_of(coordinate, ys.shape[1])
    lower, upper = (np.asarray(end)[:, i] for end in ahead.interval(mass))
    middle, at, seen = np.asarray(ahead.quantile(0.5))[:, i], times_of(post), ys[:, i]
    ax = axes_for(ax)
    ax.fill_between(at, lower, upper, color=BAND, lw=0, label=f"predicted, {mass:.0%}")
    ax.plot(at, middle, color=LINE, lw=1, label="predicted median")
    with np.errstate(invalid="ignore"):
        outside = (seen < lower) | (seen > upper)
    inside = np.isfinite(seen) & ~outside
    ax.plot(at[inside], seen[inside], ".", color=DATA, ms=4, label="observed")
    if outside.any():
        ax.plot(at[outside], seen[outside], "x", color=TRUTH, ms=5, label="outside")
    ax.margins(x=0.01)
    called = observed_names(names, post, ys.shape[1])
    return finish(ax, "time", names_of(called, ys.shape[1], "y")[i])
