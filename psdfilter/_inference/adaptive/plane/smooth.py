"""Smoothing on the nodes of the filter, paths drawn backwards, and forecasts.

P(x_{t-1} = u_m | x_t = x_j, y) = v_m Q(u_m, x_j) / p(x_j): the filter's own shares.
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from ...._statespace.model import Inputs
from .chain import Chain
from .law import Law
from .steps import Wanted, build, depth_for
from .sums import Source, pulled, shares_of
from .values import PlaneValues


def sources_of(law: Law, hops: int) -> list[tuple[Source, np.ndarray]]:
    """The measures before the last transitions and the nodes after them, latest first."""
    out: list[tuple[Source, np.ndarray]] = []
    here: Law | None = law
    for _ in range(hops):
        assert here is not None
        assert here.source is not None
        out.append((here.source, here.nodes))
        here = here.before
    return out


def _back(values: PlaneValues, law: Law, hops: int, before: Law) -> Law:
    """The law before some transitions, with smoothed masses, from that after them."""
    omega = law.masses
    steps = sources_of(law, hops)
    last, nodes = steps[-1]
    if len(last.nodes) != len(before.place):
        # The law before was refined since.
        steps[-1] = before.as_source(values, last.t, last.row), nodes
    for source, nodes in steps:
        omega = pulled(values, source, nodes, omega)
    return with_masses(before, omega)


def first_transition(
    values: PlaneValues, after: Law
) -> tuple[Source, np.ndarray, Float[np.ndarray, " m"]]:
    """The first of the transitions that end in a law, the nodes after it and masses there.

    Between two rows the masses of the law, given later data, are summed backwards.
    """
    hops, here = 1, after.before
    while here is not None:
        hops, here = hops + 1, here.before
    *later, (source, nodes) = sources_of(after, hops)
    if not later:
        return source, nodes, after.log_masses
    omega = after.masses
    for one, at in later:
        omega = pulled(values, one, at, omega)
    with np.errstate(divide="ignore"):
        return source, nodes, np.log(omega / np.sum(omega))


def with_masses(law: Law, masses: Float[np.ndarray, " n"]) -> Law:
    """The law on the same nodes with other masses."""
    with np.errstate(divide="ignore"):
        return law._replace(log_masses=np.log(masses / np.sum(masses)))


class Smoothed(NamedTuple):
    """The law of x_t given what was seen later, and that of the next row given the same."""

    law: Law
    after: Law | None


def smoothed(values: PlaneValues, chain: Chain, lag: int | None) -> list[Smoothed]:
    """Laws of x_t given all observations, or those up to `lag` rows later, on the filter's nodes.

    Rows of one time share the law of the last of them.
    """
    num = len(chain.links)
    if lag is None:
        laws = _backwards(values, chain, num - 1, 0)
        return [Smoothed(*both) for both in zip(laws, [*laws[1:], None], strict=True)]
    out = []
    for t in range(num):
        laws = _backwards(values, chain, min(t + lag, num - 1), t)
        out.append(Smoothed(laws[0], laws[1] if len(laws) > 1 else None))
    return out


def _backwards(values: PlaneValues, chain: Chain, last: int, first: int) -> list[Law]:
    """The laws of some rows given what was seen until the last of them."""
    out = [chain.links[last].law]
    for k in range(last, first, -1):
        hops, before = chain.links[k].step.hops, chain.links[k - 1].law
        out.append(out[-1] if hops == 0 else _back(values, out[-1], hops, before))
    return out[::-1]


def draw_paths(
    values: PlaneValues, chain: Chain, rng: np.random.Generator, num: int
) -> Float[np.ndarray, "num t 2"]:
    """Paths of the state given all observations, in z, drawn backwards on the nodes."""
    links = chain.links
    out = np.zeros((num, len(links), 2))
    law = links[-1].law
    masses = law.masses / np.sum(law.masses)
    out[:, -1] = law.nodes[rng.choice(len(masses), size=num, p=masses)]
    for k in range(len(links) - 1, 0, -1):
        z, hops = out[:, k], links[k].step.hops
        for source, _ in sources_of(law, hops):
            z = source.nodes[_picked(values, source, z, rng)]
        law = law if hops == 0 else links[k - 1].law
        out[:, k - 1] = z
    return out


def _picked(values: PlaneValues, source: Source, z: np.ndarray, rng: np.random.Generator):
    picked = np.zeros(len(z), int)
    size = values.blocks(len(source.nodes), len(z))
    for k in range(0, len(z), size):
        sums = np.cumsum(shares_of(values, source, z[k : k + size])[0], axis=0)
        level = rng.uniform(size=sums.shape[1]) * sums[-1]
        picked[k : k + size] = np.sum(sums < level[None, :], axis=0)
    return picked


def forecast(
    values: PlaneValues, law: Law, times: list[tuple[int, Inputs]], target: float
) -> list[Law]:
    """The laws of the state at steps to come, given as (t, inputs), without observations."""
    out: list[Law] = []
    for at in times:
        law = build(values, law, at, (), Wanted(target, depth_for(target)))[1]
        out.append(law)
    return out
