"""Splitting Gaussians along a direction, with all moments up to the fifth preserved.

N(0, 1) is replaced by 1/6 N(-a, s^2) + 2/3 N(0, s^2) + 1/6 N(a, s^2) with a^2 = 3 (1 - s^2): a
Gauss-Hermite rule for the part of the variance that is taken out. The spread s is the smallest for
which the total variation error stays below what is allowed. (The three Gaussians closest to N(0, 1)
have half that error but lighter tails, and many splits add up: filters that use them were less
accurate where the state goes into a tail.)
"""

from functools import lru_cache
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from ..._gaussian.conditioning import symmetric
from .mixture import Mixture

SIDE = 1 / 6  # weight of each outer one


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
