"""The Lorenz-63 equations, one Runge-Kutta step at a time, with noise at every step."""

import jax
import jax.numpy as jnp
import numpy as np

from .._statespace.adapters import additive_gaussian
from .._statespace.model import StateSpaceModel
from ._reference import Densities
from ._reference import log_normal as np_log_normal
from ._system import Sampler, System

# 38 of 100 000 simulated states lie outside.
_LOWER, _UPPER = (-38.0, -52.0, -22.0), (38.0, 52.0, 78.0)
_HALF_WIDTH = tuple(0.5 * (b - a) for a, b in zip(_LOWER, _UPPER, strict=True))
# How far observations lie outside the box of the states, at most.
_REACH = 48.0
_PRIOR_MEAN, _PRIOR_SD = (0.0, 0.0, 25.0), (6.0, 7.0, 6.0)


def _flow(u, dt, sigma, rho, beta, xp):
    """One classical Runge-Kutta step from points (..., 3)."""

    def slope(p):
        x, y, z = p[..., 0], p[..., 1], p[..., 2]
        return xp.stack([sigma * (y - x), x * (rho - z) - y, x * y - beta * z], axis=-1)

    k1 = slope(u)
    k2 = slope(u + 0.5 * dt * k1)
    k3 = slope(u + 0.5 * dt * k2)
    k4 = slope(u + dt * k3)
    return u + dt / 6.0 * (k1 + 2.0 * k2 + 2.0 * k3 + k4)


def _model(
    dt=0.05, noise=0.12, sensor_sd=8.0, observed=3, sigma=10.0, rho=28.0, beta=8.0 / 3.0
) -> StateSpaceModel:
    return additive_gaussian(
        lambda u: _flow(u, dt, sigma, rho, beta, jnp),
        lambda x: x[:observed],
        jnp.square(noise * jnp.asarray(_HALF_WIDTH)),
        jnp.square(jnp.asarray(sensor_sd)),
        _PRIOR_MEAN,
        np.square(_PRIOR_SD),
        state_box=(_LOWER, _UPPER),
        observation_box=(
            np.asarray(_LOWER[:observed]) - _REACH,
            np.asarray(_UPPER[:observed]) + _REACH,
        ),
    )


def _sampler(
    dt=0.05, noise=0.12, sensor_sd=8.0, observed=3, sigma=10.0, rho=28.0, beta=8.0 / 3.0
) -> Sampler:
    scale = noise * jnp.asarray(_HALF_WIDTH)
    mean, sd = jnp.asarray(_PRIOR_MEAN), jnp.asarray(_PRIOR_SD)
    return Sampler(
        lambda key: mean + sd * jax.random.normal(key, (3,)),
        lambda key, u, t: (
            _flow(u, dt, sigma, rho, beta, jnp) + scale * jax.random.normal(key, (3,))
        ),
        lambda key, x, t: x[:observed] + sensor_sd * jax.random.normal(key, (observed,)),
    )


def _densities(
    dt=0.05, noise=0.12, sensor_sd=8.0, observed=3, sigma=10.0, rho=28.0, beta=8.0 / 3.0
) -> Densities:
    def log_axis(i, u, x, t):
        mean = _flow(u, dt, sigma, rho, beta, np)[:, i]
        return np_log_normal(x[None, :] - mean[:, None], noise * _HALF_WIDTH[i])

    return Densities(
        _LOWER,
        _UPPER,
        lambda x: np.sum(np_log_normal(x - _PRIOR_MEAN, np.asarray(_PRIOR_SD)), axis=1),
        log_axis,
        lambda x, y, t: np.sum(np_log_normal(y - x[:, :observed], sensor_sd), axis=1),
    )


lorenz63 = System(
    "lorenz63",
    "Lorenz-63 with noise of 0.12 half-widths a step, y = some coordinates + N",
    3,
    _model,
    _sampler,
    _densities,
    num_nodes=28,
)
