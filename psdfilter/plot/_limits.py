"""Where to look: limits, grids and values of densities."""

from collections.abc import Callable

import numpy as np

from .._checks import Numbers
from .._density.box import Box
from .._density.moments import moments
from .._density.psd import AbstractDensity
from .._inference.numerics.gridded import limits_of_laws, masses_on_cells
from .._inference.result import AbstractResult

# Half-width of a picture in standard deviations, where nothing but moments is known.
_DEVIATIONS = 4.0

Limits = Box | Numbers | None


def given_limits(limits: Limits, dim: int) -> np.ndarray | None:
    """Limits (d, 2) of a box or of pairs, checked."""
    if limits is None:
        return None
    if isinstance(limits, Box):
        return np.stack([np.asarray(limits.lower), np.asarray(limits.upper)], axis=1)
    pairs = np.asarray(limits, dtype=float)
    pairs = pairs[None] if pairs.shape == (2,) and dim == 1 else pairs
    if pairs.shape != (dim, 2) or not np.all(pairs[:, 0] < pairs[:, 1]):
        raise ValueError(
            f"limits must be a psdfilter.Box or {dim} pairs (lower, upper), got {limits!r}"
        )
    return pairs


def limits_of_result(result: AbstractResult, at: slice | list[int] = slice(None)) -> np.ndarray:
    """What holds all but a thousandth of the mass on each side, at the given times, (d, 2)."""
    return limits_of_laws(result.laws, at)


def limits_of_density(density: AbstractDensity) -> np.ndarray:
    """Four standard deviations on each side of the mean, (d, 2)."""
    try:
        mean, covariance = (np.asarray(m) for m in moments(density))  # pyright: ignore[reportArgumentType]
    except (TypeError, ValueError) as error:
        raise ValueError(
            "limits must be given: the moments of this density are not known in closed form"
        ) from error
    reach = _DEVIATIONS * np.sqrt(np.diagonal(covariance))
    return np.stack([mean - reach, mean + reach], axis=1)


def values_on_line(
    density: Callable[[np.ndarray], object], limits: np.ndarray, num: int
) -> tuple[np.ndarray, np.ndarray]:
    """num points between the limits of one coordinate, and the density there."""
    x = np.linspace(limits[0, 0], limits[0, 1], num)
    return x, np.asarray(density(x[:, None]))


def values_on_plane(
    density: Callable[[np.ndarray], object], limits: np.ndarray, num: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """num x num points between the limits of two coordinates, and the density [i, j] there."""
    x, y = (np.linspace(pair[0], pair[1], num) for pair in limits)
    points = np.stack(np.meshgrid(x, y, indexing="ij"), axis=-1)
    return x, y, np.asarray(density(points))


def masses_over_time(result: AbstractResult, coordinate: int, edges: np.ndarray) -> np.ndarray:
    """Mass between neighbouring edges of one coordinate, divided by their distance, (T, k)."""
    shape = result.mean.shape
    every = np.broadcast_to(edges, (shape[1], len(edges)))
    return masses_on_cells(result.laws, shape, every)[:, coordinate]


def levels_of(values: np.ndarray, masses: tuple[float, ...]) -> np.ndarray:
    """Heights above which the given shares of the mass lie, increasing, of values on a grid."""
    ordered = np.sort(values.ravel())[::-1]
    within = np.cumsum(ordered)
    if not within[-1] > 0:
        raise ValueError("limits must hold some of the mass: the density is zero between them")
    places = np.searchsorted(within, np.asarray(sorted(masses, reverse=True)) * within[-1])
    return ordered[np.minimum(places, len(ordered) - 1)]
