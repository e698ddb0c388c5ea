"""A whole series: the compiled scan as far as it goes, robust steps where it misses."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from ... import _results
from ..._statespace.model import Inputs, StateSpaceModel
from . import robust
from .backtrack import robust_step
from .fast import Nodes, Settings, run_fast
from .hosted import LENGTHS, Outcome, Series
from .known import known_values
from .reach import Frame, frame_of
from .rules import scan_rule
from .scanned import Laws, Scanned, Stretch, summaries
from .state import Law, evaluate
from .tables import CompiledValues, Values
from .trace import AdaptivePlan, AdaptiveTrace

# Robust steps before the scan is tried again: doubled each time that it fails at once.
_FIRST_CHUNK, _LAST_CHUNK = 2, 64
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
    values, frame = known_values(ssm), frame_of(ssm)
    best = None
    for attempt in range(_RUNS):
        target = plan.tol / (plan.share * 8.0**attempt)
        start, outcomes = _pass(values, frame, plan, series, target)
        worst = float(np.max(summaries(outcomes).errors))
        if best is None or worst < best[0]:
            best = (worst, start, outcomes)
        if worst <= plan.tol or (worst > 0.5 * best[0] and attempt > 0):
            break
    assert best is not None
    return _trace(plan, series, best[1], best[2])


def _pass(
    values: Values, frame: Frame, plan: AdaptivePlan, series: Series, target: float
) -> tuple[Law, list[Outcome | Scanned]]:
    """All steps with errors of `target` each."""
    law = start = robust.start(values, frame, target)
    outcomes: list[Outcome | Scanned] = []
    chunk, level, num = _FIRST_CHUNK, 0, len(series.ys)
    while len(outcomes) < num:
        first = len(outcomes)
        stop = min(series.stretch(first), first + LENGTHS[-1])
        if isinstance(values, CompiledValues) and stop > first and law.nodes.size > 1:
            aim = plan.capacities[level], target
            outcomes += _fast_stretch(values, frame, plan, Part(series, first, stop), law, aim)
            law = outcomes[-1].law if outcomes else law
            if len(outcomes) == stop:
                continue
            if level + 1 < len(plan.capacities):
                level += 1
                continue
            chunk = _FIRST_CHUNK if len(outcomes) - first > chunk else min(2 * chunk, _LAST_CHUNK)
            level = 0
        if len(outcomes) < num and outcomes and not outcomes[-1].law.has_panels:
            # Nodes of the scan cannot be refined: the last step is made again.
            outcomes.pop()
        for _ in range(min(chunk, num - len(outcomes))):
            start = robust_step(values, frame, series, (start, outcomes), target)
        law = outcomes[-1].law if outcomes else start
    return start, outcomes


class Part(NamedTuple):
    """Rows of a series that come one transition apart."""

    series: Series
    first: int
    stop: int


def _fast_stretch(
    values: CompiledValues,
    frame: Frame,
    plan: AdaptivePlan,
    part: Part,
    law: Law,
    aim: tuple[int, float],
) -> list[Scanned]:
    """Steps of the compiled scan from a law on, up to the first that misses.

    `aim` are the nodes of the scan, and the error of a step.
    """
    (series, first, stop), (capacity, target) = part, aim
    bounded = bool(np.isfinite(frame.lower) or np.isfinite(frame.upper))
    nodes = _on_scan(values, law, capacity, target, bounded)
    if nodes is None:
        return []
    settings = Settings(
        jnp.asarray(frame.lower),
        jnp.asarray(frame.upper),
        jnp.asarray(3.0 + np.sqrt(2 * np.log(10 / target))),
        jnp.asarray(np.log(1e4 / target)),
        jnp.asarray(2 * target),
        jnp.asarray(plan.tol),
    )
    outs = run_fast(values.parts, nodes, series.padded(first, stop), settings, bounded)
    outs = jax.tree.map(np.asarray, outs)
    good = outs.good[: stop - first]
    count = len(good) if good.all() else int(np.argmin(good))
    stretch = Stretch(outs, nodes, frame, series, first, target)
    return [Scanned(stretch, k) for k in range(count)]


def _carry(x: np.ndarray, log_v: np.ndarray, carried: np.ndarray) -> Nodes:
    return Nodes(jnp.asarray(x), jnp.asarray(log_v), jnp.asarray(carried))


def _on_scan(values: Values, law: Law, num: int, target: float, bounded: bool) -> Nodes | None:
    """A law on the nodes of the scan; None if they do not hold it."""
    rule = scan_rule(num, bounded)
    if not law.has_panels and len(law.nodes) == num:
        return _carry(law.nodes, law.log_masses, law.ratios[2])
    low, high = law.nodes[0], law.nodes[-1]
    if law.has_panels:
        low, high = law.lower[0], law.upper[-1]
    width = high - low
    x = low + width * rule.nodes
    logs, carried = evaluate(values, law, x)
    masses = rule.weights[0] * width * np.exp(logs)
    total = float(np.sum(masses))
    if not abs(total - 1) < 4 * target:
        return None
    with np.errstate(divide="ignore"):
        return _carry(x, np.log(masses / total), carried)


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
