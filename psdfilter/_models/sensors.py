"""Sensors of targets in the plane: positions, ranges, bearings and range rates, with clutter."""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .._parameters.theta import Theta

# Coordinates of y by the name of a sensor, and the parameter that is the deviation of each.
SENSORS: dict[str, tuple[str, ...]] = {
    "position": ("sigma_position", "sigma_position"),
    "range": ("sigma_range",),
    "bearing": ("sigma_bearing",),
    "range_bearing": ("sigma_range", "sigma_bearing"),
    "range_bearing_doppler": ("sigma_range", "sigma_bearing", "sigma_doppler"),
}
_BEARING = {"bearing": 0, "range_bearing": 1, "range_bearing_doppler": 1}
# At the sensor itself a range has no derivative: that of a point this close is taken.
_NEAR = 1e-12


class Sensor(NamedTuple):
    """What a station sees of a target with state (x, vx, y, vy, ...)."""

    name: str
    station: tuple[float, ...]

    @property
    def wrap(self) -> list[bool]:
        """Which coordinates of y are angles."""
        return [i == _BEARING.get(self.name) for i in range(len(SENSORS[self.name]))]

    def see(self, x: Float[Array, " d"]) -> Float[Array, " p"]:
        """The expected y: bearings are counted from the x axis to the y axis."""
        gap = jnp.stack([x[0] - self.station[0], x[2] - self.station[1]])
        if self.name == "position":
            return jnp.stack([x[0], x[2]])
        distance = jnp.sqrt(jnp.sum(jnp.square(gap)) + _NEAR)
        parts = {
            "range": distance,
            "bearing": jnp.arctan2(gap[1], gap[0]),
            "doppler": (gap[0] * x[1] + gap[1] * x[3]) / distance,
        }
        return jnp.stack([parts[part] for part in self.name.split("_")])

    def deviations(self, theta: Theta) -> Float[Array, " p"]:
        """Standard deviations of the coordinates of y."""
        return jnp.stack([jnp.asarray(theta[name], jnp.float64) for name in SENSORS[self.name]])

    def positions(self, y: np.ndarray) -> np.ndarray | None:
        """Where targets were, (T, 2), NaN where unknown; None if single rows do not tell."""
        if self.name == "position":
            return y[:, :2]
        if not self.name.startswith("range_bearing"):
            return None
        away = y[:, :1] * np.stack([np.cos(y[:, 1]), np.sin(y[:, 1])], axis=1)
        return away + np.asarray(self.station)

    def spreads(self, y: np.ndarray) -> dict[str, float]:
        """Deviations to start a search from: of second differences, where coordinates are seen."""
        found: dict[str, float] = {}
        for i, name in enumerate(SENSORS[self.name]):
            column = np.unwrap(y[~np.isnan(y[:, i]), i]) if self.wrap[i] else y[:, i]
            bends = np.abs(np.diff(column[~np.isnan(column)], n=2))
            # A median, which outliers do not move; sqrt(6) of the noise's own deviation.
            size = float(np.median(bends)) / (0.6745 * np.sqrt(6)) if len(bends) else 1.0
            found[name] = max(size, found.get(name, 1e-6))
        return found


class Errors(NamedTuple):
    """How y scatters: "normal" or "student" noise, and clutter that has nothing to do with x."""

    kind: str
    clutter: bool

    @property
    def is_gaussian(self) -> bool:
        """Whether nothing but a normal law is needed."""
        return self.kind == "normal" and not self.clutter


def density_of(
    sensor: Sensor, errors: Errors, theta: Theta, volume: float
) -> Callable[[Array, Array], Array]:
    """log G(x, y) = log((1 - c) prod_i g_i(y_i - h_i(x)) + c / volume)."""
    wrap, scale = tuple(sensor.wrap), sensor.deviations(theta)
    nu, share = theta.get("nu"), jnp.asarray(theta.get("clutter", 0.0), jnp.float64)

    def log_observation(x: Array, y: Array) -> Array:
        gap = y - sensor.see(x)
        nearest = gap - 2 * jnp.pi * jnp.round(gap / (2 * jnp.pi))
        gap = jnp.where(jnp.asarray(wrap), nearest, gap)
        if errors.kind == "student":
            each = jax.scipy.stats.t.logpdf(gap / scale, nu)
        else:
            each = jax.scipy.stats.norm.logpdf(gap / scale)
        own = jnp.sum(each - jnp.log(scale))
        if not errors.clutter:
            return own
        return jnp.logaddexp(jnp.log1p(-share) + own, jnp.log(share) - np.log(volume))

    return log_observation


def volume_of(sensor: Sensor, y: np.ndarray) -> float:
    """Of the region that clutter falls into: a turn for bearings, else what the data span."""
    sides = []
    for i, wraps in enumerate(sensor.wrap):
        seen = y[~np.isnan(y[:, i]), i]
        span = float(np.ptp(seen)) if len(seen) > 1 else 1.0
        sides.append(2 * np.pi if wraps else max(1.5 * span, 1e-6))
    return float(np.prod(sides))
