"""Populations: density-dependent growth seen through counts."""

from dataclasses import replace
from typing import ClassVar

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from .._parameters.theta import Theta
from .._statespace.adapters import additive_gaussian
from .._statespace.model import StateSpaceModel
from .counts import COUNTS, check_counts, log_count, sample_count
from .family import AbstractFamily, Known

_GROWTHS = ("ricker", "gompertz", "theta-logistic")


class PopulationGrowth(AbstractFamily):
    """x = log N,  x' = x + r growth(x) + sigma N(0, 1),  y ~ counts with mean exp(x).

    growth is 1 - N / K ("ricker"), 1 - log N / log K ("gompertz"), or 1 - (N / K)^theta.

    Attributes:
        growth: "ricker", "gompertz" or "theta-logistic".
        counts: "poisson", or "negative_binomial" with variance m + m^2 / size.
    """

    growth: str = eqx.field(static=True, default="ricker")
    counts: str = eqx.field(static=True, default="poisson")
    first: ClassVar[str] = "observe"
    bounds: ClassVar[dict[str, tuple[float | None, float | None]]] = {
        "r": (0.0, None),
        "log_K": (None, None),
        "theta": (0.0, None),
        "sigma": (0.0, None),
        "size": (0.0, None),
    }

    def __check_init__(self):
        for name, value, known in (
            ("growth", self.growth, _GROWTHS),
            ("counts", self.counts, COUNTS),
        ):
            if value not in known:
                raise ValueError(f"{name} must be one of {', '.join(known)}, got {value!r}")

    def start(self, y: np.ndarray) -> Theta:
        """The capacity from the mean count."""
        check_counts(y)
        theta = {"r": 0.5, "log_K": float(np.log(np.nanmean(y) + 1.0)), "sigma": 0.2}
        if self.growth == "theta-logistic":
            theta["theta"] = 1.0
        if self.counts == "negative_binomial":
            theta["size"] = 10.0
        return theta

    def log_prior(self, theta: Theta) -> Array:
        """Weak: growth of about one half, log-normal within a factor of e^2."""
        value = -0.5 * jnp.square((jnp.log(theta["r"]) + 0.7) / 1.0)
        if "size" in theta:
            value = value - 0.5 * jnp.square((jnp.log(theta["size"]) - 2.3) / 1.5)
        if "theta" in theta:
            value = value - 0.5 * jnp.square(jnp.log(theta["theta"]) / 1.0)
        return value

    def build(self, theta: Theta, known: Known = None) -> StateSpaceModel:
        """The model at theta."""
        del known
        r, log_K, variance = theta["r"], theta["log_K"], jnp.square(theta["sigma"])
        growth, counts, size = self.growth, self.counts, theta.get("size")
        power = theta["theta"] if growth == "theta-logistic" else 1.0

        def move(u: Array) -> Array:
            if growth == "gompertz":
                return u + r * (1 - u / log_K)
            # A population far above its capacity falls at most to nothing.
            return u + r * jnp.maximum(1 - jnp.exp(power * (u - log_K)), -20.0 / r)

        def log_observation(x: Array, y: Array) -> Array:
            return log_count(counts, x[0], y[0], size)

        def sample_observation(key: Array, x: Array) -> Array:
            return sample_count(counts, key, x, size)

        ssm = additive_gaussian(
            move,
            None,
            variance,
            None,
            jnp.reshape(log_K, (1,)),
            1.0,
            log_observation=log_observation,
            sample_observation=sample_observation,
        )
        return replace(ssm, counts=True)
