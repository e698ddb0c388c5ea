"""All local maxima of a density in one or two coordinates."""

import itertools
import math

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .._checks import is_traced
from .anchors import TensorGrid
from .box import Box
from .conversions import Model, PSDModel, with_precisions
from .distances import resolution
from .mass import BoxLike, verified_model
from .psd import over_points
from .support import effective_box

# Points of the grid on each width 1 / sqrt(kappa) of the narrowest bump, and on an axis at least
# and at most: two maxima of a sum of such bumps are not closer than about one width.
_PER_WIDTH = 4
_LEAST, _MOST = {1: 513, 2: 129}, {1: 2**18, 2: 1500}
_NUM_STEPS, _NUM_HALVINGS = 40, 30


def modes(f: Model, box: BoxLike | None = None, *, least: float = 1e-6) -> Float[Array, "k d"]:
    """The local maxima of f on the box, the highest first; on its edges too. For d = 1 and 2.

    Those of a grid of four points to each width of the narrowest bump, followed uphill by Newton's
    method. Not under `jit`: how many there are depends on the numbers.

    Args:
        f: a density of one or two coordinates.
        box: where; None for all of R^d.
        least: maxima below this share of the highest are left out.
    """
    f, domain = verified_model(f, box)
    if f.dim > 2:
        raise ValueError(
            f"f must have one or two coordinates, got {f.dim}: take a marginal, or mode(f) for the "
            "highest maximum alone"
        )
    if is_traced((f, domain)):
        raise ValueError(
            "modes cannot run under jit, vmap or grad: how many there are depends on the numbers. "
            "mode(f) gives the highest"
        )
    if not 0 <= least < 1:
        raise ValueError(f"least must lie in [0, 1), got {least!r}")
    model = with_precisions(f)
    room = effective_box(model, domain)
    widths = np.asarray(resolution(model) * room.half_width)
    counts = [
        int(min(max(_LEAST[f.dim], math.ceil(2 * _PER_WIDTH * w) + 1), _MOST[f.dim]))
        for w in widths
    ]
    grid = TensorGrid([np.linspace(-1.0, 1.0, n) for n in counts])
    nodes = room._place(grid.points())
    heights = np.asarray(over_points(model, nodes, "log")).reshape(counts)
    starts = np.asarray(nodes)[peaks_of(heights).ravel()]
    spacing = 2 * np.asarray(room.half_width) / (np.array(counts) - 1)
    # A multiple of eight starts: few programs.
    padded = np.concatenate([starts, np.repeat(starts[:1], -len(starts) % 8, axis=0)])
    found, values = _climb(model, room, jnp.asarray(padded), jnp.asarray(spacing))
    points, tops = np.asarray(found)[: len(starts)], np.asarray(values)[: len(starts)]
    chosen: list[int] = []
    for i in np.argsort(-tops):
        apart = all(np.max(np.abs(points[i] - points[j]) / spacing) > 0.5 for j in chosen)
        if apart and tops[i] >= tops.max() + math.log(max(least, 1e-300)):
            chosen.append(int(i))
    return jnp.asarray(points[chosen])


def peaks_of(heights: np.ndarray) -> np.ndarray:
    """Where a table is at least as high as all its neighbours, and finite."""
    wide = np.pad(heights, 1, constant_values=-np.inf)
    peak = np.isfinite(heights)
    for shift in itertools.product((-1, 0, 1), repeat=heights.ndim):
        index = tuple(slice(1 + s, 1 + s + n) for s, n in zip(shift, heights.shape, strict=True))
        peak &= heights >= wide[index]
    return peak


@eqx.filter_jit
def _climb(
    f: PSDModel, room: Box, starts: Float[Array, "n d"], spacing: Float[Array, " d"]
) -> tuple[Float[Array, "n d"], Float[Array, " n"]]:
    """Newton's method on log f, held to the box and to one spacing of the grid a step."""

    def log_value(x: Float[Array, " d"]) -> Float[Array, ""]:
        size, log_scale = f._scaled_value(x)
        return jnp.log(size) + log_scale

    def step(_, x: Float[Array, " d"]) -> Float[Array, " d"]:
        slope, bend = jax.grad(log_value)(x), jax.hessian(log_value)(x)
        # Along an edge that f rises towards, there is nowhere to go.
        held = ((x <= room.lower) & (slope < 0)) | ((x >= room.upper) & (slope > 0))
        free = jnp.where(held, 0.0, 1.0)
        values, vectors = jnp.linalg.eigh(bend * jnp.outer(free, free))
        # Uphill in every direction, whatever the sign of the bend.
        size = jnp.maximum(jnp.abs(values), 1e-12 * jnp.max(jnp.abs(values)) + 1e-300)
        move = vectors @ ((vectors.T @ (slope * free)) / size) * free
        move = move / jnp.maximum(jnp.max(jnp.abs(move) / spacing), 1.0)
        shares = jnp.asarray([*(0.5 ** np.arange(_NUM_HALVINGS)), 0.0])
        tried = x[None] + shares[:, None] * move[None]
        tried = jnp.clip(tried, room.lower[None], room.upper[None])
        values = jax.vmap(log_value)(tried)
        return tried[jnp.argmax(jnp.where(jnp.isnan(values), -jnp.inf, values))]

    found = jax.vmap(lambda x: jax.lax.fori_loop(0, _NUM_STEPS, step, x))(starts)
    return found, jax.vmap(log_value)(found)
