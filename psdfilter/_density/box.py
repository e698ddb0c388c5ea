"""Boxes: where densities are integrated, and the units that states are measured in."""

from collections.abc import Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .. import _results
from .._checks import (
    Demand,
    Numbers,
    as_integers,
    as_points,
    as_reals,
    counted,
    is_concrete,
    looked_at,
    require_x64,
    verified,
)
from .._modules import PlainModule


class Box(PlainModule):
    """The box {x : lower_l <= x_l <= upper_l} in the user's units.

    Bounds may be infinite where only integrals are asked for; the maps to and from (-1, 1)^d need
    finite ones. Concrete bounds are validated here, traced ones by the operations that use them.

    Axes that are `periodic` are circles: upper is the same point as lower, as for an angle on
    (-pi, pi).
    """

    lower: Float[Array, " d"]
    upper: Float[Array, " d"]
    periodic: tuple[int, ...] = eqx.field(static=True, default=())

    def __init__(self, lower: Numbers, upper: Numbers, periodic: int | Sequence[int] = ()):
        self.lower = jnp.atleast_1d(as_reals("lower", lower))
        self.upper = jnp.atleast_1d(as_reals("upper", upper))
        if self.lower.ndim != 1 or self.lower.shape != self.upper.shape:
            raise ValueError(
                "lower and upper must be two vectors of one length, got shapes "
                f"{self.lower.shape} and {self.upper.shape}"
            )
        if self.lower.size == 0:
            raise ValueError("lower and upper must have at least one coordinate, got none")
        if is_concrete(self.lower) and is_concrete(self.upper):
            low, high = np.asarray(self.lower), np.asarray(self.upper)
            if np.isnan(low).any() or np.isnan(high).any():
                raise ValueError(f"lower and upper must not be NaN, got {low} and {high}")
            if not (low < high).all():
                axis = int(np.argmin(low < high))
                raise ValueError(
                    f"lower must be below upper on every axis, got [{low[axis]}, {high[axis]}] "
                    f"on axis {axis}"
                )
        self.periodic = self._circles(periodic)

    def _circles(self, periodic: int | Sequence[int]) -> tuple[int, ...]:
        """The axes that wrap, each once, ascending."""
        axes = as_integers("periodic", periodic)
        if any(not -self.dim <= a < self.dim for a in axes):
            raise ValueError(
                f"periodic must hold axes of the box, integers in 0..{self.dim - 1}, got {periodic}"
            )
        circles = tuple(sorted({int(a) % self.dim for a in axes}))
        for axis in circles:
            ends = self.lower[axis], self.upper[axis]
            if is_concrete(ends) and not np.isfinite(np.asarray(ends)).all():
                raise ValueError(
                    f"lower and upper must be finite on an axis that wraps, got {ends[0]} and "
                    f"{ends[1]} on axis {axis}"
                )
        return circles

    def wrap(self, x: Numbers) -> Float[Array, "... d"]:
        """x with its periodic coordinates in [lower, upper), by whole turns."""
        return self._wrap(as_points("x", x, self.dim))

    def _wrap(self, x: Float[Array, "... d"]) -> Float[Array, "... d"]:
        """`wrap`, for arguments that are known to be good."""
        if not self.periodic:
            return x
        turns = jnp.floor((x - _lift(self.lower, x)) / _lift(self.upper - self.lower, x))
        circle = np.isin(np.arange(self.dim), self.periodic)
        moved = x - jax.lax.stop_gradient(turns) * _lift(self.upper - self.lower, x)
        return jnp.where(_lift(jnp.asarray(circle), x), moved, x)

    def __str__(self) -> str:
        if not (is_concrete(self.lower) and is_concrete(self.upper)):
            return f"Box of {counted(self.dim, 'coordinate')} (traced)"
        ends = enumerate(zip(np.asarray(self.lower), np.asarray(self.upper), strict=True))
        return "Box " + " x ".join(
            f"[{a:.6g}, {b:.6g}{') wrapped' if i in self.periodic else ']'}" for i, (a, b) in ends
        )

    @property
    def dim(self) -> int:
        """Number of coordinates."""
        return self.lower.shape[-1]

    @property
    def center(self) -> Float[Array, " d"]:
        """(lower + upper) / 2."""
        return 0.5 * (self.lower + self.upper)

    @property
    def half_width(self) -> Float[Array, " d"]:
        """(upper - lower) / 2."""
        return 0.5 * (self.upper - self.lower)

    @property
    def volume(self) -> Float[Array, ""]:
        """prod_l (upper_l - lower_l)."""
        return jnp.prod(self.upper - self.lower)

    def to_unit(self, x: Numbers) -> Float[Array, "... d"]:
        """z = (x - center) / half_width, in (-1, 1)^d for x in the box."""
        box, points = self._finite("to_unit", x=as_points("x", x, self.dim))
        return (points - _lift(box.center, points)) / _lift(box.half_width, points)

    def from_unit(self, z: Numbers) -> Float[Array, "... d"]:
        """x = center + half_width z."""
        box, points = self._finite("from_unit", z=as_points("z", z, self.dim))
        return box._place(points)

    def _place(self, z: Float[Array, "... d"]) -> Float[Array, "... d"]:
        """center + half_width z, for arguments that are known to be good."""
        return _lift(self.center, z) + _lift(self.half_width, z) * z

    def _finite(self, caller: str, **points: Array) -> tuple["Box", Array]:
        width = self.half_width
        if is_concrete(width) and not np.all(np.isfinite(np.asarray(width))):
            raise ValueError(
                f"{caller} needs a box with finite bounds, got {np.asarray(self.lower)} to "
                f"{np.asarray(self.upper)}"
            )
        return verified(box=self, **points)

    def _demands(self, name: str) -> list[Demand]:
        xp, low, high = looked_at(self.lower, self.upper)
        return [Demand.of(name, _results.BAD_BOX, xp.all(low < high))]

    def contains(self, x: Numbers) -> Array:
        """Whether each point lies in the box, bounds included."""
        points = as_points("x", x, self.dim)
        above, below = points >= _lift(self.lower, points), points <= _lift(self.upper, points)
        return jnp.all(above & below, axis=-1)

    def keep(self, axes: tuple[int, ...]) -> "Box":
        """The box of the named coordinates, in that order."""
        index = np.asarray(axes, dtype=int)
        circles = tuple(i for i, axis in enumerate(index) if axis % self.dim in self.periodic)
        return Box(self.lower[index], self.upper[index], circles)


def _lift(vector: Float[Array, " d"], points: Float[Array, "... d"]) -> Float[Array, "... d"]:
    """`vector` with as many axes as `points`: broadcasting is spelt out in this package."""
    return vector.reshape((1,) * (points.ndim - 1) + vector.shape)


def as_box(name: str, box: "Box | tuple[Numbers, Numbers]", dim: int) -> Box:
    """`box` as a Box of `dim` coordinates; a pair (lower, upper) is taken for one."""
    if not isinstance(box, Box):
        if not (isinstance(box, tuple | list) and len(box) == 2):
            raise ValueError(
                f"{name} must be a psdfilter.Box or a pair (lower, upper), got {type(box).__name__}"
            )
        box = Box(*box)
    if box.dim != dim:
        raise ValueError(f"{name} must have {dim} coordinates, got {box.dim}")
    return box


def as_finite_box(name: str, box: "Box | tuple[Numbers, Numbers]") -> Box:
    """`box` as a Box of any number of coordinates with finite bounds."""
    require_x64()
    if not isinstance(box, Box):
        if not (isinstance(box, tuple | list) and len(box) == 2):
            raise ValueError(
                f"{name} must be a psdfilter.Box or a pair (lower, upper), got {type(box).__name__}"
            )
        box = Box(*box)
    bounds = np.stack([np.asarray(box.lower), np.asarray(box.upper)])
    if not np.isfinite(bounds).all():
        raise ValueError(
            f"{name} must be finite to learn on it, got lower {bounds[0]} and upper {bounds[1]}; "
            "box_from_samples chooses one from simulated points"
        )
    return box
