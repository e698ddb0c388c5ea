"""From a tolerance to a plan: every axis sized alone, on lines through typical states."""

from collections.abc import Callable, Sequence

import numpy as np
from jaxtyping import Float

from .._density.box import Box
from .._gaussian.quadrature import legendre_rule
from .._learning.axes import Axis, features, least_num
from .._learning.sizing import oversampling_for, pad_for, ridge_for, spread_for
from .._statespace.model import Inputs, StateSpaceModel
from .._statespace.pairs import (
    log_observation_pairs,
    log_prior_points,
    log_transition_pairs,
)
from .grading import Rule, grading_for
from .hosted import center_of, half_of
from .plan import AxisRegression, Plan, TransitionPlan, Unaffordable, assemble, ridge_fit, step_cost
from .spectrum import legendre_transform
from .typical import TypicalPaths, check_logs, transition_groups

_MAX_PER_AXIS = {1: 1500, 2: 90, 3: 36, 4: 20}
# Largest number of multiply-adds of one prediction.
_MAX_WORK = 2e10


class _Lines:
    """Values of a root function along one axis, through typical points."""

    def __init__(self, values: Callable[[np.ndarray], np.ndarray], discount: Callable):
        self._values, self._discount = values, discount

    def varies(self) -> bool:
        """Whether the function depends on this axis at all."""
        roots = self._values(np.linspace(-0.97, 0.99, 9))
        return bool(np.ptp(roots, axis=0).max() > 1e-12 * np.max(np.abs(roots)))

    def degree(self, tol: float) -> int:
        """Legendre degree beyond which the lines hold less than `tol` of their peak."""
        num = 64
        while True:
            nodes, transform = legendre_transform(num)
            roots = self._values(nodes)
            tails = np.cumsum(np.abs(transform @ roots)[::-1], axis=0)[::-1]
            above = np.flatnonzero(np.max(tails, axis=1) > tol * np.max(roots))
            if above.size == 0 or above[-1] < 0.85 * num or num >= 1024:
                return int(above[-1]) + 1 if above.size else 1
            num *= 2

    def error(self, axis: Axis, ridge: float) -> float:
        """Discounted sup error of g^2 between the training nodes, relative to its largest value."""
        trained = axis.nodes
        held = 0.5 * (trained[1:] + trained[:-1])
        roots = self._values(np.concatenate([trained, held]))
        coefficients = ridge_fit(axis, trained, roots[: len(trained)], ridge)
        fitted = features(held, axis.anchors, axis.precision) @ coefficients
        truth = roots[len(trained) :]
        gap = np.abs(np.square(fitted) - np.square(truth)) * self._discount(held)[:, None]
        return float(np.max(gap) / max(np.max(np.square(roots)), 1e-300))


def smallest_axis(lines: _Lines, tol: float, limit: int, what: str) -> Axis:
    """The fewest anchors whose error on the lines is at most `tol`."""
    spread, pad = spread_for(tol), pad_for(tol, spread_for(tol))
    least = max(4, least_num(spread, pad))
    oversampling = oversampling_for(2)

    def design(num: int) -> Axis:
        return Axis.padded(num, spread, pad, oversampling)

    def ok(num: int) -> bool:
        return lines.error(design(num), ridge_for(tol)) <= tol

    # A grid of spacing h carries degrees up to about pi / h: start there, then walk. Every trial
    # costs a singular value decomposition of its size.
    inner = 2 * lines.degree(tol) / np.pi
    num = max(least, int(np.ceil(inner + 2 * pad / np.sqrt(spread))))
    if num <= limit and ok(num):
        for stride in (0.8, 0.93):
            while num > least:
                fewer = max(least, min(num - 1, int(stride * num)))
                if not ok(fewer):
                    break
                num = fewer
        return design(num)
    while num < limit:
        num = min(limit, int(np.ceil(1.08 * num)) + 1)
        if ok(num):
            return design(num)
    raise Unaffordable(
        f"{what} needs more than {limit} anchors on this axis for an error of {tol:.1g}: the noise "
        "is too small for the box"
    )


def axis_discount(box: Box, paths: TypicalPaths, axis: int) -> Callable[[np.ndarray], np.ndarray]:
    """How much an error at coordinate z of an axis counts: one where paths go, less where never.

    The distance to the range of the paths, in units of their spread, costs a factor exp(-d^2 / 2):
    what lies beyond is reached with about that probability.
    """
    unit = (paths.states[..., axis] - center_of(box)[axis]) / half_of(box)[axis]
    low, high, spread = np.min(unit), np.max(unit), max(float(np.std(unit)), 1e-3)

    def discount(z: np.ndarray) -> np.ndarray:
        beyond = np.maximum(np.maximum(low - z, z - high), 0.0) / (0.5 * spread)
        return np.exp(-0.5 * np.square(beyond))

    return discount


def _pairs(paths: TypicalPaths, num: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Typical (u, x, t), spread over chains and steps."""
    steps = paths.states.shape[1]
    old = paths.states[:, :-1].reshape(-1, paths.states.shape[2])
    new = paths.states[:, 1:].reshape(-1, paths.states.shape[2])
    times = np.tile(np.arange(1, steps), paths.states.shape[0])
    pick = np.linspace(0, len(old) - 1, min(num, len(old))).astype(int)
    return old[pick], new[pick], times[pick]


def _line_points(points: np.ndarray, axis: int, box: Box, nodes: np.ndarray) -> np.ndarray:
    """(lines, nodes, d): the points with one coordinate running through the box."""
    lines = np.repeat(points[:, None, :], len(nodes), axis=1)
    lines[:, :, axis] = center_of(box)[axis] + half_of(box)[axis] * nodes
    return lines


def transition_plan(
    ssm: StateSpaceModel, group: tuple[int, ...], paths: TypicalPaths, tol: float, inputs: Inputs
) -> TransitionPlan:
    """Anchors for one factor of Q: every axis sized alone on lines through typical pairs."""
    box, dim = ssm.state_box, ssm.dim
    old, new, times = _pairs(paths, 48)
    # Relative to the typical pair itself: Q there is about as large as it gets from such a state.
    own = log_transition_pairs(ssm, group, old, new[:, list(group)], times, inputs)
    limit = _MAX_PER_AXIS.get(dim, 16) * 2

    def lines_of(axis: int, moving_u: bool) -> _Lines:
        def values(nodes: np.ndarray) -> np.ndarray:
            lines = _line_points(old if moving_u else new, axis, box, nodes)
            logs = _line_table(ssm, group, lines, new if moving_u else old, times, moving_u, inputs)
            return np.exp(0.5 * (logs - own[:, None])).T

        return _Lines(values, axis_discount(box, paths, axis))

    def regression(lines: _Lines, what: str) -> AxisRegression:
        design = smallest_axis(lines, tol, limit, what)
        return AxisRegression.make(design, design.nodes, ridge_for(tol))

    along_u = {axis: lines_of(axis, True) for axis in range(dim)}
    given = tuple(axis for axis, lines in along_u.items() if lines.varies())
    return TransitionPlan(
        given,
        group,
        tuple(regression(along_u[a], f"Q in u[{a}]") for a in given),
        tuple(regression(lines_of(a, False), f"Q in x[{a}]") for a in group),
    )


def _line_table(
    ssm: StateSpaceModel,
    group: tuple[int, ...],
    lines: Float[np.ndarray, "k n d"],
    fixed: Float[np.ndarray, "k d"],
    times: np.ndarray,
    moving_u: bool,
    inputs: Inputs,
) -> Float[np.ndarray, "k n"]:
    """log Q_g along lines with the other argument fixed."""
    moving = lines.reshape(-1, lines.shape[2])
    still = np.repeat(fixed, lines.shape[1], axis=0)
    u, x = (moving, still) if moving_u else (still, moving)
    t = np.repeat(times, lines.shape[1])
    return log_transition_pairs(ssm, group, u, x[:, list(group)], t, inputs).reshape(
        lines.shape[:2]
    )


def node_rules(
    ssm: StateSpaceModel,
    paths: TypicalPaths,
    tol: float,
    inputs: Inputs,
    groups: Sequence[tuple[int, ...]],
) -> list[Rule]:
    """Quadrature nodes for each axis: the integrand of a step, along lines, to `tol`.

    Along axis l through a typical state x_t the integrand is u -> Q(x_{t-1}, u) G(u, y_t)
    Q(u, x_{t+1}); the fewest nodes whose rule integrates it like a fine one on every line. They
    are graded by its width.
    """
    box, dim = ssm.state_box, ssm.dim
    states = paths.states
    before, here, after = states[:, :-2], states[:, 1:-1], states[:, 2:]
    flat = [a.reshape(-1, dim) for a in (before, here, after)]
    times = np.tile(np.arange(1, states.shape[1] - 1), states.shape[0])
    pick = np.linspace(0, len(times) - 1, min(40, len(times))).astype(int)
    before, here, after = (a[pick] for a in flat)
    times = times[pick]
    ys = None
    if paths.observations is not None:
        ys = paths.observations[:, 1:-1].reshape(-1, paths.observations.shape[2])[pick]
    rules = []
    for axis in range(dim):

        def log_integrand(nodes: np.ndarray, axis: int = axis) -> np.ndarray:
            lines = _line_points(here, axis, box, nodes)
            logs = np.zeros(lines.shape[:2])
            for group in groups:
                logs = logs + _line_table(ssm, group, lines, after, times + 1, True, inputs)
                logs = logs + _line_table(ssm, group, lines, before, times, False, inputs)
            if ys is not None:
                points = lines.reshape(-1, dim)
                seen = np.repeat(ys, len(nodes), axis=0)
                t = np.repeat(times, len(nodes))
                share = log_observation_pairs(ssm, points, seen, t, inputs)
                check_logs("log_observation", share, x=points, y=seen)
                logs = logs + share.reshape(logs.shape)
            return logs

        rules.append(_smallest_rule(log_integrand, tol, _MAX_PER_AXIS.get(dim, 16) * 2))
    return rules


def node_counts(
    ssm: StateSpaceModel,
    paths: TypicalPaths,
    tol: float,
    inputs: Inputs,
    groups: Sequence[tuple[int, ...]],
) -> list[int]:
    """How many evenly spread nodes would lie as dense as the graded ones at their densest."""
    return [_even_count(rule) for rule in node_rules(ssm, paths, tol, inputs, groups)]


def _even_count(rule: Rule) -> int:
    # Gauss-Legendre nodes lie pi / n apart in the middle of the box, and closer at its ends.
    cut = len(rule.nodes) // 8
    return int(np.ceil(np.pi / np.min(np.diff(rule.nodes[cut : len(rule.nodes) - cut]))))


def _smallest_rule(
    log_integrand: Callable[[np.ndarray], np.ndarray], tol: float, limit: int
) -> Rule:
    """The smallest rule, graded or not, that integrates every line to a relative error of `tol`."""
    grading = grading_for(log_integrand, tol)
    graded = _fewest_nodes(log_integrand, grading.rule, tol, limit)
    try:
        even = _fewest_nodes(log_integrand, legendre_rule, tol, graded)
    except Unaffordable:
        return grading.rule(graded)
    return Rule(*legendre_rule(even))


def _fewest_nodes(
    log_integrand: Callable[[np.ndarray], np.ndarray],
    rule: Callable[[int], tuple[np.ndarray, np.ndarray]],
    tol: float,
    limit: int,
) -> int:
    """Nodes of the smallest rule that integrates every line to a relative error of `tol`."""
    shift = np.max(log_integrand(rule(128)[0]), axis=1)
    cache: dict[int, np.ndarray] = {}

    def integral(num: int) -> np.ndarray:
        if num not in cache:
            nodes, weights = rule(num)
            cache[num] = np.exp(log_integrand(nodes) - shift[:, None]) @ weights
        return cache[num]

    fine = 64
    while np.any(np.abs(integral(fine) - integral(2 * fine)) > 0.1 * tol * integral(2 * fine)):
        fine *= 2
        if fine > 2 * limit:
            raise Unaffordable(f"more than {limit} nodes are needed on an axis")
    exact = integral(2 * fine)

    def ok(num: int) -> bool:
        # Neighbouring rules must agree as well: a single one can be right by luck.
        return all(np.max(np.abs(integral(k) - exact) / exact) <= tol for k in (num, num + 1))

    high = 8
    while not ok(high):
        high = int(1.25 * high) + 1
        if high > limit:
            raise Unaffordable(f"more than {limit} nodes are needed on an axis")
    low = int(high / 1.25) - 1
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if ok(middle) else (middle, high)
    return high


def observation_plan(
    ssm: StateSpaceModel,
    paths: TypicalPaths,
    counts: Sequence[int],
    tol: float,
    inputs: Inputs,
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
            design = Axis.padded(max(size, least_num(spread, pad)), spread, pad, 1.25)
        else:
            lines = _Lines(
                _observation_roots(ssm, paths, axis, inputs), axis_discount(box, paths, axis)
            )
            limit = _MAX_PER_AXIS.get(dim, 16) * 2
            design = smallest_axis(lines, tol, limit, f"sqrt G in x[{axis}]")
        regressions.append(AxisRegression.make(design, design.nodes, ridge_for(tol)))
    return tuple(regressions)


def prior_plan(ssm: StateSpaceModel, paths: TypicalPaths, tol: float) -> tuple[AxisRegression, ...]:
    """Anchors for the root of the prior, sized on lines through its own draws."""
    starts = paths.states[:, 0]
    own = log_prior_points(ssm, starts)
    regressions = []
    for axis in range(ssm.dim):

        def values(nodes: np.ndarray, axis: int = axis) -> np.ndarray:
            lines = _line_points(starts, axis, ssm.state_box, nodes)
            logs = log_prior_points(ssm, lines.reshape(-1, ssm.dim))
            return np.exp(0.5 * (logs.reshape(lines.shape[:2]) - own[:, None])).T

        lines = _Lines(values, lambda z: np.ones_like(z))
        limit = _MAX_PER_AXIS.get(ssm.dim, 16) * 2
        design = smallest_axis(lines, tol, limit, f"the prior in x[{axis}]")
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
        lines = _line_points(states[pick], axis, ssm.state_box, nodes).reshape(-1, dim)
        ys, t = np.repeat(seen[pick], len(nodes), axis=0), np.repeat(times[pick], len(nodes))
        logs = log_observation_pairs(ssm, lines, ys, t, inputs)
        check_logs("log_observation", logs, x=lines, y=ys)
        # A state in the tail of its own observation must not make its line count for more.
        logs = logs.reshape(len(pick), -1)
        return np.exp(0.5 * (logs - np.maximum(own, np.max(logs, axis=1))[:, None])).T

    return values


def make_plan(ssm: StateSpaceModel, paths: TypicalPaths, tol: float, inputs: Inputs = None) -> Plan:
    """The plan of a filter whose total variation error is to stay below `tol`.

    One-step errors accumulate over the few steps that the filter remembers: the worst over typical
    lines is held to a share of the tolerance.
    """
    groups, share = transition_groups(ssm), _fit_share(ssm.dim) * tol
    transitions = tuple(transition_plan(ssm, g, paths, share, inputs) for g in groups)
    return _complete(ssm, transitions, prior_plan(ssm, paths, share), paths, tol, inputs)


def _fit_share(dim: int) -> float:
    # The worst line of many says less and less about all of them as coordinates are added.
    return 0.1 if dim <= 2 else 0.3


def _quadrature_share(dim: int) -> float:
    return 0.03 if dim <= 2 else 0.3


def resize_plan(plan: Plan, ssm: StateSpaceModel, paths: TypicalPaths, inputs: Inputs) -> Plan:
    """The same anchors of Q and of the prior, nodes and anchors of sqrt G for other paths."""
    return _complete(ssm, plan.transitions, plan.prior, paths, plan.tol, inputs)


def _complete(
    ssm: StateSpaceModel,
    transitions: tuple[TransitionPlan, ...],
    prior: tuple[AxisRegression, ...],
    paths: TypicalPaths,
    tol: float,
    inputs: Inputs,
) -> Plan:
    groups = tuple(part.group for part in transitions)
    rules = node_rules(ssm, paths, _quadrature_share(ssm.dim) * tol, inputs, groups)
    counts = [_even_count(rule) for rule in rules]
    observation = observation_plan(ssm, paths, counts, _fit_share(ssm.dim) * tol, inputs)
    plan = assemble(ssm.state_box, rules, transitions, observation, prior, tol)
    work = step_cost(plan)
    if work > _MAX_WORK:
        raise Unaffordable(
            f"tol = {tol:g} needs {' x '.join(map(str, plan.shape))} nodes, and a step on them "
            f"{work:.1g} multiply-adds, above the limit of {_MAX_WORK:.1g}. Raise tol, shrink "
            "state_box to where the state goes, or use a particle filter for this model"
        )
    return plan
