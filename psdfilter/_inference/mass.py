"""Masses of densities on a box, right to rounding: the normaliser of what is handed to users."""

from math import prod

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import logsumexp
from jaxtyping import Array, Float

from .._checks import is_traced
from .._density.box import Box
from .._density.psd import AbstractDensity, over_points
from .._gaussian.quadrature import legendre_rule
from .sizing.grids import flat_weights, grid_points

# Two rules that agree to this are right to rounding: the finer one has squared its error at least.
_AGREE = 1e-13
_GROWTH = 1.4
# Points of a rule; beyond, the last one that was affordable is taken.
_MAX_POINTS = 2**16


def log_mass(f: AbstractDensity, box: Box, counts: tuple[int, ...]) -> Float[Array, ""]:
    """log int f over the box, from `counts` Gauss-Legendre nodes on each axis upwards.

    A sum of positive numbers, on rules that grow until two agree to 1e-13. `counts` are those of a
    filter, so that the first rule is right to its tolerance already. A traced f is integrated once.
    """
    sizes = np.asarray(counts, dtype=float)
    here = _on_rule(f, box, _grown(sizes))
    if is_traced((f, box)):
        return here
    while True:
        sizes = _GROWTH * sizes
        if prod(_grown(sizes)) > _MAX_POINTS:
            return here
        there = _on_rule(f, box, _grown(sizes))
        if abs(float(there - here)) <= _AGREE or not bool(jnp.isfinite(there)):
            return there
        here = there


def _grown(sizes: np.ndarray) -> tuple[int, ...]:
    return tuple(int(np.ceil(_GROWTH * n)) for n in sizes)


@eqx.filter_jit
def _on_rule(f: AbstractDensity, box: Box, counts: tuple[int, ...]) -> Float[Array, ""]:
    rules = [legendre_rule(n) for n in counts]
    points = grid_points(box, tuple(jnp.asarray(z) for z, _ in rules))
    logs = over_points(f, points, "log")
    weights = jnp.log(flat_weights(tuple(jnp.asarray(w) for _, w in rules)))
    return logsumexp(logs + weights) + jnp.sum(jnp.log(box.half_width))
