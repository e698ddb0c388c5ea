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
from .rules import PANEL
from .scanned import Scanned
from .state import Law
from .tables import Values

# Steps back, and times that windows are widened, twofold each time.
_DEPTH, _WIDER = 64, 9
# Mass beyond an end over that of the outermost three nodes of a panel, a tenth of it, for a density
# that falls within half a panel.
_BEYOND = 5.0
_OUTER = 3
# Growth of the inherited error in one step that calls for better tails.
_JUMP = 4.0


def end_mass(law: Law, frame: Frame, smoothed: np.ndarray) -> np.ndarray:
    """Smoothed mass that may lie beyond the ends of a law's nodes, left and right."""
    if len(law.nodes) == 1:
        return np.zeros(2)
    if not law.has_panels:
        return _BEYOND * np.array([np.sum(smoothed[:_OUTER]), np.sum(smoothed[-_OUTER:])])
    groups = smoothed.reshape(-1, PANEL)
    tiny = 1e-9 * (law.upper[-1] - law.lower[0])
    left = np.concatenate(
        [[law.lower[0] > frame.lower + tiny], law.lower[1:] > law.upper[:-1] + tiny]
    )
    right = np.concatenate([left[1:], [law.upper[-1] < frame.upper - tiny]])
    low, high = groups[:, :_OUTER].sum(1), groups[:, -_OUTER:].sum(1)
    return _BEYOND * np.array([np.sum(low[left]), np.sum(high[right])])


def missing_behind(
    values: Values, frame: Frame, laws: list[Law], target: float
) -> list[np.ndarray]:
    """End masses of the laws before the last one, latest first, until one is small enough."""
    out: list[np.ndarray] = []
    omega = laws[-1].masses
    for law, before in zip(laws[:0:-1], laws[-2::-1], strict=True):
        if law.source is None or len(law.source.nodes) != len(before.nodes):
            break
        omega = values.pull(law.source, law.nodes, omega)
        out.append(end_mass(before, frame, omega))
        if np.sum(out[-1]) <= target or len(out) == _DEPTH:
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
    index = len(outcomes)
    wanted = robust.Wanted(target)
    start = _append(values, frame, series, (start, outcomes), wanted)
    for widening in range(_WIDER):
        laws = [start, *(o.law for o in outcomes[max(0, index - _DEPTH) :])]
        laws = laws if index < _DEPTH else laws[1:]
        missing = missing_behind(values, frame, laws, target)
        last = outcomes[-1]
        short = bool(missing) and float(np.sum(missing[0])) > target
        if not short and (widening > 0 or not _jumps(laws, target)):
            return start
        sampling = last.law.sampling + float(np.sum(missing))
        if widening == _WIDER - 1:
            outcomes[-1] = last.with_law(last.law._replace(sampling=sampling))
            return start
        depth = min(index, len(missing) + 1 + widening)
        sides = missing[0] > max(target, 0.1 * np.max(missing[0])) if missing else np.zeros(2, bool)
        covers = [_wider(o.law, widening, sides) for o in outcomes[index - depth : index]]
        if depth == 0:
            covers = []
        del outcomes[index - depth :]
        if index == depth:
            start = _wide_start(values, frame, start, target, _wider(start, widening, sides))
        for cover in [*covers, None]:
            start = _append(values, frame, series, (start, outcomes), wanted._replace(cover=cover))
    return start


def _jumps(laws: list[Law], target: float) -> bool:
    """Whether errors of a tail became errors of the whole, as the law moved there."""
    passed = laws[-1].error - laws[-1].local
    return len(laws) > 1 and passed > _JUMP * (laws[-2].error + target)


def _wider(law: Law, widening: int, sides: np.ndarray) -> tuple[float, float]:
    """The hull of a law's nodes, and past it on the sides that need it.

    The hull stays: an earlier observation may have needed all of it.
    """
    low, high = float(law.nodes[0]), float(law.nodes[-1])
    more = (0.5 if widening == 0 else 1.0) * (high - low)
    return low - more if sides[0] else low, high + more if sides[1] else high


def _wide_start(
    values: Values, frame: Frame, start: Law, target: float, cover: tuple[float, float]
) -> Law:
    return robust.start(values, frame, target, cover) if start.has_panels else start


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
