"""The univariate nonlinear growth model of Gordon, Salmond and Smith: varies in time, two modes."""

import jax
import jax.numpy as jnp
import numpy as np

from .._statespace.adapters import additive_gaussian
from .._statespace.model import StateSpaceModel
from ._reference import Densities
from ._reference import log_normal as np_log_normal
from ._system import Sampler, System

# 100 000 simulated states lie within 30.4.
_HALF_WIDTH = 38.0
_PRIOR_VARIANCE = 5.0


def _mean(u, t, xp):
    return 0.5 * u + 25.0 * u / (1.0 + u * u) + 8.0 * xp.cos(1.2 * xp.asarray(t, dtype=float))


def _model(state_variance=10.0, sensor_variance=1.0) -> StateSpaceModel:
    return additive_gaussian(
        lambda u, t: _mean(u, t, jnp),
        lambda x: jnp.square(x) / 20.0,
        state_variance,
        sensor_variance,
        [0.0],
        _PRIOR_VARIANCE,
        state_box=([-_HALF_WIDTH], [_HALF_WIDTH]),
        observation_box=([-6.0], [90.0]),
    )


def _sampler(state_variance=10.0, sensor_variance=1.0) -> Sampler:
    return Sampler(
        lambda key: np.sqrt(_PRIOR_VARIANCE) * jax.random.normal(key, (1,)),
        lambda key, u, t: (
            _mean(u, t, jnp) + jnp.sqrt(jnp.asarray(state_variance)) * jax.random.normal(key, (1,))
        ),
        lambda key, x, t: (
            jnp.square(x) / 20.0
            + jnp.sqrt(jnp.asarray(sensor_variance)) * jax.random.normal(key, (1,))
        ),
    )


def _densities(state_variance=10.0, sensor_variance=1.0) -> Densities:
    return Densities(
        (-_HALF_WIDTH,),
        (_HALF_WIDTH,),
        lambda x: np_log_normal(x[:, 0], np.sqrt(_PRIOR_VARIANCE)),
        lambda i, u, x, t: np_log_normal(x[None, :] - _mean(u, t, np), np.sqrt(state_variance)),
        lambda x, y, t: np_log_normal(y[0] - x[:, 0] ** 2 / 20.0, np.sqrt(sensor_variance)),
        time_varying=True,
    )


ungm = System(
    "ungm",
    "x' = u/2 + 25u/(1+u^2) + 8 cos 1.2t + N(0, 10), y = x^2/20 + N(0, 1)",
    1,
    _model,
    _sampler,
    _densities,
    num_nodes=1000,
)
