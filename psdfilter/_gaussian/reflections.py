"""Triangular roots of sums of squares whose terms differ by many orders of magnitude.

A covariance is kept as rows a_i with S = sum_i a_i a_i', one for each independent source of
uncertainty. An orthogonal matrix from the left changes the rows and not S, so that S itself is
never formed: a source of variance 1e16 beside one of 1e-12 costs the smaller one no digits.

Each reflection takes as its pivot the row with the largest entry of its column. The multiples of
that row which it subtracts from others are then at most one, as in an elimination with partial
pivoting, and every row is wrong by no more than rounding of its own size and of what it was given
(Powell and Reid 1969, Cox and Higham 1998, who permute rows for the same reason).
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .small import semidefinite_cholesky

# Columns up to which reflections are written out; more of them would take long to compile.
_WRITTEN_OUT = 8


class Reflected(NamedTuple):
    """Rows A after reflections, A'A = top' top + (0 rest)' (0 rest)."""

    top: Float[Array, "k c"]  # upper triangular in its first k columns, with diagonal >= 0
    rest: Float[Array, "r l"]  # what is left in the other columns


def _reflect(
    rows: Float[Array, "r c"], column: Float[Array, " c"]
) -> tuple[Float[Array, "r c"], Float[Array, " c"]]:
    """One column, given as a unit vector, into one row; the other rows are zero there."""
    x = rows @ column
    pivot = jax.nn.one_hot(jnp.argmax(jnp.abs(x)), x.size, dtype=x.dtype)
    signed = pivot @ x
    size = jnp.abs(signed)
    some = size > 0
    scale = jnp.where(some, size, 1.0)
    sign = jnp.where(signed < 0, -1.0, 1.0)
    # |x| >= 1 in units of its largest entry: nothing overflows, and the root has a derivative.
    unit = jnp.where(some, x / scale, pivot)
    length = jnp.sqrt(jnp.sum(jnp.square(unit)))
    # I - v v' / (length (length + 1)) with v = unit + sign length e takes x to -sign |x| e.
    v = unit + sign * length * pivot
    new = rows - v[:, None] * ((v @ rows) / (length * (length + 1.0)))[None, :]
    new = jnp.where(some, new, rows)
    top = jnp.where(some, -sign, 1.0) * (pivot @ new)
    others = (1.0 - column)[None, :]
    top = top * others[0] + jnp.where(some, scale * length, 0.0) * column
    left = jnp.where(some, 1.0 - pivot, jnp.ones_like(pivot))
    return new * left[:, None] * others, top


def reflected(rows: Float[Array, "r c"], num: int) -> Reflected:
    """The first `num` columns made triangular."""
    units = np.eye(num, rows.shape[1])
    if num > _WRITTEN_OUT:
        rest, top = jax.lax.scan(_reflect, rows, jnp.asarray(units))
        return Reflected(top, rest[:, num:])
    tops: list[Array] = []
    for unit in units:
        rows, top = _reflect(rows, jnp.asarray(unit))
        tops.append(top)
    return Reflected(jnp.stack(tops), rows[:, num:])


def triangular(rows: Float[Array, "r d"]) -> Float[Array, "d d"]:
    """Upper triangular U with U'U = A'A."""
    return reflected(rows, rows.shape[1]).top


def covariance_rows(covariance: Float[Array, "d d"]) -> Float[Array, "d d"]:
    """Rows of a covariance that is given as a matrix: its Cholesky factor, zero where singular."""
    return semidefinite_cholesky(covariance).T


def product(rows: Float[Array, "r d"]) -> Float[Array, "d d"]:
    """S."""
    return rows.T @ rows


def pivots(upper: Float[Array, "d d"]) -> Float[Array, " d"]:
    """The diagonal of U, zero where it is rounding of the column above it."""
    sizes = jnp.sqrt(jnp.sum(jnp.square(jnp.triu(upper)), axis=0))
    diagonal = jnp.diagonal(upper)
    return jnp.where(diagonal > upper.shape[0] * jnp.finfo(upper.dtype).eps * sizes, diagonal, 0.0)


def upper_solve(upper: Float[Array, "d d"], rhs: Float[Array, "d k"]) -> Float[Array, "d k"]:
    """U^{-1} b, zero along coordinates that are known exactly once those before them are."""
    sizes = pivots(upper)
    known = (sizes == 0).astype(upper.dtype)
    full = upper * (1.0 - known)[:, None] + jnp.diag(known)
    masked = rhs * (1.0 - known)[:, None]
    return jax.scipy.linalg.solve_triangular(full, masked, lower=False)
