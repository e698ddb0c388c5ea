"""How far the tails of a model reach: a box that cuts nothing off, from its densities."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .._density.box import Box
from .coordinates import Coordinates
from .functions import AbstractFunction, Row, call

# Nats that densities have fallen by where they are cut off, and how many half-widths of the box of
# simulated states that may be away from its middle.
_DROP, _FAR = 20.0, 40.0
# Lines through so many simulated pairs of states; points inside of the box and to each side.
_PAIRS, _INNER, _OUTER = 64, 64, 65

Pairs = tuple[Float[Array, "n d"], Float[Array, "n d"]]


class Densities(eqx.Module):
    """Prior and transition in coordinates without walls, at a typical step."""

    log_prior: AbstractFunction
    log_transition: AbstractFunction
    coordinates: Coordinates
    row: Row

    def along(self, u: Array, z: Array, axis: int, points: Array) -> Float[Array, "2 k"]:
        """log p_0 and log Q(u, .) on a line through z."""

        def one(value: Array) -> Array:
            at = z.at[axis].set(value)
            x, slope = self.coordinates.to_user(at), self.coordinates.log_slope(at)
            old = self.coordinates.to_user(u)
            moved = call(self.log_transition, old, x, t=1, inputs=self.row)
            return jnp.stack([self.log_prior(x).reshape(()), moved.reshape(())]) + slope

        return jax.vmap(one, out_axes=1)(points)


@eqx.filter_jit
def _lines(densities: Densities, pairs: Pairs, axis: int, points: Array) -> Float[Array, "n 2 k"]:
    return jax.vmap(lambda u, z: densities.along(u, z, axis, points))(*pairs)


def tail_box(box: Box, densities: Densities, pairs: Pairs) -> Box:
    """The box widened until prior and transitions have fallen by 20 nats on all lines.

    Args:
        box: where states usually are, in coordinates without walls.
        densities: what is looked at.
        pairs: old and new states in these coordinates.
    """
    some = jnp.asarray(pairs[0])[:_PAIRS], jnp.asarray(pairs[1])[:_PAIRS]
    low, high = np.array(box.lower), np.array(box.upper)
    for axis, own in enumerate(densities.coordinates.axes):
        center, half = float(box.center[axis]), float(box.half_width[axis])
        least, most = (float(end) for end in own.reach)
        steps = half * np.geomspace(1.0, _FAR, _OUTER)
        left = np.maximum(center - steps, least)[::-1]
        right = np.minimum(center + steps, most)
        points = np.concatenate([left, np.linspace(low[axis], high[axis], _INNER), right])
        logs = np.asarray(_lines(densities, some, axis, jnp.asarray(points)))
        logs = np.where(np.isnan(logs), -np.inf, logs).reshape(-1, len(points))
        top = logs.max(axis=1, keepdims=True)
        least = np.where(np.isfinite(top), top, np.inf) - _DROP
        there = np.any(np.asarray(logs > least), axis=0)
        if not np.any(there):
            continue
        first, last = int(np.argmax(there)), len(points) - 1 - int(np.argmax(there[::-1]))
        low[axis] = min(low[axis], points[max(first - 1, 0)])
        high[axis] = max(high[axis], points[min(last + 1, len(points) - 1)])
    return Box(low, high)
