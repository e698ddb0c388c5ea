"""A whole series: passes through its rows, with smaller errors of a step if they add up."""

import numpy as np

from ... import _results
from ..._statespace.model import Inputs, StateSpaceModel
from . import robust
from .hosted import Outcome, Series
from .known import known_frame, known_values
from .passes import Kit, Past, go_on
from .plan import FINER
from .scanned import Laws, Scanned, summaries
from .state import Law
from .trace import AdaptivePlan, AdaptiveTrace

# Runs with a smaller share of tol for each step, if errors add up to more than tol.
_RUNS = 3


def run(
    ssm: StateSpaceModel,
    plan: AdaptivePlan,
    ys: np.ndarray,
    steps: np.ndarray,
    hops: np.ndarray,
    rows: Inputs = None,
) -> AdaptiveTrace:
    """Filter a concrete series; what misses after all repairs has a code and an honest estimate."""
    series = Series(np.asarray(ys, dtype=float), np.asarray(steps), np.asarray(hops), rows)
    values, frame, single = known_values(ssm), known_frame(ssm), series.unfolded()
    best = None
    for attempt in range(_RUNS):
        target = plan.tol / (plan.share * FINER**attempt)
        prior = robust.start(values, frame, target)
        past = go_on(Kit(ssm, values, frame, plan, target), single, Past(prior, []))
        start, outcomes = past.start, _folded(series, past.outcomes)
        worst = float(np.max(summaries(outcomes).errors))
        stuck = best is not None and worst > 0.5 * best[0]
        if best is None or worst < best[0]:
            best = (worst, start, outcomes)
        if worst <= plan.tol or stuck:
            break
    assert best is not None
    return _trace(plan, series, best[1], best[2])


def _folded(series: Series, outcomes: list[Outcome | Scanned]) -> list[Outcome | Scanned]:
    """Outcomes of the rows of a series, from those of its single transitions."""
    times = np.maximum(series.hops, 1)
    if np.all(times == 1):
        return outcomes
    out: list[Outcome | Scanned] = []
    for end, num in zip(np.cumsum(times), times, strict=True):
        out.append(outcomes[end - 1] if num == 1 else _as_one(outcomes[end - num : end]))
    return out


def _as_one(outcomes: list[Outcome | Scanned]) -> Outcome:
    """Several transitions before one observation; mass lost on the way is part of log Z."""
    parts = [one.with_law(one.law) for one in outcomes]
    law = parts[0].law
    for part in parts[1:]:
        law = part.law._replace(before=law)
    last, lost = parts[-1], sum(part.log_kept for part in parts[:-1])
    code = next((part.code for part in parts if part.code != _results.OK), _results.OK)
    log_mass = last.log_mass + (lost if last.law.seen else 0.0)
    return Outcome(law, log_mass, last.log_kept + lost, code)


def _trace(
    plan: AdaptivePlan, series: Series, start: Law, outcomes: list[Outcome | Scanned]
) -> AdaptiveTrace:
    summary = summaries(outcomes)
    errors, codes = summary.errors, summary.codes
    codes = np.where((codes == _results.OK) & ~(errors <= plan.tol), _results.UNRESOLVED, codes)
    return AdaptiveTrace(
        summary.log_masses,
        summary.log_kept,
        errors,
        codes,
        summary.mean[:, None],
        summary.variance[:, None, None],
        series.times,
        series.hops,
        series.rows,
        start,
        Laws(outcomes),
    )
