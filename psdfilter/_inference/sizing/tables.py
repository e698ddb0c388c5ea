"""The filter on quadrature nodes: positive weights, positive tables, no cancellation.

With nodes z_m, weights w_m and v = w o pi_{k-1} at the nodes,

    p_k(x) = sum_m v_m prod_g (C_g[m] . psi_g(x))^2       predicted: a PSD model, A = C' diag(v) C
    pi_k(x) = p_k(x) (chi(x) . c_k)^2 / Z_k               filtered

where C_g[m] = phi(z_m)' a_g are the rows of the learned root of factor g of the transition. At the
nodes themselves the squares are tables E_g, fixed in time.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..._statespace.model import Inputs, StateSpaceModel, log_prior_table, log_transition_table
from ..numerics.grids import AxisNodes, apply_axes, apply_last_axes, finite_peak, grid_points
from .contraction import backward_tensor, predict_tensor
from .plan import AxisRegression, Plan, TransitionPlan


class TransitionTables(eqx.Module):
    """A learned transition at the nodes of a plan.

    `rows[g]` is C_g, (nodes of the given axes ..., x anchors of the group ...); `squares[g]` is
    E_g, with nodes in place of the x anchors.
    """

    rows: tuple[Float[Array, "..."], ...]
    squares: tuple[Float[Array, "..."], ...]


def fit_axes(tensor: Array, regressions: tuple[AxisRegression, ...], first: int = 0) -> Array:
    """Coefficients, one axis of anchors each, for values on the grid of training nodes.

    `first` is the first axis of that grid.
    """
    for axis, regression in enumerate(regressions, start=first):
        for matrix in (regression.project, regression.lift):
            if matrix is not None:
                tensor = apply_axes(tensor, (matrix,), axis)
    return tensor


class TransitionFits(eqx.Module):
    """For each axis of a factor, the matrix from roots at the training nodes to the fit at nodes.

    Constants of a plan, for whoever fills it many times.
    """

    given: tuple[Float[Array, "_ _"], ...]
    group: tuple[Float[Array, "_ _"], ...]

    @staticmethod
    def of(plan: Plan) -> "tuple[TransitionFits, ...]":
        """Those of all factors; may be traced."""

        def fits(regressions: tuple[AxisRegression, ...], axes: tuple[int, ...]):
            pairs = zip(regressions, axes, strict=True)
            return tuple(r.fitted_at(plan.nodes[axis]) for r, axis in pairs)

        return tuple(
            TransitionFits(
                fits(part.given_regressions, part.given), fits(part.group_regressions, part.group)
            )
            for part in plan.transitions
        )


def transition_roots(
    plan: Plan, part: TransitionPlan, ssm: StateSpaceModel, t=None, inputs: Inputs = None
) -> tuple[Array, Array]:
    """sqrt Q_g at the training nodes, in unit coordinates, and the log-scale of its square."""
    box, dim = plan.box, len(plan.nodes)
    # Coordinates that the factor does not depend on stay at the middle of the box.
    u_axes = [jnp.zeros(1)] * dim
    for axis, regression in zip(part.given, part.given_regressions, strict=True):
        u_axes[axis] = regression.nodes
    u = grid_points(box, tuple(u_axes))
    group = box.keep(part.group)
    x = grid_points(group, tuple(r.nodes for r in part.group_regressions))
    logs = log_transition_table(ssm, part.group, u, x, t, inputs)
    peak = jax.lax.stop_gradient(finite_peak(logs))
    regressions = (*part.given_regressions, *part.group_regressions)
    roots = jnp.exp(0.5 * (logs - peak)).reshape(tuple(r.nodes.shape[0] for r in regressions))
    return roots, peak + jnp.sum(jnp.log(group.half_width))


def learn_coefficients(
    plan: Plan, part: TransitionPlan, ssm: StateSpaceModel, t=None, inputs: Inputs = None
) -> tuple[Array, Array]:
    """a_g (u anchors ..., x anchors ...) in unit coordinates, and the log-scale of its square."""
    roots, log_scale = transition_roots(plan, part, ssm, t, inputs)
    return fit_axes(roots, (*part.given_regressions, *part.group_regressions)), log_scale


def fill_transition(
    plan: Plan, ssm: StateSpaceModel, t=None, inputs: Inputs = None
) -> TransitionTables:
    """Learn Q and tabulate it at the nodes; differentiable in whatever the model closes over."""
    rows, squares = [], []
    for part in plan.transitions:
        coefficients, log_scale = learn_coefficients(plan, part, ssm, t, inputs)
        at_u = tuple(
            r.kernel(plan.nodes[a]) for r, a in zip(part.given_regressions, part.given, strict=True)
        )
        at_x = tuple(
            r.kernel(plan.nodes[a]) for r, a in zip(part.group_regressions, part.group, strict=True)
        )
        row = apply_axes(coefficients, at_u) * jnp.exp(0.5 * log_scale)
        rows.append(row)
        squares.append(jnp.square(apply_last_axes(row, at_x)))
    return TransitionTables(tuple(rows), tuple(squares))


def refill_transition(
    plan: Plan, fits: tuple[TransitionFits, ...], ssm: StateSpaceModel
) -> TransitionTables:
    """`fill_transition` of a model fixed in time, with the constants of the plan at hand."""
    rows, squares = [], []
    for part, fit in zip(plan.transitions, fits, strict=True):
        roots, log_scale = transition_roots(plan, part, ssm)
        at_u = apply_axes(roots, fit.given) * jnp.exp(0.5 * log_scale)
        rows.append(fit_axes(at_u, part.group_regressions, len(fit.given)))
        squares.append(jnp.square(apply_last_axes(at_u, fit.group)))
    return TransitionTables(tuple(rows), tuple(squares))


def fill_prior(plan: Plan, ssm: StateSpaceModel) -> Float[Array, "..."]:
    """Coefficients of the root of the prior, normalised on the box."""
    logs = log_prior_table(ssm, grid_points(plan.box, tuple(r.nodes for r in plan.prior)))
    logs = jnp.where(jnp.isnan(logs), -jnp.inf, logs)
    root = jnp.exp(0.5 * (logs - jax.lax.stop_gradient(jnp.max(logs))))
    tensor = root.reshape(tuple(r.nodes.shape[0] for r in plan.prior))
    coefficients = fit_axes(tensor, plan.prior)
    values = jnp.square(roots_on(plan.prior, coefficients, plan.nodes))
    return coefficients / jnp.sqrt(plan.node_weights() @ values)


def roots_on(
    regressions: tuple[AxisRegression, ...],
    coefficients: Float[Array, "..."],
    nodes: AxisNodes,
) -> Float[Array, " n"]:
    """chi(x) . c on a tensor grid of nodes."""
    kernels = tuple(r.kernel(z) for r, z in zip(regressions, nodes, strict=True))
    return apply_axes(coefficients, kernels).ravel()


def observation_coefficients(plan: Plan, roots: Float[Array, " k"]) -> Float[Array, "..."]:
    """c, one axis of anchors each, fitted to roots at the training points."""
    tensor = roots.reshape(tuple(r.nodes.shape[0] for r in plan.observation))
    return fit_axes(tensor, plan.observation)


def smooth_roots(
    plan: Plan, roots: Float[Array, " k"], fits: tuple[Float[Array, "_ _"], ...] | None = None
) -> Float[Array, " n"]:
    """chi(z) . c at the nodes, for c fitted to roots at the training points."""
    if fits is None:
        fits = tuple(r.fitted_at(z) for r, z in zip(plan.observation, plan.nodes, strict=True))
    tensor = roots.reshape(tuple(r.nodes.shape[0] for r in plan.observation))
    return apply_axes(tensor, fits).ravel()


def predict_nodes(
    plan: Plan, squares: tuple[Float[Array, "..."], ...], v: Float[Array, " n"]
) -> Float[Array, " k"]:
    """p = sum_m v_m prod_g E_g[m]: a chain of matrix products, never nodes by nodes."""
    return predict_tensor(plan.structure, squares, v.reshape(plan.shape)).ravel()


def backward_nodes(
    plan: Plan,
    squares: tuple[Float[Array, "..."], ...],
    b: Float[Array, " k"],
    shape: tuple[int, ...] | None = None,
) -> Float[Array, " n"]:
    """beta_m = sum_j prod_g E_g[m, j] b_j, the transpose of `predict_nodes`."""
    shape = plan.shape if shape is None else shape
    return backward_tensor(plan.structure, squares, b.reshape(plan.shape), shape).ravel()
