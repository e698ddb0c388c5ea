"""Steps of the compiled scan as links of a chain, whose laws are made when they are asked for."""

from typing import NamedTuple, Protocol

import numpy as np
from jaxtyping import Float

from .... import _results
from ..hosted import Series, Step, usable
from ..tables import Seen
from .axes import Axes, Axis
from .chain import Row
from .law import Law, law_of, look
from .scan import Lattice, Outs
from .values import PlaneValues


class AbstractStretch(Protocol):
    """Rows that were made at once."""

    def step(self, k: int) -> Step:
        """The row."""
        ...

    def law(self, k: int) -> Law:
        """The law after it."""
        ...

    def log_norm(self, k: int) -> float:
        """log Z, or that of the mass kept if nothing was seen."""
        ...

    def row(self, k: int, values: PlaneValues) -> Row:
        """Its numbers."""
        ...


def is_missing(y: Float[np.ndarray, " p"]) -> bool:
    """Whether an observation tells nothing."""
    return usable(y) != _results.OK or bool(np.all(np.isnan(y)))


class Stretch:
    """A run of the scan: where it started, and what its steps have left behind."""

    def __init__(
        self,
        values: PlaneValues,
        start: Lattice,
        outs: Outs,
        part: tuple[Series, int],
        depth: float,
    ):
        self.values, self.start, self.outs, self.depth = values, start, outs, depth
        self.series, self.first = part
        self.kept: dict[int, Law] = {}

    def lattice(self, k: int) -> Lattice:
        """That after step k."""
        if k < 0:
            return self.start
        return Lattice(*(part[k] for part in self.outs.lattice))

    def step(self, k: int) -> Step:
        """The row."""
        return self.series.step(self.first + k)

    def log_norm(self, k: int) -> float:
        """log Z, or that of the mass kept if nothing was seen."""
        return float(self.outs.log_norm[k])

    def law(self, k: int) -> Law:
        """The law after step k."""
        if k not in self.kept:
            self.kept[k] = self._law(k)
        return self.kept[k]

    def _law(self, k: int) -> Law:
        step, outs, own = self.step(k), self.outs, self.lattice(k)
        source = law_on(self.lattice(k - 1), self.depth).as_source(self.values, step.t, step.row)
        seen = () if is_missing(step.y) else (Seen(step.y, step.t, step.row),)
        return law_on(own, self.depth)._replace(
            source=source,
            seen=seen,
            log_norm=float(outs.log_norm[k]),
            offset=float(outs.offset[k]),
            local=float(outs.local[k]),
            sampling=float(outs.sampling[k]),
            edge=float(outs.edge[k]),
        )

    def row(self, k: int, values: PlaneValues) -> Row:
        """Its numbers, without its law."""
        outs, frame = self.outs, values.space.frame
        error = outs.lattice.error[k] + outs.sampling[k] + outs.lattice.lost[k]
        moments = frame @ outs.mean[k], frame @ outs.covariance[k] @ frame.T
        return row_of(self.step(k).y, self.log_norm(k), float(error), moments)


def row_of(
    y: np.ndarray, log_norm: float, error: float, moments: tuple[np.ndarray, np.ndarray]
) -> Row:
    """The numbers of a row."""
    masses = (0.0, log_norm) if is_missing(y) else (log_norm, 0.0)
    return Row(*masses, error, usable(y), *moments)


def law_on(lattice: Lattice, depth: float) -> Law:
    """A law with nothing but what a lattice says of it."""
    num = lattice.log_v.shape
    low, high = lattice.low, lattice.low + lattice.cell * np.array(num)
    one, two = (Axis(float(low[k]), float(high[k]), num[k]) for k in range(2))
    place = np.argwhere(np.isfinite(lattice.log_v))
    i, j = place[:, 0], place[:, 1]
    return Law(
        None,
        (),
        0.0,
        (one, two),
        np.asarray(lattice.turn),
        place,
        lattice.log_v[i, j],
        lattice.carried[i, j],
        0.0,
        float(lattice.error),
        0.0,
        0.0,
        0.0,
        _results.OK,
        depth,
        lost=float(lattice.lost),
        hint=(num[0], num[1]),
    )


class Scanned(NamedTuple):
    """One step of a stretch; answers as a `Link` does."""

    stretch: AbstractStretch
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


def on_lattice_of(
    values: PlaneValues, law: Law, num: tuple[int, int], turns: bool
) -> Lattice | None:
    """A law on a lattice of the scan; None if it has no density, or lies at a wall."""
    if law.is_flat or any(any(axis.walls) or axis.drawn for axis in law.axes):
        return None
    axes, turn = _around(law), law.turn
    if turns and axes[1].high - axes[1].low > axes[0].high - axes[0].low:
        # The longer axis has more nodes; turned by a right angle.
        first, second = axes
        axes = second, Axis(-first.high, -first.low, first.num)
        turn = np.stack([turn[:, 1], -turn[:, 0]], axis=1)
    one, two = (axis._replace(num=num[k]) for k, axis in enumerate(axes))
    mask = np.ones((num[0] + 1, num[1] + 1), bool)
    mask[-1], mask[:, -1] = False, False
    looked = look(values, law.source, law.seen, (one, two), turn, mask)
    again = law_of(law.source, law.seen, looked, law.sampling, law.depth)
    if again.code != _results.OK or abs(again.log_norm - law.log_norm) > 1e-2:
        return None
    log_v, carried = np.full(num, -np.inf), np.zeros(num)
    log_v[again.place[:, 0], again.place[:, 1]] = again.log_masses
    carried[again.place[:, 0], again.place[:, 1]] = again.shape
    low = np.array([one.low, two.low])
    cell = (np.array([one.high, two.high]) - low) / np.array(num)
    return Lattice(low, cell, turn, log_v, carried, np.asarray(again.error), np.asarray(law.lost))


def _around(law: Law) -> Axes:
    """The axes cut to the nodes that hold mass, with half a cell more at each end."""
    out = []
    for k in range(2):
        nodes, place = law.axes[k].nodes, law.place[:, k]
        cell = nodes[1] - nodes[0]
        out.append(Axis(float(nodes[place.min()] - cell), float(nodes[place.max()] + cell), 0))
    return out[0], out[1]
