"""Panels: intervals with a nested rule each, halved where a density is not resolved.

What is resolved is exp(log f) for a function that can be evaluated anywhere. Its logarithm tells
where mass can be even where the values underflow: panels that may hide a peak are halved, those
that cannot matter are dropped.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from .rules import PANEL, embedded_error, end_rows, margin_errors, patterson
from .tables import Idle

# log f at points (m,), and companions (4, m) that are kept with it: sums by two coarser rules, and
# errors, inherited and of what may be missing, all relative to f.
Field = Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]]

# An interval where a law must be right relative to itself, however little mass is there: an
# observation to come may make it the place where everything is.
Cover = tuple[float, float] | None

MOST_PANELS = 256
# Rounds of halving: 4^-32 of the first panels is below what float64 tells apart.
_ROUNDS = 32
# A panel whose logs jump by more between neighbouring nodes may hide a peak between them.
_STEEP = 4.0
# Nats below the highest value beyond which nothing counts while no panel is resolved yet.
_FAR = 60.0
# Share of the target that everything dropped may have together: what rests on it is looked at.
DROPPED_PANELS = 1e-4
# Panels that are dropped and yet looked at.
_MOST_IDLE = 64


class Panels(NamedTuple):
    """Resolved panels of f, in order."""

    lower: np.ndarray  # (k,)
    upper: np.ndarray
    logs: np.ndarray  # (k, PANEL)
    extras: np.ndarray  # (k, e, PANEL)
    log_total: float  # log int f; -inf if nothing was found
    errors: np.ndarray  # (k,) of int f over each panel, as shares of the whole
    dropped: float  # share of what was left out, at most
    idle: Idle  # what was left out, as coarse as it was

    @property
    def nodes(self) -> np.ndarray:
        """All nodes, (k PANEL,)."""
        return nodes_of(self.lower, self.upper).reshape(-1)

    @property
    def log_masses(self) -> np.ndarray:
        """log w f / int f at the nodes."""
        half = 0.5 * (self.upper - self.lower)
        weights = half[:, None] * patterson().weights[0][None, :]
        return (np.log(weights) + self.logs - self.log_total).reshape(-1)

    @property
    def masses(self) -> np.ndarray:
        """w f / int f at the nodes, of sum one."""
        return np.exp(self.log_masses)

    @property
    def flat_extras(self) -> np.ndarray:
        """Companions at the nodes, (e, k PANEL)."""
        return np.moveaxis(self.extras, 1, 0).reshape(self.extras.shape[1], -1)


def nodes_of(lower: np.ndarray, upper: np.ndarray) -> np.ndarray:
    """Nodes of panels, (k, PANEL)."""
    center, half = 0.5 * (lower + upper), 0.5 * (upper - lower)
    return center[:, None] + half[:, None] * patterson().nodes[None, :]


def level_ratios(num: int) -> np.ndarray:
    """Weights of the coarser rules over those of the fine one, (2, num PANEL)."""
    weights = patterson().weights
    return np.tile(weights[1:] / weights[:1], (1, num))


def covered(cover: Cover, x: np.ndarray) -> np.ndarray:
    """Which points lie in the cover."""
    if cover is None:
        return np.zeros(len(x), dtype=bool)
    return (x >= cover[0]) & (x <= cover[1])


class _Cells(NamedTuple):
    lower: np.ndarray
    upper: np.ndarray
    logs: np.ndarray
    extras: np.ndarray


def _evaluate(field: Field, lower: np.ndarray, upper: np.ndarray) -> _Cells:
    logs, extras = field(nodes_of(lower, upper).reshape(-1))
    extras = np.moveaxis(extras.reshape(len(extras), len(lower), PANEL), 0, 1)
    return _Cells(lower, upper, logs.reshape(-1, PANEL), extras)


def _joined(one: _Cells, other: _Cells) -> _Cells:
    return _Cells(*(np.concatenate(pair) for pair in zip(one, other, strict=True)))


class _Judged(NamedTuple):
    log_total: float
    errors: np.ndarray  # shares of the whole
    potential: np.ndarray  # the most a panel may hold, as a share of what is certain
    steep: np.ndarray
    relative: np.ndarray  # errors as shares of each panel's own mass


def _judge(cells: _Cells) -> _Judged:
    """Masses and errors of panels, and what they might hide."""
    half = 0.5 * (cells.upper - cells.lower)
    top = np.max(cells.logs)
    if not np.isfinite(top):
        none = np.zeros(len(half))
        return _Judged(-np.inf, none, none, none, none)
    f = np.exp(cells.logs - top)
    sums = half[:, None] * (f @ patterson().weights.T)
    total = float(np.sum(sums[:, 0]))
    errors = embedded_error(sums[:, 0] - sums[:, 1], sums[:, 1] - sums[:, 2])
    order, (left, right) = np.argsort(cells.lower), (f @ end_rows().T).T
    in_margins = margin_errors(*(a[order] for a in (cells.lower, cells.upper, left, right)))
    errors[order] = np.maximum(errors[order], in_margins)
    finite = np.isfinite(cells.logs)
    with np.errstate(invalid="ignore"):
        jumps = np.abs(np.diff(cells.logs, axis=1))
    steep = np.max(np.where(finite[:, 1:] & finite[:, :-1], jumps, 0.0), axis=1)
    # What is certain: panels that agree with themselves. A spike met by one node of a wide panel
    # looks heavier than it is, and must not have others dropped.
    sound = float(np.sum(np.where(errors < 0.1 * sums[:, 0], sums[:, 0], 0.0)))
    floor = np.exp(-_FAR) * float(np.min(half))
    most = np.exp(np.minimum(np.max(cells.logs, axis=1) - top + steep, 300.0)) * 2 * half
    return _Judged(
        np.log(total) + top, errors / total, most / max(sound, floor), steep, _relative(cells)
    )


def _relative(cells: _Cells) -> np.ndarray:
    """Errors of panels over their own masses: deep in a tail, those of the whole underflow."""
    tops = np.max(cells.logs, axis=1)
    safe = np.where(np.isfinite(tops), tops, 0.0)
    sums = np.exp(cells.logs - safe[:, None]) @ patterson().weights.T
    errors = embedded_error(sums[:, 0] - sums[:, 1], sums[:, 1] - sums[:, 2])
    return errors / np.maximum(sums[:, 0], 1e-300)


def resolve(
    field: Field,
    lower: np.ndarray,
    upper: np.ndarray,
    target: float,
    most: int = MOST_PANELS,
    cover: Cover = None,
) -> Panels:
    """Panels on which int f is right to `target`, as a share of itself, or `most` of them.

    In the cover every panel is to be right to `target` as a share of its own.
    """
    cells = _evaluate(field, lower, upper)
    dropped, idle = 0.0, []
    for _ in range(_ROUNDS):
        seen = _judge(cells)
        num = len(cells.lower)
        if not np.isfinite(seen.log_total):
            # Zero at all nodes so far: look more closely, everywhere.
            if num * 2 > 4 * most:
                break
            cells = _evaluate(field, *_split(cells.lower, cells.upper, np.full(num, 2)))
            continue
        inside = _touches(cover, cells)
        keep = (seen.potential > DROPPED_PANELS * target / num) | inside
        dropped += float(np.sum(seen.potential[~keep]))
        idle.append(_Cells(*(a[~keep] for a in cells)))
        cells, seen = _pick(cells, seen, keep)
        num = max(1, int(np.sum(keep)))
        share, inside = target / num, inside[keep]
        want = (seen.errors > share) | ((seen.steep > _STEEP) & (seen.potential > share))
        want |= inside & ((seen.relative > target) | (seen.steep > _STEEP))
        width = cells.upper - cells.lower
        least = 64 * np.spacing(np.maximum(np.abs(cells.lower), np.abs(cells.upper)))
        want &= width > least
        order = np.argsort(-np.where(want, seen.errors + 1e-300, -1.0))
        want[order[max(0, most - num) :]] = False
        if not np.any(want):
            break
        pieces = np.where(seen.errors[want] > 0.3 * _share(cells, seen)[want], 4, 2)
        fresh = _evaluate(field, *_split(cells.lower[want], cells.upper[want], pieces))
        cells = _joined(_Cells(*(a[~want] for a in cells)), fresh)
    return _finished(cells, (dropped, idle), target, cover)


def _touches(cover: Cover, cells: _Cells) -> np.ndarray:
    if cover is None:
        return np.zeros(len(cells.lower), dtype=bool)
    alive = np.isfinite(np.max(cells.logs, axis=1))
    return (cells.upper > cover[0]) & (cells.lower < cover[1]) & alive


def _share(cells: _Cells, seen: _Judged) -> np.ndarray:
    """Masses of panels, as shares of the whole."""
    half = 0.5 * (cells.upper - cells.lower)
    return half * (np.exp(cells.logs - seen.log_total) @ patterson().weights[0])


def _pick(cells: _Cells, seen: _Judged, keep: np.ndarray) -> tuple[_Cells, _Judged]:
    picked = _Judged(
        seen.log_total,
        seen.errors[keep],
        seen.potential[keep],
        seen.steep[keep],
        seen.relative[keep],
    )
    return _Cells(*(a[keep] for a in cells)), picked


def _split(lower: np.ndarray, upper: np.ndarray, pieces: np.ndarray):
    """Each panel cut into so many equal ones."""
    index = np.repeat(np.arange(len(lower)), pieces)
    place = np.concatenate([np.arange(k) for k in pieces])
    step = ((upper - lower) / pieces)[index]
    low = lower[index] + place * step
    return low, low + step


def _finished(
    cells: _Cells, left_out: tuple[float, list[_Cells]], target: float, cover: Cover
) -> Panels:
    dropped, idle = left_out
    order = np.argsort(cells.lower)
    cells = _Cells(*(a[order] for a in cells))
    seen = _judge(cells)
    if np.isfinite(seen.log_total):
        # Those that hold nothing only cost time in the next sums.
        masses = _share(cells, seen) + seen.errors
        light = np.argsort(masses)
        out = light[np.cumsum(masses[light]) < DROPPED_PANELS * target]
        keep = np.ones(len(masses), dtype=bool)
        keep[out] = False
        keep |= _touches(cover, cells)
        dropped += float(np.sum(masses[~keep]))
        idle = [*idle, _Cells(*(a[~keep] for a in cells))]
        cells, _ = _pick(cells, seen, keep)
        seen = _judge(cells)
    return Panels(*cells, seen.log_total, seen.errors, dropped, _idle(idle, seen.log_total))


def _idle(cells: list[_Cells], log_total: float) -> Idle:
    """Nodes of panels that were dropped, the widest of them: together they cover the most."""
    if not cells or not np.isfinite(log_total):
        return Idle(np.zeros(0), np.zeros(0))
    lower, upper, logs, extras = (np.concatenate([part[i] for part in cells]) for i in range(4))
    # What was dropped may itself rest on what was dropped before: the last two companions say.
    logs = logs + np.log1p(np.sum(np.abs(extras[:, 2:]), axis=1))
    widest = np.argsort(lower - upper, kind="stable")[:_MOST_IDLE]
    lower, upper, logs = lower[widest], upper[widest], logs[widest]
    half = 0.5 * (upper - lower)
    log_masses = np.log(half[:, None] * patterson().weights[0][None, :]) + logs - log_total
    there = np.isfinite(log_masses)
    return Idle(nodes_of(lower, upper)[there], log_masses[there])
