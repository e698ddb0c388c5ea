"""Walls that nobody gave, moved out where a law rests on what is beyond them.

A transition that is known by its values alone is filtered on a box. Where the user gave none, it is
that of simulated states and their tails, and says nothing of where an outlier, or noise that grows
with the state, may lead.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple, Protocol, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..._density.box import Box
from ..._statespace.functions import keywords_of
from ..._statespace.model import Inputs, StateSpaceModel, log_observation_table
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
# Points between two neighbours of the best one, again and again: to 1e-10 of their distance.
_FINER, _ROUNDS = 17, 8
# Where a law is looked at around such a place, in distances from the middle of the box.
_NEAR = np.concatenate(
    [-(2.0 ** np.arange(-3.0, -31.0, -1.0)), [0.0], 2.0 ** np.arange(-30.0, -2.0)]
)
# Nats by which an observation must be likelier beyond the walls than it was, for walls to go there,
# and how far past it. A sensor that sees little is about as likely everywhere.
_LIKELIER, _ROOM = 3.0, 2.0
# How much wider other walls are that a result is held against: not twice, so that no panel stays.
_OTHER = 1.7
# Old states of a table of what leaves the box: neighbours differ by a factor that does not matter.
_STATES = 257


class LawSeen(Protocol):
    """A law of a line or of the plane."""

    @property
    def seen(self) -> tuple[Seen, ...]:
        """Observations since the last transition."""
        ...


M = TypeVar("M", bound=eqx.Module)
R = TypeVar("R")
B = TypeVar("B")


class Beyond(NamedTuple):
    """What laws have beyond the walls.

    Attributes:
        box: one that would hold them.
        shares: of each law's mass, over what is inside.
    """

    box: Box
    shares: np.ndarray


def are_ours(ssm: StateSpaceModel) -> bool:
    """Whether the box was simulated: additive noise on a line needs none.

    Steps of a diffusion are no densities any more where its noise vanishes, at the end of a
    support, which coordinates without walls have infinitely far away: there the box stays.
    """
    vanishes = ssm.reach_box is not None and bool(keywords_of(ssm.log_transition))
    return not ssm.boxed and ssm.structure is None and not vanishes


def widened(model: M, where: Callable[[M], Box], box: Box) -> M:
    """The same with other walls; `where` finds its box."""
    return eqx.tree_at(where, model, box)


def moved_out(
    made: R, missing: Callable[[R], B | None], again: Callable[[R, B], R]
) -> tuple[R, B | None]:
    """What was made, made again within walls that hold it; and what is missing even then."""
    found = missing(made)
    for _ in range(TIMES):
        if found is None:
            break
        made = again(made, found)
        found = missing(made)
    return made, found


def roomier(box: Box) -> Box:
    """Other walls, for comparison."""
    return Box(box.center - _OTHER * box.half_width, box.center + _OTHER * box.half_width)


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
    summits = outside.summits(every)
    doubtful = np.flatnonzero(outside.bounds(every, summits) > limit)
    ends, shares = outside.reached(every, summits), np.zeros(len(every))
    for k in doubtful:
        found, shares[k] = outside.of(every[k], summits[k].places, limit)
        ends = min(ends[0], found[0]), max(ends[1], found[1])
    return None if ends == outside.ends else Beyond(Box(*ends), shares)


class _Summits(NamedTuple):
    """Where what a law has seen is most likely beyond the walls, and the log of that."""

    places: Float[np.ndarray, " s"]
    log_g: float


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
        self.middle = 0.5 * (frame.lower + frame.upper)

    def of(
        self, law: Law, places: Float[np.ndarray, " s"], limit: float
    ) -> tuple[tuple[float, float], float]:
        """Walls that leave less than `limit` of the mass beyond them, and what these leave."""
        if len(law.nodes) == 1:
            return self.ends, 0.0
        # Sums over old nodes as they are: for sizes it is enough.
        values, (left, right) = self.values, self._lines(places)
        x = np.concatenate([left, right])
        logs = values.log_prior(x) if law.source is None else values.log_p(law.source, x)
        for seen in law.seen:
            logs = logs + values.log_likelihood(x, seen)
        densities = np.exp(np.minimum(no_nan(logs - law.log_norm), _HIGHEST))
        both, ends, total = np.split(densities, [len(left)]), [], 0.0
        for wall, x, density in zip(self.ends, (left, right), both, strict=True):
            rest = np.append(np.cumsum(_parts(x, density)[::-1])[::-1], 0.0)
            outer = float(x[int(np.argmax(rest <= limit))]) if rest[0] > limit else wall
            ends.append(outer)
            total += float(rest[0])
        return (ends[0], ends[1]), total

    def _lines(self, places: Float[np.ndarray, " s"]) -> tuple[np.ndarray, np.ndarray]:
        """Points from both walls on, close around some places too, from the wall outwards."""
        near = (places[:, None] + np.abs(places - self.middle)[:, None] * _NEAR).ravel()
        left = np.unique(np.append(self.left, near[(near < self.left[0]) & (near > self.left[-1])]))
        right = near[(near > self.right[0]) & (near < self.right[-1])]
        return left[::-1], np.unique(np.append(self.right, right))

    def summits(self, laws: Sequence[Law]) -> list[_Summits]:
        """Of each law; those of several sensors at one time each for itself."""
        seen = [one for law in laws for one in law.seen]
        if not isinstance(self.values, CompiledValues) or len(seen) == 0:
            return [_Summits(np.zeros(0), 0.0) for _ in laws]
        tops, places = in_rows(_climbed, self.ssm, (np.stack([self.left, self.right]),), seen)
        out, at = [], 0
        for law in laws:
            some = slice(at, at + len(law.seen))
            out.append(_Summits(places[some].ravel(), float(np.sum(np.max(tops[some], axis=1)))))
            at += len(law.seen)
        return out

    def reached(self, laws: Sequence[Law], summits: list[_Summits]) -> tuple[float, float]:
        """Walls far behind all places where an observation is much likelier than it was.

        What a law has there rests on tails of the laws before it, which ended at the walls too, and
        on both sides.
        """
        factor = 1.0
        for law, one in zip(laws, summits, strict=True):
            if one.log_g - law.log_norm > _LIKELIER:
                outer = one.places[(one.places < self.ends[0]) | (one.places > self.ends[1])]
                far = np.max(np.abs(outer - self.middle), initial=0.0)
                factor = max(factor, _ROOM * far / (self.ends[1] - self.middle))
        ends = (self.middle + factor * (end - self.middle) for end in self.ends)
        low, high = ends
        return max(low, float(self.left[-1])), min(high, float(self.right[-1]))

    def bounds(self, laws: Sequence[Law], summits: list[_Summits]) -> Float[np.ndarray, " n"]:
        """At most so much of each law is beyond, over what is inside; infinite if nobody knows."""
        out = np.full(len(laws), np.inf)
        if not isinstance(self.values, CompiledValues) or keywords_of(self.ssm.log_transition):
            return out
        leaks = remembered(self.ssm, _Outside, self._leaks)
        for k, law in enumerate(laws):
            gain = summits[k].log_g - law.log_norm
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
    if len(seen) == 0:
        return np.zeros(len(laws))
    (logs,) = in_rows(_logs, ssm, (x,), seen)
    tops = np.max(no_nan(logs), axis=1)
    own = np.repeat(np.arange(len(laws)), [len(law.seen) for law in laws])
    return np.bincount(own, tops, len(laws))


def in_rows(
    fn: Callable[..., tuple[Array, ...]],
    ssm: StateSpaceModel,
    given: tuple[np.ndarray | Array, ...],
    seen: Sequence[Seen],
) -> tuple[np.ndarray, ...]:
    """fn(ssm, *given, ys, times, inputs), compiled for some rows at once."""
    parts = []
    for k in range(0, len(seen), ROWS):
        some = seen[k : k + ROWS]
        inputs = jax.tree.map(lambda *a: np.stack(a), *(one.row for one in some))
        times = np.array([one.t for one in some])
        rows = Rows(np.stack([one.y for one in some]), times, inputs).filled(ROWS)
        found = call_compiled(fn, ssm, *given, *rows)
        parts.append([np.asarray(a)[: len(some)] for a in found])
    return tuple(np.concatenate(each) for each in zip(*parts, strict=True))


def _logs(ssm: StateSpaceModel, x: Array, ys: Array, ts: Array, rows: Inputs) -> tuple[Array]:
    return (log_likelihoods(ssm, x, ys, ts, rows),)


def _climbed(
    ssm: StateSpaceModel, lines: Array, ys: Array, ts: Array, rows: Inputs
) -> tuple[Array, Array]:
    """The largest log G on each line, found between its points too, and where: (t, 2) each."""

    def one(line: Array, y: Array, t: Array, row: Inputs) -> tuple[Array, Array]:
        def log_g(x: Array) -> Array:
            logs = log_observation_table(ssm, x[:, None], y, t, row)
            return jnp.where(jnp.isnan(logs) | jnp.isposinf(logs), -jnp.inf, logs)

        def closer(points: Array) -> Array:
            k = jnp.clip(jnp.argmax(log_g(points)), 1, len(points) - 2)
            return jnp.linspace(points[k - 1], points[k + 1], _FINER)

        points = jax.lax.fori_loop(0, _ROUNDS, lambda _, near: closer(near), closer(line))
        logs = log_g(points)
        return jnp.maximum(jnp.max(log_g(line)), jnp.max(logs)), points[jnp.argmax(logs)]

    return jax.vmap(lambda *row: jax.vmap(lambda line: one(line, *row))(lines))(ys, ts, rows)


def _parts(x: np.ndarray, density: np.ndarray) -> np.ndarray:
    """The mass from each point to the next, by trapezia."""
    return 0.5 * np.abs(np.diff(x)) * (density[..., 1:] + density[..., :-1])
