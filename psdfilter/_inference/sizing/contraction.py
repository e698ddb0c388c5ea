"""The sums over nodes of a prediction, in the cheapest order.

    p[j_1 ... j_d] = sum_m v[m_1 ... m_d] prod_g E_g[m_given, j_group]

A factor that depends on few of the old coordinates is a small tensor, and summing out one old
coordinate at a time can save whole powers of the number of nodes: a system whose axes move
independently costs n^{d+1} instead of n^{2d}. The order is found once, from the shapes.
"""

from functools import lru_cache
from string import ascii_letters

import jax
import jax.numpy as jnp
import numpy as np
import opt_einsum
from jaxtyping import Array, Float

Structure = tuple[tuple[tuple[int, ...], tuple[int, ...]], ...]

# Largest intermediate tensor of a contraction; beyond it the first new coordinate is run through
# one node at a time.
_MAX_INTERMEDIATE = 2**25


def _spec(dim: int, structure: Structure) -> tuple[str, list[str], str]:
    old, new = ascii_letters[:dim], ascii_letters[dim : 2 * dim]
    factors = ["".join(old[a] for a in given) + "".join(new[a] for a in group)
               for given, group in structure]  # fmt: skip
    return old, factors, new


@lru_cache(maxsize=256)
def _path(spec: str, shapes: tuple[tuple[int, ...], ...]) -> tuple[tuple, float, float]:
    path, info = opt_einsum.contract_path(spec, *shapes, shapes=True, optimize="optimal")
    return tuple(path), float(info.opt_cost), float(info.largest_intermediate)


def _shapes(shape: tuple[int, ...], structure: Structure) -> tuple[tuple[int, ...], ...]:
    return tuple(
        tuple(shape[a] for a in given) + tuple(shape[a] for a in group)
        for given, group in structure
    )


def contraction_cost(shape: tuple[int, ...], structure: Structure) -> float:
    """Multiply-adds of `predict_tensor`."""
    old, factors, new = _spec(len(shape), structure)
    spec = ",".join([old, *factors]) + "->" + new
    return _path(spec, (shape, *_shapes(shape, structure)))[1] / 2


def _contract(operands: list[str], out: str, tensors: list[Array], slow: str) -> Array:
    """An einsum, run through the index `slow` one at a time if intermediates would be too large."""
    spec = ",".join(operands) + "->" + out
    path, _, largest = _path(spec, tuple(t.shape for t in tensors))
    if largest <= _MAX_INTERMEDIATE:
        return jnp.einsum(spec, *tensors, optimize=list(path))
    inside = [o.replace(slow, "") for o in operands]
    moving = [jnp.moveaxis(t, o.index(slow), 0) for o, t in zip(operands, tensors, strict=True)
              if slow in o]  # fmt: skip
    inner_spec = ",".join(inside) + "->" + out.replace(slow, "")
    inner_shapes = tuple(t.shape if slow not in o else tuple(np.delete(t.shape, o.index(slow)))
                         for o, t in zip(operands, tensors, strict=True))  # fmt: skip
    inner_path = list(_path(inner_spec, inner_shapes)[0])

    def slab(parts: list[Array]) -> Array:
        rest = iter(parts)
        full = [next(rest) if slow in o else t for o, t in zip(operands, tensors, strict=True)]
        return jnp.einsum(inner_spec, *full, optimize=inner_path)

    if slow in out:
        return jnp.moveaxis(jax.lax.map(slab, moving), 0, out.index(slow))

    def add(total: Array, parts: list[Array]) -> tuple[Array, None]:
        return total + slab(parts), None

    start = jnp.zeros([tensors[_holder(operands, c)].shape[operands[_holder(operands, c)].index(c)]
                       for c in out])  # fmt: skip
    return jax.lax.scan(add, start, moving)[0]


def _holder(operands: list[str], letter: str) -> int:
    return next(i for i, o in enumerate(operands) if letter in o)


def predict_tensor(
    structure: Structure, squares: tuple[Float[Array, "..."], ...], v: Float[Array, "..."]
) -> Float[Array, "..."]:
    """p[j] = sum_m v[m] prod_g E_g[m, j]; the new nodes may be others than the old."""
    if len(squares) == 1 and len(structure[0][0]) == v.ndim:
        table = squares[0].reshape(v.size, -1)
        return (v.ravel() @ table).reshape(squares[0].shape[v.ndim :])
    old, factors, new = _spec(v.ndim, structure)
    return _contract([old, *factors], new, [v, *squares], new[0])


def backward_tensor(
    structure: Structure,
    squares: tuple[Float[Array, "..."], ...],
    b: Float[Array, "..."],
    shape: tuple[int, ...],
) -> Float[Array, "..."]:
    """beta[m] = sum_j b[j] prod_g E_g[m, j], the transpose of `predict_tensor`.

    `shape` is that of beta: an old coordinate that no factor depends on leaves it constant.
    """
    if len(squares) == 1 and len(structure[0][0]) == b.ndim:
        table = squares[0].reshape(-1, b.size)
        return (table @ b.ravel()).reshape(squares[0].shape[: squares[0].ndim - b.ndim])
    old, factors, new = _spec(b.ndim, structure)
    idle = [a for a in range(b.ndim) if not any(a in given for given, _ in structure)]
    ones = [jnp.ones(shape[a]) for a in idle]
    operands = [new, *factors, *(old[a] for a in idle)]
    return _contract(operands, old, [b, *squares, *ones], new[0])
