"""Rows of a series on a sparse lattice, as far as its errors are small enough."""

from typing import NamedTuple

import numpy as np

from .kernel import (
    AXES,
    BAND,
    DONE,
    MISSED,
    OUTSIDE,
    WIDE,
    Active,
    Kept,
    Numbers,
    Scratch,
    Told,
    run_steps,
)
from .region import Region, Rows

# Nodes of a region and of a window, by coordinates: tables of megabytes.
_REGION = {1: 2**16, 2: 2**17, 3: 2**20, 4: 2**22}
_WINDOW = {1: 2**13, 2: 2**16, 3: 2**19, 4: 2**21}
# Nodes that are kept at once before they are packed.
_BUFFER = 2**19
# Mass of a node that is dropped, over the error of a step; and of its kernel's tail, over that: an
# observation of four deviations rests on what is 1e-4 of the highest value.
_DROPPED, _TAIL = 1e-4, 1e-5


class Stretch(NamedTuple):
    """Steps that were made: where they started, the nodes after each of them, and their numbers."""

    h: float
    start: Active
    kept: Kept
    told: Told
    count: int
    reason: int
    halves: float  # of the step that missed: what half its nodes err by; -1 if more are of no use

    def active(self, k: int) -> Active:
        """The nodes after step k; the start for -1."""
        if k < 0:
            return self.start
        first = 0 if k == 0 else int(self.kept.ends[k - 1])
        some = slice(first, int(self.kept.ends[k]))
        numbers = self.told.numbers[k]
        parts = (part[some] for part in self.kept[:3])
        return Active(*parts, error=float(numbers[0]), lost=float(numbers[4]))


def thresholds(target: float) -> tuple[float, float]:
    """Mass of a node that is dropped, and of a kernel's tail."""
    return _DROPPED * target, _DROPPED * _TAIL * target


def run_rows(region: Region, active: Active, rows: Rows, target: float, total: float) -> Stretch:
    """As many rows as the lattice can serve."""
    dim, num = region.dim, len(rows.ys)
    numbers = Numbers(dim, region.h, *thresholds(target), target, total)
    missing = np.all(np.isnan(rows.ys), axis=1) | np.any(np.isinf(rows.ys), axis=1)
    ys = np.where(missing[:, None], 0.0, rows.ys)
    if region.sensor is not None:
        whole = np.nan_to_num(ys, nan=0.0) @ region.sensor.whiten.T
        ys = np.where(np.isnan(ys), np.nan, whole)
    told, pack, window = _blank(num), _Pack(num), 2**12
    scratch, buffer = _scratch(window), _buffer()
    at, reason, here, stuck = 0, DONE, active, False
    while at < num:
        if region.is_empty and not _cover(region, here, numbers, rows.at(at)):
            reason = WIDE
            break
        stop = min(at + region.rows_at_once, num)
        some = slice(at, stop)
        tables = region.tables(rows.some(at, stop))
        parts = Told(*(part[some] for part in told))
        kept = Kept(*buffer, np.zeros(stop - at, np.int64))
        data = ys[some], ~missing[some]
        done, reason = run_steps(data, here, tables, numbers, scratch, kept, parts)
        pack.add(kept, done)
        here = here if done == 0 else _last(kept, parts, done)
        at, stuck = at + done, stuck and done == 0
        if reason == OUTSIDE and not stuck and _cover(region, here, numbers, rows.at(at)):
            stuck = True
        elif reason == WIDE and window < _WINDOW[dim]:
            window *= 4
            scratch = _scratch(window)
        elif reason == MISSED or (reason != DONE and done == 0):
            break
    told.log_norm[~missing] += (
        0.0 if region.sensor is None else region.sensor.constant(rows.ys[~missing])
    )
    halves = float(told.halves[at]) if reason == MISSED and at < num else -1.0
    return Stretch(region.h, active, pack.whole(), told, at, reason, halves)


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
        copies = (part[:size].copy() for part in kept[:3])
        self.parts.append(Kept(*copies, kept.ends[:0]))
        self.done, self.nodes = self.done + done, self.nodes + size

    def whole(self) -> Kept:
        """All steps."""
        parts = (
            np.concatenate(part) for part in zip(*(one[:3] for one in self.parts), strict=True)
        )
        if not self.parts:
            return Kept(*(part[:0] for part in _buffer()), self.ends)
        return Kept(*parts, self.ends)


def _buffer() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    return np.zeros((_BUFFER, AXES), np.int64), np.zeros(_BUFFER), np.zeros(_BUFFER)


def _scratch(window: int) -> Scratch:
    return Scratch(
        np.zeros((3, window)),
        *(np.zeros(window) for _ in range(4)),
        np.zeros((3, window)),
        np.zeros(window),
        np.zeros((AXES, BAND)),
        np.zeros((3, AXES), np.int64),
        np.zeros((2, AXES), np.int64),
        np.zeros(8),
    )


def _blank(num: int) -> Told:
    return Told(
        np.zeros(num),
        np.zeros((num, 6)),
        np.zeros(num),
        np.zeros((num, AXES)),
        np.zeros((num, AXES, AXES)),
    )


def _last(kept: Kept, told: Told, done: int) -> Active:
    first = 0 if done == 1 else int(kept.ends[done - 2])
    some = slice(first, int(kept.ends[done - 1]))
    parts = (part[some].copy() for part in kept[:3])
    return Active(*parts, float(told.numbers[done - 1, 0]), float(told.numbers[done - 1, 4]))


def _cover(region: Region, active: Active, numbers: Numbers, row: Rows) -> bool:
    """Tabulate the nodes and what they reach."""
    dim, place = region.dim, active.place
    means = region.means_at(place[:, AXES - dim :] * region.h, row)
    there = np.all(np.isfinite(means), axis=1)
    if not np.any(there):
        return False
    reach = np.sqrt(2 * np.log(active.masses / numbers.tail))[:, None] + numbers.h
    first, last = place.min(axis=0), place.max(axis=0)
    low = np.min((means - reach)[there], axis=0) / region.h
    high = np.max((means + reach)[there], axis=0) / region.h
    if not max(np.max(np.abs(low)), np.max(np.abs(high))) < 2**40:
        return False
    real = slice(AXES - dim, AXES)
    first[real] = np.minimum(first[real], np.floor(low).astype(np.int64))
    last[real] = np.maximum(last[real], np.ceil(high).astype(np.int64))
    return region.cover(first, last, _REGION[dim])
