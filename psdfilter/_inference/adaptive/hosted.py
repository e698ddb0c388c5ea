"""Whole series by robust steps, one after the other, on the host."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from ... import _results
from ..._statespace.model import Inputs
from . import robust
from .fast import Rows
from .loop.looks import Rows as LatticeRows
from .reach import Frame
from .state import Law
from .tables import Seen, Values

# Lengths that series are filled up to; steps that are not used cost nothing.
LENGTHS = (64, 1024)


class Step(NamedTuple):
    """Time, transitions before it, inputs and observation of one row of a series."""

    t: int
    hops: int
    row: Inputs
    y: np.ndarray
    passing: bool = False  # on the way to an observation, whose log Z has what was lost here


class Series:
    """The rows of a series as steps, and padded for the scan.

    Args:
        ys: observations (t, p).
        steps: times of the rows.
        hops: transitions before each of them.
        rows: inputs.
        early: steps before these rows: step k is `early[k]` if there is one.
        scans: whether the compiled scan can take these rows.
    """

    def __init__(
        self,
        ys: np.ndarray,
        steps: np.ndarray,
        hops: np.ndarray,
        rows: Inputs,
        early: tuple[Step, ...] = (),
        scans: bool = True,
    ):
        self.ys, self.times, self.hops = ys, steps, hops
        # Single rows of arrays on the device take longer than a step.
        self.rows = jax.tree.map(np.asarray, rows)
        self.early, self.scans = early, scans

    @staticmethod
    def after(early: tuple[Step, ...], step: Step, scans: bool) -> "Series":
        """One more step after others."""
        rows = None if step.row is None else jax.tree.map(lambda a: jnp.asarray(a)[None], step.row)
        time, hops = np.array([step.t]), np.array([step.hops])
        return Series(step.y[None], time, hops, rows, early, scans)

    @staticmethod
    def of(steps: tuple[Step, ...], scans: bool) -> "Series":
        """Steps as rows; a prediction may not have known how wide observations are."""
        width = max(len(step.y) for step in steps)
        ys = [np.broadcast_to(step.y, width) if _missing(step.y) else step.y for step in steps]
        rows = None
        if steps[0].row is not None:
            rows = jax.tree.map(lambda *a: jnp.stack(a), *(step.row for step in steps))
        times, hops = zip(*((step.t, step.hops) for step in steps), strict=True)
        return Series(np.stack(ys), np.array(times), np.array(hops), rows, (), scans)

    @property
    def num(self) -> int:
        """Number of steps."""
        return len(self.early) + len(self.ys)

    def step(self, k: int) -> Step:
        if k < len(self.early):
            return self.early[k]
        k -= len(self.early)
        row = None if self.rows is None else jax.tree.map(lambda a: a[k], self.rows)
        return Step(int(self.times[k]), int(self.hops[k]), row, self.ys[k])

    def seen(self, first: int, stop: int) -> np.ndarray:
        """Observations of some of the rows."""
        return self.ys[first - len(self.early) : stop - len(self.early)]

    def stretch(self, first: int) -> int:
        """End of the rows from `first` on that come one transition apart."""
        if first < len(self.early) or not self.scans:
            return first
        other = np.flatnonzero(self.hops[first - len(self.early) :] != 1)
        return first + int(other[0]) if len(other) else self.num

    def padded(self, first: int, stop: int, lengths: tuple[int, ...] = LENGTHS) -> Rows:
        """Some of the rows, filled up to one of few lengths."""
        num = stop - first
        size = next((s for s in lengths if s >= num), lengths[-1])
        place = np.arange(first, first + size)
        index = np.minimum(place, stop - 1) - len(self.early)
        rows = None if self.rows is None else jax.tree.map(lambda a: a[index], self.rows)
        return Rows(jnp.asarray(self.ys[index]), self.times[index], rows, place < stop)

    def some(self, first: int, stop: int) -> LatticeRows:
        """Some of the rows, as lattices take them."""
        part = slice(first - len(self.early), stop - len(self.early))
        inputs = None if self.rows is None else jax.tree.map(lambda a: a[part], self.rows)
        return LatticeRows(self.ys[part], self.times[part], inputs)

    def unfolded(self) -> "Series":
        """One transition at most before every row: gaps become rows without an observation."""
        if np.all(self.hops <= 1):
            return self
        times = np.maximum(self.hops, 1)
        own = np.repeat(np.arange(len(times)), times)
        ends = np.cumsum(times) - 1
        back = ends[own] - np.arange(len(own))
        ys = np.where((back > 0)[:, None], np.nan, self.ys[own])
        rows = None if self.rows is None else jax.tree.map(lambda a: a[own], self.rows)
        return Series(ys, self.times[own] - back, np.minimum(self.hops[own], 1), rows)


class Outcome(NamedTuple):
    """The law after a step, and what was learned of it."""

    law: Law
    log_mass: float  # log Z; zero if nothing was seen
    log_kept: float  # log of the predicted mass on the support
    code: int

    def with_law(self, law: Law) -> "Outcome":
        """The step with its law refined."""
        return self._replace(law=law)


def usable(y: np.ndarray) -> int:
    """OK, or BAD_OBSERVATION for infinities."""
    return _results.BAD_OBSERVATION if bool(np.any(np.isinf(y))) else _results.OK


def _missing(y: np.ndarray) -> bool:
    return bool(np.all(np.isnan(y)))


def is_missing(y: np.ndarray) -> bool:
    """Whether an observation tells nothing."""
    return usable(y) != _results.OK or _missing(y)


def one_step(
    values: Values, frame: Frame, law: Law, step: Step, wanted: robust.Wanted
) -> tuple[Law, Outcome]:
    """The old law, refined, and the new one; one transition at most."""
    code = usable(step.y)
    missing = code != _results.OK or _missing(step.y)
    seen = () if missing else (Seen(step.y, step.t, step.row),)
    old, log_mass = law, 0.0
    if step.hops > 0:
        law, new = robust.advance(values, frame, law, (step.t, step.row), seen, wanted)
        log_mass = new.log_norm
    elif seen:
        new = robust.observe(values, frame, law, seen[0], wanted)
        log_mass = new.log_norm - law.log_norm
    else:
        new = law
    if new.code == _results.NO_MASS and seen:
        # The observation is impossible: the prediction stands.
        _, free = one_step(values, frame, old, step._replace(y=np.full(1, np.nan)), wanted)
        return law, free._replace(log_mass=-np.inf, code=_results.NO_MASS)
    if missing:
        return law, Outcome(new, 0.0, log_mass, code if code != _results.OK else new.code)
    return law, Outcome(new, log_mass, 0.0, code)
