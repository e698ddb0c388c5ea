"""A damped pendulum in heavy noise, seen through the sine of its angle."""

import jax
import jax.numpy as jnp
import numpy as np

from .._statespace.adapters import additive_gaussian
from .._statespace.model import StateSpaceModel
from ._reference import Densities
from ._reference import log_normal as np_log_normal
from ._system import Sampler, System

# 100 000 simulated states stay within 2.4 of zero in both coordinates.
_LOWER, _UPPER = (-3.3, -3.1), (3.3, 3.1)
_PRIOR_MEAN, _PRIOR_SD = (0.8, 0.0), (0.4, 0.4)


def _mean(angle, velocity, dt, damping, xp):
    # Velocity first: the explicit rule would feed energy in and swing over the top.
    new = velocity - dt * (xp.sin(angle) + damping * velocity)
    return angle + dt * new, new


def _model(dt=0.4, damping=0.6, angle_sd=0.2, velocity_sd=0.3, sensor_sd=0.15) -> StateSpaceModel:
    return additive_gaussian(
        lambda u: jnp.stack(_mean(u[0], u[1], dt, damping, jnp)),
        lambda x: jnp.sin(x[:1]),
        jnp.square(jnp.stack([jnp.asarray(angle_sd), jnp.asarray(velocity_sd)])),
        jnp.square(jnp.asarray(sensor_sd)),
        _PRIOR_MEAN,
        np.square(_PRIOR_SD),
        state_box=(_LOWER, _UPPER),
        observation_box=([-2.0], [2.0]),
    )


def _sampler(dt=0.4, damping=0.6, angle_sd=0.2, velocity_sd=0.3, sensor_sd=0.15) -> Sampler:
    scale = jnp.stack([jnp.asarray(angle_sd), jnp.asarray(velocity_sd)])
    mean, sd = jnp.asarray(_PRIOR_MEAN), jnp.asarray(_PRIOR_SD)
    return Sampler(
        lambda key: mean + sd * jax.random.normal(key, (2,)),
        lambda key, u, t: (
            jnp.stack(_mean(u[0], u[1], dt, damping, jnp)) + scale * jax.random.normal(key, (2,))
        ),
        lambda key, x, t: jnp.sin(x[:1]) + sensor_sd * jax.random.normal(key, (1,)),
    )


def _densities(dt=0.4, damping=0.6, angle_sd=0.2, velocity_sd=0.3, sensor_sd=0.15) -> Densities:
    def log_axis(i, u, x, t):
        mean = _mean(u[:, 0], u[:, 1], dt, damping, np)[i]
        return np_log_normal(x[None, :] - mean[:, None], (angle_sd, velocity_sd)[i])

    return Densities(
        _LOWER,
        _UPPER,
        lambda x: np.sum(np_log_normal(x - _PRIOR_MEAN, np.asarray(_PRIOR_SD)), axis=1),
        log_axis,
        lambda x, y, t: np_log_normal(y[0] - np.sin(x[:, 0]), sensor_sd),
    )


pendulum = System(
    "pendulum",
    "damped pendulum (angle, velocity), y = sin(angle) + N",
    2,
    _model,
    _sampler,
    _densities,
    num_nodes=80,
)
