"""Steps one after the other, and those before again where an observation needs their tails.

A law keeps what has mass. An observation far from what was predicted makes the tail of the law
before it the place where the state must have been. The share of a law that comes from nodes beside
which others were left out tells; such a step is made again from laws that were kept deeper down.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple, Protocol, overload

import numpy as np
from jaxtyping import Float

from .... import _results
from ..hosted import Step, usable
from ..tables import Seen
from .answers import moments
from .law import Law
from .steps import Wanted, build, depth_for
from .values import PlaneValues

# Times that the kept depth is doubled: 2^6 times 17 nats are outliers of forty deviations.
_DEEPER = 6
# Steps back that are made again, at most.
DEPTH = 24
# Steps of the host before compiled ones are tried again: doubled each time that these soon fail.
_FIRST_CHUNK, _LAST_CHUNK = 1, 32
# Growth of the inherited error in one step that calls for better tails.
_JUMP = 4.0


class Row(NamedTuple):
    """What is told of one row."""

    log_mass: float
    log_kept: float
    error: float
    code: int
    mean: Float[np.ndarray, " 2"]
    covariance: Float[np.ndarray, "2 2"]


class AbstractLink(Protocol):
    """One row of a series, and the law after it."""

    @property
    def step(self) -> Step:
        """The row."""
        ...

    @property
    def law(self) -> Law:
        """The law after it."""
        ...

    @property
    def log_mass(self) -> float:
        """log Z; zero if nothing was seen."""
        ...

    @property
    def log_kept(self) -> float:
        """log of the predicted mass where the state lives."""
        ...

    @property
    def code(self) -> int:
        """What was wrong with it."""
        ...

    def row(self, values: PlaneValues) -> Row:
        """Its numbers."""
        ...

    def archived(self) -> "AbstractLink":
        """Without what only more steps would need."""
        ...


class Link(NamedTuple):
    """One row of a series, made on the host."""

    step: Step
    law: Law
    log_mass: float
    log_kept: float
    code: int

    def row(self, values: PlaneValues) -> Row:
        """Its numbers."""
        mean, covariance = moments(values, self.law)
        return Row(self.log_mass, self.log_kept, self.law.total, self.code, mean, covariance)

    def archived(self) -> "Link":
        """Without what only more steps would need."""
        return self._replace(law=self.law.archived())


def with_law(link: AbstractLink, law: Law) -> AbstractLink:
    """The row with its law refined."""
    if law is link.law:
        return link
    return Link(link.step, law, link.log_mass, link.log_kept, link.code)


class Laws(Sequence[Law]):
    """The laws of links, each made when it is asked for."""

    def __init__(self, links: Sequence[AbstractLink]):
        self._links = links

    def __len__(self) -> int:
        return len(self._links)

    @overload
    def __getitem__(self, index: int) -> Law: ...
    @overload
    def __getitem__(self, index: slice) -> "Laws": ...
    def __getitem__(self, index: int | slice) -> "Law | Laws":
        if isinstance(index, slice):
            return Laws(self._links[index])
        return self._links[index].law


class Pace(NamedTuple):
    """How a pass goes on.

    Attributes:
        spacing: which one the sparse lattice has.
        chunk: steps of the host when compiled ones miss.
        left: steps of the host before compiled ones are tried again.
    """

    spacing: int = 0
    chunk: int = _FIRST_CHUNK
    left: int = 0

    def rested(self, count: int) -> "Pace":
        """Some steps of the host; more of them if compiled ones have failed again soon."""
        chunk = _FIRST_CHUNK if count > self.chunk else min(2 * self.chunk, _LAST_CHUNK)
        return Pace(self.spacing, chunk, chunk)


class Chain(NamedTuple):
    """The law before the first row, and all rows since, or the last of them.

    `first` says whether the start is the prior, which can be made deeper; `pace` how the next rows
    are made.
    """

    start: Law
    links: tuple[AbstractLink, ...] = ()
    first: bool = True
    pace: Pace = Pace()

    @property
    def law(self) -> Law:
        """The last one."""
        return self.links[-1].law if self.links else self.start

    def every_law(self) -> Iterator[Law]:
        """The first, and those of all times, between two rows too."""
        yield self.start
        for link in self.links:
            here: Law | None = link.law
            while here is not None:
                yield here
                here = here.before

    def short(self) -> "Chain":
        """Its end, as long as steps may be made again."""
        if len(self.links) <= DEPTH:
            return self
        # Not between sensors at one time: they are made again together.
        cut = len(self.links) - DEPTH
        while cut > 0 and self.links[cut].step.hops == 0:
            cut -= 1
        if cut == 0:
            return self
        return Chain(self.links[cut - 1].law, self.links[cut:], False, self.pace)


def started(values: PlaneValues, target: float) -> Chain:
    """The prior."""
    return Chain(build(values, None, (0, None), (), Wanted(target, depth_for(target)))[1])


def extended(values: PlaneValues, chain: Chain, step: Step, target: float) -> Chain:
    """One more row; the ones before it again if it needs their tails."""
    depth = depth_for(target)
    new = _appended(values, chain, step, Wanted(target, depth))
    for times in range(1, _DEEPER + 1):
        if not _misses(new, target):
            return new
        new = _again(values, chain, step, Wanted(target, depth * 2**times), new)
    return new


def _misses(chain: Chain, target: float) -> bool:
    """Whether the last law rests on nodes beside which others were left out, now or before."""
    last = chain.law
    if last.edge > target:
        return True
    before = chain.links[-2].law if len(chain.links) > 1 else chain.start
    return last.error - last.local > _JUMP * (before.error + target)


def _again(values: PlaneValues, chain: Chain, step: Step, wanted: Wanted, found: Chain) -> Chain:
    """The last row from deeper laws before it: one of them, two, ... until that is enough."""
    best = found
    for back in range(1, min(DEPTH, len(chain.links) + 1) + 1):
        cut = len(chain.links) - back
        while cut > 0 and chain.links[cut].step.hops == 0:
            cut -= 1
        if cut < 0 or (cut == 0 and chain.links and back > len(chain.links)):
            if not chain.first:
                return best
            again = Chain(build(values, None, (0, None), (), _no_shallower(wanted, chain.start))[1])
            cut = 0
        else:
            again = Chain(chain.start, chain.links[:cut], chain.first)
        for link in chain.links[cut:]:
            again = _appended(values, again, link.step, _no_shallower(wanted, link.law))
        shallow = Wanted(wanted.target, depth_for(wanted.target))
        again = _appended(values, again, step, shallow)
        if _cost(again) < _cost(best):
            best = again
        if not _misses(again, wanted.target) or not _tail_misses(again.law, wanted.target):
            return best
    return best


def _no_shallower(wanted: Wanted, law: Law) -> Wanted:
    """As deep as a law that is made again was: an outlier before this one may rest on it."""
    return wanted._replace(depth=max(wanted.depth, law.depth))


def _cost(chain: Chain) -> float:
    return chain.law.error + chain.law.edge


def _tail_misses(last: Law, target: float) -> bool:
    """Whether what is still missing was left out further back."""
    return last.error - last.local > target


def _appended(values: PlaneValues, chain: Chain, step: Step, wanted: Wanted) -> Chain:
    """One more row, and the law before it refined if need be."""
    code = usable(step.y)
    missing = code != _results.OK or bool(np.all(np.isnan(step.y)))
    seen = () if missing else (Seen(step.y, step.t, step.row),)
    if step.hops == 0:
        return _same_time(values, chain, step, seen, wanted, code)
    law, log_kept = chain.law, 0.0
    parent = law
    before = None
    for hop in range(step.hops):
        last = hop == step.hops - 1
        at = (step.t - step.hops + 1 + hop, step.row)
        refined, fresh = build(values, law, at, seen if last else (), wanted)
        assert refined is not None
        if hop == 0:
            parent = refined
        else:
            before = refined._replace(before=before)
        law = fresh
        if not last:
            log_kept += law.log_norm
    law = law._replace(before=before)
    if law.code == _results.NO_MASS and seen:
        # The observation is impossible: the prediction stands.
        free = _appended(values, chain, step._replace(y=np.full(1, np.nan)), wanted)
        last = free.links[-1]
        link = Link(step, last.law, -np.inf, last.log_kept, _results.NO_MASS)
        return free._replace(links=(*free.links[:-1], link))
    log_mass = 0.0 if missing else law.log_norm + log_kept
    log_kept = law.log_norm + log_kept if missing else log_kept
    return _linked(_with_last(chain, parent), Link(step, law, log_mass, log_kept, code))


def _same_time(
    values: PlaneValues,
    chain: Chain,
    step: Step,
    seen: tuple[Seen, ...],
    wanted: Wanted,
    code: int,
) -> Chain:
    """One more observation at the same time: the law after the last transition is made anew."""
    old = chain.law
    if not seen:
        return _linked(chain, Link(step, old, 0.0, 0.0, code))
    both = (*old.seen, *seen)
    if old.source is None:
        law = build(values, None, (0, None), both, wanted)[1]
    else:
        parent = _parent(chain)
        law = build(values, parent, (old.source.t, old.source.row), both, wanted)[1]
    if law.code == _results.NO_MASS:
        return _linked(chain, Link(step, old, -np.inf, 0.0, _results.NO_MASS))
    log_mass = law.log_norm - old.log_norm
    return _linked(chain, Link(step, law._replace(before=old.before), log_mass, 0.0, code))


def _parent(chain: Chain) -> Law:
    """The law before the last transition."""
    links = chain.links
    if links[-1].law.before is not None:
        return links[-1].law.before
    k = len(links) - 1
    while links[k].step.hops == 0:
        k -= 1
    return links[k - 1].law if k > 0 else chain.start


def _with_last(chain: Chain, law: Law) -> Chain:
    if not chain.links:
        return chain._replace(start=law)
    return chain._replace(links=(*chain.links[:-1], with_law(chain.links[-1], law)))


def _linked(chain: Chain, link: Link) -> Chain:
    return chain._replace(links=(*chain.links, link))
