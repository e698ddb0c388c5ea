"""From a tolerance to a plan: every axis sized alone, on lines through typical states."""

from collections.abc import Callable, Sequence

import numpy as np

from ..._learning.axes import Axis, least_num
from ..._learning.sizing import pad_for, ridge_for, spread_for
from ..._statespace.model import Inputs, StateSpaceModel
from ..._statespace.pairs import (
    log_observation_pairs,
    log_prior_points,
    log_transition_pairs,
)
from .lines import (
    Lines,
    axis_discount,
    line_points,
    line_table,
    most_per_axis,
    rounded_up,
    smallest_axis,
    typical_pairs,
)
from .plan import AxisRegression, Plan, TransitionPlan, Unaffordable, assemble, step_cost
from .rules import even_count, node_rules
from .rules import node_counts as node_counts
from .typical import TypicalPaths, check_logs, transition_groups

# log Q of a typical pair this far below the median is that of no transition.
_NO_TRANSITION = 50.0
# Largest number of multiply-adds of one prediction.
_MAX_WORK = 2e10


def transition_plan(
    ssm: StateSpaceModel,
    group: tuple[int, ...],
    paths: TypicalPaths,
    tol: float,
    inputs: Inputs,
    multiple: int = 1,
) -> TransitionPlan:
    """Anchors for one factor of Q: every axis sized alone on lines through typical pairs."""
    box, dim = ssm.state_box, ssm.dim
    old, new, times = typical_pairs(paths, 48)
    # Relative to the typical pair itself: Q there is about as large as it gets from such a state.
    own = log_transition_pairs(ssm, group, old, new[:, list(group)], times, inputs)
    # Where a path has left the box and starts anew, there is no transition.
    moved = own > np.median(own[np.isfinite(own)]) - _NO_TRANSITION
    old, new, times, own = old[moved], new[moved], times[moved], own[moved]
    limit = most_per_axis(dim)

    def lines_of(axis: int, moving_u: bool) -> Lines:
        def values(nodes: np.ndarray) -> np.ndarray:
            lines = line_points(old if moving_u else new, axis, box, nodes)
            logs = line_table(ssm, group, lines, new if moving_u else old, times, moving_u, inputs)
            return np.exp(0.5 * (logs - own[:, None])).T

        return Lines(values, axis_discount(box, paths, axis))

    def regression(lines: Lines, what: str) -> AxisRegression:
        design = smallest_axis(lines, tol, limit, what, multiple)
        return AxisRegression.make(design, design.nodes, ridge_for(tol))

    along_u = {axis: lines_of(axis, True) for axis in range(dim)}
    given = tuple(axis for axis, lines in along_u.items() if lines.varies())
    return TransitionPlan(
        given,
        group,
        tuple(regression(along_u[a], f"Q in u[{a}]") for a in given),
        tuple(regression(lines_of(a, False), f"Q in x[{a}]") for a in group),
    )


def observation_plan(
    ssm: StateSpaceModel,
    paths: TypicalPaths,
    counts: Sequence[int],
    tol: float,
    inputs: Inputs,
    multiple: int = 1,
) -> tuple[AxisRegression, ...]:
    """Anchors for sqrt G(., y), sized on lines through typical states and their observations.

    Without observations to size by, as dense as the quadrature nodes are in the middle of the box.
    """
    box, dim = ssm.state_box, ssm.dim
    regressions = []
    for axis, num in enumerate(counts):
        if paths.observations is None:
            spread = spread_for(tol)
            pad = pad_for(tol, spread)
            size = int(np.ceil(0.8 * num + 1 + 2 * pad / np.sqrt(spread)))
            size = rounded_up(max(size, least_num(spread, pad)), multiple)
            design = Axis.padded(size, spread, pad, 1.25)
        else:
            lines = Lines(
                _observation_roots(ssm, paths, axis, inputs), axis_discount(box, paths, axis)
            )
            limit = most_per_axis(dim)
            design = smallest_axis(lines, tol, limit, f"sqrt G in x[{axis}]", multiple)
        regressions.append(AxisRegression.make(design, design.nodes, ridge_for(tol)))
    return tuple(regressions)


def prior_plan(
    ssm: StateSpaceModel, paths: TypicalPaths, tol: float, multiple: int = 1
) -> tuple[AxisRegression, ...]:
    """Anchors for the root of the prior, sized on lines through its own draws."""
    starts = paths.states[:, 0]
    own = log_prior_points(ssm, starts)
    regressions = []
    for axis in range(ssm.dim):

        def values(nodes: np.ndarray, axis: int = axis) -> np.ndarray:
            lines = line_points(starts, axis, ssm.state_box, nodes)
            logs = log_prior_points(ssm, lines.reshape(-1, ssm.dim))
            return np.exp(0.5 * (logs.reshape(lines.shape[:2]) - own[:, None])).T

        lines = Lines(values, lambda z: np.ones_like(z))
        limit = most_per_axis(ssm.dim)
        design = smallest_axis(lines, tol, limit, f"the prior in x[{axis}]", multiple)
        regressions.append(AxisRegression.make(design, design.nodes, ridge_for(tol)))
    return tuple(regressions)


def _observation_roots(
    ssm: StateSpaceModel, paths: TypicalPaths, axis: int, inputs: Inputs
) -> Callable[[np.ndarray], np.ndarray]:
    dim = ssm.dim
    assert paths.observations is not None
    states = paths.states.reshape(-1, dim)
    seen = paths.observations.reshape(len(states), -1)
    times = np.tile(np.arange(paths.states.shape[1]), paths.states.shape[0])
    pick = np.linspace(0, len(states) - 1, min(48, len(states))).astype(int)

    own = log_observation_pairs(ssm, states[pick], seen[pick], times[pick], inputs)

    def values(nodes: np.ndarray) -> np.ndarray:
        lines = line_points(states[pick], axis, ssm.state_box, nodes).reshape(-1, dim)
        ys, t = np.repeat(seen[pick], len(nodes), axis=0), np.repeat(times[pick], len(nodes))
        logs = log_observation_pairs(ssm, lines, ys, t, inputs)
        check_logs("log_observation", logs, x=lines, y=ys)
        # A state in the tail of its own observation must not make its line count for more.
        logs = logs.reshape(len(pick), -1)
        return np.exp(0.5 * (logs - np.maximum(own, np.max(logs, axis=1))[:, None])).T

    return values


def make_plan(
    ssm: StateSpaceModel,
    paths: TypicalPaths,
    tol: float,
    inputs: Inputs = None,
    multiple: int = 1,
) -> Plan:
    """The plan of a filter whose total variation error is to stay below `tol`.

    One-step errors accumulate over the few steps that the filter remembers: the worst over typical
    lines is held to a share of the tolerance.
    """
    groups, share = transition_groups(ssm), _fit_share(ssm.dim) * tol
    transitions = tuple(transition_plan(ssm, g, paths, share, inputs, multiple) for g in groups)
    prior = prior_plan(ssm, paths, share, multiple)
    return _complete(ssm, transitions, prior, paths, tol, inputs, multiple)


def _fit_share(dim: int) -> float:
    # The worst line of many says less and less about all of them as coordinates are added.
    return 0.1 if dim <= 2 else 0.3


def _quadrature_share(dim: int) -> float:
    return 0.03 if dim <= 2 else 0.3


def resize_plan(
    plan: Plan, ssm: StateSpaceModel, paths: TypicalPaths, inputs: Inputs, multiple: int = 1
) -> Plan:
    """The same anchors of Q and of the prior, nodes and anchors of sqrt G for other paths."""
    return _complete(ssm, plan.transitions, plan.prior, paths, plan.tol, inputs, multiple)


def _complete(
    ssm: StateSpaceModel,
    transitions: tuple[TransitionPlan, ...],
    prior: tuple[AxisRegression, ...],
    paths: TypicalPaths,
    tol: float,
    inputs: Inputs,
    multiple: int,
) -> Plan:
    groups = tuple(part.group for part in transitions)
    rules = node_rules(ssm, paths, _quadrature_share(ssm.dim) * tol, inputs, groups, multiple)
    counts = [even_count(rule) for rule in rules]
    share = _fit_share(ssm.dim) * tol
    observation = observation_plan(ssm, paths, counts, share, inputs, multiple)
    plan = assemble(ssm.state_box, rules, transitions, observation, prior, tol)
    work = step_cost(plan)
    if work > _MAX_WORK:
        raise Unaffordable(
            f"tol = {tol:g} needs {' x '.join(map(str, plan.shape))} nodes, and a step on them "
            f"{work:.1g} multiply-adds, above the limit of {_MAX_WORK:.1g}. Raise tol, shrink "
            "state_box to where the state goes, or use a particle filter for this model"
        )
    return plan
