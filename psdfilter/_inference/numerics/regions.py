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


def highest_regions(
    points: np.ndarray, values: np.ndarray, mass: float, period: float | None = None
) -> np.ndarray:
    """The shortest union of intervals that holds the mass, (r, 2), increasing.

    Args:
        points: equally spaced, (n,).
        values: of the density there, (n,); linear in between.
        mass: between 0 and 1, of what the points hold.
        period: of a coordinate that wraps; an interval across the ends of the points is one, whose
            upper end lies beyond them.
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
    regions = np.stack([x[starts], x[ends]], axis=1)
    return regions if period is None else _joined(regions, points, period)


def _joined(regions: np.ndarray, points: np.ndarray, period: float) -> np.ndarray:
    """Regions of points that go once round a circle: the first and the last may be one."""
    # Points may be in the middles of cells that fill a turn.
    span = points[-1] - points[0] + (points[1] - points[0])
    if len(regions) < 2 or span < (1 - _ROUNDING) * period:
        return regions
    if regions[0, 0] != points[0] or regions[-1, 1] != points[-1]:
        return regions
    across = [regions[-1, 0], regions[0, 1] + period]
    return np.concatenate([regions[1:-1], [across]])


def modes_within(
    points: np.ndarray, values: np.ndarray, regions: np.ndarray, period: float | None = None
) -> np.ndarray:
    """The highest point of each region (r, 2), on the parabola through log values, (r,)."""
    found = []
    for low, high in regions:
        own = (points >= low) & (points <= high)
        if period is not None:
            own |= points + period <= high
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
