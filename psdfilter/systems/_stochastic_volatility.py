"""Stochastic volatility: the log-variance of returns is an autoregression."""

import jax
import jax.numpy as jnp
import numpy as np

from .._density.box import Box
from .._statespace.model import StateSpaceModel
from .._statespace.noise import log_normal
from ._reference import Densities
from ._reference import log_normal as np_log_normal
from ._system import Sampler, System

# Stationary standard deviations on each side of the mean: 2e-8 of the mass is left outside.
_SPREAD = 5.6


def _stationary_sd(rho, sigma):
    return sigma / jnp.sqrt(1.0 - jnp.square(jnp.asarray(rho)))


def _box(mu, rho, sigma) -> Box:
    reach = _SPREAD * _stationary_sd(rho, sigma)
    return Box(*jax.lax.stop_gradient((mu - reach, mu + reach)))


def _model(mu=-1.0, rho=0.95, sigma=0.2) -> StateSpaceModel:
    def log_observation(x, y):
        return -0.5 * (x[0] + jnp.square(y[0]) * jnp.exp(-x[0]) + np.log(2 * np.pi))

    return StateSpaceModel(
        log_prior=lambda x: log_normal(x[0] - mu, jnp.square(_stationary_sd(rho, sigma))),
        log_transition=lambda u, x: log_normal(
            x[0] - mu - rho * (u[0] - mu), jnp.square(jnp.asarray(sigma))
        ),
        log_observation=log_observation,
        state_box=_box(mu, rho, sigma),
        observation_box=Box([-8.0], [8.0]),
        sample_observation=lambda key, x: jnp.exp(0.5 * x) * jax.random.normal(key, (1,)),
    )


def _sampler(mu=-1.0, rho=0.95, sigma=0.2) -> Sampler:
    return Sampler(
        lambda key: mu + _stationary_sd(rho, sigma) * jax.random.normal(key, (1,)),
        lambda key, u, t: mu + rho * (u - mu) + sigma * jax.random.normal(key, (1,)),
        lambda key, x, t: jnp.exp(0.5 * x) * jax.random.normal(key, (1,)),
    )


def _densities(mu=-1.0, rho=0.95, sigma=0.2) -> Densities:
    sd = sigma / np.sqrt(1 - rho**2)
    return Densities(
        (mu - _SPREAD * sd,),
        (mu + _SPREAD * sd,),
        lambda x: np_log_normal(x[:, 0] - mu, sd),
        lambda i, u, x, t: np_log_normal(x[None, :] - mu - rho * (u - mu), sigma),
        lambda x, y, t: np_log_normal(y[0] * np.exp(-0.5 * x[:, 0]), 1.0) - 0.5 * x[:, 0],
    )


stochastic_volatility = System(
    "stochastic_volatility",
    "x' = mu + rho (u - mu) + sigma N, y = exp(x / 2) N",
    1,
    _model,
    _sampler,
    _densities,
    num_nodes=160,
)
