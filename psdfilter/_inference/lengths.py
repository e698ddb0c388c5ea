"""Series of all lengths in programs of few: a new length compiles nothing, and costs no steps.

A program is compiled for the lengths of its arrays. So the arrays of a series have room for a power
of two of rows, and loops end at the number of rows there are. Only series that can be looked at
have room: under `jit`, `vmap` and `grad` lengths are those of the program around.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache
from typing import TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int, PyTree

from .._checks import is_traced, is_transformed
from .series import Series

C = TypeVar("C")
X = TypeVar("X")
Y = TypeVar("Y")
Tree = TypeVar("Tree", bound=PyTree)

# Shorter series share one program: the arrays of so few rows take no time.
_LEAST = 32


def room_for(num: int, parts: int = 1) -> int:
    """The length of arrays for so many rows: a power of two, or one of `parts` between two."""
    step = max(_LEAST, 1 << (num - 1).bit_length()) // (2 * parts)
    return max(_LEAST // parts, -(-num // step) * step)


def with_room(series: Series, *others: PyTree, parts: int = 1) -> Series:
    """The same series in longer arrays; nothing happens in the rows that are added.

    As it is where it, or anything else that the filter is made of, is traced. More `parts` are for
    programs that work on all rows at once.
    """
    if is_transformed() or is_traced((series, others)):
        return series
    num, steps, hops = series.num, series.steps, series.hops
    length = room_for(num, parts)
    if series.regular:
        start = int(np.asarray(steps)[0]), int(np.asarray(hops)[0])
        steps, hops = _regular(num, length, *start)
    else:
        steps, hops = longer(steps, length, None), longer(hops, length, 0)
    rows = jax.tree.map(lambda a: longer(a, length, None), series.rows)
    ys = longer(series.ys, length, np.nan)
    return replace(series, ys=ys, steps=steps, hops=hops, rows=rows, count=count_of(num))


def longer(given: Array | np.ndarray, length: int, fill: float | None) -> np.ndarray:
    """Rows with room after them, filled with a number, or with the last row."""
    values = np.asarray(given)
    out = np.empty((length, *values.shape[1:]), dtype=values.dtype)
    out[: len(values)] = values
    out[len(values) :] = values[-1] if fill is None else fill
    return out


# On the device for good: what is handed over anew at every call takes longer than many steps.
@lru_cache(maxsize=64)
def _regular(
    num: int, length: int, step: int, hop: int
) -> tuple[Int[Array, " t"], Int[Array, " t"]]:
    hops = np.where(np.arange(length) < num, 1, 0)
    hops[0] = hop
    steps = step + np.minimum(np.arange(length), num - 1)
    with jax.ensure_compile_time_eval():
        return jax.device_put(steps), jax.device_put(hops)


@lru_cache(maxsize=64)
def count_of(num: int) -> Int[Array, ""]:
    """The number of rows, for `scan_rows`."""
    with jax.ensure_compile_time_eval():
        return jax.device_put(np.asarray(num))


def scan_rows(
    step: Callable[[C, X], tuple[C, Y]], start: C, xs: X, count: Int[Array, ""] | None
) -> tuple[C, Y]:
    """`jax.lax.scan` that ends after `count` rows, with zeros in the rest of what is stacked.

    With no `count` it goes over all rows, and has derivatives.
    """
    if count is None:
        return jax.lax.scan(step, start, xs)
    length = jax.tree.leaves(xs)[0].shape[0]
    once = jax.jit(step)  # traced once, though its shapes are asked for first

    def row(k: Array | int) -> X:
        return jax.tree.map(lambda a: jax.lax.dynamic_index_in_dim(a, k, keepdims=False), xs)

    shapes = jax.eval_shape(once, start, row(0))
    blank = jax.tree.map(lambda a: jnp.zeros((length, *a.shape), a.dtype), shapes[1])
    # Weak types would differ from what a step gives.
    first = jax.tree.map(lambda a, b: jnp.asarray(a, b.dtype), start, shapes[0])

    def body(state: tuple[Array, C, Y]) -> tuple[Array, C, Y]:
        k, carry, out = state
        carry, made = once(carry, row(k))
        out = jax.tree.map(lambda a, b: jax.lax.dynamic_update_index_in_dim(a, b, k, 0), out, made)
        return k + 1, carry, out

    zero = jnp.zeros((), count.dtype)
    _, last, out = jax.lax.while_loop(lambda s: s[0] < count, body, (zero, first, blank))
    return last, out


def cut_rows(tree: Tree, num: int) -> Tree:
    """The first rows of stacked arrays, seen by NumPy: slices on the device would be compiled."""
    return jax.tree.map(lambda a: np.asarray(a)[:num], tree)
