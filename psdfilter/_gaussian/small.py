"""Cholesky factors of small matrices, written out: no call of a library for a few numbers.

Under `vmap` every line below works on all matrices of a batch at once, which for a few dozen
matrices of at most six rows is many times faster than calling LAPACK for each.
"""

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float


def semidefinite_cholesky(matrix: Float[Array, "d d"], least: float = 0.0) -> Float[Array, "d d"]:
    """Lower triangular L with L L' = S, S positive semidefinite.

    A pivot that is zero up to rounding gives a column of zeros: a coordinate that is known once
    those before it are. With `least` > 0, pivots below it count as that, for any symmetric S.
    """
    dim = matrix.shape[0]
    floor = 4 * dim * jnp.finfo(matrix.dtype).eps * jnp.diagonal(matrix)
    columns: list[Array] = []
    rest = matrix
    for j in range(dim):
        pivot = jnp.maximum(rest[j, j], least) if least > 0 else rest[j, j]
        good = pivot > floor[j]
        root = jnp.sqrt(jnp.where(good, pivot, 1.0))
        below = jnp.asarray(np.arange(dim) >= j)
        column = jnp.where(below & good, rest[:, j] / root, 0.0)
        columns.append(column.at[j].set(jnp.where(good, root, 0.0)) if least > 0 else column)
        if j < dim - 1:
            rest = rest - columns[-1][:, None] * columns[-1][None, :]
    return jnp.stack(columns, axis=1)


def forward_solve(chol: Float[Array, "d d"], rhs: Float[Array, "d *k"]) -> Float[Array, "d *k"]:
    """L^{-1} b for a factor of `semidefinite_cholesky`; zero along coordinates that are known."""
    rows: list[Array] = []
    rest = rhs
    for i in range(chol.shape[0]):
        good = chol[i, i] > 0
        rows.append(jnp.where(good, rest[i] / jnp.where(good, chol[i, i], 1.0), 0.0))
        rest = rest - jnp.tensordot(chol[:, i], rows[-1], axes=0)
    return jnp.stack(rows)


def backward_solve(chol: Float[Array, "d d"], rhs: Float[Array, "d *k"]) -> Float[Array, "d *k"]:
    """L'^{-1} b, likewise."""
    rows: list[Array] = []
    rest = rhs
    for i in reversed(range(chol.shape[0])):
        good = chol[i, i] > 0
        rows.append(jnp.where(good, rest[i] / jnp.where(good, chol[i, i], 1.0), 0.0))
        rest = rest - jnp.tensordot(chol[i], rows[-1], axes=0)
    return jnp.stack(rows[::-1])


def log_volume(chol: Float[Array, "d d"]) -> Float[Array, ""]:
    """log |det L| over the coordinates that are not known."""
    sizes = jnp.diagonal(chol)
    return jnp.sum(jnp.log(jnp.where(sizes > 0, sizes, 1.0)))
