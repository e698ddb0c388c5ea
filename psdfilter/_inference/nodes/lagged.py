"""Fixed-lag smoothing: each state given the next L observations, window by window.

    p(x_t | y_1 ... y_{t+L}) ~ pi_t beta_t,
    beta_t = Q [G_{t+1} Q [G_{t+2} ... Q [G_{t+L}]]]      Q applied backwards, L times

All times of a segment go back together, one lag at a time, so that a lag is a matrix product.
Memory is that of a segment and its window, however long the series is, unless densities are kept.
"""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from ..._statespace.functions import Inputs
from ..series import Series
from ..sizing.tables import backward_nodes, predict_nodes
from .filled import Filled
from .filtered import observation_fits
from .host import Tabulated
from .laws import moments_from_features
from .refine import likelihood_on
from .smoothed import Backward
from .workspace import moment_features

# Numbers in one array of a segment; no fewer steps than these.
_SEGMENT_SIZE, _LEAST_STEPS = 2**21, 16


def smooth_with_lag(
    model: Filled, series: Series, host: Tabulated, seen: Bool[Array, " t"], lag: int, keep: bool
) -> Backward:
    """Segment after segment; each sees `lag` steps beyond its end. No filtered law is needed."""
    num = series.num
    size = _segment_steps(model, num, lag)
    density, parts = model.prior, []
    for start in range(0, num, size):
        index = np.arange(start, min(start + size, num) + lag)
        inside = jnp.asarray(index < num)
        index = np.minimum(index, num - 1)
        window, rows = jax.tree.map(lambda a, i=index: a[i], (series, host))
        length = min(size, num - start)
        tables = _tabulate(model, window, rows, seen[index] & inside, inside)
        density, part = _segment(model, tables, density, (length, lag, series.regular, keep))
        parts.append(part)
    return jax.tree.map(lambda *a: jnp.concatenate(a), *parts)


def _segment_steps(model: Filled, num: int, lag: int) -> int:
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
    rows: Inputs
    squares: tuple[Array, ...] | None  # of a transition that varies in time


@eqx.filter_jit
def _tabulate(
    model: Filled, series: Series, host: Tabulated, seen: Array, inside: Array
) -> _Window:
    """Past the end nothing is seen, and `inside` is false."""
    coefficients, _ = observation_fits(model, series, host.logs)
    nodes = model.plan.nodes
    values = jax.vmap(lambda c: likelihood_on(model, c, nodes))(coefficients)
    values = jnp.where(seen[:, None], values, 1.0)
    squares = host.squares
    if model.tables is None and squares is None:
        squares = jax.vmap(model.tables_at)(series.steps, series.rows).squares
    hops = jnp.where(inside, series.hops, 0)
    return _Window(values, hops, series.steps, series.rows, squares)


@eqx.filter_jit
def _segment(
    model: Filled,
    window: _Window,
    density: Float[Array, " n"],
    options: tuple[int, int, bool, bool],
) -> tuple[Float[Array, " n"], Backward]:
    """One segment; `options` are its length, the lag, whether the series is regular, and keep."""
    length, lag, regular, keep = options
    plan = model.plan
    weights = plan.node_weights()

    def squares_of(own: tuple[Array, ...] | None, step: Array, row: Inputs) -> tuple[Array, ...]:
        if own is not None and (regular or model.ssm.vectorized):
            return own
        return model.tables_at(step, row).squares

    def forward(p: Array, at: _Window) -> tuple[Array, Array]:
        def hop_once(k: Array | int, q: Array) -> Array:
            squares = squares_of(at.squares, at.steps - at.hops + 1 + k, at.rows)
            return predict_nodes(plan, squares, weights * q)

        if regular:
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

        def hop_back(k: Array | int, b: Array) -> Array:
            squares = squares_of(at.squares, at.steps - k, at.rows)
            return backward_nodes(plan, squares, weights * b)

        if not regular:
            source = jax.lax.fori_loop(0, at.hops - 1, hop_back, source)
        beta = jnp.where(at.hops > 0, hop_back(at.hops - 1, source), source)
        scale = jnp.max(beta)
        scale = 1.0 / jnp.where(scale > 0, scale, 1.0)
        return beta * scale, source * scale

    def one_lag(k: Array | int, carry: tuple[Array, Array]) -> tuple[Array, Array]:
        at = jax.tree.map(
            lambda a: jax.lax.dynamic_slice_in_dim(a, lag - k, length, axis=0), window
        )
        return jax.vmap(back)(carry[0], at)

    ones = jnp.ones_like(densities)
    betas, sources = jax.lax.fori_loop(0, lag, one_lag, (ones, ones))
    joint = densities * betas
    norms = joint @ weights
    shares = joint / norms[:, None] * weights[None, :]
    box = plan.box
    moments = moments_from_features(box.center, box.half_width, shares @ moment_features(plan))
    sinks = sources * weights[None, :] if keep else None
    return last, Backward(*moments, sinks, jnp.log(norms))
