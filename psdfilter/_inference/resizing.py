"""Models sized by data: where their states were decides nodes and anchors of sqrt G."""

import time

import numpy as np
from jaxtyping import Float, Int

from .._statespace.model import Inputs, StateSpaceModel
from .hosted import fill, one_step_error
from .model import LearnedModel, Sizing
from .plan import Plan
from .report import LearnReport
from .sizing import resize_plan
from .typical import TypicalPaths


def build(
    plan: Plan,
    ssm: StateSpaceModel,
    renormalize: bool,
    paths: TypicalPaths,
    inputs: Inputs,
    started: float,
) -> LearnedModel:
    """A plan filled with a model, and its report."""
    prior, tables = fill(plan, ssm, renormalize)
    report = describe(plan, ssm, paths, inputs, started)
    sizing = Sizing(paths.observations is not None)
    return LearnedModel(ssm, plan, prior, tables, renormalize, report, sizing)


def resized_by(model: LearnedModel, ys, inputs: Inputs = None, multiple: int = 1) -> LearnedModel:
    """The same model with nodes and anchors of sqrt G sized by these observations."""
    return resized_along(model, paths_of_data(model, ys, inputs), inputs, multiple)


def resized_along(
    model: LearnedModel, paths: TypicalPaths | None, inputs: Inputs, multiple: int = 1
) -> LearnedModel:
    """The same model with nodes and anchors of sqrt G sized by these paths, if there are any."""
    if paths is None:
        return model
    started = time.perf_counter()
    plan = resize_plan(model.plan, model.ssm, paths, inputs, multiple)
    return build(plan, model.ssm, model.renormalize, paths, inputs, started)


def paths_of_data(model: LearnedModel, ys, inputs: Inputs = None) -> TypicalPaths | None:
    """Where the states of a series were, and what was seen; None if there are too few.

    A first filter on the plan at hand finds them: its highest node at each time.
    """
    from .run import run_filter

    rough = run_filter(model, ys, inputs=inputs, throw=False, resize=False)
    best = np.argmax(np.asarray(rough.densities), axis=1)
    return paths_through(model.plan, best, np.asarray(rough.series.ys), np.asarray(rough.log_kept))


def paths_through(
    plan: Plan,
    best: Int[np.ndarray, " t"],
    seen: Float[np.ndarray, "t p"],
    log_kept: Float[np.ndarray, " t"],
) -> TypicalPaths | None:
    """The path through these nodes, where observations are whole; None if there are too few."""
    states = np.asarray(plan.node_points())[best]
    usable = ~np.isnan(seen).any(axis=1) & np.isfinite(seen).all(axis=1)
    if usable.sum() < 3:
        return None
    leak = float(1.0 - np.mean(np.exp(np.minimum(log_kept, 0.0))))
    return TypicalPaths(states[None, usable], seen[None, usable], leak)


def describe(
    plan: Plan, ssm: StateSpaceModel, paths: TypicalPaths, inputs: Inputs, started: float
) -> LearnReport:
    """The report of a learned model, with one-step errors measured at typical states."""
    error, norm = one_step_error(plan, ssm, paths, inputs)
    return LearnReport(
        tol=plan.tol,
        nodes=plan.shape,
        anchors=tuple(
            tuple(r.anchors.shape[0] for r in (*part.given_regressions, *part.group_regressions))
            for part in plan.transitions
        ),
        observation_anchors=tuple(r.anchors.shape[0] for r in plan.observation),
        one_step_error=error,
        coefficient_norm=norm,
        leak=paths.leak,
        seconds=time.perf_counter() - started,
        time_varying=ssm.is_time_varying,
    )
