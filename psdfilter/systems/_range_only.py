"""A vehicle on a plane, seen through its distance to one beacon: the posterior is a ring."""

import jax
import jax.numpy as jnp
import numpy as np

from .._statespace.adapters import additive_gaussian
from .._statespace.model import StateSpaceModel
from ._reference import Densities
from ._reference import log_normal as np_log_normal
from ._system import Sampler, System

# 5.75 stationary standard deviations.
_HALF_WIDTH = 3.3
# Off the middle, so that nothing is symmetric.
_BEACON = (0.4, -0.2)


def _distance(x0, x1, height, xp):
    # A beacon above the plane: the distance is smooth under it as well.
    return xp.sqrt((x0 - _BEACON[0]) ** 2 + (x1 - _BEACON[1]) ** 2 + height**2)


def _model(rho=0.9, sd=0.25, sensor_sd=0.15, height=0.4) -> StateSpaceModel:
    scale = _stationary_sd(rho, sd)
    return additive_gaussian(
        lambda u: rho * u,
        lambda x: _distance(x[0], x[1], height, jnp)[None],
        jnp.full((2,), jnp.square(jnp.asarray(sd))),
        jnp.square(jnp.asarray(sensor_sd)),
        [0.0, 0.0],
        jnp.square(scale),
        state_box=([-_HALF_WIDTH] * 2, [_HALF_WIDTH] * 2),
        observation_box=([-0.6], [6.0]),
    )


def _stationary_sd(rho, sd):
    return sd / jnp.sqrt(1.0 - jnp.square(jnp.asarray(rho)))


def _sampler(rho=0.9, sd=0.25, sensor_sd=0.15, height=0.4) -> Sampler:
    return Sampler(
        lambda key: _stationary_sd(rho, sd) * jax.random.normal(key, (2,)),
        lambda key, u, t: rho * u + sd * jax.random.normal(key, (2,)),
        lambda key, x, t: (
            _distance(x[0], x[1], height, jnp)[None] + sensor_sd * jax.random.normal(key, (1,))
        ),
    )


def _densities(rho=0.9, sd=0.25, sensor_sd=0.15, height=0.4) -> Densities:
    start = sd / np.sqrt(1 - rho**2)
    return Densities(
        (-_HALF_WIDTH,) * 2,
        (_HALF_WIDTH,) * 2,
        lambda x: np.sum(np_log_normal(x, start), axis=1),
        lambda i, u, x, t: np_log_normal(x[None, :] - rho * u[:, i][:, None], sd),
        lambda x, y, t: np_log_normal(y[0] - _distance(x[:, 0], x[:, 1], height, np), sensor_sd),
    )


range_only = System(
    "range_only",
    "x' = rho u + N in the plane, y = distance to one beacon + N",
    2,
    _model,
    _sampler,
    _densities,
    num_nodes=90,
)
