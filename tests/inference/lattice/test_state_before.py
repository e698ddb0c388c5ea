"""Sensors that take the state before, against dense grids and a Kalman filter."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import psdfilter as psd

A, S, C, R = 0.9, 0.3, 0.7, 0.2
YS = np.array([0.5, -1.0, 0.3, np.nan, 0.1])


def build(c=C, **options):
    def mean(x, u):
        return x + c * (x - u) ** 2

    return psd.additive_gaussian(
        lambda u: A * u + 0.3 * jnp.sin(2 * u),
        None,
        S**2,
        None,
        0.0,
        1.0,
        log_observation=lambda x, y, u: jax.scipy.stats.norm.logpdf(y[0], mean(x, u)[0], R),
        sample_observation=lambda key, x, u: mean(x, u) + R * jax.random.normal(key, (1,)),
        **options,
    )


class Grid:
    """p(x_t, y_t | u) = Q(u, x) G(x, y, u) on 1501 points."""

    def __init__(self, c=C, ys=YS):
        x = self.x = np.linspace(-6, 6, 1501)
        h = self.h = x[1] - x[0]
        self.Q = stats.norm.pdf(x[None], (A * x + 0.3 * np.sin(2 * x))[:, None], S)
        self.seen = x[None] + c * (x[None] - x[:, None]) ** 2
        p, self.ll, self.laws, kernels = stats.norm.pdf(x), 0.0, [], []
        for y in ys:
            kernels.append(self.Q if np.isnan(y) else self.Q * stats.norm.pdf(y, self.seen, R))
            p = (p * h) @ kernels[-1]
            z = p.sum() * h
            p, self.ll = p / z, self.ll + np.log(z)
            self.laws.append(p)
        b, self.smoothed = np.ones_like(x), [p]
        for p, K in zip(self.laws[-2::-1], kernels[:0:-1], strict=True):
            b = K @ b
            b = b / b.max()
            self.smoothed.insert(0, p * b / (p @ b * h))

    def means(self, laws):
        return np.array([p @ self.x * self.h for p in laws])

    def distance(self, density, p):
        return float(np.abs(np.asarray(density(self.x[:, None])) - p).sum() * self.h)


GRID = Grid()


@pytest.fixture(scope="module")
def model():
    return psd.learn(build(), 1e-3)


@pytest.fixture(scope="module")
def post(model):
    return psd.run_filter(model, YS)


@pytest.mark.slow
def test_filter_and_smoother_are_those_of_the_grid(model, post):
    assert model.engine == "lattice"
    assert float(post.log_likelihood) == pytest.approx(GRID.ll, abs=1e-3)
    np.testing.assert_allclose(post.mean[:, 0], GRID.means(GRID.laws), atol=1e-3)
    for t in (1, 3):
        assert GRID.distance(post.density(t), GRID.laws[t]) <= max(post.error_estimates[t], 1e-5)
    smooth = psd.run_smoother(model, YS)
    np.testing.assert_allclose(smooth.mean[:, 0], GRID.means(GRID.smoothed), atol=1e-3)
    assert GRID.distance(smooth.density(2), GRID.smoothed[2]) < 2e-3
    paths = np.asarray(smooth.sample(key=jax.random.key(0), num=4000))[:, :, 0]
    errors = paths.std(axis=0) / np.sqrt(len(paths))
    assert np.all(np.abs(paths.mean(axis=0) - GRID.means(GRID.smoothed)) < 6 * errors + 1e-3)


@pytest.mark.slow
def test_online_steps_are_the_filter(model, post):
    state = psd.init(model)
    for y in YS:
        state = psd.update(model, psd.predict(model, state), y)
    assert float(state.log_likelihood) == pytest.approx(GRID.ll, abs=1e-3)
    np.testing.assert_allclose(state.moments(model)[0], post.mean[-1], atol=1e-3)


@pytest.mark.slow
def test_forecasts_are_of_the_transition_alone_and_y_is_drawn(model, post):
    ahead, p, h = psd.forecast(model, post, 2), GRID.laws[-1], GRID.h
    for k in range(2):
        pairs = (p * h)[:, None] * GRID.Q * h
        p = pairs.sum(axis=0) / h
        assert float(ahead.mean[k, 0]) == pytest.approx(p @ GRID.x * h, abs=1e-3)
        mean, square = (pairs * GRID.seen).sum(), (pairs * (GRID.seen**2 + R**2)).sum()
        spread = np.sqrt(square - mean**2)
        assert float(ahead.observations.mean[k, 0]) == pytest.approx(mean, abs=6 * spread / 256)
        high = float(ahead.observations.quantile(0.9)[k, 0])
        below = (pairs * stats.norm.cdf(high, GRID.seen, R)).sum()
        assert below == pytest.approx(0.9, abs=6 * np.sqrt(0.09) / 256)


@pytest.mark.slow
def test_likelihoods_have_the_slope_of_the_grid():
    ll = psd.likelihood(build, C, YS)
    slope = (Grid(C + 1e-4).ll - Grid(C - 1e-4).ll) / 2e-4
    assert float(jax.grad(ll)(C)) == pytest.approx(slope, rel=1e-4)
    assert float(psd.run_filter(psd.learn(build()), YS, times=[1, 2, 4, 5, 6]).log_likelihood) == (
        pytest.approx(Grid(ys=np.insert(YS, 2, np.nan)).ll, abs=1e-3)
    )


def correlated(ys, F, H, Q, R, G):
    """The Kalman filter of noises with covariance G, by the joint law of x and y given u."""
    m, P, ll = 0.0, 1.0, 0.0
    for y in ys:
        m, P = F * m, F * P * F + Q
        mean, S = H * m, H * P * H + R + 2 * H * G
        ll += stats.norm.logpdf(y, mean, np.sqrt(S))
        gain = (P * H + G) / S
        m, P = m + gain * (y - mean), P - gain * S * gain
    return m, P, ll


@pytest.mark.slow
def test_noises_that_are_correlated():
    F, H, Q, R_, G = 0.8, 1.0, 0.3, 0.2, -0.15
    ys = [0.4, -0.2, 1.1, 0.7]

    def log_observation(x, y, u):
        noise = x[0] - F * u[0]
        return jax.scipy.stats.norm.logpdf(y[0], H * x[0] + G / Q * noise, jnp.sqrt(R_ - G**2 / Q))

    ssm = psd.additive_gaussian(
        lambda u: F * u, None, Q, None, 0.0, 1.0, log_observation=log_observation
    )
    post = psd.run_filter(psd.learn(ssm, 1e-4), ys)
    m, P, ll = correlated(ys, F, H, Q, R_, G)
    assert float(post.mean[-1, 0]) == pytest.approx(m, abs=1e-4)
    assert float(post.covariance[-1, 0, 0]) == pytest.approx(P, abs=1e-4)
    assert float(post.log_likelihood) == pytest.approx(ll, abs=4e-4)
    with pytest.raises(ValueError, match="sample_observation=lambda key, x, u"):
        _ = psd.forecast(post.model, post, 1).observations


@pytest.mark.long
def test_what_cannot_be_asked_is_refused_with_its_reason(model):
    with pytest.raises(ValueError, match=r'ys\[0\] has no state before.*first="predict"'):
        psd.run_filter(model, YS, first="observe")
    with pytest.raises(ValueError, match=r"ys\[2\] comes at the time of ys\[1\]"):
        psd.run_filter(model, YS, times=[1, 2, 2, 3, 4])
    with pytest.raises(ValueError, match="update must come after predict"):
        psd.update(model, psd.init(model), 0.1)
    state = psd.update(model, psd.predict(model, psd.init(model)), 0.1)
    with pytest.raises(ValueError, match="once after each predict"):
        psd.update(model, state, 0.2)
    with pytest.raises(ValueError, match=r'does not know a sensor that takes u.*"lattice"'):
        psd.learn(build(), engine="nodes")
    with pytest.raises(ValueError, match="not served beside regimes"):
        psd.switching([build(), build()], np.full((2, 2), 0.5))
    with pytest.raises(ValueError, match="h must be a function of the state x alone"):
        psd.additive_gaussian(lambda u: u, lambda x, u: x - u, 1.0, 1.0, 0.0, 1.0)


@pytest.mark.slow
def test_an_impossible_observation_is_named_and_left_out(model):
    ys = np.array([0.5, np.inf, 0.3])
    post = psd.run_filter(model, ys, throw=False)
    assert int(post.codes[1]) != 0
    np.testing.assert_allclose(
        post.mean[2], psd.run_filter(model, [0.5, np.nan, 0.3]).mean[2], atol=1e-6
    )
