"""Where f is large and how fast it varies: peaks, widths, and lines through the box.

A narrow peak is found in two ways: a space-filling probe, and ascent along coordinate lines from
the best probe of every cell, which follows the tails of a peak that falls between all probes.
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from .axes import periodic_nodes, stretched_nodes
from .evaluate import RootFunction

# The first look: 64 to an axis in the plane, 16 in space. Bumps that are narrower are found only
# where the climb from a start leads to them.
_NUM_PROBES = 4096
# A power of two: cells are made by halving.
_NUM_STARTS = 16
# Steps of 1/32 on the first line, an eighth of that after each zoom: 5e-4 at the end.
_LINE = 65
_ZOOMS = 3


def kronecker_points(num: int, dim: int) -> Float[np.ndarray, "n d"]:
    """z_k = 2 frac(1/2 + k alpha) - 1, alpha_i = t^-i for the root of t^(d+1) = t + 1."""
    root = 1.5
    for _ in range(64):
        root = (1.0 + root) ** (1.0 / (dim + 1))
    alpha = root ** -np.arange(1.0, dim + 1)
    return 2.0 * np.mod(0.5 + np.arange(1, num + 1)[:, None] * alpha, 1.0) - 1.0


@dataclass
class Landscape:
    """Points worth looking at: `peaks` first (best first), then `others`; widths of g per axis."""

    peaks: Float[np.ndarray, "k d"]
    others: Float[np.ndarray, "n d"]
    widths: Float[np.ndarray, " d"]


def survey(root_fn: RootFunction) -> Landscape:
    """Find the peak of f and set it as the scale of `root_fn`."""
    dim = root_fn.dim
    if dim == 1:
        probes = stretched_nodes(np.linspace(np.pi, 0.0, _NUM_PROBES))[:, None]
    else:
        probes = kronecker_points(_NUM_PROBES, dim)
    size = np.sum(root_fn.set_peak(probes) ** 2, axis=1)
    peaks = probes[_best_per_cell(probes, size)]
    peaks = _climb(root_fn, peaks)
    if root_fn.log_peak == -np.inf:
        raise ValueError(
            f"f is zero at all {root_fn.num_calls} points tried in the box: there is nothing to "
            "learn. If f is narrow, move the box to where it is positive; if it underflows, pass "
            "its logarithm with log=True"
        )
    heights = np.sum(root_fn(peaks) ** 2, axis=1)
    order = np.argsort(-heights)
    peaks, heights = peaks[order], heights[order]
    # Lower peaks still count towards a sup error, but not those far below any tolerance.
    peaks = peaks[heights > 1e-3]
    widths = np.min([_widths(root_fn, peak) for peak in peaks[:4]], axis=0)
    with np.errstate(invalid="ignore"):
        ranked = probes[np.argsort(-size)]
    half = _NUM_PROBES // 8
    others = np.concatenate([ranked[:half], probes[:half]])
    return Landscape(peaks, others, widths)


def _best_per_cell(probes: Float[np.ndarray, "n d"], size: Float[np.ndarray, " n"]) -> np.ndarray:
    """Indices of the best probe in each of about _NUM_STARTS cells of the box, zeros left out."""
    dim = probes.shape[1]
    splits = np.ones(dim, int)
    for i in range(int(np.log2(_NUM_STARTS))):
        splits[i % dim] *= 2
    cell = np.zeros(len(probes), int)
    for axis, count in enumerate(splits):
        index = np.minimum((0.5 * (probes[:, axis] + 1) * count).astype(int), count - 1)
        cell = cell * count + index
    order = np.lexsort((-size, cell))
    first = np.r_[True, np.diff(cell[order]) > 0]
    return order[first]


def _climb(root_fn: RootFunction, starts: Float[np.ndarray, "k d"]) -> Float[np.ndarray, "k d"]:
    """Coordinate ascent on lines that zoom in; two sweeps, or more while the peak still rises."""
    points, dim = starts.copy(), root_fn.dim
    rows = np.arange(len(points))
    for _ in range(6):
        before = root_fn.log_peak
        for axis in range(dim):
            low, high = np.full(len(points), -1.0), np.full(len(points), 1.0)
            for zoom in range(_ZOOMS):
                grid = np.linspace(0.0, 1.0, _LINE if zoom == 0 else 17)
                line = low[:, None] + (high - low)[:, None] * grid
                stack = np.repeat(points[:, None, :], line.shape[1], axis=1)
                stack[:, :, axis] = line
                size = np.sum(root_fn.set_peak(stack.reshape(-1, dim)) ** 2, axis=1)
                size = size.reshape(line.shape)
                best = np.argmax(size, axis=1)
                # A line on which f is zero everywhere tells nothing: stay where we are.
                alive = size[rows, best] > 0
                points[alive, axis] = line[rows, best][alive]
                step = (high - low) / (len(grid) - 1)
                low = np.clip(points[:, axis] - step, -1.0, 1.0)
                high = np.clip(points[:, axis] + step, -1.0, 1.0)
        if root_fn.log_peak - before < 1e-2:
            break
    return points


def _widths(root_fn: RootFunction, peak: Float[np.ndarray, " d"]) -> Float[np.ndarray, " d"]:
    """Per axis the smallest step 2^-j from the peak on which a root changes by a third of it."""
    dim = len(peak)
    steps = 2.0 ** -np.arange(0.0, 14.0)
    stack = np.broadcast_to(peak, (dim, len(steps), 2, dim)).copy()
    for axis in range(dim):
        for side, sign in enumerate((-1.0, 1.0)):
            stack[axis, :, side, axis] = np.clip(peak[axis] + sign * steps, -1.0, 1.0)
    here = root_fn(peak[None])
    change = np.max(np.abs(root_fn(stack.reshape(-1, dim)) - here), axis=1)
    moved = np.max(change.reshape(dim, len(steps), 2), axis=2) > np.max(np.abs(here)) / 3
    return np.array([steps[row].min() if row.any() else 2.0 for row in moved])


class LineBundle:
    """Roots along many lines parallel to one axis, on nested nodes that can be doubled."""

    def __init__(
        self,
        root_fn: RootFunction,
        axis: int,
        through: Float[np.ndarray, "l d"],
        num_nodes: int,
        periodic: bool,
    ):
        """Evaluate on lines through the given points."""
        self._root_fn, self._axis, self._through, self._periodic = root_fn, axis, through, periodic
        self._resize(num_nodes)

    def _resize(self, num_nodes: int) -> None:
        if self._periodic:
            self.nodes = periodic_nodes(num_nodes)
        else:
            self.nodes = stretched_nodes(np.linspace(np.pi, 0.0, num_nodes))
        self.values = self._evaluate(self.nodes)

    def _evaluate(self, nodes: Float[np.ndarray, " n"]) -> Float[np.ndarray, "n l r"]:
        stack = np.repeat(self._through[None], len(nodes), axis=0)
        stack[:, :, self._axis] = nodes[:, None]
        flat = self._root_fn(stack.reshape(-1, self._through.shape[1]))
        return flat.reshape(len(nodes), len(self._through), -1)

    def add(self, points: Float[np.ndarray, "k d"]) -> None:
        """Lines through more points."""
        old, self._through = self._through, points
        more = self._evaluate(self.nodes)
        self._through = np.concatenate([old, points])
        self.values = np.concatenate([self.values, more], axis=1)

    def refine(self) -> None:
        """Twice the nodes."""
        self._resize(2 * len(self.nodes) - (0 if self._periodic else 1))


def line_positions(
    land: Landscape, axis: int, num_lines: int, dim: int
) -> Float[np.ndarray, "l d"]:
    """Points whose lines along `axis` are representative: peaks, high points, faces, the rest."""
    if dim == 1:
        return land.peaks[:1]
    if dim == 2:
        across = stretched_nodes(np.linspace(np.pi, 0.0, num_lines))
        grid = np.zeros((num_lines, 2))
        grid[:, 1 - axis] = across
        return np.concatenate([land.peaks[:8], grid])
    half = num_lines // 2
    high, rest = land.others[:half], land.others[-half:].copy()
    snap = kronecker_points(half, dim)
    # A quarter of the coordinates goes to the faces of the box, where sections can be steepest.
    rest = np.where(np.abs(snap) > 0.75, np.sign(snap), rest)
    return np.concatenate([land.peaks, high, rest])
