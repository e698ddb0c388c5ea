"""Epidemics: susceptible, infected and removed, seen through counts of cases."""

from dataclasses import replace
from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from .._parameters.theta import Theta
from .._statespace.adapters import additive_gaussian
from .._statespace.model import StateSpaceModel
from .counts import COUNTS, check_counts, log_count, sample_count
from .family import AbstractFamily, Known

# Noise of log S as a share of that of log I: the many susceptible fluctuate less than the few ill.
_QUIET = 0.1
# Deviations of the first log S and log I.
_FIRST = (0.05, 1.0)
# Susceptible at first, and infected at least, as shares of the population.
_FIRST_SUSCEPTIBLE, _LEAST = 0.95, 1e-6


class SIR(AbstractFamily):
    """s' = s exp(-beta i),  i' = i exp(-gamma) + s (1 - exp(-beta i)),  y ~ counts of rho N i.

    The state is (log s, log i), shares of a population of N; noise of deviation sigma is added to
    log i and a tenth of it to log s.

    Attributes:
        population: N.
        counts: "poisson", or "negative_binomial" with variance m + m^2 / size.
    """

    population: float = eqx.field(static=True)
    counts: str = eqx.field(static=True, default="poisson")
    first: ClassVar[str] = "observe"
    bounds: ClassVar[dict[str, tuple[float | None, float | None]]] = {
        "beta": (0.0, None),
        "gamma": (0.0, None),
        "sigma": (0.0, None),
        "rho": (0.0, 1.0),
        "size": (0.0, None),
    }

    def __check_init__(self):
        if not self.population > 0:
            raise ValueError(f"population must be positive, got {self.population!r}")
        if self.counts not in COUNTS:
            raise ValueError(f"counts must be one of {', '.join(COUNTS)}, got {self.counts!r}")

    def start(self, y: np.ndarray) -> Theta:
        """Ten days of illness and a reproduction number of two, a quarter of cases reported."""
        check_counts(y)
        theta = {"beta": 0.2, "gamma": 0.1, "sigma": 0.1, "rho": 0.25}
        if self.counts == "negative_binomial":
            theta["size"] = 10.0
        return theta

    def log_prior(self, theta: Theta) -> Array:
        """Weak, log-normal; rho is hardly told by counts, and beta of the first letters."""
        middles = {"beta": 0.2, "gamma": 0.1, "sigma": 0.1, "rho": 0.25, "size": 10.0}
        widths = {"beta": 1.0, "gamma": 0.5, "sigma": 1.0, "rho": 0.5, "size": 1.5}
        gaps = [(jnp.log(theta[n]) - np.log(middles[n])) / widths[n] for n in theta]
        return -0.5 * jnp.sum(jnp.square(jnp.stack(gaps)))

    def known(self, y: np.ndarray) -> Known:
        """The first count, for the share of infected."""
        seen = y[~np.isnan(y)]
        return {"first": float(seen[0]) if seen.size else 0.0}

    def build(self, theta: Theta, known: Known = None) -> StateSpaceModel:
        """The model at theta."""
        beta, gamma, rho = theta["beta"], theta["gamma"], theta["rho"]
        first = 0.0 if known is None else known["first"]
        infected = jnp.maximum((first + 1.0) / (rho * self.population), _LEAST)
        m0 = jnp.stack([jnp.log(jnp.asarray(_FIRST_SUSCEPTIBLE)), jnp.log(infected)])

        def move(u: Array) -> Array:
            s, i = jnp.exp(u[0]), jnp.exp(u[1])
            fresh = -s * jnp.expm1(-beta * i)
            return jnp.stack([u[0] - beta * i, jnp.log(i * jnp.exp(-gamma) + fresh)])

        scale = jnp.log(rho * self.population)
        counts, size = self.counts, theta.get("size")

        def log_observation(x: Array, y: Array) -> Array:
            return log_count(counts, x[1] + scale, y[0], size)

        def sample_observation(key: Array, x: Array) -> Array:
            return sample_count(counts, key, x[1:] + scale, size)

        sigma = theta["sigma"] * jnp.array([_QUIET, 1.0])
        ssm = additive_gaussian(
            move,
            None,
            jnp.square(sigma),
            None,
            jax.lax.stop_gradient(m0),
            jnp.square(jnp.asarray(_FIRST)),
            log_observation=log_observation,
            sample_observation=sample_observation,
        )
        return replace(ssm, counts=True)
