"""Plans: grids, nodes and factorisations of a filter, from a tolerance; frozen once made.

A plan holds no values of the model. `fill` (nodes.py) turns a plan and a model into tables by a few
matrix products, so that a time-varying transition, or another parameter, costs no new plan.
"""

from collections.abc import Sequence
from math import prod

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from .._density.box import Box
from .._gaussian.quadrature import legendre_rule
from .._learning.axes import Axis, factor_axis
from .contraction import Structure, contraction_cost


class AxisRegression(eqx.Module):
    """Ridge regression along one axis: coefficients = solve @ values at `nodes`."""

    anchors: Float[Array, " m"]
    precision: Float[Array, ""]  # eta
    nodes: Float[Array, " k"]  # training nodes
    solve: Float[Array, "m k"]

    @staticmethod
    def make(axis: Axis, nodes: np.ndarray, ridge: float) -> "AxisRegression":
        """Factor the problem for anchors `axis` and training nodes."""
        factor = factor_axis(nodes, axis.anchors, axis.precision, axis.fold)
        gain = factor.singular / (np.square(factor.singular) + len(nodes) * ridge)
        return AxisRegression(
            jnp.asarray(axis.anchors),
            jnp.asarray(axis.precision),
            jnp.asarray(nodes),
            jnp.asarray((factor.lift * gain) @ factor.left.T),
        )

    def kernel(self, x: Float[Array, " n"]) -> Float[Array, "n m"]:
        """k(x_i, anchor_j)."""
        return jnp.exp(-self.precision * jnp.square(x[:, None] - self.anchors[None, :]))


class TransitionPlan(eqx.Module):
    """How one factor Q_g(u, x_g) of the transition is learned.

    `given` are the axes of u that the factor depends on, `group` those of x.
    """

    given: tuple[int, ...] = eqx.field(static=True)
    group: tuple[int, ...] = eqx.field(static=True)
    given_regressions: tuple[AxisRegression, ...]
    group_regressions: tuple[AxisRegression, ...]


class Plan(eqx.Module):
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

    def check_axes(self) -> tuple[Float[Array, " _"], ...]:
        """Between the training nodes of sqrt G: where its fit is checked; sparser from d = 2 on."""
        stride = 1 if len(self.nodes) == 1 else 2
        return tuple((0.5 * (r.nodes[1:] + r.nodes[:-1]))[::stride] for r in self.observation)

    def nearest_nodes(self, axes: tuple[Float[Array, " _"], ...]) -> Int[Array, " k"]:
        """The flat index of the node next to each point of a tensor grid."""
        total = jnp.zeros(1, dtype=int)
        for points, z in zip(axes, self.nodes, strict=True):
            index = jnp.argmin(jnp.abs(points[:, None] - z[None, :]), axis=1)
            total = (total[:, None] * z.shape[0] + index[None, :]).ravel()
        return total

    def node_weights(self) -> Float[Array, " n"]:
        """Quadrature weights of all nodes for integrals over (-1, 1)^d."""
        total = jnp.ones(1)
        for w in self.weights:
            total = (total[:, None] * w[None, :]).ravel()
        return total


def grid_points(box: Box, axes: tuple[Float[Array, " _"], ...]) -> Float[Array, "n d"]:
    """The tensor grid of unit axes, in user units, first axis slowest."""
    mesh = jnp.meshgrid(*axes, indexing="ij")
    return box.from_unit(jnp.stack([m.ravel() for m in mesh], axis=-1))


class Unaffordable(ValueError):
    """The model needs a larger filter than the budget allows."""


def assemble(
    box: Box,
    counts: Sequence[int],
    transitions: tuple[TransitionPlan, ...],
    observation: tuple[AxisRegression, ...],
    prior: tuple[AxisRegression, ...],
    tol: float,
) -> Plan:
    """A plan with the given number of nodes on each axis."""
    rules = [legendre_rule(n) for n in counts]
    return Plan(
        box,
        tuple(jnp.asarray(z) for z, _ in rules),
        tuple(jnp.asarray(w) for _, w in rules),
        transitions,
        observation,
        prior,
        tol,
    )


def step_cost(plan: Plan) -> float:
    """Multiply-adds of one prediction."""
    return contraction_cost(plan.shape, plan.structure)
