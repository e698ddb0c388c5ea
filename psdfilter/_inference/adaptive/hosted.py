"""Whole series by robust steps, one after the other, on the host."""

from typing import NamedTuple

import numpy as np

from ... import _results
from ..._statespace.model import Inputs
from . import robust
from .reach import Frame
from .state import Law
from .tables import Seen, Values


class Step(NamedTuple):
    """Time, transitions before it, inputs and observation of one row of a series."""

    t: int
    hops: int
    row: Inputs
    y: np.ndarray


class Outcome(NamedTuple):
    """The law after a step, and what was learned of it."""

    law: Law
    log_mass: float  # log Z; zero if nothing was seen
    log_kept: float  # log of the predicted mass on the support
    code: int


def usable(y: np.ndarray) -> int:
    """OK, or BAD_OBSERVATION for infinities."""
    return _results.BAD_OBSERVATION if bool(np.any(np.isinf(y))) else _results.OK


def one_step(
    values: Values, frame: Frame, law: Law, step: Step, target: float
) -> tuple[Law, Outcome]:
    """The old law, refined, and the new one."""
    code = usable(step.y)
    missing = code != _results.OK or bool(np.all(np.isnan(step.y)))
    seen = () if missing else (Seen(step.y, step.t, step.row),)
    log_kept, old, before = 0.0, law, law
    for hop in range(step.hops):
        at = (step.t - step.hops + 1 + hop, step.row)
        last = hop == step.hops - 1
        refined, law = robust.advance(values, frame, law, at, seen if last else (), target)
        before = refined if hop == 0 else before
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
        _, free = one_step(values, frame, old, step._replace(y=np.full(1, np.nan)), target)
        return before, free._replace(log_mass=-np.inf, code=_results.NO_MASS)
    if missing:
        log_kept = law.log_norm + log_kept if step.hops > 0 else 0.0
        log_mass = 0.0
    return before, Outcome(law, log_mass, log_kept, code)
