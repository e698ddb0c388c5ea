"""Integrals as positive sums of squares at quadrature nodes: the route that cannot cancel.

    int f            = sum_z w_z |L'k(z)|^2
    int Q(u, x) f(u) = sum_z w_z f(z) sum_r (a_r o k(z))'k(x))^2

so that the factor of a Markov transition is a o k(z) sqrt(w_z f(z)), one column for each node, with
the anchors in x that Q has; a marginal is the same with f = 1. Columns are then rotated to at most
as many as there are anchors. Every function also gives an estimate of its relative error, from the
sum of absolute values in each L'k.
"""

from collections.abc import Callable
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from numpy.polynomial import legendre

from .._checks import is_traced
from .._gaussian.kernel import gram, squared_distances
from .._gaussian.linalg import shrink_factor
from .._gaussian.quadrature import gauss_legendre, legendre_rule, num_panels
from .anchors import TensorGrid, expand, num_points, shifted_feature_product
from .box import Box
from .diagonal import keep_axes, split_grid
from .generalized import GeneralizedGaussianPSD, PairwiseGaussianPSD, log_components, pairwise
from .psd import GaussianPSD, ProductPSD
from .rounding import UNIT, Plan, plan_nodes
from .support import effective_box

Squares = GaussianPSD | GeneralizedGaussianPSD

# Coefficients of 1e8 lift the square of a bump by 1e16: 9 widths are then what 6.5 are without.
_REACH = 9.0
_POINTS_AT_A_TIME = 2**21


class NodeValues(NamedTuple):
    """f(z) = value exp(log_scale) at nodes z; rounding leaves UNIT sqrt(value bound) in it."""

    nodes: Float[Array, "n d"]
    log_weights: Float[Array, " n"]
    value: Float[Array, " n"]
    bound: Float[Array, " n"]
    log_scale: Float[Array, " n"]

    @property
    def log_masses(self) -> Float[Array, " n"]:
        """log w f, -inf where f is zero, with derivatives that are not NaN there."""
        some = self.value > 0
        logs = jnp.log(jnp.where(some, self.value, 1.0)) + self.log_scale + self.log_weights
        return jnp.where(some, logs, -jnp.inf)

    @property
    def relative_error(self) -> Float[Array, " n"]:
        """Of each value."""
        some = self.value > 0
        return jnp.where(some, UNIT * jnp.sqrt(self.bound / jnp.where(some, self.value, 1.0)), 0.0)


def _value_and_bound(f: Squares, x: Float[Array, " d"]) -> tuple[Array, Array, Array]:
    if isinstance(f, ProductPSD):
        one, of_one, scale_one = _value_and_bound(f.left, x)
        other, of_other, scale_other = _value_and_bound(f.right, x)
        # Relative errors sqrt(bound / value) of the two add up.
        bound = jnp.square(jnp.sqrt(of_one * other) + jnp.sqrt(of_other * one))
        return one * other, jax.lax.stop_gradient(bound), f.log_scale + scale_one + scale_other
    both = jnp.concatenate([f.factor, jnp.abs(f.factor)], axis=1)
    if isinstance(f, GaussianPSD):
        g, distance = shifted_feature_product(f.anchors, f.precision, both, x)
        log_scale = f.log_scale - 2 * distance
    else:
        exponent = log_components(f, x)
        peak = jax.lax.stop_gradient(jnp.maximum(jnp.max(exponent), jnp.finfo(jnp.float64).min))
        g, log_scale = jnp.exp(exponent - peak) @ both, f.log_scale + 2 * peak
    square = jnp.square(g)
    return jnp.sum(square[: f.rank]), jax.lax.stop_gradient(jnp.sum(square[f.rank :])), log_scale


def values_at_nodes(f: Squares, plan: Plan) -> NodeValues:
    """f at the nodes of a rule, as squares."""
    nodes, weights = gauss_legendre(plan.room.lower, plan.room.upper, plan.counts)
    width = f.left.order + f.right.order if isinstance(f, ProductPSD) else f.order
    block = max(32, _POINTS_AT_A_TIME // width)
    values = jax.lax.map(lambda z: _value_and_bound(f, z), nodes, batch_size=block)
    return NodeValues(nodes, jnp.log(weights), *values)


def _finite_peak(logs: Array) -> Array:
    return jax.lax.stop_gradient(jnp.maximum(jnp.max(logs), jnp.finfo(logs.dtype).min))


def _share_of_error(terms: Float[Array, "*n"], errors: Float[Array, "*n"]) -> Array:
    total = jnp.sum(terms)
    return jnp.where(total > 0, jnp.sum(terms * errors) / jnp.where(total > 0, total, 1.0), 0.0)


def plan_for_integral(f: object, box: Box | None) -> Plan | None:
    """Nodes for int f; None for models that are no sums of squares."""
    if not isinstance(f, GaussianPSD | GeneralizedGaussianPSD) or f.dim > 3:
        return None
    room = room_of(f, box)
    if isinstance(f, GaussianPSD):
        kappa, outside = 2 * f.precision, _outside(expand(f.anchors), room)
    else:
        diagonals = jnp.diagonal(pairwise(f).precision, axis1=-2, axis2=-1)
        kappa, outside = jnp.max(diagonals, axis=(0, 1)), jnp.zeros(f.dim)
    return plan_nodes(room, kappa, outside, f.rank)


def room_of(f: Squares | PairwiseGaussianPSD, box: Box | None) -> Box:
    """The part of the box where f has its mass, even if its coefficients are large."""
    return effective_box(f, box, _REACH)


def _outside(points: Float[Array, "m d"], room: Box) -> Float[Array, " d"]:
    """How far the farthest point lies outside of the room, along each axis."""
    below, above = room.lower[None] - points, points - room.upper[None]
    return jnp.maximum(jnp.max(jnp.maximum(below, above), axis=0), 0.0)


def scaled_integral(f: Squares, plan: Plan) -> tuple[tuple[Array, Array], Array]:
    """z and s with int f = z exp(s), and the relative error; doubled nodes must agree."""
    (mass, log_scale), error = _integral(f, plan)
    if not is_traced((f, plan)):
        (again, log_again), _ = _integral(f, _doubled(plan))
        gap = jnp.abs(mass * jnp.exp(log_scale - log_again) - again)
        error = error + jnp.where(again > 0, gap / jnp.where(again > 0, again, 1.0), 0.0)
    return (mass, log_scale), error


def _doubled(plan: Plan) -> Plan:
    return plan._replace(counts=tuple(2 * n for n in plan.counts))


@eqx.filter_jit
def _integral(f: Squares, plan: Plan) -> tuple[tuple[Array, Array], Array]:
    at = values_at_nodes(f, plan)
    peak = _finite_peak(at.log_masses)
    terms = jnp.exp(at.log_masses - peak)
    return (jnp.sum(terms), peak), _share_of_error(terms, at.relative_error)


@eqx.filter_jit
def moments(f: Squares, plan: Plan) -> tuple[tuple[Array, Array, Array], Array]:
    """Mean, covariance, z of the mass, and the relative error of that."""
    at = values_at_nodes(f, plan)
    terms = jnp.exp(at.log_masses - _finite_peak(at.log_masses))
    mass = jnp.sum(terms)
    shares = terms / jnp.where(mass > 0, mass, 1.0)
    origin = plan.room.center
    mean = origin + shares @ (at.nodes - origin[None])
    delta = at.nodes - mean[None]
    covariance = jnp.einsum("n,nd,ne->de", shares, delta, delta)
    return (mean, covariance, mass), _share_of_error(terms, at.relative_error)


def mass_below(
    f: Squares, t: Float[Array, ""], lower: Float[Array, ""], num: int
) -> tuple[Array, Array]:
    """z and s with int_lower^t f = z exp(s) on a line, by `num` nodes between the two."""
    nodes, weights = gauss_legendre(jnp.minimum(lower, t)[None], t[None], (num,))
    values, _, scales = jax.vmap(lambda z: _value_and_bound(f, z))(nodes)
    peak = _finite_peak(scales)
    return jnp.sum(weights * values * jnp.exp(scales - peak)), peak


def series_below(
    f: Squares, plan: Plan, log_mass: Array
) -> Callable[[Float[np.ndarray, " n"]], Float[np.ndarray, " n"]]:
    """int_{-1}^s f over the whole mass, on a line: the integrals of Legendre series of panels.

    The nodes of the plan are enough for the integral of f, of which n nodes see 2 n coefficients:
    twice as many give all of them.
    """
    num = num_panels(2 * plan.counts[0])
    values = values_at_nodes(f, _doubled(plan))
    masses = np.exp(np.asarray(values.log_masses) - float(log_mass)).reshape(num, -1)
    each = masses.shape[1]
    table = legendre.legvander(legendre_rule(each)[0], each - 1)
    inside = legendre.legint((np.arange(each) + 0.5) * (masses @ table), lbnd=-1, axis=1)
    before = np.concatenate([[0.0], np.cumsum(masses.sum(axis=1))[:-1]])

    def below(s: Float[np.ndarray, " n"]) -> Float[np.ndarray, " n"]:
        place = 0.5 * (s + 1) * num
        panel = np.clip(place.astype(int), 0, num - 1)
        part = legendre.legval(2 * (place - panel) - 1, inside[panel].T, tensor=False)
        return before[panel] + part

    return below


def plan_for_axes(
    q: GaussianPSD, axes: tuple[int, ...], f: GaussianPSD | None, box: Box | None
) -> Plan | None:
    """Nodes for integrals over `axes` of q, times f of these coordinates; `box` is theirs."""
    if len(axes) > 3:
        return None
    inner = _part(q, axes)
    room = effective_box(inner if f is None else f, box, _REACH)
    kappa, outside = 2 * inner.precision, _outside(expand(inner.anchors), room)
    if f is not None:
        kappa = kappa + 2 * f.precision
        outside = jnp.maximum(outside, _outside(expand(f.anchors), room))
    rest = tuple(a for a in range(q.dim) if a not in axes)
    rows = num_points(keep_axes(q.anchors, rest))
    return plan_nodes(room, kappa, outside, rows * q.rank)


def _part(f: GaussianPSD, axes: tuple[int, ...]) -> GaussianPSD:
    """A model on the anchors of some axes alone, for their sizes; its factor means nothing."""
    anchors = keep_axes(f.anchors, axes)
    return GaussianPSD(anchors, jnp.ones((num_points(anchors), 1)), f.precision[np.asarray(axes)])


def integrate_axes(
    q: GaussianPSD, axes: tuple[int, ...], rest: tuple[int, ...], f: GaussianPSD | None, plan: Plan
) -> tuple[GaussianPSD, Array]:
    """int q(u, x) f(u) du over `axes`, a model of `rest`, and its relative error in L1.

    The error is looked at in the anchors of `rest`; where numbers are concrete, twice as many nodes
    have to give the same values there.
    """
    model, error, seen = _integrate_axes(q, axes, rest, f, plan)
    if not is_traced((q, f, plan)):
        other, _, again = _integrate_axes(q, axes, rest, f, _doubled(plan))
        seen = seen * jnp.exp(model.log_scale - other.log_scale)
        total = jnp.sum(again)
        gap = jnp.sum(jnp.abs(seen - again)) / jnp.where(total > 0, total, 1.0)
        error = error + gap
    return model, error


@eqx.filter_jit
def _integrate_axes(
    q: GaussianPSD, axes: tuple[int, ...], rest: tuple[int, ...], f: GaussianPSD | None, plan: Plan
) -> tuple[GaussianPSD, Array, Array]:
    if f is None:
        nodes, weights = gauss_legendre(plan.room.lower, plan.room.upper, plan.counts)
        log_masses, node_errors = jnp.log(weights), jnp.zeros(len(weights))
    else:
        at = values_at_nodes(f, plan)
        nodes, log_masses, node_errors = at.nodes, at.log_masses, at.relative_error
    return sum_at_nodes(q, (axes, rest), nodes, log_masses, node_errors)


def sum_at_nodes(
    q: GaussianPSD,
    split: tuple[tuple[int, ...], tuple[int, ...]],
    nodes: Float[Array, "n k"],
    log_masses: Float[Array, " n"],
    node_errors: Float[Array, " n"],
) -> tuple[GaussianPSD, Array, Array]:
    """sum_z m_z q(z, x) as a model of x, its relative error in L1, and its values at its anchors.

    `split` are the axes of z and those of x; `node_errors` are relative errors of the masses.
    """
    axes, rest = split
    inner = expand(keep_axes(q.anchors, axes))
    distances = squared_distances(nodes, inner, q.precision[np.asarray(axes)])
    exponents = 0.5 * log_masses[:, None] - distances
    top = _finite_peak(exponents)
    table = jnp.exp(exponents - top)
    if isinstance(q.anchors, TensorGrid):
        by_axes = split_grid(q, axes, rest)
        columns = jnp.einsum("nu,uxr->xnr", table, by_axes)
        sizes = jnp.einsum("nu,uxr->xnr", table, jnp.abs(by_axes))
    else:
        columns = table.T[:, :, None] * q.factor[:, None, :]
        sizes = jnp.abs(columns)
    num = columns.shape[0]
    flat = columns.reshape(num, -1)
    factor = shrink_factor(flat)
    anchors = keep_axes(q.anchors, rest)
    eta = q.precision[np.asarray(rest)]
    model = GaussianPSD(anchors, factor, eta, q.log_scale + 2 * top)
    columns, sizes, node_errors = jax.lax.stop_gradient((columns, sizes, node_errors))
    probes = jax.lax.stop_gradient(expand(anchors))
    error, seen = _probe(columns, sizes, node_errors, gram(probes, probes, eta))
    return model, error, seen


def _probe(
    columns: Float[Array, "m n r"],
    sizes: Float[Array, "m n r"],
    node_errors: Float[Array, " n"],
    kernel: Float[Array, "k m"],
) -> tuple[Float[Array, ""], Float[Array, " k"]]:
    """Relative error over the probes, and the values there.

    Three sources: values of f at the nodes; columns, each entry of which has a rounding of its own,
    u `sizes`, so that over the anchors they add up like independent numbers; and the rotation of
    the columns, whose error is u |L|_F in the norm.
    """
    roots = jnp.einsum("km,mnr->knr", kernel, columns)
    bounds = jnp.sqrt(jnp.einsum("km,mnr->knr", jnp.square(kernel), jnp.square(sizes)))
    squares = jnp.square(roots)
    values = jnp.sum(squares, axis=(1, 2))
    inner = jnp.sum(squares * node_errors[None, :, None])
    outer = UNIT * jnp.sum(jnp.abs(roots) * bounds)
    length = jnp.sqrt(jnp.sum(jnp.square(columns)))
    turned = UNIT * length * jnp.sum(jnp.sqrt(values) * jnp.linalg.norm(kernel, axis=1))
    total = jnp.sum(values)
    lost = inner + outer + turned
    return jnp.where(total > 0, lost / jnp.where(total > 0, total, 1.0), 0.0), values
