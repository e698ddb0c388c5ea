"""A plan that is chosen once and filled for every theta: likelihoods and their gradients."""

from collections.abc import Iterable
from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ... import _results
from ..._statespace.model import StateSpaceModel
from ..model import AbstractFrozen, PlanCheck
from ..series import Series
from ..sizing.plan import AxisRegression, Plan
from ..sizing.tables import TransitionFits, refill_transition
from .evidence import KEPT, Evidence, evidence
from .filled import Filled, refilled
from .resolution import transition_error
from .workspace import Stepper, Workspace


class FrozenNodes(AbstractFrozen):
    """Grids, nodes and box as constants, with what they need computed once."""

    has_plan: ClassVar[bool] = True
    plan: Plan
    space: Workspace
    fits: tuple[TransitionFits, ...]

    @staticmethod
    def of(plan: Plan) -> "FrozenNodes":
        """Tabulate a plan."""
        return _frozen(plan)

    def fill(self, ssm: StateSpaceModel) -> Filled:
        """The plan, filled; pure, and differentiable in the numbers of the model."""
        tables = None
        if not ssm.is_time_varying:
            tables = refill_transition(self.plan, self.fits, ssm)
        return refilled(self.plan, ssm, tables)

    def evidences(
        self, ssm: StateSpaceModel, series: Series, forward: bool = False
    ) -> tuple[Filled, Evidence]:
        """The filled plan, and what each step of stacked series says about it."""
        filled = self.fill(ssm)
        stepper, kept = Stepper.of(filled, self.space), KEPT // series.ys.shape[0]
        return filled, jax.vmap(lambda one: evidence(stepper, one, forward, kept))(series)

    def increments(
        self, ssm: StateSpaceModel, series: Series, forward: bool
    ) -> Float[Array, "s t"]:
        """log p(y_t | y before t) of stacked series."""
        return self.evidences(ssm, series, forward)[1].log_masses

    def evidence(
        self, ssm: StateSpaceModel, series: Series
    ) -> tuple[Float[Array, ""], PlanCheck, Evidence]:
        """log p(y; theta), how well the plan serves at theta, and what each step says of it."""
        filled, out = self.evidences(ssm, series)
        failed = jnp.any((out.codes != _results.OK) & (out.codes != _results.UNRESOLVED))
        check = PlanCheck(
            _transition_error(filled, series, jnp.mean(out.occupancy, axis=0)),
            jnp.max(out.observation_errors),
            jnp.mean(jnp.minimum(out.observation_errors, 1.0)),
            jnp.mean(1.0 - jnp.exp(out.log_kept)),
            failed,
        )
        return jnp.sum(out.log_masses), jax.lax.stop_gradient(check), out

    def unresolved(self, facts: Evidence) -> Float[Array, "s t"]:
        """delta_t of every step."""
        return facts.observation_errors

    def log_masses(self, facts: Evidence) -> Float[Array, "s t"]:
        """Those of every step."""
        return facts.log_masses

    def merged(self, other: AbstractFrozen) -> "FrozenNodes":
        """A plan that is, axis by axis, the finer of both."""
        assert isinstance(other, FrozenNodes)
        plans = [self.plan, other.plan]
        if len({plan.structure for plan in plans}) > 1:
            raise ValueError(
                "cover must hold thetas whose transitions depend on the same coordinates, but a "
                "factor of Q depends on a coordinate at one of them only"
            )
        return FrozenNodes.of(_finest(plans))


@eqx.filter_jit
def _frozen(plan: Plan) -> FrozenNodes:
    return FrozenNodes(plan, Workspace.of(plan), TransitionFits.of(plan))


def _transition_error(filled: Filled, series: Series, occupancy: Array) -> Array:
    """For a transition that varies in time, the largest at the first, middle and last step."""
    occupancy = jax.lax.stop_gradient(occupancy)
    if filled.tables is not None:
        return transition_error(filled, occupancy)
    last = series.num - 1
    errors = [
        transition_error(
            filled,
            occupancy,
            series.steps[0, k],
            jax.tree.map(lambda a, k=k: a[0, k], series.rows),
        )
        for k in (0, (last + 1) // 2, last)
    ]
    return jnp.max(jnp.stack(errors))


def _finest(plans: list[Plan]) -> Plan:
    def best(columns: Iterable[tuple[AxisRegression, ...]]) -> tuple[AxisRegression, ...]:
        each = zip(*columns, strict=True)
        return tuple(max(column, key=lambda r: r.anchors.shape[0]) for column in each)

    transitions = tuple(
        eqx.tree_at(
            lambda p: (p.given_regressions, p.group_regressions),
            parts[0],
            (
                best(part.given_regressions for part in parts),
                best(part.group_regressions for part in parts),
            ),
        )
        for parts in zip(*(plan.transitions for plan in plans), strict=True)
    )
    axes = range(len(plans[0].nodes))
    finest = [max(plans, key=lambda plan, a=a: plan.nodes[a].shape[0]) for a in axes]
    return eqx.tree_at(
        lambda p: (p.nodes, p.weights, p.transitions, p.observation, p.prior),
        plans[0],
        (
            tuple(plan.nodes[a] for a, plan in enumerate(finest)),
            tuple(plan.weights[a] for a, plan in enumerate(finest)),
            transitions,
            best(plan.observation for plan in plans),
            best(plan.prior for plan in plans),
        ),
    )
