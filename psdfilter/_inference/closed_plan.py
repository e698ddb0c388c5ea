"""One grid per axis for everything a closed-form filter learns, from a tolerance."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from .._checks import require_x64
from .._density.box import Box
from .._learning.axes import Axis
from .._learning.sizing import oversampling_for, pad_for, ridge_for, spread_for
from .._statespace.model import Inputs, StateSpaceModel
from .closed import ClosedModel
from .hosted import one_step_error
from .plan import AxisRegression, Plan, TransitionPlan, Unaffordable, assemble
from .resizing import paths_of_data
from .sizing import node_counts, observation_plan, prior_plan, transition_plan
from .typical import TypicalPaths, simulate_typical

# Below this the coefficients are so large that sums of signed terms lose the digits asked for.
_LEAST_SPREAD = 0.2
_LEAST_TOL = 1e-7
# Largest number of multiply-adds of a' W a.
_MAX_WORK = 2e10


@dataclass(frozen=True)
class ClosedReport:
    """Sizes and measured errors of a model for the closed-form filter.

    Attributes:
        tol: the tolerance asked for.
        anchors: anchors on each axis, the same for u, x, sqrt G and the prior.
        spread: eta h^2.
        one_step_error: largest int |Q - Q^|(u, x) dx over typical states u.
        coefficient_norm: |a|_1; rounding of a step grows with its fourth power.
        leak: share of mass that leaves the box in a step, from typical states.
        seconds: time of learning.
        time_varying: whether Q is learned anew at every step.
    """

    tol: float
    anchors: tuple[int, ...]
    spread: float
    one_step_error: float
    coefficient_norm: float
    leak: float
    seconds: float
    time_varying: bool

    def __str__(self) -> str:
        grid = " x ".join(map(str, self.anchors))
        lines = [
            "engine               closed, error functions on grid midpoints",
            f"tolerance            {self.tol:.1e} (total variation of the filter)",
            f"anchors              {grid} for u, x, sqrt G and the prior, eta h^2 = "
            f"{self.spread:.2f}" + ("  (filled at every step)" if self.time_varying else ""),
            f"one-step error of Q  {self.one_step_error:.1e} (largest over typical states)",
            f"|a|_1                {self.coefficient_norm:.1e}",
            f"leak per step        {self.leak:.1e}",
            f"learned in           {self.seconds:.2f} s",
        ]
        return "\n".join(lines)


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


def learn_closed(
    ssm: StateSpaceModel, tol: float = 1e-3, *, ys: Any = None, inputs: Inputs = None
) -> ClosedModel:
    """Learn Q and the prior on one grid per axis, for a filter without quadrature.

    For states of one or two coordinates; `tol` is the total variation error of the filter. `ys` are
    typical observations, by which the grid is sized beside the model's own simulations.
    """
    require_x64()
    if ssm.dim > 2:
        raise ValueError(f'engine "closed" serves states of 1 or 2 coordinates, got {ssm.dim}')
    if not _LEAST_TOL <= tol < 2:
        raise ValueError(
            f'engine "closed" sums signed terms: tol must lie in [{_LEAST_TOL:g}, 2), got {tol!r}; '
            'engine "nodes" has no such floor'
        )
    started = time.perf_counter()
    paths = simulate_typical(ssm, inputs=inputs)
    axes = shared_axes(ssm, paths, 0.1 * float(tol), inputs)
    model = _closed_model(ssm, axes, paths, float(tol), inputs, started)
    if ys is None:
        return model
    seen = paths_of_data(model.on_nodes(), ys, inputs)
    if seen is None:
        return model
    again = shared_axes(ssm, seen, 0.1 * float(tol), inputs)
    if paths.observations is not None:
        # Simulations and data both count: the larger grid serves both.
        again = tuple(
            max(pair, key=lambda axis: axis.num) for pair in zip(axes, again, strict=True)
        )
    return _closed_model(ssm, again, paths._replace(leak=seen.leak), float(tol), inputs, started)


def _closed_model(
    ssm: StateSpaceModel,
    axes: tuple[Axis, ...],
    paths: TypicalPaths,
    tol: float,
    inputs: Inputs,
    started: float,
) -> ClosedModel:
    """Fill a grid, and say what it is."""
    order = prod(axis.num for axis in axes)
    if ssm.dim > 1 and 4.0 * order**3 > _MAX_WORK:
        sizes = " x ".join(str(axis.num) for axis in axes)
        raise Unaffordable(
            f"tol = {tol:g} needs {sizes} anchors, and a closed step "
            f"on them {4.0 * order**3:.1g} multiply-adds, above the limit of {_MAX_WORK:.1g}. "
            'Raise tol, or take engine "nodes"'
        )
    plan = shared_plan(ssm.state_box, axes, tol)
    error, norm = one_step_error(plan, ssm, paths, inputs)
    report = ClosedReport(
        tol=tol,
        anchors=tuple(axis.num for axis in axes),
        spread=axes[0].spread,
        one_step_error=error,
        coefficient_norm=norm,
        leak=paths.leak,
        seconds=time.perf_counter() - started,
        time_varying=ssm.is_time_varying,
    )
    return ClosedModel.make(ssm, plan, report)
