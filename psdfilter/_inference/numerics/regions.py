"""Regions of highest density on a line: several intervals, where a law has several modes."""

import numpy as np

# Levels at which quantiles tell whether a law has a gap, and how much wider than the narrowest
# cells on both of its sides a cell of equal mass has to be for one. Unimodal laws have none.
GAP_LEVELS = tuple(np.linspace(0.025, 0.975, 39).round(3).tolist())
_GAP = 2.0
# Cells narrower than this share of the largest value are rounding.
_ROUNDING = 1e-9
# Points between two of a grid, for the height of a region.
_FINER = 8


def have_gaps(quantiles: np.ndarray) -> np.ndarray:
    """Whether the law of a coordinate has a gap between modes at some time, (d,).

    Args:
        quantiles: (k, t, d) at equally spaced levels, such as `GAP_LEVELS`.
    """
    widths = np.diff(quantiles, axis=0)
    left = np.minimum.accumulate(widths, axis=0)
    right = np.minimum.accumulate(widths[::-1], axis=0)[::-1]
    least = _ROUNDING * np.max(np.abs(quantiles), axis=0, initial=0.0)
    wide = widths > np.maximum(_GAP * np.maximum(left, right), least)
    return np.any(wide, axis=(0, 1))


def highest_regions(points: np.ndarray, values: np.ndarray, mass: float) -> np.ndarray:
    """The shortest union of intervals that holds the mass, (r, 2), increasing.

    Args:
        points: equally spaced, (n,).
        values: of the density there, (n,); linear in between.
        mass: between 0 and 1, of what the points hold.
    """
    x = np.linspace(points[0], points[-1], _FINER * (len(points) - 1) + 1)
    height = np.interp(x, points, values)
    ordered = np.sort(height)[::-1]
    within = np.cumsum(ordered)
    if not within[-1] > 0:
        return np.empty((0, 2))
    level = ordered[min(np.searchsorted(within, mass * within[-1]), len(ordered) - 1)]
    inside = np.concatenate([[False], height >= level, [False]])
    starts = np.flatnonzero(inside[1:] & ~inside[:-1])
    ends = np.flatnonzero(inside[:-1] & ~inside[1:]) - 1
    return np.stack([x[starts], x[ends]], axis=1)


def modes_within(points: np.ndarray, values: np.ndarray, regions: np.ndarray) -> np.ndarray:
    """The highest point of each region (r, 2), on the parabola through log values, (r,)."""
    found = []
    for low, high in regions:
        own = (points >= low) & (points <= high)
        if not own.any():
            found.append(0.5 * (low + high))
            continue
        k = int(np.argmax(np.where(own, values, -1.0)))
        found.append(points[k] + _offset(values, k) * (points[1] - points[0]))
    return np.asarray(found)


def _offset(values: np.ndarray, k: int) -> float:
    """From the highest of three points to the top of their parabola, in steps."""
    if not 0 < k < len(values) - 1 or values[k - 1] <= 0 or values[k + 1] <= 0:
        return 0.0
    before, here, after = np.log(values[k - 1 : k + 2])
    bend = before - 2 * here + after
    return float(np.clip(0.5 * (before - after) / bend, -0.5, 0.5)) if bend < 0 else 0.0
