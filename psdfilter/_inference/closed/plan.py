"""One grid per axis for everything a closed-form filter learns, from a tolerance."""

from collections.abc import Sequence
from math import prod

import numpy as np

from ..._checks import Numbers
from ..._density.box import Box
from ..._learning.axes import Axis
from ..._learning.sizing import oversampling_for, pad_for, ridge_for, spread_for
from ..._statespace.model import Inputs, StateSpaceModel
from ..nodes.filled import Filled
from ..nodes.learn import paths_of_data
from ..series import as_series
from ..sizing.host import fill
from ..sizing.make import node_counts, observation_plan, prior_plan, transition_plan
from ..sizing.plan import AxisRegression, Plan, TransitionPlan, Unaffordable, assemble
from ..sizing.typical import TypicalPaths, simulate_typical

# Below this the coefficients are so large that sums of signed terms lose the digits asked for.
_LEAST_SPREAD = 0.2
LEAST_TOL = 1e-7
# Largest number of multiply-adds of a' W a.
_MAX_WORK = 2e10


def shared_plan(
    box: Box,
    axes: Sequence[Axis],
    tol: float,
    *,
    ridge: float | None = None,
    counts: Sequence[int] | None = None,
) -> Plan:
    """A plan whose transition, observation and prior share the anchors `axes`.

    Its nodes serve what is not closed form (quantiles, the smoother); by default 10 + 4 sqrt(kappa)
    with kappa = 6 eta, the precision of an integrand of a step.
    """
    ridge = ridge_for(0.1 * tol) if ridge is None else ridge
    regressions = tuple(AxisRegression.make(axis, axis.nodes, ridge) for axis in axes)
    if counts is None:
        counts = [int(np.ceil(10 + 4 * np.sqrt(6 * axis.precision))) for axis in axes]
    every = tuple(range(box.dim))
    part = TransitionPlan(every, every, regressions, regressions)
    return assemble(box, counts, (part,), regressions, regressions, tol)


def shared_axes(
    ssm: StateSpaceModel, paths: TypicalPaths, tol: float, inputs: Inputs = None
) -> tuple[Axis, ...]:
    """For each axis the grid that the most demanding of Q in u, Q in x, sqrt G, prior needs."""
    every = tuple(range(ssm.dim))
    part = transition_plan(ssm, every, paths, tol, inputs)
    counts = [0] * ssm.dim
    if paths.observations is None:
        counts = node_counts(ssm, paths, 0.3 * tol, inputs, (every,))
    parts = [
        dict(zip(part.given, part.given_regressions, strict=True)),
        dict(enumerate(part.group_regressions)),
        dict(enumerate(observation_plan(ssm, paths, counts, tol, inputs))),
        dict(enumerate(prior_plan(ssm, paths, tol))),
    ]
    spread = max(spread_for(tol), _LEAST_SPREAD)
    pad = pad_for(tol, spread)
    nums = [max(p[a].anchors.shape[0] for p in parts if a in p) for a in every]
    return tuple(Axis.padded(n, spread, pad, oversampling_for(2 * ssm.dim)) for n in nums)


def closed_obstacle(ssm: StateSpaceModel, tol: float) -> str | None:
    """Why error functions cannot serve; None if they can."""
    if ssm.dim > 2:
        return f"it serves states of 1 or 2 coordinates, got {ssm.dim}"
    if not LEAST_TOL <= tol < 2:
        return (
            f"it sums signed terms: tol must lie in [{LEAST_TOL:g}, 2), got {tol!r}; engine "
            '"nodes" has no such floor'
        )
    return None


def learn_axes(
    ssm: StateSpaceModel, tol: float, ys: Numbers | None, inputs: Inputs
) -> tuple[tuple[Axis, ...], TypicalPaths]:
    """One grid per axis for a total variation error `tol` of the filter, and where states go.

    `ys` are typical observations, by which the grid is sized beside the model's own simulations.
    """
    paths = simulate_typical(ssm, inputs=inputs)
    axes = shared_axes(ssm, paths, 0.1 * tol, inputs)
    _check_work(ssm, axes, tol)
    if ys is None:
        return axes, paths
    plan = shared_plan(ssm.state_box, axes, tol)
    filled = Filled(ssm, plan, *fill(plan, ssm, False))
    seen = paths_of_data(filled, as_series(ys, ssm.num_observed, inputs=inputs))
    if seen is None:
        return axes, paths
    again = shared_axes(ssm, seen, 0.1 * tol, inputs)
    if paths.observations is not None:
        # Simulations and data both count: the larger grid serves both.
        again = tuple(
            max(pair, key=lambda axis: axis.num) for pair in zip(axes, again, strict=True)
        )
    _check_work(ssm, again, tol)
    return again, paths._replace(leak=seen.leak)


def _check_work(ssm: StateSpaceModel, axes: Sequence[Axis], tol: float) -> None:
    order = prod(axis.num for axis in axes)
    if ssm.dim > 1 and 4.0 * order**3 > _MAX_WORK:
        sizes = " x ".join(str(axis.num) for axis in axes)
        raise Unaffordable(
            f"tol = {tol:g} needs {sizes} anchors, and a closed step "
            f"on them {4.0 * order**3:.1g} multiply-adds, above the limit of {_MAX_WORK:.1g}. "
            'Raise tol, or take engine "nodes"'
        )
