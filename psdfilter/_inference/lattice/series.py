"""Series as scans take them: a row for every transition."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool

from ..._checks import is_concrete
from ..._statespace.functions import Row
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


def sensors_at_once(series: Series) -> int:
    """The most rows of one time, of a series that can be looked at."""
    return _sensors(np.asarray(series.hops) > 0)


def _of_known(series: Series, hops: np.ndarray) -> Expanded:
    num, counts = series.num, np.maximum(hops, 1)
    places, owner = np.cumsum(counts) - 1, np.repeat(np.arange(num), counts)
    moves = np.repeat(hops > 0, counts)
    if len(owner) == num:
        rows = Rows(jnp.asarray(series.ys), series.steps, jnp.asarray(moves), series.rows)
        return Expanded(rows, places, _sensors(moves), True)
    back = places[owner] - np.arange(len(owner))
    ys = jnp.where(jnp.asarray(back == 0)[:, None], jnp.asarray(series.ys)[owner], jnp.nan)
    steps = jnp.asarray(series.steps)[owner] - jnp.asarray(back)
    inputs = jax.tree.map(lambda a: a[owner], series.rows)
    if isinstance(inputs, Row) and inputs.y is not None:
        inputs = inputs._replace(y=ys)
    return Expanded(Rows(ys, steps, jnp.asarray(moves), inputs), places, _sensors(moves), True)


def _sensors(moves: np.ndarray) -> int:
    """The most rows of one time."""
    starts = np.flatnonzero(np.append(moves, True))
    return int(max(1, np.diff(np.concatenate([[0], starts])).max()))
