"""Quantiles, draws, smoothing, forecasts and laws of y against dense references."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import at_nodes

import psdfilter as psd
from psdfilter import systems


@pytest.fixture(scope="module")
def sine():
    system = systems.sine_map
    _, ys = system.simulate(7, 12)
    ys = np.asarray(ys)
    return psd.learn(system(), 1e-4, engine="nodes"), ys, system.reference(ys)


def transition(z: np.ndarray) -> np.ndarray:
    """The sine map's transition at all pairs of nodes, written out once more."""
    from scipy.stats import norm

    mean = 0.9 * np.sin(2.2 * z)[:, None]
    inside = norm.cdf((1 - mean) / 0.15) - norm.cdf((-1 - mean) / 0.15)
    return norm.pdf(z[None, :], mean, 0.15) / inside


@pytest.mark.long
def test_quantiles_and_intervals(sine):
    model, ys, reference = sine
    post = psd.run_filter(model, ys)
    quantiles = post.quantile([0.1, 0.5, 0.8])
    z, w = reference.nodes[:, 0], reference.weights
    for t in (0, 5, 11):
        cdf = np.cumsum(w * reference.densities[t]) - 0.5 * w * reference.densities[t]
        got = np.interp(np.asarray(quantiles[:, t, 0]), z, cdf)
        np.testing.assert_allclose(got, [0.1, 0.5, 0.8], atol=2e-3)
    low, high = post.interval(0.9)
    assert np.all(np.asarray(low) < np.asarray(high))


def test_expectations(sine):
    model, ys, reference = sine
    post = psd.run_filter(model, ys)
    got = post.expect(lambda x: jnp.stack([x[0] ** 2, jnp.abs(x[0])]))
    z = reference.nodes[:, 0]
    weights = reference.densities * reference.weights[None, :]
    np.testing.assert_allclose(got[:, 0], weights @ z**2, atol=1e-4)
    np.testing.assert_allclose(got[:, 1], weights @ np.abs(z), atol=1e-2)


@pytest.mark.slow
def test_draws_from_the_marginals(sine):
    model, ys, reference = sine
    post = psd.run_filter(model, ys)
    draws = np.asarray(post.sample(key=jax.random.key(0), num=2000))
    assert draws.shape == (2000, 12, 1)
    z, w = reference.nodes[:, 0], reference.weights
    for t in (2, 9):
        second = w @ (reference.densities[t] * z**2)
        spread = w @ (reference.densities[t] * z**4) - second**2
        assert abs(np.mean(draws[:, t, 0] ** 2) - second) < 6 * np.sqrt(spread / 2000)


def backward(ys, reference):
    """Forward-backward on the reference's nodes."""
    z, w = reference.nodes[:, 0], reference.weights
    Q = transition(z)
    beta, out = np.ones(z.size), [reference.densities[-1]]
    for t in range(len(ys) - 1, 0, -1):
        likelihood = np.exp(-0.5 * ((ys[t] - z**2) / 0.1) ** 2)
        beta = Q @ (w * likelihood * beta)
        beta = beta / beta.max()
        joint = reference.densities[t - 1] * beta
        out.append(joint / (w @ joint))
    return np.array(out[::-1])


@pytest.mark.slow
def test_smoothing_equals_forward_backward_on_the_reference(sine):
    model, ys, reference = sine
    smooth = psd.run_smoother(model, ys)
    expected = backward(ys, reference)
    z, w = reference.nodes, reference.weights
    for t in (0, 4, 10, 11):
        assert w @ np.abs(np.asarray(smooth.density(t)(z)) - expected[t]) < 1e-4
    second = (expected * w[None, :]) @ z[:, 0] ** 2
    np.testing.assert_allclose(
        smooth.covariance[:, 0, 0] + smooth.mean[:, 0] ** 2, second, atol=1e-4
    )


@pytest.mark.long
def test_pair_laws_have_the_smoothed_marginals(sine):
    model, ys, _ = sine
    smooth = psd.run_smoother(model, ys)
    w = np.asarray(model.filled.plan.node_weights())
    pair = np.asarray(smooth.pair_law(5))
    np.testing.assert_allclose(pair @ w, at_nodes(smooth)[5], atol=1e-9)
    np.testing.assert_allclose(w @ pair, at_nodes(smooth)[6], atol=1e-9)


@pytest.mark.slow
def test_smoothed_paths_have_the_law_of_their_pairs(sine):
    model, ys, _ = sine
    smooth = psd.run_smoother(model, ys)
    paths = np.asarray(smooth.sample(key=jax.random.key(3), num=1500))
    assert paths.shape == (1500, 12, 1)
    z, w = np.asarray(model.filled.plan.nodes[0]), np.asarray(model.filled.plan.node_weights())
    pair = np.asarray(smooth.pair_law(5)) * w[:, None] * w[None, :]
    expected = z @ pair @ z
    products = paths[:, 5, 0] * paths[:, 6, 0]
    assert abs(products.mean() - expected) < 6 * products.std() / np.sqrt(1500)


@pytest.mark.slow
def test_forecasts_equal_monte_carlo(sine):
    model, ys, _ = sine
    post = psd.run_filter(model, ys)
    ahead = psd.forecast(model, post, 3)
    rng = np.random.default_rng(0)
    x = np.repeat(np.asarray(post.sample(key=jax.random.key(1), num=1000))[:, -1, 0], 20)
    for k in range(3):
        new = np.full(x.shape, np.nan)
        while np.isnan(new).any():
            todo = np.isnan(new)
            draw = 0.9 * np.sin(2.2 * x[todo]) + 0.15 * rng.normal(size=todo.sum())
            new[todo] = np.where(np.abs(draw) < 1, draw, np.nan)
        x = new
        second = float(ahead.covariance[k, 0, 0] + ahead.mean[k, 0] ** 2)
        # A thousand starts, each of twenty paths.
        assert abs(np.mean(x**2) - second) < 6 * np.std(x**2) / np.sqrt(1000)
        assert abs(np.mean(x <= float(ahead.quantile(0.8)[k, 0])) - 0.8) < 6 * 0.4 / np.sqrt(1000)
    seen = ahead.observations
    np.testing.assert_allclose(seen.mean[:, 0], ahead.expect(lambda x: x[0] ** 2), atol=1e-3)
    np.testing.assert_allclose(seen.leak, 0.0, atol=1e-3)


@pytest.mark.slow
def test_probability_transforms_of_data_from_the_model_are_uniform():
    system = systems.stochastic_volatility
    _, ys = system.simulate(5, 150)
    post = psd.run_filter(psd.learn(system(), 1e-2, engine="nodes"), ys)
    pit = np.asarray(post.pit)
    # Kolmogorov-Smirnov: exceeded with probability 1e-6.
    steps = np.arange(1, 151) / 150
    assert np.max(np.abs(np.sort(pit) - steps)) < 2.7 / np.sqrt(150)
    residuals = np.asarray(post.residuals)
    assert abs(residuals.mean()) < 6 / np.sqrt(150)
    assert abs(residuals.std() - 1) < 6 / np.sqrt(300)


@pytest.mark.slow
def test_laws_of_y_ask_for_the_observation_box(sine):
    model, ys, _ = sine
    ssm = model.filled.ssm
    bare = psd.StateSpaceModel(
        ssm.log_prior, ssm.log_transition, ssm.log_observation, ssm.state_box
    )
    post = psd.run_filter(psd.learn(bare, 1e-2), ys)
    with pytest.raises(ValueError, match="needs observation_box"):
        _ = post.pit
    with pytest.raises(ValueError, match="needs observation_box"):
        _ = psd.forecast(post.model, post, 1).observations


@pytest.mark.slow
def test_a_model_without_a_sampler_is_sized_by_its_first_data(sine):
    model, ys, reference = sine
    ssm = model.filled.ssm
    bare = psd.StateSpaceModel(
        ssm.log_prior, ssm.log_transition, ssm.log_observation, ssm.state_box
    )
    post = psd.run_filter(psd.learn(bare, 1e-3), ys)
    z, w = reference.nodes, reference.weights
    for t in (0, 6, 11):
        assert w @ np.abs(np.asarray(post.density(t)(z)) - reference.densities[t]) < 1e-3


@pytest.mark.slow
def test_single_missing_coordinates_are_marginalised():
    def build(**more):
        return psd.additive_gaussian(
            lambda u: 0.8 * u,
            lambda x: jnp.stack([x[0], 0.5 * x[0] ** 2]),
            0.3,
            [0.3, 0.4],
            0.0,
            1.0,
            state_box=(-5, 5),
            observation_box=([-9, -6], [9, 20]),
            **more,
        )

    ssm = build()
    model = psd.learn(ssm, 1e-4)
    ys = np.array([[0.1, 0.2], [np.nan, 1.0], [0.3, np.nan], [np.nan, np.nan]])
    exact = psd.run_filter(model, ys)
    blind = psd.StateSpaceModel(
        ssm.log_prior,
        ssm.log_transition,
        lambda x, y: (
            -0.5 * jnp.square(y[0] - x[0]) / 0.3
            - 0.5 * jnp.square(y[1] - 0.5 * x[0] ** 2) / 0.4
            - 0.5 * np.log(2 * np.pi * 0.3)
            - 0.5 * np.log(2 * np.pi * 0.4)
        ),
        ssm.state_box,
        ssm.observation_box,
        sample_observation=ssm.sample_observation,
    )
    by_quadrature = psd.run_filter(psd.learn(blind, 1e-4), ys)
    np.testing.assert_allclose(exact.log_likelihoods, by_quadrature.log_likelihoods, atol=1e-4)
    np.testing.assert_allclose(exact.mean, by_quadrature.mean, atol=1e-3)


@pytest.mark.slow
def test_a_poisson_count_is_an_observation():
    from jax.scipy.special import gammaln

    ssm = psd.StateSpaceModel(
        lambda x: -0.5 * jnp.square(x[0]),
        lambda u, x: (
            -0.5 * jnp.square((x[0] - 0.9 * u[0]) / 0.4) - jnp.log(0.4 * np.sqrt(2 * np.pi))
        ),
        lambda x, y: y[0] * x[0] - jnp.exp(x[0]) - gammaln(y[0] + 1),
        psd.Box(-4, 4),
        sample_observation=lambda key, x: jax.random.poisson(key, jnp.exp(x)),
    )
    counts = np.array([1.0, 0.0, 3.0, 2.0, 0.0, 5.0])
    post = psd.run_filter(psd.learn(ssm, 1e-4), counts)
    z, w = np.polynomial.legendre.leggauss(300)
    z, w = 4 * z, 4 * w
    density = np.exp(-0.5 * z**2)
    density = density / (w @ density)
    table = np.exp(-0.5 * ((z[None] - 0.9 * z[:, None]) / 0.4) ** 2) / (0.4 * np.sqrt(2 * np.pi))
    from scipy.stats import poisson

    for t, y in enumerate(counts):
        density = ((w * density) @ table) * poisson.pmf(y, np.exp(z))
        mass = w @ density
        density = density / mass
        np.testing.assert_allclose(post.log_likelihoods[t], np.log(mass), atol=1e-4)
        np.testing.assert_allclose(post.mean[t, 0], w @ (density * z), atol=1e-3)


def test_inputs_and_time_reach_the_transition():
    ssm = psd.additive_gaussian(
        lambda u, t, inputs: 0.7 * u + 0.5 * jnp.cos(1.2 * jnp.asarray(t, float)) + inputs,
        lambda x: x,
        0.4,
        0.5,
        0.0,
        1.0,
        state_box=(-7, 7),
        inputs=np.zeros((1,)),
    )
    drive = np.linspace(-0.5, 0.5, 8)[:, None]
    ys = np.random.default_rng(1).normal(size=(8, 1))
    post = psd.run_filter(psd.learn(ssm, 1e-5, inputs=drive), ys, inputs=drive)
    mean, variance = 0.0, 1.0
    for t in range(8):
        mean = 0.7 * mean + 0.5 * np.cos(1.2 * (t + 1)) + drive[t, 0]
        variance = 0.49 * variance + 0.4
        gain = variance / (variance + 0.5)
        mean, variance = mean + gain * (ys[t, 0] - mean), (1 - gain) * variance
        np.testing.assert_allclose(post.mean[t, 0], mean, atol=1e-4)
        np.testing.assert_allclose(post.covariance[t, 0, 0], variance, atol=1e-4)
