"""Tensor grids and kernels along axes, for NumPy and for JAX: `xp` is the module to compute with.

Sizing and certificates look at many differently shaped sets of points on the host, where nothing is
compiled; the filters do the same arithmetic in compiled functions.
"""

from collections.abc import Sequence
from types import ModuleType
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..._density.box import Box

# Sizing takes NumPy arrays as well as JAX ones; which of them comes out is for `xp` to say.
Either = Array | np.ndarray
AxisNodes = tuple[Float[Array, " _"], ...]


def axis_kernel(anchors: Either, precision: Either, x: Either, xp: ModuleType = jnp) -> Any:
    """k(x_i, anchor_j) = exp(-eta (x_i - anchor_j)^2)."""
    gap = xp.asarray(x)[:, None] - xp.asarray(anchors)[None, :]
    return xp.exp(-xp.asarray(precision) * xp.square(gap))


def apply_axes(
    tensor: Either, matrices: Sequence[Either], first: int = 0, xp: ModuleType = jnp
) -> Any:
    """(M_1 x ... x M_k) applied to k axes of a tensor, from axis `first` on."""
    for axis, matrix in enumerate(matrices, start=first):
        tensor = xp.moveaxis(xp.tensordot(matrix, tensor, axes=(1, axis)), 0, axis)
    return tensor


def apply_last_axes(tensor: Array, matrices: Sequence[Float[Array, "_ _"]]) -> Array:
    """(M_1 x ... x M_k) applied to the last k axes of a tensor."""
    return apply_axes(tensor, matrices, tensor.ndim - len(matrices))


def flat_weights(weights: Sequence[Either], xp: ModuleType = jnp) -> Any:
    """Products of axis weights, first axis slowest."""
    total = xp.ones(1)
    for w in weights:
        total = (total[:, None] * xp.asarray(w)[None, :]).ravel()
    return total


def mesh_points(axes: Sequence[Either], xp: ModuleType = jnp) -> Any:
    """The tensor grid of axes, (n, d), first axis slowest."""
    return xp.stack([m.ravel() for m in xp.meshgrid(*axes, indexing="ij")], axis=-1)


def grid_points(box: Box, axes: Sequence[Float[Array, " _"]]) -> Float[Array, "n d"]:
    """The tensor grid of unit axes, in user units."""
    return box._place(mesh_points(axes))


def host_points(
    box: Box, axes: Sequence[Either], at: tuple[int, ...] | None = None
) -> Float[np.ndarray, "n d"]:
    """`grid_points` in NumPy, of some coordinates only if `at` says so."""
    index = np.arange(len(axes)) if at is None else np.asarray(at)
    return center_of(box)[index] + half_of(box)[index] * mesh_points(axes, np)


def center_of(box: Box) -> np.ndarray:
    """(lower + upper) / 2, in NumPy."""
    return 0.5 * (np.asarray(box.lower) + np.asarray(box.upper))


def half_of(box: Box) -> np.ndarray:
    """(upper - lower) / 2, in NumPy."""
    return 0.5 * (np.asarray(box.upper) - np.asarray(box.lower))


def finite_peak(logs: Either, axis: int | None = None, xp: ModuleType = jnp) -> Any:
    """The largest of some logarithms, to be subtracted; zero where none of them is finite."""
    peak = xp.max(logs, axis=axis)
    return xp.where(xp.isfinite(peak), peak, 0.0)
