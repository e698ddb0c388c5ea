"""Rows of a series on a sparse lattice, as far as its errors are small enough."""

from typing import NamedTuple

import numpy as np

from ..rules import DROPPED
from .kernel import run_steps
from .looks import Rows
from .records import (
    AXES,
    BAND,
    DONE,
    FULL,
    MISSED,
    OUTSIDE,
    WIDE,
    Active,
    Kept,
    Numbers,
    Scratch,
    Told,
)
from .region import Region
from .table_region import TableRegion

# Nodes of a window, by coordinates: arrays of megabytes.
_WINDOW = {1: 2**13, 2: 2**16, 3: 2**19, 4: 2**21}
# Nodes that are kept at once before they are packed: at first, and at most. Fresh memory takes
# longer than the steps that fill it.
_BUFFER, _MOST_BUFFER = 2**15, 2**19
# Mass of a kernel's tail, over that of a node that is dropped.
_TAIL = 1e-5


class Stretch(NamedTuple):
    """Steps that were made: where they started, the nodes after each of them, and their numbers."""

    h: float
    start: Active
    kept: Kept
    told: Told
    done: int  # how many steps
    reason: int
    target: float  # error of a step
    halves: float  # of the step that missed: what half its nodes err by; -1 if more are of no use

    def active(self, k: int) -> Active:
        """The nodes after step k; the start for -1."""
        if k < 0:
            return self.start
        first = 0 if k == 0 else int(self.kept.ends[k - 1])
        some, kept = slice(first, int(self.kept.ends[k])), self.kept
        error, lost, dropped = (float(self.told.numbers[k, i]) for i in (0, 4, 6))
        parts = kept.place[some], kept.masses[some], kept.carried[some]
        return Active(*parts, error, lost, dropped)


def thresholds(target: float) -> tuple[float, float]:
    """Mass of a node that is dropped, and of a kernel's tail."""
    return DROPPED * target, DROPPED * _TAIL * target


def run_rows(
    region: Region | TableRegion, active: Active, rows: Rows, target: float, total: float
) -> Stretch:
    """As many rows as the lattice can serve."""
    dim, num = region.dim, len(rows.ys)
    numbers = Numbers(
        dim, region.h, *thresholds(target), float(np.log(1e4 / target)), target, total
    )
    missing = np.all(np.isnan(rows.ys), axis=1) | np.any(np.isinf(rows.ys), axis=1)
    ys = np.where(missing[:, None], 0.0, rows.ys)
    if region.sensor is not None and ys.shape[1] != len(region.sensor.whiten):
        # A prediction may not know how wide observations are.
        ys = np.zeros((num, len(region.sensor.whiten)))
    if region.sensor is not None:
        whole = np.nan_to_num(ys, nan=0.0) @ region.sensor.whiten.T
        ys = np.where(np.isnan(ys), np.nan, whole)
    told, pack, window = _blank(num), _Pack(num), 2**12
    scratch, buffer = _scratch(window), _buffer(_BUFFER)
    at, reason, here, stuck = 0, DONE, active, False
    while at < num:
        if region.is_empty and not region.reached(here, numbers.tail, rows.at(at)):
            reason = WIDE
            break
        stop = min(at + region.rows_at_once, num)
        some = slice(at, stop)
        tables = region.tables(rows.some(at, stop), here, numbers.tail)
        parts = told.some(some)
        kept = Kept(*buffer, ends=np.zeros(stop - at, np.int64))
        data = ys[some], ~missing[some]
        done, reason = run_steps(data, here, tables, numbers, scratch, kept, parts)
        pack.add(kept, done)
        here = here if done == 0 else _last(kept, parts, done)
        at, stuck = at + done, stuck and done == 0
        if reason == OUTSIDE and not stuck and region.reached(here, numbers.tail, rows.at(at)):
            stuck = True
        elif reason == WIDE and window < _WINDOW[dim]:
            window *= 4
            scratch = _scratch(window)
        elif reason == FULL and done == 0 and len(buffer[1]) < _MOST_BUFFER:
            buffer = _buffer(4 * len(buffer[1]))
        elif reason == MISSED or (reason != DONE and done == 0):
            break
    told.log_norm[~missing] += (
        0.0 if region.sensor is None else region.sensor.constant(rows.ys[~missing])
    )
    halves = float(told.halves[at]) if reason == MISSED and at < num else -1.0
    return Stretch(region.h, active, pack.whole(), told, at, reason, target, halves)


class _Pack:
    """Nodes of steps, without the room that the buffer has."""

    def __init__(self, num: int):
        self.parts: list[Kept] = []
        self.ends = np.zeros(num, np.int64)
        self.done = self.nodes = 0

    def add(self, kept: Kept, done: int) -> None:
        """Some more steps."""
        size = int(kept.ends[done - 1]) if done > 0 else 0
        self.ends[self.done : self.done + done] = self.nodes + kept.ends[:done]
        place, masses, carried, ends = kept
        self.parts.append(
            Kept(place[:size].copy(), masses[:size].copy(), carried[:size].copy(), ends[:0])
        )
        self.done, self.nodes = self.done + done, self.nodes + size

    def whole(self) -> Kept:
        """All steps."""
        parts = self.parts or [Kept(*_buffer(0), ends=self.ends[:0])]
        return Kept(
            np.concatenate([one.place for one in parts]),
            np.concatenate([one.masses for one in parts]),
            np.concatenate([one.carried for one in parts]),
            self.ends,
        )


def _buffer(size: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    return np.empty((size, AXES), np.int64), np.empty(size), np.empty(size)


def _scratch(window: int) -> Scratch:
    return Scratch(
        sums=np.zeros((3, window)),
        carried=np.zeros(window),
        total=np.zeros(window),
        post=np.zeros(window),
        lines=np.zeros((3, window)),
        fine=np.zeros(window),
        left_out=np.zeros(window),
        weights=np.zeros((AXES, BAND)),
        window=np.zeros((3, AXES), np.int64),
        band=np.zeros((2, AXES), np.int64),
        scalars=np.zeros(8),
    )


def _blank(num: int) -> Told:
    return Told(
        np.zeros(num),
        np.zeros((num, 7)),
        np.zeros(num),
        np.zeros((num, AXES)),
        np.zeros((num, AXES, AXES)),
    )


def _last(kept: Kept, told: Told, done: int) -> Active:
    first = 0 if done == 1 else int(kept.ends[done - 2])
    some, numbers = slice(first, int(kept.ends[done - 1])), told.numbers[done - 1]
    return Active(
        kept.place[some].copy(),
        kept.masses[some].copy(),
        kept.carried[some].copy(),
        float(numbers[0]),
        float(numbers[4]),
        float(numbers[6]),
    )
