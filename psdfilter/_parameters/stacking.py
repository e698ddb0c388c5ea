"""Several series as one batch: shorter ones end in missing rows, which change no likelihood."""

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from .._inference.series import Series, pad_series


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


def stack_series(parts: list[Series]) -> tuple[Series, list[np.ndarray]]:
    """Series of one shape, (S, T, ...), and the rows of each that are observations.

    Rows beyond the end of a series are missing, at its last time; so are those that stand for
    further transitions between two observations.
    """
    widths = {part.ys.shape[1] for part in parts}
    if len(widths) > 1:
        raise ValueError(f"ys must all have the same number of columns, got {sorted(widths)}")
    at = [np.cumsum(np.maximum(np.asarray(part.hops), 1)) - 1 for part in parts]
    parts = [_single_hops(part) for part in parts]
    length = max(part.ys.shape[0] for part in parts)
    padded = [pad_series(part, length - part.ys.shape[0]) for part in parts]
    partly = any(part.partly for part in parts)
    # From here on `regular` says that no row needs more than one transition.
    padded = [replace(part, partly=partly, regular=True) for part in padded]
    return jax.tree.map(lambda *leaves: jnp.stack(leaves), *padded), at


def _single_hops(part: Series) -> Series:
    """Several transitions between two observations as missing rows in between."""
    hops, steps = np.asarray(part.hops), np.asarray(part.steps)
    if np.all(hops <= 1):
        return part
    before = np.maximum(hops, 1)  # rows that each observation becomes, itself the last of them
    owner = np.repeat(np.arange(len(hops)), before)
    left = np.repeat(np.cumsum(before), before) - 1 - np.arange(len(owner))  # rows still to come
    ys = jnp.where((left > 0)[:, None], jnp.nan, part.ys[owner])
    return Series(
        ys,
        jnp.asarray(steps[owner] - left),
        jnp.asarray(np.minimum(hops, 1)[owner]),
        jax.tree.map(lambda a: a[owner], part.rows),
        part.regular,
        part.partly,
    )
