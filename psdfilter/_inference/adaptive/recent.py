"""Single steps: the last rows are kept, so that an outlier can still go back to them.

An online filter goes through the same passes as a whole series does. An observation replaces the
prediction of its time by one step with it, as in a series: what the prediction has refined, and
what it has not, leaves no trace.
"""

from typing import NamedTuple

import jax
import numpy as np

from ... import _results
from ..._density.box import Box
from . import robust, walls
from .backtrack import DEPTH
from .hosted import Outcome, Series, Step
from .passes import Kit, Pace, Past, go_on
from .plan import FINER
from .reach import frame_of
from .state import Law


class Kept(NamedTuple):
    """The last rows, at most as many as an outlier can need, and the law before them."""

    start: Law
    outcomes: tuple[Outcome, ...]
    steps: tuple[Step, ...]
    pace: Pace
    fine: bool  # whether steps have smaller errors than at first

    @property
    def law(self) -> Law:
        """The law after the last row."""
        return self.outcomes[-1].law if self.outcomes else self.start

    @property
    def error(self) -> float:
        """Estimated total variation error of that law; the prior has none."""
        return self.law.error + self.law.sampling if self.outcomes else 0.0

    @property
    def told(self) -> int:
        """Rows whose part of the log-likelihood has been told: all but the last that pass by."""
        num = len(self.steps)
        while num > 0 and self.steps[num - 1].passing:
            num -= 1
        return num

    def trimmed(self) -> "Kept":
        """No more rows than needed."""
        extra = len(self.outcomes) - DEPTH
        if extra <= 0:
            return self
        start, rows = self.outcomes[extra - 1].law, self.outcomes[extra:]
        return self._replace(start=start, outcomes=rows, steps=self.steps[extra:])


class Ahead(NamedTuple):
    """A prediction: the rows that it has changed, after `shared` ones that it has not."""

    shared: int
    changed: Kept


class Recent(NamedTuple):
    """The law of the state between two single steps, with what it came from.

    Attributes:
        kept: rows up to the last observation, or the last but one prediction.
        ahead: the prediction after them, if an observation may still come to its time.
        owed: what is still to be added to the log-likelihood, for rows that were made again.
    """

    kept: Kept
    ahead: Ahead | None
    owed: float

    @property
    def law(self) -> Law:
        """The law of the state now."""
        return self.kept.law if self.ahead is None else self.ahead.changed.law

    @property
    def error(self) -> float:
        """Estimated total variation error of the law."""
        return self.kept.error if self.ahead is None else self.ahead.changed.error


class Change(NamedTuple):
    """What a step has done; `error` is the difference that it has made."""

    outcome: Outcome
    log_mass: float
    error: float
    code: int


def begin(kit: Kit) -> Recent:
    """The prior."""
    start = robust.start(kit.values, kit.frame, kit.target)
    return Recent(Kept(start, (), (), Pace(), False), None, 0.0)


def predict(kit: Kit, recent: Recent, step: Step, scans: bool) -> tuple[Recent, Change]:
    """A row without an observation, which the next observation may take the place of.

    `scans`: whether the compiled scan can take it.
    """
    kept, mended = _settled(recent)
    rows = _one_more(kit, kept, step, scans)
    pairs = zip(rows.outcomes, kept.outcomes, strict=False)
    same = [one is other for one, other in pairs]
    shared = same.index(False) if False in same else len(same)
    if rows.start is not kept.start:
        shared = 0
    tail = rows._replace(outcomes=rows.outcomes[shared:], steps=rows.steps[shared:])
    change = _change(kit, recent, rows, 0.0)
    return Recent(kept, Ahead(shared, tail), recent.owed + mended), change


def update(kit: Kit, recent: Recent, step: Step) -> tuple[Recent, Change]:
    """An observation: of the time of the last prediction, or one more of the time before it."""
    kept, owed = recent.kept, recent.owed
    predicted = None if recent.ahead is None else recent.ahead.changed.steps[-1]
    if predicted is not None and _equal(predicted.row, step.row):
        step = step._replace(hops=predicted.hops)
    else:
        # Inputs of sensor and transition that differ are two rows.
        kept, mended = _settled(recent)
        owed += mended
    rows = _one_more(kit, kept, step, True)
    owed += _mended(kept, rows)
    if rows.outcomes[-1].law.seen:
        owed += sum(one.log_kept for one in rows.outcomes[kept.told : -1])
    else:
        # A row without data forgives what was lost on the way to it.
        steps = [one._replace(passing=False) for one in rows.steps[kept.told :]]
        rows = rows._replace(steps=(*rows.steps[: kept.told], *steps))
    change = _change(kit, recent, rows, owed)
    return Recent(rows.trimmed(), None, 0.0), change


def _settled(recent: Recent) -> tuple[Kept, float]:
    """Rows with the prediction as one of them, and the difference to log-likelihoods."""
    kept, ahead = recent.kept, recent.ahead
    if ahead is None:
        return kept, 0.0
    shared, changed = ahead
    rows = changed._replace(
        outcomes=kept.outcomes[:shared] + changed.outcomes,
        steps=kept.steps[:shared] + changed.steps,
    )
    return rows.trimmed(), _mended(kept, rows)


def _mended(before: Kept, after: Kept) -> float:
    """By how much parts of the log-likelihood that have been told have changed."""
    changes = [
        new.log_mass - old.log_mass + step.passing * (new.log_kept - old.log_kept)
        for old, new, step in _rows(before, after)[: before.told]
        if new is not old
    ]
    return float(sum(change for change in changes if np.isfinite(change)))


def _rows(before: Kept, after: Kept) -> list[tuple[Outcome, Outcome, Step]]:
    """What rows were, what they are, and their steps."""
    return list(zip(before.outcomes, after.outcomes, before.steps, strict=False))


def _change(kit: Kit, recent: Recent, rows: Kept, mended: float) -> Change:
    last, code = rows.outcomes[-1], rows.outcomes[-1].code
    if code == _results.OK and not rows.error <= kit.plan.tol:
        code = _results.UNRESOLVED
    return Change(last, last.log_mass + mended, rows.error - recent.error, code)


def _one_more(kit: Kit, kept: Kept, step: Step, scans: bool) -> Kept:
    """One more row, within walls that hold it if nobody gave any."""
    held = walls.holding(kit.ssm, [kept.start, *(one.law for one in kept.outcomes)])
    kit = kit if held is kit.ssm else _within(kit, held.state_box)
    rows, first = _row_more(kit, kept, step, scans), kit
    for _ in range(walls.TIMES):
        found = walls.beyond(kit.values, kit.ssm, (rows.law,), kit.target)
        if found is None:
            break
        kit = _within(kit, found.box)
        # Rows before may have lost what this one rests on to the walls that they were made within.
        rows = _anew(kit, kept, step, scans)
    if kit is first:
        return rows
    other = _anew(_within(kit, walls.roomier(kit.ssm.state_box)), kept, step, scans)
    # What other walls change: tails of tails may be too short within both.
    last, change = rows.outcomes[-1], rows.outcomes[-1].log_mass - other.outcomes[-1].log_mass
    sampling = last.law.sampling + float(np.nan_to_num(abs(change)))
    doubtful = last.with_law(last.law._replace(sampling=sampling))
    return rows._replace(outcomes=(*rows.outcomes[:-1], doubtful))


def _within(kit: Kit, box: Box) -> Kit:
    """The same with other walls."""
    ssm = walls.widened(kit.ssm, lambda s: s.state_box, box)
    return kit._replace(ssm=ssm, frame=frame_of(ssm))


def _anew(kit: Kit, kept: Kept, step: Step, scans: bool) -> Kept:
    """All rows that are kept, and one more."""
    start, every = kept.start, (*kept.steps, step)
    if start.source is None:
        start = robust.start(kit.values, kit.frame, kit.target)
    return _passed(kit, _whole(every, scans), Kept(start, (), every, Pace(), kept.fine))


def _row_more(kit: Kit, kept: Kept, step: Step, scans: bool) -> Kept:
    """One more row; all of them anew with smaller errors if it is the first to miss tol."""
    steps = (*kept.steps, step)
    rows = _passed(kit, Series.after(kept.steps, step, scans), kept)._replace(steps=steps)
    if rows.error <= kit.plan.tol or kept.fine or not kept.error <= kit.plan.tol:
        return rows
    start = kept.start
    if start.source is None:
        start = robust.start(kit.values, kit.frame, kit.target / FINER)
    again = _passed(kit, _whole(steps, scans), Kept(start, (), steps, Pace(), True))
    return again if again.error < rows.error else rows


def _whole(steps: tuple[Step, ...], scans: bool) -> Series:
    """Rows as a series, for the scan if inputs are alike."""
    first = jax.tree.structure(steps[0].row)
    if all(jax.tree.structure(step.row) == first for step in steps):
        return Series.of(steps, scans)
    return Series.after(steps[:-1], steps[-1], scans)


def _passed(kit: Kit, series: Series, kept: Kept) -> Kept:
    """A pass through all rows that are not done yet."""
    if kept.fine:
        kit = kit._replace(target=kit.target / FINER)
    past = go_on(kit, series, Past(kept.start, list(kept.outcomes), kept.pace))
    outcomes = tuple(
        one if isinstance(one, Outcome) else one.with_law(one.law) for one in past.outcomes
    )
    return kept._replace(start=past.start, outcomes=outcomes, pace=past.pace)


def _equal(one: object, other: object) -> bool:
    """Whether two rows of inputs are the same."""
    if one is None or other is None:
        return one is other
    if jax.tree.structure(one) != jax.tree.structure(other):
        return False
    pairs = zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True)
    return all(np.array_equal(np.asarray(a), np.asarray(b)) for a, b in pairs)
