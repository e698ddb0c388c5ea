"""Series in the plane: compiled stretches as far as they go, steps of the host where they miss.

Additive Gaussian noise and a Gaussian sensor are served on sparse lattices, other models by a scan
over lattices of fixed size.
"""

from typing import NamedTuple

import jax
import numpy as np

from ..hosted import Series
from .chain import Chain, extended
from .scan import Lattice, Settings, run_scan
from .scanned import Scanned, Stretch, on_lattice_of
from .sparse import SparseStretch, active_of, region_of, run_sparse
from .spikes import has_floor
from .steps import depth_for
from .values import PlaneValues

# Nodes of a lattice of the scan along an axis: those to begin with, and those to go on to.
_SIZES = (16, 24, 32, 48, 64)
# Of tables of all pairs of nodes: the larger ones take seconds a step.
_PAIR_SIZES = (16, 24, 32)
# Steps of one scan, those that are not used cost nothing; and fewest that are worth a compilation.
_LENGTH, _WORTH = 64, 24
# Spacings of sparse lattices, in deviations of the noise: a law as wide as the noise takes the
# first, and one of a sensor twelve times as precise the last. Steps before a wider one is tried.
_SPACINGS = tuple(0.9 * 2 ** (-k / 2) for k in range(8))
_SPARSE_LENGTH = 256
# What half of the nodes err by where all of them are just enough.
_ENOUGH = 0.008
# Steps of the host before compiled ones are tried again: doubled each time that these soon fail.
_FIRST_CHUNK, _LAST_CHUNK = 1, 32
# Half of the nodes are enough if they err by no more than this share of the target.
_IDLE = 0.25


class Kit(NamedTuple):
    """What all steps of a pass share."""

    values: PlaneValues
    target: float  # error of one step
    tol: float

    @property
    def kind(self) -> str | None:
        """How stretches are compiled; None if they cannot be."""
        space = self.values.space
        if self.values.ssm.vectorized:
            return None
        if not space.gaussian:
            return "separable" if space.separable else "pairs"
        return "gaussian" if has_floor(self.values) else "sparse"

    @property
    def sizes(self) -> tuple[int, ...]:
        """Nodes of the scan along an axis, from the fewest on."""
        return _PAIR_SIZES if self.kind == "pairs" else _SIZES

    @property
    def depth(self) -> float:
        """How far down laws are kept."""
        return depth_for(self.target)

    def settings(self) -> Settings:
        """Numbers of the scan."""
        space = self.values.space
        numbers = (self.depth, self.target, self.tol)
        return Settings(space.frame, space.low, space.high, *(np.asarray(n) for n in numbers))


class Pace(NamedTuple):
    """How a pass goes on.

    Attributes:
        spacing: which one the sparse lattice has.
        num: nodes of the scan; None if the law is to be asked.
        chunk: steps of the host when compiled ones miss.
        left: steps of the host before compiled ones are tried again.
    """

    spacing: int = 0
    num: tuple[int, int] | None = None
    chunk: int = _FIRST_CHUNK
    left: int = 0

    def rested(self, count: int) -> "Pace":
        """Some steps of the host; more of them if compiled ones have failed again soon."""
        chunk = _FIRST_CHUNK if count > self.chunk else min(2 * self.chunk, _LAST_CHUNK)
        return Pace(self.spacing, None, chunk, chunk)


class Past(NamedTuple):
    """Rows that are done, and how to go on."""

    chain: Chain
    at: int = 0  # how many rows
    pace: Pace = Pace()

    def with_rows(self, stretch: Stretch | SparseStretch, count: int, pace: Pace) -> "Past":
        """Some more rows."""
        links = tuple(Scanned(stretch, k) for k in range(count))
        chain = self.chain._replace(links=(*self.chain.links, *links))
        return Past(chain, self.at + count, pace)


def go_on(kit: Kit, series: Series, past: Past) -> Past:
    """Some more rows: a compiled stretch, or one row by the host."""
    chain, at, pace = past
    stop, kind = series.stretch(at), kit.kind
    if pace.left == 0 and stop > at:
        if kind == "sparse":
            return _on_sparse(kit, (series, min(stop, at + _SPARSE_LENGTH)), past)
        if kind is not None and series.num >= _WORTH:
            return _on_scan(kit, (series, min(stop, at + _LENGTH)), past)
    chain = extended(kit.values, chain, series.step(at), kit.target)
    return Past(chain, at + 1, pace._replace(num=None, left=max(pace.left - 1, 0)))


def _on_sparse(kit: Kit, part: tuple[Series, int], past: Past) -> Past:
    """Rows on a sparse lattice, and how to go on after them."""
    (series, stop), (chain, first, pace) = part, past
    h, last = _SPACINGS[pace.spacing], chain.links[-1] if chain.links else None
    region, start = None, None
    stretch = last.stretch if isinstance(last, Scanned) else None
    if isinstance(last, Scanned) and isinstance(stretch, SparseStretch) and stretch.ran.h == h:
        region, start = stretch.region, stretch.ran.active(last.k)
    if region is None or start is None:
        region, start = region_of(kit.values, h), active_of(kit.values, chain.law, h, kit.target)
    if start is None:
        return past._replace(pace=pace.rested(0))
    numbers = kit.target, kit.tol, kit.depth
    stretch = run_sparse(kit.values, region, start, (series, first, stop), numbers)
    ran = stretch.ran
    if ran.count == stop - first:
        worst = float(np.max(ran.told.halves))
        # The exponent of an error falls with the square of the spacing.
        wider = worst < _ENOUGH**2 and pace.spacing > 0
        return past.with_rows(stretch, ran.count, Pace(pace.spacing - wider))
    if ran.halves > 0 and pace.spacing + 1 < len(_SPACINGS):
        ratio = np.log(_ENOUGH) / np.log(min(ran.halves, 0.9))
        more = int(np.clip(np.ceil(np.log2(ratio)), 1, 4))
        finer = min(pace.spacing + more, len(_SPACINGS) - 1)
        return past.with_rows(stretch, ran.count, pace._replace(spacing=finer))
    return past.with_rows(stretch, ran.count, pace.rested(ran.count))


def _on_scan(kit: Kit, part: tuple[Series, int], past: Past) -> Past:
    """Rows by the scan, and how to go on after them."""
    (series, stop), (chain, first, pace), values = part, past, kit.values
    kind, num = kit.kind, pace.num or _wanted(kit, chain)
    start = None if num is None else _start(kit, chain, num)
    if start is None or num is None or kind is None:
        return past._replace(pace=pace.rested(0))
    rows = series.padded(first, stop, (_LENGTH,))
    outs = run_scan(values.ssm, start, rows, kit.settings(), kind, has_floor(values))
    outs = jax.tree.map(np.asarray, outs)
    good = outs.good[: stop - first]
    count = len(good) if good.all() else int(np.argmin(good))
    stretch = Stretch(values, start, outs, (series, first), kit.depth)
    if count == len(good):
        return past.with_rows(stretch, count, Pace(0, _smaller(kit, num, outs.idle[:count])))
    more = _larger(kit, num, outs.by_axis[count]) if outs.resolved[count] else None
    if more is not None:
        return past.with_rows(stretch, count, pace._replace(num=more))
    return past.with_rows(stretch, count, pace.rested(count))


def _start(kit: Kit, chain: Chain, num: tuple[int, int]) -> Lattice | None:
    """The last law on a lattice of the scan; None if that does not hold it."""
    last = chain.links[-1] if chain.links else None
    if isinstance(last, Scanned) and isinstance(last.stretch, Stretch):
        lattice = last.stretch.lattice(last.k)
        if lattice.log_v.shape == num:
            return lattice
    return on_lattice_of(kit.values, chain.law, num, kit.kind != "separable")


def _wanted(kit: Kit, chain: Chain) -> tuple[int, int] | None:
    """Nodes for the law at hand, about as many as the host has found; None if it has no density."""
    law = chain.law
    if law.is_flat:
        return None
    num = [int(np.ptp(law.place[:, k])) for k in range(2)]
    if kit.kind != "separable":
        length = [(a.high - a.low) / a.num * n for a, n in zip(law.axes, num, strict=True)]
        num = num if length[0] >= length[1] else num[::-1]
    sizes = kit.sizes
    one, two = (next((s for s in sizes if s >= 0.75 * n), sizes[-1]) for n in num)
    return one, two


def _larger(kit: Kit, num: tuple[int, int], errors: np.ndarray) -> tuple[int, int] | None:
    """More nodes along the axes whose errors miss; None if there are none."""
    worst, sizes = errors.max(axis=0), kit.sizes
    want = [worst[k] > 0.25 * kit.target and num[k] < sizes[-1] for k in range(2)]
    if not any(want):
        return None
    one, two = (sizes[sizes.index(n) + 1] if w else n for n, w in zip(num, want, strict=True))
    return one, two


def _smaller(kit: Kit, num: tuple[int, int], idle: np.ndarray) -> tuple[int, int]:
    """Half of the nodes along the axes where that is enough."""
    worst = idle.max(axis=0)
    one, two = (
        n // 2 if worst[k] < _IDLE * kit.target and n // 2 in kit.sizes else n
        for k, n in enumerate(num)
    )
    return one, two
