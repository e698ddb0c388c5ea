"""Anchor sets: scattered points as an array, or a tensor grid kept as its axes."""

from collections.abc import Iterable, Sequence
from math import prod

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from .._checks import Numbers, as_floats
from .._gaussian.kernel import squared_distances


class TensorGrid(eqx.Module):
    """The points axes[0] x axes[1] x ..., kept as axes and numbered with the first axis slowest."""

    axes: tuple[Float[Array, " _"], ...]

    def __init__(self, axes: Sequence[Numbers]):
        if not isinstance(axes, Iterable):
            raise ValueError(
                f"axes must be a sequence of one-dimensional arrays, got {type(axes).__name__}"
            )
        axes = tuple(axes)
        if len(axes) == 0:
            raise ValueError("axes must name at least one axis, got none")
        self.axes = tuple(as_floats(f"axes[{i}]", a, ndim=1) for i, a in enumerate(axes))
        for i, axis in enumerate(self.axes):
            if axis.size == 0:
                raise ValueError(f"axes[{i}] must hold at least one point, got none")

    @property
    def shape(self) -> tuple[int, ...]:
        """Number of points on each axis."""
        return tuple(axis.shape[-1] for axis in self.axes)

    def points(self) -> Float[Array, "m d"]:
        """All points, expanded."""
        mesh = jnp.meshgrid(*self.axes, indexing="ij")
        return jnp.stack([m.ravel() for m in mesh], axis=-1)


Anchors = Float[Array, "m d"] | TensorGrid


def as_anchors(name: str, anchors: "Numbers | TensorGrid") -> "Array | TensorGrid":
    """`anchors` as a grid or as an array (m, d) with m, d >= 1."""
    if isinstance(anchors, TensorGrid):
        return anchors
    array = as_floats(name, anchors)
    if array.ndim != 2:
        remedy = "; write anchors[:, None] for points on a line" if array.ndim == 1 else ""
        raise ValueError(f"{name} must have shape (m, d), got {array.shape}{remedy}")
    if 0 in array.shape:
        raise ValueError(f"{name} must hold at least one point, got shape {array.shape}")
    return array


def num_points(anchors: "Array | TensorGrid") -> int:
    """m, the order of a model on these anchors."""
    return prod(anchors.shape) if isinstance(anchors, TensorGrid) else anchors.shape[-2]


def dimension(anchors: "Array | TensorGrid") -> int:
    """d, the number of coordinates of an anchor."""
    return len(anchors.axes) if isinstance(anchors, TensorGrid) else anchors.shape[-1]


def expand(anchors: "Array | TensorGrid") -> Float[Array, "m d"]:
    """The anchors as an array, one point a row."""
    return anchors.points() if isinstance(anchors, TensorGrid) else anchors


def shifted_feature_product(
    anchors: "Array | TensorGrid",
    precision: Float[Array, " d"],
    factor: Float[Array, "m r"],
    x: Float[Array, " d"],
) -> tuple[Float[Array, " r"], Float[Array, ""]]:
    """g and s with L' k(x) = g exp(-s).

    s is the distance to the nearest anchor, so that far from all of them g stays of the size of L.
    It is a constant for differentiation: g exp(-s) does not depend on the choice of s.
    """
    if isinstance(anchors, TensorGrid):
        tensor, shift = factor.reshape(*anchors.shape, -1), jnp.zeros(())
        for axis, point, eta in zip(anchors.axes, x, precision, strict=True):
            distance = eta * jnp.square(point - axis)
            nearest = nearest_distance(distance)
            tensor = jnp.tensordot(jnp.exp(nearest - distance), tensor, axes=1)
            shift = shift + nearest
        return tensor, shift
    distance = squared_distances(x[None], anchors, precision)[0]
    nearest = nearest_distance(distance)
    return jnp.exp(nearest - distance) @ factor, nearest


def nearest_distance(distance: Float[Array, " m"]) -> Float[Array, ""]:
    """The least distance, kept finite: at 1e200 from all anchors f is zero, not inf - inf."""
    # A share of the largest number, so that a sum over axes of log-scales is finite too.
    farthest = 1e-2 * jnp.finfo(distance.dtype).max
    return jax.lax.stop_gradient(jnp.minimum(jnp.min(distance), farthest))
