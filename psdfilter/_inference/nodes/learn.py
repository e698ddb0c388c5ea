"""From a model and a tolerance to a filled plan: sized by simulations, by data, or by both."""

import time
import warnings
from typing import NamedTuple

import numpy as np
from jax.errors import ConcretizationTypeError, TracerArrayConversionError
from jaxtyping import Float, Int

from ..._statespace.model import Inputs, StateSpaceModel
from ..._statespace.probe import odd_mass
from ..engine import Task
from ..notices import NO_DENSITY, loses_mass, no_density, no_normal_density, traced_model
from ..report import Report
from ..series import Series, as_series
from ..sizing.host import fill, one_step_error
from ..sizing.make import make_plan, resize_plan
from ..sizing.plan import Plan, Unaffordable
from ..sizing.typical import TypicalPaths, simulate_typical
from .filled import Filled
from .joint_plan import learn_joint, observed_paths
from .run import run_on_nodes

# What rounding leaves of the fits; filters were measured to keep tolerances down to here.
LEAST_TOL = 1e-10
# Share of mass leaving the box in a step that calls for a word.
_LARGE_LEAK = 0.05
# A one-step error beyond all tolerances: the box holds states that the model throws out of it.
_MAX_ONE_STEP_ERROR = 0.3


class Wish(NamedTuple):
    """What is wanted of a filled plan.

    Attributes:
        joint: whether G is learned once, over (x, y).
        renormalize: whether Q is divided by its mass on the box.
        multiple: numbers of nodes and anchors are multiples of this, so that models of nearby
            parameters have equal sizes and share their compiled programs.
    """

    joint: bool = False
    renormalize: bool = False
    multiple: int = 1


class Learned(NamedTuple):
    """A filled plan, its report, and whether observations have had a say in its sizes."""

    filled: Filled
    report: Report
    is_sized: bool


def learn_filled(task: Task, wish: Wish) -> Learned:
    """Sized by simulations and, if there are any, by observations."""
    started, (ssm, tol, ys, inputs, reason) = time.perf_counter(), task
    paths = _typical(ssm, inputs)
    if not wish.renormalize:
        _warn_of_mass(ssm, paths)
    if wish.joint:
        paths = observed_paths(ssm, paths, inputs)
    plan = make_plan(ssm, paths, tol, inputs, wish.multiple)
    filled = _fill(plan, ssm, wish)
    report = describe(filled, paths, inputs, started, reason)
    error = report.one_step_error or 0.0
    if error > max(100 * tol, _MAX_ONE_STEP_ERROR):
        raise Unaffordable(
            f"the learned transition misses its tolerance by far (one-step error "
            f"{error:.1g}, tol {tol:g}): is state_box larger than where the "
            "states go, so that it holds states which the model throws far out of it?"
        )
    learned = Learned(filled, report, paths.observations is not None)
    if ys is not None:
        series = as_series(ys, ssm.num_observed, inputs=inputs)
        learned = resized_along(learned, paths_of_data(filled, series), inputs, wish.multiple)
    if not wish.joint:
        return learned
    joint = learn_joint(learned.filled.plan, ssm, paths, inputs)
    anchors = tuple(r.anchors.shape[0] for r in joint.regressions)
    filled = learned.filled.with_joint(joint)
    report = describe(filled, paths, inputs, started, reason, anchors)
    return Learned(filled, report, True)


def _typical(ssm: StateSpaceModel, inputs: Inputs) -> TypicalPaths:
    try:
        return simulate_typical(ssm, inputs=inputs)
    except (TracerArrayConversionError, ConcretizationTypeError) as error:
        raise ValueError(traced_model) from error


def _warn_of_mass(ssm: StateSpaceModel, paths: TypicalPaths) -> None:
    far = max(paths.leak, paths.mass - 1) > _LARGE_LEAK
    odd = odd_mass(ssm) if far else None
    if odd is not None:
        warnings.warn(no_normal_density(odd), stacklevel=5)
        return
    if paths.mass > NO_DENSITY:
        warnings.warn(no_density(paths.mass), stacklevel=5)
    if paths.leak > _LARGE_LEAK:
        warnings.warn(loses_mass(paths.leak), stacklevel=5)


def _fill(plan: Plan, ssm: StateSpaceModel, wish: Wish) -> Filled:
    prior, tables = fill(plan, ssm, wish.renormalize)
    return Filled(ssm, plan, prior, tables, None, wish.renormalize)


def resized_along(
    learned: Learned, paths: TypicalPaths | None, inputs: Inputs, multiple: int = 1
) -> Learned:
    """The same model with nodes and anchors of sqrt G sized by these paths, if there are any."""
    if paths is None:
        return learned
    started, filled = time.perf_counter(), learned.filled
    plan = resize_plan(filled.plan, filled.ssm, paths, inputs, multiple)
    filled = _fill(plan, filled.ssm, Wish(renormalize=filled.renormalize))
    report = describe(filled, paths, inputs, started, learned.report.reason)
    return Learned(filled, report, True)


def paths_of_data(filled: Filled, series: Series) -> TypicalPaths | None:
    """Where the states of a series were, and what was seen; None if there are too few.

    A first filter on the plan at hand finds them: its highest node at each time.
    """
    _, out, _, _ = run_on_nodes(filled, series, True)
    best = np.argmax(np.asarray(out.outs.density), axis=1)
    return paths_through(filled.plan, best, np.asarray(series.ys), np.asarray(out.outs.log_kept))


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
    filled: Filled,
    paths: TypicalPaths,
    inputs: Inputs,
    started: float,
    reason: str,
    joint_anchors: tuple[int, ...] | None = None,
) -> Report:
    """The report of a filled plan, with one-step errors measured at typical states."""
    plan = filled.plan
    error, norm = one_step_error(plan, filled.ssm, paths, inputs)
    anchors = tuple(
        tuple(r.anchors.shape[0] for r in (*part.given_regressions, *part.group_regressions))
        for part in plan.transitions
    )
    return Report(
        engine="nodes",
        reason=reason,
        tol=plan.tol,
        seconds=time.perf_counter() - started,
        nodes=plan.shape,
        anchors=anchors,
        observation_anchors=tuple(r.anchors.shape[0] for r in plan.observation),
        joint_anchors=joint_anchors,
        one_step_error=error,
        coefficient_norm=norm,
        leak=paths.leak,
        time_varying=filled.ssm.is_time_varying,
    )
