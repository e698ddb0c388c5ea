"""Observations that need what was left out before: steps made again, with wider windows.

A law keeps what has mass. An observation far from what was predicted makes the far tail of the law
before it the place where the state must have been, and the tails of the laws before that one. How
far back is seen by the smoothed masses: where they pile up at the ends of a law's nodes, something
is missing beyond.
"""

import numpy as np

from . import robust
from .hosted import Outcome, Series, one_step
from .reach import Frame
from .scanned import Scanned
from .state import Law
from .tables import Values

# Steps back, times that windows are widened, and by how much of themselves.
_DEPTH, _WIDER, _MORE = 64, 12, 0.75
# Levels looked at behind the last one that misses something, and repairs of tails without ends.
_FURTHER, _TRIES = 3, 1
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
    """End masses of the laws before the last one, latest first.

    Ends `further` levels behind the last that is larger than `target`.
    """
    out: list[np.ndarray] = []
    omega, last = laws[-1].masses, 0
    for law, before in zip(laws[:0:-1], laws[-2::-1], strict=True):
        if law.source is None or len(law.source.nodes) != len(before.nodes):
            break
        omega = values.pull(law.source, law.nodes, omega)
        out.append(end_mass(before, frame, omega))
        last = len(out) if np.sum(out[-1]) > target else last
        if len(out) >= last + further:
            break
    return out


def robust_step(
    values: Values,
    frame: Frame,
    series: Series,
    done: tuple[Law, list[Outcome | Scanned]],
    target: float,
) -> Law:
    """One more step, and those before it again if it needs their tails; the start, refined."""
    start, outcomes = done
    wanted = robust.Wanted(target)
    start = _append(values, frame, series, (start, outcomes), wanted)
    for widening in range(_WIDER):
        laws = [start, *(o.law for o in outcomes)][-_DEPTH:]
        missing = missing_behind(values, frame, laws, target, 1)
        short = bool(missing) and float(np.sum(missing[0])) > target
        if not short and (widening > _TRIES or not _jumps(laws, target)):
            return start
        last = outcomes[-1]
        if widening == _WIDER - 1:
            sampling = last.law.sampling + float(np.sum(missing))
            outcomes[-1] = last.with_law(last.law._replace(sampling=sampling))
            return start
        start = _again(values, frame, series, (start, outcomes), wanted)
    return start


def _again(
    values: Values,
    frame: Frame,
    series: Series,
    done: tuple[Law, list[Outcome | Scanned]],
    wanted: robust.Wanted,
) -> Law:
    """The last step, and as many before it as matter to it, made again with wider windows."""
    start, outcomes = done
    index = len(outcomes) - 1
    laws = [start, *(o.law for o in outcomes)][-_DEPTH:]
    missing = missing_behind(values, frame, laws, wanted.target, _FURTHER)
    depth = min(index, max(len(missing), 2))
    # Laws behind those that were looked at keep their hull.
    missing = [*missing, *([np.zeros(2)] * (depth + 1 - len(missing)))]
    covers = [
        _wider(o.law, missing[index - 1 - k] > wanted.target)
        for k, o in enumerate(outcomes[:index])
        if k >= index - depth
    ]
    del outcomes[index - depth :]
    if depth == index and start.has_panels:
        cover = _wider(start, missing[min(depth, len(missing) - 1)] > wanted.target)
        start = robust.start(values, frame, wanted.target, cover)
    for cover in [*covers, None]:
        start = _append(values, frame, series, (start, outcomes), wanted._replace(cover=cover))
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
    series: Series,
    done: tuple[Law, list[Outcome | Scanned]],
    wanted: robust.Wanted,
) -> Law:
    start, outcomes = done
    law = outcomes[-1].law if outcomes else start
    refined, outcome = one_step(values, frame, law, series.step(len(outcomes)), wanted)
    if outcomes:
        outcomes[-1] = outcomes[-1].with_law(refined)
    else:
        start = refined
    outcomes.append(outcome)
    return start
