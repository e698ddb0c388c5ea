"""How closely a series is looked at, and what to change where that is not enough."""

from typing import NamedTuple

import numpy as np

from .run import Kept
from .space import Space

# The most nodes of an axis, by the number of coordinates.
MOST = {1: 2048, 2: 64}
# What windows leave out: no less than a double can hold.
_LEAST_EPS = 1e-280


class Plan(NamedTuple):
    """Nodes of each axis, and the mass that windows leave out, to begin with."""

    num: int
    eps: float
    sensors: int = 1  # rows of one time, of the series that it was made for


def next_plan(tol: float, dim: int, plan: Plan, kept: Kept) -> Plan | None:
    """What to change where a series misses the tolerance; None if it does not, or nothing helps."""
    errors, own, edge = (np.asarray(a) for a in (kept.error, kept.own, kept.edge))
    if not np.any(errors > tol):
        return None
    num, eps, most = plan.num, plan.eps, MOST[dim]
    nodes, beyond = own.max(), edge.max()
    if nodes >= 0.1 * beyond or nodes > tol / 16:
        factor = 4 if nodes > 30 * tol and dim == 1 else 2
        num = min(num * factor, most)
    if beyond >= 0.1 * nodes or beyond > tol / 16:
        # Twice as deep in logs: Gaussian windows grow by 1.4.
        eps = max(eps * eps, _LEAST_EPS)
    changed = plan._replace(num=num, eps=eps)
    return None if changed == plan else changed


def num_of(space: Space, size: int) -> int:
    """Nodes of each axis, one aside between walls, of a lattice of so many."""
    for num in range(4, size + 1, 4):
        sizes = [num + 1 if kind == "walls" else num for kind in space.kinds]
        if int(np.prod(sizes)) == size:
            return num
    raise AssertionError(size)
