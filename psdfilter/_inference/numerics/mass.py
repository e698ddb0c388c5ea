"""Masses of densities on a box, right to rounding: the normaliser of what is handed to users."""

from collections.abc import Callable
from math import prod

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import logsumexp
from jaxtyping import Array, Float

from ..._checks import is_traced
from ..._density.box import Box
from ..._density.psd import AbstractDensity, over_points
from ..._gaussian.quadrature import legendre_rule
from .grids import AxisNodes, flat_weights, grid_points

# Two rules that agree to this are right to rounding: the finer one has squared its error at least.
_AGREE = 1e-13
_GROWTH = 1.5
# Rounding of densities whose terms cancel, as far as they are taken at all: six digits.
_ROUNDING = 1e-6
# Points of a rule, beyond which the recursion's own normaliser stands.
_MAX_POINTS = 2**16

# Nodes and weights of each axis in unit coordinates, `factor` times as many as a filter has.
Rules = Callable[[float], tuple[AxisNodes, AxisNodes]]


def legendre_rules(counts: tuple[int, ...]) -> Rules:
    """Gauss-Legendre rules, for a filter with so many nodes on each axis."""

    def rules(factor: float) -> tuple[AxisNodes, AxisNodes]:
        pairs = [legendre_rule(int(-(-factor * n // 1))) for n in counts]
        return tuple(jnp.asarray(z) for z, _ in pairs), tuple(jnp.asarray(w) for _, w in pairs)

    return rules


def log_mass(f: AbstractDensity, box: Box, rules: Rules) -> Float[Array, ""]:
    """log int f over the box: a sum of positive numbers, on rules that grow until two agree.

    The first rule has half as many nodes again as the filter, which was right to its tolerance. A
    traced f is integrated once; where rules become too large, the last one stands, and if that is
    the first, zero does: the mass by the filter's own rule.
    """
    factor, here, before = _GROWTH, jnp.zeros(()), np.inf
    while True:
        nodes, weights = rules(factor)
        if prod(z.shape[0] for z in nodes) > _MAX_POINTS:
            return here
        there = _on_rule(f, box, nodes, weights)
        if is_traced((f, box)) or not bool(jnp.isfinite(there)):
            return there
        gap = abs(float(there - here)) if factor > _GROWTH else np.inf
        # Differences that no longer fall are those of rounding.
        if gap <= _AGREE or (gap <= _ROUNDING and gap >= 0.5 * before):
            return there
        factor, here, before = _GROWTH * factor, there, gap


@eqx.filter_jit
def _on_rule(
    f: AbstractDensity, box: Box, nodes: AxisNodes, weights: AxisNodes
) -> Float[Array, ""]:
    logs = over_points(f, grid_points(box, nodes), "log")
    return logsumexp(logs + jnp.log(flat_weights(weights))) + jnp.sum(jnp.log(box.half_width))
