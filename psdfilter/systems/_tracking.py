"""Targets of nearly constant velocity in the plane, seen by ranges or by bearings only.

States are (x, vx, y, vy), time steps are one unit, and the velocity is a Brownian motion of
intensity sd^2 in both directions. `bearings_dirac` alone has states (vx, vy, x, y) and noise in the
velocities only.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.stats import norm
from jaxtyping import Array

from .._checks import Numbers
from .._density.blocks import GaussianBlocks
from .._statespace.adapters import linear_gaussian
from .._statespace.functions import Time
from .._statespace.model import StateSpaceModel
from ._system import Sampler, System

# Steps that the default box has to hold.
_HORIZON = 200
_BEARING_SD = float(np.deg2rad(0.025))
# Position and velocity over one unit of time: x' = x + v, and integrated white noise.
_STEP = np.array([[1.0, 1.0], [0.0, 1.0]])
_SPREAD = np.array([[1 / 3, 1 / 2], [1 / 2, 1.0]])
# The same path on the other side of the x axis.
_MIRROR = np.diag([1.0, 1.0, -1.0, -1.0])


def _constant_velocity(sd: Numbers) -> tuple[np.ndarray, Array]:
    """F and Q."""
    return np.kron(np.eye(2), _STEP), jnp.square(jnp.asarray(sd)) * np.kron(np.eye(2), _SPREAD)


def _sampler(
    weights: Numbers,
    means: Numbers,
    P0: Numbers,
    F: Numbers,
    Q: Numbers,
    see: Callable[..., Array],
    sensor_sd: Array | float,
) -> Sampler:
    """A mixture of Gaussians at first, linear dynamics, and noise on what `see` says."""
    means, F = jnp.asarray(means), jnp.asarray(F)
    values, vectors = jnp.linalg.eigh(jnp.asarray(P0))
    start_root = vectors * jnp.sqrt(jnp.maximum(values, 0.0))[None, :]
    values, vectors = jnp.linalg.eigh(jnp.asarray(Q))
    root = vectors * jnp.sqrt(jnp.maximum(values, 0.0))[None, :]

    def start(key: Array) -> Array:
        which, inner = jax.random.split(key)
        mean = means[jax.random.categorical(which, jnp.log(jnp.asarray(weights)))]
        return mean + start_root @ jax.random.normal(inner, (mean.size,))

    def observe(key: Array, x: Array, t: Array) -> Array:
        expected = see(x, t)
        return expected + sensor_sd * jax.random.normal(key, expected.shape)

    return Sampler(
        start,
        lambda key, u, t: F @ u + root @ jax.random.normal(key, u.shape),
        observe,
    )


def _ranges(beacons: np.ndarray) -> Callable[..., Array]:
    def see(x: Array, t: Time = None) -> Array:
        del t
        gap = jnp.stack([x[0] - beacons[:, 0], x[2] - beacons[:, 1]])
        # At a beacon itself the distance has no derivative.
        return jnp.sqrt(jnp.sum(jnp.square(gap), axis=0) + 1e-12)

    return see


def _range_system(name: str, summary: str, beacons: np.ndarray) -> System:
    see = _ranges(beacons)
    mean, P0 = np.array([-20.0, 0.4, 25.0, 0.1]), np.diag([1.0, 0.02, 1.0, 0.02])
    means = np.stack([mean, _MIRROR @ mean])

    def model(sd=0.1, sensor_sd=0.5, weight=0.7) -> StateSpaceModel:
        F, Q = _constant_velocity(sd)
        shares = jnp.stack([jnp.asarray(weight), 1.0 - jnp.asarray(weight)])
        # The prior is its own mirror image, up to the weights.
        prior = GaussianBlocks.mixture(shares, means, np.stack([P0, P0]))

        def log_observation(x: Array, y: Array) -> Array:
            return jnp.sum(norm.logpdf(y, see(x), sensor_sd))

        reach = np.full(len(beacons), 400.0)
        return linear_gaussian(
            F, Q, None, None, None, None, prior=prior, log_observation=log_observation,
            observation_box=(-5.0 + 0.0 * reach, reach), horizon=_HORIZON,
        )  # fmt: skip

    def sampler(sd=0.1, sensor_sd=0.5, weight=0.7) -> Sampler:
        F, Q = _constant_velocity(sd)
        return _sampler([weight, 1 - weight], means, P0, F, Q, see, sensor_sd)

    return System(name, summary, 4, model, sampler)


range_one_beacon = _range_system(
    "range_one_beacon",
    "constant velocity in the plane, seen by its distance to one beacon; a mirrored prior",
    np.array([[0.0, 0.0]]),
)
range_two_beacons = _range_system(
    "range_two_beacons",
    "constant velocity in the plane, seen by distances to two beacons; a mirrored prior",
    np.array([[0.0, 0.0], [20.0, 0.0]]),
)


def _from_platform(x: Array, t: Time) -> Array:
    """The bearing from a platform that starts at 0 and moves by (-5, -7) a step."""
    time = jnp.asarray(t, dtype=jnp.float64)
    return jnp.arctan2(x[2] + 7.0 * time, x[0] + 5.0 * time)[None]


def _bearing_model(sd=1.0, sensor_sd=_BEARING_SD) -> StateSpaceModel:
    F, Q = _constant_velocity(sd)

    def log_observation(x: Array, y: Array, t: Time) -> Array:
        return jnp.sum(norm.logpdf(_wrapped(y - _from_platform(x, t)), 0.0, sensor_sd))

    return linear_gaussian(
        F, Q, None, None, [50.0, 0.0, 50.0, 0.0], np.eye(4), log_observation=log_observation,
        observation_box=([-3.2], [3.2]), horizon=_HORIZON,
    )  # fmt: skip


def _wrapped(angle: Array) -> Array:
    return jnp.mod(angle + jnp.pi, 2 * jnp.pi) - jnp.pi


def _bearing_sampler(sd=1.0, sensor_sd=_BEARING_SD) -> Sampler:
    F, Q = _constant_velocity(sd)
    mean = np.array([[50.0, 0.0, 50.0, 0.0]])
    return _sampler([1.0], mean, np.eye(4), F, Q, _from_platform, sensor_sd)


bearings_only = System(
    "bearings_only",
    "constant velocity in the plane, seen by its bearing from a moving platform",
    4,
    _bearing_model,
    _bearing_sampler,
)


# The velocities are noisy, the positions add them up: x' = x + vx.
_DIRAC_F = np.array([[1.0, 0, 0, 0], [0, 1.0, 0, 0], [1.0, 0, 1.0, 0], [0, 1.0, 0, 1.0]])
_DIRAC_MEAN = np.array([3e-3, -3e-3, 1.0, 1.0])


def _bearing(x: Array, t: Time = None) -> Array:
    del t
    return jnp.arctan2(x[3], x[2])[None]


def _dirac_noise(sd: Numbers) -> Array:
    return jnp.square(jnp.asarray(sd)) * np.diag([1.0, 1.0, 0.0, 0.0])


def _dirac_model(sd=2e-4, sensor_sd=1e-3) -> StateSpaceModel:
    def log_observation(x: Array, y: Array) -> Array:
        return jnp.sum(norm.logpdf(_wrapped(y - _bearing(x)), 0.0, sensor_sd))

    return linear_gaussian(
        _DIRAC_F, _dirac_noise(sd), None, None, _DIRAC_MEAN, _dirac_noise(sd),
        log_observation=log_observation, observation_box=([-3.2], [3.2]), horizon=_HORIZON,
    )  # fmt: skip


bearings_dirac = System(
    "bearings_dirac",
    "velocities with noise, positions that add them up without any, seen by their bearing",
    4,
    _dirac_model,
    lambda sd=2e-4, sensor_sd=1e-3: _sampler(
        [1.0], _DIRAC_MEAN[None], _dirac_noise(sd), _DIRAC_F, _dirac_noise(sd), _bearing, sensor_sd
    ),
)


# Three Gaussians that overlap little in position: modes that observations have to choose from.
_START = np.array([[-6.0, 0.5], [0.0, 0.0], [5.0, -0.6]])
_SHARES = np.array([0.3, 0.5, 0.2])
_START_P = np.diag([0.5, 0.1])


def _mixture_model(sd=0.2, sensor_sd=2.0) -> StateSpaceModel:
    prior = GaussianBlocks.mixture(_SHARES, _START, _START_P)
    Q = jnp.square(jnp.asarray(sd)) * _SPREAD
    return linear_gaussian(
        _STEP, Q, [[1.0, 0.0]], jnp.square(jnp.asarray(sensor_sd)), None, None, prior=prior,
        observation_box=([-4000.0], [4000.0]), horizon=_HORIZON,
    )  # fmt: skip


mixture_start = System(
    "mixture_start",
    "a position and its velocity, a linear sensor, and a prior of three Gaussians",
    2,
    _mixture_model,
    lambda sd=0.2, sensor_sd=2.0: _sampler(
        _SHARES,
        _START,
        _START_P,
        _STEP,
        jnp.square(jnp.asarray(sd)) * _SPREAD,
        lambda x, t: x[:1],
        sensor_sd,
    ),
)
