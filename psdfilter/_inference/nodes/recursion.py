"""The recursion of whole series: what depends on the step before in a scan, the rest around it.

Only p_{t+1} = sum_m w_m (p_t G_t)_m E[m] / Z_t has to wait for its predecessor. Likelihoods at the
nodes, checks of their fits, masses and moments are made for a chunk of steps at a time, as matrix
products. Memory is that of one chunk, unless densities are kept.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from ... import _results
from ..._statespace.model import Inputs
from ..series import Series
from ..sizing.contraction import predict_tensor
from .host import Tabulated
from .step import (
    StepOutput,
    correct,
    likelihoods_at_nodes,
    observation_errors,
    observation_status,
    series_logs,
)
from .watch import Watch, rule_errors, step_errors_of_chunk
from .workspace import Stepper

# Steps of one chunk, and the numbers in one of its arrays of nodes: matrix products instead of
# matrix-vector ones, but not more than a cache holds.
CHUNK, _CHUNK_SIZE = 128, 2**20
# The same where many series are filtered side by side: all of them share the cache.
BATCHED_CHUNK = 4
# Small steps take less time than the loop around them.
UNROLL, UNROLL_NODES = 4, 256


class Filtered(NamedTuple):
    """All steps of a filter, T rows each."""

    outs: StepOutput  # densities None unless kept
    moments: Float[Array, "t k"]
    sources: Float[Array, "t n"] | None  # before the last transition
    errors: Float[Array, " t"]  # delta_t
    moved: Float[Array, " t"] | None  # what transitions add, if that is watched
    log_normalizers: Float[Array, " t"] | None  # log D_t, where it is not the mass kept


C = TypeVar("C")
Out = TypeVar("Out")


class _Part(NamedTuple):
    """A chunk as the scan sees it."""

    series: Series
    logs: Float[Array, "t k"] | None  # log G at the training points, of a NumPy model
    places: Int[Array, " t"]  # in the whole series
    used: Array  # False for what only fills up the last chunk


class _Way(NamedTuple):
    """How predictions are made; static but for the tables."""

    stepper: Stepper
    regular: bool
    stacked: tuple[Float[Array, "t ..."], ...] | None


def filter_steps(
    stepper: Stepper,
    series: Series,
    host: Tabulated,
    stacked: tuple[Float[Array, "t ..."], ...] | None,
    keep: bool,
    most: int = CHUNK,
) -> tuple[Float[Array, " n"], Filtered]:
    """All steps; returns the last density and, stacked, what is kept of each.

    `stacked` are the squares of a transition that varies in time, for every row of the series;
    `most` is the largest chunk.
    """
    prior, weights = stepper.prior, stepper.weights
    stacked = host.squares if host.squares is not None else stacked
    fixed = series.regular and stepper.squares is not None
    predict = _predict_along if fixed else _predict_each
    way = _Way(stepper, series.regular, stacked)
    start: Array | tuple[Array, Array | None] = prior
    if fixed:
        assert stepper.squares is not None
        source = weights * prior
        moved = hop(stepper, stepper.squares, source)
        start = (
            jnp.where(series.hops[0] > 0, moved, prior),
            source if stepper.watch is not None else None,
        )

    def chunk(carry, part: _Part):
        state, last = carry
        some = part.series
        likelihood, scale, missing, codes = _observe(stepper, part)
        state, predicted, sources, gaps = predict(way, part, state, last, likelihood)
        outs = jax.vmap(correct, (None, 0, 0, 0, 0, 0))(
            weights, predicted, likelihood, scale, missing, codes
        )
        log_normalizers = None
        if stepper.joint is not None:
            log_normalizers = stepper.joint.log_normalizers(predicted * weights[None, :])
        if stepper.sensor.vectorized:
            errors = jnp.zeros(some.ys.shape[0])
        else:
            errors = observation_errors(stepper, some, scale, predicted, likelihood)
            unresolved = outs.seen & (errors > stepper.tol) & (outs.code == _results.OK)
            outs = outs._replace(code=jnp.where(unresolved, _results.UNRESOLVED, outs.code))
        shares = outs.density * weights[None, :]
        moments = shares @ stepper.space.features
        watch = stepper.watch
        if keep and sources is None:
            sources = jnp.concatenate([last[None], outs.density[:-1]])
        moved = None
        if watch is not None:
            step, at = (predicted, likelihood), (some.hops, some.steps)
            assert gaps is not None
            moved = step_errors_of_chunk(watch, weights, gaps, step, at, series.regular)
            moved = moved + rule_errors(watch, shares)
        final = jnp.where(part.used[0], outs.density[jnp.sum(part.used) - 1], last)
        kept = outs.density if keep else None
        out = Filtered(
            outs._replace(density=kept),
            moments,
            sources if keep else None,
            errors,
            moved,
            log_normalizers,
        )
        return (state, final), out

    num_nodes = weights.shape[0]
    (_, last), out = in_chunks(chunk, (start, prior), series, host.logs, num_nodes, most)
    return last, out


def hop(
    stepper: Stepper, squares: tuple[Float[Array, "..."], ...], v: Float[Array, " n"]
) -> Float[Array, " n"]:
    """p = sum_m v_m prod_g E_g[m]."""
    return predict_tensor(stepper.structure, squares, v.reshape(stepper.shape)).ravel()


def _gaps_of(
    stepper: Stepper, watch: Watch, sources: Array, predicted: Array, part: _Part
) -> Float[Array, "t k"]:
    """What each transition of a chunk adds to the error, from w p before it and p after it."""
    some = part.series

    def one(source: Array, p: Array, t: Array, row: Inputs) -> Array:
        return watch.moved(stepper.structure, source, p, (t, row))

    return jax.vmap(one)(sources, predicted, some.steps, some.rows)


def _observe(stepper: Stepper, part: _Part) -> tuple[Array, Array, Array, Array]:
    """G^ at the nodes, its exponents, and what is missing."""
    some, joint = part.series, stepper.joint
    missing, codes = jax.vmap(lambda y: observation_status(y, joint))(some.ys)
    missing = missing | ~part.used
    codes = jnp.where(part.used, codes, _results.OK)
    if joint is not None:
        likelihood, scale = joint.likelihoods(jnp.asarray(some.ys), missing, some.partly)
        return likelihood, scale, missing, codes
    logs = part.logs
    if logs is None:
        logs = series_logs(stepper.sensor, stepper.space.training_points, some)
    likelihood, scale = likelihoods_at_nodes(stepper.space, logs, missing)
    return likelihood, scale, missing, codes


def bayes(weights: Array, predicted: Array, weighted: Array) -> Array:
    """w p G / Z, or w p of mass one where Z is no positive number; `weighted` is w G."""
    joint = predicted * weighted
    # A product with ones is vectorised, a plain sum is not.
    mass, kept = jnp.ones_like(joint) @ joint, weights @ predicted
    good = (mass > 0) & (mass < jnp.inf)
    rest = weights * predicted / jnp.where(kept > 0, kept, 1.0)
    return jnp.where(good, joint / jnp.where(good, mass, 1.0), rest)


def _predict_along(
    way: _Way, part: _Part, state: tuple[Array, Array | None], last: Array, likelihood: Array
):
    """Predictions of a transition fixed in time, one before each step; the carry is the next."""
    del last
    stepper, weights = way.stepper, way.stepper.weights
    squares, watch = stepper.squares, stepper.watch
    assert squares is not None
    unroll = UNROLL if weights.shape[0] <= UNROLL_NODES else 1

    def step(before, weighted):
        source = bayes(weights, before[0], weighted)
        return (hop(stepper, squares, source), source if watch is not None else None), before

    state, (predicted, before) = jax.lax.scan(
        step, state, likelihood * weights[None, :], unroll=unroll
    )
    gaps = None if watch is None else _gaps_of(stepper, watch, before, predicted, part)
    return state, predicted, None, gaps


def _predict_each(way: _Way, part: _Part, state: Array, last: Array, likelihood: Array):
    """Predictions of any transitions: none, one or several before each step."""
    del state
    stepper, weights, stacked = way.stepper, way.stepper.weights, way.stacked
    some, filled = part.series, None
    if stepper.squares is None and stacked is None and way.regular:
        filled = jax.vmap(stepper.squares_at)(some.steps, some.rows)

    def step(density, xs):
        weighted, index, hops, t, row, squares = xs
        if stacked is not None:
            squares = tuple(table[index] for table in stacked)
        elif stepper.squares is not None:
            squares = stepper.squares

        def hop_once(k, p):
            at = stepper.squares_at(t - hops + 1 + k, row) if squares is None else squares
            return hop(stepper, at, weights * p)

        if way.regular:
            source, predicted = density, jnp.where(hops > 0, hop_once(0, density), density)
        else:
            source = jax.lax.fori_loop(0, hops - 1, hop_once, density)
            predicted = jnp.where(hops > 0, hop_once(hops - 1, source), density)
        return bayes(weights, predicted, weighted) / weights, (predicted, source)

    weighted = likelihood * weights[None, :]
    xs = (weighted, part.places, some.hops, some.steps, some.rows, filled)
    last, (predicted, sources) = jax.lax.scan(step, last, xs)
    gaps = (
        None
        if stepper.watch is None
        else _gaps_of(stepper, stepper.watch, sources * weights[None, :], predicted, part)
    )
    return last, predicted, sources, gaps


def in_chunks(
    fn: Callable[[C, _Part], tuple[C, Out]],
    carry: C,
    series: Series,
    logs: Float[Array, "t k"] | None,
    num_nodes: int,
    most: int,
) -> tuple[C, Out]:
    """A scan over chunks of equal size; the last is filled up with copies that are not used.

    Nor are rows in the room of a series.
    """
    num = series.num
    most = int(np.clip(_CHUNK_SIZE // num_nodes, 1, most))
    chunks = -(-num // most)
    size = -(-num // chunks)
    index = np.minimum(np.arange(chunks * size), num - 1)
    used = jnp.asarray(np.arange(chunks * size)) < (num if series.count is None else series.count)
    series = replace(series, count=None)
    part = _Part(series, logs, jnp.asarray(index), used)
    if chunks == 1:
        return fn(carry, part)
    if chunks * size > num:
        series, logs = jax.tree.map(lambda a: a[index], (series, logs))
        part = part._replace(series=series, logs=logs)
    part = jax.tree.map(lambda a: a.reshape(chunks, size, *a.shape[1:]), part)
    carry, out = jax.lax.scan(fn, carry, part)
    flat = jax.tree.map(lambda a: a.reshape(chunks * size, *a.shape[2:])[:num], out)
    return carry, flat
