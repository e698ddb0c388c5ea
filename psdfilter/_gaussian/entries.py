"""Small matrices as lists of their entries, each entry an array over many matrices.

Products and factorisations become elementwise operations that are compiled into a few loops over
the matrices: much faster than as many calls of LAPACK for matrices of up to about six rows.
"""

import jax.numpy as jnp
from jaxtyping import Array, Float

Entries = list[list[Array]]


def entries_of(matrices: Float[Array, "b n m"]) -> Entries:
    """Entries (b,) of a stack of matrices."""
    rows, columns = matrices.shape[-2:]
    return [[matrices[:, i, j] for j in range(columns)] for i in range(rows)]


def matrix_of(entries: Entries) -> Float[Array, "b n m"]:
    """The stack of matrices."""
    return jnp.stack([jnp.stack(row, axis=-1) for row in entries], axis=-2)


def transposed(entries: Entries) -> Entries:
    """A'."""
    return [list(column) for column in zip(*entries, strict=True)]


def times(left: Entries, right: Entries) -> Entries:
    """A B."""
    columns = transposed(right)
    return [
        [sum(a * b for a, b in zip(row, column, strict=True)) for column in columns] for row in left
    ]  # pyright: ignore[reportReturnType]


def cholesky_entries(entries: Entries, floor: float = 0.0) -> Entries:
    """R with R R' = S, lower triangular; pivots below `floor` S_ii count as that.

    With floor 0 a singular S gives zero columns instead of NaN.
    """
    size = len(entries)
    rows: Entries = []
    nothing = jnp.zeros_like(entries[0][0])
    for i in range(size):
        row: list[Array] = []
        for j in range(i):
            rest = entries[i][j]
            for k in range(j):
                rest = rest - row[k] * rows[j][k]
            pivot = rows[j][j]
            row.append(jnp.where(pivot > 0, rest / jnp.where(pivot > 0, pivot, 1.0), 0.0))
        diagonal = entries[i][i]
        rest = diagonal
        for k in range(i):
            rest = rest - jnp.square(row[k])
        # Rounding leaves about this much of a pivot that is zero.
        noise = 4 * size * jnp.finfo(diagonal.dtype).eps
        rest = jnp.where(rest > noise * diagonal, rest, 0.0)
        rest = jnp.maximum(rest, floor * diagonal)
        row.append(jnp.where(rest > 0, jnp.sqrt(jnp.where(rest > 0, rest, 1.0)), 0.0))
        rows.append(row)
    return [row + [nothing] * (size - len(row)) for row in rows]


def inverse_entries(chol: Entries) -> Entries:
    """R^{-1} for a lower triangular R; a zero column of R becomes a zero row."""
    size = len(chol)
    nothing = jnp.zeros_like(chol[0][0])
    inverse: Entries = [[nothing] * size for _ in range(size)]
    for j in range(size):
        pivot = chol[j][j]
        inverse[j][j] = jnp.where(pivot > 0, 1.0 / jnp.where(pivot > 0, pivot, 1.0), 0.0)
    for i in range(size):
        for j in range(i):
            total = sum(chol[i][k] * inverse[k][j] for k in range(j, i))
            inverse[i][j] = -total * inverse[i][i]
    return inverse


def eigen_entries(entries: Entries) -> tuple[list[Array], Entries]:
    """Eigenvalues and eigenvectors (columns): a rotation for two rows, LAPACK's for more."""
    size = len(entries)
    if size == 1:
        return [entries[0][0]], [[jnp.ones_like(entries[0][0])]]
    if size > 2:
        values, vectors = jnp.linalg.eigh(matrix_of(entries))
        return [values[:, i] for i in range(size)], entries_of(vectors)
    a, b, c = entries[0][0], entries[0][1], entries[1][1]
    half = 0.5 * (a - c)
    square = jnp.square(half) + jnp.square(b)
    round_ = square == 0
    radius = jnp.sqrt(jnp.where(round_, 1.0, square))
    # cos and sin of half the angle of (half, b).
    tilt = jnp.where(round_, 1.0, jnp.clip(half / radius, -1.0, 1.0))
    cos = jnp.sqrt(0.5 * (1.0 + tilt))
    sin = jnp.where(b < 0, -1.0, 1.0) * jnp.sqrt(0.5 * (1.0 - tilt))
    radius = jnp.where(round_, 0.0, radius)
    middle = 0.5 * (a + c)
    return [middle + radius, middle - radius], [[cos, -sin], [sin, cos]]


def inverse_roots(
    matrices: Float[Array, "b d d"], floor: float
) -> tuple[Float[Array, "b d d"], Float[Array, " b"]]:
    """T with T S T' = I, lower triangular, and log |S| / 2; pivots are at least `floor` S_ii.

    Gauss's elimination on [S, I], a column at a time for all matrices.
    """
    size = matrices.shape[-1]
    work = jnp.moveaxis(matrices, 0, -1)
    diagonal = jnp.stack([work[i, i] for i in range(size)])
    eye = jnp.broadcast_to(jnp.eye(size)[:, :, None], work.shape)
    log_root = jnp.zeros(matrices.shape[0])
    for k in range(size):
        least = floor * diagonal[k]
        pivot = jnp.maximum(work[k, k], jnp.where(least > 0, least, 1.0))
        root = jnp.sqrt(pivot)
        log_root = log_root + jnp.log(root)
        row, done = work[k] / root[None, :], eye[k] / root[None, :]
        below = jnp.asarray([0.0] * (k + 1) + [1.0] * (size - k - 1))[:, None]
        column = row * below
        work = work - column[:, None, :] * row[None, :, :]
        eye = (eye - column[:, None, :] * done[None, :, :]).at[k].set(done)
    return jnp.moveaxis(eye, -1, 0), log_root
