"""The recursion of whole series: what depends on the step before in a scan, the rest around it.

Only p_{t+1} = sum_m w_m (p_t G_t)_m E[m] / Z_t has to wait for its predecessor. Likelihoods at the
nodes, checks of their fits, masses and moments are made for a chunk of steps at a time, as matrix
products. Memory is that of one chunk, unless densities are kept.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from .. import _results
from .model import LearnedModel
from .nodes import predict_nodes
from .series import Series
from .step import (
    StepOutput,
    correct,
    likelihoods_at_nodes,
    observation_errors,
    observation_logs,
    observation_status,
)
from .workspace import Workspace

# Steps of one chunk, and the numbers in one of its arrays of nodes: matrix products instead of
# matrix-vector ones, but not more than a cache holds.
CHUNK, _CHUNK_SIZE = 128, 2**20
# The same where many series are filtered side by side.
BATCHED_CHUNK = 4
# Small steps take less time than the loop around them.
UNROLL, UNROLL_NODES = 4, 256


class Filtered(NamedTuple):
    """All steps of a filter, T rows each."""

    outs: StepOutput  # densities None unless kept
    moments: Float[Array, "t k"]
    sources: Float[Array, "t n"] | None  # before the last transition
    errors: Float[Array, " t"]  # delta_t
    log_normalizers: Float[Array, " t"] | None  # log D_t, where it is not the mass kept


class _Part(NamedTuple):
    """A chunk as the scan sees it."""

    series: Series
    places: Int[Array, " t"]  # in the whole series
    used: Array  # False for what only fills up the last chunk


def filter_steps(
    model: LearnedModel,
    space: Workspace,
    series: Series,
    single_hop: bool,
    keep: bool,
    stacked: tuple[Float[Array, "t ..."], ...] | None = None,
    most: int = CHUNK,
) -> tuple[Float[Array, " n"], Filtered]:
    """All steps; returns the last density and, stacked, what is kept of each.

    `stacked` are the squares of a transition that varies in time, for every row of the series;
    `most` is the largest chunk.
    """
    prior = model.prior
    if series.tables is not None:
        stacked, series = series.tables.squares, replace(series, tables=None)
    fixed = single_hop and model.tables is not None
    predict = _predict_along if fixed else _predict_each
    start = prior
    if fixed:
        moved = _hop(model, model.tables, space.weights * prior)
        start = jnp.where(series.hops[0] > 0, moved, prior)

    def chunk(carry, part: _Part):
        state, last = carry
        some = part.series
        likelihood, scale, missing, codes = _observe(model, space, part)
        state, predicted, sources = predict(
            model, space.weights, part, state, last, likelihood, single_hop, stacked
        )
        outs = jax.vmap(correct, (None, 0, 0, 0, 0, 0))(
            space.weights, predicted, likelihood, scale, missing, codes
        )
        log_normalizers = None
        if model.joint is not None:
            log_normalizers = model.joint.log_normalizers(predicted * space.weights[None, :])
        if model.ssm.vectorized:
            errors = jnp.zeros(some.ys.shape[0])
        else:
            errors = observation_errors(model, some, None, scale, predicted, space, likelihood)
            unresolved = outs.seen & (errors > model.tol) & (outs.code == _results.OK)
            outs = outs._replace(code=jnp.where(unresolved, _results.UNRESOLVED, outs.code))
        moments = (outs.density * space.weights[None, :]) @ space.features
        if keep and sources is None:
            sources = jnp.concatenate([last[None], outs.density[:-1]])
        final = outs.density[jnp.sum(part.used) - 1]
        kept = outs.density if keep else None
        out = Filtered(
            outs._replace(density=kept),
            moments,
            sources if keep else None,
            errors,
            log_normalizers,
        )
        return (state, final), out

    (_, last), out = in_chunks(chunk, (start, prior), series, model.plan.num_nodes, most)
    return last, out


def _hop(model: LearnedModel, tables: Any, v: Float[Array, " n"]) -> Float[Array, " n"]:
    return predict_nodes(model.plan, tables.squares, v)


def _observe(model: LearnedModel, space: Workspace, part: _Part):
    """G^ at the nodes, its exponents, and what is missing."""
    some, joint = part.series, model.joint
    missing, codes = jax.vmap(lambda y: observation_status(y, joint))(some.ys)
    missing = missing | ~part.used
    codes = jnp.where(part.used, codes, _results.OK)
    if joint is not None:
        likelihood, scale = joint.likelihoods(jnp.asarray(some.ys), missing, some.partly)
        return likelihood, scale, missing, codes
    logs = some.logs
    if logs is None:
        logs = jax.vmap(lambda y, t, row: observation_logs(model, y, t, row, some.partly, space))(
            some.ys, some.steps, some.rows
        )
    likelihood, scale = likelihoods_at_nodes(model, logs, missing, space)
    return likelihood, scale, missing, codes


def bayes(weights: Array, predicted: Array, weighted: Array) -> Array:
    """w p G / Z, or w p of mass one where Z is no positive number; `weighted` is w G."""
    joint = predicted * weighted
    mass, kept = jnp.sum(joint), weights @ predicted
    good = (mass > 0) & (mass < jnp.inf)
    rest = weights * predicted / jnp.where(kept > 0, kept, 1.0)
    return jnp.where(good, joint / jnp.where(good, mass, 1.0), rest)


def _predict_along(model, weights, part: _Part, state, last, likelihood, single_hop, stacked):
    """Predictions of a transition fixed in time, one before each step; the carry is the next."""
    del part, last, single_hop, stacked
    unroll = UNROLL if weights.shape[0] <= UNROLL_NODES else 1

    def step(predicted, weighted):
        return _hop(model, model.tables, bayes(weights, predicted, weighted)), predicted

    state, predicted = jax.lax.scan(step, state, likelihood * weights[None, :], unroll=unroll)
    return state, predicted, None


def _predict_each(model, weights, part: _Part, state, last, likelihood, single_hop, stacked):
    """Predictions of any transitions: none, one or several before each step."""
    del state
    some, filled = part.series, None
    if model.tables is None and stacked is None and single_hop:
        filled = jax.vmap(model.tables_at)(some.steps, some.rows).squares

    def step(density, xs):
        weighted, index, hop, t, row, squares = xs
        if stacked is not None:
            squares = tuple(table[index] for table in stacked)
        elif model.tables is not None:
            squares = model.tables.squares

        def hop_once(k, p):
            at = model.tables_at(t - hop + 1 + k, row).squares if squares is None else squares
            return predict_nodes(model.plan, at, weights * p)

        if single_hop:
            source, predicted = density, jnp.where(hop > 0, hop_once(0, density), density)
        else:
            source = jax.lax.fori_loop(0, hop - 1, hop_once, density)
            predicted = jnp.where(hop > 0, hop_once(hop - 1, source), density)
        return bayes(weights, predicted, weighted) / weights, (predicted, source)

    weighted = likelihood * weights[None, :]
    xs = (weighted, part.places, some.hops, some.steps, some.rows, filled)
    last, (predicted, sources) = jax.lax.scan(step, last, xs)
    return last, predicted, sources


def in_chunks(
    fn: Callable[..., Any], carry: Any, series: Series, num_nodes: int, most: int = CHUNK
) -> tuple[Any, Any]:
    """A scan over chunks of equal size; the last is filled up with copies that are not used."""
    num = series.ys.shape[0]
    most = int(np.clip(_CHUNK_SIZE // num_nodes, 1, most))
    chunks = -(-num // most)
    size = -(-num // chunks)
    index = np.minimum(np.arange(chunks * size), num - 1)
    used = jnp.asarray(np.arange(chunks * size) < num)
    part = _Part(series, jnp.asarray(index), used)
    if chunks == 1:
        return fn(carry, part)
    if chunks * size > num:
        part = part._replace(series=jax.tree.map(lambda a: a[index], series))
    part = jax.tree.map(lambda a: a.reshape(chunks, size, *a.shape[1:]), part)
    carry, out = jax.lax.scan(fn, carry, part)
    flat = jax.tree.map(lambda a: a.reshape(chunks * size, *a.shape[2:])[:num], out)
    return carry, flat
