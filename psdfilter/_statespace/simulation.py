"""Paths of a model that can be sampled, and the box that holds them."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from .._checks import is_concrete
from .._density.box import Box
from .boxes import box_of_paths
from .coordinates import Coordinates
from .functions import Row, call
from .tails import Densities, tail_box

# Where the state usually is, as for `additive_gaussian`.
_CHAINS, _STEPS, _SEED = 512, 64, 20_240_101
_LEAK, _MARGIN = 1e-4, 0.15

Samplers = tuple[Callable[..., Any], Callable[..., Any], Callable[..., Any] | None]


def simulate(
    samplers: Samplers,
    rows: Row,
    key: PRNGKeyArray,
    first_y: Float[Array, " p"] | None,
    start_observed: bool = False,
) -> tuple[Float[Array, "t d"], Float[Array, "t p"] | None]:
    """One path: states after 1, 2, ... transitions and what is seen of them.

    Args:
        samplers: of the prior, the transition and the observation.
        rows: what belongs to the steps, as leaves with a leading axis; `last_y` is filled in.
        key: random key.
        first_y: the observation before the first.
        start_observed: the first row is that of the prior's state itself.
    """
    prior, transition, observation = samplers
    start, rest = jax.random.split(key)
    assert rows.dt is not None
    num = len(rows.dt)

    def see(one: PRNGKeyArray, x: Array, t: Array, row: Row) -> Array:
        if observation is None:
            return jnp.zeros(1)
        drawn = call(observation, one, x, t=t, inputs=row)
        return jnp.asarray(drawn, dtype=jnp.float64).reshape(-1)

    def step(carry: tuple[Array, Array], at: Any) -> tuple[Any, Any]:
        u, y = carry
        t, row, one = at
        row = row._replace(last_y=y)
        keys = jax.random.split(one)
        moved = call(transition, keys[0], u, t=t, inputs=row)
        x = jnp.asarray(moved, dtype=jnp.float64).reshape(-1)
        x = jnp.where((t == 0) & start_observed, u, x)
        seen = see(keys[1], x, t, row)
        return (x, seen), (x, seen)

    x0 = jnp.asarray(call(prior, start), dtype=jnp.float64).reshape(-1)
    before = jnp.zeros(1) if first_y is None else first_y
    times = jnp.arange(num) + (0 if start_observed else 1)
    at = times, rows, jax.random.split(rest, num)
    _, (states, seen) = jax.lax.scan(step, (x0, before), at)
    return states, None if observation is None else seen


@eqx.filter_jit
def _paths(samplers: Samplers, row: Row, first_y: Array | None) -> Float[Array, "n t d"]:
    rows = jax.tree.map(lambda a: jnp.broadcast_to(a, (_STEPS, *jnp.shape(a))), row)
    keys = jax.random.split(jax.random.key(_SEED), _CHAINS)

    def one(key: PRNGKeyArray) -> Array:
        starts = jnp.asarray(call(samplers[0], jax.random.split(key)[0]), dtype=jnp.float64)
        states, _ = simulate(samplers, rows, key, first_y)
        return jnp.concatenate([starts.reshape(1, -1), states])

    return jax.vmap(one)(keys)


def typical_boxes(
    samplers: Samplers, densities: Densities, row: Row, first_y: Array | None
) -> tuple[Box, Box | None]:
    """Where simulated states are, and a box beyond which there is nothing, in user units.

    Quantiles in coordinates without walls. Bounds of traced models are traced, and constants for
    differentiation; their tails are not looked at.
    """
    coordinates = densities.coordinates
    paths = jax.lax.stop_gradient(coordinates.from_user(_paths(samplers, row, first_y)))
    if not is_concrete(paths):
        points = paths.reshape(-1, paths.shape[-1])
        tail = 0.5 * _LEAK / points.shape[1]
        low, high = jnp.quantile(points, jnp.asarray([tail, 1 - tail]), axis=0)
        margin = _MARGIN * (high - low)
        return _in_units(coordinates, Box(low - margin, high + margin)), None
    known = np.asarray(paths)
    # Draws of a prior that reaches beyond the support: there is none of it there.
    inside = np.all(np.isfinite(known[:, 0]), axis=1)
    paths = paths[inside] if np.mean(inside) > 0.5 else paths
    box = box_of_paths(np.asarray(paths))
    wide = tail_box(box, densities, (paths[:, -2], paths[:, -1]))
    return _in_units(coordinates, box), _in_units(coordinates, wide)


def _in_units(coordinates: Coordinates, box: Box) -> Box:
    ends = [axis.reach for axis in coordinates.axes]
    low = jnp.maximum(box.lower, jnp.stack([jnp.asarray(a, dtype=jnp.float64) for a, _ in ends]))
    high = jnp.minimum(box.upper, jnp.stack([jnp.asarray(b, dtype=jnp.float64) for _, b in ends]))
    return Box(coordinates.to_user(low), coordinates.to_user(high))
