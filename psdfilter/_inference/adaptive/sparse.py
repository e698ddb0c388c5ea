"""Stretches of a series on a line on sparse lattices: see `loop`."""

from typing import NamedTuple

import numpy as np

from ... import _results
from ..._statespace.functions import keywords_of
from ..._statespace.model import StateSpaceModel
from .hosted import Series, is_missing
from .loop.records import AXES, Active
from .loop.region import Region, Space
from .loop.run import Stretch, run_rows, thresholds
from .loop.table_region import TableRegion
from .panels import DROPPED_PANELS
from .reach import Frame
from .rules import DROPPED
from .scanned import AbstractStretch, Summary
from .state import Law, ends_of_line, evaluate
from .tables import Seen, Source, Values

# Spacings in deviations of the noise: see `plane.passes`. A map that is steep by a factor of fifty
# needs the finest of them.
_SPACINGS = tuple(0.9 * 2 ** (-k / 2) for k in range(13))
# Nodes on a box, where the transition is a table.
_NODES = (128, 256, 512, 1024)
# Most nodes of a law that is put on a lattice.
_MOST = 4096
_NONE = np.zeros(0)


class Grid(NamedTuple):
    """A model on a lattice, and how its laws are told on a line: x = scale k h."""

    region: Region | TableRegion
    scale: float
    level: int


def num_levels(frame: Frame) -> int:
    """How many lattices there are for a model."""
    return len(_SPACINGS) if frame.noise is not None else len(_NODES)


def serves(ssm: StateSpaceModel, frame: Frame) -> bool:
    """Whether a model can be tabulated: Gaussian noise, or a transition that stays the same."""
    if ssm.vectorized:
        return False
    if frame.noise is not None:
        return frame.noise > 0
    return not keywords_of(ssm.log_transition) and bool(np.isfinite(frame.upper - frame.lower))


def grid_of(ssm: StateSpaceModel, frame: Frame, level: int) -> Grid:
    """The model on one of the lattices."""
    if frame.noise is None:
        return Grid(TableRegion(ssm, (frame.lower, frame.upper), _NODES[level]), 1.0, level)
    noise = frame.noise
    space = Space(
        np.array([[noise]]), np.array([frame.lower / noise]), np.array([frame.upper / noise])
    )
    return Grid(Region(ssm, space, _SPACINGS[level]), noise, level)


def active_of(values: Values, frame: Frame, grid: Grid, law: Law, target: float) -> Active | None:
    """A law on a sparse lattice; None if that does not hold it."""
    h = grid.scale * grid.region.h
    if len(law.nodes) < 2:
        return None
    if not law.has_panels and _is_on(law.nodes, h):
        there = np.isfinite(law.log_masses)
        place = np.zeros((int(np.count_nonzero(there)), AXES), np.int64)
        place[:, AXES - 1] = np.rint(law.nodes[there] / h)
        return Active(
            place, law.masses[there], law.ratios[2, there], law.error, 0.0, DROPPED * target
        )
    low, high = law.nodes[0], law.nodes[-1]
    if law.has_panels:
        low, high = law.lower[0], law.upper[-1]
    first, last = int(np.ceil(low / h)), int(np.floor(high / h))
    first = max(first, int(np.ceil(frame.lower / h)) if np.isfinite(frame.lower) else first)
    last = min(last, int(np.floor(frame.upper / h)) if np.isfinite(frame.upper) else last)
    if not 4 <= last - first < _MOST:
        return None
    k = np.arange(first, last + 1)
    x = k * h
    logs, carried = evaluate(values, law, x)
    masses = h * np.exp(logs)
    total = float(np.sum(masses))
    beside = (x < frame.lower + 2 * h) | (x > frame.upper - 2 * h)
    if not abs(total - 1) < 2 * target or float(np.sum(masses[beside])) > target:
        return None
    keep = masses > thresholds(target)[0]
    place = np.zeros((int(np.count_nonzero(keep)), AXES), np.int64)
    place[:, AXES - 1] = k[keep]
    masses = masses[keep]
    share = DROPPED_PANELS if law.has_panels else DROPPED
    dropped = share * target + max(0.0, total - float(np.sum(masses)))
    return Active(place, masses / np.sum(masses), carried[keep], law.error, 0.0, dropped)


def _is_on(nodes: np.ndarray, h: float) -> bool:
    """Whether nodes are those of a lattice."""
    places = nodes / h
    return bool(np.ptp(np.diff(places)) < 1e-6 and np.all(np.abs(places - np.rint(places)) < 1e-6))


class SparseStretch(AbstractStretch):
    """A run on a sparse lattice, whose laws are made when they are asked for."""

    def __init__(self, grid: Grid, frame: Frame, ran: Stretch, part: tuple[Series, int]):
        self.grid, self.frame, self.ran = grid, frame, ran
        self.series, self.first = part
        self.kept: dict[int, Law] = {}

    def log_norm(self, k: int) -> float:
        """log Z, or that of the mass kept if nothing was seen."""
        return float(self.ran.told.log_norm[k])

    def _line(self, active: Active) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Nodes without gaps, log masses, and ratios of coarser lattices and of errors carried."""
        place = active.place[:, AXES - 1]
        k = np.arange(place[0], place[-1] + 1)
        masses, carried = np.zeros(len(k)), np.zeros(len(k))
        masses[place - place[0]], carried[place - place[0]] = active.masses, active.carried
        with np.errstate(divide="ignore"):
            logs = np.log(masses)
        ratios = np.stack([np.where(k % 2 == 0, 2.0, 0.0), np.where(k % 4 == 0, 4.0, 0.0), carried])
        return k * self.grid.region.h * self.grid.scale, logs, ratios

    def law(self, k: int) -> Law:
        """The law after step k."""
        if k not in self.kept:
            self.kept[k] = self._law(k)
        return self.kept[k]

    def _law(self, k: int) -> Law:
        step, numbers = self.series.step(self.first + k), self.ran.told.numbers[k]
        x, logs, ratios = self._line(self.ran.active(k - 1))
        ends = ends_of_line(x, self.frame)
        source = Source(x, logs, np.concatenate([ratios, ends[None]]), None, step.t, step.row)
        x, logs, ratios = self._line(self.ran.active(k))
        return Law(
            source,
            () if is_missing(step.y) else (Seen(step.y, step.t, step.row),),
            self.log_norm(k),
            x,
            logs,
            ratios,
            _NONE,
            _NONE,
            float(numbers[5]),
            float(numbers[0]),
            float(numbers[1]),
            float(numbers[2]),
            _results.OK,
            self.ran.target,
        )

    def fill(self, out: Summary, rows: slice, steps: slice) -> None:
        """Numbers of some steps."""
        told, scale = self.ran.told, self.grid.scale
        ys = self.series.seen(self.first + steps.start, self.first + steps.stop)
        out.fill_masses(rows, ys, told.log_norm[steps])
        out.errors[rows] = told.numbers[steps, 0] + told.numbers[steps, 2]
        out.mean[rows] = scale * told.mean[steps, AXES - 1]
        out.variance[rows] = scale**2 * told.covariance[steps, AXES - 1, AXES - 1]


def run_sparse(
    grid: Grid,
    frame: Frame,
    start: Active,
    part: tuple[Series, int, int],
    numbers: tuple[float, float],
) -> SparseStretch:
    """Rows on a sparse lattice, until one misses; `numbers`: error of a step, tolerance."""
    series, first, stop = part
    ran = run_rows(grid.region, start, series.some(first, stop), *numbers)
    return SparseStretch(grid, frame, ran, (series, first))
