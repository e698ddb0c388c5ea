"""Laws of observations without a box: normal, counted, confined, heavy-tailed; and what prints."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import psdfilter as psd

YS = np.array([0.5, 0.7, 0.9])


@pytest.mark.long
def test_laws_of_y_need_no_box_and_do_not_depend_on_one():
    exact = psd.run_filter(psd.learn(psd.linear_gaussian(0.8, 0.2, 1.0, 0.1, 0.0, 0.5)), YS)
    want = exact.predicted_observations
    for box in (None, psd.Box(-500.0, 500.0)):
        ssm = psd.additive_gaussian(
            lambda x: 0.8 * x, lambda x: x, 0.2, 0.1, 0.0, 0.5, observation_box=box
        )
        post = psd.run_filter(psd.learn(ssm, 1e-5), YS)
        got = post.predicted_observations
        np.testing.assert_allclose(got.mean, want.mean, atol=1e-5)
        np.testing.assert_allclose(got.covariance, want.covariance, atol=1e-5)
        levels = [0.01, 0.5, 0.95]
        np.testing.assert_allclose(got.quantile(levels), want.quantile(levels), atol=1e-5)
        np.testing.assert_allclose(post.pit, exact.pit, atol=1e-5)
        assert float(jnp.max(jnp.abs(got.leak))) < 1e-10
        at = [[0.3], [1.1]]
        np.testing.assert_allclose(got.density(1)(at), want.density(1)(at), rtol=1e-4)


@pytest.mark.long
def test_counts_are_summed():
    def log_observation(x, y):
        return y[0] * x[0] - jnp.exp(x[0]) - jax.scipy.special.gammaln(y[0] + 1)

    ssm = psd.StateSpaceModel(
        lambda x: jax.scipy.stats.norm.logpdf(x[0], 1.0, 0.4),
        lambda u, x: jax.scipy.stats.norm.logpdf(x[0], u[0], 0.3),
        log_observation,
        psd.Box(-3.0, 5.0),
        sample_observation=lambda key, x: jax.random.poisson(key, jnp.exp(x)).astype(float),
        counts=True,
    )
    post = psd.run_filter(psd.learn(ssm, 1e-5), [3.0])
    laws = post.predicted_observations
    x = np.linspace(-3.0, 5.0, 4001)
    weights = stats.norm.pdf(x, 1.0, 0.5) * (x[1] - x[0])
    masses = stats.poisson.pmf(np.arange(200)[:, None], np.exp(x)[None]) @ weights
    assert float(laws.mean[0, 0]) == pytest.approx(np.arange(200) @ masses, abs=1e-3)
    below = np.cumsum(masses)
    for level in (0.05, 0.5, 0.95):
        assert float(laws.quantile(level)[0, 0]) == np.argmax(below >= level)
    assert float(laws.cdf([3.0])[0, 0]) == pytest.approx(below[3], abs=1e-4)
    assert float(post.pit[0]) == pytest.approx(below[3], abs=1e-4)
    assert float(laws.density(0)([[2.0]])[0]) == pytest.approx(masses[2], rel=1e-3)


@pytest.mark.long
def test_heavy_tails_and_walls_of_y():
    ssm = psd.StateSpaceModel(
        lambda x: jax.scipy.stats.norm.logpdf(x[0]),
        lambda u, x: jax.scipy.stats.norm.logpdf(x[0], 0.5 * u[0], 0.5),
        lambda x, y: jax.scipy.stats.cauchy.logpdf(y[0], x[0], 0.1),
        psd.Box(-6.0, 6.0),
        sample_observation=lambda key, x: x + 0.1 * jax.random.cauchy(key, (1,)),
    )
    laws = psd.run_filter(psd.learn(ssm, 1e-4), [0.2]).predicted_observations
    x = np.linspace(-6.0, 6.0, 4001)
    weights = stats.norm.pdf(x, 0.0, np.sqrt(0.5)) * (x[1] - x[0])
    for level in (0.001, 0.1, 0.5):
        at = float(laws.quantile(level)[0, 0])
        assert stats.cauchy.cdf(at, x, 0.1) @ weights == pytest.approx(level, abs=2e-4)


@pytest.mark.long
def test_missing_rows_leave_gradients_finite():
    def build(c):
        def log_observation(x, y):
            return -jnp.exp(c) * (y[0] - x[0]) ** 2 + 0.5 * c

        return psd.linear_gaussian(
            0.9,
            0.1,
            None,
            None,
            0.0,
            0.5,
            log_observation=log_observation,
            state_box=psd.Box(-4.0, 4.0),
        )

    ys = np.array([0.1, 0.4, np.nan, -0.2])
    ll = psd.likelihood(build, 0.3, ys, tol=1e-3)
    slope = (float(ll(0.301)) - float(ll(0.299))) / 0.002
    assert float(jax.grad(ll)(0.3)) == pytest.approx(slope, rel=1e-4)


def test_boxes_models_and_states_can_be_read():
    ssm = psd.additive_gaussian(
        lambda u, dt: u, lambda x: x, 0.1, 0.1, 0.0, 1.0, state_box=([-5.0], [5.0])
    )
    assert str(ssm.state_box) == "Box [-5, 5]"
    wrapped = psd.Box([0.0, -3.0], [1.0, 3.0], periodic=1)
    assert str(wrapped) == "Box [0, 1] x [-3, 3) wrapped"
    assert "observation  1 number\n" in str(ssm)
    assert "confined to Box [-5, 5]" in str(ssm)
    assert "takes        dt" in str(ssm)
    model = psd.learn(psd.linear_gaussian(1.0, 0.1, 1.0, 0.1, 0.0, 1.0))
    state = psd.init(model)
    assert "after 1 transition: " in str(psd.predict(model, state))
    seen = psd.run_filter(model, [0.1, 0.2]).predicted_observations
    assert "2, from 1 to 2\nstate         1 coordinate\n" in str(seen)
    assert str(state).startswith("FilterState after 0 transitions: log-likelihood 0")


@pytest.mark.long
def test_a_censored_observation_is_drawn_and_said_to_be():
    sd, norm = 0.5, jax.scipy.stats.norm
    censored = psd.StateSpaceModel(
        log_prior=lambda x: norm.logpdf(x[0]),
        log_transition=lambda u, x: norm.logpdf(x[0], 0.9 * u[0], 0.4),
        log_observation=lambda x, y: jnp.where(
            y[0] <= 0, norm.logcdf(-x[0] / sd), norm.logpdf(y[0], x[0], sd)
        ),
        state_box=psd.Box(-8, 8),
        sample_observation=lambda key, x: jnp.maximum(x + sd * jax.random.normal(key, (1,)), 0.0),
    )
    model = psd.learn(censored, 1e-3)
    post = psd.run_filter(model, np.array([0.5, 0.0, 0.0, 1.2, 0.8]))
    ahead = psd.forecast(model, post, 2)
    with pytest.warns(UserWarning, match="is no density in y: a law of y has mass"):
        laws = ahead.observations
    # E max(X, 0) for X = x + sd eps, from the law of x.
    x = np.linspace(-8, 8, 4001)
    p = np.asarray(ahead.density(0)(x[:, None])) * (x[1] - x[0])
    z = x / sd
    truth = np.sum(p * (x * stats.norm.cdf(z) + sd * stats.norm.pdf(z)))
    assert float(laws.mean[0, 0]) == pytest.approx(truth, abs=0.03)
    assert float(laws.quantile(0.05)[0, 0]) == 0.0
