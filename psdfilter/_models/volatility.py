"""Stochastic volatility: returns whose log-variance is an autoregression."""

from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .._checks import as_count
from .._parameters.theta import Theta
from .._statespace.adapters import additive_gaussian
from .._statespace.model import StateSpaceModel
from .family import AbstractFamily, Known

# A log-variance that moves by less than this in a step is hardly told from a constant one.
_CALM = 0.05


class StochasticVolatility(AbstractFamily):
    """x' = mu + phi (x - mu) + beta . z + sigma e,  y = exp(x / 2) eps; first x: stationary, z = 0.

    Attributes:
        errors: "normal", or "student" for eps of Student's law with nu degrees of freedom, scaled
            to variance one.
        leverage: e = rho eps + sqrt(1 - rho^2) N(0, 1), with eps of the return before: bad news
            raise the volatility for rho < 0.
        covariates: number of columns of z, what moves the log-variance and is known before the
            return: the row of `inputs=` that belongs to it. That of the first row is not used.
            Parameters beta0, beta1, ...; a column of variance one suits the search.
    """

    errors: str = eqx.field(static=True, default="normal")
    leverage: bool = eqx.field(static=True, default=False)
    covariates: int = eqx.field(static=True, default=0)
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
        _ = as_count("covariates", self.covariates, least=0)

    def start(self, y: np.ndarray) -> Theta:
        """The level from the variance of y; a persistent, moderate volatility."""
        theta = {"mu": float(np.log(np.nanvar(y) + 1e-300)), "phi": 0.95, "sigma": 0.25}
        if self.errors == "student":
            theta["nu"] = 8.0
        if self.leverage:
            theta["rho"] = -0.3
        return theta | dict.fromkeys(self._slopes, 0.0)

    @property
    def _slopes(self) -> list[str]:
        return [f"beta{i}" for i in range(self.covariates)]

    def log_prior(self, theta: Theta) -> Array:
        """Weak: phi near 0.95, nu near 10, sigma not far below 0.05, so that a fit ends.

        Short series often have their highest likelihood at sigma = 0, where no density is left.
        """
        value = 19 * jnp.log1p(theta["phi"]) + 0.5 * jnp.log1p(-theta["phi"])
        value = value - jnp.square(_CALM / theta["sigma"])
        if "nu" in theta:
            value = value - 0.5 * jnp.square((jnp.log(theta["nu"] - 2.0) - 2.0) / 1.0)
        return value

    def build(self, theta: Theta, known: Known = None) -> StateSpaceModel:
        """The model at theta."""
        del known
        mu, phi, sigma = theta["mu"], theta["phi"], theta["sigma"]
        rho, nu = theta["rho"] if self.leverage else 0.0, theta.get("nu")
        slopes = jnp.stack([jnp.asarray(theta[name]) for name in self._slopes] or [jnp.zeros(())])

        def plain(u: Array) -> Array:
            return mu + phi * (u - mu)

        def moved(u: Array, inputs: Array) -> Array:
            return plain(u) + _effect(slopes, inputs)

        def leveraged(u: Array, last_y: Array) -> Array:
            return plain(u) + sigma * rho * last_y[0] * jnp.exp(-0.5 * u)

        def both(u: Array, inputs: Array, last_y: Array) -> Array:
            return leveraged(u, last_y) + _effect(slopes, inputs)

        def log_observation(x: Array, y: Array) -> Array:
            return _log_eps(y[0] * jnp.exp(-0.5 * x[0]), nu) - 0.5 * x[0]

        def sample_observation(key: Array, x: Array) -> Array:
            return jnp.exp(0.5 * x) * _draw_eps(key, nu)

        return additive_gaussian(
            ((plain, leveraged), (moved, both))[self.covariates > 0][self.leverage],
            None,
            jnp.square(sigma) * (1 - jnp.square(rho)),
            None,
            jnp.reshape(mu, (1,)),
            jnp.square(sigma) / (1 - jnp.square(phi)),
            log_observation=log_observation,
            sample_observation=sample_observation,
            inputs=jnp.zeros(self.covariates) if self.covariates else None,
        )


def _effect(slopes: Float[Array, " k"], inputs: Array) -> Array:
    """beta . z; a single column may have been given as a vector."""
    row = jnp.reshape(inputs, (-1,))
    if row.size != slopes.size:
        raise ValueError(
            f"inputs must have {slopes.size} columns, as covariates says, got {row.size}"
        )
    return slopes @ row


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
