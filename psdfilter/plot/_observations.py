"""Observations, and what was expected before they were made."""

# Drawing is done for its effect on the axes.
# pyright: reportUnusedCallResult=false

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from .._inference.numerics.circles import are_outside, copies_of, placed, sensor_circle
from .._inference.posterior import Posterior
from ._axes import (
    BAND,
    DATA,
    LINE,
    TRUTH,
    as_result,
    axes_for,
    coordinate_of,
    finish,
    name_of_times,
    names_of,
    observed_names,
    once,
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
    post = as_result("post", post, Posterior)
    ahead, ys = post.predicted_observations, np.asarray(post.series.ys)
    i = coordinate_of(coordinate, ys.shape[1])
    lower, upper = (np.asarray(end)[:, i] for end in ahead.interval(mass))
    circle = sensor_circle(post.model.source, ys, i)
    at, seen = times_of(post), placed(ys[:, i], circle)
    ax, curves = axes_for(ax), (np.asarray(ahead.quantile(0.5))[:, i], lower, upper)
    for k, (middle, low, high) in enumerate(copies_of(curves, circle)):
        band = once(k, f"predicted, {mass:.0%}")
        ax.fill_between(at, low, high, color=BAND, lw=0, label=band)
        ax.plot(at, middle, color=LINE, lw=1, label=once(k, "predicted median"))
    outside = are_outside(seen, (lower, upper), circle)
    inside = np.isfinite(seen) & ~outside
    ax.plot(at[inside], seen[inside], ".", color=DATA, ms=4, label="observed")
    if outside.any():
        ax.plot(at[outside], seen[outside], "x", color=TRUTH, ms=5, label="outside")
    ax.margins(x=0.01)
    if circle is not None:
        ax.set_ylim(*circle)
    called = observed_names(names, post, ys.shape[1])
    return finish(ax, name_of_times(post), names_of(called, ys.shape[1], "y")[i])
