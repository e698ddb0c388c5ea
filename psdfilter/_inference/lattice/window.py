"""Where a law has its mass: looks at coarse cells that close in on it.

Logarithms show more than values: a peak far narrower than a cell bends the logs of its neighbours,
and the parabola through three of them has its height. So each cell counts with the height that it
may hide, and is left out only if that is nothing.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import logsumexp
from jaxtyping import Array, Float, Int

from .space import Space, Window

# Looks, and what each keeps besides, in nats: 64 cells close in by a factor of up to 20, and the
# first ones know heights worst.
_SLACK = (100.0, 30.0, 10.0, 0.0)
# A window of more than this share of a circle is all of it.
_WHOLE = 0.5


class Cells(NamedTuple):
    """Equal cells of a window, flat, the last axis fastest."""

    middles: Float[Array, "n d"]
    widths: Float[Array, " d"]


# log of a density in the cells of a window, as high as it may be there, and as it was found.
Look = Callable[[Window], tuple[Float[Array, " n"], Float[Array, " n"]]]


def cells_of(window: Window, num: int) -> Cells:
    """`num` cells on every axis."""
    dim = window.lower.shape[0]
    line = (np.arange(num) + 0.5) / num
    mesh = np.meshgrid(*([line] * dim), indexing="ij")
    unit = jnp.asarray(np.stack([m.ravel() for m in mesh], axis=-1))
    width = window.upper - window.lower
    return Cells(window.lower[None, :] + width[None, :] * unit, width / num)


def find_window(space: Space, reach: Window, look: Look, eps: Array, num: int) -> Window:
    """The smallest window that leaves out the share eps of the mass, give or take a cell."""

    def closer(window: Window, share: Array) -> tuple[Window, None]:
        logs, certain = look(window)
        logs = logs.reshape((num,) * space.dim)
        total = logsumexp(certain)
        return jax.lax.stop_gradient(_closed_in(space, window, logs, total, share)), None

    # A loop that is compiled once.
    return jax.lax.scan(closer, reach, eps * jnp.exp(-jnp.asarray(_SLACK)))[0]


def _closed_in(space: Space, window: Window, logs: Array, total: Array, eps: Array) -> Window:
    """Without the cells that cannot hold the share eps of what is certain.

    A jump looks like a peak between two cells, and must not have others left out.
    """
    num, whole = logs.shape[0], space.whole(window)
    heights = logs
    for axis in range(space.dim):
        heights = heights + hidden_rise(logs, axis, whole[axis])
    width = (window.upper - window.lower) / num
    lows, highs = [], []
    for axis, kind in enumerate(space.kinds):
        others = tuple(a for a in range(space.dim) if a != axis)
        line = logsumexp(heights, axis=others) if others else heights
        shares = jnp.exp(jnp.minimum(line - jnp.where(jnp.isfinite(total), total, 0.0), 0.0))
        low, high = _cut(shares, eps)
        a, b = window.lower[axis] + width[axis] * low, window.lower[axis] + width[axis] * high
        if kind == "walls":
            a, b = jnp.maximum(a, space.lower[axis]), jnp.minimum(b, space.upper[axis])
        if kind == "circle":
            start, length = _arc(shares, eps)
            all_of_it = length > _WHOLE * num
            arc_low = window.lower[axis] + width[axis] * start
            arc_high = arc_low + width[axis] * length
            arc_low = jnp.where(all_of_it, space.lower[axis], arc_low)
            arc_high = jnp.where(all_of_it, space.upper[axis], arc_high)
            a, b = jnp.where(whole[axis], arc_low, a), jnp.where(whole[axis], arc_high, b)
        lows.append(a)
        highs.append(b)
    found = jnp.any(jnp.isfinite(logs))
    return Window(
        jnp.where(found, jnp.stack(lows), window.lower),
        jnp.where(found, jnp.stack(highs), window.upper),
    )


def hidden_rise(logs: Array, axis: int, whole: Array) -> Array:
    """How much higher than a point the parabola through it and its neighbours is."""
    before, after = jnp.roll(logs, 1, axis), jnp.roll(logs, -1, axis)
    bend, slope = 0.5 * (before - 2 * logs + after), 0.5 * (after - before)
    safe = jnp.where(bend < 0, bend, -1.0)
    offset = -0.5 * slope / safe
    rise = jnp.where((bend < 0) & (jnp.abs(offset) <= 1), -0.25 * jnp.square(slope) / safe, 0.0)
    index = np.arange(logs.shape[axis])
    edge = jnp.asarray((index == 0) | (index == len(index) - 1)) & ~whole
    shape = tuple(-1 if a == axis else 1 for a in range(logs.ndim))
    usable = jnp.isfinite(rise) & ~jnp.broadcast_to(edge.reshape(shape), logs.shape)
    return jnp.where(usable, rise, 0.0)


def highest_near(logs: Array, first: int, whole: Array) -> Array:
    """The highest of every cell and its neighbours along all axes from `first` on."""
    out = logs
    for axis in range(first, logs.ndim):
        before, after = jnp.roll(out, 1, axis), jnp.roll(out, -1, axis)
        index = np.arange(logs.shape[axis])
        shape = tuple(-1 if a == axis else 1 for a in range(logs.ndim))
        edges = [jnp.asarray(index == 0), jnp.asarray(index == len(index) - 1)]
        low, high = ((e & ~whole[axis - first]).reshape(shape) for e in edges)
        before = jnp.where(jnp.broadcast_to(low, logs.shape), out, before)
        after = jnp.where(jnp.broadcast_to(high, logs.shape), out, after)
        out = jnp.maximum(out, jnp.maximum(before, after))
    return out


def _cut(share: Float[Array, " n"], eps: Array) -> tuple[Array, Array]:
    """Cells from which and to which there is all but the share eps at each end, one cell more."""
    low = jnp.sum(jnp.cumsum(share) <= eps)
    high = share.size - jnp.sum(jnp.cumsum(share[::-1]) <= eps)
    return (low - 1).astype(share.dtype), (high + 1).astype(share.dtype)


def _arc(share: Float[Array, " n"], eps: Array) -> tuple[Array, Array]:
    """First cell and number of cells of the shortest arc that holds all cells that count."""
    num = share.size
    counts = share > eps / num
    counts = counts | jnp.roll(counts, 1) | jnp.roll(counts, -1)
    twice = jnp.concatenate([counts, counts])
    index: Int[Array, " m"] = jnp.arange(2 * num)
    last = jax.lax.cummax(jnp.where(twice, index, -1))
    gaps = jnp.where(index >= num, index - last, 0)
    end = jnp.argmax(gaps)
    gap = jnp.minimum(gaps[end], num - 1)
    return ((end + 1) % num).astype(share.dtype), (num - gap).astype(share.dtype)
