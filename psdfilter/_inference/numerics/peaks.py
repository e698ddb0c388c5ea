"""All local maxima of a law in one or two coordinates, from its values alone."""

import itertools
from collections.abc import Callable

import numpy as np
from jaxtyping import Float

from ..._density.modes import peaks_of
from ..._density.psd import AbstractDensity

# Points on an axis at levels of the distribution function, which are close where mass is, and at
# equal distances, which see what little mass lies elsewhere.
_BY_LEVEL, _EQUAL = {1: 513, 2: 97}, {1: 512, 2: 64}
# A peak is looked at on ever smaller grids of nine points an axis, each a quarter of the last.
_ZOOM, _NUM_ZOOMS = np.linspace(-1.0, 1.0, 9), 12


def levels_of_axis(dim: int) -> Float[np.ndarray, " k"]:
    """Levels whose quantiles a search wants."""
    return (np.arange(_BY_LEVEL[dim]) + 0.5) / _BY_LEVEL[dim]


def peaks(
    density: AbstractDensity, quantiles: Float[np.ndarray, "k d"], least: float
) -> Float[np.ndarray, "n d"]:
    """Local maxima between the outermost quantiles, the highest first.

    Args:
        density: of one or two coordinates.
        quantiles: of every coordinate, at `levels_of_axis`.
        least: maxima below this share of the highest are left out.
    """
    dim = density.dim

    def log_values(points: np.ndarray) -> np.ndarray:
        return np.asarray(density.log_density(points))

    axes = []
    for column in quantiles.T:
        even = np.linspace(column[0], column[-1], _EQUAL[dim])
        axes.append(np.unique(np.concatenate([column, even])))
    mesh = np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1)
    heights = log_values(mesh)
    found = np.argwhere(peaks_of(heights))
    starts = np.array([mesh[tuple(place)] for place in found])
    reach = np.array([[_gap(axis, i) for axis, i in zip(axes, p, strict=True)] for p in found])
    tops = np.array([heights[tuple(place)] for place in found])
    kept = tops >= tops.max() + np.log(max(least, 1e-300))
    places = [_climb(log_values, x, r) for x, r in zip(starts[kept], reach[kept], strict=True)]
    order = np.argsort([-height for _, height in places])
    chosen: list[np.ndarray] = []
    for k in order:
        point, width = places[k][0], reach[kept][k]
        # Two starts on one flat top climb to the same place.
        if all(np.max(np.abs(point - other) / width) > 0.5 for other in chosen):
            chosen.append(point)
    return np.array(chosen)


def _gap(axis: np.ndarray, i: int) -> float:
    """Distance to the further of both neighbours."""
    return float(np.max(np.diff(axis[max(i - 1, 0) : i + 2])))


def _climb(
    log_values: Callable[[np.ndarray], np.ndarray], point: np.ndarray, reach: np.ndarray
) -> tuple[np.ndarray, float]:
    offsets = np.array(list(itertools.product(_ZOOM, repeat=len(point))))
    height = -np.inf
    for _ in range(_NUM_ZOOMS):
        points = point + reach * offsets
        values = log_values(points)
        best = int(np.argmax(values))
        point, height, reach = points[best], float(values[best]), reach / 4
    return point, height
