"""Series as the filters see them: checked and shaped."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from .._checks import Numbers, is_concrete, require_x64
from .._statespace.model import Inputs


@partial(
    jax.tree_util.register_dataclass,
    data_fields=["ys", "steps", "hops", "rows"],
    meta_fields=["regular", "partly"],
)
@dataclass(frozen=True)
class Series:
    """A series, T rows each.

    No Equinox module: making one takes longer than filtering a few dozen steps.
    """

    ys: Float[Array | np.ndarray, "*s t p"]
    steps: Int[Array, "*s t"]  # the time of each observation
    hops: Int[Array, "*s t"]  # transitions before it
    rows: Inputs
    regular: bool  # one transition before every row, none perhaps before the first
    partly: bool  # single coordinates of some row are missing

    @property
    def num(self) -> int:
        """Number of rows."""
        return self.ys.shape[-2]

    def row(self, t: int) -> Inputs:
        """The inputs of one row."""
        return jax.tree.map(lambda a: a[t], self.rows)


def as_series(
    ys: Numbers,
    num_observed: int | None,
    *,
    first: str = "predict",
    inputs: Inputs = None,
    times: Numbers | None = None,
) -> Series:
    """Checked and shaped; `num_observed` is the number of coordinates of y, if the model says."""
    require_x64()
    # NumPy arrays stay what they are: a compiled function takes them over at no cost.
    on_device = isinstance(ys, jax.Array)
    array = ys.astype(jnp.float64) if on_device else _table(ys)
    array = array[:, None] if array.ndim == 1 else array
    if array.ndim != 2:
        raise ValueError(
            f"ys must be one series of shape (T, p) or (T,), got {array.shape}: several series are "
            "a list of arrays, list(ys)"
        )
    num = array.shape[0]
    if num == 0 or array.shape[1] == 0:
        raise ValueError(f"ys must hold at least one observation, got shape {array.shape}")
    if num_observed is not None and num_observed != array.shape[1]:
        raise ValueError(
            f"ys must have {num_observed} columns, as the observations of the model have, got "
            f"{array.shape[1]}"
        )
    if first not in ("predict", "observe"):
        raise ValueError(f'first must be "predict" or "observe", got {first!r}')
    if times is None:
        steps, hops = _counted(num, 1 if first == "predict" else 0), _single_hops(num, first)
    else:
        steps = _as_steps(num, times)
        hops = jnp.diff(steps, prepend=jnp.zeros(1, int))
    return Series(array, steps, hops, as_rows(inputs, num), times is None, is_partly(array))


def are_several(ys: Any) -> bool:
    """Whether ys stands for several series: a list of arrays with a time axis, or (S, T, p).

    A list of numbers, of lists of numbers or of arrays of shape (1,) is one series, as it is for
    `run_filter`. Arrays of one axis and different lengths can only be series.
    """
    if not isinstance(ys, list | tuple) or not len(ys):
        return np.ndim(ys) == 3
    axes = {np.ndim(y) for y in ys}
    if axes == {0}:
        return False
    if 0 in axes:
        raise ValueError("ys must be a list of numbers or a list of arrays, got both in one list")
    if axes != {1}:
        return True
    if all(isinstance(y, list | tuple) for y in ys):
        return False  # a table, written row by row
    lengths = {len(y) for y in ys}
    if len(lengths) > 1:
        return True
    (length,) = lengths
    if length > 1:
        raise ValueError(
            f"ys must say what it is, got a list of {len(ys)} arrays of shape ({length},): that "
            f"could be one series of {len(ys)} rows with {length} coordinates, to be written "
            f"np.stack(ys), or {len(ys)} series of {length} numbers, to be written "
            "[y[:, None] for y in ys]"
        )
    return False


def each_of(ys: Any, inputs: Any, times: Any) -> list[tuple[Any, Any, Any]]:
    """ys, inputs and times of every one of several series."""
    for name, value in (("inputs", inputs), ("times", times)):
        if value is not None and not (isinstance(value, list | tuple) and len(value) == len(ys)):
            raise ValueError(f"{name} must be a list with one entry for each of {len(ys)} series")
    count = len(ys)
    return list(zip(ys, inputs or [None] * count, times or [None] * count, strict=True))


def _table(ys: Numbers) -> np.ndarray:
    try:
        return np.asarray(ys, dtype=np.float64)
    except ValueError as error:
        if not isinstance(ys, list | tuple):
            raise
        entries = cast(Sequence[Any], ys)
        shapes = sorted({np.shape(y) for y in entries})
        if len(shapes) == 1:
            raise
        raise ValueError(
            f"ys must be one series, got a list with entries of shapes {shapes[:3]}: several "
            "series are for run_filter, run_fleet, likelihood and fit"
        ) from error


def is_partly(ys: Array | np.ndarray) -> bool:
    """Whether some row misses some, but not all, of its coordinates; unseen under tracing."""
    if ys.shape[-1] == 1 or not is_concrete(ys):
        return False
    gaps = np.isnan(np.asarray(ys))
    return bool(np.any(gaps.any(axis=-1) & ~gaps.all(axis=-1)))


def _as_steps(num: int, times: Numbers) -> Int[Array, " t"]:
    steps = jnp.asarray(times)
    if steps.shape != (num,):
        raise ValueError(f"times must have shape ({num},), as ys has rows, got {steps.shape}")
    if is_concrete(steps):
        values = np.asarray(steps)
        if not np.all(values == np.round(values)) or np.any(np.diff(values, prepend=0) < 0):
            raise ValueError(
                "times must be whole, non-negative and non-decreasing numbers of transitions, got "
                f"{values[:8]}"
            )
    return steps.astype(int)


@lru_cache(maxsize=16)
def _counted(num: int, start: int) -> Int[Array, " t"]:
    """start, start + 1, ...; known to be so even while something else is traced."""
    with jax.ensure_compile_time_eval():
        return jnp.arange(start, start + num)


@lru_cache(maxsize=16)
def _single_hops(num: int, first: str) -> Int[Array, " t"]:
    with jax.ensure_compile_time_eval():
        hops = np.ones(num, dtype=int)
        hops[0] = 0 if first == "observe" else 1
        return jnp.asarray(hops)


def as_rows(inputs: Inputs, num: int) -> Inputs:
    """Inputs as float64 arrays of `num` rows."""
    if inputs is None:
        return None
    rows = jax.tree.map(lambda a: jnp.asarray(a, dtype=jnp.float64), inputs)
    for leaf in jax.tree.leaves(rows):
        if leaf.ndim == 0 or leaf.shape[0] != num:
            raise ValueError(f"inputs must have {num} rows, as ys has, got shape {leaf.shape}")
    return rows


def as_observation(y: Numbers, num_observed: int | None) -> Array | np.ndarray:
    """One observation (p,)."""
    seen = y if isinstance(y, jax.Array) else np.asarray(y, dtype=np.float64)
    seen = seen[None] if seen.ndim == 0 else seen
    if seen.ndim != 1 or (num_observed is not None and seen.shape[0] != num_observed):
        wanted = "(p,)" if num_observed is None else f"({num_observed},)"
        raise ValueError(f"y must have shape {wanted}, one observation, got {seen.shape}")
    return seen


def pad_series(series: Series, extra: int) -> Series:
    """`extra` missing rows at the time of the last one: they change nothing."""

    def repeat_last(a: Array) -> Array:
        return jnp.concatenate([a, jnp.repeat(a[-1:], extra, axis=0)])

    return Series(
        jnp.concatenate([series.ys, jnp.full((extra, series.ys.shape[1]), np.nan)]),
        repeat_last(series.steps),
        jnp.concatenate([series.hops, jnp.zeros(extra, dtype=series.hops.dtype)]),
        jax.tree.map(repeat_last, series.rows),
        series.regular,
        series.partly,
    )
