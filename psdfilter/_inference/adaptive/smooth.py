"""Smoothing on the nodes of the filter, paths drawn backwards, and forecasts.

P(x_{t-1} = u_m | x_t = x_j, y) = v_m Q(u_m, x_j) / p(x_j): the filter's own shares. Summed over
smoothed masses of x_t they are smoothed masses of x_{t-1}: positive, and of sum one.
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from . import robust
from .reach import Frame
from .state import Law
from .tables import Source, Values
from .trace import AdaptiveTrace


class SmoothedTrace(NamedTuple):
    """Masses of x_t given all observations, on the nodes of the filter's trace.

    `errors` are the filter's own at the time, and what the backward sums add by a coarser rule.
    """

    masses: tuple[Float[np.ndarray, " n"], ...]
    errors: Float[np.ndarray, " t"]
    mean: Float[np.ndarray, "t 1"]
    covariance: Float[np.ndarray, "t 1 1"]


def smooth(values: Values, trace: AdaptiveTrace) -> SmoothedTrace:
    """omega_{t-1}(u_m) = v_m sum_j Q(u_m, x_j) omega_t(x_j) / p_t(x_j), from the last row back."""
    num = len(trace.laws)
    masses, errors = [np.zeros(0)] * num, np.zeros(num)
    mean, variance = np.zeros(num), np.zeros(num)
    omega = rough = trace.laws[-1].masses
    passed = 0.0
    for k in range(num - 1, -1, -1):
        law = trace.laws[k]
        masses[k], mean[k] = omega, omega @ law.nodes
        variance[k] = omega @ np.square(law.nodes - mean[k])
        gap = float(np.sum(np.abs(omega - rough)))
        passed = max(passed, trace.errors[k])
        errors[k] = passed + gap
        if k == 0:
            break
        omega, rough = _back(values, trace, k, (omega, rough), law)
    return SmoothedTrace(tuple(masses), errors, mean[:, None], variance[:, None, None])


def _back(
    values: Values,
    trace: AdaptiveTrace,
    k: int,
    both: tuple[np.ndarray, np.ndarray],
    law: Law,
) -> tuple[np.ndarray, np.ndarray]:
    """Smoothed masses of row k - 1, by the rule and by the coarser one inside it."""
    before = trace.laws[k - 1]
    if int(trace.hops[k]) == 0:
        return _at_nodes(law, both[0], before), _at_nodes(law, both[1], before)
    omega, rough = both
    # The coarser rule takes every other node, with the weights that it has.
    coarse = rough * law.ratios[0]
    coarse = coarse / max(float(np.sum(coarse)), 1e-300)
    sources = _chain(law, int(trace.hops[k]))
    if not np.array_equal(sources[-1].nodes, before.nodes):
        # The scan went on from the law before on nodes of its own.
        last = sources[-1]
        alike = np.ones((4, len(before.nodes)))  # backward sums look at no other rule
        sources[-1] = Source(before.nodes, before.log_masses, alike, None, last.t, last.row)
    x = law.nodes
    for source in sources:
        omega = values.pull(source, x, omega)
        coarse = values.pull(source, x, coarse)
        x = source.nodes
    total = float(np.sum(omega))
    return omega / total, coarse / max(float(np.sum(coarse)), 1e-300)


def _chain(law: Law, hops: int) -> list[Source]:
    """The measures before the last transitions, latest first."""
    out: list[Source] = []
    here: Law | None = law
    for _ in range(hops):
        assert here is not None
        assert here.source is not None
        out.append(here.source)
        here = here.before
    return out


def _at_nodes(law: Law, omega: np.ndarray, before: Law) -> np.ndarray:
    """Masses of one time moved from one set of nodes to another: cut at midpoints."""
    if len(law.nodes) == len(before.nodes) and np.array_equal(law.nodes, before.nodes):
        return omega
    place = np.clip(np.searchsorted(before.nodes, law.nodes), 1, max(1, len(before.nodes) - 1))
    if len(before.nodes) == 1:
        return np.ones(1)
    left, right = before.nodes[place - 1], before.nodes[place]
    part = np.clip((law.nodes - left) / np.maximum(right - left, 1e-300), 0.0, 1.0)
    out = np.zeros(len(before.nodes))
    np.add.at(out, place - 1, (1 - part) * omega)
    np.add.at(out, place, part * omega)
    return out


def draw_paths(
    values: Values, trace: AdaptiveTrace, rng: np.random.Generator, num: int
) -> Float[np.ndarray, "num t"]:
    """Paths of the state given all observations, drawn backwards on the nodes."""
    count = len(trace.laws)
    out = np.zeros((num, count))
    out[:, -1] = rng.choice(trace.laws[-1].nodes, size=num, p=_of_sum_one(trace.laws[-1].masses))
    for k in range(count - 1, 0, -1):
        x = out[:, k]
        if int(trace.hops[k]) == 0:
            out[:, k - 1] = x
            continue
        for source in _chain(trace.laws[k], int(trace.hops[k])):
            logs = values.log_q(source.nodes, x, source.t, source.row)
            logs = logs + source.log_masses[:, None]
            shares = np.exp(logs - np.max(logs, axis=0, keepdims=True))
            sums = np.cumsum(shares, axis=0)
            level = rng.uniform(size=num) * sums[-1]
            x = source.nodes[np.sum(sums < level[None, :], axis=0)]
        out[:, k - 1] = x
    return out


def _of_sum_one(masses: np.ndarray) -> np.ndarray:
    return masses / np.sum(masses)


def forecast(
    values: Values, frame: Frame, law: Law, times: list[tuple[int, object]], target: float
) -> list[Law]:
    """The laws of the state at steps to come, given as (t, inputs), without observations."""
    out: list[Law] = []
    for step in times:
        _, law = robust.advance(values, frame, law, step, (), robust.Wanted(target))
        out.append(law)
    return out
