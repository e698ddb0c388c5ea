"""The mass that a transition keeps on the box, as a function of where it starts.

    m(u) = int_box Q(u, x) dx = sum_k c_k P_k1(u_1) ... P_kd(u_d)

A learned Q^ is rescaled to it, u by u. Where the model has places that the data never tell apart,
errors of that mass are the ones that nothing forgets: the odds of the places would drift by them.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..._gaussian.quadrature import legendre_rule
from ..._gaussian.spectrum import legendre_transform
from ..._statespace.model import StateSpaceModel, log_transition_table

# Legendre polynomials in u, and nodes in x, for each axis: at first, and at most.
_DEGREES, _MOST_DEGREES = {1: 128, 2: 24}, {1: 4096, 2: 96}
_NODES, _MOST_NODES = {1: 400, 2: 60}, {1: 6400, 2: 240}
# Starting points of one table, and those where a series is tried, a multiple.
_ROWS = 64
_TRIED = {1: 512, 2: 256}
_HALVINGS = 6
# The roots of z^{d+1} = z + 1: multiples of their powers fill the box evenly.
_EVEN = {1: 1.618033988749895, 2: 1.324717957244746}


class MassSeries(NamedTuple):
    """c, one axis for each coordinate."""

    coefficients: Float[Array, "..."]

    def __call__(self, u: Float[Array, "n d"]) -> Float[Array, " n"]:
        """m at all points, in unit coordinates."""
        num = self.coefficients.shape[0]
        total = jnp.tensordot(_legendre(u[:, 0], num), self.coefficients, axes=1)
        for axis in range(1, u.shape[1]):
            total = jnp.einsum("nk,nk...->n...", _legendre(u[:, axis], num), total)
        return total


def _legendre(z: Float[Array, " n"], num: int) -> Float[Array, "n k"]:
    """P_k(z) for k < num: (k + 1) P_{k+1} = (2 k + 1) z P_k - k P_{k-1}."""

    def recur(carry: tuple[Array, Array], k: Array) -> tuple[tuple[Array, Array], Array]:
        before, here = carry
        return (here, ((2 * k + 1) * z * here - k * before) / (k + 1)), here

    return jax.lax.scan(recur, (jnp.zeros_like(z), jnp.ones_like(z)), jnp.arange(0.0, num))[1].T


def _mesh(axis: np.ndarray, dim: int) -> np.ndarray:
    return np.stack([m.ravel() for m in np.meshgrid(*([axis] * dim), indexing="ij")], axis=-1)


def series_of(mass: Callable[[np.ndarray], np.ndarray], dim: int, num: int = 0) -> MassSeries:
    """The series of a function of points (n, d) in unit coordinates, `num` degrees an axis."""
    z, transform = legendre_transform(num or _DEGREES[dim])
    table = mass(_mesh(z, dim)).reshape((len(z),) * dim)
    for axis in range(dim):
        table = np.moveaxis(np.tensordot(transform, table, axes=(1, axis)), 0, axis)
    return MassSeries(jnp.asarray(table))


def _tried(dim: int) -> np.ndarray:
    """Points on the unit box, half of them crowded at its walls as the nodes of a series are."""
    powers = _EVEN[dim] ** -np.arange(1.0, dim + 1.0)
    even = (0.5 + np.arange(_TRIED[dim])[:, None] * powers) % 1.0
    return np.where(np.arange(_TRIED[dim])[:, None] % 2, 2.0 * even - 1.0, np.cos(np.pi * even))


def _where_it_changes(
    mass: Callable[[np.ndarray], np.ndarray], points: np.ndarray, values: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """More points on a line, and m there: halfway between those that differ most, several times."""
    for _ in range(_HALVINGS):
        order = np.argsort(points[:, 0])
        points, values = points[order], values[order]
        apart = np.argsort(-np.abs(np.diff(values)))[:_ROWS]
        between = 0.5 * (points[apart] + points[apart + 1])
        points = np.concatenate([points, between])
        values = np.concatenate([values, mass(between)])
    return points, values


def _mass_by(ssm: StateSpaceModel, num: int) -> Callable[[np.ndarray], np.ndarray]:
    """m at points in unit coordinates, by `num` nodes an axis."""
    dim, box = ssm.dim, ssm.state_box
    center, half = np.asarray(box.center), np.asarray(box.half_width)
    x, w = (np.asarray(part) for part in legendre_rule(num))
    weights = np.prod(_mesh(w, dim), axis=1) * np.prod(half)
    new, axes = jnp.asarray(center + half * _mesh(x, dim)), tuple(range(dim))

    def part(old: Array) -> Array:
        return jnp.exp(log_transition_table(ssm, axes, old, new)) @ weights

    some = part if ssm.vectorized else jax.jit(part)

    def mass(z: np.ndarray) -> np.ndarray:
        old = jnp.asarray(center + half * z)
        return np.concatenate([some(old[i : i + _ROWS]) for i in range(0, len(old), _ROWS)])

    return mass


def kept_mass(ssm: StateSpaceModel, tol: float) -> tuple[MassSeries, float]:
    """m of a model by quadrature on the host, and its largest error at points between the nodes.

    Nodes are doubled until the masses do not change by more than `tol`, and degrees until the
    series is as close to them, or until there are too many.
    """
    dim, points = ssm.dim, _tried(ssm.dim)
    num, mass = _NODES[dim], _mass_by(ssm, _NODES[dim])
    wanted, changed = mass(points), np.inf
    while changed > tol and num < _MOST_NODES[dim]:
        num *= 2
        mass = _mass_by(ssm, num)
        before, wanted = wanted, mass(points)
        changed = np.abs(wanted - before).max()
    if dim == 1:
        points, wanted = _where_it_changes(mass, points, wanted)
    num, error, series = _DEGREES[dim], np.inf, None
    while series is None or (error > tol and num <= _MOST_DEGREES[dim]):
        series = series_of(mass, dim, num)
        error = np.abs(np.asarray(series(jnp.asarray(points))) - wanted).max()
        num *= 2
    # What the nodes still changed is their error before the last doubling, and much more than
    # after it: unless that was above `tol`, they have converged.
    return series, float(error + (changed if changed > tol else 0.0))
