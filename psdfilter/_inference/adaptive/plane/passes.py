"""Series in the plane: the compiled scan as far as it goes, steps of the host where it misses."""

from typing import NamedTuple

import jax
import numpy as np

from ..hosted import Series
from .chain import Chain, extended
from .scan import Lattice, Settings, run_scan
from .scanned import Scanned, Stretch, on_lattice_of
from .spikes import has_floor
from .steps import depth_for
from .values import PlaneValues

# Nodes of a lattice of the scan along an axis: those to begin with, and those to go on to.
_SIZES = (16, 24, 32, 48, 64)
# Of tables of all pairs of nodes: the larger ones take seconds a step.
_PAIR_SIZES = (16, 24, 32)
# Steps of one scan; those that are not used cost nothing.
LENGTH = 64
# Steps of the host before the scan is tried again: doubled each time that it soon fails again.
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
        """The scan's name for the transition; None if the model cannot be compiled."""
        space = self.values.space
        if self.values.ssm.vectorized:
            return None
        if space.gaussian:
            return "gaussian"
        return "separable" if space.separable else "pairs"

    @property
    def sizes(self) -> tuple[int, ...]:
        """Nodes along an axis, from the fewest on."""
        return _PAIR_SIZES if self.kind == "pairs" else _SIZES

    def settings(self) -> Settings:
        """Numbers of the scan."""
        space = self.values.space
        numbers = (depth_for(self.target), self.target, self.tol)
        return Settings(space.frame, space.low, space.high, *(np.asarray(n) for n in numbers))


class Pace(NamedTuple):
    """How a pass goes on.

    Attributes:
        num: nodes of the scan; None if the law is to be asked.
        chunk: steps of the host when the scan misses.
        left: steps of the host before the scan is tried again.
    """

    num: tuple[int, int] | None = None
    chunk: int = _FIRST_CHUNK
    left: int = 0


class Past(NamedTuple):
    """Rows that are done, and how to go on."""

    chain: Chain
    at: int = 0  # how many rows
    pace: Pace = Pace()


def go_on(kit: Kit, series: Series, past: Past) -> Past:
    """Some more rows: a stretch of the scan, or one row by the host."""
    chain, at, pace = past
    stop = min(series.stretch(at), at + LENGTH) if kit.kind is not None else at
    if pace.left == 0 and stop > at:
        return _scanned(kit, (series, stop), past)
    chain = extended(kit.values, chain, series.step(at), kit.target)
    return Past(chain, at + 1, Pace(None, pace.chunk, max(pace.left - 1, 0)))


def _scanned(kit: Kit, part: tuple[Series, int], past: Past) -> Past:
    """Rows by the scan, and how to go on after them."""
    (series, stop), (chain, first, pace), values = part, past, kit.values
    kind, num = kit.kind, pace.num or _wanted(kit, chain)
    start = None if num is None else _start(kit, chain, num)
    if start is None or num is None or kind is None:
        return past._replace(pace=_rested(pace, 0))
    rows = series.padded(first, stop, (LENGTH,))
    outs = run_scan(values.ssm, start, rows, kit.settings(), kind, has_floor(values))
    outs = jax.tree.map(np.asarray, outs)
    good = outs.good[: stop - first]
    count = len(good) if good.all() else int(np.argmin(good))
    stretch = Stretch(values, start, outs, (series, first), depth_for(kit.target))
    links = tuple(Scanned(stretch, k) for k in range(count))
    chain, at = chain._replace(links=(*chain.links, *links)), first + count
    if count == len(good):
        return Past(chain, at, Pace(_smaller(kit, num, outs.idle[:count])))
    more = _larger(kit, num, outs.by_axis[count]) if outs.resolved[count] else None
    if more is not None:
        return Past(chain, at, pace._replace(num=more))
    return Past(chain, at, _rested(pace, count))


def _start(kit: Kit, chain: Chain, num: tuple[int, int]) -> Lattice | None:
    """The last law on a lattice of the scan; None if that does not hold it."""
    last = chain.links[-1] if chain.links else None
    if isinstance(last, Scanned):
        lattice = last.stretch.lattice(last.k)
        if lattice.log_v.shape == num:
            return lattice
    return on_lattice_of(kit.values, chain.law, num, kit.kind != "separable")


def _rested(pace: Pace, count: int) -> Pace:
    """Some steps of the host; more of them if the scan has failed again soon."""
    chunk = _FIRST_CHUNK if count > pace.chunk else min(2 * pace.chunk, _LAST_CHUNK)
    return Pace(None, chunk, chunk)


def _wanted(kit: Kit, chain: Chain) -> tuple[int, int] | None:
    """Nodes for the law at hand, as many as the host has found; None if that is too many."""
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
        n // 2 if worst[k] < _IDLE * kit.target and n > kit.sizes[0] else n
        for k, n in enumerate(num)
    )
    return one, two
