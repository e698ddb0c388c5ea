"""Walls that nobody gave, moved out where a law rests on what is beyond them.

A transition that is known by its values alone is filtered on a box. Where the user gave none, it is
that of simulated states and their tails, and says nothing of where an outlier, or noise that grows
with the state, may lead.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple, Protocol, TypeVar

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Array, Float

from ..._density.box import Box
from ..._statespace.functions import keywords_of
from ..._statespace.model import StateSpaceModel
from ..numerics.compiled import call_compiled, remembered
from .loop.looks import ROWS, Rows, log_likelihoods
from .reach import frame_of
from .rules import no_nan
from .state import Law
from .tables import CompiledValues, Seen, Values

# Where a law is looked at beyond a wall, in half-widths of the box: what falls off faster than the
# first of these distances has less mass there than the trapezium counts.
_LADDER = np.append(0.0, 2.0 ** np.arange(-8.0, 6.25, 0.25))
# Of what a step may err by: so much beyond the walls is as good as nothing, and is not counted.
NOTHING = 0.01
# Times that walls are moved, each time by up to 64 half-widths: beyond that nothing helps.
TIMES = 8
# Logs of shares are cut here: sums of their exponentials stay finite.
_HIGHEST = 600.0
# Old states of a table of what leaves the box: neighbours differ by a factor that does not matter.
_STATES = 257


class LawSeen(Protocol):
    """A law of a line or of the plane."""

    @property
    def seen(self) -> tuple[Seen, ...]:
        """Observations since the last transition."""
        ...


M = TypeVar("M", bound=eqx.Module)


class Beyond(NamedTuple):
    """What laws have beyond the walls.

    Attributes:
        box: one that would hold them.
        shares: of each law's mass, over what is inside.
    """

    box: Box
    shares: np.ndarray


def are_ours(ssm: StateSpaceModel) -> bool:
    """Whether the box was simulated: additive noise on a line needs none."""
    return not ssm.boxed and ssm.structure is None


def widened(model: M, where: Callable[[M], Box], box: Box) -> M:
    """The same with other walls; `where` finds its box."""
    return eqx.tree_at(where, model, box)


def holding(ssm: StateSpaceModel, laws: Iterable[Law]) -> StateSpaceModel:
    """The model with walls that hold the nodes of laws, which may have been made within others."""
    if not are_ours(ssm):
        return ssm
    low, high = float(ssm.state_box.lower[0]), float(ssm.state_box.upper[0])
    ends = [(law.nodes[0], law.nodes[-1]) for law in laws]
    least, most = min(low, *(a for a, _ in ends)), max(high, *(b for _, b in ends))
    if (least, most) == (low, high):
        return ssm
    return widened(ssm, lambda s: s.state_box, Box(least, most))


def beyond(
    values: Values, ssm: StateSpaceModel, laws: Iterable[Law], target: float
) -> Beyond | None:
    """What is missing of laws that were made on the box of a model; None if nothing is."""
    if not are_ours(ssm):
        return None
    every, limit = list(laws), NOTHING * target
    outside = _Outside(values, ssm)
    doubtful = np.flatnonzero(outside.bounds(every) > limit)
    ends, shares = outside.ends, np.zeros(len(every))
    for k in doubtful:
        found, shares[k] = outside.of(every[k], limit)
        ends = min(ends[0], found[0]), max(ends[1], found[1])
    return None if ends == outside.ends else Beyond(Box(*ends), shares)


class _Outside:
    """Both sides of a box."""

    def __init__(self, values: Values, ssm: StateSpaceModel):
        frame, reach = frame_of(ssm), ssm.reach_box
        least = -np.inf if reach is None else float(reach.lower[0])
        most = np.inf if reach is None else float(reach.upper[0])
        self.values, self.ssm, self.ends = values, ssm, (frame.lower, frame.upper)
        steps = 0.5 * (frame.upper - frame.lower) * _LADDER
        # From the walls on; coordinates without walls may end sooner.
        self.left = frame.lower - np.minimum(steps, max(frame.lower - least, 0.0))
        self.right = frame.upper + np.minimum(steps, max(most - frame.upper, 0.0))
        self.x = np.concatenate([self.left, self.right])

    def of(self, law: Law, limit: float) -> tuple[tuple[float, float], float]:
        """Walls that leave less than `limit` of the mass beyond them, and what these leave."""
        if len(law.nodes) == 1:
            return self.ends, 0.0
        # Sums over old nodes as they are: for sizes it is enough.
        values = self.values
        logs = values.log_prior(self.x) if law.source is None else values.log_p(law.source, self.x)
        for seen in law.seen:
            logs = logs + values.log_likelihood(self.x, seen)
        with np.errstate(over="ignore"):
            densities = np.exp(np.minimum(no_nan(logs - law.log_norm), _HIGHEST))
        both, ends, total = np.split(densities, 2), [], 0.0
        for wall, x, density in zip(self.ends, (self.left, self.right), both, strict=True):
            rest = np.append(np.cumsum(_parts(x, density)[::-1])[::-1], 0.0)
            outer = float(x[int(np.argmax(rest <= limit))]) if rest[0] > limit else wall
            ends.append(outer)
            total += float(rest[0])
        return (ends[0], ends[1]), total

    def bounds(self, laws: Sequence[Law]) -> Float[np.ndarray, " n"]:
        """At most so much of each law is beyond, over what is inside; infinite if nobody knows."""
        out = np.full(len(laws), np.inf)
        if not isinstance(self.values, CompiledValues) or keywords_of(self.ssm.log_transition):
            return out
        leaks = remembered(self.ssm, _Outside, self._leaks)
        gains = highest(self.ssm, self.x[:, None], laws)
        for k, law in enumerate(laws):
            gain = gains[k] - law.log_norm
            if law.source is not None:
                leak = float(np.exp(law.source.log_masses) @ leaks(law.source.nodes))
                out[k] = leak * np.exp(min(gain, _HIGHEST)) if leak > 0 else 0.0
        return out

    def _leaks(self) -> Callable[[np.ndarray], np.ndarray]:
        """The mass of Q(u, .) beyond the walls, for any u: the larger one of two neighbours."""
        u = np.linspace(*self.ends, _STATES)
        rows = np.exp(np.minimum(no_nan(self.values.log_q(u, self.x, 1, None)), _HIGHEST))
        each = np.split(rows, 2, axis=1)
        sides = zip((self.left, self.right), each, strict=True)
        leaks = sum((np.sum(_parts(x, q), axis=1) for x, q in sides), np.zeros(_STATES))
        pairs = np.concatenate([[1.0], np.maximum(leaks[1:], leaks[:-1]), [1.0]])
        return lambda nodes: pairs[np.searchsorted(u, nodes)]


def highest(
    ssm: StateSpaceModel, x: Array | np.ndarray, laws: Sequence[LawSeen]
) -> Float[np.ndarray, " n"]:
    """The largest log of what each law has seen, over points (m, d)."""
    seen = [one for law in laws for one in law.seen]
    tops = np.zeros(len(seen))
    for k in range(0, len(seen), ROWS):
        some = seen[k : k + ROWS]
        inputs = jax.tree.map(lambda *a: np.stack(a), *(one.row for one in some))
        times = np.array([one.t for one in some])
        rows = Rows(np.stack([one.y for one in some]), times, inputs).filled(ROWS)
        logs = np.asarray(call_compiled(log_likelihoods, ssm, x, *rows))
        tops[k : k + len(some)] = np.max(no_nan(logs), axis=1)[: len(some)]
    own = np.repeat(np.arange(len(laws)), [len(law.seen) for law in laws])
    return np.bincount(own, tops, len(laws))


def _parts(x: np.ndarray, density: np.ndarray) -> np.ndarray:
    """The mass from each point to the next, by trapezia."""
    return 0.5 * np.abs(np.diff(x)) * (density[..., 1:] + density[..., :-1])
