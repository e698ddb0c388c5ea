"""A bounded sine map with a sensor that does not see the sign: two modes, often."""

import jax
import jax.numpy as jnp
import numpy as np
from scipy.special import log_ndtr as scipy_log_ndtr

from .._density.box import Box
from .._statespace.model import StateSpaceModel
from .._statespace.noise import log_normal
from ._reference import Densities
from ._reference import log_normal as np_log_normal
from ._system import Sampler, System


def _log_mass(mean, sd, log_ndtr, log_sub):
    """log P(-1 < N(mean, sd^2) < 1), from the smaller tail differences."""
    upper, lower = log_ndtr((1.0 - mean) / sd), log_ndtr((-1.0 - mean) / sd)
    return log_sub(upper, lower)


def _model(amplitude=0.9, frequency=2.2, sd=0.15, sensor_sd=0.1) -> StateSpaceModel:
    def log_transition(u, x):
        mean = amplitude * jnp.sin(frequency * u[0])
        mass = _log_mass(
            mean, sd, jax.scipy.special.log_ndtr, lambda a, b: a + jnp.log1p(-jnp.exp(b - a))
        )
        return log_normal(x[0] - mean, jnp.square(jnp.asarray(sd))) - mass

    def log_observation(x, y):
        return log_normal(y[0] - jnp.square(x[0]), jnp.square(jnp.asarray(sensor_sd)))

    def sample_observation(key, x):
        return jnp.square(x) + sensor_sd * jax.random.normal(key, (1,))

    return StateSpaceModel(
        log_prior=lambda x: jnp.zeros(()),
        log_transition=log_transition,
        log_observation=log_observation,
        state_box=Box([-1.0], [1.0]),
        observation_box=Box([-0.6], [1.6]),
        sample_observation=sample_observation,
    )


def _sampler(amplitude=0.9, frequency=2.2, sd=0.15, sensor_sd=0.1) -> Sampler:
    def transition(key, u, t):
        mean = amplitude * jnp.sin(frequency * u)
        low, high = (-1.0 - mean) / sd, (1.0 - mean) / sd
        return mean + sd * jax.random.truncated_normal(key, low, high)

    return Sampler(
        lambda key: jax.random.uniform(key, (1,), minval=-1.0, maxval=1.0),
        transition,
        lambda key, x, t: jnp.square(x) + sensor_sd * jax.random.normal(key, (1,)),
    )


def _densities(amplitude=0.9, frequency=2.2, sd=0.15, sensor_sd=0.1) -> Densities:
    def log_axis(i, u, x, t):
        mean = amplitude * np.sin(frequency * u)
        mass = _log_mass(mean, sd, scipy_log_ndtr, lambda a, b: a + np.log1p(-np.exp(b - a)))
        return np_log_normal(x[None, :] - mean, sd) - mass

    return Densities(
        (-1.0,),
        (1.0,),
        lambda x: np.zeros(len(x)),
        log_axis,
        lambda x, y, t: np_log_normal(y[0] - x[:, 0] ** 2, sensor_sd),
    )


sine_map = System(
    "sine_map",
    "x' ~ N(0.9 sin 2.2u, 0.15^2) on (-1, 1), y = x^2 + N(0, 0.1^2), uniform prior",
    1,
    _model,
    _sampler,
    _densities,
    num_nodes=160,
)
