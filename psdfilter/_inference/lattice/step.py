"""One time of the filter: the law of regime and state on a window of its own.

    p_k(x) = sum_m Q_k(u_m, x) sum_j P_jk(u_m) v_jm,      pi_k(x) = p_k(x) prod_s G_k(x, y_s) / Z

from the masses v_jm of regimes j at the nodes u_m of the time before. Values of Q and G are exact
wherever they are asked for, so that every time has nodes of its own, where it has its mass. The
same sums over every second and every fourth old node say how well the nodes resolve the integral;
relative errors of the old law are summed along with it, so that old errors are forgotten as fast as
the filter forgets.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from ..._statespace.model import Inputs, StateSpaceModel
from .rules import embedded_error
from .space import Grid, Space, Window, grid_of
from .values import (
    log_likelihoods,
    log_priors,
    log_transitions,
    parts_of,
    prior_reach,
    reach_of,
    switch_matrices,
    takes_u,
)
from .window import Cells, cells_of, find_window, hidden_rise, highest_near

# Points of a look at a sensor inside of each cell, by the number of coordinates.
_DENSE = {1: 16, 2: 4}
# Nats by which a look must exceed the nodes for a peak to count as hidden between them.
_HIDDEN = 3.0


class Level(NamedTuple):
    """How closely a law is looked at: nodes of each axis, and the mass that windows leave out."""

    num: int
    eps: Array | float

    def cells(self, dim: int) -> int:
        """Cells of each axis, in the search for a window."""
        return max(self.num // 2, 32) if dim == 1 else self.num


class Lattice(NamedTuple):
    """A law on the nodes of its window, of mass one.

    Attributes:
        lower: of the window.
        upper: likewise.
        log_masses: of regimes at nodes.
        relative: estimated relative errors there, of mean zero, with their sign.
        log_predicted: log of the density before the observation.
    """

    lower: Float[Array, " d"]
    upper: Float[Array, " d"]
    log_masses: Float[Array, "k n"]
    relative: Float[Array, "k n"]
    log_predicted: Float[Array, "k n"]

    @property
    def window(self) -> Window:
        """Where it is."""
        return Window(self.lower, self.upper)


class Sensed(NamedTuple):
    """What was seen at one time, by s sensors, NaN where nothing was."""

    ys: Float[Array, "s p"]
    rows: Inputs


class Before(NamedTuple):
    """What a law comes from: the prior, or a law before one transition.

    Attributes:
        is_prior: which of both.
        lattice: the law before, if there is one; else anything of its shape.
        log_initial: logs of the regimes' probabilities, over the masses of their priors.
        t: the time after the transition.
        row: its inputs.
    """

    is_prior: Bool[Array, ""]
    lattice: Lattice
    log_initial: Float[Array, " k"]
    t: Int[Array, ""]
    row: Inputs


class Settled(NamedTuple):
    """A law, and how it was found.

    `own` is the error that this step adds by its nodes, `edge` by what lies beyond old windows.
    """

    lattice: Lattice
    log_norm: Float[Array, ""]
    error: Float[Array, ""]
    own: Float[Array, ""]
    edge: Float[Array, ""]


class Sums(NamedTuple):
    """log p_k at points, and what comes with it, relative to it."""

    logs: Float[Array, "k n"]
    half: Float[Array, "k n"]
    quarter: Float[Array, "k n"]
    inherited: Float[Array, "k n"]
    edge: Float[Array, "k n"]


class Source(NamedTuple):
    """The nodes of an old law as a prediction sums over them, mixed for every new regime."""

    nodes: Float[Array, "m d"]
    log_masses: Float[Array, "k m"]
    beside: Float[Array, "k 4 m"]  # coarser rules, relative errors, what lies beyond the ends


def source_of(ssm: StateSpaceModel, space: Space, before: Before, num: int) -> Source:
    """log sum_j P_jk(u_m) v_jm, with its relative errors."""
    grid = grid_of(space, before.lattice.window, num)
    v, r = before.lattice.log_masses, before.lattice.relative
    peak = jnp.max(v, axis=0)
    peak = jax.lax.stop_gradient(jnp.where(jnp.isfinite(peak), peak, 0.0))
    shares = jnp.exp(v - peak[None, :])
    nodes = space.wrapped(grid.nodes)
    P = switch_matrices(ssm, nodes, before.t, before.row)
    total = jnp.einsum("mjk,jm->km", P, shares)
    safe = jnp.where(total > 0, total, 1.0)
    errors = jnp.einsum("mjk,jm->km", P, shares * r) / safe
    masses = jnp.where(total > 0, jnp.log(safe) + peak[None, :], -jnp.inf)
    same = [jnp.broadcast_to(w, errors.shape) for w in (grid.half, grid.quarter)]
    ends = jnp.broadcast_to(grid.ends, errors.shape)
    beside = jnp.stack([*same, errors, ends], axis=1)
    return Source(nodes, masses, jax.lax.stop_gradient(beside))


def thinned(space: Space, source: Source, num: int) -> Source:
    """Every second node of each axis, with the weights of that rule."""
    half, index = np.ones(1), np.zeros(1, dtype=int)
    for rule in space.rules(num):
        half = np.multiply.outer(half, rule.half).ravel()
        index = np.add.outer(index * len(rule.nodes), np.arange(len(rule.nodes))).ravel()
    kept = np.flatnonzero(half > 0)
    masses = source.log_masses[:, kept] + jnp.asarray(np.log(half[kept]))[None, :]
    return Source(source.nodes[kept], masses, source.beside[:, :, kept])


def push(
    ssm: StateSpaceModel, space: Space, before: Before, source: Source, x: Float[Array, "n d"]
) -> Sums:
    """The prediction at points x, or the prior."""
    at = space.wrapped(x)
    logs, ratios = [], []
    for k, model in enumerate(parts_of(ssm)):
        table = log_transitions(model, source.nodes, at, before.t, before.row)
        table = table + source.log_masses[k][:, None]
        peak = jnp.max(table, axis=0)
        peak = jax.lax.stop_gradient(jnp.where(jnp.isfinite(peak), peak, 0.0))
        values = jnp.exp(table - peak[None, :])
        total = jnp.sum(values, axis=0)
        safe = jnp.where(total > 0, total, 1.0)
        logs.append(jnp.where(total > 0, jnp.log(safe) + peak, -jnp.inf))
        ratios.append(jax.lax.stop_gradient(source.beside[k] @ values / safe[None, :]))
    log_p, (half, quarter, inherited, edge) = jnp.stack(logs), jnp.stack(ratios, axis=1)
    prior = log_priors(ssm, space, x) + before.log_initial[:, None]
    first, nothing, one = before.is_prior, jnp.zeros_like(log_p), jnp.ones_like(log_p)
    return Sums(
        jnp.where(first, prior, log_p),
        jnp.where(first, one, half),
        jnp.where(first, one, quarter),
        jnp.where(first, nothing, inherited),
        jnp.where(first, nothing, edge),
    )


def log_seen(
    ssm: StateSpaceModel, space: Space, before: Before, seen: Sensed, x: Float[Array, "n d"]
) -> Float[Array, "k n"]:
    """sum_s log G_k(x, y_s)."""
    at = space.wrapped(x)
    total = jnp.zeros((len(parts_of(ssm)), x.shape[0]))
    for s in range(seen.ys.shape[0]):
        row = jax.tree.map(lambda a, s=s: a[s], seen.rows)
        total = total + log_likelihoods(ssm, at, seen.ys[s], before.t, row)
    return total


def _log_sharp(
    ssm: StateSpaceModel,
    space: Space,
    before: Before,
    seen: Sensed,
    source: Source,
    x: Float[Array, "n d"],
) -> Float[Array, "k n"]:
    """What may have peaks between nodes: the sensor, with the transition if it takes u."""
    if takes_u(ssm):
        return push(ssm, space, before, source, x).logs
    return log_seen(ssm, space, before, seen, x)


def settle(
    ssm: StateSpaceModel, space: Space, before: Before, seen: Sensed, level: Level, num: int
) -> Settled:
    """The law of a time; `num` are the nodes of each axis of the law before."""
    source = source_of(ssm, space, before, num)
    window = _window(ssm, space, before, seen, level, thinned(space, source, num))
    grid = grid_of(space, window, level.num)
    sums = push(ssm, space, before, source, grid.nodes)
    logs = sums.logs + log_seen(ssm, space, before, seen, grid.nodes) + grid.log_weights[None, :]
    log_norm = jax.scipy.special.logsumexp(logs)
    found = jnp.isfinite(log_norm)
    log_masses = logs - jnp.where(found, log_norm, 0.0)
    masses = jax.lax.stop_gradient(jnp.exp(log_masses))
    own = embedded_error(1 - sums.half, sums.half - sums.quarter)
    inherited, added = sums.inherited, own + sums.edge
    centre = jnp.sum(masses * inherited)
    # Old and new relative errors as one that has the size of both: they may not cancel.
    shape = jnp.where(inherited < 0, -1.0, 1.0) * (jnp.abs(inherited) + added)
    relative = shape - jnp.sum(masses * shape)
    passed = jnp.sum(masses * jnp.abs(inherited - centre))
    nodes_error = jnp.sum(masses * own) + _rule_error(masses, grid)
    nodes_error = nodes_error + _hidden_mass(ssm, space, before, seen, source, grid, log_masses)
    edge = jnp.sum(masses * sums.edge) + 4 * level.eps
    error = jnp.minimum(passed + nodes_error + edge, 2.0)
    lattice = Lattice(window.lower, window.upper, log_masses, relative, sums.logs)
    nothing = jnp.zeros(())
    return Settled(
        lattice,
        log_norm,
        *(jnp.where(found, part, nothing) for part in (error, nodes_error, edge)),
    )


def _window(
    ssm: StateSpaceModel, space: Space, before: Before, seen: Sensed, level: Level, source: Source
) -> Window:
    moved = reach_of(ssm, space, source.nodes, before.t, before.row)
    prior = prior_reach(ssm, space)
    reach = Window(*(jnp.where(before.is_prior, a, b) for a, b in zip(prior, moved, strict=True)))

    num = level.cells(space.dim)

    def look(window: Window) -> tuple[Array, Array]:
        there = push(ssm, space, before, source, cells_of(window, num).middles).logs
        near = there.reshape(-1, *((num,) * space.dim))
        near = highest_near(near, 1, space.whole(window)).reshape(there.shape)
        if takes_u(ssm):
            there = near = jnp.zeros_like(near)
        certain, heights = _heights(ssm, space, before, seen, source, window, num)
        found = jnp.max(near + heights, axis=0), jnp.max(there + certain, axis=0)
        return jax.lax.stop_gradient(found)

    reach = jax.lax.stop_gradient(reach)
    return find_window(space, reach, look, jnp.asarray(level.eps), num)


def _heights(
    ssm: StateSpaceModel,
    space: Space,
    before: Before,
    seen: Sensed,
    source: Source,
    window: Window,
    num: int,
) -> tuple[Float[Array, "k n"], Float[Array, "k n"]]:
    """The highest that a likelihood is found, and may be, inside of cells, from a closer look.

    The parabolas through three points show peaks that are narrower than what lies between them.
    """
    dense, dim = _DENSE[space.dim], space.dim
    if seen.ys.shape[0] == 0 and not takes_u(ssm):
        nothing = jnp.zeros((len(parts_of(ssm)), num**dim))
        return nothing, nothing
    points = cells_of(window, num * dense).middles
    logs = _log_sharp(ssm, space, before, seen, source, points)
    lines = logs.reshape(-1, *((num * dense,) * dim))
    whole = space.whole(window)
    rises = [hidden_rise(lines, 1 + axis, whole[axis]) for axis in range(dim)]
    inner = tuple(range(2, 2 * dim + 1, 2))
    certain, heights = (
        jnp.max(a.reshape(-1, *((num, dense) * dim)), axis=inner).reshape(-1, num**dim)
        for a in (lines, sum(rises, start=lines))
    )
    return certain, heights


def _tops(
    ssm: StateSpaceModel, space: Space, before: Before, seen: Sensed, source: Source, cells: Cells
) -> Float[Array, "k n"]:
    """The highest of a likelihood inside of cells, from a closer look at it alone."""
    num, dim = _DENSE[space.dim], space.dim
    inner = cells_of(Window(jnp.full(dim, -0.5), jnp.full(dim, 0.5)), num).middles
    points = cells.middles[:, None, :] + (inner * cells.widths[None, :])[None, :, :]
    logs = _log_sharp(ssm, space, before, seen, source, points.reshape(-1, dim))
    return jnp.max(logs.reshape(logs.shape[0], -1, num**dim), axis=2)


def _rule_error(masses: Float[Array, "k n"], grid: Grid) -> Float[Array, ""]:
    """Of the integrals of all regimes over the new nodes."""
    whole, half, quarter = jnp.sum(masses, axis=1), masses @ grid.half, masses @ grid.quarter
    return jnp.sum(embedded_error(whole - half, half - quarter))


def _hidden_mass(
    ssm: StateSpaceModel,
    space: Space,
    before: Before,
    seen: Sensed,
    source: Source,
    grid: Grid,
    log_masses: Float[Array, "k n"],
) -> Float[Array, ""]:
    """Mass of peaks of the sensor between nodes that none of them shows, as wide as a cell."""
    if seen.ys.shape[0] == 0:
        return jnp.zeros(())
    span = jnp.max(grid.nodes, axis=0) - jnp.min(grid.nodes, axis=0)
    num = round(grid.nodes.shape[0] ** (1 / space.dim))
    cells = Cells(grid.nodes, span / (num - 1))
    tops = _tops(ssm, space, before, seen, source, cells)
    rise = tops - _log_sharp(ssm, space, before, seen, source, grid.nodes)
    hidden = jnp.where((rise > _HIDDEN) & jnp.isfinite(log_masses), log_masses + rise, -jnp.inf)
    mass = jnp.sum(jnp.exp(jnp.minimum(hidden, 1.0)))
    return jax.lax.stop_gradient(jnp.minimum(mass, 2.0))
