"""Integrals of all pair products k_i(x) k_j(x): the Gram matrices behind every closed form.

    G_ij = int k_i k_j = k_{eta/2}(X_i, X_j) prod_l I0(m_ijl),   m_ij = (X_i + X_j) / 2.

On a tensor grid G is the Kronecker product of one matrix per axis and is never formed. Scattered
anchors have the Schur product of one matrix per axis. Both are kept as `PairIntegrals`, with one
exponent pulled out so that nothing underflows far from the anchors.
"""

from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Float

from .._gaussian.integrals import interval_moments, scaled_interval_mass
from .anchors import TensorGrid
from .box import Box


class PairIntegrals(NamedTuple):
    """exp(log_scale) cross_l mass_l: per axis, the kernel of the pair and its integrals.

    `masses[l]`, `firsts[l]`, `seconds[l]` integrate 1, x_l - c and (x_l - c)^2 along axis l, with a
    point c = `points[l]` of every pair's own; `first_about` and `second_about` move it. On a grid
    the matrices are (m_l, m_l) and `crosses` has one for each axis; scattered, all are (m, m) and
    `crosses` is the single product of all axes.
    """

    crosses: tuple[Float[Array, "_ _"], ...]
    masses: tuple[Float[Array, "_ _"], ...]
    points: tuple[Float[Array, "_ _"], ...]
    firsts: tuple[Float[Array, "_ _"], ...]
    seconds: tuple[Float[Array, "_ _"], ...]
    log_scale: Float[Array, ""]

    def first_about(self, axis: int, at: Float[Array, ""]) -> Float[Array, "_ _"]:
        """The integrals of x_l - at."""
        return self.firsts[axis] + (self.points[axis] - at) * self.masses[axis]

    def second_about(self, axis: int, at: Float[Array, ""]) -> Float[Array, "_ _"]:
        """The integrals of (x_l - at)^2."""
        shift = self.points[axis] - at
        return self.seconds[axis] + shift * (2 * self.firsts[axis] + shift * self.masses[axis])


def _middles(points: Float[Array, " m"]) -> Float[Array, "m m"]:
    return 0.5 * (points[:, None] + points[None, :])


def _exponents(points: Float[Array, " m"], eta: Float[Array, ""]) -> Float[Array, "m m"]:
    return -0.5 * eta * jnp.square(points[:, None] - points[None, :])


def _box_mass(
    points: Float[Array, " m"],
    eta: Float[Array, ""],
    lower: Float[Array, ""],
    upper: Float[Array, ""],
) -> tuple[Float[Array, "m m"], Float[Array, "m m"]]:
    """Mass of every pair along one axis, and the exponent it leaves behind."""
    mass, tail = scaled_interval_mass(lower, upper, _middles(points), 2 * eta)
    return mass, _exponents(points, eta) - tail


def _whole_mass(
    points: Float[Array, " m"], eta: Float[Array, ""]
) -> tuple[Float[Array, "m m"], Float[Array, "m m"]]:
    exponents = _exponents(points, eta)
    return jnp.full_like(exponents, 1.0) * jnp.sqrt(jnp.pi / (2 * eta)), exponents


def pair_integrals(
    anchors: Float[Array, "m d"] | TensorGrid,
    precision: Float[Array, " d"],
    box: Box | None,
    moments: bool = False,
) -> PairIntegrals:
    """All pair integrals over `box`, or over R^d if it is None."""
    grid = isinstance(anchors, TensorGrid)
    columns = anchors.axes if grid else tuple(anchors.T)
    axes = range(len(columns))
    points = firsts = seconds = ()
    if box is None:
        per_axis = [_whole_mass(columns[i], precision[i]) for i in axes]
        if moments:
            points = tuple(_middles(column) for column in columns)
            firsts = tuple(jnp.zeros_like(mass) for mass, _ in per_axis)
            seconds = tuple(per_axis[i][0] / (4 * precision[i]) for i in axes)
    elif moments:
        parts = [
            interval_moments(box.lower[i], box.upper[i], _middles(columns[i]), 2 * precision[i])
            for i in axes
        ]
        per_axis = [
            (part.mass, _exponents(columns[i], precision[i]) - part.exponent)
            for i, part in enumerate(parts)
        ]
        points, firsts, seconds = (
            tuple(getattr(part, name) for part in parts) for name in ("point", "first", "second")
        )
    else:
        per_axis = [_box_mass(columns[i], precision[i], box.lower[i], box.upper[i]) for i in axes]
    exponents = [exponent for _, exponent in per_axis]
    exponents = exponents if grid else [sum(exponents[1:], exponents[0])]
    peaks = [jnp.max(e) for e in exponents]
    return PairIntegrals(
        crosses=tuple(jnp.exp(e - peak) for e, peak in zip(exponents, peaks, strict=True)),
        masses=tuple(mass for mass, _ in per_axis),
        points=points,
        firsts=firsts,
        seconds=seconds,
        log_scale=jnp.sum(jnp.stack(peaks)),
    )


def joint_matrices(
    pairs: PairIntegrals, per_axis: tuple[Float[Array, "_ _"], ...]
) -> tuple[Float[Array, "_ _"], ...]:
    """Kronecker factors of a grid, or the one matrix of scattered anchors, cross terms included."""
    if len(pairs.crosses) == len(per_axis):
        return tuple(c * p for c, p in zip(pairs.crosses, per_axis, strict=True))
    joint = pairs.crosses[0]
    for matrix in per_axis:
        joint = joint * matrix
    return (joint,)


def quadratic_form(
    matrices: tuple[Float[Array, "_ _"], ...], factor: Float[Array, "m r"]
) -> Float[Array, ""]:
    """tr(L' (G_1 x G_2 x ...) L): the sum over all entries of A and G, through the factor."""
    return jnp.sum(factor * apply_kronecker(matrices, factor))


def apply_kronecker(
    matrices: tuple[Float[Array, "_ _"], ...], factor: Float[Array, "m r"]
) -> Float[Array, "k r"]:
    """(G_1 x G_2 x ...) L, one axis at a time."""
    tensor = factor.reshape(*(g.shape[1] for g in matrices), -1)
    for axis, matrix in enumerate(matrices):
        tensor = jnp.moveaxis(jnp.tensordot(matrix, tensor, axes=(1, axis)), 0, axis)
    return tensor.reshape(-1, factor.shape[1])
