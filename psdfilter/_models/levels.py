"""Local level and trend, and the Ornstein-Uhlenbeck process, seen with noise."""

from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from .._parameters.theta import Theta
from .._statespace.adapters import linear_gaussian
from .._statespace.model import StateSpaceModel
from .family import AbstractFamily, Known

# Variances of first states, in units of the variance of the data: hardly anything is known.
_DIFFUSE = 1e3


class LocalLevel(AbstractFamily):
    """x' = x + sigma_level N(0, 1),  y = x + sigma_noise eps: a level that wanders.

    Attributes:
        trend: a slope that wanders too, with sigma_slope.
        errors: "normal", or "student" for noise with outliers, of nu degrees of freedom.
    """

    trend: bool = eqx.field(static=True, default=False)
    errors: str = eqx.field(static=True, default="normal")
    first: ClassVar[str] = "observe"
    bounds: ClassVar[dict[str, tuple[float | None, float | None]]] = {
        "sigma_level": (0.0, None),
        "sigma_slope": (0.0, None),
        "sigma_noise": (0.0, None),
        "nu": (2.0, None),
    }

    def __check_init__(self):
        if self.errors not in ("normal", "student"):
            raise ValueError(f'errors must be "normal" or "student", got {self.errors!r}')

    def start(self, y: np.ndarray) -> Theta:
        """From the variance of the differences."""
        column = y.reshape(len(y), -1)[:, 0]
        seen = column[~np.isnan(column)]
        spread = float(np.std(np.diff(seen))) if len(seen) > 2 else 1.0
        spread = max(spread, 1e-6)
        theta = {"sigma_level": 0.5 * spread, "sigma_noise": 0.6 * spread}
        if self.trend:
            theta["sigma_slope"] = 0.05 * spread
        if self.errors == "student":
            theta["nu"] = 5.0
        return theta

    def known(self, y: np.ndarray) -> Known:
        """Where the first state is, roughly."""
        column = y.reshape(len(y), -1)[:, 0]
        seen = column[~np.isnan(column)]
        return {"first": float(seen[0]), "scale": float(np.std(seen)) + 1e-6, "num": len(column)}

    def build(self, theta: Theta, known: Known = None) -> StateSpaceModel:
        """The model at theta."""
        known = known or {"first": 0.0, "scale": 1.0, "num": 100}
        level = jnp.square(theta["sigma_level"])
        size, first = jnp.asarray(known["scale"] ** 2), jnp.asarray(known["first"])
        if self.trend:
            F, H = jnp.array([[1.0, 1.0], [0.0, 1.0]]), jnp.array([[1.0, 0.0]])
            Q = jnp.stack([level, jnp.square(theta["sigma_slope"])])
            m0, P0 = jnp.stack([first, jnp.zeros(())]), _DIFFUSE * size * jnp.ones(2)
        else:
            F, H, Q = jnp.eye(1), jnp.eye(1), level[None]
            m0, P0 = jnp.reshape(first, (1,)), _DIFFUSE * size[None]
        if self.errors == "normal":
            return linear_gaussian(F, Q, H, jnp.square(theta["sigma_noise"]), m0, P0)
        nu, scale = theta["nu"], theta["sigma_noise"]

        def log_observation(x: Array, y: Array) -> Array:
            return jax.scipy.stats.t.logpdf((y[0] - x[0]) / scale, nu) - jnp.log(scale)

        # A robust sensor works on a box, so that little more than the data is allowed for.
        near = 4.0 * P0 / _DIFFUSE
        return linear_gaussian(
            F, Q, None, None, m0, near, log_observation=log_observation, horizon=int(known["num"])
        )


class OrnsteinUhlenbeck(AbstractFamily):
    """dx = kappa (mu - x) dt + sigma dW,  y = x + noise N(0, 1), at real times or dates.

    The state starts from its stationary law; exact, whatever the times.
    """

    first: ClassVar[str] = "observe"
    bounds: ClassVar[dict[str, tuple[float | None, float | None]]] = {
        "kappa": (0.0, None),
        "sigma": (0.0, None),
        "noise": (0.0, None),
    }

    def start(self, y: np.ndarray) -> Theta:
        """The level and spread of the data."""
        spread = max(float(np.nanstd(y)), 1e-6)
        return {"kappa": 0.5, "mu": float(np.nanmean(y)), "sigma": spread, "noise": 0.3 * spread}

    def build(self, theta: Theta, known: Known = None) -> StateSpaceModel:
        """The model at theta."""
        del known
        kappa, mu, sigma = theta["kappa"], theta["mu"], theta["sigma"]
        variance = jnp.square(sigma) / (2 * kappa)

        def F(dt: Array) -> Array:
            return jnp.exp(-kappa * dt).reshape(1, 1)

        def b(dt: Array) -> Array:
            return (-mu * jnp.expm1(-kappa * dt)).reshape(1)

        def Q(dt: Array) -> Array:
            return (-variance * jnp.expm1(-2 * kappa * dt)).reshape(1, 1)

        noise = jnp.square(theta["noise"])
        return linear_gaussian(F, Q, 1.0, noise, jnp.reshape(mu, (1,)), variance, b=b)
