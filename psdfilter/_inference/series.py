"""Series as the filters see them: checked and shaped."""

import datetime
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import NamedTuple, cast

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Float, Int

from .._checks import Numbers, is_concrete, require_x64
from .._frames.table import Frame, Times, bare, bare_inputs
from .._statespace.functions import Row, wanted_by
from .._statespace.model import Inputs, StateSpaceModel
from .times import counted_clock, real_clock


@partial(
    jax.tree_util.register_dataclass,
    data_fields=["ys", "steps", "hops", "rows", "count"],
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
    regular: bool  # one transition before every row; none perhaps before the first, or in room
    partly: bool  # single coordinates of some row are missing
    count: Int[Array, ""] | None = None  # rows there are, if the arrays have room for more

    @property
    def num(self) -> int:
        """Number of rows."""
        return self.ys.shape[-2]

    def row(self, t: int) -> Inputs:
        """The inputs of one row."""
        return jax.tree.map(lambda a: a[t], self.rows)


class Asked(NamedTuple):
    """What the functions of a model ask of a row beside inputs."""

    names: frozenset[str] = frozenset()  # of dt, last_y and u
    first_y: Array | None = None
    by_sensor: bool = False  # the sensor takes last_y too
    step: float | None = None  # the longest time of one transition


NOTHING = Asked()


def asked_by(ssm: StateSpaceModel) -> Asked:
    """What the functions of a state-space model ask for."""
    names = ssm.wants & {"dt", "last_y", "u"}
    return Asked(names, ssm.first_y, "last_y" in wanted_by(ssm.log_observation), ssm.step)


def sub_steps(dt: Float[Array, " t"], step: float) -> Int[np.ndarray, " t"]:
    """How many transitions of at most `step` make up each time; none for none."""
    return np.ceil(np.asarray(dt) / step - 1e-9).astype(int)


def as_series(
    ys: Numbers | Frame,
    num_observed: int | None,
    *,
    first: str = "predict",
    inputs: Inputs = None,
    times: Times = None,
    asked: Asked = NOTHING,
) -> Series:
    """Checked and shaped; `num_observed` is the number of coordinates of y, if the model says."""
    require_x64()
    inputs = bare_inputs(inputs, ys)
    start = 0 if first == "observe" else 1
    ys, times = bare("ys", ys, times, start, is_real="dt" in asked.names)
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
    rows, partly = as_rows(inputs, num), is_partly(array)
    if times is None:
        steps, hops = _counted(num, 1 if first == "predict" else 0), _single_hops(num, first)
        # Made only if it is asked for: an array on the device takes longer than many steps.
        time, dt = None, jnp.ones(num) if asked.names or asked.step is not None else None
    elif "dt" in asked.names:
        steps, hops, time, dt = real_clock(num, times)
    else:
        (steps, hops), time, dt = counted_clock(num, times), None, None
    if asked.step is not None and dt is not None:
        # Several transitions of equal times before a row; the time may be zero before the first.
        parts = sub_steps(dt, asked.step) * (np.asarray(hops) > 0)
        dt = jnp.asarray(dt) / np.maximum(parts, 1).astype(float)
        hops, steps = jnp.asarray(parts), jnp.asarray(np.cumsum(parts))
    if asked.names:
        last_y = _last_ys(array, hops, asked) if "last_y" in asked.names else None
        if "u" in asked.names:
            refuse_no_state_before(array, hops)
        y = jnp.asarray(array) if "u" in asked.names else None
        rows = Row(rows, time, dt if "dt" in asked.names else None, last_y, y)
    regular = times is None and asked.step is None
    return Series(array, steps, hops, rows, regular, partly)


def refuse_no_state_before(ys: Array | np.ndarray, hops: Int[Array, " t"]) -> None:
    """A sensor that takes the state before needs a transition before every observation."""
    if not is_concrete(hops):
        return
    alone = np.asarray(hops) == 0
    if is_concrete(ys):
        alone &= ~np.isnan(np.asarray(ys)).all(axis=1)
    if not alone.any():
        return
    k = int(np.argmax(alone))
    if k == 0:
        raise ValueError(
            "ys[0] has no state before, but the sensor takes u: filter with "
            'first="predict", so that a transition comes before it'
        )
    raise ValueError(
        f"ys[{k}] comes at the time of ys[{k - 1}], but the sensor takes u, the state before: join "
        "the observations of one time into one row"
    )


def _last_ys(
    ys: Array | np.ndarray, hops: Int[Array, " t"], asked: Asked
) -> Float[Array | np.ndarray, "t p"]:
    """The row before each; refuses where it is asked for and missing."""
    width = ys.shape[1]
    before = jnp.full(width, jnp.nan) if asked.first_y is None else asked.first_y
    if before.shape != (width,):
        raise ValueError(
            f"first_y must have shape ({width},), as ys has columns, got {before.shape}"
        )
    last = jnp.concatenate([before[None], jnp.asarray(ys)[:-1]])
    if not is_concrete(last) or not is_concrete(hops):
        return last
    values, moves = np.asarray(last), np.asarray(hops)
    needed = (moves > 0) | asked.by_sensor
    missing = np.isnan(values).any(axis=1)
    if np.any(needed & missing) or np.any(moves > 1):
        k = int(np.argmax((needed & missing) | (moves > 1)))
        if k == 0 and moves[0] <= 1:
            raise ValueError(
                "first_y must be given: a function of the model takes last_y, and there is none "
                'before ys[0]. Pass StateSpaceModel(..., first_y=...), or first="observe" if only '
                "the transition takes it"
            )
        raise ValueError(
            f"ys[{k - 1}] is missing, but a function of the model takes it as last_y at ys[{k}]: "
            "fill it in, or write the model with a state that remembers what was seen"
        )
    # What is not asked for must be a number all the same.
    return jnp.where(jnp.isnan(last), 0.0, last)


def are_several(ys: Frame) -> bool:
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


def each_of(ys: Frame, inputs: Inputs, times: Times) -> list[tuple[Frame, Inputs, Times]]:
    """ys, inputs and times of every one of several series."""
    for name, value in (("inputs", inputs), ("times", times)):
        if value is not None and not (isinstance(value, list | tuple) and len(value) == len(ys)):
            raise ValueError(f"{name} must be a list with one entry for each of {len(ys)} series")
    count = len(ys)
    return list(zip(ys, inputs or [None] * count, times or [None] * count, strict=True))


def _table(ys: Numbers) -> np.ndarray:
    if not isinstance(ys, list | tuple):
        return as_reals_of("ys", ys)
    try:
        return as_reals_of("ys", ys)
    except ValueError as error:
        if any(isinstance(y, str) for y in ys):
            raise
        shapes = sorted({np.shape(y) for y in cast(Sequence[ArrayLike], ys)})
        if len(shapes) == 1:
            raise
        raise ValueError(
            f"ys must be one series, got a list with entries of shapes {shapes[:3]}: several "
            "series are a list of arrays, for run_filter, run_fleet, likelihood and fit"
        ) from error


def as_reals_of(name: str, values: Numbers) -> np.ndarray:
    """Real numbers, NaN where they are masked."""
    if isinstance(values, np.ma.MaskedArray):
        values = np.ma.filled(values.astype(np.float64), np.nan)
    kind = getattr(getattr(values, "dtype", None), "kind", None) or _kind_of(values)
    if kind in "mM":
        raise ValueError(
            f"{name} must hold numbers, got dates or times: they belong in times=, or into the "
            "index of a data frame"
        )
    if kind == "c":
        raise ValueError(f"{name} must hold real numbers, got complex ones")
    try:
        return np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{name} must hold numbers, NaN where one is missing: {error}") from error


def _kind_of(values: object) -> str:
    """That of the first entry of lists in lists, as NumPy names it."""
    while isinstance(values, list | tuple) and len(values):
        values = values[0]
    if isinstance(values, datetime.date | datetime.timedelta):
        return "M"
    kind = getattr(getattr(values, "dtype", None), "kind", "f")
    return "c" if isinstance(values, complex) else kind


def is_partly(ys: Array | np.ndarray) -> bool:
    """Whether some row misses some, but not all, of its coordinates; unseen under tracing."""
    if ys.shape[-1] == 1 or not is_concrete(ys):
        return False
    gaps = np.isnan(np.asarray(ys))
    return bool(np.any(gaps.any(axis=-1) & ~gaps.all(axis=-1)))


@lru_cache(maxsize=16)
def _counted(num: int, start: int) -> Int[Array, " t"]:
    """start, start + 1, ...; known to be so even while something else is traced."""
    with jax.ensure_compile_time_eval():
        return jax.device_put(np.arange(start, start + num))


@lru_cache(maxsize=16)
def _single_hops(num: int, first: str) -> Int[Array, " t"]:
    with jax.ensure_compile_time_eval():
        hops = np.ones(num, dtype=int)
        hops[0] = 0 if first == "observe" else 1
        return jax.device_put(hops)


def _listed(inputs: list[Inputs], num: int) -> Inputs:
    """A list of numbers, or of as many rows, as an array; else a pytree like any other."""
    if not inputs or any(isinstance(part, dict) for part in inputs):
        return inputs
    shape = np.shape(inputs[0])
    if any(np.shape(part) != shape for part in inputs) or (shape and len(inputs) != num):
        return inputs
    if shape[:1] == (num,) and num > 1 and not isinstance(inputs[0], list):
        raise ValueError(
            f"inputs is a list of {num} arrays of {num} rows each, which may be rows or columns: "
            "pass np.stack(inputs) for rows, or a tuple for separate arrays"
        )
    return jnp.stack([jnp.asarray(part, dtype=jnp.float64) for part in inputs])


def as_rows(inputs: Inputs, num: int) -> Inputs:
    """Inputs as float64 arrays of `num` rows; a list of numbers or of rows is an array."""
    if inputs is None:
        return None
    if isinstance(inputs, list):
        inputs = _listed(inputs, num)
    rows = jax.tree.map(lambda a: jnp.asarray(a, dtype=jnp.float64), inputs)
    for leaf in jax.tree.leaves(rows):
        if leaf.ndim == 0 or leaf.shape[0] != num:
            raise ValueError(f"inputs must have {num} rows, as ys has, got shape {leaf.shape}")
        if is_concrete(leaf) and not np.isfinite(np.asarray(leaf)).all():
            row = int(np.argmax(~np.isfinite(np.asarray(leaf)).reshape(num, -1).all(axis=1)))
            raise ValueError(
                f"inputs must be finite numbers, got {np.asarray(leaf)[row]} in row {row}: only ys "
                "may have NaN"
            )
    return rows


def as_observation(y: Numbers, num_observed: int | None) -> Array | np.ndarray:
    """One observation (p,)."""
    seen = y if isinstance(y, jax.Array) else as_reals_of("y", y)
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


def refuse_beyond_list(num: int | None, steps: Array | np.ndarray, more: int = 0) -> None:
    """Matrices that are given one for each of `num` steps must be there for all of these steps."""
    if num is None or not is_concrete(steps):
        return
    last = int(np.max(np.asarray(steps))) + more
    if last > num:
        raise ValueError(
            f"F, Q or b holds one matrix for each of {num} transitions, and transition {last} "
            "is asked for: give one for every transition, those over gaps and of a forecast "
            "included, or a function of t"
        )
