"""Series as the scan sees them: checked, shaped, and tabulated where a model runs on the host."""

from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from .._checks import Numbers, is_concrete, require_x64
from .._statespace.model import Inputs, StateSpaceModel, call, observation_box
from .model import LearnedModel
from .nodes import TransitionTables


@partial(
    jax.tree_util.register_dataclass,
    data_fields=["ys", "steps", "hops", "rows", "logs", "tables"],
    meta_fields=["partly"],
)
@dataclass(frozen=True)
class Series:
    """A series as the scan sees it, T rows each.

    No Equinox module: making one takes longer than filtering a few dozen steps.
    """

    ys: Float[Array | np.ndarray, "t p"]
    steps: Int[Array, " t"]  # the time of each observation
    hops: Int[Array, " t"]  # transitions before it
    rows: Any  # inputs
    logs: Float[Array, "t k"] | None  # log G at the training points, for black-box models
    tables: TransitionTables | None  # stacked, for black-box models that vary in time
    partly: bool  # single coordinates of some row are missing


def as_series(
    model: LearnedModel, ys: Numbers, first: str, inputs: Inputs, times: Numbers | None
) -> tuple[Series, bool]:
    """Checked and shaped; and whether no observation needs more than one transition."""
    require_x64()
    if not isinstance(model, LearnedModel):
        raise ValueError(f"model must come from psdfilter.learn, got {type(model).__name__}")
    # NumPy arrays stay what they are: a compiled function takes them over at no cost.
    on_device = isinstance(ys, jax.Array)
    array = ys.astype(jnp.float64) if on_device else np.asarray(ys, dtype=np.float64)
    array = array[:, None] if array.ndim == 1 else array
    if array.ndim != 2:
        raise ValueError(f"ys must have shape (T, p) or (T,), got {array.shape}")
    num = array.shape[0]
    if num == 0 or array.shape[1] == 0:
        raise ValueError(f"ys must hold at least one observation, got shape {array.shape}")
    expected = model.ssm.num_observed
    if expected is not None and expected != array.shape[1]:
        raise ValueError(
            f"ys must have {expected} columns, as the observations of the model have, got "
            f"{array.shape[1]}"
        )
    if first not in ("predict", "observe"):
        raise ValueError(f'first must be "predict" or "observe", got {first!r}')
    steps, single_hop = _steps(num, first, times)
    hops = _hops(num, first) if times is None else jnp.diff(steps, prepend=jnp.zeros(1, int))
    rows = as_rows(inputs, num)
    logs = tables = None
    if model.ssm.vectorized:
        logs = host_logs(model, jnp.asarray(array), steps) if model.joint is None else None
        tables = host_tables(model, steps) if model.tables is None else None
    return Series(array, steps, hops, rows, logs, tables, has_gaps(model.ssm, array)), single_hop


def has_gaps(ssm: StateSpaceModel, ys: Any) -> bool:
    """Whether some row misses some, but not all, of its coordinates; unseen under tracing."""
    if ys.shape[-1] == 1 or not is_concrete(ys):
        return False
    gaps = np.isnan(np.asarray(ys))
    partly = bool(np.any(gaps.any(axis=-1) & ~gaps.all(axis=-1)))
    if partly and not ssm.marginalizes_missing:
        observation_box(ssm, "an observation with single coordinates missing")
    return partly


def _steps(num: int, first: str, times: Numbers | None) -> tuple[Int[Array, " t"], bool]:
    if times is None:
        return _counted(num, 1 if first == "predict" else 0), True
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
    return steps.astype(int), False


@lru_cache(maxsize=16)
def _counted(num: int, start: int) -> Int[Array, " t"]:
    """start, start + 1, ...; known to be so even while something else is traced."""
    with jax.ensure_compile_time_eval():
        return jnp.arange(start, start + num)


@lru_cache(maxsize=16)
def _hops(num: int, first: str) -> Int[Array, " t"]:
    with jax.ensure_compile_time_eval():
        hops = np.ones(num, dtype=int)
        hops[0] = 0 if first == "observe" else 1
        return jnp.asarray(hops)


def as_rows(inputs: Inputs, num: int) -> Inputs:
    if inputs is None:
        return None
    rows = jax.tree.map(lambda a: jnp.asarray(a, dtype=jnp.float64), inputs)
    for leaf in jax.tree.leaves(rows):
        if leaf.ndim == 0 or leaf.shape[0] != num:
            raise ValueError(f"inputs must have {num} rows, as ys has, got shape {leaf.shape}")
    return rows


def host_logs(model: LearnedModel, ys: Array, steps: Array) -> Float[Array, "t k"]:
    """log G of a NumPy model, tabulated before the scan."""
    points = np.asarray(model.plan.training_points())
    rows = []
    for index, (y, t) in enumerate(zip(np.asarray(ys), np.asarray(steps), strict=True)):
        gaps = np.isnan(y)
        if gaps.any() and not gaps.all():
            raise ValueError(
                f"ys[{index}] misses some of its coordinates, {y}: a NumPy model cannot be "
                "integrated over them. Set the whole row to NaN, or write the model in JAX with an "
                "observation_box"
            )
        if gaps.any() or np.any(np.isinf(y)):
            rows.append(np.zeros(len(points)))
            continue
        seen = np.broadcast_to(y, (len(points), len(y)))
        value = call(model.ssm.log_observation, points, seen, t=int(t))
        rows.append(np.asarray(value, dtype=float).reshape(len(points)))
    return jnp.asarray(np.stack(rows))


def host_tables(model: LearnedModel, steps: Array) -> TransitionTables:
    """The transitions of a NumPy model into the given steps, stacked."""
    each = [model.tables_at(int(t)) for t in np.asarray(steps)]
    return jax.tree.map(lambda *parts: jnp.stack(parts), *each)
