"""Kinks and jumps of a map, from its values on a lattice, and what lies between its nodes."""

from itertools import product
from types import ModuleType
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

# A map is smooth where its fourth difference is no more than this share of that over twice the
# spacing, or too small, in deviations of the noise, to matter.
_SMOOTH, _SMALL = 0.2, 1e-4

Values = Array | np.ndarray


def is_rough(values: Float[np.ndarray, "r k"], shape: tuple[int, ...]) -> Bool[np.ndarray, " r"]:
    """Nodes near which maps are not smooth.

    A fourth difference is 16 times as large over twice the spacing where a map is smooth, twice as
    large at a kink, and as large at a jump.
    """
    grid = values.reshape(*shape, -1)
    out = np.zeros(shape, bool)
    for axis in range(len(shape)):
        lines = np.moveaxis(grid, axis, 0)
        if len(lines) < 9:
            out |= True
            continue
        with np.errstate(invalid="ignore"):
            bad = near_kinks(lines) > 0
        np.moveaxis(out, axis, 0)[...] |= np.any(bad, axis=-1)
    return out.reshape(-1)


def near_kinks(values: Float[Values, "n ..."]) -> Float[Values, "n ..."]:
    """One near kinks and jumps along the first axis, else zero; of NumPy's or of traced arrays."""
    near, far = (_largest(_fourth(values, stride)) for stride in (1, 2))
    xp = _namespace(values)
    # Beside values that are no numbers nothing is known.
    smooth = xp.isfinite(near) & ((near <= _SMOOTH * far) | (near < _SMALL))
    return xp.where(smooth, 0.0, 1.0)


def is_bent(
    values: Float[np.ndarray, "n ..."],
) -> tuple[Bool[np.ndarray, "n ..."], Bool[np.ndarray, "n ..."]]:
    """Along the first axis: where fourth differences are known, and where they show a kink.

    Unlike `near_kinks`, values that are no numbers tell nothing of those beside them.
    """
    near, far = _fourth(values, 1), _fourth(values, 2)
    known = np.isfinite(near) & np.isfinite(far)
    known[:4] = known[-4:] = False
    near, far = (_largest(np.where(known, part, 0.0)) for part in (near, far))
    return known, known & (near > _SMOOTH * far) & (near >= _SMALL)


def _namespace(values: Values) -> ModuleType:
    return np if isinstance(values, np.ndarray) else jnp


def _fourth(values: Float[Values, "n ..."], stride: int) -> Float[Values, "n ..."]:
    """|f(k-2s) - 4 f(k-s) + 6 f(k) - 4 f(k+s) + f(k+2s)|; at the ends that of the last k."""
    xp, s, n = _namespace(values), stride, len(values)
    parts = [c * values[i * s : n - (4 - i) * s] for i, c in enumerate((1.0, -4.0, 6.0, -4.0, 1.0))]
    return _extended(xp.abs(sum(parts)), 2 * s)


def _largest(values: Float[Values, "n ..."]) -> Float[Values, "n ..."]:
    """Largest values within two neighbours; infinite where something is not a number."""
    xp, n = _namespace(values), len(values)
    wide = _extended(xp.where(xp.isnan(values), xp.inf, values), 2)
    return xp.max(xp.stack([wide[k : k + n] for k in range(5)]), axis=0)


def _extended(values: Float[Values, "n ..."], by: int) -> Float[Values, "m ..."]:
    """The first and the last value repeated."""
    return _namespace(values).pad(values, [(by, by)] + [(0, 0)] * (values.ndim - 1), mode="edge")


def between(line: Float[np.ndarray, " n"], looks: int) -> Float[np.ndarray, " m"]:
    """Nodes, and points from each of them to the next; past the last one as far as before it."""
    gaps = np.diff(line)
    steps = np.append(gaps, gaps[-1])[:, None] * np.arange(looks)[None, :] / looks
    return (line[:, None] + steps).reshape(-1)


# What a map does between nodes is hidden if it leaves the line through them by more than this
# multiple of what the nodes themselves show as bends (a kink has half of it, a jump as much), and
# by more than `_SMALL`.
_HIDDEN = 1.25
# A map may also show that it bends and not how far it goes: a node on the flank of a kick tells of
# a part of it. So it is hidden, too, if it leaves the range of a cell's corners by more than this,
# in deviations of the noise: the law of what comes next then moves by its own width. Maps that sums
# over these nodes resolve stay far below it, and jumps do not leave the range at all.
BEYOND_CORNERS = 1.0


class Inside(NamedTuple):
    """A map at nodes, and in the cells that begin there.

    Attributes:
        nodes: its values.
        middle, spread: middle and half the width of its range in a cell.
        hidden: whether it does something in the cell that the nodes do not show.
        hidden_beside: the same for any cell beside the node.
    """

    nodes: Float[np.ndarray, "r k"]
    middle: Float[np.ndarray, "r k"]
    spread: Float[np.ndarray, "r k"]
    hidden: Bool[np.ndarray, " r"]
    hidden_beside: Bool[np.ndarray, " r"]


def look_inside(
    values: Float[np.ndarray, "m k"],
    shape: tuple[int, ...],
    looks: int,
    beyond_corners: float = np.inf,
) -> Inside:
    """From values at all looks; `shape` are the numbers of nodes.

    Cells are hidden, too, where values leave the range of the corners by more than
    `beyond_corners`.
    """
    dim, num = len(shape), int(np.prod(shape))
    grid = values.reshape(*(n * looks for n in shape), -1)
    nodes = grid[(slice(None, None, looks),) * dim]
    # Cells of the last nodes reach beyond the lattice: they are those before them.
    low, high = nodes.copy(), nodes.copy()
    gap = np.zeros(nodes.shape)
    with np.errstate(invalid="ignore"):
        for place in product(range(looks), repeat=dim):
            some = grid[tuple(slice(k, None, looks) for k in place)]
            low, high = np.fmin(low, some), np.fmax(high, some)
            gap = np.fmax(gap, np.abs(some - _interpolated(nodes, place, looks)))
        lowest, highest = nodes, nodes
        for corner in product((0, 1), repeat=dim):
            some = _shifted(nodes, corner)
            lowest, highest = np.fmin(lowest, some), np.fmax(highest, some)
        far = np.fmax(high - highest, lowest - low) > beyond_corners
        low, high = np.fmin(low, lowest), np.fmax(high, highest)
        bends = np.zeros(nodes.shape)
        for axis in range(dim):
            bends = np.fmax(bends, _bends(nodes, axis))
        shown = bends
        for corner in product((0, 1), repeat=dim):
            shown = np.fmax(shown, _shifted(bends, corner))
        hidden = np.any((gap > _HIDDEN * shown + _SMALL) | far, axis=-1)
    for axis in range(dim):
        # Nothing is known beyond the last node.
        np.moveaxis(hidden, axis, 0)[-1] = False
    beside = hidden.copy()
    for corner in product((0, 1), repeat=dim):
        moved = hidden
        for axis, by in enumerate(corner):
            moved = np.roll(moved, by, axis=axis)
        beside |= moved
    flat = (part.reshape(num, -1) for part in (nodes, 0.5 * (low + high), 0.5 * (high - low)))
    parts = [np.ascontiguousarray(part) for part in flat]
    return Inside(parts[0], parts[1], parts[2], hidden.reshape(-1), beside.reshape(-1))


def _shifted(nodes: np.ndarray, by: tuple[int, ...]) -> np.ndarray:
    """Values of the next node along some axes; of the last one its own."""
    for axis, step in enumerate(by):
        if step:
            nodes = np.concatenate(
                [np.take(nodes, range(1, nodes.shape[axis]), axis), np.take(nodes, [-1], axis)],
                axis,
            )
    return nodes


def _interpolated(nodes: np.ndarray, place: tuple[int, ...], looks: int) -> np.ndarray:
    """Linear in every coordinate between the corners of a cell."""
    out = np.zeros(nodes.shape)
    for corner in product((0, 1), repeat=len(place)):
        shares = (k / looks if c else 1 - k / looks for c, k in zip(corner, place, strict=True))
        weight = float(np.prod(list(shares)))
        if weight > 0:
            out = out + weight * _shifted(nodes, corner)
    return out


def _bends(nodes: np.ndarray, axis: int) -> np.ndarray:
    """|second differences| along an axis; at the ends those of the next."""
    lines = np.moveaxis(nodes, axis, 0)
    if len(lines) < 3:
        return np.zeros(nodes.shape)
    inner = np.abs(lines[2:] - 2 * lines[1:-1] + lines[:-2])
    return np.moveaxis(np.asarray(_extended(inner, 1)), 0, axis)
