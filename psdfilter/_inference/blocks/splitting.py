"""Splitting Gaussians into narrower ones along one direction, as many as each needs.

N(0, 1) is nearly sum_k w_k N(o_k, s^2) with offsets o_k on a lattice of n points and w_k Gaussian,
of exactly variance one: within 0.01 in total variation for the sizes below, as ripples that the
next transition smooths away.
"""

from functools import lru_cache
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from .mixture import Mixture

# n, s, spacing / s: the smallest s with a total variation error below 0.01.
_SIZES = (
    (1, 1.0, 0.0),
    (3, 0.759, 1.35),
    (5, 0.596, 1.55),
    (7, 0.453, 1.75),
    (9, 0.361, 1.80),
    (13, 0.256, 1.85),
    (17, 0.197, 1.90),
    (25, 0.134, 1.90),
    (33, 0.105, 1.90),
)


class SplitTable(NamedTuple):
    """The splits of a standard normal, smallest first; row i has counts[i] used columns."""

    counts: np.ndarray
    widths: np.ndarray
    offsets: np.ndarray
    log_weights: np.ndarray


@lru_cache(maxsize=1)
def split_table() -> SplitTable:
    """All sizes, padded to the largest."""
    most = _SIZES[-1][0]
    offsets = np.zeros((len(_SIZES), most))
    logs = np.full((len(_SIZES), most), -np.inf)
    logs[0, 0] = 0.0
    for row, (count, width, spacing) in enumerate(_SIZES[1:], start=1):
        points = (np.arange(count) - count // 2) * spacing * width
        offsets[row, :count] = points
        logs[row, :count] = _balanced(points, 1.0 - width**2)
    counts, widths, _ = zip(*_SIZES, strict=True)
    return SplitTable(np.asarray(counts), np.asarray(widths), offsets, logs)


def _balanced(points: np.ndarray, variance: float) -> np.ndarray:
    """Logs of Gaussian weights on points, of the given variance, by bisection of their width."""
    low, high, weights = 1e-3, 1e3, np.ones(len(points))
    for _ in range(200):
        middle = np.sqrt(low * high)
        weights = np.exp(-0.5 * np.square(points / middle))
        spread = weights @ np.square(points) / weights.sum()
        low, high = (middle, high) if spread < variance else (low, middle)
    return -0.5 * np.square(points / low) - np.log(weights.sum())


def affordable(wanted: Int[Array, "f r"], capacity: int) -> Int[Array, ""]:
    """Of ever smaller sets of splits, the first that takes half of the places, or the last."""
    extra = jnp.sum(jnp.asarray(split_table().counts)[wanted] - 1, axis=1)
    fits = extra <= capacity // 2
    return jnp.where(jnp.any(fits), jnp.argmax(fits), wanted.shape[0] - 1)


def granted(
    wanted: Int[Array, " r"], alive: Array, scores: Float[Array, " r"], capacity: int
) -> Int[Array, " r"]:
    """Rows of the table that fit: components of highest score first, until places run out."""
    counts = jnp.asarray(split_table().counts)
    extra = jnp.where(alive, counts[wanted] - 1, 0)
    order = jnp.argsort(-scores)
    used = jnp.cumsum(extra[order])
    free = capacity - jnp.sum(alive)
    fits = jnp.zeros(wanted.shape, dtype=bool).at[order].set(used <= free)
    return jnp.where(fits, wanted, 0)


def split(
    mixture: Mixture,
    alive: Array,
    rows: Int[Array, " r"],
    directions: Float[Array, "r d"],
    capacity: int,
) -> tuple[Mixture, Int[Array, " c"]]:
    """Component k as the split `rows[k]` along `directions[k]`, on `capacity` places.

    Components that are not alive lose their places. A direction v is a part of the covariance,
    S - v v' >= 0: children have means m + o_k v and covariance S - (1 - s^2) v v'. Also returns the
    parent of each place.
    """
    table = split_table()
    counts = jnp.where(alive, jnp.asarray(table.counts)[rows], 0)
    ends = jnp.cumsum(counts)
    places = jnp.arange(capacity)
    parent = jnp.minimum(jnp.searchsorted(ends, places, side="right"), mixture.size - 1)
    local = jnp.minimum(places - (ends - counts)[parent], table.offsets.shape[1] - 1)
    row = rows[parent]
    logs = jnp.asarray(table.log_weights)[row, local]
    logs = jnp.where(places < ends[-1], logs, -jnp.inf)
    offsets = jnp.where(jnp.isfinite(logs), jnp.asarray(table.offsets)[row, local], 0.0)
    v = directions[parent]
    lost = 1.0 - jnp.square(jnp.asarray(table.widths)[row])
    children = Mixture(
        mixture.log_weights[parent] + logs,
        mixture.means[parent] + offsets[:, None] * v,
        mixture.covariances[parent] - lost[:, None, None] * v[:, :, None] * v[:, None, :],
    )
    return children, parent
