"""A robot in the plane with a heading, steered by controls and placed by landmarks."""

from typing import ClassVar

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from .._checks import Numbers
from .._parameters.theta import Theta
from .._statespace.adapters import additive_gaussian
from .._statespace.model import StateSpaceModel
from .family import AbstractFamily, Known, as_numbers

# Below this angle sin(a) / a and (1 - cos a) / a are taken from their series.
_SMALL = 1e-4
# At a landmark itself a range has no derivative: that of a point this close is taken.
_NEAR = 1e-12


def as_rows(values: Numbers) -> tuple[tuple[float, ...], ...]:
    """Rows of numbers as tuples, which can be compared and hashed."""
    return tuple(as_numbers(row) for row in np.atleast_2d(np.asarray(values, dtype=float)))


class PlanarRobot(AbstractFamily):
    """x' = x + an arc of speed v and turn rate w, over dt: state (x, y, heading in radians).

    Noise of variance sigma_position^2 dt in both coordinates and sigma_heading^2 dt in the heading.
    A row of y has range and bearing, relative to the heading, of every landmark in turn, NaN where
    it is not seen. Controls (v, w) are the rows of `inputs`; a row belongs to the transition into
    its observation.

    Attributes:
        landmarks: their places, ((x, y), ...).
        m0: mean of the first state, and
        P0: its variances.
    """

    landmarks: tuple[tuple[float, ...], ...] = eqx.field(static=True, converter=as_rows)
    m0: tuple[float, ...] = eqx.field(static=True, default=(0.0, 0.0, 0.0), converter=as_numbers)
    P0: tuple[float, ...] = eqx.field(static=True, default=(1.0, 1.0, 0.1), converter=as_numbers)
    first: ClassVar[str] = "predict"
    bounds: ClassVar[dict[str, tuple[float | None, float | None]]] = {
        "sigma_position": (0.0, None),
        "sigma_heading": (0.0, None),
        "sigma_range": (0.0, None),
        "sigma_bearing": (0.0, None),
    }

    def __check_init__(self):
        if not self.landmarks or any(len(place) != 2 for place in self.landmarks):
            raise ValueError(f"landmarks must be pairs ((x, y), ...), got {self.landmarks}")
        for name, given in (("m0", self.m0), ("P0", self.P0)):
            if len(given) != 3:
                raise ValueError(f"{name} must have 3 numbers, of x, y and heading, got {given}")

    def start(self, y: np.ndarray) -> Theta:
        """Numbers of a small wheeled robot, in metres, seconds and radians."""
        wanted = 2 * len(self.landmarks)
        if y.ndim != 2 or y.shape[1] != wanted:
            raise ValueError(
                f"y must have {wanted} columns, range and bearing of each of "
                f"{len(self.landmarks)} landmarks, got shape {y.shape}"
            )
        return {
            "sigma_position": 0.1,
            "sigma_heading": 0.05,
            "sigma_range": 0.2,
            "sigma_bearing": 0.05,
        }

    def log_prior(self, theta: Theta) -> Array:
        """Weak: each within a factor of e^2 of where searches start."""
        middles = (0.1, 0.05, 0.2, 0.05)
        logs = jnp.stack([jnp.log(theta[name]) for name in self.bounds])
        return -0.5 * jnp.sum(jnp.square((logs - np.log(middles)) / 2.0))

    def build(self, theta: Theta, known: Known = None) -> StateSpaceModel:
        """The model at theta."""
        del known
        marks = jnp.asarray(self.landmarks, jnp.float64)
        position, heading = (jnp.square(theta[f"sigma_{n}"]) for n in ("position", "heading"))
        seen = [jnp.square(theta[f"sigma_{n}"]) for n in ("range", "bearing")]

        def Q(dt: Array) -> Array:
            return dt * jnp.diag(jnp.stack([position, position, heading]))

        def see(x: Array) -> Array:
            gap = marks - x[None, :2]
            distance = jnp.sqrt(jnp.sum(jnp.square(gap), axis=1) + _NEAR)
            bearing = jnp.arctan2(gap[:, 1], gap[:, 0]) - x[2]
            return jnp.stack([distance, bearing], axis=1).reshape(-1)

        return additive_gaussian(
            steered,
            see,
            Q,
            jnp.tile(jnp.stack(seen), len(marks)),
            jnp.asarray(self.m0, jnp.float64),
            jnp.asarray(self.P0, jnp.float64),
            inputs=np.zeros(2),
            wrap=[False, True] * len(marks),
        )


def steered(u: Array, inputs: Array, dt: Array) -> Array:
    """Where controls (v, w) lead in dt: along an arc of length v dt that turns by w dt."""
    speed, angle = inputs[0], inputs[1] * dt
    small = jnp.abs(angle) < _SMALL
    safe = jnp.where(small, 1.0, angle)
    along = speed * dt * jnp.where(small, 1 - angle**2 / 6, jnp.sin(safe) / safe)
    across = speed * dt * jnp.where(small, angle / 2, (1 - jnp.cos(safe)) / safe)
    c, s = jnp.cos(u[2]), jnp.sin(u[2])
    return u + jnp.stack([c * along - s * across, s * along + c * across, angle])
