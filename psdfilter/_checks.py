"""Checks at the public border: every message names the argument, what was expected, what came.

Shapes are known always, values only when they are concrete. Models and boxes may be made of traced
numbers and handed to compiled functions, so that their constructors cannot have the last word: the
operations look at the values of all their arguments (`verified`). What is traced is checked when
the program runs, through `equinox.error_if`.
"""

from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from typing import Any, NamedTuple, TypeGuard, TypeVar, cast

import equinox as eqx
import jax
import jax.core
import jax.numpy as jnp
import numpy as np
from jax.extend.core import get_opaque_trace_state
from jaxtyping import Array, ArrayLike, Bool, PRNGKeyArray, PyTree

from . import _results

T = TypeVar("T")

# What public functions take for an array: NumPy and JAX arrays, numbers, and nested lists.
Numbers = ArrayLike | Sequence[object]

_X64_REMEDY = (
    "psdfilter computes in float64, but JAX is in float32 mode, where quadratic forms of PSD "
    "models lose all their digits. Add psdfilter.enable_x64(), which is "
    'jax.config.update("jax_enable_x64", True), at the top of your program, before any array is '
    "made."
)


def require_x64() -> None:
    """Stop unless JAX is in float64 mode; the mode is read, never written."""
    if jax.dtypes.canonicalize_dtype(float) != np.float64:
        raise ValueError(_X64_REMEDY)


def is_concrete(value: object) -> bool:
    """Whether the numbers in `value` can be looked at now."""
    return not isinstance(value, jax.core.Tracer)


def is_traced(tree: PyTree) -> bool:
    """Whether some leaf of a pytree cannot be looked at now."""
    return not all(is_concrete(leaf) for leaf in jax.tree.leaves(tree))


def is_transformed() -> bool:
    """Whether jit, vmap or grad is at work: functions may then close over what is traced."""
    return get_opaque_trace_state() != _untransformed()


@lru_cache(maxsize=1)
def _untransformed() -> object:
    # A new thread is outside of every transformation, wherever it is started.
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(get_opaque_trace_state).result()


def check_values(value: Array, ok: Bool[Array, "..."], message: str) -> Array:
    """`value`, if `ok` holds everywhere; else a ValueError, or a runtime error under tracing."""
    if is_concrete(ok):
        if not bool(np.all(np.asarray(ok))):
            raise ValueError(message)
        return value
    return eqx.error_if(value, ~jnp.all(ok), message)


class Demand(NamedTuple):
    """Something that must hold of an argument, and its code and message if it does not."""

    code: int
    message: str
    holds: Bool[Array, ""] | np.bool_

    @staticmethod
    def of(name: str, code: int, holds: Bool[Array, ""] | np.bool_) -> "Demand":
        """A demand on one of the arrays that the model or box `name` is made of."""
        return Demand(code, f"{name}.{_results.MESSAGES[code]}", holds)


def looked_at(*arrays: Array | np.ndarray) -> tuple[Any, ...]:
    """A module to compute with, and the arrays for it: NumPy unless one of them is traced."""
    if is_traced(arrays):
        return jnp, *arrays
    return np, *(np.asarray(array) for array in arrays)


def all_finite(*arrays: Array) -> Bool[Array, ""] | np.bool_:
    """Whether all entries of all arrays are finite."""
    holds = np.True_
    for array in arrays:
        xp, values = looked_at(array)
        holds = xp.all(xp.isfinite(values)) & holds
    return holds


def demands_of(name: str, argument: PyTree) -> list[Demand]:
    """What must hold of a model or a box, which know it themselves, or of an array: finite."""
    if hasattr(argument, "_demands"):
        return argument._demands(name)
    return [Demand(_results.BAD_POINTS, f"{name} must be finite", all_finite(argument))]


def verified(**arguments: PyTree) -> PyTree:
    """The arguments as they came, once all that must hold of them is known to hold.

    Models, boxes, arrays of finite numbers, and None for what was left out. The first demand that
    is not met is a ValueError, or a runtime error where it depends on traced values; XLA drops a
    check that nothing depends on, so the values handed back are the ones to go on with.
    """
    demands = {
        name: demands_of(name, value) for name, value in arguments.items() if value is not None
    }
    for demand in (d for each in demands.values() for d in each):
        if is_concrete(demand.holds) and not demand.holds:
            raise ValueError(demand.message)
    runtime = {
        name: waiting
        for name, each in demands.items()
        if (waiting := [d for d in each if not is_concrete(d.holds)])
    }
    if runtime:
        arguments = _hang_checks(arguments, runtime)
    out = tuple(arguments.values())
    return out[0] if len(out) == 1 else out


def _hang_checks(
    arguments: dict[str, PyTree], runtime: dict[str, list[Demand]]
) -> dict[str, PyTree]:
    """The arguments, with one runtime error hung on the traced leaves of those that are checked."""
    split = {name: jax.tree.flatten(arguments[name]) for name in runtime}
    places = [(name, i) for name in runtime for i in _carriers(arguments[name], split[name][0])]
    demands = [d for each in runtime.values() for d in each]
    unmet = ~jnp.stack([d.holds for d in demands])
    carried = eqx.branched_error_if(
        [split[name][0][i] for name, i in places],
        jnp.any(unmet),
        jnp.argmax(unmet),
        [d.message for d in demands],
    )
    for (name, i), leaf in zip(places, carried, strict=True):
        split[name][0][i] = leaf
    checked = {name: jax.tree.unflatten(form, leaves) for name, (leaves, form) in split.items()}
    return {**arguments, **checked}


def _carriers(argument: PyTree, leaves: list[Array]) -> list[int]:
    """Places of the leaves to hang a check on: traced ones, so that nothing else becomes so.

    Whatever is computed from a model depends on its precision, which is small; where that is not
    traced, all leaves that are have to serve.
    """
    precision = getattr(argument, "precision", None)
    if is_concrete(precision):
        return [i for i, leaf in enumerate(leaves) if not is_concrete(leaf)]
    return [i for i, leaf in enumerate(leaves) if leaf is precision]


def required(name: str, value: T | None) -> T:
    """An argument that must not be left out, though others before it may."""
    if value is None:
        raise ValueError(f"{name} must be given, got None")
    return value


def as_reals(name: str, value: Numbers) -> Array:
    """`value` as a float64 array of any shape, infinities and NaN let through."""
    require_x64()
    if isinstance(value, str | bytes):
        raise ValueError(f"{name} must be an array of numbers, got {type(value).__name__}")
    try:
        array = jnp.asarray(value)
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"{name} must be an array of numbers, got {type(value).__name__} ({error})"
        ) from None
    if jnp.issubdtype(array.dtype, jnp.complexfloating) or array.dtype == jnp.bool_:
        raise ValueError(f"{name} must hold real numbers, got dtype {array.dtype}")
    return array.astype(jnp.float64)


def as_floats(name: str, value: Numbers, *, ndim: int | None = None) -> Array:
    """`value` as a float64 array with `ndim` axes and finite entries."""
    array = as_reals(name, value)
    if ndim is not None and array.ndim != ndim:
        raise ValueError(f"{name} must have {ndim} axes, got shape {array.shape}")
    require_finite(name, array)
    return array


def require_finite(name: str, array: Array) -> None:
    """Stop if a concrete array holds an infinity or a NaN, and say where."""
    if not is_concrete(array):
        return
    values = np.asarray(array)
    bad = ~np.isfinite(values)
    if bad.any():
        where = tuple(int(i) for i in np.argwhere(bad)[0])
        raise ValueError(
            f"{name} must be finite, got {values[where]} at index {where} "
            f"({int(bad.sum())} such entries)"
        )


def as_points(name: str, value: Numbers, dim: int) -> Array:
    """`value` as points `(..., dim)`; a bare number is a point of a one-dimensional space."""
    array = as_reals(name, value)
    if array.ndim == 0 and dim == 1:
        array = array[None]
    if array.ndim == 0 or array.shape[-1] != dim:
        remedy = " (write x[..., None] for many points on a line)" if dim == 1 else ""
        raise ValueError(f"{name} must have shape (..., {dim}), got {array.shape}{remedy}")
    return array


def as_integers(name: str, value: object) -> tuple[int, ...]:
    """One integer or a sequence of them, as a tuple."""
    items = tuple(value) if isinstance(value, Iterable) else (value,)
    whole = [int(a) for a in items if _is_whole(a)]
    if len(whole) < len(items):
        raise ValueError(f"{name} must be integers, got {value!r}")
    return tuple(whole)


def _is_whole(value: object) -> TypeGuard[int | np.integer]:
    return isinstance(value, int | np.integer) and not isinstance(value, bool)


def as_axes(name: str, axes: int | Sequence[int], dim: int) -> tuple[int, ...]:
    """Distinct axes in range(dim), negative ones counted from the end."""
    given = as_integers(name, axes)
    if not all(-dim <= a < dim for a in given):
        raise ValueError(f"{name} must lie in 0..{dim - 1}, got {axes!r}")
    normal = tuple(a % dim for a in given)
    if len(set(normal)) != len(normal):
        raise ValueError(f"{name} must be distinct, got {axes!r}")
    return normal


def as_key(name: str, key: object) -> PRNGKeyArray:
    """A JAX random key, as made by `jax.random.key(seed)`."""
    dtype = getattr(key, "dtype", None)
    if dtype is None or not (jnp.issubdtype(dtype, jax.dtypes.prng_key) or dtype == jnp.uint32):
        raise ValueError(
            f"{name} must be a JAX random key, for example jax.random.key(0), "
            f"got {type(key).__name__}"
        )
    return cast(Array, key)


def as_count(name: str, value: object, *, least: int = 1) -> int:
    """A whole number of at least `least`."""
    if not _is_whole(value) or value < least:
        raise ValueError(f"{name} must be a whole number >= {least}, got {value!r}")
    return int(value)


def counted(num: int, noun: str) -> str:
    """A number of things in words: 1 row, 2 rows."""
    return f"{num} {noun}{'s' * (num != 1)}"
