"""Whether a frozen plan still resolves a transition, measured where the states have been."""

import jax.numpy as jnp
from jaxtyping import Array, Float

from ..._statespace.functions import Time
from ..._statespace.model import Inputs, log_transition_table
from ..numerics.grids import apply_last_axes, flat_weights, grid_points
from ..sizing.plan import TransitionPlan
from .filled import Filled


def transition_error(
    model: Filled, occupancy: Float[Array, " n"], t: Time = None, inputs: Inputs = None
) -> Float[Array, ""]:
    """sum_u pi(u) int |Q - Q^|(u, x) dx, u at the nodes, x between the training nodes.

    For a transition in factors, the sum over the factors. `occupancy` is pi at the nodes.
    """
    plan = model.plan
    mass = (plan.node_weights() * occupancy).reshape(plan.shape)
    mass = mass / jnp.sum(mass)
    rows = model.tables_at(t, inputs).rows
    total = jnp.zeros(())
    for part, row in zip(plan.transitions, rows, strict=True):
        gap = _gaps(model, part, row, t, inputs)
        others = tuple(a for a in range(len(plan.nodes)) if a not in part.given)
        total = total + jnp.sum(jnp.sum(mass, axis=others) * gap)
    return total


def _gaps(
    model: Filled, part: TransitionPlan, row: Array, t: Time, inputs: Inputs
) -> Float[Array, "..."]:
    """int |Q_g - Q_g^|(u, x) dx at the nodes u of the given axes."""
    plan = model.plan
    axes = tuple(0.5 * (r.nodes[1:] + r.nodes[:-1]) for r in part.group_regressions)
    widths = flat_weights([jnp.diff(r.nodes) for r in part.group_regressions])
    at_x = tuple(r.kernel(z) for r, z in zip(part.group_regressions, axes, strict=True))
    learned = jnp.square(apply_last_axes(row, at_x)).reshape(-1, widths.shape[0])
    u_axes = tuple(z if a in part.given else jnp.zeros(1) for a, z in enumerate(plan.nodes))
    group = plan.box.keep(part.group)
    u, x = grid_points(plan.box, u_axes), grid_points(group, axes)
    logs = log_transition_table(model.ssm, part.group, u, x, t, inputs)
    truth = jnp.exp(logs + jnp.sum(jnp.log(group.half_width)))
    gap = jnp.abs(learned - truth) @ widths
    return gap.reshape(tuple(plan.shape[a] for a in sorted(part.given)))
