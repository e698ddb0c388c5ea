"""The filter of a series on lattices: one scan, closer looks where it misses the tolerance."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from ... import _results
from ..._checks import is_concrete
from ..._statespace.model import Inputs, StateSpaceModel
from ..lengths import scan_rows as rows_up_to
from .space import Space, grid_of
from .step import Before, Lattice, Level, Sensed, Settled, settle
from .values import parts_of, unseen


class Law(NamedTuple):
    """The filter between two calls: a law, and all that its density between the nodes needs."""

    before: Before
    seen: Sensed
    now: Lattice
    log_norm: Float[Array, ""]
    error: Float[Array, ""]
    log_kept: Float[Array, ""]


class Rows(NamedTuple):
    """A series with a row for every transition; T rows each."""

    ys: Float[Array | np.ndarray, "t p"]
    steps: Int[Array | np.ndarray, " t"]
    moves: Bool[Array | np.ndarray, " t"]  # whether a transition comes before the row
    rows: Inputs
    end: Int[Array, ""] | None = None  # rows there are, if the arrays have room for more


class Kept(NamedTuple):
    """What every row leaves behind."""

    law: Law | None
    log_likelihood: Float[Array, ""]
    mean: Float[Array, " d"]
    covariance: Float[Array, "d d"]
    regimes: Float[Array, " k"]
    error: Float[Array, ""]
    own: Float[Array, ""]
    edge: Float[Array, ""]
    log_kept: Float[Array, ""]
    used: Bool[Array, ""]
    code: Int[Array, ""]


def start_law(ssm: StateSpaceModel, space: Space, level: Level, seen: Sensed) -> Law:
    """The prior, of mass one in every regime, with the regimes' own probabilities."""
    num, dim = len(parts_of(ssm)), space.dim
    size = int(np.prod([len(rule.nodes) for rule in space.rules(level.num)]))
    blank = jnp.zeros((num, size))
    nothing = Lattice(jnp.zeros(dim), jnp.ones(dim), blank, blank, blank)
    initial = jnp.ones(1) if ssm.regimes is None else ssm.regimes.initial
    some = initial > 0
    logs = jnp.where(some, jnp.log(jnp.where(some, initial, 1.0)), -jnp.inf)
    row = jax.tree.map(lambda a: a[0], seen.rows)
    first = Before(jnp.array(True), nothing, jnp.zeros(num), jnp.zeros((), int), row)
    empty = seen._replace(ys=jnp.full_like(seen.ys, jnp.nan))
    out = settle(ssm, space, first, empty, level, level.num)
    # Masses that the priors have on their lattice; each is to have its regime's probability.
    own = jax.scipy.special.logsumexp(out.lattice.log_masses, axis=1)
    weights = logs - jnp.where(jnp.isfinite(own), own, 0.0)
    lattice = out.lattice._replace(log_masses=out.lattice.log_masses + weights[:, None])
    before = first._replace(log_initial=weights - out.log_norm)
    zero = jnp.zeros(())
    return Law(before, empty, lattice, zero, out.error, zero)


def moved(law: Law, t: Int[Array, ""], row: Inputs) -> Before:
    """The law as that before a transition."""
    return Before(jnp.array(False), law.now, law.before.log_initial, t, row)


def refuse_no_pair(law: Law) -> None:
    """A sensor that takes u needs a transition before each observation."""
    if is_concrete(law.before.is_prior) and bool(law.before.is_prior):
        raise ValueError(
            "update must come after predict: the sensor takes u, the state before, and there is "
            "none before the first transition"
        )
    if law.seen.ys.shape[0]:
        raise ValueError(
            "update must come once after each predict, because the sensor takes u, the state "
            "before: join the observations of one time into one y"
        )


def advance(
    ssm: StateSpaceModel,
    space: Space,
    law: Law,
    at: tuple[Array, Array, Array, Inputs],
    level: Level,
    num: int,
) -> tuple[Law, Kept]:
    """One row: a transition if there is one, and what was seen after it."""
    y, t, moves, row = at
    infinite = jnp.any(jnp.isinf(y))
    y, row = jnp.where(infinite, jnp.nan, y), unseen(row, infinite)
    before = jax.tree.map(lambda a, b: jnp.where(moves, a, b), moved(law, t, row), law.before)
    # One that is missing takes no place from the others of its time.
    stays = jnp.all(jnp.isnan(y)) & ~moves
    seen = Sensed(
        jnp.where(stays, law.seen.ys, _shifted(law.seen.ys, y, moves, jnp.nan)),
        jax.tree.map(
            lambda old, new: jnp.where(stays, old, _shifted(old, new, moves, None)),
            law.seen.rows,
            row,
        ),
    )
    out, seen, bad = _settle_or_skip(ssm, space, before, seen, level, num)
    before = before._replace(row=unseen(before.row, bad))
    missing = jnp.all(jnp.isnan(y))
    base = jnp.where(moves, 0.0, law.log_norm)
    log_likelihood = jnp.where(missing, 0.0, out.log_norm - base)
    log_likelihood = jnp.where(bad | infinite, -jnp.inf, log_likelihood)
    log_kept = jnp.zeros(())
    if "walls" in space.kinds:
        # Nothing leaves a line or a circle.
        there = _log_predicted(ssm, space, before, (seen, out), level, num)
        log_kept = jnp.where(moves, there, law.log_kept)
    code = jnp.where(bad, _results.NO_MASS, _results.OK)
    code = jnp.where(infinite, _results.BAD_OBSERVATION, code)
    new = Law(before, seen, out.lattice, out.log_norm, out.error, log_kept)
    mean, covariance, regimes = summary(space, out.lattice, level.num)
    kept = Kept(
        None, log_likelihood, mean, covariance, regimes, out.error, out.own, out.edge, log_kept,
        ~(missing | bad | infinite), code,
    )  # fmt: skip
    return new, kept


def _settle_or_skip(
    ssm: StateSpaceModel, space: Space, before: Before, seen: Sensed, level: Level, num: int
) -> tuple[Settled, Sensed, Bool[Array, ""]]:
    """The law given what was seen, or without the last of it if that is impossible."""
    shapes = jax.eval_shape(lambda: settle(ssm, space, before, seen, level, num))
    blank = jax.tree.map(lambda a: jnp.zeros(a.shape, a.dtype), shapes)
    blank = blank._replace(log_norm=jnp.array(-jnp.inf))
    tried = seen._replace(ys=seen.ys.at[-1].set(jnp.nan))

    def attempt(
        so_far: tuple[Settled, Array], at: tuple[Array, Array]
    ) -> tuple[tuple[Settled, Array], None]:
        done, count = so_far
        needed = ~jnp.isfinite(done.log_norm)
        again, start = seen._replace(ys=at[0]), before._replace(row=unseen(before.row, at[1]))
        out = jax.lax.cond(
            needed, lambda: settle(ssm, space, start, again, level, num), lambda: done
        )
        return (out, count + needed.astype(int)), None

    # A loop, so that a step is compiled once.
    both = jnp.stack([seen.ys, tried.ys]), jnp.array([False, True])
    (out, count), _ = jax.lax.scan(attempt, (blank, jnp.zeros((), int)), both)
    bad = count > 1
    return out, jax.tree.map(lambda a, b: jnp.where(bad, a, b), tried, seen), bad


def _shifted(old: Array, new: Array, moves: Array, fill: float | None) -> Array:
    """The sensors of one time: all so far and the new one last, none so far after a transition."""
    rest = jnp.concatenate([old[1:], new[None]])
    if fill is None:
        fresh = jnp.broadcast_to(new[None], old.shape)
    else:
        fresh = jnp.full_like(old, fill).at[-1].set(new)
    return jnp.where(moves, fresh, rest)


def _log_predicted(
    ssm: StateSpaceModel,
    space: Space,
    before: Before,
    found: tuple[Sensed, Settled],
    level: Level,
    num: int,
) -> Float[Array, ""]:
    """log of the predicted mass between the walls; `found` is it, if nothing was seen."""
    seen, out = found
    empty = Sensed(jnp.full_like(seen.ys, jnp.nan), seen.rows)
    before = before._replace(row=unseen(before.row))

    def predicted() -> Array:
        return settle(ssm, space, before, empty, level, num).log_norm

    return jax.lax.cond(jnp.all(jnp.isnan(seen.ys)), lambda: out.log_norm, predicted)


def summary(
    space: Space, lattice: Lattice, num: int
) -> tuple[Float[Array, " d"], Float[Array, "d d"], Float[Array, " k"]]:
    """Mean, covariance, and probabilities of regimes; on circles the mean of directions.

    Deviations from a mean direction go the shortest way round.
    """
    nodes = grid_of(space, lattice.window, num).nodes
    masses = jnp.exp(lattice.log_masses)
    regimes = jnp.sum(masses, axis=1)
    return *moments(space, nodes, jnp.sum(masses, axis=0)), regimes / jnp.sum(regimes)


def moments(
    space: Space, nodes: Float[Array, "n d"], masses: Float[Array, " n"]
) -> tuple[Float[Array, " d"], Float[Array, "d d"]]:
    """Of masses at nodes."""
    share = masses / jnp.sum(masses)
    origin = nodes[jnp.argmax(masses)]
    mean = origin + share @ (nodes - origin[None, :])
    delta = nodes - mean[None, :]
    if "circle" in space.kinds:
        circle = jnp.asarray(space.is_kind("circle"))
        angle = 2 * jnp.pi * (nodes - origin[None, :]) / space.period[None, :]
        turn = jnp.arctan2(share @ jnp.sin(angle), share @ jnp.cos(angle))
        direction = origin + turn * space.period / (2 * jnp.pi)
        mean = jnp.where(circle, space.wrapped(direction[None, :])[0], mean)
        delta = nodes - mean[None, :]
        period = space.period[None, :]
        delta = jnp.where(circle[None, :], delta - period * jnp.round(delta / period), delta)
    return mean, jnp.einsum("n,ni,nj->ij", share, delta, delta)


def resultants(
    space: Space, nodes: Float[Array, "n d"], masses: Float[Array, " n"]
) -> Float[Array, " d"]:
    """|E exp(2 pi i x / period)| on circles: 1 if the angle is known, 0 if all are alike."""
    share = masses / jnp.sum(masses)
    angle = 2 * jnp.pi * nodes / space.period[None, :]
    length = jnp.hypot(share @ jnp.sin(angle), share @ jnp.cos(angle))
    return jnp.where(jnp.asarray(space.is_kind("circle")), length, jnp.nan)


def scan_rows(
    ssm: StateSpaceModel,
    space: Space,
    eps: Float[Array, ""],
    rows: Rows,
    options: tuple[int, int, bool],
) -> tuple[Law, Kept]:
    """All rows; `options`: nodes of each axis, sensors at one time, whether laws are kept."""
    num, sensors, keep = options
    level = Level(num, eps)
    width = rows.ys.shape[1]
    first = jax.tree.map(lambda a: jnp.broadcast_to(a[0], (sensors, *a.shape[1:])), rows.rows)
    law = start_law(ssm, space, level, Sensed(jnp.full((sensors, width), jnp.nan), first))

    @jax.checkpoint
    def step(law: Law, at: tuple[Array, Array, Array, Inputs]) -> tuple[Law, Kept]:
        return advance(ssm, space, law, at, level, num)

    def kept(law: Law, at: tuple[Array, Array, Array, Inputs]) -> tuple[Law, Kept]:
        new, out = step(law, at)
        return new, out._replace(law=new if keep else None)

    ys, steps, moves = (jnp.asarray(a) for a in (rows.ys, rows.steps, rows.moves))
    at = ys, steps, moves, rows.rows
    return rows_up_to(kept, law, at, rows.end)


def scan_ahead(
    ssm: StateSpaceModel, space: Space, last: Law, steps: Array, rows: Inputs, level: Level
) -> Kept:
    """Transitions one after the other, with nothing seen."""
    width = last.seen.ys.shape[1]
    first = jax.tree.map(lambda a: a[:1], rows)
    law = last._replace(seen=Sensed(jnp.full((1, width), jnp.nan), first))
    law = law._replace(before=law.before._replace(row=jax.tree.map(lambda a: a[0], rows)))

    def step(law: Law, at: tuple[Array, Inputs]) -> tuple[Law, Kept]:
        t, row = at
        blank = jnp.full(width, jnp.nan)
        new, kept = advance(ssm, space, law, (blank, t, jnp.array(True), row), level, level.num)
        return new, kept._replace(law=new)

    return jax.lax.scan(step, law, (steps, rows))[1]
