"""Series in the plane: sparse lattices as far as they go, steps of the host where they miss."""

from typing import NamedTuple

import numpy as np

from ..hosted import Series
from ..loop.records import ENOUGH
from .chain import Chain, Pace, extended
from .sparse import Scanned, SparseStretch, active_of, region_of, run_sparse
from .steps import depth_for
from .values import PlaneValues

# Spacings of sparse lattices, in deviations of the noise: a law as wide as the noise takes the
# first, and one of a sensor twelve times as precise the last. Steps before a wider one is tried.
_SPACINGS = tuple(0.9 * 2 ** (-k / 2) for k in range(8))
_LENGTH = 256


class Kit(NamedTuple):
    """What all steps of a pass share."""

    values: PlaneValues
    target: float  # error of one step
    tol: float

    @property
    def is_sparse(self) -> bool:
        """Whether lattices serve: Gaussian noise of the state."""
        return not self.values.ssm.vectorized and self.values.space.gaussian

    @property
    def depth(self) -> float:
        """How far down laws are kept."""
        return depth_for(self.target)


class Past(NamedTuple):
    """Rows that are done, and how many of a series they are."""

    chain: Chain
    at: int = 0

    def paced(self, pace: Pace) -> "Past":
        """Another way to go on."""
        return self._replace(chain=self.chain._replace(pace=pace))

    def with_rows(self, stretch: SparseStretch, count: int, pace: Pace) -> "Past":
        """Some more rows."""
        links = tuple(Scanned(stretch, k) for k in range(count))
        chain = self.chain._replace(links=(*self.chain.links, *links), pace=pace)
        return Past(chain, self.at + count)


def go_on(kit: Kit, series: Series, past: Past) -> Past:
    """Some more rows: a compiled stretch, or one row by the host."""
    chain, at = past
    stop, pace = series.stretch(at), chain.pace
    if pace.left == 0 and stop > at and kit.is_sparse:
        return _on_sparse(kit, (series, min(stop, at + _LENGTH)), past)
    chain = extended(kit.values, chain, series.step(at), kit.target)
    return Past(chain, at + 1).paced(pace._replace(left=max(pace.left - 1, 0)))


def _on_sparse(kit: Kit, part: tuple[Series, int], past: Past) -> Past:
    """Rows on a sparse lattice, and how to go on after them."""
    (series, stop), (chain, first), pace = part, past, past.chain.pace
    h, last = _SPACINGS[pace.spacing], chain.links[-1] if chain.links else None
    region, start = None, None
    if isinstance(last, Scanned) and last.stretch.ran.h == h:
        region, start = last.stretch.region, last.stretch.ran.active(last.k)
    if region is None or start is None:
        region, start = region_of(kit.values, h), active_of(kit.values, chain.law, h, kit.target)
    if start is None:
        return past.paced(pace.rested(0))
    numbers = kit.target, kit.tol, kit.depth
    stretch = run_sparse(kit.values, region, start, (series, first, stop), numbers)
    ran = stretch.ran
    if ran.done == stop - first:
        worst = float(np.max(ran.told.halves))
        # The exponent of an error falls with the square of the spacing.
        wider = ran.done == _LENGTH and worst < ENOUGH**2 and pace.spacing > 0
        return past.with_rows(stretch, ran.done, Pace(pace.spacing - wider))
    if ran.halves > 0 and pace.spacing + 1 < len(_SPACINGS):
        ratio = np.log(ENOUGH) / np.log(min(ran.halves, 0.9))
        more = int(np.clip(np.ceil(np.log2(ratio)), 1, 4))
        finer = min(pace.spacing + more, len(_SPACINGS) - 1)
        return past.with_rows(stretch, ran.done, pace._replace(spacing=finer))
    return past.with_rows(stretch, ran.done, pace.rested(ran.done))
