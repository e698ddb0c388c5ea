"""Whole series by robust steps, one after the other, on the host."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from ... import _results
from ..._statespace.model import Inputs
from . import robust
from .fast import Rows
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


class Series:
    """The rows of a series as steps, and padded for the scan."""

    def __init__(self, ys: np.ndarray, steps: np.ndarray, hops: np.ndarray, rows: Inputs):
        self.ys, self.times, self.hops, self.rows = ys, steps, hops, rows

    def step(self, k: int) -> Step:
        row = None if self.rows is None else jax.tree.map(lambda a: a[k], self.rows)
        return Step(int(self.times[k]), int(self.hops[k]), row, self.ys[k])

    def stretch(self, first: int) -> int:
        """End of the rows from `first` on that come one transition apart."""
        other = np.flatnonzero(self.hops[first:] != 1)
        return first + int(other[0]) if len(other) else len(self.ys)

    def padded(self, first: int, stop: int) -> Rows:
        num = stop - first
        size = next((s for s in LENGTHS if s >= num), LENGTHS[-1])
        index = np.minimum(np.arange(first, first + size), stop - 1)
        rows = None if self.rows is None else jax.tree.map(lambda a: a[index], self.rows)
        used = np.arange(first, first + size) < stop
        return Rows(
            jnp.asarray(self.ys[index]), jnp.asarray(self.times[index]), rows, jnp.asarray(used)
        )


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


def one_step(
    values: Values, frame: Frame, law: Law, step: Step, wanted: robust.Wanted
) -> tuple[Law, Outcome]:
    """The old law, refined, and the new one."""
    target = wanted.target
    code = usable(step.y)
    missing = code != _results.OK or bool(np.all(np.isnan(step.y)))
    seen = () if missing else (Seen(step.y, step.t, step.row),)
    log_kept, old, before = 0.0, law, law
    for hop in range(step.hops):
        at = (step.t - step.hops + 1 + hop, step.row)
        last = hop == step.hops - 1
        refined, fresh = robust.advance(values, frame, law, at, seen if last else (), wanted)
        before = refined if hop == 0 else before
        law = fresh if hop == 0 else fresh._replace(before=refined._replace(before=law.before))
        if not last:
            log_kept += law.log_norm
    log_mass = law.log_norm + log_kept
    if step.hops == 0:
        before = old
        if seen:
            law = robust.observe(values, frame, old, seen[0], target)
            log_mass = law.log_norm - old.log_norm
    if law.code == _results.NO_MASS and seen:
        # The observation is impossible: the prediction stands.
        _, free = one_step(values, frame, old, step._replace(y=np.full(1, np.nan)), wanted)
        return before, free._replace(log_mass=-np.inf, code=_results.NO_MASS)
    if missing:
        log_kept = law.log_norm + log_kept if step.hops > 0 else 0.0
        log_mass = 0.0
    return before, Outcome(law, log_mass, log_kept, code)
