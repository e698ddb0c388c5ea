"""The filter's densities anywhere: the same PSD models, evaluated off the nodes they were run on.

A filtered density is p_t(x) (chi(x) . c_t)^2 / Z_t with
p_t(x) = sum_m v_m prod_g (C_g[m] . psi_g(x))^2, so the stored v decide it at every x; quantiles,
distances and expectations use finer nodes than the recursion needed.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..numerics.grids import AxisNodes, apply_axes, apply_last_axes, flat_weights, grid_points
from ..series import Series
from ..sizing.contraction import backward_tensor
from ..sizing.grading import finer_rule
from ..sizing.tables import learn_coefficients, predict_nodes, roots_on
from .filled import Filled


class FineNodes(NamedTuple):
    """Nodes and weights of graded Gauss-Legendre rules for each axis, in unit coordinates."""

    nodes: AxisNodes
    weights: AxisNodes

    @property
    def shape(self) -> tuple[int, ...]:
        """Number of nodes on each axis."""
        return tuple(z.shape[0] for z in self.nodes)

    def flat_weights(self) -> Float[Array, " n"]:
        """Weights of all nodes, first axis slowest."""
        return flat_weights(self.weights)

    def points(self, model: Filled) -> Float[Array, "n d"]:
        """All nodes in user units."""
        return grid_points(model.plan.box, self.nodes)


def fine_nodes(model: Filled, factor: float = 2.0) -> FineNodes:
    """`factor` times the nodes of the recursion on each axis; fewer in many dimensions."""
    factor = factor if model.dim <= 2 else 1.0 + 0.25 * (factor - 1.0)
    plan = model.plan
    rules = [
        finer_rule(z, w, int(np.ceil(factor * z.shape[0])))
        for z, w in zip(plan.nodes, plan.weights, strict=True)
    ]
    return FineNodes(
        tuple(jnp.asarray(z) for z, _ in rules), tuple(jnp.asarray(w) for _, w in rules)
    )


def squares_at(model: Filled, rows: tuple[Array, ...], nodes: AxisNodes) -> tuple[Array, ...]:
    """(C_g[m] . psi_g(x))^2 for x on other nodes than the recursion's."""
    out = []
    for part, row in zip(model.plan.transitions, rows, strict=True):
        kernels = tuple(
            r.kernel(nodes[a]) for r, a in zip(part.group_regressions, part.group, strict=True)
        )
        out.append(jnp.square(apply_last_axes(row, kernels)))
    return tuple(out)


def likelihood_on(
    model: Filled, coefficients: Float[Array, "..."], nodes: AxisNodes
) -> Float[Array, " n"]:
    """|c' chi(x)|^2 on nodes; c has a last axis of columns if it is a marginal over gaps in y."""
    roots = roots_on(model.plan.observation, coefficients, nodes)
    if coefficients.ndim == model.dim:
        return jnp.square(roots)
    return jnp.sum(jnp.square(roots.reshape(-1, coefficients.shape[-1])), axis=1)


def row_masses_on(model: Filled, nodes: AxisNodes, t=None, row=None) -> Float[Array, " n"]:
    """int Q^(u, x) dx for u on other nodes, before any renormalisation."""
    plan = model.plan
    masses = tuple(
        apply_last_axes(values, tuple(plan.weights[a][None] for a in part.group))
        for part, values in zip(plan.transitions, _raw_squares(model, nodes, t, row), strict=True)
    )
    shape = tuple(z.shape[0] for z in nodes)
    return backward_tensor(plan.structure, masses, jnp.ones((1,) * len(nodes)), shape).ravel()


def backward_squares(
    model: Filled, nodes: AxisNodes, t=None, row=None
) -> tuple[Float[Array, "..."], ...]:
    """Q^_g(u, z_j) for u on other nodes and x on the recursion's: beta off the nodes."""
    plan, squares = model.plan, _raw_squares(model, nodes, t, row)
    if not model.renormalize:
        return squares
    return tuple(
        values / apply_last_axes(values, tuple(plan.weights[a][None] for a in part.group))
        for part, values in zip(plan.transitions, squares, strict=True)
    )


def _raw_squares(model: Filled, nodes: AxisNodes, t, row) -> tuple[Float[Array, "..."], ...]:
    plan, out = model.plan, []
    for part in plan.transitions:
        coefficients, log_scale = learn_coefficients(plan, part, model.ssm, t, row)
        at_u = tuple(
            r.kernel(nodes[a]) for r, a in zip(part.given_regressions, part.given, strict=True)
        )
        at_x = tuple(
            r.kernel(plan.nodes[a]) for r, a in zip(part.group_regressions, part.group, strict=True)
        )
        out.append(jnp.square(apply_axes(coefficients, (*at_u, *at_x))) * jnp.exp(log_scale))
    return tuple(out)


def predict_onto(
    model: Filled, source: Float[Array, " n"], nodes: AxisNodes, t=None, row=None
) -> Float[Array, " k"]:
    """int Q^(u, x) source(u) du for x on other nodes."""
    tables = model.tables_at(t, row)
    squares = squares_at(model, tables.rows, nodes)
    return predict_nodes(model.plan, squares, model.plan.node_weights() * source)


class Fits(NamedTuple):
    """G^(., y_t) = |chi' c_t|^2 exp(log_scale_t), one where nothing was seen."""

    coefficients: Float[Array, "t ..."]
    log_scales: Float[Array, " t"]  # less what the step divided by
    seen: Array


def filtered_on(
    model: Filled, nodes: AxisNodes, sources: Float[Array, "t n"], series: Series, fits: Fits
) -> tuple[Float[Array, "t k"], Float[Array, "t k"]]:
    """Predicted (not normalised) and filtered densities on other nodes.

    `sources` are the densities before the last transition. Observations at one time (no transition
    between them) multiply up along the scan.
    """
    start = jnp.square(roots_on(model.plan.prior, model.prior_root, nodes))
    fixed = None
    if model.tables is not None:
        fixed = squares_at(model, model.tables.rows, nodes)
    weights = model.plan.node_weights()

    def step(previous, xs):
        source, hop, t, row, fit = xs
        if fixed is None:
            moved = predict_onto(model, source, nodes, t, row)
        else:
            moved = predict_nodes(model.plan, fixed, weights * source)
        predicted = jnp.where(hop > 0, moved, previous)
        likelihood = jnp.where(fit.seen, likelihood_on(model, fit.coefficients, nodes), 1.0)
        density = predicted * likelihood * jnp.exp(fit.log_scales)
        return density, (predicted, density)

    xs = (sources, series.hops, series.steps, series.rows, fits)
    return jax.lax.scan(step, start, xs)[1]
