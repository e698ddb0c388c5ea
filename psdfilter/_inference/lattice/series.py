"""Series as the scan takes them: a row for every transition."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from ..._checks import is_concrete
from ..series import Series
from .run import Rows


class Expanded(NamedTuple):
    """Rows of the scan, where those of the series are among them, sensors at one time at most."""

    rows: Rows
    places: np.ndarray
    moves: np.ndarray
    sensors: int


def expanded(series: Series) -> Expanded:
    """Several transitions before an observation are rows of their own, where nothing is seen."""
    num = series.num
    if not is_concrete(series.hops):
        raise ValueError("times must be concrete for engine \"lattice\": they decide its rows")
    hops = np.asarray(series.hops)
    counts = np.maximum(hops, 1)
    places = np.cumsum(counts) - 1
    owner = np.repeat(np.arange(num), counts)
    seen = np.zeros(len(owner), dtype=bool)
    seen[places] = True
    moves = np.repeat(hops > 0, counts)
    back = places[owner] - np.arange(len(owner))
    ys = jnp.asarray(series.ys)
    if len(owner) > num:
        ys = jnp.where(jnp.asarray(seen)[:, None], ys[owner], jnp.nan)
    steps = jnp.asarray(series.steps)[owner] - jnp.asarray(back)
    rows = series.rows if len(owner) == num else jax.tree.map(lambda a: a[owner], series.rows)
    starts = np.flatnonzero(np.append(moves, True))
    groups = np.diff(np.concatenate([[0], starts]))
    sensors = int(max(1, groups.max()))
    return Expanded(Rows(ys, steps, jnp.asarray(moves), rows), places, moves, sensors)
