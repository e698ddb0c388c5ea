"""What a fixed plan gets wrong in each step, measured on the way: no second filter is needed.

With the true Q and the learned Q^ at the nodes, one transition puts |p - p^| <= sum_m v_m |Q - Q^|
into a prediction, and an observation makes of that

    int |p - p^| G / int p G

in the filtered density. Outliers weigh the tails, where Q^ is right to its tolerance and not to its
size: there this is large while every fit is as good as ever.

In two dimensions and more sums over all nodes are what a step takes its time for. There p - p^
itself is looked at, with its sign, in the middle of blocks of 3^d nodes: a few per cent of a step.
"""

from functools import reduce

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int
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
from .filled import Filled, scales_to_one


class Watch(eqx.Module):
    """Gaps between the learned and the true densities at the nodes.

    Attributes:
        prior: |p(x_0) - p^(x_0)| at the nodes.
        gaps: |Q - Q^| on a line; None if the transition varies in time.
        exact: Q_g in the middle of blocks, of every factor, in more dimensions; None likewise.
        pairs: the gap of a single axis, the larger of each two neighbours x, in single precision:
            a bound that is hardly larger, at a quarter of the cost.
        whole: the filled plan, where the transition varies in time.
        tails: P_k(s) of the highest degrees k at the nodes, for every axis, see `rule_errors`.
        coarse: relative error of the rule for int Q(u, z_j) du, and for int Q(z_j, x) dx, at every
            node, on a single axis: where nodes lie farther apart than the transition reaches.
        is_cut: whether the box was only simulated, so that mass that leaves it is an error.
    """

    prior: Float[Array, " n"]
    gaps: Float[Array, "n n"] | None
    exact: tuple[Float[Array, "..."], ...] | None
    whole: Filled | None
    pairs: Float[Array, "n k"] | None
    tails: Float[Array, "n j"]
    coarse: Float[Array, " n"] | None
    shape: tuple[int, ...] = eqx.field(static=True)
    is_cut: bool = eqx.field(static=True)

    @staticmethod
    def of(filled: Filled) -> "Watch":
        """Tabulated once for a model."""
        tables, structure, on_line = filled.tables, filled.ssm.structure, filled.dim == 1
        gaps = exact = None
        if tables is not None and on_line:
            gaps = jnp.abs(_true(filled, None, None)[0] - tables.squares[0])
        elif tables is not None:
            exact = _of_middles(filled.plan, _true(filled, None, None))
        return Watch(
            jnp.abs(_true_prior(filled) - filled.prior),
            gaps,
            exact,
            filled if tables is None else None,
            None if gaps is None else _paired(gaps),
            _tails(filled.plan.shape),
            None if gaps is None else _coarse(filled),
            filled.plan.shape,
            structure is not None and not structure.boxed,
        )

    def moved(
        self, structure: Structure, v: Float[Array, " n"], p: Float[Array, " n"], at: "At"
    ) -> Float[Array, " k"]:
        """What a transition puts into its prediction p, at every node or for each block of them.

        `v` is what it starts from, with the weights in it.
        """
        if self.pairs is not None:
            return (v.astype(jnp.float32) @ self.pairs).astype(float)
        exact = self.exact
        if exact is None:
            assert self.whole is not None
            true = _true(self.whole, *at)
            if len(self.shape) == 1:
                return v @ jnp.abs(true[0] - self.whole.tables_at(*at).squares[0])
            exact = _of_middles(self.whole.plan, true)
        middles = np.ix_(*(middles_of(n) for n in self.shape))
        there = predict_tensor(structure, exact, v.reshape(self.shape))
        return jnp.abs(there - p.reshape(self.shape)[middles]).ravel()

    def over_blocks(self, values: Float[Array, " n"], how: str) -> Float[Array, " k"]:
        """The sum ("sum") or the largest ("max") of values at the nodes of each block."""
        if self.pairs is None and len(self.shape) == 1:
            return values
        size = 2 if self.pairs is not None else _BLOCK
        tensor = values.reshape(self.shape)
        tensor = jnp.pad(tensor, [(0, -n % size) for n in self.shape])
        join = jnp.add if how == "sum" else jnp.maximum
        for axis in range(len(self.shape)):
            # Slices are joined number by number, which is vectorised; reductions are not.
            parts = (jax.lax.slice_in_dim(tensor, k, None, size, axis) for k in range(size))
            tensor = reduce(join, parts)
        return tensor.ravel()


# The time of a row and its inputs.
At = tuple[Time, Inputs]
# Nodes of a block along each axis: as few as make sums over all blocks cheap, 1/27 in 3-d.
_BLOCK = 3


def middles_of(num: int) -> Int[np.ndarray, " k"]:
    """The nodes in the middle of the blocks of an axis."""
    return np.minimum(np.arange(0, num, _BLOCK) + _BLOCK // 2, num - 1)


def _of_middles(plan: Plan, squares: tuple[Array, ...]) -> tuple[Array, ...]:
    """Transitions into the middles of blocks."""
    out = []
    for part, square in zip(plan.transitions, squares, strict=True):
        given = [np.arange(plan.shape[a]) for a in sorted(part.given)]
        into = [middles_of(plan.shape[a]) for a in part.group]
        out.append(square[np.ix_(*given, *into)])
    return tuple(out)


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


def _paired(gap: Float[Array, "n n"]) -> Float[Array, "n k"]:
    """The larger of each two neighbours, none of them negative; a last one stands alone."""
    even = jnp.pad(gap, ((0, 0), (0, gap.shape[1] % 2)))
    return jnp.maximum(jnp.maximum(even[:, ::2], even[:, 1::2]), _LEAST_GAP).astype(jnp.float32)


def _true_prior(filled: Filled) -> Float[Array, " n"]:
    plan = filled.plan
    logs = log_prior_table(filled.ssm, plan.node_points())
    logs = jnp.where(jnp.isnan(logs), -jnp.inf, logs)
    values = jnp.exp(logs - jnp.max(logs))
    return values / (plan.node_weights() @ values)


def _true(filled: Filled, t: Time, row: Inputs) -> tuple[Float[Array, "..."], ...]:
    """Q_g at the nodes, of mass one where the learned ones are."""
    plan = filled.plan
    exact = tuple(true_squares(plan, filled.ssm, g, t, row) for g in range(len(plan.transitions)))
    if not filled.renormalize:
        return exact
    return tuple(q * scale for q, scale in zip(exact, scales_to_one(plan, exact), strict=True))


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
    prior, sums = watch.over_blocks(watch.prior, "max"), watch.over_blocks(weights, "sum")
    if len(watch.shape) == 1:
        # Bounds for each two nodes.
        seen = sums * watch.over_blocks(likelihood, "max")
    else:
        seen = watch.over_blocks(weights * likelihood, "sum")
    # Before the first transition the error of the prior itself.
    gap = jnp.where(hops > 0, gap, jnp.where(t == 0, prior, 0.0))
    amplified = seen @ gap / jnp.where(mass > 0, mass, 1.0)
    earlier = jnp.zeros(())
    if not regular:
        # Of transitions with nothing seen in between the last stands for all.
        earlier = jnp.maximum(hops - 1, 0).astype(float) * (sums @ gap)
    lost = jnp.zeros(())
    if watch.is_cut:
        lost = jnp.maximum(1.0 - kept, 0.0)
    return amplified + earlier + lost


step_errors_of_chunk = jax.vmap(step_errors, (None, None, 0, 0, 0, None))
