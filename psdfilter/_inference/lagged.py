"""Fixed-lag smoothing: each state given the next L observations, window by window.

    p(x_t | y_1 ... y_{t+L}) ~ pi_t beta_t,
    beta_t = Q [G_{t+1} Q [G_{t+2} ... Q [G_{t+L}]]]      Q applied backwards, L times

All times of a segment go back together, one lag at a time, so that a lag is a matrix product.
Memory is that of a segment and its window, however long the series is, unless densities are kept.
"""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .filtered import FilterPosterior, observation_fits
from .model import LearnedModel
from .nodes import backward_nodes, predict_nodes
from .posterior import moments_from_features
from .refine import likelihood_on
from .series import Series
from .workspace import moment_features

# Numbers in one array of a segment; no fewer steps than these.
_SEGMENT_SIZE, _LEAST_STEPS = 2**21, 16


class Lagged(NamedTuple):
    """The smoother of a series with a lag, T rows each."""

    mean: Float[Array, "t d"]
    covariance: Float[Array, "t d d"]
    densities: Float[Array, "t n"] | None
    sinks: Float[Array, "t n"] | None  # w G beta of the step after, as in smooth.py
    log_norms: Float[Array, " t"]


def lagged_smoother(post: FilterPosterior, lag: int, single_hop: bool, keep: bool) -> Lagged:
    """Segment after segment; each sees `lag` steps beyond its end."""
    model, num = post.model, post.mean.shape[0]
    size = _segment_steps(model, num, lag)
    density, parts = model.prior, []
    for start in range(0, num, size):
        index = np.arange(start, min(start + size, num) + lag)
        inside = jnp.asarray(index < num)
        index = np.minimum(index, num - 1)
        window = jax.tree.map(lambda a, i=index: a[i], post.series)
        length = min(size, num - start)
        density, part = _segment(
            model, window, post.seen[index], inside, density, length, lag, single_hop, keep
        )
        parts.append(part)
    return jax.tree.map(lambda *a: jnp.concatenate(a), *parts)


def _segment_steps(model: LearnedModel, num: int, lag: int) -> int:
    """Steps of a segment: arrays over its window stay below a fixed size."""
    each = model.plan.num_nodes
    if model.tables is None:
        each = sum(
            int(np.prod([model.plan.shape[a] for a in (*part.given, *part.group)]))
            for part in model.plan.transitions
        )
    return min(num, max(_LEAST_STEPS, _SEGMENT_SIZE // each - lag))


class _Window(NamedTuple):
    """Tables of all steps of a segment and of those it looks ahead to."""

    likelihood: Float[Array, "k n"]
    hops: Array  # zero past the end of the series
    steps: Array
    rows: Any
    squares: tuple[Array, ...] | None  # of a transition that varies in time


def _tabulate(model: LearnedModel, series: Series, seen: Array, inside: Array) -> _Window:
    coefficients, _ = observation_fits(model, series)
    nodes = model.plan.nodes
    values = jax.vmap(lambda c: likelihood_on(model, c, nodes))(coefficients)
    values = jnp.where((seen & inside)[:, None], values, 1.0)
    squares = None
    if model.tables is None:
        tables = series.tables
        if tables is None:
            tables = jax.vmap(model.tables_at)(series.steps, series.rows)
        squares = tables.squares
    hops = jnp.where(inside, series.hops, 0)
    return _Window(values, hops, series.steps, series.rows, squares)


@eqx.filter_jit
def _segment(
    model: LearnedModel,
    series: Series,
    seen: Array,
    inside: Array,
    density: Float[Array, " n"],
    length: int,
    lag: int,
    single_hop: bool,
    keep: bool,
) -> tuple[Float[Array, " n"], Lagged]:
    plan = model.plan
    weights = plan.node_weights()
    window = _tabulate(model, series, seen, inside)

    def squares_of(own: Any, step: Any, row: Any) -> tuple[Array, ...]:
        if own is not None and (single_hop or model.ssm.vectorized):
            return own
        return model.tables_at(step, row).squares

    def forward(p: Array, at: _Window) -> tuple[Array, Array]:
        def hop_once(k: Any, q: Array) -> Array:
            squares = squares_of(at.squares, at.steps - at.hops + 1 + k, at.rows)
            return predict_nodes(plan, squares, weights * q)

        if single_hop:
            p = jnp.where(at.hops > 0, hop_once(0, p), p)
        else:
            p = jax.lax.fori_loop(0, at.hops, hop_once, p)
        joint = p * at.likelihood
        mass = weights @ joint
        # Where the filter itself found nothing, `seen` is false and the likelihood one.
        p = joint / jnp.where(mass > 0, mass, 1.0)
        return p, p

    first = jax.tree.map(lambda a: a[:length], window)
    last, densities = jax.lax.scan(forward, density, first)

    def back(beta: Array, at: _Window) -> tuple[Array, Array]:
        """Through the observation and the transitions of one step; before the last as well."""
        source = beta * at.likelihood

        def hop_back(k: Any, b: Array) -> Array:
            squares = squares_of(at.squares, at.steps - k, at.rows)
            return backward_nodes(plan, squares, weights * b)

        if not single_hop:
            source = jax.lax.fori_loop(0, at.hops - 1, hop_back, source)
        beta = jnp.where(at.hops > 0, hop_back(at.hops - 1, source), source)
        scale = jnp.max(beta)
        scale = 1.0 / jnp.where(scale > 0, scale, 1.0)
        return beta * scale, source * scale

    def one_lag(k: Any, carry: tuple[Array, Array]) -> tuple[Array, Array]:
        at = jax.tree.map(
            lambda a: jax.lax.dynamic_slice_in_dim(a, lag - k, length, axis=0), window
        )
        return jax.vmap(back)(carry[0], at)

    ones = jnp.ones_like(densities)
    betas, sources = jax.lax.fori_loop(0, lag, one_lag, (ones, ones))
    joint = densities * betas
    norms = joint @ weights
    smoothed = joint / norms[:, None]
    moments = (smoothed * weights[None, :]) @ moment_features(plan)
    mean, covariance = moments_from_features(plan, moments)
    kept = (smoothed, sources * weights[None, :]) if keep else (None, None)
    return last, Lagged(mean, covariance, *kept, jnp.log(norms))
