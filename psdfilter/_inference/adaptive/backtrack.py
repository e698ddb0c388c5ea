"""Observations that need what was left out before: steps made again, with wider windows.

A law keeps what has mass. An observation far from what was predicted makes the far tail of the law
before it the place where the state must have been, and the tails of the laws before that one. How
far back is seen by the smoothed masses: where they pile up at the ends of a law's nodes, something
is missing beyond.
"""

from collections.abc import Callable

import numpy as np

from ... import _results
from . import robust
from .dropped import left_out
from .hosted import Outcome, Step, one_step
from .reach import Frame
from .scanned import Scanned
from .state import Law, at_one_time
from .tables import Source, Values

# Steps back. A filter that still needs what was 64 steps ago has hardly forgotten anything.
DEPTH = 64
# Times that windows are widened, and by how much of themselves.
_WIDER, _MORE = 12, 0.75
# Levels looked at behind the last one that misses something, and repairs of tails without ends.
_FURTHER, _TRIES = 3, 1
# The step of each row, counted as outcomes are.
StepOf = Callable[[int], Step]
# Growth of the inherited error in one step that calls for better tails.
_JUMP = 4.0


def end_mass(law: Law, frame: Frame, smoothed: np.ndarray) -> np.ndarray:
    """Smoothed mass that may lie beyond the ends of a law's nodes, left and right."""
    beyond = law.ends(frame) * smoothed
    left = law.nodes < float(law.masses @ law.nodes)
    return np.array([np.sum(beyond[left]), np.sum(beyond[~left])])


def missing_behind(
    values: Values, frame: Frame, laws: list[Law], target: float, further: int
) -> list[np.ndarray]:
    """Masses that the laws before the last one lack, latest first: beyond ends, and in gaps.

    Ends `further` transitions behind the last that is larger than `target`. Of laws at one time
    only the last is what a transition starts from: nothing that others lack is missing.
    """
    out: list[np.ndarray] = []
    law, omega = laws[-1], laws[-1].masses
    crossed = last = 0
    for before in laws[-2::-1]:
        if at_one_time(law, before):
            out.append(np.zeros(2))
            continue
        if law.source is None:
            break
        source = _source(law.source, before)
        lacking = _lacking(values, before, source, law.nodes, omega)
        omega = values.pull(source, law.nodes, omega)
        out.append(end_mass(before, frame, omega) + lacking)
        law, crossed = before, crossed + 1
        last = crossed if np.sum(out[-1]) > target else last
        if crossed >= last + further:
            break
    return out


def _lacking(
    values: Values, before: Law, source: Source, x: np.ndarray, omega: np.ndarray
) -> np.ndarray:
    """Mass that a law has dropped and that one after it, with masses `omega` at x, rests on."""
    if before.idle is None or len(before.idle.nodes) == 0:
        return np.zeros(2)
    log_p = values.push(source, x).log_p
    return left_out(values, before.idle, source, x, log_p).sides(omega)


def _source(source: Source, before: Law) -> Source:
    """The measure before a transition, on the nodes that its law has now.

    The scan starts on nodes of its own, and a law may have been refined for a later step.
    """
    if np.array_equal(source.nodes, before.nodes):
        return source
    alike = np.ones((4, len(before.nodes)))  # backward sums look at no other rule
    return Source(before.nodes, before.log_masses, alike, None, source.t, source.row)


def robust_step(
    values: Values,
    frame: Frame,
    step_of: StepOf,
    done: tuple[Law, list[Outcome | Scanned]],
    target: float,
) -> Law:
    """One more step, and those before it again if it needs their tails; the start, refined."""
    start, outcomes = done
    wanted = robust.Wanted(target)
    start = _append(values, frame, step_of, (start, outcomes), wanted)
    further = 1
    for widening in range(_WIDER):
        laws = [start, *(o.law for o in outcomes)][-DEPTH:]
        missing = missing_behind(values, frame, laws, target, further)
        # Where tails were made again, those before them may be what is short now.
        further = max(further, len(missing) + 1)
        short = any(float(np.sum(one)) > target for one in missing)
        if not short and (widening > _TRIES or not _jumps(laws, target)):
            return start
        last, kept = outcomes[-1], (start, list(outcomes))
        if widening == _WIDER - 1:
            sampling = last.law.sampling + float(np.sum(missing))
            outcomes[-1] = last.with_law(last.law._replace(sampling=sampling))
            return start
        start = _again(values, frame, step_of, (start, outcomes), wanted, further)
        if not short and outcomes[-1].law.error > last.law.error:
            # Tails that are all kinks come out worse on wider windows: what was there stays.
            start, outcomes[:] = kept
            return start
    return start


def _again(
    values: Values,
    frame: Frame,
    step_of: StepOf,
    done: tuple[Law, list[Outcome | Scanned]],
    wanted: robust.Wanted,
    further: int,
) -> Law:
    """The last step, and as many before it as matter to it, made again with wider windows."""
    start, outcomes = done
    index = len(outcomes) - 1
    laws = [start, *(o.law for o in outcomes)][-DEPTH:]
    missing = missing_behind(values, frame, laws, wanted.target, max(further, _FURTHER))
    depth = min(index, max(len(missing), 2))
    while depth < index and step_of(index - depth).hops == 0:
        depth += 1  # sensors at one time are made again together
    # Laws behind those that were looked at keep their hull.
    missing = [*missing, *([np.zeros(2)] * (depth + 1 - len(missing)))]
    covers = [
        _wider(o.law, missing[index - 1 - k] > wanted.target)
        for k, o in enumerate(outcomes[:index])
        if k >= index - depth
    ]
    del outcomes[index - depth :]
    if depth == index and start.has_panels and start.source is None:
        cover = _wider(start, missing[min(depth, len(missing) - 1)] > wanted.target)
        start = robust.start(values, frame, wanted.target, cover)
    for cover in [*covers, None]:
        start = _append(values, frame, step_of, (start, outcomes), wanted._replace(cover=cover))
    return start


def _jumps(laws: list[Law], target: float) -> bool:
    """Whether errors of a tail became errors of the whole, as the law moved there."""
    passed = laws[-1].error - laws[-1].local
    return len(laws) > 1 and passed > _JUMP * (laws[-2].error + target)


def _wider(law: Law, sides: np.ndarray) -> tuple[float, float]:
    """The hull of a law's nodes, and past it by half of it on the sides that need it.

    The hull stays: an earlier observation may have needed all of it.
    """
    low, high = float(law.nodes[0]), float(law.nodes[-1])
    more = _MORE * (high - low)
    return low - more if sides[0] else low, high + more if sides[1] else high


def _append(
    values: Values,
    frame: Frame,
    step_of: StepOf,
    done: tuple[Law, list[Outcome | Scanned]],
    wanted: robust.Wanted,
) -> Law:
    start, outcomes = done
    index = len(outcomes)
    step = step_of(index)
    law = outcomes[-1].law if outcomes else start
    refined, outcome = one_step(values, frame, law, step, wanted)
    place = index
    if step.hops == 0 and outcome.law is not law:
        first = _first_at(step_of, index)
        if first is not None and (outcome.law.local > wanted.target or wanted.cover is not None):
            # What the transition started from was good enough for the sensors before only.
            place, before = first, outcomes[first - 1].law if first > 0 else start
            at = step_of(first)
            finer, new = robust.advance(
                values, frame, before, (at.t, at.row), outcome.law.seen, wanted
            )
            refined = before
            if new.code == _results.OK:
                refined, log_mass = finer, new.log_norm - law.log_norm
                outcome = outcome._replace(law=new, log_mass=log_mass)
    if place > 0:
        outcomes[place - 1] = outcomes[place - 1].with_law(refined)
    else:
        start = refined
    outcomes.append(outcome)
    return start


def _first_at(step_of: StepOf, index: int) -> int | None:
    """The row whose transition led to the time of this one; None if there is none."""
    while index > 0 and step_of(index).hops == 0:
        index -= 1
    return index if step_of(index).hops > 0 else None
