"""Several series as one batch: shorter ones end in missing rows, which change no likelihood."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np

from .._inference.series import Series, pad_series


def stack_series(parts: list[Series]) -> tuple[Series, list[np.ndarray]]:
    """Series of one shape, (S, T, ...), and the rows of each that are observations.

    Rows beyond the end of a series are missing, at its last time; so are those that stand for
    further transitions between two observations.
    """
    widths = {part.ys.shape[1] for part in parts}
    if len(widths) > 1:
        raise ValueError(f"ys must all have the same number of columns, got {sorted(widths)}")
    at = [np.cumsum(np.maximum(np.asarray(part.hops), 1)) - 1 for part in parts]
    parts = [single_hops(part) for part in parts]
    length = max(part.ys.shape[0] for part in parts)
    padded = [pad_series(part, length - part.ys.shape[0]) for part in parts]
    partly = any(part.partly for part in parts)
    # From here on `regular` says that no row needs more than one transition.
    padded = [replace(part, partly=partly, regular=True) for part in padded]
    return jax.tree.map(lambda *leaves: jnp.stack(leaves), *padded), at


def single_hops(part: Series) -> Series:
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
