"""G need only be evaluable: counts, and several sensors at one time."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import psdfilter as psd
from psdfilter._inference.learn import learn
from psdfilter._inference.run import run_filter
from psdfilter._statespace.model import StateSpaceModel

BOX = psd.Box([-2.5], [2.5])
TRIALS = 12


def log_poisson(x, y):
    return jax.scipy.stats.poisson.logpmf(y[0], jnp.exp(1.0 + x[0]))


def log_binomial(x, y):
    share = jax.nn.log_sigmoid(x[0]), jax.nn.log_sigmoid(-x[0])
    choose = (
        jax.scipy.special.gammaln(TRIALS + 1.0)
        - jax.scipy.special.gammaln(y[0] + 1.0)
        - jax.scipy.special.gammaln(TRIALS - y[0] + 1.0)
    )
    return choose + y[0] * share[0] + (TRIALS - y[0]) * share[1]


def build(log_observation):
    return StateSpaceModel(
        log_prior=lambda x: -0.5 * jnp.square(x[0]) / 0.25,
        log_transition=lambda u, x: jax.scipy.stats.norm.logpdf(x[0], 0.8 * u[0], 0.3),
        log_observation=log_observation,
        state_box=BOX,
    )


def grid_filter(ys, log_observation, num=200):
    z, w = np.polynomial.legendre.leggauss(num)
    z, w = 2.5 * z, 2.5 * w
    table = stats.norm.pdf(z[None, :], 0.8 * z[:, None], 0.3)
    density = stats.norm.pdf(z, 0.0, 0.5)
    density, means, logs = density / (w @ density), [], []
    for y in ys:
        joint = ((w * density) @ table) * np.exp(log_observation(z, y))
        mass = w @ joint
        density = joint / mass
        means.append(w @ (density * z))
        logs.append(np.log(mass))
    return np.asarray(means), np.asarray(logs)


COUNTS = np.array([3, 1, 0, 4, 7, 5, 2, 9], dtype=float)


@pytest.mark.long
@pytest.mark.parametrize(
    ("log_observation", "truth"),
    [
        (log_poisson, lambda x, y: stats.poisson.logpmf(y, np.exp(1.0 + x))),
        pytest.param(
            log_binomial,
            lambda x, y: stats.binom.logpmf(y, TRIALS, 1 / (1 + np.exp(-x))),
            marks=pytest.mark.slow,
        ),
    ],
    ids=["poisson", "binomial"],
)
def test_counts(log_observation, truth):
    post = run_filter(learn(build(log_observation), 1e-3), COUNTS)
    means, logs = grid_filter(COUNTS, truth)
    np.testing.assert_allclose(post.mean[:, 0], means, atol=1e-3)
    np.testing.assert_allclose(post.log_likelihoods, logs, atol=1e-3)


@pytest.mark.slow
def test_two_sensors_at_one_time_are_one_sensor_of_two_coordinates():
    def both(x, y):
        return log_poisson(x, y[:1]) + log_poisson(x, y[1:])

    pairs = COUNTS.reshape(-1, 2)
    together = run_filter(learn(build(both), 1e-4), pairs)
    apart = run_filter(learn(build(log_poisson), 1e-4), COUNTS, times=np.repeat([1, 2, 3, 4], 2))
    np.testing.assert_allclose(apart.mean[1::2], together.mean, atol=1e-4)
    np.testing.assert_allclose(apart.log_likelihood, together.log_likelihood, atol=4e-4)
