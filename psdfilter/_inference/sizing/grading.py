"""Quadrature nodes that lie dense where integrands are narrow.

A Gauss-Legendre rule in s, carried to u by ds = rho(u) du, with the density rho of nodes made from
the narrowest width h(v) that is needed at v:

    rho(u)^4 = sum_v (g dv / h_v) (h_v^2 + g^2 (u - v)^2)^-2.

Widths grow at most by g per unit length, and rho is analytic at the scale of the widths themselves,
so that the rule keeps the convergence of Gauss-Legendre. Weights stay positive.
"""

from collections.abc import Callable
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from numpy.polynomial.legendre import legvander

from ..._checks import is_concrete
from ..._gaussian.quadrature import legendre_rule
from ..._gaussian.spectrum import legendre_transform

# Nodes that a bump of width 0.01 takes for six digits: 78 with 0.1, 50 with 0.2, 44 with 0.3 and
# with 0.5, 46 with 0.8. The smallest of the best keeps the map smoothest.
_GROWTH = 0.3
# Sixteen samples of an integrand in each cell, for its second differences; two panels to a cell.
_CENTERS, _SAMPLES = 256, 4001
_PANELS = 512


class Rule(NamedTuple):
    """Nodes on (-1, 1), ascending, and positive weights."""

    nodes: Float[np.ndarray, " n"]
    weights: Float[np.ndarray, " n"]


class Grading:
    """The map between s and u, and its rules."""

    def __init__(self, widths: Float[np.ndarray, " k"]):
        """Widths needed at the middles of equal cells of (-1, 1)."""
        num = len(widths)
        self._at = (2 * np.arange(num) + 1) / num - 1
        self._widths = widths
        self._share = _GROWTH * (2 / num) / widths
        nodes, weights = legendre_rule(8)
        self._edges = np.linspace(-1, 1, _PANELS + 1)
        middles = 0.5 * (self._edges[1:] + self._edges[:-1])
        inside = (middles[:, None] + nodes[None, :] / _PANELS).ravel()
        masses = self.density(inside).reshape(_PANELS, -1) @ weights / _PANELS
        self._below = np.concatenate([[0.0], np.cumsum(masses)])
        self._rules: dict[int, Rule] = {}

    def density(self, u: Float[np.ndarray, " n"]) -> Float[np.ndarray, " n"]:
        """rho(u)."""
        squares = np.square(self._widths) + np.square(_GROWTH * (u[:, None] - self._at[None, :]))
        return np.sqrt(np.sqrt(np.square(1.0 / squares) @ self._share))

    def rule(self, num: int) -> Rule:
        """`num` nodes."""
        if num not in self._rules:
            nodes, weights = legendre_rule(num)
            total = self._below[-1]
            u = self._inverse(0.5 * (nodes + 1) * total)
            self._rules[num] = Rule(u, 0.5 * weights * total / self.density(u))
        return self._rules[num]

    def _inverse(self, masses: Float[np.ndarray, " n"]) -> Float[np.ndarray, " n"]:
        """u with int_{-1}^u rho = mass: Newton steps inside the panel it lies in."""
        u = np.interp(masses, self._below, self._edges)
        panel = np.clip(np.searchsorted(self._below, masses) - 1, 0, _PANELS - 1)
        start = self._edges[panel]
        nodes, weights = legendre_rule(12)
        for _ in range(3):
            half = 0.5 * (u - start)
            inside = start[:, None] + half[:, None] * (1 + nodes[None, :])
            values = self.density(inside.ravel()).reshape(inside.shape)
            u = u - (self._below[panel] + half * (values @ weights) - masses) / self.density(u)
        return u


def grading_for(
    log_integrand: Callable[[np.ndarray], np.ndarray], tol: float, floor: float = 0.25
) -> Grading:
    """A grading from the curvature of integrands along lines, where they exceed `tol`.

    A Gaussian of width h has curvature 1 / h^2 of its logarithm. Nowhere are widths more than
    1 / floor times their mean: data may go where typical paths did not.
    """
    u = np.linspace(-1, 1, _SAMPLES)
    logs = log_integrand(u)
    logs = logs - np.max(logs, axis=1, keepdims=True)
    step = u[1] - u[0]
    with np.errstate(invalid="ignore"):
        curvature = -(logs[:, 2:] - 2 * logs[:, 1:-1] + logs[:, :-2]) / step**2
    counts = (logs[:, 1:-1] > np.log(tol)) & np.isfinite(curvature)
    rates = np.sqrt(np.max(np.where(counts, np.maximum(curvature, 0.0), 0.0), axis=0))
    cell = np.minimum(((u[1:-1] + 1) * 0.5 * _CENTERS).astype(int), _CENTERS - 1)
    needed = np.zeros(_CENTERS)
    np.maximum.at(needed, cell, rates)
    needed = np.maximum(needed, max(2.0, floor * float(np.mean(needed))))
    return Grading(1.0 / needed)


@lru_cache(maxsize=64)
def _change_of_rule(num: int, finer: int) -> tuple[np.ndarray, np.ndarray]:
    """From values at `num` Gauss-Legendre nodes to values and slopes at `finer` ones."""
    _, transform = legendre_transform(num)
    nodes, _ = legendre_rule(finer)
    values = legvander(nodes, num - 1)
    slopes = np.zeros_like(values)
    # P'_{k+1} = P'_{k-1} + (2k + 1) P_k
    for k in range(num - 1):
        slopes[:, k + 1] = (2 * k + 1) * values[:, k] + (slopes[:, k - 1] if k > 0 else 0.0)
    return values @ transform, slopes @ transform


def finer_rule(nodes, weights, finer: int):
    """The rule of the same grading with another number of nodes.

    u(s) is the polynomial through the nodes, and the weights are those of its slope: whatever the
    grading was, and for traced nodes as well. A polynomial through few nodes of a rough grading
    goes back and forth, and its weights are negative somewhere: cubics that rise with the nodes
    take its place.
    """
    num = nodes.shape[0]
    if finer == num:
        return nodes, weights
    values, slopes = _change_of_rule(num, finer)
    u, slope = values @ nodes, slopes @ nodes
    if is_concrete(slope) and not bool(np.all(np.asarray(slope) > 0)):
        u, slope = _rising(np.asarray(nodes), finer)
    return u, legendre_rule(finer)[1] * slope


def _rising(
    nodes: Float[np.ndarray, " n"], finer: int
) -> tuple[Float[np.ndarray, " k"], Float[np.ndarray, " k"]]:
    """u and its slope at `finer` nodes, by monotone cubics through the nodes and both ends."""
    from scipy.interpolate import PchipInterpolator  # rarely needed, and slow to import

    s = np.concatenate([[-1.0], legendre_rule(len(nodes))[0], [1.0]])
    through = PchipInterpolator(s, np.concatenate([[-1.0], nodes, [1.0]]))
    at = legendre_rule(finer)[0]
    return through(at), through.derivative()(at)
