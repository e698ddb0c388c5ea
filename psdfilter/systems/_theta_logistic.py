"""Theta-logistic population growth on the log scale, x = log(population / capacity)."""

import jax
import jax.numpy as jnp
import numpy as np

from .._statespace.adapters import additive_gaussian
from .._statespace.model import StateSpaceModel
from ._reference import Densities
from ._reference import log_normal as np_log_normal
from ._system import Sampler, System

# 100 000 simulated states lie between -1.6 and 1.2; a low start takes time to grow.
_LOWER, _UPPER = -4.5, 2.2
_PRIOR_MEAN, _PRIOR_SD = -1.0, 0.5


def _mean(u, growth, theta, xp):
    return u + growth * (1.0 - xp.exp(theta * u))


def _model(growth=1.2, theta=1.0, sd=0.25, sensor_sd=0.2) -> StateSpaceModel:
    return additive_gaussian(
        lambda u: _mean(u, growth, theta, jnp),
        lambda x: x,
        jnp.square(jnp.asarray(sd)),
        jnp.square(jnp.asarray(sensor_sd)),
        [_PRIOR_MEAN],
        _PRIOR_SD**2,
        state_box=([_LOWER], [_UPPER]),
        observation_box=([_LOWER - 1.2], [_UPPER + 1.2]),
    )


def _sampler(growth=1.2, theta=1.0, sd=0.25, sensor_sd=0.2) -> Sampler:
    return Sampler(
        lambda key: _PRIOR_MEAN + _PRIOR_SD * jax.random.normal(key, (1,)),
        lambda key, u, t: _mean(u, growth, theta, jnp) + sd * jax.random.normal(key, (1,)),
        lambda key, x, t: x + sensor_sd * jax.random.normal(key, (1,)),
    )


def _densities(growth=1.2, theta=1.0, sd=0.25, sensor_sd=0.2) -> Densities:
    return Densities(
        (_LOWER,),
        (_UPPER,),
        lambda x: np_log_normal(x[:, 0] - _PRIOR_MEAN, _PRIOR_SD),
        lambda i, u, x, t: np_log_normal(x[None, :] - _mean(u, growth, theta, np), sd),
        lambda x, y, t: np_log_normal(y[0] - x[:, 0], sensor_sd),
    )


theta_logistic = System(
    "theta_logistic",
    "x' = u + r (1 - exp(theta u)) + N, y = x + N, x the log of a population",
    1,
    _model,
    _sampler,
    _densities,
    num_nodes=200,
)
