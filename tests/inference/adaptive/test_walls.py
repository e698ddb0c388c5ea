"""Walls that nobody gave move: noise that grows with the state leads beyond simulated ones."""

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from scipy.stats import norm
from scipy.stats import t as t_law

import psdfilter as psd

SERIES = ([4.0, np.nan, 3.5], [0.1, -3.0, -13.0], [-8.0, np.nan, 0.3])


def spread(u):
    return jnp.sqrt(0.01 + 0.8 * u**2)


def growing() -> psd.StateSpaceModel:
    return psd.StateSpaceModel.from_distributions(
        dist.Normal(0.0, 0.5),
        lambda u: dist.Normal(0.3 * u, spread(u)),
        lambda x: dist.Normal(x, 0.05),
    )


def on_a_grid(ys):
    """Means, variances and log Z, on nodes that are dense near zero and reach to 200."""
    s, h = np.linspace(-9.0, 9.0, 4501, retstep=True)
    x, weights = 0.05 * np.sinh(s), 0.05 * np.cosh(s) * h
    kernel = norm.pdf(x[None, :], 0.3 * x[:, None], np.sqrt(0.01 + 0.8 * x**2)[:, None])
    mass, out = weights * norm.pdf(x, 0.0, 0.5), []
    for y in ys:
        mass, log_z = weights * (mass @ kernel), 0.0
        if np.isfinite(y):
            seen = norm.logpdf(y, x, 0.05)
            mass = mass * np.exp(seen - np.max(seen))
            log_z = np.log(mass.sum()) + np.max(seen)
        mass = mass / mass.sum()
        mean = mass @ x
        out.append((mean, mass @ (x - mean) ** 2, log_z))
    return np.array(out).T


@pytest.mark.long
@pytest.mark.parametrize("ys", SERIES)
def test_a_line(ys):
    model, (mean, variance, log_z) = psd.learn(growing(), 1e-3), on_a_grid(ys)
    post = psd.run_filter(model, ys)
    assert np.all(np.asarray(post.codes) == 0)
    np.testing.assert_allclose(post.mean[:, 0], mean, atol=1e-3)
    np.testing.assert_allclose(post.covariance[:, 0, 0], variance, rtol=2e-3)
    np.testing.assert_allclose(post.log_likelihoods, log_z, atol=1e-3)
    state = psd.init(model)
    for y in ys:
        state = psd.update(model, psd.predict(model, state), y)
    assert float(state.log_likelihood) == pytest.approx(float(post.log_likelihood), abs=1e-3)


@pytest.mark.long
def test_forecasts_and_densities_of_a_line():
    model, (_, variance, _) = psd.learn(growing(), 1e-3), on_a_grid([-8.0, np.nan, np.nan])
    post = psd.run_filter(model, [-8.0, np.nan])
    ahead = psd.forecast(model, psd.run_filter(model, [-8.0]), 2)
    np.testing.assert_allclose(ahead.covariance[:, 0, 0], variance[1:], rtol=1e-3)
    x, h = np.linspace(-120.0, 120.0, 24001, retstep=True)
    assert h * np.sum(np.asarray(post.density(1)(x[:, None]))) == pytest.approx(1.0, abs=1e-3)


def test_a_model_keeps_its_own_walls():
    model = psd.learn(growing(), 1e-3)
    first = psd.run_filter(model, [0.1, 0.2])
    _ = psd.run_filter(model, [-13.0])
    again = psd.run_filter(model, [0.1, 0.2])
    assert np.array_equal(first.log_likelihoods, again.log_likelihoods)


@pytest.mark.long
def test_positive_states():
    ssm = psd.StateSpaceModel.from_distributions(
        dist.LogNormal(0.0, 0.3),
        lambda u: dist.LogNormal(0.5 * jnp.log(u), 0.2 + 0.2 * jnp.log(u) ** 2),
        lambda x: dist.LogNormal(jnp.log(x), 0.05),
    )
    post = psd.run_filter(psd.learn(ssm, 1e-3), [1.0, 20.0])
    z, h = np.linspace(-6.0, 6.0, 4001, retstep=True)
    kernel = norm.pdf(z[None, :], 0.5 * z[:, None], (0.2 + 0.2 * z**2)[:, None])
    mass = h * norm.pdf(z, 0.0, 0.3)
    for k, y in enumerate((1.0, 20.0)):
        mass = h * (mass @ kernel) * norm.pdf(np.log(y), z, 0.05) / y
        assert float(post.log_likelihoods[k]) == pytest.approx(np.log(mass.sum()), abs=1e-3)
        mass = mass / mass.sum()
    assert float(post.mean[-1, 0]) == pytest.approx(mass @ np.exp(z), rel=1e-3)


@pytest.mark.long
def test_the_plane():
    """Two such lines side by side."""
    ssm = psd.StateSpaceModel.from_distributions(
        dist.Normal(jnp.zeros(2), 0.5).to_event(1),
        lambda u: dist.Normal(0.3 * u, spread(u)).to_event(1),
        lambda x: dist.Normal(x, 0.05).to_event(1),
    )
    ys = np.array([[-8.0, 0.1], [np.nan, np.nan]])
    post = psd.run_filter(psd.learn(ssm, 1e-2), ys)
    each = [on_a_grid(ys[:, k]) for k in range(2)]
    assert np.all(np.asarray(post.codes) == 0)
    for k in range(2):
        np.testing.assert_allclose(post.mean[:, k], each[k][0], atol=1e-2)
        np.testing.assert_allclose(post.covariance[:, k, k], each[k][1], rtol=2e-2)
    np.testing.assert_allclose(post.log_likelihoods, each[0][2] + each[1][2], atol=1e-2)


@pytest.mark.long
def test_a_second_mode_far_beyond_the_walls():
    """A heavy-tailed sensor leaves one in ten thousand far away, where the next row finds it."""
    ssm = psd.StateSpaceModel.from_distributions(
        dist.Normal(0.0, 1.0),
        lambda u: dist.Normal(0.6 * u, jnp.sqrt(0.2 + 0.5 * u * u)),
        lambda x: dist.StudentT(3.0, x, 0.4),
    )
    ys = [np.nan] * 4 + [500.0, 480.0]
    far = 0.05 * np.sinh(np.linspace(-13.0, 13.0, 2501))
    x = np.unique(np.concatenate([far, np.linspace(470.0, 510.0, 801)]))
    weights = np.gradient(x)
    kernel = norm.pdf(x[None, :], 0.6 * x[:, None], np.sqrt(0.2 + 0.5 * x**2)[:, None])
    mass = weights * norm.pdf(x)
    for y in ys:
        mass = weights * (mass @ kernel)
        mass = mass if np.isnan(y) else mass * t_law.pdf(y, 3.0, x, 0.4)
        log_z = np.log(mass.sum())
        mass = mass / mass.sum()
    post = psd.run_filter(psd.learn(ssm, 1e-3), ys)
    assert float(post.log_likelihoods[-1]) == pytest.approx(log_z, abs=5e-3)
    assert float(post.mean[-1, 0]) == pytest.approx(mass @ x, rel=1e-4)
