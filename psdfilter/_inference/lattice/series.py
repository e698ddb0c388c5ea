"""Series as scans take them: a row for every transition."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, PyTree

from ..._checks import is_concrete, is_traced, is_transformed, looked_at
from ..._statespace.functions import Row
from ..lengths import count_of, longer, room_for
from ..series import Series
from .run import Rows


class Expanded(NamedTuple):
    """Rows of the scan, where those of the series are among them, and rows of one time at most.

    `fits` is false where a series that is traced has more of those than it was said to have.
    """

    rows: Rows
    places: np.ndarray
    sensors: int
    fits: Bool[Array, ""] | bool

    @property
    def moves(self) -> np.ndarray:
        """Which rows have a transition before them, where that can be looked at."""
        return np.asarray(self.rows.moves)


def expanded(series: Series, sensors: int = 1) -> Expanded:
    """Several transitions before an observation are rows of their own, where nothing is seen.

    A series that is traced has at most one; `sensors` are then the most rows of one time.
    """
    if is_concrete(series.hops):
        return _of_known(series, np.asarray(series.hops))
    if not series.regular:
        raise ValueError(
            "times must be concrete: they decide how many transitions there are, and were traced "
            "by jax.jit, vmap or grad"
        )
    ys, moves = jnp.asarray(series.ys), series.hops > 0
    seen = (~jnp.all(jnp.isnan(ys), axis=1)).astype(int)
    total = jnp.cumsum(seen)
    before = jax.lax.cummax(jnp.where(moves, total - seen, 0))
    fits = jnp.all(total - before <= sensors)
    rows = Rows(ys, series.steps, moves, series.rows)
    return Expanded(rows, np.arange(series.num), sensors, fits)


def roomy(rows: Rows, *others: PyTree) -> Rows:
    """The same rows in longer arrays, as `lengths.with_room` does it."""
    if is_transformed() or is_traced((rows, others)):
        return rows
    num = rows.ys.shape[0]
    length = room_for(num)
    ys, moves = longer(rows.ys, length, np.nan), longer(rows.moves, length, 0)
    inputs = jax.tree.map(lambda a: longer(a, length, None), rows.rows)
    return Rows(ys, longer(rows.steps, length, None), moves, inputs, count_of(num))


def sensors_at_once(series: Series) -> int:
    """The most rows of one time, of a series that can be looked at."""
    return _sensors(np.asarray(series.hops) > 0)


def _of_known(series: Series, hops: np.ndarray) -> Expanded:
    num, counts = series.num, np.maximum(hops, 1)
    places, owner = np.cumsum(counts) - 1, np.repeat(np.arange(num), counts)
    moves = np.repeat(hops > 0, counts)
    if len(owner) == num:
        rows = Rows(series.ys, series.steps, moves, series.rows)
        return Expanded(rows, places, _sensors(moves), True)
    back = places[owner] - np.arange(len(owner))
    xp, given, times = looked_at(series.ys, series.steps)
    ys = xp.where((back == 0)[:, None], given[owner], np.nan)
    inputs = jax.tree.map(lambda a: a[owner], series.rows)
    if isinstance(inputs, Row) and inputs.y is not None:
        inputs = inputs._replace(y=ys)
    rows = Rows(ys, times[owner] - back, moves, inputs)
    return Expanded(rows, places, _sensors(moves), True)


def _sensors(moves: np.ndarray) -> int:
    """The most rows of one time."""
    starts = np.flatnonzero(np.append(moves, True))
    return int(max(1, np.diff(np.concatenate([[0], starts])).max()))
