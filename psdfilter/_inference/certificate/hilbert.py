"""Contraction of positive kernels, read off matrices: Hilbert's metric, Birkhoff, Dobrushin.

A matrix K[u, x] > 0 sends a measure mu on rows to mu K on columns. Everything here is invariant to
positive factors of columns, so that densities at nodes and masses of cells give the same numbers;
only `dobrushin_coefficient` needs the weights of the columns. Distances between probabilities are
int |p - q|, without a factor 1/2.
"""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float
from scipy.spatial.distance import pdist

Matrix = Float[np.ndarray, "n k"]


def hilbert_distance(mu: Float[np.ndarray, " k"], nu: Float[np.ndarray, " k"]) -> float:
    """h = max log(mu / nu) - min log(mu / nu); infinite if only one of them vanishes somewhere."""
    mu, nu = np.asarray(mu, dtype=float), np.asarray(nu, dtype=float)
    if mu.shape != nu.shape or mu.ndim != 1:
        raise ValueError(f"mu and nu must be vectors of one length, got {mu.shape} and {nu.shape}")
    if np.any(mu < 0) or np.any(nu < 0):
        raise ValueError("mu and nu must not be negative")
    return float(_oscillations(_logs(mu)[None], _logs(nu)[None])[0])


def projective_diameter(K: Matrix) -> float:
    """Delta(K) = sup h(mu K, nu K), over all mu and nu: the largest h between two rows."""
    return log_projective_diameter([_logs(_checked(K))])


def log_projective_diameter(logs: Sequence[Matrix]) -> float:
    """Delta of prod_g K_g(u, x_g) from log K_g: the oscillation over x is a sum over factors."""
    num, largest = logs[0].shape[0], 0.0
    for u in range(num - 1):
        total = np.zeros(num - u - 1)
        for table in logs:
            total += _oscillations(table[u + 1 :], table[u : u + 1])
        largest = max(largest, float(np.max(total)))
    return largest


def birkhoff_coefficient(K: Matrix) -> float:
    """tau(K) = tanh(Delta(K) / 4): h(mu K, nu K) <= tau h(mu, nu)."""
    return birkhoff_of(projective_diameter(K))


def birkhoff_of(diameter: float) -> float:
    """tanh(Delta / 4)."""
    return float(np.tanh(0.25 * diameter))


def mixing_constant(K: Matrix) -> float:
    """The best sigma in sigma xi(x) <= K(u, x) <= xi(x) / sigma: sigma^2 = min_x min_u K / max_u K.

    Columns that are zero throughout carry no mass and do not count.
    """
    K = _checked(K)
    high = np.max(K, axis=0)
    if not np.any(high > 0):
        raise ValueError("K must not be zero everywhere")
    low = np.min(K, axis=0)[high > 0]
    return float(np.sqrt(np.min(low / high[high > 0])))


def mixing_birkhoff(sigma: Float[np.ndarray, "..."]) -> Float[np.ndarray, "..."]:
    """tau_sigma = (1 - sigma^2) / (1 + sigma^2), the largest tau of a kernel mixing by sigma."""
    square = np.square(np.asarray(sigma, dtype=float))
    return (1.0 - square) / (1.0 + square)


def dobrushin_coefficient(K: Matrix, weights: Float[np.ndarray, " k"] | None = None) -> float:
    """max over u, u' of half the distance between two rows, scaled to mass one.

    ||mu K - nu K|| <= coefficient ||mu - nu|| for probabilities, if the rows of K are such.

    Args:
        K: rows are densities at nodes, or masses.
        weights: of the nodes; by default 1.
    """
    masses = _checked(K) if weights is None else _checked(K) * np.asarray(weights)[None, :]
    totals = masses.sum(axis=1, keepdims=True)
    if not np.all(totals > 0):
        raise ValueError("every row of K must have positive mass")
    if masses.shape[0] == 1:
        return 0.0
    return min(1.0, 0.5 * float(np.max(pdist(masses / totals, "cityblock"))))


def tv_of_hilbert(h: Float[np.ndarray, "..."]) -> Float[np.ndarray, "..."]:
    """The largest distance of two probabilities that are h apart: 2 tanh(h / 4)."""
    return 2.0 * np.tanh(0.25 * np.asarray(h, dtype=float))


def hilbert_after_mixing(
    distance: Float[np.ndarray, "..."], sigma: Float[np.ndarray, "..."]
) -> Float[np.ndarray, "..."]:
    """h(mu K, nu K) <= 2 log(1 + (sigma^-2 - 1) ||mu - nu|| / 2) for probabilities mu, nu."""
    sigma = np.asarray(sigma, dtype=float)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        grown = 0.5 * (1.0 / np.square(sigma) - 1.0) * np.asarray(distance, dtype=float)
        return 2.0 * np.log1p(np.where(np.asarray(distance) == 0.0, 0.0, grown))


def _checked(K: Matrix) -> Matrix:
    K = np.asarray(K, dtype=float)
    if K.ndim != 2 or K.size == 0:
        raise ValueError(f"K must be a matrix, got shape {K.shape}")
    if not np.all(K >= 0):
        raise ValueError("K must hold non-negative numbers")
    return K


def _logs(values: np.ndarray) -> np.ndarray:
    with np.errstate(divide="ignore"):
        return np.log(values)


def _oscillations(a: Matrix, b: Matrix) -> Float[np.ndarray, " n"]:
    """max_x (a - b) - min_x (a - b) for each row; a place where both are -inf does not count."""
    with np.errstate(invalid="ignore"):
        gap = a - b
    high, low = np.fmax.reduce(gap, axis=1), np.fmin.reduce(gap, axis=1)
    # Nothing in common: infinitely far apart. All places ignored: the zero measure, at distance 0.
    with np.errstate(invalid="ignore"):
        width = high - low
    return np.where(np.isnan(gap).all(axis=1), 0.0, np.where(np.isnan(width), np.inf, width))
