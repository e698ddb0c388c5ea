"""Steps of the compiled scan as laws, made when they are asked for.

A step of the scan takes microseconds, its law as an object of the host a hundred times as long:
most of them nobody looks at.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import NamedTuple, overload

import numpy as np
from jaxtyping import Float, Int

from ... import _results
from .fast import Nodes, Outs
from .hosted import Outcome, Series, is_missing, usable
from .reach import Frame
from .rules import scan_rule
from .state import Law, ends_of_line
from .tables import Seen, Source

_NONE = np.zeros(0)


class HostNodes(NamedTuple):
    """`Nodes` of the scan as NumPy arrays."""

    x: Float[np.ndarray, " n"]
    log_v: Float[np.ndarray, " n"]
    carried: Float[np.ndarray, " n"]


class AbstractStretch(ABC):
    """Steps that were made at once."""

    series: Series
    first: int  # row of the series

    @abstractmethod
    def law(self, k: int) -> Law:
        """The law after step k."""

    @abstractmethod
    def log_norm(self, k: int) -> float:
        """log Z, or that of the mass kept if nothing was seen."""

    @abstractmethod
    def fill(self, out: "Summary", rows: slice, steps: slice) -> None:
        """Numbers of some steps."""


class Stretch(AbstractStretch):
    """A run of the scan: where it started, and what its steps have left behind."""

    def __init__(
        self,
        outs: Outs,
        start: Nodes,
        frame: Frame,
        series: Series,
        first: int,
        target: float,
    ):
        self.outs, self.start, self.frame = outs, start, frame
        self.series, self.first, self.target = series, first, target
        self.bounded = bool(np.isfinite(frame.lower) or np.isfinite(frame.upper))
        self.kept: dict[int, Law] = {}

    def log_norm(self, k: int) -> float:
        """log Z, or that of the mass kept if nothing was seen."""
        return float(self.outs.log_norm[k])

    def fill(self, out: "Summary", rows: slice, steps: slice) -> None:
        """Numbers of some steps."""
        outs = self.outs
        ys = self.series.seen(self.first + steps.start, self.first + steps.stop)
        out.fill_masses(rows, ys, np.asarray(outs.log_norm[steps]))
        out.errors[rows] = outs.error[steps] + outs.sampling[steps] + outs.edge[steps]
        masses, nodes = np.exp(outs.nodes.log_v[steps]), outs.nodes.x[steps]
        mean = np.sum(masses * nodes, axis=1)
        out.mean[rows] = mean
        out.variance[rows] = np.sum(masses * np.square(nodes - mean[:, None]), axis=1)

    def _nodes(self, k: int) -> "HostNodes":
        if k < 0:
            return HostNodes(*(np.asarray(part) for part in self.start))
        return HostNodes(*(np.asarray(part)[k] for part in self.outs.nodes))

    def law(self, k: int) -> Law:
        """The law after step k."""
        if k not in self.kept:
            self.kept[k] = self._law(k)
        return self.kept[k]

    def _law(self, k: int) -> Law:
        outs, before, own = self.outs, self._nodes(k - 1), self._nodes(k)
        step = self.series.step(self.first + k)
        levels = _levels(len(own.x), self.bounded)
        ends = ends_of_line(before.x, self.frame)
        ratios = np.concatenate([levels, before.carried[None], ends[None]])
        source = Source(before.x, before.log_v, ratios, None, step.t, step.row)
        return Law(
            source,
            () if is_missing(step.y) else (Seen(step.y, step.t, step.row),),
            float(outs.log_norm[k]),
            own.x,
            own.log_v,
            np.concatenate([levels, own.carried[None]]),
            _NONE,
            _NONE,
            float(outs.offset[k]),
            float(outs.error[k]),
            float(outs.local[k]),
            float(outs.sampling[k] + outs.edge[k]),
            _results.OK,
            self.target,
        )


@lru_cache(maxsize=16)
def _levels(num: int, bounded: bool) -> np.ndarray:
    weights = scan_rule(num, bounded).weights
    return weights[1:] / weights[:1]


class Scanned(NamedTuple):
    """One step of a stretch; answers as an `Outcome` does."""

    stretch: AbstractStretch
    k: int

    @property
    def law(self) -> Law:
        """The law after the step."""
        return self.stretch.law(self.k)

    @property
    def log_mass(self) -> float:
        """log Z; zero if nothing was seen."""
        y = self.stretch.series.step(self.stretch.first + self.k).y
        return 0.0 if is_missing(y) else self.stretch.log_norm(self.k)

    def with_law(self, law: Law) -> Outcome:
        """The step with its law refined."""
        y = self.stretch.series.step(self.stretch.first + self.k).y
        log_norm, missing, code = self.stretch.log_norm(self.k), is_missing(y), usable(y)
        return Outcome(law, 0.0 if missing else log_norm, log_norm if missing else 0.0, code)


class Summary(NamedTuple):
    """Numbers of all steps."""

    log_masses: Float[np.ndarray, " t"]
    log_kept: Float[np.ndarray, " t"]
    errors: Float[np.ndarray, " t"]
    codes: Int[np.ndarray, " t"]
    mean: Float[np.ndarray, " t"]
    variance: Float[np.ndarray, " t"]

    def fill_masses(
        self, rows: slice, ys: Float[np.ndarray, "t p"], norms: Float[np.ndarray, " t"]
    ) -> None:
        """log Z or mass kept, and codes, of some rows."""
        infinite = np.isinf(ys).any(axis=1)
        missing = infinite | np.isnan(ys).all(axis=1)
        self.log_masses[rows] = np.where(missing, 0.0, norms)
        self.log_kept[rows] = np.where(missing, norms, 0.0)
        self.codes[rows] = np.where(infinite, _results.BAD_OBSERVATION, _results.OK)


def summaries(outcomes: Sequence[Outcome | Scanned]) -> Summary:
    """Stretches at once, other steps one by one."""
    num = len(outcomes)
    zeros = [np.zeros(num) for _ in range(5)]
    out = Summary(zeros[0], zeros[1], zeros[2], np.zeros(num, int), zeros[3], zeros[4])
    at = 0
    while at < num:
        one = outcomes[at]
        if isinstance(one, Scanned):
            stop = at
            while stop < num and _follows(outcomes[stop], one.stretch, one.k + stop - at):
                stop += 1
            one.stretch.fill(out, slice(at, stop), slice(one.k, one.k + stop - at))
            at = stop
            continue
        law, masses = one.law, one.law.masses
        mean = float(masses @ law.nodes)
        out.log_masses[at], out.log_kept[at], out.codes[at] = one.log_mass, one.log_kept, one.code
        out.errors[at] = law.error + law.sampling
        out.mean[at], out.variance[at] = mean, float(masses @ np.square(law.nodes - mean))
        at += 1
    return out


def _follows(one: Outcome | Scanned, stretch: AbstractStretch, k: int) -> bool:
    return isinstance(one, Scanned) and one.stretch is stretch and one.k == k


class Laws(Sequence[Law]):
    """The laws of all steps, each made when it is asked for."""

    def __init__(self, outcomes: Sequence[Outcome | Scanned]):
        self._outcomes = tuple(outcomes)

    def __len__(self) -> int:
        return len(self._outcomes)

    @overload
    def __getitem__(self, index: int) -> Law: ...
    @overload
    def __getitem__(self, index: slice) -> "Laws": ...
    def __getitem__(self, index: int | slice) -> "Law | Laws":
        if isinstance(index, slice):
            return Laws(self._outcomes[index])
        return self._outcomes[index].law

    def __iter__(self) -> Iterator[Law]:
        return (one.law for one in self._outcomes)
