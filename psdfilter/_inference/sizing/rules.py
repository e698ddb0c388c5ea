"""Quadrature nodes from a tolerance: the integrand of a step, along lines."""

from collections.abc import Callable, Sequence

import numpy as np
from jaxtyping import Float

from ..._gaussian.quadrature import legendre_rule
from ..._statespace.model import Inputs, StateSpaceModel
from ..._statespace.pairs import log_observation_pairs, log_prior_points
from .grading import Rule, grading_for
from .lines import line_points, line_table, most_per_axis, rounded_up
from .plan import Unaffordable
from .typical import TypicalPaths, check_logs, draw_prior

# Draws of the prior through which lines are laid.
_STARTS = 4
# Panels of eight nodes by which lines are integrated: bumps of a thousandth of the box are seen;
# narrower priors are refused before.
_PANELS = 1024


def node_rules(
    ssm: StateSpaceModel,
    paths: TypicalPaths,
    tol: float,
    inputs: Inputs,
    groups: Sequence[tuple[int, ...]],
    multiple: int = 1,
) -> list[Rule]:
    """Quadrature nodes for each axis: the integrand of a step, along lines, to `tol`.

    Along axis l through a typical state x_t the integrand is u -> Q(x_{t-1}, u) G(u, y_t)
    Q(u, x_{t+1}); the fewest nodes whose rule integrates it like a fine one on every line. They
    are graded by its width. The prior, which may be narrower, is integrated as well.
    """
    box, dim = ssm.state_box, ssm.dim
    states, starts = paths.states, draw_prior(ssm, _STARTS)
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
            lines = line_points(here, axis, box, nodes)
            logs = np.zeros(lines.shape[:2])
            for group in groups:
                logs = logs + line_table(ssm, group, lines, after, times + 1, True, inputs)
                logs = logs + line_table(ssm, group, lines, before, times, False, inputs)
            if ys is not None:
                points = lines.reshape(-1, dim)
                seen = np.repeat(ys, len(nodes), axis=0)
                t = np.repeat(times, len(nodes))
                share = log_observation_pairs(ssm, points, seen, t, inputs)
                check_logs("log_observation", share, x=points, y=seen)
                logs = logs + share.reshape(logs.shape)
            return logs

        limit = most_per_axis(dim)
        rule = _smallest_rule(log_integrand, tol, limit, multiple)
        start = _prior_lines(ssm, starts, axis)
        if not _integrates(rule, start, tol):
            rule = _with_prior(log_integrand, start, tol, limit, multiple)
        rules.append(rule)
    return rules


def _prior_lines(
    ssm: StateSpaceModel, starts: Float[np.ndarray, "k d"], axis: int
) -> Callable[[np.ndarray], np.ndarray]:
    """log p_0 along an axis through draws from it, twice: it meets what may be as narrow."""

    def log_values(nodes: np.ndarray) -> np.ndarray:
        lines = line_points(starts, axis, ssm.state_box, nodes)
        logs = log_prior_points(ssm, lines.reshape(-1, ssm.dim)).reshape(lines.shape[:2])
        return 2 * np.where(np.isnan(logs), -np.inf, logs)

    return log_values


def _integrates(rule: Rule, log_lines: Callable[[np.ndarray], np.ndarray], tol: float) -> bool:
    """Whether a rule integrates lines to a relative error of `tol`, as far as that can be seen."""
    edges = np.linspace(-1.0, 1.0, _PANELS + 1)
    inner, weights = legendre_rule(8)
    half = 1.0 / _PANELS
    fine = (0.5 * (edges[1:] + edges[:-1])[:, None] + half * inner[None, :]).ravel()
    logs = log_lines(fine)
    shift = np.max(logs, axis=1, keepdims=True)
    there = np.isfinite(shift[:, 0])
    shift = np.where(np.isfinite(shift), shift, 0.0)
    exact = np.exp(logs - shift) @ np.tile(half * weights, _PANELS)
    got = np.exp(np.minimum(log_lines(rule.nodes) - shift, 0.0)) @ rule.weights
    return bool(np.all(np.abs(got - exact)[there] <= tol * exact[there]))


def _with_prior(
    log_integrand: Callable[[np.ndarray], np.ndarray],
    start: Callable[[np.ndarray], np.ndarray],
    tol: float,
    limit: int,
    multiple: int,
) -> Rule:
    """The smallest rule for steps and for the prior."""

    def both(nodes: np.ndarray) -> np.ndarray:
        return np.concatenate([log_integrand(nodes), start(nodes)])

    grading = grading_for(both, tol)
    num = 64
    while num <= limit:
        rule = grading.rule(rounded_up(num, multiple))
        if _integrates(rule, start, tol) and _integrates(rule, log_integrand, tol):
            return rule
        num = int(1.25 * num) + 1
    raise Unaffordable(
        f"the prior is so narrow that a fixed plan, which serves traced series, needs more than "
        f"{limit} nodes on an axis: widen the prior, or filter series one by one with engine "
        '"adaptive", outside of jit and vmap'
    )


def node_counts(
    ssm: StateSpaceModel,
    paths: TypicalPaths,
    tol: float,
    inputs: Inputs,
    groups: Sequence[tuple[int, ...]],
) -> list[int]:
    """How many evenly spread nodes would lie as dense as the graded ones at their densest."""
    return [even_count(rule) for rule in node_rules(ssm, paths, tol, inputs, groups)]


def even_count(rule: Rule) -> int:
    # Gauss-Legendre nodes lie pi / n apart in the middle of the box, and closer at its ends.
    cut = len(rule.nodes) // 8
    return int(np.ceil(np.pi / np.min(np.diff(rule.nodes[cut : len(rule.nodes) - cut]))))


def _smallest_rule(
    log_integrand: Callable[[np.ndarray], np.ndarray], tol: float, limit: int, multiple: int
) -> Rule:
    """The smallest rule, graded or not, that integrates every line to a relative error of `tol`.

    Its size is rounded up to a multiple.
    """
    grading = grading_for(log_integrand, tol)
    graded = _fewest_nodes(log_integrand, grading.rule, tol, limit)
    try:
        even = _fewest_nodes(log_integrand, legendre_rule, tol, graded)
    except Unaffordable:
        return grading.rule(rounded_up(graded, multiple))
    return Rule(*legendre_rule(rounded_up(even, multiple)))


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

    low, high = 1, min(8, limit)
    while not ok(high):
        if high == limit:
            raise Unaffordable(f"more than {limit} nodes are needed on an axis")
        low, high = high, min(int(1.25 * high) + 1, limit)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if ok(middle) else (middle, high)
    return high
