"""Series for models on R^d: checked and shaped."""

from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from ..._checks import Numbers, require_x64
from ..._statespace.model import Inputs
from ..series import _steps, as_rows


class BlockSeries(eqx.Module):
    """A series as the scan sees it, T rows each."""

    ys: Float[Array, "t p"]
    steps: Int[Array, " t"]  # the time of each observation
    hops: Int[Array, " t"]  # transitions before it
    rows: Any  # inputs
    single_hop: bool = eqx.field(static=True)  # none needs more than one


def as_block_series(
    ys: Numbers, num_seen: int | None, first: str, inputs: Inputs, times: Numbers | None
) -> BlockSeries:
    """Checked and shaped; `num_seen` is the number of coordinates of y, if the model says it."""
    require_x64()
    array = jnp.asarray(ys, dtype=jnp.float64)
    array = array[:, None] if array.ndim == 1 else array
    if array.ndim != 2:
        raise ValueError(f"ys must have shape (T, p) or (T,), got {array.shape}")
    if array.shape[0] == 0 or array.shape[1] == 0:
        raise ValueError(f"ys must hold at least one observation, got shape {array.shape}")
    if num_seen is not None and array.shape[1] != num_seen:
        raise ValueError(f"ys must have {num_seen} columns, as H has rows, got {array.shape[1]}")
    if first not in ("predict", "observe"):
        raise ValueError(f'first must be "predict" or "observe", got {first!r}')
    steps, single_hop = _steps(array.shape[0], first, times)
    hops = jnp.diff(steps, prepend=jnp.zeros(1, dtype=steps.dtype))
    return BlockSeries(array, steps, hops, as_rows(inputs, array.shape[0]), single_hop)
