"""Two systems that forget quickly: noise comparable to the box, states kept inside by truncation.

Every state can be reached from every other in one step with a density bounded below, so that the
error bounds of `post.certificate` say something for them.
"""

from collections.abc import Callable
from typing import TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array
from scipy.special import log_ndtr as scipy_log_ndtr

from .._density.box import Box
from .._statespace.model import StateSpaceModel
from .._statespace.noise import log_normal
from ._reference import Densities
from ._reference import log_normal as np_log_normal
from ._system import Sampler, System

V = TypeVar("V")
Mean = Callable[..., Array]  # u, parameter -> where the noise is centred


def _log_mass(mean, sd, low: float, high: float, xp, log_ndtr):
    """log P(low < N(mean, sd^2) < high)."""
    above, below = log_ndtr((high - mean) / sd), log_ndtr((low - mean) / sd)
    return above + xp.log1p(-xp.exp(below - above))


def _make(
    name: str, summary: str, mean: Mean, low: float, high: float, defaults: dict[str, float]
) -> System:
    """x' ~ N(mean(u), sd^2) on (low, high), y = x + N(0, sensor_sd^2), uniform prior."""

    def settings(given: dict[str, V]) -> tuple[V | float, ...]:
        unknown = set(given) - set(defaults)
        if unknown:
            raise TypeError(f"{name} takes {', '.join(defaults)}, got {', '.join(sorted(unknown))}")
        first, sd, sensor_sd = (defaults | given).values()
        return first, sd, sensor_sd

    def model(**given: Array | float) -> StateSpaceModel:
        first, sd, sensor_sd = settings(given)

        def log_transition(u, x):
            center = mean(u[0], first)
            mass = _log_mass(center, sd, low, high, jnp, jax.scipy.special.log_ndtr)
            return log_normal(x[0] - center, jnp.square(jnp.asarray(sd))) - mass

        return StateSpaceModel(
            log_prior=lambda x: jnp.zeros(()),
            log_transition=log_transition,
            log_observation=lambda x, y: log_normal(
                y[0] - x[0], jnp.square(jnp.asarray(sensor_sd))
            ),
            state_box=Box([low], [high]),
            observation_box=Box(
                [low - 5 * defaults["sensor_sd"]], [high + 5 * defaults["sensor_sd"]]
            ),
            sample_observation=lambda key, x: x + sensor_sd * jax.random.normal(key, (1,)),
        )

    def sampler(**given: Array | float) -> Sampler:
        first, sd, sensor_sd = settings(given)

        def transition(key, u, t):
            center = mean(u, first)
            ends = (low - center) / sd, (high - center) / sd
            return center + sd * jax.random.truncated_normal(key, *ends)

        return Sampler(
            lambda key: jax.random.uniform(key, (1,), minval=low, maxval=high),
            transition,
            lambda key, x, t: x + sensor_sd * jax.random.normal(key, (1,)),
        )

    def densities(**given: float) -> Densities:
        first, sd, sensor_sd = settings(given)

        def log_axis(i, u, x, t):
            center = mean(u, first)
            mass = _log_mass(center, sd, low, high, np, scipy_log_ndtr)
            return np_log_normal(x[None, :] - center, sd) - mass

        return Densities(
            (low,),
            (high,),
            lambda x: np.zeros(len(x)),
            log_axis,
            lambda x, y, t: np_log_normal(y[0] - x[:, 0], sensor_sd),
        )

    return System(name, summary, 1, model, sampler, densities, num_nodes=80)


bounded_ar = _make(
    "bounded_ar",
    "x' ~ N(0.4 u, 0.7^2) on (-1, 1), y = x + N(0, 0.4^2), uniform prior: mixes fast",
    lambda u, rho: rho * u,
    -1.0,
    1.0,
    {"rho": 0.4, "sd": 0.7, "sensor_sd": 0.4},
)
noisy_logistic = _make(
    "noisy_logistic",
    "x' ~ N(3.6 u (1 - u), 0.6^2) on (0, 1), y = x + N(0, 0.2^2), uniform prior: mixes fast",
    lambda u, growth: growth * u * (1.0 - u),
    0.0,
    1.0,
    {"growth": 3.6, "sd": 0.6, "sensor_sd": 0.2},
)
