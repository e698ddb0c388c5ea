"""Checks at the public border: every message names the argument, what was expected, what came.

Values can be looked at only when they are concrete. Under `jit`, `vmap` or `grad` shapes are still
checked here, and checks on values become runtime errors through `equinox.error_if`.
"""

from collections.abc import Iterable, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.core
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Bool

# What public functions take for an array: NumPy and JAX arrays, numbers, and nested lists.
Numbers = ArrayLike | Sequence[Any]

_X64_REMEDY = (
    "psdfilter computes in float64, but JAX is in float32 mode, where quadratic forms of PSD "
    'models lose all their digits. Add jax.config.update("jax_enable_x64", True) at the top of '
    "your programme, before any array is made."
)


def require_x64() -> None:
    """Stop unless JAX is in float64 mode; the mode is read, never written."""
    if jnp.result_type(float) != jnp.float64:
        raise ValueError(_X64_REMEDY)


def is_concrete(value: Any) -> bool:
    """Whether the numbers in `value` can be looked at now."""
    return not isinstance(value, jax.core.Tracer)


def is_traced(tree: Any) -> bool:
    """Whether some leaf of a pytree cannot be looked at now."""
    return not all(is_concrete(leaf) for leaf in jax.tree.leaves(tree))


def check_values(value: Array, ok: Bool[Array, "..."], message: str) -> Array:
    """`value`, if `ok` holds everywhere; else a ValueError, or a runtime error under tracing."""
    if is_concrete(ok):
        if not bool(np.all(np.asarray(ok))):
            raise ValueError(message)
        return value
    return eqx.error_if(value, ~jnp.all(ok), message)


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


def as_integers(name: str, value: Any) -> tuple[int, ...]:
    """One integer or a sequence of them, as a tuple."""
    items = tuple(value) if isinstance(value, Iterable) else (value,)
    if not all(isinstance(a, int | np.integer) and not isinstance(a, bool) for a in items):
        raise ValueError(f"{name} must be integers, got {value!r}")
    return tuple(int(a) for a in items)


def as_axes(name: str, axes: int | Sequence[int], dim: int) -> tuple[int, ...]:
    """Distinct axes in range(dim), negative ones counted from the end."""
    given = as_integers(name, axes)
    if not all(-dim <= a < dim for a in given):
        raise ValueError(f"{name} must lie in 0..{dim - 1}, got {axes!r}")
    normal = tuple(a % dim for a in given)
    if len(set(normal)) != len(normal):
        raise ValueError(f"{name} must be distinct, got {axes!r}")
    return normal


def as_key(name: str, key: Any) -> Any:
    """A JAX random key, as made by `jax.random.key(seed)`."""
    ok = hasattr(key, "dtype") and (
        jnp.issubdtype(key.dtype, jax.dtypes.prng_key) or key.dtype == jnp.uint32
    )
    if not ok:
        raise ValueError(
            f"{name} must be a JAX random key, for example jax.random.key(0), "
            f"got {type(key).__name__}"
        )
    return key


def as_count(name: str, value: Any, *, least: int = 1) -> int:
    """A whole number of at least `least`."""
    whole = isinstance(value, int | np.integer) and not isinstance(value, bool)
    if not whole or value < least:
        raise ValueError(f"{name} must be a whole number >= {least}, got {value!r}")
    return int(value)
