"""Whole series in one compiled scan: nodes in a window chosen at every step.

A step whose estimate misses stops the scan: the steps after it cost nothing and are left to others.
"""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..._statespace.functions import Inputs
from .loop.roughness import near_kinks
from .rules import KINKED, LEAST_SHARE, scan_rule
from .spikes import BUMP
from .state import BEYOND, OUTER, OUTSIDE
from .tables import shares_of
from .values import Parts

# Points of a look at the window.
_LOOK = 33
# Looks at a window known by means and noise, and at a box: each narrows at most 6-fold.
_LOOKS, _BOX_LOOKS = 3, 5
# Nats below its end within which the likelihood between two nodes must stay.
_HIDDEN = 1.0
# Points of a look for peaks on a floor, of likelihoods that are the user's own functions.
_DENSE = 4096
_DENSE_PLACES = np.linspace(0.0, 1.0, _DENSE)

# Old nodes whose transitions are looked at, and how far below its highest value a peak counts.
_FEW, _NEAR_TOP = 16, 20.0

# What a compiled function is given: NumPy's arrays cost nothing on the way.
Given = Array | np.ndarray


class Nodes(NamedTuple):
    """Carry of the scan: nodes, log masses, error carried over masses."""

    x: Float[Array, " n"]
    log_v: Float[Array, " n"]
    carried: Float[Array, " n"]


class Settings(NamedTuple):
    """Numbers of a run; none of them is compiled in."""

    lower: Float[Given, ""]  # the support; infinite where there is none
    upper: Float[Given, ""]
    reach: Float[Given, ""]  # noise sds that a window extends
    cut: Float[Given, ""]  # nats below the highest value where windows end
    local: Float[Given, ""]  # largest error of one step
    total: Float[Given, ""]  # largest error accumulated


class Rows(NamedTuple):
    """Steps of a series, filled up with ones that are not used."""

    ys: Float[Array, "t p"]
    steps: Given
    rows: Inputs
    used: Given


class Outs(NamedTuple):
    """What a step leaves behind."""

    nodes: Nodes
    log_norm: Array
    offset: Array
    error: Array  # accumulated
    local: Array
    sampling: Array
    edge: Array
    good: Array


def embedded(fine: Array, coarse: Array, rough: Given | float = 0.0) -> Array:
    """`rules.embedded_error`, traced.

    `rough` is the share of an integral that comes from beside kinks. Rules converge by factors of
    four there, so that a third of the difference is left, while the coarsest rule, which does not
    even resolve what is smooth, makes it look like far less.
    """
    d, other = jnp.abs(fine), jnp.abs(coarse)
    rho = d / jnp.maximum(other, 1e-290)
    ratio = jnp.where(rho < 0.5, rho / (1 - jnp.minimum(rho, 0.5)), 1.0)
    return jnp.maximum(d * jnp.maximum(ratio, LEAST_SHARE), KINKED * jnp.minimum(d, rough))


def finite(logs: Array) -> Array:
    """`rules.no_nan`."""
    return jnp.where(jnp.isnan(logs) | jnp.isposinf(logs), -jnp.inf, logs)


def _log_g(parts: Parts, x: Array, row: Rows, missing: Array) -> Array:
    return jnp.where(missing, 0.0, finite(parts.log_g(x, row.ys, row.steps, row.rows)))


# Two ends of a window.
Ends = tuple[Array, Array]


def _window(
    parts: Parts, nodes: Nodes, row: Rows, missing: Array, settings: Settings
) -> tuple[Ends, Ends]:
    """Where p G is, and where p is, by looks at them on few points with every fourth old node."""
    lower, upper = settings.lower, settings.upper
    looks = _BOX_LOOKS
    if parts.moved is not None:
        looks = _LOOKS
        means = parts.means(nodes.x, row.steps, row.rows)
        held = (nodes.log_v > jnp.max(nodes.log_v) - 2 * settings.cut) & jnp.isfinite(means)
        far = settings.reach * jnp.sqrt(parts.moved.variance)
        lower = jnp.maximum(lower, jnp.min(jnp.where(held, means, jnp.inf)) - far)
        upper = jnp.minimum(upper, jnp.max(jnp.where(held, means, -jnp.inf)) + far)

    def look(_, ends, unseen):
        low, high = ends
        x = low + (high - low) * jnp.linspace(0.0, 1.0, _LOOK)
        logs = _log_few(parts, nodes, row, x) + _log_g(parts, x, row, unseen)
        logs = finite(logs)
        jumps = jnp.abs(jnp.diff(logs))
        jumps = jnp.where(jnp.isfinite(jumps), jumps, 0.0)
        # A peak between two points is higher than both by about what they differ.
        most = logs + jnp.maximum(jnp.append(jumps, 0.0), jnp.append(0.0, jumps))
        high_enough = most > jnp.max(logs) - settings.cut
        first = jnp.maximum(jnp.argmax(high_enough) - 1, 0)
        last = jnp.minimum(_LOOK - jnp.argmax(high_enough[::-1]), _LOOK - 1)
        return x[first], x[last]

    ends = jax.lax.fori_loop(0, looks, partial(look, unseen=missing), (lower, upper))
    if not _has_shapes(parts):
        return ends, ends
    predicted = partial(look, unseen=jnp.asarray(True))
    return ends, jax.lax.fori_loop(0, looks, predicted, (lower, upper))


def _log_few(parts: Parts, nodes: Nodes, row: Rows, x: Array) -> Array:
    """log p(x) with every fourth old node, but a constant."""
    logs = parts.log_q(nodes.x[::4], x, row.steps, row.rows) + nodes.log_v[::4, None]
    return jax.nn.logsumexp(finite(logs), axis=0)


def _between(places: Float[np.ndarray, " n"], values: Float[Array, " n"]) -> Float[Array, " k"]:
    """Values at the places of a dense look, linear between those at fixed ones from 0 to 1.

    Which two belong to a place is known before anything is compiled; a search for them in every
    step took longer than the rest of the look.
    """
    right = np.clip(np.searchsorted(places, _DENSE_PLACES), 1, len(places) - 1)
    share = (_DENSE_PLACES - places[right - 1]) / (places[right] - places[right - 1])
    known = jnp.maximum(values, -1e300)
    return known[right - 1] * (1 - share) + known[right] * share


def _has_shapes(parts: Parts) -> bool:
    """Whether a likelihood may have peaks anywhere: it is no Gaussian in x."""
    return parts.sensor is None or parts.sensor.map is not None


def _outside(
    parts: Parts, nodes: Nodes, row: Rows, missing: Array, ends: tuple[Ends, Ends]
) -> Array:
    """log of the mass of p G that a dense look at the prediction finds outside of the window."""
    (low, high), (first, last) = ends
    points = first + (last - first) * np.linspace(0.0, 1.0, _LOOK)
    # p is made of every fourth node: four times as much.
    log_p = finite(_log_few(parts, nodes, row, points)) + np.log(4.0)
    dense = first + (last - first) * _DENSE_PLACES
    logs = _once(last >= first, lambda: _log_g(parts, dense, row, missing))
    logs = finite(logs + _between(np.linspace(0.0, 1.0, _LOOK), log_p))
    logs = jnp.where((dense < low) | (dense > high), logs, -jnp.inf)
    return jax.nn.logsumexp(logs) + jnp.log((last - first) / (_DENSE - 1))


def _once(there: Array, make: Callable[[], Array]) -> Array:
    """What `make` returns, in memory; NaN if the window is not there.

    XLA would put a table into all that reads it, and compute it there again: the transition ten
    times, which is most of a step. It drops barriers before it does so, but no branches.
    """
    blank = jax.eval_shape(make)
    return jax.lax.cond(there, make, lambda: jnp.full(blank.shape, jnp.nan, blank.dtype))


def _step(parts: Parts, nodes: Nodes, row: Rows, settings: Settings, bounded: bool) -> Outs:
    num = nodes.x.size
    rule = scan_rule(num, bounded)
    levels = jnp.asarray(rule.weights)
    missing = jnp.all(jnp.isnan(row.ys)) | jnp.any(jnp.isinf(row.ys))
    ends_found = _window(parts, nodes, row, missing, settings)
    low, high = ends_found[0]
    h = high - low
    x = low + h * jnp.asarray(rule.nodes)
    there = high >= low
    log_q = _once(there, lambda: parts.log_q(nodes.x, x, row.steps, row.rows))
    shares, log_p = shares_of(log_q, nodes.log_v)
    log_g = _log_g(parts, x, row, missing)
    logs = finite(log_p + log_g)
    top = jnp.max(logs)
    top = jnp.where(jnp.isfinite(top), top, 0.0)
    f = jnp.exp(logs - top)
    sums = h * (levels @ f)
    total = jnp.where(sums[0] > 0, sums[0], 1.0)
    v = h * levels[0] * f / total
    ends = _ends(settings, nodes.x)
    ratios = jnp.concatenate([levels[1:] / levels[:1], nodes.carried[None], ends[None]])
    log_weights = jnp.log(levels[0])
    if parts.moved is None:
        rough = jnp.sum(shares * near_kinks(log_q + (nodes.log_v - log_weights)[:, None]), axis=0)
    else:
        moved = parts.means(nodes.x, row.steps, row.rows) / jnp.sqrt(parts.moved.variance)
        rough = jnp.maximum(near_kinks(moved), near_kinks(nodes.log_v - log_weights)) @ shares
    # What windows have left out is no more than exp(-cut), wherever it is.
    lacking = jnp.exp(jnp.minimum(jnp.max(finite(log_q)) - settings.cut - log_p, 0.0))
    error, local, shape, offset = _errors(ratios @ shares, v, (rough, lacking))
    differences = sums[0] - sums[1], sums[1] - sums[2]
    sampling = embedded(*differences, h * levels[0] @ (f * near_kinks(logs))) / total
    sampling += _hidden(parts, (x, log_p, logs), row, missing)
    if _has_shapes(parts):
        values = x, log_p, top - settings.cut
        sampling += _spikes(parts, values, row, missing, rule.nodes)
    if parts.moved is None:
        sampling += _narrow(parts, nodes, row, x)
    if _has_shapes(parts):
        outside = _outside(parts, nodes, row, missing, ends_found)
        sampling += jnp.exp(jnp.minimum(outside - top - jnp.log(total), 0.0))
    edge = _edge_mass(settings, x, v) + _edge_mass(settings, nodes.x, shares @ v)
    out = Nodes(x, jnp.where(v > 0, jnp.log(v), -jnp.inf), shape)
    own = local + sampling + edge
    good = (own <= settings.local) & (error <= settings.total) & (sums[0] > 0)
    return Outs(out, jnp.log(total) + top, offset, error, local, sampling, edge, good)


def _errors(
    companions: Float[Array, "4 n"], v: Float[Array, " n"], known: tuple[Array, Array]
) -> tuple[Array, Array, Array, Array]:
    """Errors inherited and made, as in `state.law_of`; shares beside kinks, and lacking."""
    rough, lacking = known
    fine, coarse = 1 - companions[0], companions[0] - companions[1]
    sign = jnp.where(fine < 0, -1.0, 1.0)
    own = sign * (embedded(fine, coarse, rough) + companions[3] + lacking)
    inherited = companions[2]
    local = v @ jnp.abs(own)
    error = v @ jnp.abs(inherited - v @ inherited) + local
    sign = jnp.where(inherited == 0, jnp.sign(own), jnp.sign(inherited))
    shape = sign * (jnp.abs(inherited) + jnp.abs(own))
    offset = v @ shape
    return error, local, shape - offset, offset


def _hidden(parts: Parts, values: tuple[Array, Array, Array], row: Rows, missing: Array) -> Array:
    """One if the likelihood between two nodes shows what the nodes do not."""
    x, log_p, logs = values
    middle = 0.5 * (x[1:] + x[:-1])
    between = 0.5 * (log_p[1:] + log_p[:-1]) + _log_g(parts, middle, row, missing)
    gap = jnp.max(finite(between)) - jnp.max(logs)
    return jnp.where(gap > _HIDDEN, 1.0, 0.0)


def _spikes(
    parts: Parts,
    values: tuple[Array, Array, Array],
    row: Rows,
    missing: Array,
    places: Float[np.ndarray, " n"],
) -> Array:
    """One if a dense look at a likelihood of the user's own shows peaks that nodes cannot.

    `places` are the nodes from 0, the first, to 1, the last.
    """
    x, log_p, least = values
    dense = x[0] + (x[-1] - x[0]) * _DENSE_PLACES
    log_g = _once(x[-1] >= x[0], lambda: _log_g(parts, dense, row, missing))
    bend = jnp.abs(log_g[:-2] - 2 * log_g[1:-1] + log_g[2:])
    nothing = jnp.isneginf(log_g)
    bend = jnp.where(jnp.isnan(bend), jnp.inf, bend)
    bend = jnp.where(nothing[:-2] & nothing[1:-1] & nothing[2:], 0.0, bend)
    there = _between(places, log_p)[1:-1] + log_g[1:-1] > least
    return jnp.where(jnp.any(there & (bend > BUMP)), 1.0, 0.0)


def _narrow(parts: Parts, nodes: Nodes, row: Rows, x: Array) -> Array:
    """One if a dense look at the transitions of some old nodes shows peaks that nodes cannot."""
    dense = x[0] + (x[-1] - x[0]) * _DENSE_PLACES
    some, masses = nodes.x[::_FEW], nodes.log_v[::_FEW, None]
    logs = _once(x[-1] >= x[0], lambda: parts.log_q(some, dense, row.steps, row.rows) + masses)
    logs = jax.nn.logsumexp(finite(logs), axis=0)
    bend = logs[1:-1] - 0.5 * (logs[:-2] + logs[2:])
    high = logs[1:-1] > jnp.max(logs) - _NEAR_TOP
    return jnp.where(jnp.any(high & (2 * bend > BUMP)), 1.0, 0.0)


def _ends(settings: Settings, x: Array) -> Array:
    """`state.ends_of_line`, traced."""
    width = x[-1] - x[0]
    place, tiny, near = jnp.arange(x.size), 1e-9 * width, OUTSIDE * width
    left = (place < OUTER) | (x <= x[0] + near)
    right = (place >= x.size - OUTER) | (x >= x[-1] - near)
    left &= x[0] > settings.lower + tiny
    right &= x[-1] < settings.upper - tiny
    return jnp.where(left | right, BEYOND, 0.0)


def _edge_mass(settings: Settings, x: Array, mass: Array) -> Array:
    """Mass at the outermost nodes, unless the support ends there."""
    return jnp.sum(jnp.where(_ends(settings, x) > 0, mass, 0.0))


@partial(jax.jit, static_argnames=("static", "bounded"))
def _scan(
    dynamic: Parts, static: Parts, nodes: Nodes, rows: Rows, settings: Settings, bounded: bool
) -> Outs:
    parts: Parts = eqx.combine(dynamic, static)
    blank = jax.eval_shape(lambda: _step(parts, nodes, _row(rows, 0), settings, bounded))
    nothing = jax.tree.map(lambda a: jnp.zeros(a.shape, a.dtype), blank)

    def body(carry, row):
        state, going = carry
        go = going & row.used
        out = jax.lax.cond(go, lambda: _step(parts, state, row, settings, bounded), lambda: nothing)
        keep = go & out.good
        state = jax.tree.map(lambda a, b: jnp.where(keep, a, b), out.nodes, state)
        return (state, going & (out.good | ~row.used)), out

    _, outs = jax.lax.scan(body, (nodes, jnp.asarray(True)), rows)
    return outs


def _row(rows: Rows, index: int) -> Rows:
    return jax.tree.map(lambda a: a[index], rows)


def run_fast(
    parts: tuple[Parts, Parts], nodes: Nodes, rows: Rows, settings: Settings, bounded: bool
) -> Outs:
    """Steps until the first that misses; `good` says how far it went.

    `parts` are arrays and the rest; `bounded`: laws may be cut by a box.
    """
    return _scan(*parts, nodes, rows, settings, bounded)
