"""Quadrature rules with coarser rules inside: what the error estimates are made of."""

from functools import lru_cache
from typing import NamedTuple

import numpy as np

# Gauss' rule of 3 nodes, Kronrod's extension to 7, Patterson's to 15 (positive halves): degrees of
# exactness 5, 11 and 23, all weights positive.
_PATTERSON = (
    0.993831963212755022208512841308,
    0.960491268708020283423507092629,
    0.888459232872256998890420167258,
    0.774596669241483377035853079956,
    0.621102946737226402940687443816,
    0.434243749346802558002071502844,
    0.223386686428966881628203986843,
)

PANEL = 2 * len(_PATTERSON) + 1


class NestedRule(NamedTuple):
    """Nodes on (-1, 1), and the weights of three rules on them, zero where a node is not used."""

    nodes: np.ndarray  # (k,)
    weights: np.ndarray  # (3, k), finest first


@lru_cache(maxsize=1)
def patterson() -> NestedRule:
    """The nested rules of 15, 7 and 3 nodes."""
    nodes = np.array([-z for z in _PATTERSON] + [0.0] + list(_PATTERSON[::-1]))
    weights = np.zeros((3, PANEL))
    for level, used in enumerate((np.arange(15), np.arange(1, 15, 2), np.array([3, 7, 11]))):
        weights[level, used] = _interpolatory(nodes[used])
    return NestedRule(nodes, weights)


@lru_cache(maxsize=1)
def _barycentric() -> np.ndarray:
    nodes = patterson().nodes
    gaps = nodes[:, None] - nodes[None, :] + np.eye(PANEL)
    return 1.0 / np.prod(gaps, axis=1)


def lagrange(z: np.ndarray) -> np.ndarray:
    """Values of the 15 Lagrange polynomials of a panel at z in [-1, 1], (..., PANEL)."""
    gaps = z[..., None] - patterson().nodes
    hit = np.abs(gaps) < 1e-14
    terms = _barycentric() / np.where(hit, 1.0, gaps)
    out = terms / np.sum(terms, axis=-1, keepdims=True)
    return np.where(np.any(hit, axis=-1, keepdims=True), hit.astype(float), out)


# Between the outermost node of a panel and its end no rule sees anything: a jump there changes
# none of the three sums. The share of a half-width that is so.
MARGIN = 1.0 - _PATTERSON[0]


@lru_cache(maxsize=1)
def end_rows() -> np.ndarray:
    """From values at the nodes of a panel to the polynomial at its left and right end, (2, 15)."""
    return lagrange(np.array([-1.0, 1.0]))


def margin_errors(
    lower: np.ndarray, upper: np.ndarray, left: np.ndarray, right: np.ndarray
) -> np.ndarray:
    """What a jump in the margin of a panel may add to its integral, (k, ...).

    `left` and `right` are the values of each panel's polynomial at its ends: neighbours that do
    not agree on their common end have a jump in the margin of one of them, or at the end itself.
    """
    half = 0.5 * (upper - lower)
    gaps = np.abs(right[:-1] - left[1:])
    apart = lower[1:] - upper[:-1] > 1e-9 * (half[1:] + half[:-1])
    gaps[apart] = 0.0
    none = np.zeros((1, *left.shape[1:]))
    most = np.maximum(np.concatenate([none, gaps]), np.concatenate([gaps, none]))
    return MARGIN * half.reshape(-1, *[1] * (left.ndim - 1)) * most


def _interpolatory(nodes: np.ndarray) -> np.ndarray:
    """Weights that integrate all polynomials below the number of nodes over (-1, 1)."""
    num = len(nodes)
    moments = np.zeros(num)
    moments[0] = 2.0
    return np.linalg.solve(np.polynomial.legendre.legvander(nodes, num - 1).T, moments)


# Newton's backward differences that end a sum: Gregory's coefficients.
_GREGORY = (1 / 2, 1 / 12, 1 / 24, 19 / 720, 3 / 160, 863 / 60480)


class ScanRule(NamedTuple):
    """Nodes of the compiled scan on (0, 1), ends included, and the weights of three rules on them.

    All of them, every second and every fourth.
    """

    nodes: np.ndarray  # (n,)
    weights: np.ndarray  # (3, n)


@lru_cache(maxsize=16)
def scan_rule(num: int, bounded: bool) -> ScanRule:
    """Equispaced nodes for laws that fade out at both ends; Chebyshev's where a box may cut them.

    A cut costs equispaced nodes their accuracy, Chebyshev's only pi / 2 as many.
    """
    if bounded:
        angle = np.pi * np.arange(num) / (num - 1)
        weights = np.zeros((3, num))
        for level, stride in enumerate((1, 2, 4)):
            weights[level, ::stride] = _clenshaw_curtis((num - 1) // stride)
        return ScanRule(0.5 * (1 - np.cos(angle)), weights)
    return ScanRule(np.arange(num) / (num - 1), equispaced(num) / (num - 1))


def _clenshaw_curtis(num: int) -> np.ndarray:
    """Weights on (0, 1) for nodes (1 - cos(pi k / num)) / 2, k = 0 ... num, num even.

    w_k = c_k / num (1 - sum_{j=1}^{num/2} b_j / (4 j^2 - 1) cos(2 j pi k / num)), c = 1 at both
    ends and 2 inside, b = 1 for the last j and 2 before, halved for the interval of length one.
    """
    j, k = np.arange(1, num // 2 + 1), np.arange(num + 1)
    b = np.where(j == num // 2, 1.0, 2.0) / (4.0 * j**2 - 1)
    inside = 1 - np.cos(2 * np.pi * np.outer(k, j) / num) @ b
    ends = np.where((k == 0) | (k == num), 1.0, 2.0)
    return 0.5 * ends / num * inside


@lru_cache(maxsize=16)
def equispaced(num: int) -> np.ndarray:
    """Weights (3, num) for nodes 0, 1, ..., num - 1: all of them, every second, every fourth.

    Trapezoids with Gregory's end corrections: of spectral accuracy for what vanishes at both ends,
    of order 7 for what is smooth up to a cut.
    """
    if (num - 1) % 4 != 0 or num < 49:
        raise ValueError(f"num must be 4 k + 1 and at least 49, got {num}")
    weights = np.zeros((3, num))
    for level, stride in enumerate((1, 2, 4)):
        weights[level, ::stride] = stride * _gregory((num - 1) // stride + 1)
    return weights


def _gregory(num: int) -> np.ndarray:
    """sum_k f_k - sum_j G_j (nabla^j f_N + (-1)^j Delta^j f_0), unit spacing."""
    weights = np.ones(num)
    for order, coefficient in enumerate(_GREGORY):
        row = np.array([(-1.0) ** k * _binomial(order, k) for k in range(order + 1)])
        weights[: order + 1] -= coefficient * row
        weights[num - order - 1 :] -= coefficient * row[::-1]
    return weights


def _binomial(n: int, k: int) -> float:
    out = 1.0
    for i in range(k):
        out = out * (n - i) / (i + 1)
    return out


# Least share of |I_h - I_2h| that counts: at a kink two rules agree by chance for some x, and the
# ratio of two differences then says nothing. Measured on Laplace noise: without it one step was off
# by 40 times its estimate.
LEAST_SHARE = 0.05
# Share of the error of a step that everything left out of a law may have together. An observation
# of five deviations rests on what is 4e-6 of the highest value of a prediction.
DROPPED = 1e-7
# The same where the kinks are known: of an error that falls by factors of four a third is left.
KINKED = 1 / 3


def embedded_error(fine: np.ndarray, coarse: np.ndarray, least: float = LEAST_SHARE) -> np.ndarray:
    """d rho / (1 - rho), rho = d / d': the error of a rule from two differences of nested rules.

    d = |I_h - I_2h| is the error of the coarser rule, d' = |I_2h - I_4h| that of the coarsest;
    their ratio goes on. Never more than d, which it is for rules that do not converge, and not less
    than the share `least` of it.
    """
    d, other = np.abs(fine), np.abs(coarse)
    # rho >= 1/2: d rho / (1 - rho) >= d; two coarser rules that agree say nothing of a finer one.
    rho = np.where(d < other, d / np.maximum(other, 1e-290), 1.0)
    ratio = np.where(rho < 0.5, rho / (1 - np.minimum(rho, 0.5)), 1.0)
    return d * np.maximum(ratio, least)


def smooth_error(fine: np.ndarray, coarse: np.ndarray) -> float:
    """The same for a sum over lines of what is known to be smooth; d and d' are sums of theirs.

    The ratio counts squared, and at least d^2: `loop.errors` says why.
    """
    d, other = float(np.sum(np.abs(fine))), float(np.sum(np.abs(coarse)))
    rho = (d / other) ** 2 if d < other else 1.0
    ratio = rho / (1 - rho) if rho < 0.5 else 1.0
    return d * max(ratio, min(d, 1.0) ** 2)


def no_nan(logs: np.ndarray) -> np.ndarray:
    """-inf for what is no number, and where a density is infinite.

    Densities are infinite at single points, or where numbers underflow far from all mass.
    """
    return np.where(np.isnan(logs) | np.isposinf(logs), -np.inf, logs)
