"""Smoothing on the nodes of the filter, paths drawn backwards, and forecasts.

P(x_{t-1} = u_m | x_t = x_j, y) = v_m Q(u_m, x_j) / p(x_j): the filter's own shares. Summed over
smoothed masses of x_t they are smoothed masses of x_{t-1}: positive, and of sum one.
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from . import robust
from .backward import smooth_resolved
from .density import Sink
from .reach import Frame
from .rules import embedded_error
from .state import Law, relative_errors
from .tables import Source, Values
from .trace import AdaptiveTrace


class SmoothedTrace(NamedTuple):
    """Laws of x_t given all observations.

    `errors` are the filter's own at the time, and what the backward sums add by a coarser rule;
    `sinks` what comes after each law, if it is not on the filter's nodes.
    """

    laws: tuple[Law, ...]
    errors: Float[np.ndarray, " t"]
    mean: Float[np.ndarray, "t 1"]
    covariance: Float[np.ndarray, "t 1 1"]
    sinks: tuple[Sink | None, ...] | None


def smooth(values: Values, trace: AdaptiveTrace, tol: float, target: float) -> SmoothedTrace:
    """On the nodes of the filter; on others where these do not show what is asked for.

    `tol` is what a law may be off by, `target` what a row is held to.
    """
    out = _on_nodes(values, trace)
    own = out.errors - np.maximum.accumulate(trace.errors[::-1])[::-1]
    return out if np.max(own) <= tol else _resolved(values, trace, target)


def _on_nodes(values: Values, trace: AdaptiveTrace) -> SmoothedTrace:
    """omega_{t-1}(u_m) = v_m sum_j Q(u_m, x_j) omega_t(x_j) / p_t(x_j), from the last row back."""
    num = len(trace.laws)
    errors, laws = np.zeros(num), list(trace.laws)
    omega = rough = trace.laws[-1].masses
    passed = blind = 0.0
    for k in range(num - 1, -1, -1):
        law = trace.laws[k]
        blind += _blindness(values, law, omega)
        gap = max(float(np.sum(np.abs(omega - rough))), _own_error(law, omega)) + blind
        passed = max(passed, trace.errors[k])
        errors[k] = passed + gap
        laws[k] = smoothed_law(law, omega)
        if k == 0:
            break
        omega, rough = _back(values, trace, k, (omega, rough), law)
    return _told(laws, errors, None)


def _own_error(law: Law, omega: np.ndarray) -> float:
    """What the rule of the nodes misses of masses that it was not chosen for."""
    if len(omega) == 1:
        return 0.0
    sums = [float(np.sum(omega * ratios)) for ratios in law.ratios[:2]]
    return float(embedded_error(np.array(1.0 - sums[0]), np.array(sums[0] - sums[1])))


def _blindness(values: Values, law: Law, omega: np.ndarray) -> float:
    """What sums over old panels miss of p: rough transitions are integrated anew by the filter."""
    if law.source is None or law.source.smooth is None:
        return 0.0
    _, own = relative_errors(values.push(law.source, law.nodes).companions)
    return float(omega @ np.minimum(np.abs(own), 2.0))


def _resolved(values: Values, trace: AdaptiveTrace, target: float) -> SmoothedTrace:
    """On panels that are chosen for smoothed laws."""
    # Rows of one time share their law, and several transitions have laws in between.
    chain: list[Law] = []
    place = np.zeros(len(trace.laws), int)
    for k, law in enumerate(trace.laws):
        hops = int(trace.hops[k])
        if hops == 0 and chain:
            chain[-1] = law
        else:
            chain += [*_between(law, hops), law]
        place[k] = len(chain) - 1
    found = smooth_resolved(values, chain, target)
    rows = [found[i] for i in place]
    own = np.cumsum([one.error for one in found[::-1]])[::-1][place]
    passed = np.maximum.accumulate(trace.errors[::-1])[::-1]
    return _told([one.law for one in rows], passed + own, tuple(one.sink for one in rows))


def _between(law: Law, hops: int) -> list[Law]:
    """Laws between two rows, the earliest first."""
    out: list[Law] = []
    here = law.before
    while here is not None and len(out) < hops - 1:
        out.append(here)
        here = here.before
    return out[::-1]


def _told(
    laws: list[Law], errors: np.ndarray, sinks: tuple[Sink | None, ...] | None
) -> SmoothedTrace:
    mean = np.array([law.masses @ law.nodes for law in laws])
    variance = np.array(
        [law.masses @ np.square(law.nodes - m) for law, m in zip(laws, mean, strict=True)]
    )
    return SmoothedTrace(tuple(laws), errors, mean[:, None], variance[:, None, None], sinks)


def smoothed_law(law: Law, masses: Float[np.ndarray, " n"]) -> Law:
    """The law on the same nodes with other masses."""
    with np.errstate(divide="ignore"):
        return law._replace(log_masses=np.log(masses / np.sum(masses)))


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


def first_transition(
    values: Values, after: Law, log_masses: Float[np.ndarray, " n"]
) -> tuple[Source, np.ndarray, Float[np.ndarray, " m"]]:
    """The first of the transitions that end in a law, the nodes after it and masses there.

    `log_masses` are those of the law given later data; between two rows they are summed backwards.
    """
    hops, here = 1, after.before
    while here is not None:
        hops, here = hops + 1, here.before
    *later, source = _chain(after, hops)
    x, omega = after.nodes, np.exp(log_masses)
    for one in later:
        x, omega = one.nodes, values.pull(one, x, omega)
    if not later:
        return source, x, log_masses
    with np.errstate(divide="ignore"):
        return source, x, np.log(omega / np.sum(omega))


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
