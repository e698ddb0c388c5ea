"""Paths of the state given all data, by backward sampling.

x_T from the last filtered density, then x_t from pi_t(u) Q(u, x_{t+1}), on fine nodes; over several
transitions between two observations, Q to that power.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from ..._statespace.functions import Inputs, Time
from ..numerics.grids import AxisNodes, apply_axes
from ..numerics.quadrature import draw
from ..sizing.tables import backward_nodes, learn_coefficients
from .filled import Filled
from .filtered import FilteredLaws
from .refine import FineNodes, backward_squares, fine_nodes, row_masses_on


@eqx.filter_jit
def sample_paths(
    filtered: FilteredLaws, key: PRNGKeyArray, num: int, several_hops: bool
) -> Float[Array, "k t d"]:
    """`num` paths in user units."""
    model = filtered.model
    fine = fine_nodes(model)
    values = filtered.values_on(fine)
    series = filtered.series
    box = model.plan.box
    last_key, back_key = jax.random.split(key)

    def from_values(line, draw_key):
        return draw(line, fine.nodes, fine.weights, draw_key)

    last = jax.vmap(lambda k: from_values(values[-1], k))(jax.random.split(last_key, num))

    fixed = model.tables is not None
    masses = _masses(model, fine.nodes, None, None) if fixed else jnp.ones(())

    def step(points, xs):
        line, hop, t, row, step_key = xs
        at = (None, None) if fixed else (t, row)
        mass = masses if fixed else _masses(model, fine.nodes, *at)
        keys = jax.random.split(step_key, num)

        def one(z, draw_key):
            rows = _rows_from(model, fine.nodes, z, *at) / mass
            if several_hops:
                rows = jnp.where(hop > 1, _rows_over(model, fine, z, hop, t, row), rows)
            moved = from_values(line * rows, draw_key)
            # No transition in between: the same state.
            return jnp.where(hop > 0, moved, z)

        new = jax.vmap(one)(points, keys)
        return new, new

    num_steps = values.shape[0]
    keys = jax.random.split(back_key, num_steps - 1) if num_steps > 1 else jnp.zeros((0,))
    shifted = jax.tree.map(lambda a: a[1:], (series.hops, series.steps, series.rows))
    if num_steps > 1:
        _, earlier = jax.lax.scan(step, last, (values[:-1], *shifted, keys), reverse=True)
        path = jnp.concatenate([earlier, last[None]])
    else:
        path = last[None]
    user = box.center[None, None, :] + box.half_width[None, None, :] * path
    return jnp.moveaxis(user, 0, 1)


def _masses(model: Filled, nodes: AxisNodes, t: Time, row: Inputs) -> Float[Array, " n"]:
    """What Q^(u, .) is divided by: its mass on the box if that was asked for, else one."""
    if model.renormalize:
        return row_masses_on(model, nodes, t, row)
    return jnp.ones(int(np.prod([z.shape[0] for z in nodes])))


def _rows_over(
    model: Filled, fine: FineNodes, z: Float[Array, " d"], hop: Array, t: Array, row: Inputs
) -> Float[Array, " n"]:
    """Q^(u, z) over `hop` transitions, two at least: all but the first at the recursion's nodes."""
    plan, weights = model.plan, model.plan.node_weights()

    def at(step: Array) -> tuple[Array | None, Inputs]:
        return (step, row) if model.tables is None else (None, None)

    def back(k, beta):
        squares = model.tables_at(*at(t - k)).squares
        return _to_one(backward_nodes(plan, squares, weights * beta))

    beta = _rows_from(model, plan.nodes, z, *at(t)) / _masses(model, plan.nodes, *at(t))
    beta = jax.lax.fori_loop(1, hop - 1, back, _to_one(beta))
    squares = backward_squares(model, fine.nodes, *at(t - hop + 1))
    return backward_nodes(plan, squares, weights * beta, fine.shape)


def _to_one(beta: Float[Array, " n"]) -> Float[Array, " n"]:
    """Scaled to a largest value of one."""
    top = jnp.max(beta)
    return beta / jnp.where(top > 0, top, 1.0)


def _rows_from(
    model: Filled, nodes: AxisNodes, z: Float[Array, " d"], t: Time, row: Inputs
) -> Float[Array, " n"]:
    """Q^(u, z) for u on a tensor grid and one z, up to a constant."""
    sizes = tuple(axis.shape[0] for axis in nodes)
    total = jnp.ones((1,) * model.dim)
    for part in model.plan.transitions:
        coefficients, _ = learn_coefficients(model.plan, part, model.ssm, t, row)
        at_u = tuple(
            r.kernel(nodes[a]) for r, a in zip(part.given_regressions, part.given, strict=True)
        )
        at_x = tuple(
            r.kernel(z[a][None]) for r, a in zip(part.group_regressions, part.group, strict=True)
        )
        values = jnp.square(apply_axes(coefficients, (*at_u, *at_x)))
        shape = tuple(sizes[a] if a in part.given else 1 for a in range(model.dim))
        order = tuple(int(i) for i in np.argsort(part.given))
        lead = values.reshape(values.shape[: len(part.given)])
        total = total * lead.transpose(order).reshape(shape)
    return jnp.broadcast_to(total, sizes).ravel()
