"""Filling a plan on the host: the numbers of `fill_transition`, without compiling anything for it.

The densities of the model come from the blocks that sizing has compiled already; the rest are
matrix products in NumPy. For models that close over traced values there is `fill_transition`.
"""

import jax
import numpy as np
from jaxtyping import Array, Float

from ..._gaussian.quadrature import legendre_rule
from ..._statespace.model import Inputs, StateSpaceModel
from ..._statespace.pairs import log_prior_points, log_transition_pairs
from ..numerics.grids import (
    apply_axes,
    axis_kernel,
    center_of,
    finite_peak,
    flat_weights,
    half_of,
    host_points,
)
from .plan import AxisRegression, Plan, TransitionPlan
from .tables import TransitionTables
from .typical import TypicalPaths


def _kernel(regression: AxisRegression, x: np.ndarray) -> np.ndarray:
    return axis_kernel(regression.anchors, regression.precision, x, np)


def _apply(tensor: np.ndarray, matrices: list[np.ndarray], first: int = 0) -> np.ndarray:
    return apply_axes(tensor, matrices, first, np)


def _fit(tensor: np.ndarray, regressions: tuple[AxisRegression, ...]) -> np.ndarray:
    for axis, regression in enumerate(regressions):
        for matrix in (regression.project, regression.lift):
            if matrix is not None:
                tensor = _apply(tensor, [np.asarray(matrix)], axis)
    return tensor


def coefficients_on_host(
    plan: Plan, part: TransitionPlan, ssm: StateSpaceModel, t: int = 1, inputs: Inputs = None
) -> tuple[np.ndarray, float]:
    """`learn_coefficients` at step t."""
    u_axes = [np.zeros(1)] * ssm.dim
    for axis, regression in zip(part.given, part.given_regressions, strict=True):
        u_axes[axis] = np.asarray(regression.nodes)
    u = host_points(plan.box, u_axes)
    x = host_points(plan.box, [np.asarray(r.nodes) for r in part.group_regressions], part.group)
    old, new = np.repeat(u, len(x), axis=0), np.tile(x, (len(u), 1))
    logs = log_transition_pairs(ssm, part.group, old, new, np.full(len(old), t), inputs)
    peak = float(finite_peak(logs, xp=np))
    regressions = (*part.given_regressions, *part.group_regressions)
    roots = np.exp(0.5 * (logs - peak)).reshape([r.nodes.shape[0] for r in regressions])
    coefficients = _fit(roots, regressions)
    half = half_of(plan.box)[np.asarray(part.group)]
    return coefficients, peak + float(np.sum(np.log(half)))


def tables_on_host(plan: Plan, ssm: StateSpaceModel, renormalize: bool) -> TransitionTables:
    """The tables of a transition that is fixed in time."""
    rows, squares = [], []
    for part in plan.transitions:
        coefficients, log_scale = coefficients_on_host(plan, part, ssm)
        given = zip(part.given_regressions, part.given, strict=True)
        group = zip(part.group_regressions, part.group, strict=True)
        row = _apply(coefficients, [_kernel(r, np.asarray(plan.nodes[a])) for r, a in given])
        row = row * np.exp(0.5 * log_scale)
        at_x = [_kernel(r, np.asarray(plan.nodes[a])) for r, a in group]
        square = np.square(_apply(row, at_x, len(part.given)))
        if renormalize:
            weights = [np.asarray(plan.weights[a])[None, :] for a in part.group]
            mass = _apply(square, weights, len(part.given))
            scale = 1.0 / np.where(mass > 0, mass, 1.0)
            row, square = row * np.sqrt(scale), square * scale
        rows.append(jax.device_put(row))
        squares.append(jax.device_put(square))
    return TransitionTables(tuple(rows), tuple(squares))


def prior_on_host(plan: Plan, ssm: StateSpaceModel) -> Float[Array, "..."]:
    """`fill_prior`."""
    logs = log_prior_points(ssm, host_points(plan.box, [np.asarray(r.nodes) for r in plan.prior]))
    logs = np.where(np.isnan(logs), -np.inf, logs)
    root = np.exp(0.5 * (logs - np.max(logs))).reshape([r.nodes.shape[0] for r in plan.prior])
    coefficients = _fit(root, plan.prior)
    pairs = zip(plan.prior, plan.nodes, strict=True)
    mass = np.square(_apply(coefficients, [_kernel(r, np.asarray(z)) for r, z in pairs]))
    for w in plan.weights:
        mass = np.tensordot(np.asarray(w), mass, axes=1)
    return jax.device_put(coefficients / np.sqrt(mass))


def fill(
    plan: Plan, ssm: StateSpaceModel, renormalize: bool
) -> tuple[Float[Array, "..."], TransitionTables | None]:
    """The prior and, for a transition fixed in time, its tables."""
    tables = None if ssm.is_time_varying else tables_on_host(plan, ssm, renormalize)
    return prior_on_host(plan, ssm), tables


def one_step_error(
    plan: Plan, ssm: StateSpaceModel, paths: TypicalPaths, inputs: Inputs = None
) -> tuple[float, float]:
    """int |Q - Q^|(u, x) dx from typical states u, the largest; and the largest |a|_1.

    For a transition in factors, the sum of their errors.
    """
    old = paths.states[:, ::3].reshape(-1, ssm.dim)
    old = old[np.linspace(0, len(old) - 1, min(64, len(old))).astype(int)]
    unit = (old - center_of(plan.box)) / half_of(plan.box)
    worst, norm = np.zeros(len(old)), 0.0
    for part in plan.transitions:
        coefficients, log_scale = coefficients_on_host(plan, part, ssm, 1, inputs)
        norm = max(norm, float(np.sum(np.abs(coefficients))))
        rules = [legendre_rule(2 * plan.shape[a]) for a in part.group]
        kernels = zip(part.group_regressions, rules, strict=True)
        tensor = _apply(coefficients, [_kernel(r, z) for r, (z, _) in kernels], len(part.given))
        learned = np.broadcast_to(tensor, (len(old), *tensor.shape))
        for axis, regression in zip(part.given, part.given_regressions, strict=True):
            learned = np.einsum("nk,nk...->n...", _kernel(regression, unit[:, axis]), learned)
        learned = np.square(learned.reshape(len(old), -1)) * np.exp(log_scale)
        points = host_points(plan.box, [z for z, _ in rules], part.group)
        u, x = np.repeat(old, len(points), axis=0), np.tile(points, (len(old), 1))
        logs = log_transition_pairs(ssm, part.group, u, x, np.ones(len(u), dtype=int), inputs)
        width = float(np.prod(half_of(plan.box)[np.asarray(part.group)]))
        truth = np.exp(logs).reshape(len(old), -1) * width
        worst = worst + np.abs(learned - truth) @ flat_weights([w for _, w in rules], np)
    return float(np.max(worst)), norm
