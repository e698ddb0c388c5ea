"""A plan filled with a model: all that the filter on nodes computes with."""

from dataclasses import replace

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..._density.anchors import TensorGrid
from ..._density.psd import GaussianPSD
from ..._modules import PlainModule
from ..._statespace.functions import Time
from ..._statespace.model import Inputs, StateSpaceModel
from ..numerics.grids import apply_last_axes
from ..sizing.contraction import backward_tensor
from ..sizing.plan import Plan
from ..sizing.tables import (
    TransitionTables,
    fill_prior,
    fill_transition,
    learn_coefficients,
    roots_on,
)
from .joint import JointObservation


class Filled(PlainModule):
    """The learned prior, transition and, with `joint`, observation density on a plan.

    The tables are those of a transition that does not vary in time; one that does is filled step by
    step on the same plan.
    """

    ssm: StateSpaceModel
    plan: Plan
    prior_root: Float[Array, "..."]  # coefficients of sqrt p(x_0), one axis of anchors each
    tables: TransitionTables | None
    joint: JointObservation | None = None  # None: sqrt G(., y) is fitted for each observation
    renormalize: bool = eqx.field(static=True, default=False)

    @property
    def dim(self) -> int:
        """Number of coordinates of the state."""
        return self.ssm.dim

    @property
    def tol(self) -> float:
        """The tolerance that was asked for."""
        return self.plan.tol

    @property
    def prior(self) -> Float[Array, " n"]:
        """The prior at the nodes, of mass one."""
        return jnp.square(roots_on(self.plan.prior, self.prior_root, self.plan.nodes))

    def tables_at(self, t: Time = None, inputs: Inputs = None) -> TransitionTables:
        """The transition into step t at the nodes."""
        if self.tables is not None:
            return self.tables
        return maybe_renormalized(
            self.plan, fill_transition(self.plan, self.ssm, t, inputs), self.renormalize
        )

    def transition_density(self, t: Time = None, inputs: Inputs = None) -> tuple[GaussianPSD, ...]:
        """The learned factors of Q as PSD models of (u_given, x_group), in unit coordinates."""
        models = []
        for part in self.plan.transitions:
            coefficients, log_scale = learn_coefficients(self.plan, part, self.ssm, t, inputs)
            regressions = (*part.given_regressions, *part.group_regressions)
            grid = TensorGrid([r.anchors for r in regressions])
            precision = jnp.stack([r.precision for r in regressions])
            models.append(GaussianPSD(grid, coefficients.ravel(), precision, log_scale))
        return tuple(models)

    def with_joint(self, joint: JointObservation) -> "Filled":
        """The same with G learned jointly over (x, y)."""
        return replace(self, joint=joint)


def refilled(plan: Plan, ssm: StateSpaceModel, tables: TransitionTables | None = None) -> Filled:
    """A plan filled with a model; pure, and differentiable in the numbers of the model.

    `tables`, if they are known already.
    """
    if tables is None and not ssm.is_time_varying:
        tables = fill_transition(plan, ssm)
    return Filled(ssm, plan, fill_prior(plan, ssm), tables)


def row_masses(plan: Plan, tables: TransitionTables) -> Float[Array, "..."]:
    """int Q(u, x) dx over the box at every node u, one axis for each coordinate."""
    ones = tuple(
        apply_last_axes(squares, tuple(plan.weights[a][None, :] for a in part.group))
        for part, squares in zip(plan.transitions, tables.squares, strict=True)
    )
    single = jnp.ones((1,) * len(plan.nodes))
    return backward_tensor(plan.structure, ones, single, plan.shape)


def maybe_renormalized(plan: Plan, tables: TransitionTables, wanted: bool) -> TransitionTables:
    """Q(u, x) / int Q(u, x) dx, if asked for."""
    if not wanted:
        return tables
    scales = scales_to_one(plan, tables.squares)
    rows = tuple(r * jnp.sqrt(scale) for r, scale in zip(tables.rows, scales, strict=True))
    squares = tuple(s * scale for s, scale in zip(tables.squares, scales, strict=True))
    return TransitionTables(rows, squares)


def scales_to_one(
    plan: Plan, squares: tuple[Float[Array, "..."], ...]
) -> tuple[Float[Array, "..."], ...]:
    """1 / int Q_g(u, x) dx of all factors; one where there is no mass."""
    out = []
    for part, square in zip(plan.transitions, squares, strict=True):
        mass = apply_last_axes(square, tuple(plan.weights[a][None, :] for a in part.group))
        out.append(1.0 / jnp.where(mass > 0, mass, 1.0))
    return tuple(out)
