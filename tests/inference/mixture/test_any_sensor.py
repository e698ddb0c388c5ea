"""Sensors that are densities, in three coordinates with little noise, against particles."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from models.particles_oracle import bootstrap
from scipy import stats

import psdfilter as psd

# Mixtures say by themselves what they miss; here it is measured.
pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore::psdfilter.ResolutionWarning"),
]
SDS, M0, P0 = np.array([0.02, 0.05, 0.05]), np.array([0.3, 0.5, 0.2]), np.full(3, 0.09)
LIMIT = 0.6


def move(x, xp=np):
    return xp.stack(
        [x[..., 0] + 0.1 * x[..., 1], x[..., 1] - 0.1 * xp.sin(x[..., 0]), 0.9 * x[..., 2]], -1
    )


def log_student(x, y):
    return jnp.sum(jax.scipy.stats.t.logpdf((y - x[:2]) / 0.1, 4.0) - jnp.log(0.1))


def log_outliers(x, y):
    """One row in ten is anywhere within (-5, 5)."""
    inlier = jax.scipy.stats.norm.logpdf(y[0], x[0] + x[2], 0.1)
    return jnp.logaddexp(jnp.log(0.9) + inlier, jnp.log(0.1 / 10.0))


def log_saturated(x, y):
    """min(x_0, LIMIT) with noise before the limit: at the limit only its probability is known."""
    above = jax.scipy.stats.norm.logsf(LIMIT, x[0], 0.1)
    return jnp.where(y[0] >= LIMIT, above, jax.scipy.stats.norm.logpdf(y[0], x[0], 0.1))


def log_counts(x, y):
    rate = 2.0 + x[2]
    return y[0] * rate - jnp.exp(rate) - jax.scipy.special.gammaln(y[0] + 1)


def outliers(x, y):
    inlier = stats.norm.pdf(y[0], x[:, 0] + x[:, 2], 0.1)
    return np.log(0.9 * inlier + 0.1 / 10.0)


def saturated(x, y):
    if y[0] >= LIMIT:
        return stats.norm.logsf(LIMIT, x[:, 0], 0.1)
    return stats.norm.logpdf(y[0], x[:, 0], 0.1)


SENSORS = {
    "student": (
        log_student,
        lambda x, y: stats.t.logpdf((y - x[:, :2]) / 0.1, 4).sum(1) - 2 * np.log(0.1),
        [[0.3, 0.5], [0.4, 0.4], [1.9, 0.5], [0.5, 0.4]],
    ),
    "outliers": (log_outliers, outliers, [[0.5], [0.6], [-3.0], [0.55]]),
    "saturated": (log_saturated, saturated, [[0.35], [0.45], [LIMIT], [LIMIT]]),
    "counts": (
        log_counts,
        lambda x, y: stats.poisson.logpmf(y[0], np.exp(2.0 + x[:, 2])),
        [[9.0], [6.0], [11.0], [4.0]],
    ),
}


def check_against_particles(post, densities):
    mean, error, ll, ll_error = bootstrap(
        lambda rng, n: M0 + np.sqrt(P0) * rng.normal(size=(n, 3)),
        [lambda rng, x: move(x) + SDS * rng.normal(size=x.shape)] * len(densities),
        densities,
        num=400_000,
    )
    sds = np.sqrt(np.diagonal(np.asarray(post.covariance), axis1=1, axis2=2))
    assert np.all(np.abs(np.asarray(post.mean) - mean) <= 6 * error + 0.05 * sds)
    assert float(post.log_likelihood) == pytest.approx(ll, abs=6 * ll_error + 0.05)
    assert np.all(np.asarray(post.error_estimates) > 0)


@pytest.mark.parametrize("name", SENSORS)
def test_any_sensor_with_any_dynamics(name):
    log_g, oracle, ys = SENSORS[name]
    ssm = psd.additive_gaussian(
        lambda u: move(u, jnp), Q=SDS**2, m0=M0, P0=P0, log_observation=log_g
    )
    post = psd.run_filter(psd.learn(ssm, 1e-2), np.array(ys))
    assert post.model.engine == "mixture"
    check_against_particles(post, [lambda x, y=y: oracle(x, y) for y in np.array(ys)])


def test_coordinates_that_are_missing_are_left_out():
    dist = pytest.importorskip("numpyro.distributions")
    ssm = psd.StateSpaceModel.from_distributions(
        prior=dist.Normal(jnp.asarray(M0), jnp.sqrt(jnp.asarray(P0))).to_event(1),
        transition=lambda u: dist.Normal(move(u, jnp), jnp.asarray(SDS)).to_event(1),
        observation=lambda x: [dist.StudentT(4.0, x[0], 0.1), dist.Normal(x[2] ** 2, 0.1)],
    )
    ys = np.array([[0.3, np.nan], [np.nan, 0.2], [np.nan, np.nan], [0.5, 0.1]])
    post = psd.run_filter(psd.learn(ssm, 1e-2, engine="mixture"), ys)

    def density(y):
        def log_g(x):
            first = stats.t.logpdf((y[0] - x[:, 0]) / 0.1, 4) - np.log(0.1)
            second = stats.norm.logpdf(y[1], x[:, 2] ** 2, 0.1)
            return np.where(np.isnan(y[0]), 0.0, first) + np.where(np.isnan(y[1]), 0.0, second)

        return None if np.isnan(y).all() else log_g

    check_against_particles(post, [density(y) for y in ys])
