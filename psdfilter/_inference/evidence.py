"""The likelihood alone: what a filter computes when nobody asks where the state is.

    p_{t+1} = E v_t,   v_t = w o p_t o l_t / Z_t,   Z_t = w . (p_t o l_t)

Differentiable in whatever the model closes over. Chunks of steps are checkpoints: a reverse pass
keeps one density a chunk and computes the rest again. Within a chunk the adjoint is one product
with E' a step, and the derivative in E one matrix product for the whole chunk, instead of a sum of
as many outer products as there are steps.
"""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from .._statespace.model import StateSpaceModel
from .contraction import Structure, predict_tensor
from .model import LearnedModel, Sizing
from .nodes import fill_prior, fill_transition
from .plan import Plan
from .recursion import UNROLL, UNROLL_NODES, bayes
from .report import LearnReport
from .series import Series
from .step import (
    correct,
    likelihoods_at_nodes,
    observation_errors,
    observation_logs,
    observation_status,
)
from .workspace import Workspace

_CHUNK = 64


class Evidence(NamedTuple):
    """What each step says about the model."""

    log_masses: Float[Array, " t"]  # log Z_t
    log_kept: Float[Array, " t"]  # log D_t: the predicted mass on the box
    observation_errors: Float[Array, " t"]  # delta_t
    codes: Int[Array, " t"]
    occupancy: Float[Array, " n"]  # mean of the predicted densities at the nodes


def refilled(plan: Plan, ssm: StateSpaceModel, report: LearnReport) -> LearnedModel:
    """A plan filled with a model; pure, and differentiable in what the model closes over."""
    tables = None if ssm.is_time_varying else fill_transition(plan, ssm)
    return LearnedModel(ssm, plan, fill_prior(plan, ssm), tables, False, report, Sizing(True))


Layout = tuple[Structure, tuple[int, ...]]


def _hop(layout: Layout, squares, v: Float[Array, " n"]) -> Float[Array, " n"]:
    structure, shape = layout
    return predict_tensor(structure, squares, v.reshape(shape)).ravel()


def _next(layout: Layout, squares, weights, predicted, weighted, moves):
    """The prediction after a step; without a transition, the density of the step itself."""
    v = bayes(weights, predicted, weighted)
    return jnp.where(moves, _hop(layout, squares, v), v / weights)


def _plainly(layout: Layout, squares, weights, start, weighted, moves):
    """Predictions before each of a chunk of steps, and the next one."""

    def step(predicted, xs):
        return _next(layout, squares, weights, predicted, *xs), predicted

    unroll = UNROLL if weights.shape[0] <= UNROLL_NODES else 1
    return jax.lax.scan(step, start, (weighted, moves), unroll=unroll)


_along = jax.custom_vjp(_plainly, nondiff_argnums=(0,))


def _along_fwd(layout: Layout, squares, weights, start, weighted, moves):
    last, predicted = _plainly(layout, squares, weights, start, weighted, moves)
    return (last, predicted), (squares, weights, weighted, moves, predicted)


def _along_bwd(layout: Layout, residuals, cotangents):
    squares, weights, weighted, moves, predicted = residuals
    last_bar, predicted_bar = cotangents
    posterior = partial(bayes, weights)

    def step(next_bar, xs):
        p, seen, move, direct_bar = xs
        v, pull = jax.vjp(posterior, p, seen)
        (moved_bar,) = jax.vjp(partial(_hop, layout, squares), v)[1](next_bar)
        p_bar, seen_bar = pull(jnp.where(move, moved_bar, next_bar / weights))
        return p_bar + direct_bar, (jnp.where(move, next_bar, 0.0), seen_bar)

    start_bar, (hop_bars, weighted_bar) = jax.lax.scan(
        step, last_bar, (predicted, weighted, moves, predicted_bar), reverse=True
    )
    v = jax.vmap(posterior)(predicted, weighted)
    _, pull = jax.vjp(lambda tables: jax.vmap(partial(_hop, layout, tables))(v), squares)
    (squares_bar,) = pull(hop_bars)
    return squares_bar, None, start_bar, weighted_bar, None


_along.defvjp(_along_fwd, _along_bwd)


def _along_varying(layout: Layout, tables, weights, start, weighted, moves):
    """The same for a transition that differs from step to step; `tables` lead to the next step."""

    def step(predicted, xs):
        seen, move, squares = xs
        return _next(layout, squares, weights, predicted, seen, move), predicted

    return jax.lax.scan(step, start, (weighted, moves, tables))


def evidence(model: LearnedModel, series: Series, forward: bool = False) -> Evidence:
    """log Z_t of every step, with what tells whether the plan serves; at most one hop a step.

    `forward`: for forward differentiation, which cannot pass through a custom reverse pass.
    """
    plan, num = model.plan, series.ys.shape[0]
    space, layout = Workspace.of(plan), (plan.structure, plan.shape)
    along = _plainly if forward else _along

    @jax.checkpoint
    def chunk(predicted: Array, xs: tuple[Series, Any, Array]) -> tuple[Array, Evidence]:
        part, upcoming, moves = xs
        logs = jax.vmap(lambda y, t, row: observation_logs(model, y, t, row, part.partly, space))(
            part.ys, part.steps, part.rows
        )
        missing, codes = jax.vmap(observation_status)(jnp.asarray(part.ys))
        likelihood, scale = likelihoods_at_nodes(model, logs, missing, space)
        weighted = likelihood * space.weights[None, :]
        out: Any
        if model.tables is not None:
            squares = model.tables.squares
            out = along(layout, squares, space.weights, predicted, weighted, moves)
        else:
            squares = jax.vmap(model.tables_at)(*upcoming).squares
            out = _along_varying(layout, squares, space.weights, predicted, weighted, moves)
        last, predictions = out
        outs = jax.vmap(correct, (None, 0, 0, 0, 0, 0))(
            space.weights, predictions, likelihood, scale, missing, codes
        )
        fixed = jax.lax.stop_gradient(predictions)
        errors = observation_errors(model, part, None, scale, fixed, space, likelihood)
        there = jnp.sum(fixed * jnp.exp(-outs.log_kept)[:, None], axis=0) / num
        return last, Evidence(
            outs.log_mass, outs.log_kept, jax.lax.stop_gradient(errors), outs.code, there
        )

    size = min(_CHUNK, num)
    whole = -(-num // size)
    padded = pad_series(series, whole * size - num)
    following = jax.tree.map(lambda a: jnp.roll(a, -1, axis=0), (padded.steps, padded.rows))
    moves = jnp.concatenate([padded.hops[1:] > 0, jnp.zeros(1, dtype=bool)])
    xs = jax.tree.map(lambda a: a.reshape(whole, size, *a.shape[1:]), (padded, following, moves))
    start = _first_prediction(model, series, space, layout)
    _, out = jax.lax.scan(chunk, start, xs)
    return Evidence(
        *(jnp.ravel(column)[:num] for column in out[:-1]), occupancy=jnp.sum(out.occupancy, axis=0)
    )


def _first_prediction(
    model: LearnedModel, series: Series, space: Workspace, layout: Layout
) -> Float[Array, " n"]:
    tables = model.tables_at(series.steps[0], jax.tree.map(lambda a: a[0], series.rows))
    moved = _hop(layout, tables.squares, space.weights * model.prior)
    return jnp.where(series.hops[0] > 0, moved, model.prior)


def pad_series(series: Series, extra: int) -> Series:
    """`extra` missing rows at the time of the last one: they change nothing."""

    def repeat_last(a: Array) -> Array:
        return jnp.concatenate([a, jnp.repeat(a[-1:], extra, axis=0)])

    return Series(
        jnp.concatenate([series.ys, jnp.full((extra, series.ys.shape[1]), np.nan)]),
        repeat_last(series.steps),
        jnp.concatenate([series.hops, jnp.zeros(extra, dtype=series.hops.dtype)]),
        jax.tree.map(repeat_last, series.rows),
        None if series.logs is None else repeat_last(series.logs),
        jax.tree.map(repeat_last, series.tables),
        series.partly,
    )
