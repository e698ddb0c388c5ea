"""The likelihood alone: what a filter computes when nobody asks where the state is.

    p_{t+1} = E v_t,   v_t = w o p_t o l_t / Z_t,   Z_t = w . (p_t o l_t)

Differentiable in whatever the model closes over. In long series chunks of steps are checkpoints: a
reverse pass keeps one density a chunk and computes the rest again. Within a chunk the adjoint is
one product with E' a step, and the derivative in E one matrix product for the whole chunk, instead
of a sum of as many outer products as there are steps.
"""

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from ..._statespace.model import Inputs
from ..series import Series, pad_series
from ..sizing.contraction import Structure, predict_tensor
from .recursion import UNROLL, UNROLL_NODES
from .step import (
    correct,
    likelihoods_at_nodes,
    observation_errors,
    observation_status,
    series_logs,
)
from .workspace import Stepper

# Steps of a chunk whose predictions are computed again in reverse: what a cache holds.
_CHUNK = 64
# As many numbers (steps times nodes) are kept for a reverse pass: no chunks, no checkpoints.
KEPT = 2**17


class Evidence(NamedTuple):
    """What each step says about the model."""

    log_masses: Float[Array, " t"]  # log Z_t
    log_kept: Float[Array, " t"]  # log D_t: the predicted mass on the box
    observation_errors: Float[Array, " t"]  # delta_t
    codes: Int[Array, " t"]
    highest: Int[Array, " t"]  # the node where the filtered density is largest
    occupancy: Float[Array, " n"]  # mean of the predicted densities at the nodes


Layout = tuple[Structure, tuple[int, ...]]


def _hop(layout: Layout, squares, v: Float[Array, " n"]) -> Float[Array, " n"]:
    structure, shape = layout
    return predict_tensor(structure, squares, v.reshape(shape)).ravel()


def _posterior(weights, predicted, weighted):
    """v = w p l / Z, Z, and whether that is a positive number, from p and w l; if not, v = w p.

    There the likelihood of the series is zero, whatever comes later.
    """
    joint = predicted * weighted
    mass = jnp.sum(joint)
    good = (mass > 0) & (mass < jnp.inf)
    safe = jnp.where(good, mass, 1.0)
    return jnp.where(good, joint / safe, weights * predicted), safe, good


def _next(layout: Layout, squares, weights, predicted, weighted, moves):
    """The prediction after a step; without a transition, the density of the step itself."""
    v, _, _ = _posterior(weights, predicted, weighted)
    return jnp.where(moves, _hop(layout, squares, v), v / weights)


def _unroll(weights: Float[Array, " n"]) -> int:
    return UNROLL if weights.shape[0] <= UNROLL_NODES else 1


def _plainly(layout: Layout, squares, weights, start, weighted, moves):
    """Predictions before each of a chunk of steps, and the next one."""

    def step(predicted, xs):
        return _next(layout, squares, weights, predicted, *xs), predicted

    return jax.lax.scan(step, start, (weighted, moves), unroll=_unroll(weights))


_along = jax.custom_vjp(_plainly, nondiff_argnums=(0,))


def _along_fwd(layout: Layout, squares, weights, start, weighted, moves):
    last, predicted = _plainly(layout, squares, weights, start, weighted, moves)
    return (last, predicted), (squares, weights, weighted, moves, predicted)


def _along_bwd(layout: Layout, residuals, cotangents):
    """With j = p w l, v = j / Z:  v' = E' p_next',  j' = (v' - v . v') / Z,  p' = w l j'.

    The scan holds that alone. Whatever does not wait for a later step is done for all of them.
    """
    squares, weights, weighted, moves, predicted = residuals
    last_bar, predicted_bar = cotangents
    v, masses, good = jax.vmap(partial(_posterior, weights))(predicted, weighted)
    masses, good = masses[:, None], good[:, None]
    slope = jnp.where(good, weighted / masses, weights[None, :])
    projected = jnp.where(good, v, 0.0)
    transposed = jax.linear_transpose(partial(_hop, layout, squares), v[0])

    def step(next_bar, xs):
        projected, slope, move, direct_bar = xs
        v_bar = jnp.where(move, transposed(next_bar)[0], next_bar / weights)
        centered = v_bar - jnp.dot(projected, v_bar)
        return slope * centered + direct_bar, (next_bar, centered)

    start_bar, (next_bars, centered) = jax.lax.scan(
        step,
        last_bar,
        (projected, slope, moves, predicted_bar),
        reverse=True,
        unroll=_unroll(weights),
    )
    weighted_bar = jnp.where(good, predicted * centered / masses, 0.0)
    hop_bars = jnp.where(moves[:, None], next_bars, 0.0)
    _, pull = jax.vjp(lambda tables: jax.vmap(partial(_hop, layout, tables))(v), squares)
    (squares_bar,) = pull(hop_bars)
    return squares_bar, None, start_bar, weighted_bar, None


_ = _along.defvjp(_along_fwd, _along_bwd)


def _along_varying(layout: Layout, tables, weights, start, weighted, moves):
    """The same for a transition that differs from step to step; `tables` lead to the next step."""

    def step(predicted, xs):
        seen, move, squares = xs
        return _next(layout, squares, weights, predicted, seen, move), predicted

    return jax.lax.scan(step, start, (weighted, moves, tables))


def evidence(stepper: Stepper, series: Series, forward: bool = False, kept: int = KEPT) -> Evidence:
    """log Z_t of every step, with what tells whether the plan serves; at most one hop a step.

    `forward`: for forward differentiation, which cannot pass through a custom reverse pass.
    `kept`: with more predictions than this, those of a chunk are computed again in reverse.
    """
    space, num = stepper.space, series.num
    weights, layout = space.weights, (stepper.structure, stepper.shape)
    along = _plainly if forward else _along

    def chunk(
        predicted: Array, xs: tuple[Series, tuple[Array, Inputs], Array]
    ) -> tuple[Array, Evidence]:
        part, upcoming, moves = xs
        logs = series_logs(stepper.sensor, space.training_points, part)
        missing, codes = jax.vmap(observation_status)(jnp.asarray(part.ys))
        likelihood, scale = likelihoods_at_nodes(space, logs, missing)
        weighted = likelihood * weights[None, :]
        out: tuple[Array, Array]
        if stepper.squares is not None:
            out = along(layout, stepper.squares, weights, predicted, weighted, moves)
        else:
            squares = jax.vmap(stepper.squares_at)(*upcoming)
            out = _along_varying(layout, squares, weights, predicted, weighted, moves)
        last, predictions = out
        outs = jax.vmap(correct, (None, 0, 0, 0, 0, 0))(
            weights, predictions, likelihood, scale, missing, codes
        )
        fixed = jax.lax.stop_gradient(predictions)
        errors = observation_errors(stepper, part, scale, fixed, likelihood)
        there = jnp.sum(fixed * jnp.exp(-outs.log_kept)[:, None], axis=0) / num
        return last, Evidence(
            outs.log_mass,
            outs.log_kept,
            jax.lax.stop_gradient(errors),
            outs.code,
            jnp.argmax(outs.density, axis=1),
            there,
        )

    start = _first_prediction(stepper, series, layout)
    keep = stepper.squares is not None and num * weights.shape[0] <= kept
    size = num if keep else min(_CHUNK, num)
    whole = -(-num // size)
    padded = pad_series(series, whole * size - num)
    following = jax.tree.map(lambda a: jnp.roll(a, -1, axis=0), (padded.steps, padded.rows))
    moves = jnp.concatenate([padded.hops[1:] > 0, jnp.zeros(1, dtype=bool)])
    xs = (padded, following, moves)
    if whole == 1:
        return chunk(start, xs)[1]
    xs = jax.tree.map(lambda a: a.reshape(whole, size, *a.shape[1:]), xs)
    _, out = jax.lax.scan(jax.checkpoint(chunk), start, xs)
    return Evidence(
        *(jnp.ravel(column)[:num] for column in out[:-1]), occupancy=jnp.sum(out.occupancy, axis=0)
    )


def _first_prediction(stepper: Stepper, series: Series, layout: Layout) -> Float[Array, " n"]:
    squares = stepper.squares_at(series.steps[0], series.row(0))
    moved = _hop(layout, squares, stepper.weights * stepper.prior)
    return jnp.where(series.hops[0] > 0, moved, stepper.prior)
