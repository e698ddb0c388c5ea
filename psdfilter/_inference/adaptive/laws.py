"""Questions to the law of the state at one time: density, cdf, quantiles, expectations, draws."""

from collections.abc import Callable

import numpy as np
from jaxtyping import Float
from scipy import special

from .panels import nodes_of
from .rules import PANEL, lagrange, patterson
from .state import Law, evaluate
from .tables import Values

# Equal pieces of a panel, or of a gap between equispaced nodes, in which a density is taken for its
# value in the middle: draws and quantiles are then interpolated in pieces of 1/16 of the spacing.
_PIECES = 16


def log_density(values: Values, law: Law, x: Float[np.ndarray, " m"]) -> Float[np.ndarray, " m"]:
    """log p(x_j), exact between nodes: prod_i G(x, y_i) sum_m v_m Q(u_m, x) / norm."""
    points = np.asarray(x, dtype=float).reshape(-1)
    if len(law.nodes) == 1:
        raise ValueError("a state that is known exactly has no density")
    return evaluate(values, law, points)[0]


def expectation(law: Law, fn: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
    """sum_m v_m fn(x_m), for a function of points (n, 1)."""
    return np.tensordot(law.masses, np.asarray(fn(law.nodes[:, None]), dtype=float), axes=1)


def _pieces(law: Law) -> tuple[np.ndarray, np.ndarray]:
    """Edges (k, 2) and masses (k,) of small pieces, panels as polynomials."""
    if law.has_panels:
        grid = np.linspace(-1.0, 1.0, PANEL * _PIECES + 1)
        middle = 0.5 * (grid[1:] + grid[:-1])
        half = 0.5 * (law.upper - law.lower)
        weights = half[:, None] * patterson().weights[0][None, :]
        density = law.masses.reshape(-1, PANEL) / weights
        mass = np.maximum(density @ lagrange(middle).T, 0.0)
        own = law.masses.reshape(-1, PANEL).sum(1)
        total = np.maximum(mass.sum(1), 1e-300)
        mass = mass * (own / total)[:, None]
        edges = 0.5 * (law.lower + law.upper)[:, None] + half[:, None] * grid[None, :]
        return np.stack([edges[:, :-1].reshape(-1), edges[:, 1:].reshape(-1)], 1), mass.reshape(-1)
    num = len(law.nodes)
    gaps = np.diff(law.nodes)
    if np.ptp(gaps) < 1e-6 * gaps[0]:
        return _equal_pieces(law.nodes, law.masses)
    # Chebyshev's nodes: the logarithm of the density is linear between them.
    places = np.linspace(0, num - 1, (num - 1) * _PIECES + 1)
    x = np.interp(places, np.arange(num), law.nodes)
    middle = 0.5 * (x[1:] + x[:-1])
    spread = law.log_masses - np.log(np.gradient(law.nodes))
    floor = np.max(spread) - 700.0
    logs = np.interp(middle, law.nodes, np.maximum(spread, floor))
    mass = np.exp(logs - np.max(logs)) * np.diff(x)
    return np.stack([x[:-1], x[1:]], 1), mass / np.sum(mass)


def _equal_pieces(x: np.ndarray, masses: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Those of equispaced nodes, between which a density is what its sinc series says."""
    h, edge = x[1] - x[0], 2
    places = np.linspace(-edge, len(x) - 1 + edge, (len(x) - 1 + 2 * edge) * _PIECES + 1)
    # int_{-inf}^t sin(pi s) / (pi s) ds, at all differences of places and nodes.
    steps = np.arange(-len(places) + 1, len(places)) / _PIECES
    below = 0.5 + special.sici(np.pi * steps)[0] / np.pi
    index = np.arange(len(places))[:, None] - _PIECES * (np.arange(len(x)) + edge)[None, :]
    sums = below[index + len(places) - 1] @ masses
    mass = np.maximum(np.diff(sums), 0.0)
    edges = x[0] + h * places
    return np.stack([edges[:-1], edges[1:]], 1), mass / np.sum(mass)


def cdf(law: Law, x: Float[np.ndarray, " m"]) -> Float[np.ndarray, " m"]:
    """P(state <= x_j)."""
    edges, mass = _pieces(law)
    before = np.concatenate([[0.0], np.cumsum(mass)])
    k = np.clip(np.searchsorted(edges[:, 0], x, side="right") - 1, 0, len(mass) - 1)
    part = np.clip((x - edges[k, 0]) / (edges[k, 1] - edges[k, 0]), 0.0, 1.0)
    return np.where(x < edges[0, 0], 0.0, before[k] + part * mass[k]) / before[-1]


def quantile(law: Law, level: Float[np.ndarray, " m"]) -> Float[np.ndarray, " m"]:
    """The x_j with P(state <= x_j) = level_j."""
    edges, mass = _pieces(law)
    before = np.concatenate([[0.0], np.cumsum(mass)]) / np.sum(mass)
    k = np.clip(np.searchsorted(before, level, side="right") - 1, 0, len(mass) - 1)
    share = np.maximum(before[k + 1] - before[k], 1e-300)
    part = np.clip((level - before[k]) / share, 0.0, 1.0)
    return edges[k, 0] + part * (edges[k, 1] - edges[k, 0])


def draw(law: Law, rng: np.random.Generator, num: int) -> Float[np.ndarray, " num"]:
    """Independent draws, by the inverse cdf."""
    if len(law.nodes) == 1:
        return np.full(num, law.nodes[0])
    return quantile(law, rng.uniform(size=num))


def panel_points(law: Law) -> np.ndarray:
    """Nodes of a law, as a column; for tests of consistency."""
    return nodes_of(law.lower, law.upper).reshape(-1) if law.has_panels else law.nodes
