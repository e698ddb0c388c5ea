"""Series as scans take them: a row for every transition."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool

from ..._checks import is_concrete
from ..series import Series
from .run import Rows


class Bounds(NamedTuple):
    """The most transitions between two rows of a series, and the most rows of one time."""

    hops: int
    sensors: int


class Expanded(NamedTuple):
    """Rows of the scan, where those of the series are among them, and rows of one time at most.

    `fits` is false where a series that is traced has more than its bounds say.
    """

    rows: Rows
    places: np.ndarray
    sensors: int
    fits: Bool[Array, ""] | bool

    @property
    def moves(self) -> np.ndarray:
        """Which rows have a transition before them, where that can be looked at."""
        return np.asarray(self.rows.moves)


def expanded(series: Series, bounds: Bounds | None = None) -> Expanded:
    """Several transitions before an observation are rows of their own, where nothing is seen."""
    if is_concrete(series.hops):
        return _of_known(series, np.asarray(series.hops))
    if series.regular:
        rows = Rows(jnp.asarray(series.ys), series.steps, series.hops > 0, series.rows)
        return Expanded(rows, np.arange(series.num), 1, True)
    if bounds is None:
        raise ValueError(
            "times must be concrete: they decide how many transitions there are, and were traced "
            "by jax.jit, vmap or grad"
        )
    # As many rows as the longest gap asks for; those before the first transition change nothing.
    num, most = series.num, bounds.hops
    owner, place = np.repeat(np.arange(num), most), np.tile(np.arange(most), num)
    moves = jnp.asarray(place) >= most - series.hops[owner]
    seen = jnp.asarray(place == most - 1)
    ys = jnp.where(seen[:, None], jnp.asarray(series.ys)[owner], jnp.nan)
    steps = series.steps[owner] - jnp.asarray(most - 1 - place)
    rows = Rows(ys, steps, moves, jax.tree.map(lambda a: a[owner], series.rows))
    fits = jnp.all(series.hops <= most)
    return Expanded(rows, np.arange(num) * most + most - 1, bounds.sensors, fits)


def bounds_of(series: Series) -> Bounds:
    """Those of a series that can be looked at."""
    hops = np.asarray(series.hops)
    return Bounds(int(max(1, hops.max())), _sensors(hops > 0))


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
    return Expanded(Rows(ys, steps, jnp.asarray(moves), inputs), places, _sensors(moves), True)


def _sensors(moves: np.ndarray) -> int:
    """The most rows of one time."""
    starts = np.flatnonzero(np.append(moves, True))
    return int(max(1, np.diff(np.concatenate([[0], starts])).max()))
