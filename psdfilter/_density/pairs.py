"""Integrals of all pair products k_i(x) k_j(x): the Gram matrices behind every closed form.

    G_ij = int k_i k_j = k_{eta/2}(X_i, X_j) prod_l I0(m_ijl),   m_ij = (X_i + X_j) / 2.

On a tensor grid G is the Kronecker product of one matrix per axis and is never formed. Scattered
anchors have the Schur product of one matrix per axis. Both are kept as `PairIntegrals`, with one
exponent pulled out so that nothing underflows far from the anchors.
"""

from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Float

from .._gaussian.integrals import scaled_interval_mass, scaled_interval_moments
from .anchors import TensorGrid
from .box import Box


class PairIntegrals(NamedTuple):
    """exp(log_scale) cross_l mass_l: per axis, the kernel of the pair and its integrals.

    `masses[l]`, `firsts[l]`, `seconds[l]` integrate 1, x_l and x_l^2 along axis l. On a grid the
    matrices are (m_l, m_l) and `crosses` has one for each axis; scattered, all are (m, m) and
    `crosses` is the single product of all axes.
    """

    crosses: tuple[Float[Array, "_ _"], ...]
    masses: tuple[Float[Array, "_ _"], ...]
    firsts: tuple[Float[Array, "_ _"], ...]
    seconds: tuple[Float[Array, "_ _"], ...]
    log_scale: Float[Array, ""]


def _along_axis(
    points: Float[Array, " m"],
    eta: Float[Array, ""],
    bounds: tuple[Float[Array, ""], Float[Array, ""]] | None,
    moments: bool,
) -> tuple[Float[Array, "m m"], ...]:
    """Exponent of the pair, and its integrals of 1, x, x^2 (the last two only if asked for)."""
    delta = points[:, None] - points[None, :]
    middle = 0.5 * (points[:, None] + points[None, :])
    exponent = -0.5 * eta * jnp.square(delta)
    kappa = 2 * eta
    if bounds is None:
        mass = jnp.full_like(delta, 1.0) * jnp.sqrt(jnp.pi / kappa)
        second = mass * (jnp.square(middle) + 1 / (2 * kappa))
        return (exponent, mass, middle * mass, second) if moments else (exponent, mass)
    if not moments:
        mass, tail = scaled_interval_mass(*bounds, middle, kappa)
        return exponent - tail, mass
    mass, j1, j2, tail = scaled_interval_moments(*bounds, middle, kappa)
    second = jnp.square(middle) * mass + 2 * middle * j1 + j2
    return exponent - tail, mass, middle * mass + j1, second


def pair_integrals(
    anchors: Float[Array, "m d"] | TensorGrid,
    precision: Float[Array, " d"],
    box: Box | None,
    moments: bool = False,
) -> PairIntegrals:
    """All pair integrals over `box`, or over R^d if it is None."""
    grid = isinstance(anchors, TensorGrid)
    columns = anchors.axes if grid else tuple(anchors.T)
    per_axis = [
        _along_axis(points, eta, None if box is None else (box.lower[i], box.upper[i]), moments)
        for i, (points, eta) in enumerate(zip(columns, precision, strict=True))
    ]
    exponents = [axis[0] for axis in per_axis]
    exponents = exponents if grid else [sum(exponents[1:], exponents[0])]
    peaks = [jnp.max(e) for e in exponents]
    integrals = tuple(zip(*(axis[1:] for axis in per_axis), strict=True))
    return PairIntegrals(
        crosses=tuple(jnp.exp(e - peak) for e, peak in zip(exponents, peaks, strict=True)),
        masses=integrals[0],
        firsts=integrals[1] if moments else (),
        seconds=integrals[2] if moments else (),
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
