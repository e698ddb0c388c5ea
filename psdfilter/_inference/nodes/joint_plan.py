"""From a tolerance to a model of (x, y): where observations lie, and how many anchors they need."""

import jax
import jax.numpy as jnp
import numpy as np

from ..._density.anchors import TensorGrid
from ..._density.box import Box
from ..._learning.sizing import ridge_for
from ..._statespace.model import (
    Inputs,
    StateSpaceModel,
    keywords_of,
    log_observation_grid,
    observation_box,
)
from ..._statespace.pairs import log_observation_pairs
from ..sizing.lines import Lines, axis_discount, smallest_axis
from ..sizing.plan import AxisRegression, Plan
from ..sizing.typical import TypicalPaths, check_logs
from .joint import JointObservation

# Cells on each axis of the box of y, for drawing typical observations.
_CELLS = {1: 384, 2: 48, 3: 14}
_MAX_COEFFICIENTS = 2e7


def observed_paths(ssm: StateSpaceModel, paths: TypicalPaths, inputs: Inputs) -> TypicalPaths:
    """Paths with observations inside `observation_box`, drawn on cells of it if need be."""
    box = observation_box(ssm, 'observation="joint"')
    _refuse_varying(ssm, paths, inputs)
    if paths.observations is not None:
        if paths.observations.shape[-1] != box.dim:
            raise ValueError(
                f"observation_box must have {paths.observations.shape[-1]} coordinates, as the "
                f"observations have, got {box.dim}"
            )
        seen = np.clip(paths.observations, np.asarray(box.lower), np.asarray(box.upper))
        return paths._replace(observations=seen)
    return paths._replace(observations=_draw_observations(ssm, paths, box))


def _refuse_varying(ssm: StateSpaceModel, paths: TypicalPaths, inputs: Inputs) -> None:
    """One G^ for all times: a G that differs from time to time has none."""
    names = keywords_of(ssm.log_observation)
    if "inputs" in names and inputs is not None:
        raise ValueError(
            'observation="joint" needs a log_observation that takes no inputs: one model of (x, y) '
            'is learned for all times. Take observation="each"'
        )
    if "t" not in names:
        return
    box, rng = observation_box(ssm, 'observation="joint"'), np.random.default_rng(7)
    x = paths.states.reshape(-1, ssm.dim)[:64]
    y = rng.uniform(np.asarray(box.lower), np.asarray(box.upper), (len(x), box.dim))
    tables = [log_observation_pairs(ssm, x, y, np.full(len(x), t)) for t in (1, 2, 7)]
    if not all(np.array_equal(tables[0], table, equal_nan=True) for table in tables[1:]):
        raise ValueError(
            'observation="joint" needs a log_observation that does not vary in time: one model of '
            '(x, y) is learned for all times. Take observation="each"'
        )


def _draw_observations(ssm: StateSpaceModel, paths: TypicalPaths, box: Box) -> np.ndarray:
    """y ~ G(x, .) on cells of the box of y, for every typical state."""
    rng = np.random.default_rng(20_240_101)
    cells = _CELLS[box.dim]
    unit = (np.arange(cells) + 0.5) / cells
    low, width = np.asarray(box.lower), np.asarray(box.upper - box.lower)
    points = np.asarray(TensorGrid([low[a] + width[a] * unit for a in range(box.dim)]).points())
    chains, steps, _ = paths.states.shape
    seen = np.empty((chains, steps, box.dim))
    t = 1 if "t" in keywords_of(ssm.log_observation) else None
    seen_at = jnp.asarray(points)
    table = jax.jit(lambda x: log_observation_grid(ssm, x, seen_at, t, None))
    for s in range(steps):
        x = jnp.asarray(paths.states[:, s])
        logs = table(x) if not ssm.vectorized else log_observation_grid(ssm, x, seen_at, t, None)
        logs = np.where(np.isnan(logs), -np.inf, np.asarray(logs))
        peak = np.max(logs, axis=1, keepdims=True)
        weights = np.exp(logs - np.where(np.isfinite(peak), peak, 0.0))
        total = np.cumsum(weights, axis=1)
        level = rng.uniform(size=(chains, 1)) * total[:, -1:]
        index = np.minimum((total < level).sum(axis=1), len(points) - 1)
        shift = (rng.uniform(size=(chains, box.dim)) - 0.5) / cells
        seen[:, s] = points[index] + shift * width
    return seen


def learn_joint(
    plan: Plan, ssm: StateSpaceModel, paths: TypicalPaths, inputs: Inputs
) -> JointObservation:
    """Anchors of y sized on lines through typical (x, y), then one regression for all of G."""
    box = observation_box(ssm, 'observation="joint"')
    tol = 0.1 * plan.tol
    regressions = []
    for axis in range(box.dim):
        lines = _observation_lines(ssm, paths, box, axis, inputs)
        design = smallest_axis(lines, tol, 400 if box.dim == 1 else 120, f"sqrt G in y[{axis}]")
        regressions.append(AxisRegression.make(design, design.nodes, ridge_for(tol)))
    size = float(np.prod([r.nodes.shape[0] for r in (*plan.observation, *regressions)]))
    if size > _MAX_COEFFICIENTS:
        raise ValueError(
            f'observation="joint" needs {size:.1g} values of G for tol = {plan.tol:g}, more than '
            f'{_MAX_COEFFICIENTS:.1g}. Raise tol, or take observation="each"'
        )
    return JointObservation.make(plan, ssm, box, tuple(regressions))


def _observation_lines(
    ssm: StateSpaceModel, paths: TypicalPaths, box: Box, axis: int, inputs: Inputs
) -> Lines:
    assert paths.observations is not None
    states = paths.states.reshape(-1, ssm.dim)
    seen = paths.observations.reshape(len(states), -1)
    pick = np.linspace(0, len(states) - 1, min(48, len(states))).astype(int)
    states, seen = states[pick], seen[pick]
    times = np.ones(len(pick), dtype=int)
    own = log_observation_pairs(ssm, states, seen, times, inputs)
    center, half = float(box.center[axis]), float(box.half_width[axis])

    def values(nodes: np.ndarray) -> np.ndarray:
        y = np.repeat(seen[:, None, :], len(nodes), axis=1)
        y[:, :, axis] = center + half * nodes
        flat = y.reshape(-1, box.dim)
        x, t = np.repeat(states, len(nodes), axis=0), np.repeat(times, len(nodes))
        logs = log_observation_pairs(ssm, x, flat, t, inputs)
        check_logs("log_observation", logs, x=x, y=flat)
        logs = logs.reshape(len(pick), -1)
        return np.exp(0.5 * (logs - np.maximum(own, np.max(logs, axis=1))[:, None])).T

    return Lines(values, axis_discount(box, paths._replace(states=paths.observations), axis))
