"""A whole series: the compiled scan as far as it goes, robust steps where it misses."""

import jax
import jax.numpy as jnp
import numpy as np

from ... import _results
from ..._statespace.model import Inputs, StateSpaceModel
from . import robust
from .backtrack import robust_step
from .fast import Nodes, Outs, Settings, run_fast
from .hosted import LENGTHS, Outcome, Series, Step, usable
from .reach import Frame, frame_of
from .rules import equispaced
from .state import Law, evaluate
from .tables import CompiledValues, Seen, Values, values_of
from .trace import AdaptivePlan, AdaptiveTrace

# Robust steps before the scan is tried again: doubled each time that it fails at once.
_FIRST_CHUNK, _LAST_CHUNK = 2, 64
# Runs with a smaller share of tol for each step, if errors add up to more than tol.
_RUNS = 3


def make_plan(ssm: StateSpaceModel, tol: float) -> AdaptivePlan:
    """Sizes from the tolerance; refusals that can be known beforehand."""
    if ssm.dim != 1:
        raise ValueError(f"the adaptive engine serves one coordinate, got {ssm.dim}")
    if not 1e-10 <= tol < 1:
        raise ValueError(f"tol must lie in [1e-10, 1), got {tol}")
    form = ssm.structure
    if form is not None and float(form.Q[0, 0]) <= 0:
        raise ValueError("Q must be positive: a state that moves without noise has no density")
    # Equispaced nodes over +-6 to 8 sds: spacing for tol with a quarter of them as third level.
    capacity = 65 if tol >= 5e-3 else 97 if tol >= 5e-5 else 129
    return AdaptivePlan(float(tol), 16.0, capacity)


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
    values, frame = values_of(ssm), frame_of(ssm)
    best = None
    for attempt in range(_RUNS):
        target = plan.tol / (plan.share * 8.0**attempt)
        start, outcomes = _pass(values, frame, plan, series, target)
        worst = max(o.law.error + o.law.sampling for o in outcomes)
        if best is None or worst < best[0]:
            best = (worst, start, outcomes)
        if worst <= plan.tol or (worst > 0.5 * best[0] and attempt > 0):
            break
    assert best is not None
    return _trace(plan, series, best[1], best[2])


def _pass(
    values: Values, frame: Frame, plan: AdaptivePlan, series: Series, target: float
) -> tuple[Law, list[Outcome]]:
    """All steps with errors of `target` each."""
    law = start = robust.start(values, frame, target)
    outcomes: list[Outcome] = []
    chunk = _FIRST_CHUNK
    num = len(series.ys)
    while len(outcomes) < num:
        first = len(outcomes)
        if (
            isinstance(values, CompiledValues)
            and series.stretch(first) > first
            and law.nodes.size > 1
        ):
            done = _fast_stretch(values, frame, plan, series, (first, law), target)
            outcomes += done
            law = outcomes[-1].law if outcomes else law
            chunk = _FIRST_CHUNK if len(done) > chunk else min(2 * chunk, _LAST_CHUNK)
        if len(outcomes) < num and outcomes and not outcomes[-1].law.has_panels:
            # Nodes of the scan cannot be refined: the last step is made again.
            outcomes.pop()
        for _ in range(min(chunk, num - len(outcomes))):
            start = robust_step(values, frame, series, (start, outcomes), target)
        law = outcomes[-1].law if outcomes else start
    return start, outcomes


def _fast_stretch(
    values: CompiledValues,
    frame: Frame,
    plan: AdaptivePlan,
    series: Series,
    place: tuple[int, Law],
    target: float,
) -> list[Outcome]:
    """Steps of the compiled scan from a law on, up to the first that misses."""
    first, law = place
    stop = min(series.stretch(first), first + LENGTHS[-1])
    nodes = _equispaced(values, law, plan.capacity, target)
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
    outs = run_fast(values.parts, nodes, series.padded(first, stop), settings)
    outs = jax.tree.map(np.asarray, outs)
    good = outs.good[: stop - first]
    count = len(good) if good.all() else int(np.argmin(good))
    laws: list[Outcome] = []
    before = Law(
        None,
        (),
        0.0,
        np.asarray(nodes.x),
        np.asarray(nodes.log_v),
        np.concatenate([_levels(plan.capacity), np.asarray(nodes.carried)[None]]),
        np.zeros(0),
        np.zeros(0),
        0.0,
        law.error,
        0.0,
        0.0,
        _results.OK,
        target,
    )
    for k in range(count):
        outcome = _outcome(outs, k, before, series.step(first + k), (target, frame))
        laws.append(outcome)
        before = outcome.law
    return laws


def _levels(num: int) -> np.ndarray:
    weights = equispaced(num)
    return weights[1:] / weights[:1]


def _outcome(outs: Outs, k: int, before: Law, step: Step, held: tuple[float, Frame]) -> Outcome:
    """A step of the scan as a law."""
    target, frame = held
    code = usable(step.y)
    missing = code != _results.OK or bool(np.all(np.isnan(step.y)))
    seen = () if missing else (Seen(step.y, step.t, step.row),)
    none = np.zeros(0)
    log_masses = np.asarray(outs.nodes.log_v[k])
    law = Law(
        before.as_source(step.t, step.row, target, frame),
        seen,
        float(outs.log_norm[k]),
        np.asarray(outs.nodes.x[k]),
        log_masses,
        np.concatenate([_levels(len(log_masses)), outs.nodes.carried[k][None]]),
        none,
        none,
        float(outs.offset[k]),
        float(outs.error[k]),
        float(outs.local[k]),
        float(outs.sampling[k] + outs.edge[k]),
        _results.OK,
        target,
    )
    log_norm = float(outs.log_norm[k])
    return Outcome(law, 0.0 if missing else log_norm, log_norm if missing else 0.0, code)


def _carry(x: np.ndarray, log_v: np.ndarray, carried: np.ndarray) -> Nodes:
    return Nodes(jnp.asarray(x), jnp.asarray(log_v), jnp.asarray(carried))


def _equispaced(values: Values, law: Law, num: int, target: float) -> Nodes | None:
    """A law on equispaced nodes; None if they do not hold it."""
    weights = equispaced(num)
    if not law.has_panels and len(law.nodes) == num:
        return _carry(law.nodes, law.log_masses, law.ratios[2])
    if not law.has_panels:
        return None
    x = np.linspace(law.lower[0], law.upper[-1], num)
    logs, carried = evaluate(values, law, x)
    masses = weights[0] * (x[1] - x[0]) * np.exp(logs)
    total = float(np.sum(masses))
    if not abs(total - 1) < 4 * target:
        return None
    with np.errstate(divide="ignore"):
        return _carry(x, np.log(masses / total), carried)


def _trace(
    plan: AdaptivePlan, series: Series, start: Law, outcomes: list[Outcome]
) -> AdaptiveTrace:
    most = max(len(o.law.nodes) for o in outcomes)
    num = len(outcomes)
    nodes, masses = np.zeros((num, most)), np.zeros((num, most))
    for k, o in enumerate(outcomes):
        nodes[k, : len(o.law.nodes)] = o.law.nodes
        nodes[k, len(o.law.nodes) :] = o.law.nodes[-1]
        masses[k, : len(o.law.nodes)] = o.law.masses
    errors = np.array([o.law.error + o.law.sampling for o in outcomes])
    codes = np.array([o.code for o in outcomes])
    codes = np.where((codes == _results.OK) & ~(errors <= plan.tol), _results.UNRESOLVED, codes)
    mean = np.sum(nodes * masses, axis=1)
    variance = np.sum(np.square(nodes - mean[:, None]) * masses, axis=1)
    return AdaptiveTrace(
        nodes[:, :, None],
        masses,
        np.array([o.log_mass for o in outcomes]),
        np.array([o.log_kept for o in outcomes]),
        errors,
        np.array([o.law.local + o.law.sampling for o in outcomes]),
        codes,
        mean[:, None],
        variance[:, None, None],
        series.times,
        series.hops,
        series.rows,
        start,
        tuple(o.law for o in outcomes),
    )
