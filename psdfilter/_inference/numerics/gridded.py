"""Densities of single coordinates on grids, at many times at once."""

import jax.numpy as jnp
import numpy as np

from ..ability import NotOffered
from ..laws import AbstractLaws

# Mass that may be out of sight on each side, and room beside what is in sight.
_HIDDEN, _ROOM = 1e-3, 0.06
# Of levels of distribution functions.
_ROUNDING = 1e-9
# A turn around its middle.
_WHOLE = np.array([-0.5, 0.5])


def widened(low: np.ndarray, high: np.ndarray) -> np.ndarray:
    """Limits (d, 2) with room on both sides."""
    room = _ROOM * np.where(high > low, high - low, np.maximum(1.0, np.abs(low)))
    return np.stack([low - room, high + room], axis=1)


def limits_of_laws(laws: AbstractLaws, at: slice | list[int] = slice(None)) -> np.ndarray:
    """What holds all but a thousandth of the mass on each side, at the given times, (d, 2)."""
    ends = np.asarray(laws.quantiles(jnp.asarray([_HIDDEN, 1 - _HIDDEN])))[:, at]
    limits = widened(ends[0].min(axis=0), ends[1].max(axis=0))
    for i, circle in laws.circles().items():
        limits[i] = _window_of_circle(ends[:, :, i], circle[1] - circle[0])
    return limits


def _window_of_circle(ends: np.ndarray, period: float) -> np.ndarray:
    """What holds intervals (2, t) that are known up to whole turns; at most one turn."""
    middles = 0.5 * (ends[0] + ends[1])
    directions = np.exp(2j * np.pi * middles / period)
    center = np.angle(np.mean(directions)) * period / (2 * np.pi)
    center = center + period * np.round((middles[0] - center) / period)
    near = ends - period * np.round((middles - center) / period)
    low, high = widened(near[0].min(keepdims=True), near[1].max(keepdims=True))[0]
    return np.array([low, high]) if high - low < period else center + period * _WHOLE


def density_on_line(
    laws: AbstractLaws, window: np.ndarray, num: int, rows: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """`num` points of a state on a line, and the densities at the given times there, (T, num)."""
    x = np.linspace(window[0], window[1], num)
    points = x[:, None]
    return x, np.stack([np.asarray(laws.density(int(t))(points)) for t in rows])


def masses_on_cells(laws: AbstractLaws, shape: tuple[int, ...], edges: np.ndarray) -> np.ndarray:
    """Mass between edges (d, k) of each coordinate, divided by their distance, (T, d, k-1)."""
    below = [
        np.asarray(laws.cdfs(jnp.broadcast_to(jnp.asarray(points), shape))) for points in edges.T
    ]
    masses = np.diff(np.stack(below, axis=-1), axis=-1)
    # On a circle the mass is counted from the point opposite of the mean, and starts anew there.
    circles = np.isin(np.arange(shape[1]), list(laws.circles()))
    masses = np.where(circles[:, None] & (masses < -_ROUNDING), masses + 1.0, masses)
    # Differences of equal numbers may be rounded to less than nothing.
    masses = np.maximum(masses, 0.0)
    return masses / np.diff(edges, axis=1)


def density_on_plane(
    laws: AbstractLaws, num: int, rows: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Points (2, num) of axes that hold nearly all mass, and joint densities there, (t, n, n)."""
    axes = np.stack([np.linspace(low, high, num) for low, high in limits_of_laws(laws)])
    points = np.stack(np.meshgrid(axes[0], axes[1], indexing="ij"), axis=-1)
    return axes, np.stack([np.asarray(laws.density(int(t))(points)) for t in rows])


def marginal_densities(
    laws: AbstractLaws, shape: tuple[int, ...], num: int, rows: np.ndarray | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Points (d, num) where nearly all mass is, and the density of each coordinate (t, d, num).

    On a line the densities themselves, if the laws have them; else the mass of each of `num`
    cells over its width.
    """
    chosen = np.arange(shape[0]) if rows is None else rows
    windows = limits_of_laws(laws)
    if shape[1] == 1:
        try:
            x, values = density_on_line(laws, windows[0], num, chosen)
        except NotOffered:  # as of laws of y on a grid, which know their distribution functions
            pass
        else:
            return x[None], values[:, None]
    edges = np.stack([np.linspace(low, high, num + 1) for low, high in windows])
    middles = 0.5 * (edges[:, 1:] + edges[:, :-1])
    return middles, masses_on_cells(laws, shape, edges)[chosen]
