"""A step that serves everything: panels halved on both sides of the transition until they agree."""

from typing import NamedTuple

import numpy as np

from ... import _results
from ..._statespace.model import Inputs
from .pairs import Smooth
from .panels import MOST_PANELS, Cover, Field, Panels, covered, level_ratios, nodes_of, resolve
from .reach import Frame, first_panels, looked_at
from .rules import PANEL, patterson
from .state import Law, atom, depth_of, evaluate, field_of, law_of, walls_of
from .tables import Seen, Sums, Values

# Rounds in which old panels are halved because the new law is not resolved by them.
_ROUNDS = 14
# While old nodes are too few the new law is a comb: it is not worth being resolved better than so.
_ROUGH, _ROUGH_PANELS = 0.02, 64
# Points of a panel where its map is looked at, and deviations of the noise by which that may leave
# what the nodes show.
_LOOKS, _LEAVES = 256, 1.0
# Weight of tails beside the bulk, in what old panels are blamed for.
_TAILS = 0.5


def start(values: Values, frame: Frame, target: float, cover: Cover = None) -> Law:
    """The prior on its support."""
    if frame.start is not None and frame.start[1] == 0:
        return atom(frame.start[0])
    lower, upper = first_panels(values, frame, None, target)
    field = field_of(values, None, (), target)
    panels = resolve(field, lower, upper, target, MOST_PANELS, cover)
    return law_of(None, (), panels, target, walls_of(field, panels))


class Wanted(NamedTuple):
    """What a step is held to: its error, and where the law must be right relative to itself."""

    target: float
    cover: Cover = None


def observe(values: Values, frame: Frame, law: Law, seen: Seen, wanted: Wanted) -> Law:
    """One more observation at the same time: p(x) G(x, y) / Z."""
    both, (target, cover) = (*law.seen, seen), wanted
    if law.source is None and not law.has_panels:
        # An atom stays one, whatever is seen.
        logs = values.log_likelihood(law.nodes, seen)
        code = _results.OK if np.isfinite(logs[0]) else _results.NO_MASS
        return law._replace(seen=both, log_norm=law.log_norm + float(logs[0]), code=code)
    first = first_panels(values, frame, law.source, target)
    lower, upper = looked_at(values, first, law.source, both, PANEL)
    field = field_of(values, law.source, both, target)
    panels = resolve(field, lower, upper, target, MOST_PANELS, cover)
    return law_of(law.source, both, panels, target, walls_of(field, panels))


def advance(
    values: Values,
    frame: Frame,
    old: Law,
    step: tuple[int, Inputs],
    seen: tuple[Seen, ...],
    wanted: Wanted,
) -> tuple[Law, Law]:
    """Transition into step t and what is seen there; the old law comes back, refined if need be.

    Returns:
        The old law, on more nodes if the new one needed them, and the new law.
    """
    target, cover = wanted
    old = _looked_into(values, frame, old, step, target)
    source = old.as_source(*step, target, frame)
    first = first_panels(values, frame, source, target)
    first = looked_at(values, first, source, seen, PANEL)
    panels = resolve(
        field_of(values, source, seen, target), *first, max(target, _ROUGH), _ROUGH_PANELS, cover
    )
    for _ in range(_ROUNDS):
        if source.smooth is None or not np.isfinite(panels.log_total):
            break
        errors = _blamed(source.smooth, values.push(source, panels.nodes), panels, wanted)
        if float(np.sum(errors)) <= target:
            break
        finer = _refined(values, old, errors, target)
        if finer is None:
            break
        # Halves of a panel may show less of a narrow feature than the whole did.
        old = _looked_into(values, frame, finer, step, target)
        source = old.as_source(*step, target, frame)
        field = field_of(values, source, seen, target)
        panels = resolve(
            field, panels.lower, panels.upper, max(target, _ROUGH), _ROUGH_PANELS, cover
        )
    # What was rough may have missed or dropped something: the last word starts from the first look.
    field = field_of(values, source, seen, target)
    panels = _last(field, first, panels, wanted)
    return old, law_of(source, seen, panels, target, walls_of(field, panels))


def _looked_into(
    values: Values, frame: Frame, old: Law, step: tuple[int, Inputs], target: float
) -> Law:
    """The old law with panels halved where the map does what their nodes do not show."""
    for _ in range(_ROUNDS if old.has_panels and frame.noise is not None else 0):
        grid = (np.arange(_LOOKS) + 0.5) / _LOOKS
        points = old.lower[:, None] + (old.upper - old.lower)[:, None] * grid[None, :]
        there = old.as_source(*step, target, frame)
        shown = values.means(there)
        found = values.means(there._replace(nodes=points.reshape(-1)))
        if shown is None or found is None or frame.noise is None:
            return old
        shown, found = shown.reshape(-1, PANEL), found.reshape(points.shape)
        with np.errstate(invalid="ignore"):
            # Beyond the outermost nodes a map goes on as it did between them.
            room = _LEAVES * frame.noise + np.max(np.abs(np.diff(shown, axis=1)), axis=1)
            above = np.max(found, axis=1) - np.max(shown, axis=1)
            below = np.min(shown, axis=1) - np.min(found, axis=1)
            hidden = np.fmax(above, below) > room
        masses = np.sum(old.masses.reshape(-1, PANEL), axis=1)
        finer = _refined(values, old, np.where(hidden & (masses > target), 1.0, 0.0), target)
        if finer is None:
            return old
        old = finer
    return old


def _blamed(smooth: Smooth, sums: Sums, panels: Panels, wanted: Wanted) -> np.ndarray:
    """Errors of old panels in the new law that only more nodes can mend."""
    logs = panels.logs.reshape(-1)
    bulk = (logs > np.max(logs) - depth_of(wanted.target)) & ~covered(wanted.cover, panels.nodes)
    mended = smooth.mends(sums) & bulk[None, :]
    return np.where(mended, 0.0, sums.errors) @ _omega(panels, wanted.cover)


def _omega(panels: Panels, cover: Cover) -> np.ndarray:
    """Weights of new nodes: their masses, and all nodes alike, above all those that are covered.

    The next observation may move the law into a tail, where errors relative to it then count.
    """
    inside = covered(cover, panels.nodes)
    flat = _TAILS / len(inside) + inside / max(1, np.count_nonzero(inside))
    return panels.masses + flat


def _last(field: Field, first, rough: Panels, wanted: Wanted) -> Panels:
    """Panels to the target, from the first ones cut at the edges of the rough ones."""
    points = np.unique(np.concatenate([*first, rough.lower, rough.upper]))
    low, high = points[:-1], points[1:]
    middle = 0.5 * (low + high)
    inside = np.searchsorted(first[0], middle, side="right") - 1
    keep = (inside >= 0) & (middle < first[1][np.maximum(inside, 0)])
    keep &= (high - low) > 8 * np.spacing(np.maximum(np.abs(low), np.abs(high)))
    return resolve(field, low[keep], high[keep], wanted.target, MOST_PANELS, wanted.cover)


def _refined(values: Values, law: Law, errors: np.ndarray, target: float) -> Law | None:
    """The same law with its worst panels halved; None if there is no room."""
    num = len(law.lower)
    room = MOST_PANELS - num
    want = errors > target / num
    width = law.upper - law.lower
    want &= width > 64 * np.spacing(np.maximum(np.abs(law.lower), np.abs(law.upper)))
    order = np.argsort(-np.where(want, errors, 0.0))
    want[order[max(0, room) :]] = False
    if not np.any(want):
        return None
    middle = 0.5 * (law.lower[want] + law.upper[want])
    low = np.concatenate([law.lower[want], middle])
    high = np.concatenate([middle, law.upper[want]])
    nodes = nodes_of(low, high).reshape(-1)
    logs, carried = evaluate(values, law, nodes)
    weights = (0.5 * (high - low))[:, None] * patterson().weights[0][None, :]
    log_masses = logs + np.log(weights.reshape(-1))
    stay = np.repeat(~want, PANEL)
    lower = np.concatenate([law.lower[~want], low])
    order = np.argsort(lower)
    flat = (order[:, None] * PANEL + np.arange(PANEL)[None, :]).reshape(-1)
    log_all = np.concatenate([law.log_masses[stay], log_masses])[flat]
    shape = np.concatenate([law.ratios[2][stay], carried])[flat]
    log_all = log_all - np.log(np.sum(np.exp(log_all)))
    # New nodes may know of errors that the old ones did not see.
    error = max(law.error, float(np.exp(log_all) @ np.abs(shape)))
    return law._replace(
        nodes=np.concatenate([law.nodes[stay], nodes])[flat],
        log_masses=log_all,
        error=error,
        ratios=np.concatenate([level_ratios(len(lower)), shape[None]]),
        lower=lower[order],
        upper=np.concatenate([law.upper[~want], high])[order],
    )
