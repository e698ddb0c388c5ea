"""Peaks of a likelihood that stand on a floor, between the points at which it was looked at.

A sensor that sometimes says nothing of the state (clutter, contamination) has likelihoods of a
narrow peak on a floor. Far from the peak there is no slope to follow: a dense look has to come
within about five widths of it, where it stands out from the floor by some percent.
"""

from collections.abc import Callable

import numpy as np
from jaxtyping import Float

# Second difference of log G on the points of a look that means structure finer than them: what
# nodes resolve bends by less than (385 / 4096)^2 there.
BUMP = 0.02
# Points, and steps, of the search for the top of a peak, each eight times as close as the last.
_POINTS, _STEPS = 33, 9
# Peaks that are followed, the highest first.
MOST = 64
# Widths to each side of a top that a panel of its own has: beyond, the floor is reached.
_WIDTHS = 8.0


def bends(logs: Float[np.ndarray, "k n"]) -> Float[np.ndarray, "k m"]:
    """|second differences| along the last axis, infinite beside a zero of the likelihood."""
    with np.errstate(invalid="ignore", over="ignore"):
        out = np.abs(logs[:, :-2] - 2 * logs[:, 1:-1] + logs[:, 2:])
    zero = np.isneginf(logs)
    none = zero[:, :-2] & zero[:, 1:-1] & zero[:, 2:]
    return np.where(none, 0.0, np.where(np.isnan(out), np.inf, out))


def spike_edges(
    likelihood: Callable[[np.ndarray], np.ndarray],
    points: Float[np.ndarray, "k n"],
    logs: Float[np.ndarray, "k n"],
) -> Float[np.ndarray, " e"]:
    """Ends of panels for the peaks that equispaced looks, one in each row, have come near to."""
    inner = logs[:, 1:-1]
    top = (inner >= logs[:, :-2]) & (inner >= logs[:, 2:]) & np.isfinite(inner)
    rows, columns = np.nonzero(top & (bends(logs) > BUMP))
    if len(rows) == 0:
        return np.zeros(0)
    order = np.argsort(-inner[rows, columns])[:MOST]
    rows, columns = rows[order], columns[order]
    centre, step = points[rows, columns + 1], points[rows, 1] - points[rows, 0]
    width = step.copy()
    for _ in range(_STEPS):
        grid = centre[:, None] + step[:, None] * np.linspace(-1.0, 1.0, _POINTS)[None, :]
        found = likelihood(grid.reshape(-1)).reshape(grid.shape)
        best = np.clip(np.argmax(found, axis=1), 1, _POINTS - 2)
        each = np.arange(len(centre))
        centre, cell = grid[each, best], step * 2 / (_POINTS - 1)
        with np.errstate(invalid="ignore"):
            bend = 2 * found[each, best] - found[each, best - 1] - found[each, best + 1]
        width = cell / np.sqrt(np.clip(np.nan_to_num(bend, nan=np.inf), 1e-6, 1e6))
        if np.all(bend < 1):
            break
        step = np.where(bend < 1, step, step / 8)
    return np.concatenate([centre - _WIDTHS * width, centre + _WIDTHS * width])


def cut_at(
    lower: Float[np.ndarray, " k"], upper: Float[np.ndarray, " k"], edges: Float[np.ndarray, " e"]
) -> tuple[Float[np.ndarray, " m"], Float[np.ndarray, " m"]]:
    """Panels in order, cut at those edges that lie inside of one."""
    if len(edges) == 0:
        return lower, upper
    place = np.clip(np.searchsorted(lower, edges, side="right") - 1, 0, len(lower) - 1)
    room = 1e-9 * (upper - lower)[place]
    inside = (edges > lower[place] + room) & (edges < upper[place] - room)
    low = np.sort(np.concatenate([lower, edges[inside]]))
    high = np.sort(np.concatenate([upper, edges[inside]]))
    keep = high > low
    return low[keep], high[keep]
