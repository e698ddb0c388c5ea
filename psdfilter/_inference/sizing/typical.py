"""Where the state goes: simulated paths on the box, by which a filter is sized.

The sup error over the whole box is the wrong thing to size by, because corners that the state never
visits are often the steepest. Paths need no sampler from the user: each axis is drawn by inverting
the distribution function of the transition density on a fine grid.
"""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from ..._density.box import Box
from ..._statespace.functions import AbstractFunction, Inputs, call
from ..._statespace.hoisting import hoisted_function
from ..._statespace.model import StateSpaceModel
from ..._statespace.pairs import inputs_at, log_prior_points, log_transition_pairs

# By dimension: 500 to 40 000 values of the prior, and for a group of axes at most 1728 of Q
# from each of 32 states. Draws are spread over their cells, so that coarse ones serve.
_PRIOR_CELLS = {1: 512, 2: 64, 3: 24, 4: 14}
_STEP_CELLS = {1: 512, 2: 40}
# Plans are the same for the same model.
_SEED = 20_240_101
# A state has left the box if no more of its next law than this lies on it.
_LEFT = 1e-6


class TypicalPaths(NamedTuple):
    """States (chains, steps, d) in user units, first one from the prior; observations if known.

    `leak` is the share of mass that a step from these states sends out of the box, on average;
    `mass` what it has on the box, roughly: sums over cells are right on average only.
    """

    states: Float[np.ndarray, "c s d"]
    observations: Float[np.ndarray, "c s p"] | None
    leak: float
    mass: float = 1.0


def transition_groups(ssm: StateSpaceModel) -> tuple[tuple[int, ...], ...]:
    """The axes of x that share a factor of Q: one each if the noise is independent."""
    if ssm.log_transition_axis is not None and ssm.dim > 1:
        return tuple((i,) for i in range(ssm.dim))
    return (tuple(range(ssm.dim)),)


def _cell_centers(box: Box, axes: tuple[int, ...], cells: int) -> Float[np.ndarray, "n g"]:
    unit = (np.arange(cells) + 0.5) / cells
    low, high = np.asarray(box.lower), np.asarray(box.upper)
    mesh = np.meshgrid(*(low[a] + (high[a] - low[a]) * unit for a in axes), indexing="ij")
    return np.stack([m.ravel() for m in mesh], axis=-1)


def _draw_cells(
    log_values: Float[np.ndarray, "c n"], rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """An index for each row, drawn from exp(log_values); and the rows' log-sums."""
    peak = np.max(log_values, axis=1, keepdims=True)
    weights = np.exp(log_values - np.where(np.isfinite(peak), peak, 0.0))
    totals = weights.sum(axis=1)
    cumulative = np.cumsum(weights, axis=1) / np.where(totals > 0, totals, 1.0)[:, None]
    index = (cumulative < rng.uniform(size=(len(totals), 1))).sum(axis=1)
    with np.errstate(divide="ignore"):
        sums = np.log(totals) + peak[:, 0]
    return np.minimum(index, log_values.shape[1] - 1), sums


def draw_prior(
    ssm: StateSpaceModel, num: int, rng: np.random.Generator | None = None
) -> Float[np.ndarray, "n d"]:
    """States from the prior, to within cells of the box."""
    rng = np.random.default_rng(_SEED) if rng is None else rng
    box, dim = ssm.state_box, ssm.dim
    cells = _PRIOR_CELLS.get(dim, 10)
    points = _cell_centers(box, tuple(range(dim)), cells)
    logs = log_prior_points(ssm, points)
    if not np.any(np.isfinite(logs)):
        raise ValueError(
            "log_prior must put mass on state_box, but it is -inf or NaN at every point tried: is "
            f"the box [{np.asarray(box.lower)}, {np.asarray(box.upper)}] the right one?"
        )
    logs = np.where(np.isnan(logs), -np.inf, logs)
    index, _ = _draw_cells(np.broadcast_to(logs, (num, logs.size)), rng)
    width = np.asarray(box.upper) - np.asarray(box.lower)
    return points[index] + (rng.uniform(size=(num, dim)) - 0.5) * width / cells


def simulate_typical(
    ssm: StateSpaceModel, *, inputs: Inputs = None, num_chains: int = 32, num_steps: int = 20
) -> TypicalPaths:
    """Seeded paths of the model restricted to its box."""
    rng = np.random.default_rng(_SEED)
    box, groups = ssm.state_box, transition_groups(ssm)
    width = np.asarray(box.upper) - np.asarray(box.lower)
    cells = _STEP_CELLS.get(max(len(g) for g in groups), 12)
    targets = [_cell_centers(box, group, cells) for group in groups]
    states, kept = [draw_prior(ssm, num_chains, rng)], []
    for t in range(1, num_steps):
        old, new = states[-1], np.empty_like(states[-1])
        mass = np.zeros(num_chains)
        for group, target in zip(groups, targets, strict=True):
            u = np.repeat(old, len(target), axis=0)
            x = np.tile(target, (num_chains, 1))
            table = log_transition_pairs(ssm, group, u, x, np.full(len(u), t), inputs)
            check_logs("log_transition", table, u=u, x=x)
            index, log_sums = _draw_cells(table.reshape(num_chains, -1), rng)
            shift = (rng.uniform(size=(num_chains, len(group))) - 0.5) / cells
            new[:, list(group)] = target[index] + shift * width[list(group)]
            mass += log_sums + np.sum(np.log(width[list(group)] / cells))
        kept.append(np.exp(mass))
        # A chain that the model throws out of the box starts again from the prior.
        lost = ~(mass > np.log(_LEFT))
        new[lost] = states[0][lost]
        states.append(new)
    path = np.stack(states, axis=1)
    leak = float(1.0 - np.mean(np.minimum(kept, 1.0)))
    return TypicalPaths(path, _observe(ssm, path, rng, inputs), leak, float(np.mean(kept)))


def check_logs(name: str, logs: np.ndarray, **points: np.ndarray) -> None:
    """Refuse NaN and +inf, naming the point."""
    bad = np.isnan(logs) | (logs == np.inf)
    if bad.any():
        i = int(np.flatnonzero(bad)[0])
        where = ", ".join(f"{key} = {value[i]}" for key, value in points.items())
        raise ValueError(f"{name} must be finite or -inf, got {logs[i]} at {where}")


def _observe(
    ssm: StateSpaceModel, path: np.ndarray, rng: np.random.Generator, inputs: Inputs
) -> np.ndarray | None:
    """Observations of all states, if the model can be sampled."""
    if ssm.sample_observation is None:
        return None
    chains, steps, dim = path.shape
    flat, times = path.reshape(-1, dim), np.tile(np.arange(steps), chains)
    sampler = ssm.sample_observation
    if ssm.vectorized:
        drawn = [call(sampler, rng, x, t=int(t)) for x, t in zip(flat, times, strict=True)]
        values = np.stack([np.atleast_1d(np.asarray(y, dtype=float)) for y in drawn])
    else:
        seed = jnp.asarray(rng.integers(2**31))
        shared = hoisted_function(sampler, jax.random.key(0), flat[0], t=1, inputs=inputs)
        rows = jnp.asarray(times), inputs_at(inputs, times)
        values = _drawn(shared, seed, jnp.asarray(flat), *rows)
    return np.asarray(values, dtype=float).reshape(chains, steps, -1)


@eqx.filter_jit
def _drawn(
    sampler: AbstractFunction,
    seed: Int[Array, ""],
    points: Float[Array, "n d"],
    times: Int[Array, " n"],
    rows: Inputs,
) -> Float[Array, "n p"]:
    """An observation of every point; compiled once for all models of the same code."""

    def one(key: Array, x: Array, t: Array, row: Inputs) -> Array:
        return jnp.asarray(call(sampler, key, x, t=t, inputs=row), dtype=float).reshape(-1)

    return jax.vmap(one)(jax.random.split(jax.random.key(seed), len(points)), points, times, rows)
