"""Stretches of a series on sparse lattices: see `..lattice`."""

from typing import NamedTuple

import numpy as np

from .... import _results
from ..hosted import Series, Step, is_missing, usable
from ..loop.records import AXES, Active
from ..loop.region import Region
from ..loop.region import Space as LatticeSpace
from ..loop.run import Stretch, run_rows, thresholds
from ..tables import Seen
from .axes import Axis
from .chain import Row
from .law import Law, law_of, look
from .values import PlaneValues

_DIM = 2
# Most nodes that a law is looked at on its way to a lattice.
_MOST = 2**16


class SparseStretch:
    """A run on a sparse lattice, whose laws are made when they are asked for."""

    def __init__(
        self,
        region: Region,
        values: PlaneValues,
        ran: Stretch,
        part: tuple[Series, int],
        depth: float,
    ):
        self.region, self.values, self.ran, self.depth = region, values, ran, depth
        self.series, self.first = part
        self.kept: dict[int, Law] = {}

    def step(self, k: int) -> Step:
        """The row."""
        return self.series.step(self.first + k)

    def log_norm(self, k: int) -> float:
        """log Z, or that of the mass kept if nothing was seen."""
        return float(self.ran.told.log_norm[k])

    def law(self, k: int) -> Law:
        """The law after step k."""
        if k not in self.kept:
            step, numbers = self.step(k), self.ran.told.numbers[k]
            before = law_on(self.ran.active(k - 1), self.ran.h, self.depth)
            seen = () if is_missing(step.y) else (Seen(step.y, step.t, step.row),)
            self.kept[k] = law_on(self.ran.active(k), self.ran.h, self.depth)._replace(
                source=before.as_source(self.values, step.t, step.row),
                seen=seen,
                log_norm=self.log_norm(k),
                offset=float(numbers[5]),
                local=float(numbers[1]),
                sampling=float(numbers[2]),
                edge=float(numbers[3]),
            )
        return self.kept[k]

    def row(self, k: int, values: PlaneValues) -> Row:
        """Its numbers, without its law."""
        told, frame = self.ran.told, values.space.frame
        error, _, sampling, _, lost, *_ = told.numbers[k]
        some = slice(AXES - _DIM, AXES)
        moments = frame @ told.mean[k, some], frame @ told.covariance[k, some, some] @ frame.T
        y, log_norm = self.step(k).y, self.log_norm(k)
        masses = (0.0, log_norm) if is_missing(y) else (log_norm, 0.0)
        return Row(*masses, float(error + sampling + lost), usable(y), *moments)


class Scanned(NamedTuple):
    """One step of a stretch; answers as a `Link` does."""

    stretch: SparseStretch
    k: int

    @property
    def step(self) -> Step:
        """The row."""
        return self.stretch.step(self.k)

    @property
    def law(self) -> Law:
        """The law after it."""
        return self.stretch.law(self.k)

    @property
    def log_mass(self) -> float:
        """log Z; zero if nothing was seen."""
        return 0.0 if is_missing(self.step.y) else self.stretch.log_norm(self.k)

    @property
    def log_kept(self) -> float:
        """log of the predicted mass where the state lives."""
        return self.stretch.log_norm(self.k) if is_missing(self.step.y) else 0.0

    @property
    def code(self) -> int:
        """Whether the observation could be used."""
        return usable(self.step.y)

    def archived(self) -> "Scanned":
        """As it is: laws are made of what the stretch has left."""
        return self

    def row(self, values: PlaneValues) -> Row:
        """Its numbers, without its law."""
        return self.stretch.row(self.k, values)


def law_on(active: Active, h: float, depth: float) -> Law:
    """A law with nothing but what the nodes say of it."""
    place = active.place[:, AXES - _DIM :]
    # Multiples of four: sums over every fourth node are those of the lattice as a whole.
    first = place.min(axis=0) // 4 * 4
    last = -(-(place.max(axis=0) + 1) // 4) * 4
    one, two = (
        Axis(float(first[k] * h), float(last[k] * h), int(last[k] - first[k])) for k in range(2)
    )
    return Law(
        None,
        (),
        0.0,
        (one, two),
        np.eye(2),
        place - first,
        np.log(active.masses),
        active.carried,
        0.0,
        active.error,
        0.0,
        0.0,
        0.0,
        _results.OK,
        depth,
        lost=active.lost,
        hint=(one.num, two.num),
        dropped=active.dropped,
    )


def region_of(values: PlaneValues, h: float) -> Region:
    """The model on a lattice."""
    space = values.space
    return Region(values.ssm, LatticeSpace(space.frame, space.low, space.high), h)


def active_of(values: PlaneValues, law: Law, h: float, target: float) -> Active | None:
    """A law on a sparse lattice; None if that does not hold it."""
    if law.is_flat:
        return None
    nodes = law.nodes
    if _is_on(law, h):
        place = np.zeros((len(nodes), AXES), np.int64)
        place[:, AXES - _DIM :] = np.rint(nodes / h)
        return Active(place, law.masses, law.shape, law.error, law.lost, law.dropped)
    cell = max((axis.high - axis.low) / axis.num for axis in law.axes)
    space = values.space
    beside = np.any((nodes < space.low + 2 * h) | (nodes > space.high - 2 * h), axis=1)
    if float(np.sum(law.masses[beside])) > target:
        return None
    low, high = nodes.min(axis=0) - cell, nodes.max(axis=0) + cell
    first, last = np.floor(low / h).astype(int), np.ceil(high / h).astype(int)
    if np.prod(last - first + 1.0) > _MOST:
        return None
    one, two = (
        Axis(float(first[k] * h), float(last[k] * h), int(last[k] - first[k])) for k in range(2)
    )
    if min(one.num, two.num) < 4:
        return None
    mask = np.ones((one.num + 1, two.num + 1), bool)
    looked = look(values, law.source, law.seen, (one, two), np.eye(2), mask)
    again = law_of(law.source, law.seen, looked, law.sampling, law.depth, law)
    if again.code != _results.OK or abs(again.log_norm - law.log_norm) > 2 * target:
        return None
    masses = again.masses
    keep = masses > thresholds(target)[0]
    place = np.zeros((int(np.count_nonzero(keep)), AXES), np.int64)
    place[:, AXES - _DIM :] = again.place[keep] + first
    total = float(np.sum(masses[keep]))
    dropped = max(0.0, 1 - total) + law.dropped
    shape = again.shape[keep]
    return Active(place, masses[keep] / total, shape, again.error, law.lost, dropped)


def _is_on(law: Law, h: float) -> bool:
    """Whether the nodes of a law are those of a lattice."""
    spacings = [(axis.high - axis.low) / axis.num for axis in law.axes]
    places = np.array([axis.low / h for axis in law.axes])
    return bool(
        law.turn[0, 0] == 1
        and not any(axis.drawn for axis in law.axes)
        and np.max(np.abs(np.array(spacings) / h - 1)) < 1e-9
        and np.max(np.abs(places - np.rint(places))) < 1e-6
    )


def run_sparse(
    values: PlaneValues,
    region: Region,
    start: Active,
    part: tuple[Series, int, int],
    numbers: tuple[float, float, float],
) -> SparseStretch:
    """Rows on a sparse lattice, until one misses.

    Args:
        values: the model.
        region: the model on the lattice.
        start: the law before the rows.
        part: a series, the first of its rows and the one after the last.
        numbers: the error of a step, the tolerance, and the depth of laws.
    """
    (series, first, stop), (target, tol, depth) = part, numbers
    ran = run_rows(region, start, series.some(first, stop), target, tol)
    return SparseStretch(region, values, ran, (series, first), depth)
