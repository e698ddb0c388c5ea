"""Smoothing with a learned transition of free shapes: two filters, and paths drawn backwards.

    beta_T = 1,   beta_t(u) = int Q^(u, x) G(x, y_{t+1}) beta_{t+1}(x) dx,
    p(x_t | y_1 ... y_T) = pi_t beta_t / int pi_t beta_t.

The integral is a sum over nodes where pi_{t+1} is, so that beta_t is a sum of squares of Gaussians
that is evaluated and never compressed. The product is projected like that with a likelihood.
"""

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from ..._checks import is_concrete
from ..numerics.quadrature import draw
from ..series import Series
from .atoms import evaluate, slices
from .compress import SquareSum, project
from .observation import AbstractObservation
from .rules import (
    Region,
    axes_between,
    graded_atoms,
    joined,
    region_between,
    rule_on,
)
from .step import (
    LearnedTransition,
    Record,
    StepSizes,
    evaluate_slices,
    guarded,
    own_masses,
    projection_rule,
    region_of,
    rule_for,
    settle,
    source_region,
)

# Points per axis on which a smoothed law is looked for, where the filtered one is.
_SCAN = {1: 129, 2: 25}
# Paths that are moved back at a time.
_BATCH = 64


class Sink(NamedTuple):
    """w G beta at nodes of the step after, up to a factor."""

    nodes: Float[Array, "n d"]
    weights: Float[Array, " n"]


class Smoothed(NamedTuple):
    """A smoothed law, its moments, and what its projection has lost."""

    law: SquareSum
    record: Record


def transition_table(
    learned: LearnedTransition,
    old: Float[Array, "n d"],
    new: Float[Array, "k d"],
    sizes: StepSizes,
) -> Float[Array, "k n"]:
    """Q^(u, x), of the mass of Q(u, .) on the box, for all x (rows) and u."""
    roots = slices(learned.roots, old, sizes.transition_terms)
    mended = learned.mended(old, own_masses(roots, sizes.table_nodes))
    return jnp.square(evaluate_slices(roots, new)) * mended[None, :]


def _information(
    learned: LearnedTransition, sink: Sink, u: Float[Array, "n d"], sizes: StepSizes
) -> Float[Array, " n"]:
    """beta(u) = sum_n b_n Q^(u, x_n)."""
    return sink.weights @ transition_table(learned, u, sink.nodes, sizes)


def _through(
    observation: AbstractObservation, y: Float[Array, " p"], seen: Array, sink: Sink
) -> Sink:
    """The sink with the likelihood of y, of sum one."""
    logs = observation.logs(sink.nodes, jnp.where(seen, y, 0.0))
    logs = jnp.where(seen, logs, 0.0) + jnp.log(sink.weights)
    weights = jnp.exp(logs - jnp.max(logs))
    return Sink(sink.nodes, weights / jnp.sum(weights))


def _back(
    law: SquareSum, learned: LearnedTransition, sink: Sink, sizes: StepSizes
) -> tuple[Smoothed, Sink]:
    """pi beta, and w beta at nodes where pi is."""
    region = region_of(law, sizes)
    rule = rule_on(region, sizes.panel_nodes)
    beta = _information(learned, sink, rule.nodes, sizes)

    def log_product(u: Float[Array, "n d"]) -> Float[Array, " n"]:
        return jnp.log(law(u)) + jnp.log(_information(learned, sink, u, sizes))

    inside, _ = region_between(
        log_product, region.low, region.high, _SCAN[law.atoms.dim], sizes.panels
    )
    inner = projection_rule(inside, sizes)
    everywhere = guarded(inner, sizes)
    peak = jnp.max(beta)
    root = jnp.sqrt(_information(learned, sink, everywhere.nodes, sizes) / peak)
    values = (evaluate(law.atoms, everywhere.nodes) @ law.factor) * root[:, None]
    tried = joined(law.atoms, graded_atoms(inside, sizes.places))
    after = project(tried, values, everywhere, sizes.places, sizes.left_out)
    target = jnp.sum(jnp.square(values[: inner.weights.size]), axis=1)
    return Smoothed(*settle(after, inner, target)), Sink(rule.nodes, rule.weights * beta)


@partial(jax.jit, static_argnums=6)
def smooth_laws(
    laws: SquareSum, learned: LearnedTransition, observation: AbstractObservation,
    ys: Array, seen: Array, hops: Array, sizes: StepSizes,
) -> Smoothed:  # fmt: skip
    """All smoothed laws, stacked; `hops` before each row are 0 or 1."""

    def end(law: SquareSum) -> tuple[Smoothed, Sink]:
        rule = rule_for(law, sizes)
        smoothed = Smoothed(*settle(law, rule, law(rule.nodes)))
        return smoothed, Sink(rule.nodes, rule.weights)

    def step(carry: tuple[Smoothed, Sink], at: tuple[SquareSum, Array, Array, Array]):
        law, y, used, hop = at
        # Several observations at one time are of one state.
        smoothed, sink = jax.lax.cond(
            hop > 0, lambda: _back(law, learned, carry[1], sizes), lambda: carry
        )
        return (smoothed, _through(observation, y, used, sink)), smoothed

    last, sink = end(jax.tree.map(lambda a: a[-1], laws))
    earlier = jax.tree.map(lambda a: a[:-1], (laws, ys, seen))
    carry = last, _through(observation, ys[-1], seen[-1], sink)
    _, before = jax.lax.scan(step, carry, (*earlier, hops[1:]), reverse=True)
    return jax.tree.map(lambda a, b: jnp.concatenate([a, b[None]]), before, last)


def _draw_in_panels(
    values: Float[Array, " n"], region: Region, weights: Float[Array, " n"], num: int,
    key: PRNGKeyArray,
) -> Float[Array, " d"]:  # fmt: skip
    """One draw from a density at the nodes of a region, `num` a panel: its panel, and then there.

    An axis is its panels times their nodes: the panels of all axes are brought to the front.
    """
    dim, panels = len(region.edges), region.edges[0].size - 1
    front = (*range(0, 2 * dim, 2), *range(1, 2 * dim, 2))

    def by_panel(flat: Float[Array, " n"]) -> Float[Array, "k m"]:
        return jnp.transpose(flat.reshape((panels, num) * dim), front).reshape(-1, num**dim)

    panel_key, key = jax.random.split(key)
    masses = jnp.sum(by_panel(values * weights), axis=1)
    which = jax.random.categorical(panel_key, jnp.log(masses))
    index = jnp.unravel_index(which, (panels,) * dim)
    ends = [(line[i], line[i + 1]) for line, i in zip(region.edges, index, strict=True)]
    low, high = (jnp.stack(corner) for corner in zip(*ends, strict=True))
    return draw(by_panel(values)[which], *axes_between(low, high, num), key)


@partial(jax.jit, static_argnums=(4, 5))
def draw_paths(
    laws: SquareSum, learned: LearnedTransition, hops: Array, key: PRNGKeyArray, num: int,
    sizes: StepSizes,
) -> Float[Array, "t k d"]:  # fmt: skip
    """x_T from its filtered law, then x_t from pi_t(u) Q^(u, x_{t+1}), at the nodes of pi_t."""

    def step(points: Float[Array, "k d"] | None, at: tuple[SquareSum, Array, Array]) -> Array:
        law, hop, step_key = at
        region = source_region(law, learned, sizes)
        rule = rule_on(region, sizes.source_nodes)
        density = law(rule.nodes)
        keys = jax.random.split(step_key, num)

        def one(values: Float[Array, " n"], k: PRNGKeyArray) -> Float[Array, " d"]:
            return _draw_in_panels(values, region, rule.weights, sizes.source_nodes, k)

        if points is None:
            return jax.lax.map(lambda k: one(density, k), keys, batch_size=_BATCH)
        table = transition_table(learned, rule.nodes, points, sizes)
        drawn = jax.lax.map(lambda a: one(density * a[0], a[1]), (table, keys), batch_size=_BATCH)
        return jnp.where(hop > 0, drawn, points)

    last_key, back_key = jax.random.split(key)
    final = step(None, (jax.tree.map(lambda a: a[-1], laws), jnp.zeros((), int), last_key))

    def back(points: Array, at: tuple[SquareSum, Array, Array]) -> tuple[Array, Array]:
        points = step(points, at)
        return points, points

    earlier = jax.tree.map(lambda a: a[:-1], laws)
    keys = jax.random.split(back_key, hops.shape[0] - 1)
    _, before = jax.lax.scan(back, final, (earlier, hops[1:], keys), reverse=True)
    return jnp.concatenate([before, final[None]])


def without_jumps(series: Series) -> tuple[Series, np.ndarray]:
    """The series with a missing row for every time that was passed by, and where its rows are."""
    if not is_concrete(series.hops):
        raise ValueError("times must be known to smooth: call run_smoother outside of jit")
    hops, ys = np.asarray(series.hops), np.asarray(series.ys)
    index = np.cumsum(np.maximum(hops, 1)) - 1
    filled = np.full((index[-1] + 1, ys.shape[1]), np.nan)
    filled[index] = ys
    single = np.ones(len(filled), int)
    single[index[hops == 0]] = 0
    hops = jnp.asarray(single)
    return Series(jnp.asarray(filled), jnp.cumsum(hops), hops, None, True, series.partly), index
