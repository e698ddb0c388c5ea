"""Stochastic volatility: returns whose log-variance is an autoregression."""

from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from .._parameters.theta import Theta
from .._statespace.adapters import additive_gaussian
from .._statespace.model import StateSpaceModel
from .family import AbstractFamily, Fitted, Known


class StochasticVolatility(AbstractFamily):
    """x' = mu + phi (x - mu) + sigma e,  y = exp(x / 2) eps, the first y of the stationary law.

    Attributes:
        errors: "normal", or "student" for eps of Student's law with nu degrees of freedom, scaled
            to variance one.
        leverage: e = rho eps + sqrt(1 - rho^2) N(0, 1), with eps of the return before: bad news
            raise the volatility for rho < 0.
    """

    errors: str = eqx.field(static=True, default="normal")
    leverage: bool = eqx.field(static=True, default=False)
    first: ClassVar[str] = "observe"
    bounds: ClassVar[dict[str, tuple[float | None, float | None]]] = {
        "phi": (-1.0, 1.0),
        "sigma": (0.0, None),
        "nu": (2.0, None),
        "rho": (-1.0, 1.0),
    }

    def __check_init__(self):
        if self.errors not in ("normal", "student"):
            raise ValueError(f'errors must be "normal" or "student", got {self.errors!r}')

    def start(self, y: np.ndarray) -> Theta:
        """The level from the variance of y; a persistent, moderate volatility."""
        theta = {"mu": float(np.log(np.nanvar(y) + 1e-300)), "phi": 0.95, "sigma": 0.25}
        if self.errors == "student":
            theta["nu"] = 8.0
        if self.leverage:
            theta["rho"] = -0.3
        return theta

    def log_prior(self, theta: Theta) -> Array:
        """Weak: phi near 0.95, nu near 10, each within a wide range, so that a fit ends."""
        value = 19 * jnp.log1p(theta["phi"]) + 0.5 * jnp.log1p(-theta["phi"])
        if "nu" in theta:
            value = value - 0.5 * jnp.square((jnp.log(theta["nu"] - 2.0) - 2.0) / 1.0)
        return value

    def build(self, theta: Theta, known: Known = None) -> StateSpaceModel:
        """The model at theta."""
        del known
        mu, phi, sigma = theta["mu"], theta["phi"], theta["sigma"]
        rho, nu = theta["rho"] if self.leverage else 0.0, theta.get("nu")

        def plain(u: Array) -> Array:
            return mu + phi * (u - mu)

        def leveraged(u: Array, last_y: Array) -> Array:
            return plain(u) + sigma * rho * last_y[0] * jnp.exp(-0.5 * u)

        def log_observation(x: Array, y: Array) -> Array:
            return _log_eps(y[0] * jnp.exp(-0.5 * x[0]), nu) - 0.5 * x[0]

        def sample_observation(key: Array, x: Array) -> Array:
            return jnp.exp(0.5 * x) * _draw_eps(key, nu)

        return additive_gaussian(
            leveraged if self.leverage else plain,
            None,
            jnp.square(sigma) * (1 - jnp.square(rho)),
            None,
            jnp.reshape(mu, (1,)),
            jnp.square(sigma) / (1 - jnp.square(phi)),
            log_observation=log_observation,
            sample_observation=sample_observation,
        )


def _log_eps(eps: Array, nu: Array | float | None) -> Array:
    """log-density of errors of variance one: Student's, or normal ones."""
    if nu is None:
        return jax.scipy.stats.norm.logpdf(eps)
    scale = jnp.sqrt((nu - 2) / nu)
    return jax.scipy.stats.t.logpdf(eps / scale, nu) - jnp.log(scale)


def _draw_eps(key: Array, nu: Array | float | None) -> Array:
    if nu is None:
        return jax.random.normal(key, (1,), dtype=jnp.float64)
    return jnp.sqrt((nu - 2) / nu) * jax.random.t(key, nu, (1,), dtype=jnp.float64)


def value_at_risk(fitted: Fitted, level: float = 0.01) -> tuple[float, float]:
    """The `level`-quantile of the next return, and the mean of the returns below it.

    Value at risk and expected shortfall of one step, as returns (negative numbers).
    """
    if not 0 < level < 1:
        raise ValueError(f"level must lie in (0, 1), got {level!r}")
    ahead = fitted.forecast(1).observations
    cut = float(ahead.quantile(level)[0, 0])
    tail = ahead.expect(lambda y: jnp.where(y[0] <= cut, y[0] - cut, 0.0))
    return cut, cut + float(tail[0]) / level
