"""Targets in the plane at real times: nearly constant velocity, and coordinated turns."""

from abc import abstractmethod
from collections.abc import Callable
from typing import ClassVar

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .._parameters.theta import Theta
from .._statespace.adapters import additive_gaussian, linear_gaussian
from .._statespace.model import StateSpaceModel
from .family import AbstractFamily, Known, as_numbers, as_optional_numbers
from .sensors import SENSORS, Errors, Sensor, density_of, volume_of

# The first position is known to this many deviations of a sensor: its own row then counts once
# more, by one part in a hundred.
_WIDE = 10.0
# Degrees of freedom and share of clutter to start from.
_NU, _CLUTTER = 4.0, 0.1
_TURN = 0.05  # deviation of a first turn rate, radians for each unit of time
# Below this angle sin(a) / a and (1 - cos a) / a are taken from their series.
_SMALL = 1e-4


class AbstractTarget(AbstractFamily):
    """Targets in the plane with state (x, vx, y, vy, ...), seen from a station."""

    sensor: eqx.AbstractVar[str]
    errors: eqx.AbstractVar[str]
    clutter: eqx.AbstractVar[bool]
    station: eqx.AbstractVar[tuple[float, ...]]
    m0: eqx.AbstractVar[tuple[float, ...] | None]
    P0: eqx.AbstractVar[tuple[float, ...] | None]
    size: ClassVar[int]  # coordinates of the state

    def __check_init__(self):
        for name, value, known in (
            ("sensor", self.sensor, tuple(SENSORS)),
            ("errors", self.errors, ("normal", "student")),
        ):
            if value not in known:
                raise ValueError(f"{name} must be one of {', '.join(known)}, got {value!r}")
        if self.sensor == "range_bearing_doppler" and not self._errors.is_gaussian:
            raise ValueError(
                'sensor must be "range_bearing" with clutter or errors="student": a range rate '
                "depends on four coordinates of the state, and densities that are not normal are "
                "served for at most three"
            )
        if len(self.station) != 2:
            raise ValueError(f"station must be a pair (x, y), got {self.station}")
        if (self.m0 is None) != (self.P0 is None):
            raise ValueError("m0 and P0 must be given both, or none of them")
        for name, given in (("m0", self.m0), ("P0", self.P0)):
            if given is not None and np.shape(given) != (self.size,):
                raise ValueError(
                    f"{name} must have {self.size} numbers, those of the state, got shape "
                    f"{np.shape(given)}"
                )

    @property
    def _seen(self) -> Sensor:
        return Sensor(self.sensor, self.station)

    @property
    def _errors(self) -> Errors:
        return Errors(self.errors, self.clutter)

    @abstractmethod
    def _first(self) -> Theta:
        """Parameters of the motion to start a search from."""

    @abstractmethod
    def _move(self, u: Array, dt: Array) -> Array:
        """The state dt later, without noise."""

    @abstractmethod
    def _spread(self, theta: Theta) -> Callable[[Array], Array]:
        """dt -> the covariance of the noise of dt."""

    def start(self, y: np.ndarray) -> Theta:
        """Deviations of the sensor from second differences; 1 for accelerations."""
        data = self._data(y)
        theta = {**self._first(), **self._seen.spreads(data)}
        if self.errors == "student":
            theta["nu"] = _NU
        if self.clutter:
            theta["clutter"] = _CLUTTER
        return theta

    def log_prior(self, theta: Theta) -> Array:
        """Weak: log-normal deviations of the motion, nu near 4, little clutter."""
        value = jnp.zeros(())
        for name, middle in self._first().items():
            value = value - 0.5 * jnp.square((jnp.log(theta[name]) - np.log(middle)) / 3.0)
        if "nu" in theta:
            value = value - 0.5 * jnp.square((jnp.log(theta["nu"]) - np.log(_NU)) / 1.0)
        if "clutter" in theta:
            value = value + 8 * jnp.log1p(-theta["clutter"])
        return value

    def _data(self, y: np.ndarray) -> np.ndarray:
        width = len(SENSORS[self.sensor])
        data = y.reshape(len(y), -1)
        if data.shape[1] != width:
            raise ValueError(
                f'y must have {width} columns for sensor "{self.sensor}", got {data.shape[1]}'
            )
        return data

    def known(self, y: np.ndarray) -> Known:
        """The volume of clutter, and where the target starts, unless m0 and P0 say."""
        data = self._data(y)
        out = {"volume": volume_of(self._seen, data)}
        if self.m0 is not None and self.P0 is not None:
            return out
        places = self._seen.positions(data)
        if places is None:
            raise ValueError(
                f'm0 and P0 must be given for sensor "{self.sensor}": its rows do not tell where '
                "a target is"
            )
        seen = places[~np.isnan(places).any(axis=1)]
        if not len(seen):
            raise ValueError("y must have at least one row that is not missing")
        sizes = self._seen.spreads(data)
        far = float(np.linalg.norm(seen[0] - np.asarray(self.station)))
        noise = sizes.get("sigma_position", sizes.get("sigma_range", 0.0))
        noise = max(noise, far * sizes.get("sigma_bearing", 0.0))
        steps = np.linalg.norm(np.diff(seen, axis=0), axis=1)
        speed = float(np.median(steps)) if len(steps) else 1.0
        out |= {"x": float(seen[0, 0]), "y": float(seen[0, 1])}
        return out | {"spread": _WIDE * noise, "speed": 3.0 * speed + 1e-6}

    def _prior(self, known: Known) -> tuple[Array, Array]:
        """Mean and variances of the first state."""
        if self.m0 is not None and self.P0 is not None:
            return jnp.asarray(self.m0, jnp.float64), jnp.asarray(self.P0, jnp.float64)
        if known is None:
            raise ValueError("m0 and P0 must be given where there are no data")
        place, speed = known["spread"] ** 2, known["speed"] ** 2
        mean, spread = [known["x"], 0.0, known["y"], 0.0], [place, speed, place, speed]
        if self.size == 5:
            mean, spread = [*mean, 0.0], [*spread, _TURN**2]
        return jnp.asarray(mean), jnp.asarray(spread)

    def build(self, theta: Theta, known: Known = None) -> StateSpaceModel:
        """The model at theta."""
        m0, P0 = self._prior(known)
        sensor, errors = self._seen, self._errors
        Q = self._spread(theta)

        if self.size == 4 and self.sensor == "position" and errors.is_gaussian:
            H = jnp.array([[1.0, 0.0, 0.0, 0.0], [0.0, 0.0, 1.0, 0.0]])
            R = jnp.square(sensor.deviations(theta))
            return linear_gaussian(_velocity_matrix, Q, H, R, m0, P0)

        def f(u: Array, dt: Array) -> Array:
            return self._move(u, dt)

        if errors.is_gaussian:
            R = jnp.square(sensor.deviations(theta))
            return additive_gaussian(f, sensor.see, Q, R, m0, P0, wrap=sensor.wrap)
        volume = 1.0 if known is None else known["volume"]
        density = density_of(sensor, errors, theta, volume)
        return additive_gaussian(f, None, Q, None, m0, P0, log_observation=density)


def _velocity_matrix(dt: Array) -> Float[Array, "4 4"]:
    return jnp.eye(4) + dt * jnp.diag(jnp.array([1.0, 0.0, 1.0]), 1)


def _velocity_noise(sigma: Array, dt: Array) -> Float[Array, "4 4"]:
    """Of velocities that are Brownian motions, and their integrals."""
    block = jnp.array([[dt**3 / 3, dt**2 / 2], [dt**2 / 2, dt]])
    return jnp.square(sigma) * jnp.kron(jnp.eye(2), block)


class ConstantVelocity(AbstractTarget):
    """dv = sigma_accel dW in both directions: state (x, vx, y, vy), at real times.

    Attributes:
        sensor: what a row of y is: "position" (x, y), "range", "bearing", "range_bearing" or
            "range_bearing_doppler" (range, bearing in radians from the x axis, range rate).
        errors: "normal", or "student" for sensors with outliers, of nu degrees of freedom.
        clutter: a row is, with probability clutter, anywhere in the region of the data; not with
            a range rate.
        station: where the sensor is.
        m0: mean of the first state, and
        P0: its variances; by default around the first row.
    """

    sensor: str = eqx.field(static=True, default="position")
    errors: str = eqx.field(static=True, default="normal")
    clutter: bool = eqx.field(static=True, default=False)
    station: tuple[float, ...] = eqx.field(static=True, default=(0.0, 0.0), converter=as_numbers)
    m0: tuple[float, ...] | None = eqx.field(
        static=True, default=None, converter=as_optional_numbers
    )
    P0: tuple[float, ...] | None = eqx.field(
        static=True, default=None, converter=as_optional_numbers
    )
    first: ClassVar[str] = "observe"
    size: ClassVar[int] = 4
    bounds: ClassVar[dict[str, tuple[float | None, float | None]]] = {
        "sigma_accel": (0.0, None),
        "sigma_position": (0.0, None),
        "sigma_range": (0.0, None),
        "sigma_bearing": (0.0, None),
        "sigma_doppler": (0.0, None),
        "nu": (1.0, None),
        "clutter": (0.0, 1.0),
    }

    def _first(self) -> Theta:
        return {"sigma_accel": 1.0}

    def _move(self, u: Array, dt: Array) -> Array:
        return _velocity_matrix(dt) @ u

    def _spread(self, theta: Theta) -> Callable[[Array], Array]:
        accel = theta["sigma_accel"]
        return lambda dt: _velocity_noise(accel, dt)


class CoordinatedTurn(AbstractTarget):
    """The velocity turns by the rate w: state (x, vx, y, vy, w), at real times.

    dw = sigma_turn dW, and dv = sigma_accel dW beside the turn.

    Attributes:
        sensor: as for `ConstantVelocity`, and so are
        errors: "normal" or "student",
        clutter: rows that have nothing to do with the target,
        station: where the sensor is,
        m0: mean of the first state (5 numbers), and
        P0: its variances.
    """

    sensor: str = eqx.field(static=True, default="position")
    errors: str = eqx.field(static=True, default="normal")
    clutter: bool = eqx.field(static=True, default=False)
    station: tuple[float, ...] = eqx.field(static=True, default=(0.0, 0.0), converter=as_numbers)
    m0: tuple[float, ...] | None = eqx.field(
        static=True, default=None, converter=as_optional_numbers
    )
    P0: tuple[float, ...] | None = eqx.field(
        static=True, default=None, converter=as_optional_numbers
    )
    first: ClassVar[str] = "observe"
    size: ClassVar[int] = 5
    bounds: ClassVar[dict[str, tuple[float | None, float | None]]] = {
        **ConstantVelocity.bounds,
        "sigma_turn": (0.0, None),
    }

    def _first(self) -> Theta:
        return {"sigma_accel": 1.0, "sigma_turn": _TURN}

    def _move(self, u: Array, dt: Array) -> Array:
        angle = u[4] * dt
        small = jnp.abs(angle) < _SMALL
        safe = jnp.where(small, 1.0, angle)
        along = dt * jnp.where(small, 1 - angle**2 / 6, jnp.sin(safe) / safe)
        across = dt * jnp.where(small, angle / 2, (1 - jnp.cos(safe)) / safe)
        c, s = jnp.cos(angle), jnp.sin(angle)
        vx, vy = u[1], u[3]
        return jnp.stack(
            [
                u[0] + along * vx - across * vy,
                c * vx - s * vy,
                u[2] + across * vx + along * vy,
                s * vx + c * vy,
                u[4],
            ]
        )

    def _spread(self, theta: Theta) -> Callable[[Array], Array]:
        accel, turn = theta["sigma_accel"], theta["sigma_turn"]

        def spread(dt: Array) -> Array:
            block = _velocity_noise(accel, dt)
            return jnp.zeros((5, 5)).at[:4, :4].set(block).at[4, 4].set(jnp.square(turn) * dt)

        return spread
