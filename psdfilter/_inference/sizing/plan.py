"""Plans: grids, nodes and factorisations of a filter, from a tolerance; frozen once made.

A plan holds no values of the model. `fill` (nodes.py) turns a plan and a model into tables by a few
matrix products, so that a time-varying transition, or another parameter, costs no new plan.
"""

from collections.abc import Sequence
from math import prod

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Array, Float

from ..._density.box import Box
from ..._gaussian.quadrature import legendre_rule
from ..._learning.axes import Axis, factor_axis
from ..._learning.banded import LEAST_ANCHORS, banded_fit
from ..._modules import PlainModule
from ..numerics.grids import axis_kernel, flat_weights, grid_points
from .contraction import Structure, contraction_cost
from .grading import Rule


def ridge_fit(
    axis: Axis, nodes: Float[np.ndarray, " n"], values: Float[np.ndarray, "n k"], ridge: float
) -> Float[np.ndarray, "m k"]:
    """Coefficients on the anchors of an axis, for values at training nodes."""
    lift, project = _solver(axis, nodes, ridge, values)
    return lift if project is None else lift @ (project @ values)


def _solver(
    axis: Axis, nodes: np.ndarray, ridge: float, values: np.ndarray
) -> tuple[np.ndarray, np.ndarray | None]:
    """(lift, project); for many anchors, the coefficients of `values` themselves, and None."""
    if axis.num >= LEAST_ANCHORS and axis.fold is None:
        try:
            return banded_fit(nodes, axis.anchors, axis.precision, ridge, values), None
        except np.linalg.LinAlgError:
            pass
    factor = factor_axis(nodes, axis.anchors, axis.precision, axis.fold)
    gain = factor.singular / (np.square(factor.singular) + len(nodes) * ridge)
    return factor.lift * gain, factor.left.T


class AxisRegression(eqx.Module):
    """Ridge regression along one axis: coefficients = lift @ (project @ values at `nodes`).

    The product of the two has entries of 10^10 for small tolerances, and its rounding would show:
    what the large columns of `lift` meet in `project @ values` is small. None stands for the
    identity.
    """

    anchors: Float[Array, " m"]
    precision: Float[Array, ""]  # eta
    nodes: Float[Array, " k"]  # training nodes
    lift: Float[Array, "m r"]
    project: Float[Array, "r k"] | None

    @staticmethod
    def make(axis: Axis, nodes: np.ndarray, ridge: float) -> "AxisRegression":
        """Factor the problem for anchors `axis` and training nodes."""
        lift, project = _solver(axis, nodes, ridge, np.eye(len(nodes)))
        parts = (axis.anchors, np.float64(axis.precision), nodes, lift, project)
        return AxisRegression(*jax.device_put(parts))

    @property
    def solve(self) -> Float[Array, "m k"]:
        """lift @ project."""
        return self.lift if self.project is None else self.lift @ self.project

    def fitted_at(self, x: Float[Array, " n"]) -> Float[Array, "n k"]:
        """From values at the training nodes to the fit at x: entries of about one."""
        rows = self.kernel(x) @ self.lift
        return rows if self.project is None else rows @ self.project

    def kernel(self, x: Float[Array, " n"]) -> Float[Array, "n m"]:
        """k(x_i, anchor_j)."""
        return axis_kernel(self.anchors, self.precision, x)


class TransitionPlan(eqx.Module):
    """How one factor Q_g(u, x_g) of the transition is learned.

    `given` are the axes of u that the factor depends on, `group` those of x.
    """

    given: tuple[int, ...] = eqx.field(static=True)
    group: tuple[int, ...] = eqx.field(static=True)
    given_regressions: tuple[AxisRegression, ...]
    group_regressions: tuple[AxisRegression, ...]


class Plan(PlainModule):
    """Everything about a filter but the model itself, in unit coordinates (-1, 1)^d."""

    box: Box
    nodes: tuple[Float[Array, " _"], ...]
    weights: tuple[Float[Array, " _"], ...]
    transitions: tuple[TransitionPlan, ...]
    observation: tuple[AxisRegression, ...]  # of sqrt G(., y)
    prior: tuple[AxisRegression, ...]
    tol: float = eqx.field(static=True)

    @property
    def shape(self) -> tuple[int, ...]:
        """Number of nodes on each axis."""
        return tuple(z.shape[0] for z in self.nodes)

    @property
    def structure(self) -> Structure:
        """For each factor of Q the old and the new axes it couples."""
        return tuple((p.given, p.group) for p in self.transitions)

    @property
    def num_nodes(self) -> int:
        """Number of nodes in all."""
        return prod(self.shape)

    def node_points(self) -> Float[Array, "n d"]:
        """All nodes in user units, first axis slowest."""
        return grid_points(self.box, self.nodes)

    def training_points(self) -> Float[Array, "k d"]:
        """Where sqrt G(., y) is evaluated, in user units."""
        return grid_points(self.box, tuple(r.nodes for r in self.observation))

    def node_weights(self) -> Float[Array, " n"]:
        """Quadrature weights of all nodes for integrals over (-1, 1)^d."""
        return flat_weights(self.weights)


class Unaffordable(ValueError):
    """The model needs a larger filter than the budget allows."""


def assemble(
    box: Box,
    rules: Sequence[int | Rule],
    transitions: tuple[TransitionPlan, ...],
    observation: tuple[AxisRegression, ...],
    prior: tuple[AxisRegression, ...],
    tol: float,
) -> Plan:
    """A plan with the given rule, or number of Gauss-Legendre nodes, on each axis."""
    pairs = [legendre_rule(rule) if isinstance(rule, int) else rule for rule in rules]
    return Plan(
        box,
        tuple(jax.device_put(z) for z, _ in pairs),
        tuple(jax.device_put(w) for _, w in pairs),
        transitions,
        observation,
        prior,
        tol,
    )


def step_cost(plan: Plan) -> float:
    """Multiply-adds of one prediction."""
    return contraction_cost(plan.shape, plan.structure)
