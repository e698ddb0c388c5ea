"""One plan for several thetas: a box that holds all their boxes, the finest of their grids."""

from collections.abc import Callable, Sequence
from typing import Any

import equinox as eqx
import jax.numpy as jnp

from .._density.box import Box
from .._inference.evidence import refilled
from .._inference.model import LearnedModel
from .._inference.plan import AxisRegression, Plan
from .._statespace.model import StateSpaceModel


def covering_ssm(build: Callable[[Any], Any], thetas: Sequence[Any]) -> list[StateSpaceModel]:
    """The models at all thetas, on one box that holds all of theirs.

    A model is sized as it will be traced: where `build` gives the noise as a matrix, whose zeros
    cannot be seen under tracing, its transition counts as one factor.
    """
    ssms = []
    for theta in thetas:
        ssm = build(theta)
        if not isinstance(ssm, StateSpaceModel):
            raise ValueError(f"build must return a StateSpaceModel, got {type(ssm).__name__}")
        ssms.append(ssm)
    traced = eqx.filter_eval_shape(build, thetas[0])
    if traced.log_transition_axis is None:
        ssms = [_whole(ssm) for ssm in ssms]
    if len(ssms) == 1:
        return ssms
    lower = jnp.min(jnp.stack([s.state_box.lower for s in ssms]), axis=0)
    upper = jnp.max(jnp.stack([s.state_box.upper for s in ssms]), axis=0)
    box = Box(lower, upper)
    return [eqx.tree_at(lambda s: s.state_box, ssm, box) for ssm in ssms]


def _whole(ssm: StateSpaceModel) -> StateSpaceModel:
    """The model without the factors of its transition."""
    fields = {name: getattr(ssm, name) for name in ssm.__dataclass_fields__}
    return StateSpaceModel(**{**fields, "log_transition_axis": None})


def merged_plan(models: Sequence[LearnedModel]) -> LearnedModel:
    """The first model on a plan that is, axis by axis, the finest of all."""
    plans = [model.plan for model in models]
    if len(plans) == 1:
        return models[0]
    if len({plan.structure for plan in plans}) > 1:
        raise ValueError(
            "cover must hold thetas whose transitions depend on the same coordinates, but a factor "
            "of Q depends on a coordinate at one of them only"
        )
    worst = max((model.report for model in models), key=lambda report: report.leak)
    return refilled(_finest(plans), models[0].ssm, worst)


def _finest(plans: Sequence[Plan]) -> Plan:
    def best(pick: Callable[[Plan], tuple[AxisRegression, ...]]) -> tuple[AxisRegression, ...]:
        columns = zip(*(pick(plan) for plan in plans), strict=True)
        return tuple(max(column, key=lambda r: r.anchors.shape[0]) for column in columns)

    transitions = tuple(
        eqx.tree_at(
            lambda p: (p.given_regressions, p.group_regressions),
            plans[0].transitions[g],
            (
                best(lambda plan, g=g: plan.transitions[g].given_regressions),
                best(lambda plan, g=g: plan.transitions[g].group_regressions),
            ),
        )
        for g in range(len(plans[0].transitions))
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
            best(lambda plan: plan.observation),
            best(lambda plan: plan.prior),
        ),
    )
