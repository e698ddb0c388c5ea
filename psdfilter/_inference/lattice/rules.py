"""Rules on a window: even ones for lines and circles, Clenshaw and Curtis's between walls.

Midpoints of equal cells with equal weights converge spectrally where the density vanishes at both
ends of the window, and where the window is a whole circle. Where it ends at a wall, cosines do.
Both are nested: every second and every fourth node, with other weights, are rules of their own, and
differences between them say how good the whole rule is.
"""

from functools import lru_cache
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

# The share of a difference between rules that their ratio may leave of it.
_LEAST = 1e-3


class Rule(NamedTuple):
    """A rule on (0, 1), and two coarser ones on some of its nodes."""

    nodes: np.ndarray  # (n,), ascending
    weights: np.ndarray  # (n,), positive, of sum one
    half: np.ndarray  # weights of the rule on every second node, over `weights`
    quarter: np.ndarray  # on every fourth
    cumulative: np.ndarray  # (n, n): integrals up to each node are cumulative @ masses


@lru_cache(maxsize=32)
def even_rule(num: int) -> Rule:
    """Midpoints of `num` equal cells, a multiple of four."""
    index = np.arange(num)
    nodes = (index + 0.5) / num
    half = np.where(index % 2 == 0, 2.0, 0.0)
    quarter = np.where(index % 4 == 0, 4.0, 0.0)
    return Rule(nodes, np.full(num, 1.0 / num), half, quarter, _even_cumulative(nodes))


def _even_cumulative(nodes: np.ndarray) -> np.ndarray:
    """Integrals of the trigonometric interpolant of masses, from 0 to each node.

    f(x) = sum_k c_k exp(2 pi i k x), c_k = sum_j m_j exp(-2 pi i k x_j) for |k| < n / 2.
    """
    num = len(nodes)
    k = np.arange(1, num // 2)
    phase = 2j * np.pi * k
    up_to = (np.exp(np.outer(nodes, phase)) - 1) / phase[None, :]
    back = np.exp(-np.outer(phase, nodes))
    return nodes[:, None] + 2 * np.real(up_to @ back)


@lru_cache(maxsize=32)
def curtis_rule(num: int) -> Rule:
    """Clenshaw and Curtis's rule of `num` + 1 nodes, `num` a multiple of four."""
    index = np.arange(num + 1)
    nodes = 0.5 - 0.5 * np.cos(np.pi * index / num)
    weights = _curtis_weights(num)
    half, quarter = np.zeros(num + 1), np.zeros(num + 1)
    half[::2], quarter[::4] = _curtis_weights(num // 2), _curtis_weights(num // 4)
    cumulative = _curtis_cumulative(nodes) / weights[None, :]
    return Rule(nodes, weights, half / weights, quarter / weights, cumulative)


def _curtis_weights(num: int) -> np.ndarray:
    """Integrals over (0, 1) of the Lagrange polynomials of the cosine nodes."""
    angle = np.pi * np.arange(num + 1) / num
    k = np.arange(1, num // 2 + 1)
    factor = np.where(2 * k == num, 1.0, 2.0) / (4.0 * k**2 - 1)
    inner = 1 - np.cos(2 * np.outer(angle, k)) @ factor
    ends = np.where((np.arange(num + 1) % num) == 0, 1.0, 2.0)
    return 0.5 * ends * inner / num


def _curtis_cumulative(nodes: np.ndarray) -> np.ndarray:
    """Integrals of Lagrange polynomials from 0 to each node, through Chebyshev coefficients."""
    num = len(nodes) - 1
    z = 2 * nodes - 1
    values = np.polynomial.chebyshev.chebvander(z, num)
    inverse = np.linalg.inv(values)
    integrals = np.empty((num + 1, num + 1))
    for k in range(num + 1):
        unit = np.zeros(num + 1)
        unit[k] = 1.0
        series = np.polynomial.chebyshev.chebint(unit, lbnd=-1.0)
        integrals[:, k] = 0.5 * np.polynomial.chebyshev.chebval(z, series)
    return integrals @ inverse


def embedded_error(fine: Float[Array, "*n"], coarse: Float[Array, "*n"]) -> Float[Array, "*n"]:
    """d rho / (1 - rho), rho = d / d': the error of a rule from two differences of nested rules.

    d = |I_h - I_2h| is the error of the rule of every second node, d' = |I_2h - I_4h| that of every
    fourth; their ratio goes on. Never more than d, which it is for rules that do not converge.
    """
    d, other = jnp.abs(fine), jnp.abs(coarse)
    # Differences that do not fall say nothing of a limit, even if both are none but one.
    rho = jnp.where(d < other, d / jnp.where(d < other, other, 1.0), jnp.where(d > 0, 1.0, 0.0))
    ratio = jnp.where(rho < 0.5, rho / (1 - jnp.minimum(rho, 0.5)), 1.0)
    return d * jnp.maximum(ratio, _LEAST)
