"""Densities in the plane at several times."""

# Drawing is done for its effect on the axes.
# pyright: reportUnusedCallResult=false

from collections.abc import Sequence

import numpy as np

from .._checks import Numbers
from .._frames.words import plain_times
from .._inference.laws import checked_index
from .._inference.result import AbstractResult
from ._axes import TRUTH, as_result, finish, names_of, panels_for, rows_of, times_of
from ._density import regions
from ._limits import Limits, given_limits, limits_of_result


def snapshots(
    result: AbstractResult,
    at: Sequence[int],
    *,
    truth: Numbers | None = None,
    limits: Limits = None,
    masses: tuple[float, ...] = (0.5, 0.9, 0.99),
    names: Sequence[str] | None = None,
    columns: int = 4,
    axes: object = None,
) -> np.ndarray:
    """Densities of two coordinates at several times, in panels of equal limits.

    Args:
        result: from `run_filter`, `run_smoother` or `forecast`, of a state in the plane.
        at: indices of the times.
        truth: true states (T, 2).
        limits: a box or two pairs (lower, upper).
        masses: of the regions of highest density.
        names: of both coordinates.
        columns: panels in a row.
        axes: Matplotlib axes to draw on; by default a new figure.
    """
    count, dim = as_result("result", result).mean.shape
    if dim != 2:
        raise ValueError(f"snapshots draws states of two coordinates, got {dim}")
    if not len(at):
        raise ValueError("at must name at least one time, got none")
    rows = [checked_index("at", int(t), count) for t in at]
    times, labels = plain_times(times_of(result)), names_of(names, 2)
    states = None if truth is None else rows_of("truth", truth, (count, 2))
    window = given_limits(limits, 2)
    window = limits_of_result(result, rows) if window is None else window
    width = min(columns, len(rows))
    height = -(-len(rows) // width)
    panels = panels_for(axes, height, width, (2.6, 2.5))
    for place, (row, ax) in enumerate(zip(rows, panels, strict=False)):
        # Only the densities are computed here; outlines are those of `density`.
        _ = regions(result.density(row), window, masses, ax)
        if states is not None:
            ax.plot(*states[row], "o", color=TRUTH, ms=4)
        ax.set_title(f"t = {times[row]}", fontsize="medium")
        left, bottom = place % width == 0, place + width >= len(rows)
        finish(ax, labels[0] if bottom else None, labels[1] if left else None)
    for ax in panels[len(rows) :]:
        ax.set_visible(False)
    return panels
