"""Splitting Gaussians into narrower ones along one direction; mean and covariance stay.

Two laws for N(0, 1). In three, with all moments up to the fifth preserved,

    1/6 N(-a, s^2) + 2/3 N(0, s^2) + 1/6 N(a, s^2),   a^2 = 3 (1 - s^2):

a Gauss-Hermite rule for the part of the variance that is taken out, with the smallest s whose total
variation error is allowed. (The three Gaussians closest to N(0, 1) have half that error but lighter
tails, and many splits add up: filters that use them were less accurate where the state goes into a
tail.) It serves where components are split again and again.

In as many as a component needs at once, sum_k w_k N(o_k, s^2) with offsets on a lattice of n points
and w_k Gaussian, of exactly variance one: within 0.01 in total variation for the sizes below, as
ripples that the next transition smooths away.
"""

from functools import lru_cache
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from ..._gaussian.conditioning import symmetric
from ..gaussian.mixture import Mixture

SIDE = 1 / 6  # weight of each outer one
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


class UnitSplit(NamedTuple):
    """N(0, 1) as three Gaussians: the places of the outer ones, and their common spread."""

    offset: float
    deviation: float
    error: float  # total variation, int |p - q|


def _normal(x: np.ndarray | float, variance: float) -> np.ndarray:
    return np.exp(-0.5 * np.square(x) / variance) / np.sqrt(2 * np.pi * variance)


def _offset(deviation: float) -> float:
    return float(np.sqrt(3 * (1 - deviation**2)))


def _variation(deviation: float) -> float:
    """int |p - q| of the split."""
    offset = _offset(deviation)
    x = np.linspace(-9.0, 9.0, 7201)
    spread = deviation**2
    parts = SIDE * (_normal(x - offset, spread) + _normal(x + offset, spread))
    parts = parts + (1 - 2 * SIDE) * _normal(x, spread)
    return float(np.sum(np.abs(parts - _normal(x, 1.0))) * (x[1] - x[0]))


@lru_cache(maxsize=32)
def unit_split(allowed: float) -> UnitSplit:
    """The split of smallest spread whose total variation error is at most `allowed`."""
    low, high = 0.3, 0.999
    for _ in range(24):
        middle = 0.5 * (low + high)
        low, high = (low, middle) if _variation(middle) <= allowed else (middle, high)
    return UnitSplit(_offset(high), high, _variation(high))


def split_places(
    mixture: Mixture,
    roots: Float[Array, "r d d"],
    directions: Float[Array, "r d"],
    chosen: Int[Array, " s"],
    used: Bool[Array, " s"],
    free: Int[Array, "2 s"],
    law: UnitSplit,
) -> Mixture:
    """Replace the components in `chosen` by three each, the outer ones in the places `free`.

    Along v in coordinates x = m + L z, that is along L v in the state: the covariance of each part
    is S - (1 - s^2) (L v)(L v)'.

    Args:
        mixture: r places.
        roots: L with L L' = S.
        directions: unit vectors v.
        chosen: places of components to be split.
        used: which of these entries count.
        free: places that may be overwritten.
        law: the split of N(0, 1).
    """
    far = jnp.where(used, chosen, mixture.size)  # scatters to that place are dropped
    along = jnp.einsum("sij,sj->si", roots[chosen], directions[chosen])
    taken = (1 - law.deviation**2) * jnp.einsum("si,sj->sij", along, along)
    covariances = jax.vmap(symmetric)(mixture.covariances[chosen] - taken)
    logs = mixture.log_weights[chosen]
    means = mixture.means[chosen]
    log_weights = mixture.log_weights.at[far].set(logs + np.log1p(-2 * SIDE), mode="drop")
    all_covariances = mixture.covariances.at[far].set(covariances, mode="drop")
    all_means = mixture.means
    for sign, places in ((1.0, free[0]), (-1.0, free[1])):
        place = jnp.where(used, places, mixture.size)
        log_weights = log_weights.at[place].set(logs + np.log(SIDE), mode="drop")
        all_means = all_means.at[place].set(means + sign * law.offset * along, mode="drop")
        all_covariances = all_covariances.at[place].set(covariances, mode="drop")
    return Mixture(log_weights, all_means, all_covariances)


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
