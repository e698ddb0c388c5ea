"""Single steps, as observations come: the same numbers as robust steps of a batch."""

from typing import NamedTuple

import numpy as np

from ..._statespace.model import Inputs, StateSpaceModel
from . import robust
from .hosted import Outcome, Step, one_step
from .reach import frame_of
from .state import Law
from .tables import values_of
from .trace import AdaptivePlan


class Online(NamedTuple):
    """The law of now, the time, and the log-likelihood so far."""

    law: Law
    t: int
    log_likelihood: float


def start(ssm: StateSpaceModel, plan: AdaptivePlan) -> Online:
    """The prior, at time zero."""
    law = robust.start(values_of(ssm), frame_of(ssm), plan.tol / plan.share)
    return Online(law, 0, 0.0)


def predict(ssm: StateSpaceModel, plan: AdaptivePlan, state: Online, row: Inputs = None) -> Online:
    """p(x') = sum_m v_m Q(u_m, x'), one transition on."""
    step = Step(state.t + 1, 1, row, np.full(1, np.nan))
    outcome = _made(ssm, plan, state, step)
    return Online(outcome.law, state.t + 1, state.log_likelihood)


def update(
    ssm: StateSpaceModel, plan: AdaptivePlan, state: Online, y: np.ndarray, row: Inputs = None
) -> tuple[Online, Outcome]:
    """p(x) G(x, y) / Z at the time that has been reached."""
    seen = np.atleast_1d(np.asarray(y, dtype=float))
    outcome = _made(ssm, plan, state, Step(state.t, 0, row, seen))
    return Online(outcome.law, state.t, state.log_likelihood + outcome.log_mass), outcome


def _made(ssm: StateSpaceModel, plan: AdaptivePlan, state: Online, step: Step) -> Outcome:
    wanted = robust.Wanted(plan.tol / plan.share)
    return one_step(values_of(ssm), frame_of(ssm), state.law, step, wanted)[1]
