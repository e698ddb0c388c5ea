"""One step: where the lattice lies and how close its nodes are, until the error is small enough."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float

from .... import _results
from ...._statespace.model import Inputs
from ..tables import Seen
from .axes import (
    Axes,
    Axis,
    children,
    dilated,
    hull,
    lattice_weights,
    line_errors,
    shape_of,
    upper_bound,
)
from .hidden import hidden_in, hidden_moves, most_gained
from .kinks import rough_mass
from .law import Law, Looked, law_of, look, own_errors
from .spikes import lost_to_floors, outside
from .sums import HALF, SPARSE, Source, thinned
from .values import PlaneValues, Space, Start

# Intervals of a first look at a law: a quarter of them is the coarsest of three lattices.
_FIRST = 16
# Most intervals that are taken over from the law before, rather than found to be needed.
_MOST_HINTED = 64
# Those of a first look at a box, of which nobody knows where in it the law is.
_FIRST_OF_BOX = 32
# Most nodes of a lattice, of those that hold mass, and most terms of a sum: a step of seconds.
MOST_CELLS, MOST_NODES, MOST_TERMS = 2_000_000, 25_000, 3e9
# Half of the nodes are enough for the next law if half of those before erred by no more than this
# share of the target.
_IDLE = 0.1
# A lattice lies along the principal axes of what is so many times as long as wide; it is turned if
# that leaves less than a share of its area, at most some times a step.
_LONG, _SMALLER, _TURNS = 1.5, 0.5, 6
# Looks at one step: a precise sensor takes one for every factor of eight, an outlier one for every
# half window.
_LOOKS = 60
# Lattices are cut to what holds mass when that is less than this share of an axis.
_LOOSE = 0.7
# Most intervals of an axis that is made longer for an outlier.
_LONGEST = 256
# Looks that find nothing go on to so many nodes before nothing is believed.
_BELIEVED = 2**16


class Wanted(NamedTuple):
    """What a step is held to, and how far down its density is kept."""

    target: float
    depth: float


def depth_for(target: float) -> float:
    """Nats below the highest value where a law has mass that counts, with room for outliers."""
    return float(np.log(3e3 / target))


def first_axes(
    space: Space,
    source: Source | None,
    turn: Float[np.ndarray, "2 2"],
    depth: float,
    hint: tuple[int, int],
) -> Axes:
    """Wherever the law may be before an observation narrows it."""
    if source is None:
        return _start_axes(space, turn, depth)
    if source.means is None:
        return _box_axes(space)
    means = source.means @ turn
    # A node of little mass reaches less far.
    gap = depth + source.log_masses - np.max(source.log_masses)
    used = gap > 0
    reach = np.sqrt(2 * gap[used])[:, None]
    low = np.min(means[used] - reach, axis=0)
    high = np.max(means[used] + reach, axis=0)
    return _clipped(space, low, high, [int(np.clip(n, _FIRST, _MOST_HINTED)) for n in hint])


def _start_axes(space: Space, turn: Float[np.ndarray, "2 2"], depth: float) -> Axes:
    if space.start is None:
        return _box_axes(space)
    start = Start(turn.T @ space.start.mean, turn.T @ space.start.covariance @ turn)
    reach = np.sqrt(2 * depth) * start.sd
    axes = _clipped(space, start.mean - reach, start.mean + reach, [_FIRST, _FIRST])
    flat = [Axis(float(m), float(m), 0) for m in start.mean]
    return (
        axes[0] if start.sd[0] > 0 else flat[0],
        axes[1] if start.sd[1] > 0 else flat[1],
    )


def first_turn(space: Space, source: Source | None) -> Float[np.ndarray, "2 2"]:
    """The angle of a lattice: that of the prior's or the prediction's axes."""
    if space.walled or not space.turns:
        return np.eye(2)
    if source is None:
        start = space.start
        known = start is not None and not np.any(start.sd == 0)
        return _axes_of(start.covariance) if start is not None and known else np.eye(2)
    assert source.means is not None
    masses = np.exp(source.log_masses)
    gap = source.means - masses @ source.means
    return _axes_of(gap.T @ (masses[:, None] * gap) + np.eye(2))


def _axes_of(covariance: Float[np.ndarray, "2 2"]) -> Float[np.ndarray, "2 2"]:
    """Principal axes, where they matter; those of z otherwise."""
    sizes, axes = np.linalg.eigh(covariance)
    return axes if sizes[1] > _LONG**2 * max(sizes[0], 0.0) else np.eye(2)


def _turned(
    looked: Looked, keep: Bool[np.ndarray, "n m"], num: int
) -> tuple[Axes, Float[np.ndarray, "2 2"]] | None:
    """A lattice along the nodes that are kept, if these fill little of the one that there is."""
    axes = looked.axes
    ends = hull(keep)
    if any(
        (axis.walls[0] and ends[k, 0] == 0) or (axis.walls[1] and ends[k, 1] == axis.num)
        for k, axis in enumerate(axes)
    ):
        return None
    w = np.stack([axes[k].nodes[i] for k, i in enumerate(np.nonzero(keep))], axis=1)
    cell = np.array([(axis.high - axis.low) / max(axis.num, 1) for axis in axes])
    middle = w.mean(axis=0)
    gap = w - middle
    turn = np.linalg.eigh(gap.T @ gap / len(w) + np.diag(cell**2) / 12)[1]
    along = w @ turn
    margin = np.abs(turn).T @ cell
    low, high = along.min(axis=0) - margin, along.max(axis=0) + margin
    area = float(np.prod([axis.high - axis.low for axis in axes]))
    if float(np.prod(high - low)) > _SMALLER * area:
        return None
    one, two = (Axis(float(low[k]), float(high[k]), num) for k in range(2))
    return (one, two), looked.turn @ turn


def _box_axes(space: Space) -> Axes:
    num = _FIRST_OF_BOX
    return _clipped(space, space.low, space.high, [num, num])


def _clipped(space: Space, low: np.ndarray, high: np.ndarray, num: list[int]) -> Axes:
    out = []
    for k in range(2):
        a, b = max(float(low[k]), float(space.low[k])), min(float(high[k]), float(space.high[k]))
        if not b > a:
            # All of it lies beyond a wall: whatever remains is at the wall.
            a, b = float(space.low[k]), float(space.high[k])
        walls = (a <= float(space.low[k]), b >= float(space.high[k]))
        out.append(Axis(a, b, num[k], walls))
    return out[0], out[1]


def build(
    values: PlaneValues,
    old: Law | None,
    step: tuple[int, Inputs],
    seen: tuple[Seen, ...],
    wanted: Wanted,
) -> tuple[Law | None, Law]:
    """The law after a transition out of `old` and what is seen then; of the prior if that is None.

    Returns:
        The old law, on more nodes if the new one needed them, and the new law.
    """
    missed = 0.0
    if old is not None:
        old, missed = _looked_into(values, old, step, wanted.target)
    source = None if old is None else old.as_source(values, *step)
    turn, turns = first_turn(values.space, source), _TURNS if values.space.turns else 0
    hint = (0, 0) if old is None else old.hint
    axes = first_axes(values.space, source, turn, wanted.depth, hint)
    window = axes, turn
    mask = np.ones(shape_of(axes), bool)
    rough = None if source is None else thinned(source)
    looked, settled, left_out, unseen = None, False, [], 0.0
    for _ in range(_LOOKS):
        looked = look(values, rough or source, seen, axes, turn, mask)
        dense = looked.dense
        top = float(np.max(looked.logs))
        if not np.isfinite(top):
            settled = rough is None and np.prod(shape_of(axes)) > _BELIEVED
            if settled:
                break
            rough = None
            axes, mask = children(axes, mask, _several(axes))
            continue
        keep = mask & (upper_bound(dense, mask) > top - wanted.depth)
        space = values.space if turn[0, 0] == 1 else values.space.open()
        moved = _extended(space, axes, dense > top - wanted.depth)
        moved = _moved(axes, keep) if moved is None else moved
        if moved is None and turns > 0 and np.all(_several(axes)):
            turned = _turned(looked, keep, 2 * _FIRST)
            if turned is not None:
                moved, turn = turned
                turns -= 1
        if moved is not None:
            left_out += [outside(looked, moved, turn)]
            axes, mask = moved, np.ones(shape_of(moved), bool)
            continue
        if old is not None and rough is None:
            finer = _finer_old(values, old, looked, wanted.target)
            if finer is not None and not _too_large(values, len(finer.place), axes, mask):
                old, source = finer, finer.as_source(values, *step)
                # What these sums needed those of the next step will need.
                if _at_least(axes, old.axes) != axes:
                    axes = _at_least(axes, old.axes)
                    mask = np.ones(shape_of(axes), bool)
                continue
        errors, closer = _sampling(axes, dense, top, wanted.target), None
        if np.max(errors) > 0.5 * wanted.target:
            want = (errors > 0.25 * wanted.target) & _several(axes)
            closer = _closer(values, old, axes, keep, want)
        settled = rough is None and closer is None
        if settled:
            unseen, beside = hidden_in(values, seen, looked, wanted.target)
            if unseen > 0:
                closer = _closer(values, old, axes, keep | beside, _several(axes))
        if closer is not None:
            (axes, mask), settled = closer, False
            continue
        if settled:
            break
        rough, mask = None, dilated(keep)
    assert looked is not None
    law = _finished(source, seen, looked, wanted)
    lost = 2.0
    if settled:
        lost = unseen + lost_to_floors(values, (source, seen), (window, left_out), law)
        if missed > 0:
            lost += missed * most_gained(values, seen, looked, law.log_norm)
    law = law._replace(lost=min(lost + _inherited(law, old), 2.0))
    return old, law._replace(hint=_hint(law, old, looked, wanted.target))


def _closer(
    values: PlaneValues,
    old: Law | None,
    axes: Axes,
    keep: Bool[np.ndarray, "n m"],
    want: Bool[np.ndarray, " 2"],
) -> tuple[Axes, Bool[np.ndarray, "k l"]] | None:
    """Twice the nodes along some axes, where some were kept; None if these are too many."""
    bigger, inside = children(axes, dilated(keep), want)
    terms = 1 if old is None else len(old.place)
    return None if _too_large(values, terms, bigger, inside) else (bigger, inside)


def _looked_into(
    values: PlaneValues, old: Law, step: tuple[int, Inputs], target: float
) -> tuple[Law, float]:
    """The old law on more nodes if its map does what they do not show; mass where it still does."""
    while (missed := hidden_moves(values, old, step)) > target:
        finer = refined(values, old, _several(old.axes))
        if finer is None:
            return old, missed
        old = finer
    return old, 0.0


def _inherited(law: Law, old: Law | None) -> float:
    """What the old law had lost, times how much of the old relative errors this step has kept."""
    if old is None or old.lost == 0:
        return 0.0
    before = float(old.masses @ np.abs(old.shape))
    kept = (law.error - law.local) / before if before > 0 else 1.0
    return old.lost * min(kept, 1.0)


def _hint(law: Law, old: Law | None, looked: Looked, target: float) -> tuple[int, int]:
    """Intervals for the law after this one: half of these if half of the old nodes were enough."""
    num = [axis.num for axis in law.axes]
    if old is None:
        return num[0], num[1]
    masses = _shares(looked)
    for k in range(2):
        if float(np.abs(1 - looked.ratios[HALF[k]]) @ masses) < _IDLE * target:
            num[k] = min(num[k], old.axes[k].num // 8 * 4)
    return num[0], num[1]


def _at_least(axes: Axes, old: Axes) -> Axes:
    """At least as many nodes as the old axes have, up to some."""
    num = [max(a.num, min(b.num, _MOST_HINTED)) for a, b in zip(axes, old, strict=True)]
    one, two = (a._replace(num=n) if a.num > 0 else a for a, n in zip(axes, num, strict=True))
    return one, two


def _several(axes: Axes) -> Bool[np.ndarray, " 2"]:
    return np.array([axis.num > 0 for axis in axes])


def _too_large(values: PlaneValues, terms: int, axes: Axes, inside: np.ndarray) -> bool:
    """Whether sums of so many terms at the nodes of a lattice would take too long."""
    cells, nodes = (axes[0].num + 1) * (axes[1].num + 1), int(np.count_nonzero(inside))
    # Of products of matrices, or of single pairs.
    each = min(cells, nodes / SPARSE) if values.space.separable else nodes / SPARSE
    return bool(cells > MOST_CELLS or nodes > MOST_NODES or terms * each > MOST_TERMS)


def _sampling(axes: Axes, dense: np.ndarray, top: float, target: float) -> Float[np.ndarray, " 2"]:
    """Errors of the sum over a law, by axis, as shares of it."""
    masses = np.exp(dense - top) * lattice_weights(axes)
    masses /= np.sum(masses)
    errors = line_errors(axes, masses, smooth=False)
    if np.max(errors) <= 0.25 * target or rough_mass(dense, masses) > target:
        return errors
    return line_errors(axes, masses, smooth=True)


def _extended(space: Space, axes: Axes, there: np.ndarray) -> Axes | None:
    """Axes made longer by half where mass lies at an end that is no wall; None if it does not."""
    ends, out, changed = hull(there), list(axes), False
    for k, axis in enumerate(axes):
        at = (ends[k, 0] == 0, ends[k, 1] == axis.num)
        beyond = [at[i] and not axis.walls[i] for i in range(2)]
        if axis.num == 0 or not any(beyond):
            continue
        more = 0.5 * (axis.high - axis.low)
        low, high = axis.low - more * beyond[0], axis.high + more * beyond[1]
        # The spacing stays, as far as there is room.
        num = axis.num + sum(beyond) * axis.num // 2
        num = int(min(-(-num // 4) * 4, _LONGEST))
        wide = _clipped(space, np.array([low, low]), np.array([high, high]), [num, num])
        out[k], changed = wide[k], True
    return (out[0], out[1]) if changed else None


def _moved(axes: Axes, keep: np.ndarray) -> Axes | None:
    """Axes cut where they are loose, and drawn together at walls; None if they are neither."""
    ends, out, changed = hull(keep), list(axes), False
    for k, axis in enumerate(axes):
        if axis.num == 0:
            continue
        first, last = ends[k]
        if last - first + 2 < _LOOSE * axis.num:
            num = min(axis.num, _MOST_HINTED)
            out[k] = axis.cut(max(first - 1, 0), min(last + 1, axis.num), num)
            changed = True
        elif not axis.drawn and (
            (first == 0 and axis.walls[0]) or (last == axis.num and axis.walls[1])
        ):
            out[k], changed = axis._replace(drawn=True), True
    return (out[0], out[1]) if changed else None


def _shares(looked: Looked) -> Float[np.ndarray, " n"]:
    """Shares of the nodes in the mass of a look; zero if there is none."""
    top = float(np.max(looked.logs))
    if not np.isfinite(top):
        return np.zeros(len(looked.logs))
    weights = lattice_weights(looked.axes)[looked.place[:, 0], looked.place[:, 1]]
    masses = np.exp(looked.logs - top) * weights
    return masses / max(float(np.sum(masses)), 1e-300)


def _finer_old(values: PlaneValues, old: Law, looked: Looked, target: float) -> Law | None:
    """The old law on more nodes along the axes where sums over it miss; None if they do not."""
    errors = own_errors(looked.ratios) @ _shares(looked)
    want = (errors > 0.25 * target) & _several(old.axes)
    if np.max(errors) <= 0.5 * target or not np.any(want):
        return None
    return refined(values, old, want)


def refined(values: PlaneValues, law: Law, want: Bool[np.ndarray, " 2"]) -> Law | None:
    """The same law on twice the nodes; None if there is no room."""
    axes, mask = children(law.axes, law.kept, want)
    if _too_large(values, 1 if law.source is None else len(law.source.nodes), axes, mask):
        return None
    looked = look(values, law.source, law.seen, axes, law.turn, mask)
    again = law_of(law.source, law.seen, looked, law.sampling, law.depth, law)
    again = again._replace(lost=law.lost, hint=law.hint, dropped=law.dropped)
    return again._replace(before=law.before) if again.code == _results.OK else None


def _finished(source: Source | None, seen: tuple[Seen, ...], looked: Looked, wanted: Wanted) -> Law:
    """The law of the last look, on the nodes that hold mass."""
    top = float(np.max(looked.logs))
    if not np.isfinite(top):
        return law_of(source, seen, looked, 0.0, wanted.depth)
    stay = looked.logs > top - wanted.depth
    weights = lattice_weights(looked.axes)[looked.place[:, 0], looked.place[:, 1]]
    masses = np.exp(looked.logs - top) * weights
    dropped = float(np.sum(masses[~stay]) / np.sum(masses))
    sampling = float(np.sum(_sampling(looked.axes, looked.dense, top, wanted.target))) + dropped
    law = law_of(source, seen, looked.some(stay), sampling, wanted.depth)
    # What lies beyond the lattice is below the depth as well.
    return law._replace(dropped=dropped + float(np.exp(-wanted.depth)))
