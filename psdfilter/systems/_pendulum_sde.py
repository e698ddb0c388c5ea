"""A pendulum driven by white noise, sampled fast: noise of 1e-3 in the angle, seen by its sine."""

import jax
import jax.numpy as jnp

from .._statespace.adapters import additive_gaussian
from .._statespace.model import StateSpaceModel
from ._system import Sampler, System

# Over a length of one: metres and seconds.
_GRAVITY = 9.8
_PRIOR_MEAN, _PRIOR_SD = (1.5, 0.0), (0.32, 0.32)


def _mean(u, dt):
    """One Euler step of d angle = velocity dt, d velocity = -g sin(angle) dt."""
    return jnp.stack([u[0] + dt * u[1], u[1] - _GRAVITY * dt * jnp.sin(u[0])])


def _noise(dt, spectral):
    """Covariance of white noise of this spectral density, integrated over a step."""
    dt, spectral = jnp.asarray(dt), jnp.asarray(spectral)
    rows = jnp.stack([jnp.stack([dt**3 / 3, dt**2 / 2]), jnp.stack([dt**2 / 2, dt])])
    return spectral * rows


def _model(dt=0.0125, spectral=1.0, sensor_variance=0.1) -> StateSpaceModel:
    return additive_gaussian(
        lambda u: _mean(u, dt),
        lambda x: jnp.sin(x[:1]),
        _noise(dt, spectral),
        jnp.asarray(sensor_variance),
        _PRIOR_MEAN,
        jnp.square(jnp.asarray(_PRIOR_SD)),
        observation_box=([-3.0], [3.0]),
    )


def _sampler(dt=0.0125, spectral=1.0, sensor_variance=0.1) -> Sampler:
    root = jnp.linalg.cholesky(_noise(dt, spectral))
    mean, sd = jnp.asarray(_PRIOR_MEAN), jnp.asarray(_PRIOR_SD)
    sensor_sd = jnp.sqrt(jnp.asarray(sensor_variance))
    return Sampler(
        lambda key: mean + sd * jax.random.normal(key, (2,)),
        lambda key, u, t: _mean(u, dt) + root @ jax.random.normal(key, (2,)),
        lambda key, x, t: jnp.sin(x[:1]) + sensor_sd * jax.random.normal(key, (1,)),
    )


pendulum_sde = System(
    "pendulum_sde",
    "pendulum from an SDE at dt = 0.0125 (angle, velocity), y = sin(angle) + N",
    2,
    _model,
    _sampler,
)
