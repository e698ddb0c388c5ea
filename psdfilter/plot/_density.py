"""One density, of one or two coordinates."""

# Drawing is done for its effect on the axes.
# pyright: reportUnusedCallResult=false

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from .._checks import Numbers
from .._density.psd import AbstractDensity
from .._inference.laws import checked_index
from .._inference.result import AbstractResult
from ._axes import BAND, HEAT, LINE, TRUTH, axes_for, finish, names_of
from ._limits import (
    Limits,
    given_limits,
    levels_of,
    limits_of_density,
    limits_of_result,
    values_on_line,
    values_on_plane,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Points of a curve, and of each side of a plane: finer than a screen shows of a smooth density.
_LINE_POINTS, _PLANE_POINTS = 801, 161


def density(
    source: AbstractDensity | AbstractResult,
    t: int | None = None,
    *,
    limits: Limits = None,
    truth: Numbers | None = None,
    masses: tuple[float, ...] = (0.5, 0.9, 0.99),
    marginals: bool = False,
    names: Sequence[str] | None = None,
    ax: "Axes | None" = None,
) -> "Axes":
    """A density as a curve, or in the plane as regions that hold the given masses.

    Args:
        source: a density of one or two coordinates, or a result of inference.
        t: index of the time, for results.
        limits: a box, or pairs (lower, upper); by default what holds nearly all of the mass.
        truth: a point (d,) to be marked.
        masses: of the regions of highest density, in the plane.
        marginals: draw the densities of both coordinates on top and at the right, in the plane.
        names: of the coordinates.
        ax: Matplotlib axes to draw on; by default a new figure.
    """
    law, default = _law_of(source, t)
    dim = law.dim
    if dim > 2:
        raise ValueError(
            f"density draws one or two coordinates, got {dim}: take psdfilter.marginal(density, "
            "keep) first, or draw psdfilter.plot.over_time(result, coordinate)"
        )
    shown = given_limits(limits, dim)
    shown = default() if shown is None else shown
    labels, point = names_of(names, dim), None if truth is None else np.ravel(np.asarray(truth))
    if dim == 1:
        return _curve(law, shown, point, labels[0], axes_for(ax, (6.0, 3.2)))
    drawn = _regions(law, shown, masses, marginals, axes_for(ax, (5.2, 4.6)))
    if point is not None:
        drawn.plot(*point, "o", color=TRUTH, ms=5, label="truth")
    if marginals:
        return finish(drawn, labels[0], labels[1], legend=False)
    return finish(drawn, labels[0], labels[1])


def _law_of(source: AbstractDensity | AbstractResult, t: int | None):
    if isinstance(source, AbstractResult):
        if t is None:
            raise ValueError("t must be given: density draws one time of a result")
        index = checked_index("t", t, source.mean.shape[0])
        return source.density(index), lambda: limits_of_result(source, [index])
    if not isinstance(source, AbstractDensity):
        raise ValueError(f"source must be a density or a result, got {type(source).__name__}")
    return source, lambda: limits_of_density(source)


def _curve(
    law: AbstractDensity, limits: np.ndarray, truth: np.ndarray | None, name: str, ax: "Axes"
) -> "Axes":
    x, values = values_on_line(law, limits, _LINE_POINTS)
    ax.fill_between(x, values, color=BAND, alpha=0.5, lw=0)
    ax.plot(x, values, color=LINE, lw=1.4)
    if truth is not None:
        ax.axvline(truth[0], color=TRUTH, lw=1.2, label="truth")
    ax.set_ylim(bottom=0)
    ax.margins(x=0)
    return finish(ax, name, "density")


def regions(law: AbstractDensity, limits: np.ndarray, masses: tuple[float, ...], ax: "Axes"):
    """Filled regions of highest density; the grid and its values."""
    x, y, values = values_on_plane(law, limits, _PLANE_POINTS)
    levels = np.unique(np.append(levels_of(values, masses), values.max()))
    ax.contourf(x, y, values.T, levels=levels, cmap=HEAT, vmin=0, vmax=values.max())
    ax.contour(x, y, values.T, levels=levels[:-1], colors=LINE, linewidths=0.6)
    ax.set_xlim(*limits[0])
    ax.set_ylim(*limits[1])
    return x, y, values


def _regions(
    law: AbstractDensity,
    limits: np.ndarray,
    masses: tuple[float, ...],
    marginals: bool,
    ax: "Axes",
) -> "Axes":
    x, y, values = regions(law, limits, masses, ax)
    shares = ", ".join(f"{mass:.0%}" for mass in sorted(masses))
    if not marginals:
        ax.plot([], [], color=LINE, lw=0.6, label=f"regions of {shares}")
        return ax
    top = ax.inset_axes((0.0, 1.03, 1.0, 0.2), sharex=ax)
    side = ax.inset_axes((1.03, 0.0, 0.2, 1.0), sharey=ax)
    over_x, over_y = np.trapezoid(values, y, axis=1), np.trapezoid(values, x, axis=0)
    top.fill_between(x, over_x, color=BAND, lw=0)
    side.fill_betweenx(y, over_y, color=BAND, lw=0)
    for inset in (top, side):
        inset.axis("off")
    return ax
