"""What a fixed plan gets wrong in each step, measured on the way: no second filter is needed.

With the true Q and the learned Q^ at the nodes, one transition puts |p - p^| <= sum_m v_m |Q - Q^|
into a prediction, and an observation makes of that

    int |p - p^| G / int p G

in the filtered density. Outliers weigh the tails, where Q^ is right to its tolerance and not to its
size: there this is large while every fit is as good as ever.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from numpy.polynomial.legendre import legvander

from ..._gaussian.quadrature import legendre_rule
from ..._statespace.functions import Time
from ..._statespace.model import (
    Inputs,
    StateSpaceModel,
    log_prior_table,
    log_transition_table,
)
from ..numerics.grids import grid_points
from ..sizing.contraction import Structure, predict_tensor
from ..sizing.grading import finer_rule
from ..sizing.plan import Plan
from ..sizing.tables import TransitionTables
from .filled import Filled, maybe_renormalized


class Watch(eqx.Module):
    """Gaps between the learned and the true densities at the nodes.

    Attributes:
        prior: |p(x_0) - p^(x_0)| at the nodes.
        gaps: |Q_g - Q^_g| of every factor; None if the transition varies in time.
        squares: Q^_g, the other factors of a product.
        pairs: the gap of a single axis, the larger of each two neighbours x, in single precision:
            a bound that is hardly larger, at a quarter of the cost.
        whole: the filled plan, where the transition varies in time.
        tails: P_k(s) of the highest degrees k at the nodes, for every axis, see `rule_errors`.
        coarse: relative error of the rule for int Q(u, z_j) du, and for int Q(z_j, x) dx, at every
            node, on a single axis: where nodes lie farther apart than the transition reaches.
        is_cut: whether the box was only simulated, so that mass that leaves it is an error.
    """

    prior: Float[Array, " n"]
    gaps: tuple[Float[Array, "..."], ...] | None
    squares: tuple[Float[Array, "..."], ...] | None
    whole: Filled | None
    pairs: Float[Array, "n k"] | None
    tails: Float[Array, "n j"]
    coarse: Float[Array, " n"] | None
    is_cut: bool = eqx.field(static=True)

    @staticmethod
    def of(filled: Filled) -> "Watch":
        """Tabulated once for a model."""
        tables = filled.tables
        structure = filled.ssm.structure
        gaps = None if tables is None else _gaps(filled, tables, None, None)
        return Watch(
            jnp.abs(_true_prior(filled) - filled.prior),
            gaps,
            None if tables is None else tables.squares,
            filled if tables is None else None,
            _paired(gaps[0]) if gaps is not None and filled.dim == 1 else None,
            _tails(filled.plan.shape),
            _coarse(filled) if tables is not None and filled.dim == 1 else None,
            structure is not None and not structure.boxed,
        )

    def moved(self, layout: "Layout", v: Float[Array, " n"], t: Time, row: Inputs) -> Array:
        """sum_m v_m |Q - Q^|(z_m, z_j), a sum over the factors; `v` has the weights in it.

        On a single axis its bound for each two neighbours.
        """
        if self.pairs is not None:
            return (v.astype(jnp.float32) @ self.pairs).astype(float)
        gaps, squares = self.gaps, self.squares
        if gaps is None or squares is None:
            assert self.whole is not None
            tables = self.whole.tables_at(t, row)
            gaps, squares = _gaps(self.whole, tables, t, row), tables.squares
        structure, shape = layout
        total = jnp.zeros_like(v)
        for g, gap in enumerate(gaps):
            mixed = tuple(gap if h == g else other for h, other in enumerate(squares))
            total = total + predict_tensor(structure, mixed, v.reshape(shape)).ravel()
        return total


Layout = tuple[Structure, tuple[int, ...]]


# Degrees of polynomials that a density must not show.
_TAIL = 4


def _tails(shape: tuple[int, ...]) -> Float[Array, "n j"]:
    """sqrt(n) P_k(s) for the highest degrees k < n of each axis, at all nodes, axis after axis."""
    columns = []
    for axis, num in enumerate(shape):
        degrees = np.arange(max(num - _TAIL, 1), max(num, 2))
        table = np.sqrt(num) * legvander(legendre_rule(num)[0], int(degrees[-1]))[:, degrees]
        form = [1] * len(shape)
        form[axis] = num
        for column in table.T:
            columns.append(np.broadcast_to(column.reshape(form), shape).ravel())
    return jnp.asarray(np.stack(columns, axis=1))


# Nodes of the rule that tells how well the nodes of a plan integrate, for one of those.
_FINE = 8


def _coarse(filled: Filled) -> Float[Array, " n"]:
    plan = filled.plan
    z, w = plan.nodes[0], plan.weights[0]
    fine, shares = finer_rule(z, w, _FINE * z.shape[0])
    at, near = grid_points(plan.box, (z,)), grid_points(plan.box, (jnp.asarray(fine),))
    group, scale = plan.transitions[0].group, plan.box.half_width[0]

    def density(u: Array, x: Array) -> Float[Array, "u x"]:
        logs = log_transition_table(filled.ssm, group, u, x, None, None)
        return (jnp.exp(logs) * scale).reshape(u.shape[0], x.shape[0])

    exact = density(at, at)
    pairs = (
        (w @ exact, jnp.asarray(shares) @ density(near, at)),
        (exact @ w, density(at, near) @ jnp.asarray(shares)),
    )
    # Nothing comes from, or goes to, a node whose integral is zero.
    errors = [jnp.abs(a - b) / jnp.where(b > 1e-12, b, jnp.inf) for a, b in pairs]
    return jnp.minimum(errors[0] + errors[1], 2.0)


def rule_errors(watch: Watch, shares: Float[Array, "t n"]) -> Float[Array, " t"]:
    """What the rule of the nodes misses of the next integral, from the shares w p of densities.

    Nodes are Gauss-Legendre nodes s, graded. The integral of a product of two functions with
    Legendre coefficients c_k = (k + 1/2) E[P_k(s)] is right up to degree 2 n - 1; of what is
    beyond, squares of the last coefficients that n nodes show are the measure. A density that is
    narrower than the distance of nodes has large ones, whatever else looks fine. A wide density on
    nodes that are too far apart for the transition has not: there `coarse` shows.
    """
    missed = jnp.max(jnp.square(shares @ watch.tails), axis=1)
    return missed if watch.coarse is None else missed + shares @ watch.coarse


# Least gap in single precision: what underflows there cannot make an error look smaller.
_LEAST_GAP = 1e-30


def _larger(values: Float[Array, " n"]) -> Float[Array, " k"]:
    """The larger of each two neighbours, none of them negative; a last one stands alone."""
    even = jnp.pad(values, (0, values.shape[0] % 2))
    return jnp.maximum(even[::2], even[1::2])


def _paired(gap: Float[Array, "n n"]) -> Float[Array, "n k"]:
    return jnp.maximum(jax.vmap(_larger)(gap), _LEAST_GAP).astype(jnp.float32)


def _true_prior(filled: Filled) -> Float[Array, " n"]:
    plan = filled.plan
    logs = log_prior_table(filled.ssm, plan.node_points())
    logs = jnp.where(jnp.isnan(logs), -jnp.inf, logs)
    values = jnp.exp(logs - jnp.max(logs))
    return values / (plan.node_weights() @ values)


def _gaps(
    filled: Filled, tables: TransitionTables, t: Time, row: Inputs
) -> tuple[Float[Array, "..."], ...]:
    plan = filled.plan
    exact = tuple(true_squares(plan, filled.ssm, g, t, row) for g in range(len(plan.transitions)))
    true = maybe_renormalized(plan, TransitionTables(tables.rows, exact), filled.renormalize)
    pairs = zip(true.squares, tables.squares, strict=True)
    return tuple(jnp.abs(a - b) for a, b in pairs)


def true_squares(
    plan: Plan, ssm: StateSpaceModel, factor: int, t: Time, row: Inputs
) -> Float[Array, "..."]:
    """Q_g at the nodes as the model gives it, laid out as the table of the learned one."""
    part = plan.transitions[factor]
    # Coordinates that the factor does not depend on stay at the middle of the box.
    u_axes = tuple(z if a in part.given else jnp.zeros(1) for a, z in enumerate(plan.nodes))
    group = plan.box.keep(part.group)
    u = grid_points(plan.box, u_axes)
    x = grid_points(group, tuple(plan.nodes[a] for a in part.group))
    logs = log_transition_table(ssm, part.group, u, x, t, row)
    values = jnp.exp(logs + jnp.sum(jnp.log(group.half_width)))
    return values.reshape(tuple(plan.shape[a] for a in (*sorted(part.given), *part.group)))


def step_errors(
    watch: Watch,
    weights: Float[Array, " n"],
    gap: Float[Array, " n"],
    step: tuple[Array, Array],
    at: tuple[Array, Array],
    regular: bool,
) -> Float[Array, ""]:
    """What the transitions before one observation add, estimated total variation.

    `gap` is what the last transition has put into the prediction, see `Watch.moved`; `step` are the
    prediction and the likelihood at the nodes, `at` the number of transitions and the time;
    `regular`: never more than one transition.
    """
    predicted, likelihood = step
    hops, t = at
    # Sums are products with the weights: those are vectorised, and other sums are not.
    mass, kept = weights @ (predicted * likelihood), weights @ predicted
    prior = watch.prior
    if watch.pairs is not None:
        prior, likelihood = _larger(prior), _larger(likelihood)
        even = jnp.pad(weights, (0, weights.shape[0] % 2))
        weights = even[::2] + even[1::2]
    # Before the first transition the error of the prior itself.
    gap = jnp.where(hops > 0, gap, jnp.where(t == 0, prior, 0.0))
    amplified = weights @ (gap * likelihood) / jnp.where(mass > 0, mass, 1.0)
    earlier = jnp.zeros(())
    if not regular:
        # Of transitions with nothing seen in between the last stands for all.
        earlier = jnp.maximum(hops - 1, 0).astype(float) * (weights @ gap)
    lost = jnp.zeros(())
    if watch.is_cut:
        lost = jnp.maximum(1.0 - kept, 0.0)
    return amplified + earlier + lost


step_errors_of_chunk = jax.vmap(step_errors, (None, None, 0, 0, 0, None))
