"""Sizes from the tolerance, and refusals that can be known beforehand."""

import numpy as np

from ..._statespace.model import StateSpaceModel
from .plane.obstacles import plane_obstacle
from .trace import AdaptivePlan

# What rounding leaves of sums of a few hundred terms, carried through many steps.
LEAST_TOL = 1e-10
# How much smaller the errors of steps are in a pass made again, if they add up to more than tol.
# One more halving of a panel takes off far more.
FINER = 8.0
# Nodes of the compiled scan, and those to go on to where a step misses: a quarter of them is the
# coarsest of three rules, so that there are 4 k + 1. Two programs: more sizes in between took more
# time to compile, and to try, than they saved (sine map at 1e-3: 355 us a step, with 49 and 193
# nodes beside these 530).
_CAPACITIES = (97, 385)


def adaptive_obstacle(ssm: StateSpaceModel, tol: float) -> str | None:
    """Why steps cannot be controlled; None if they can."""
    if ssm.dim > 2:
        return f"it serves states of one or two coordinates, got {ssm.dim}"
    if not LEAST_TOL <= tol < 2:
        return (
            f"tol must be at least {LEAST_TOL:g}, got {tol:g}: rounding in double precision leaves "
            "errors of that size"
        )
    form = ssm.structure
    if form is not None and float(np.linalg.eigvalsh(np.asarray(form.Q))[0]) <= 0:
        return "Q is singular: a state that moves without noise has no density"
    return plane_obstacle(ssm) if ssm.dim == 2 else None


def plan_for(tol: float) -> AdaptivePlan:
    """The nodes of the compiled scan."""
    return AdaptivePlan(float(tol), 16.0, _CAPACITIES)
