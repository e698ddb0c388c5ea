"""What a user takes away: tables, summaries, likelihoods other programs give, all series."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import errors_on, kalman, largest_distance, learned

import psdfilter as psd
from psdfilter import systems


@pytest.fixture(scope="module")
def sine():
    system = systems.sine_map
    _, ys = system.simulate(7, 8)
    ys = np.asarray(ys).copy()
    ys[3] = np.nan
    model = learned("sine_map", 1e-2)
    return model, ys, psd.run_filter(model, ys)


@pytest.mark.long
def test_a_filter_as_a_dataset(sine):
    pytest.importorskip("xarray")
    _, _, post = sine
    table = post.to_xarray()
    assert dict(table.sizes) == {"time": 8, "state": 1, "other_state": 1, "quantile": 3}
    np.testing.assert_array_equal(table.time, np.arange(1, 9))
    np.testing.assert_array_equal(table.state, [0])
    np.testing.assert_array_equal(table["quantile"], [0.05, 0.5, 0.95])
    np.testing.assert_allclose(table["mean"], post.mean)
    np.testing.assert_allclose(table["sd"][:, 0] ** 2, post.covariance[:, 0, 0])
    upper = table["quantiles"].sel(quantile=0.95, time=4, state=0)
    np.testing.assert_allclose(upper, post.quantile(0.95)[3, 0], rtol=1e-6)
    assert table.attrs["log_likelihood"] == pytest.approx(float(post.log_likelihood))


def test_smoothers_and_forecasts_as_datasets(sine):
    pytest.importorskip("xarray")
    model, ys, post = sine
    smooth = psd.run_smoother(model, ys)
    table = smooth.to_xarray(quantiles=())
    np.testing.assert_allclose(table["mean"], smooth.mean)
    assert "quantiles" not in table
    assert table.attrs["log_likelihood"] == pytest.approx(float(post.log_likelihood))
    ahead = psd.forecast(model, post, 2)
    table = ahead.to_xarray(quantiles=())
    np.testing.assert_array_equal(table.time, [9, 10])
    np.testing.assert_allclose(table["mean"], ahead.mean)


@pytest.mark.long
def test_summaries_print(sine):
    model, ys, post = sine
    lines = str(post).splitlines()
    assert lines[0] == "Posterior"
    facts = dict(line.split("  ", 1) for line in lines[1:])
    assert float(facts["log likelihood"]) == pytest.approx(float(post.log_likelihood), rel=1e-5)
    assert int(facts["rows not used"]) == 1
    assert facts["times"].strip() == "8, from 1 to 8"
    assert facts["state"].strip() == "1 coordinate"
    assert "lag" in str(psd.run_smoother(model, ys, lag=2))
    assert str(psd.forecast(model, post, 2)).startswith("Forecast")
    assert jax.eval_shape(lambda y: psd.run_filter(model, y).mean, jnp.asarray(ys)).shape == (8, 1)


def test_wrong_width_is_named_without_an_observation_box(sine):
    model, _, _ = sine
    ssm = psd.additive_gaussian(lambda u: 0.8 * u, lambda x: x, 0.3, 0.4, 0.0, 1.0, (-1, 1))
    assert ssm.observation_box is None
    with pytest.raises(ValueError, match="ys must have 1 columns"):
        psd.run_filter(replace(model, filled=replace(model.filled, ssm=ssm)), np.zeros((3, 2)))


@pytest.mark.slow
def test_nile_has_the_likelihood_that_statsmodels_gives():
    """Local level, the same proper prior, no burn-in; through the box and not through matrices."""
    statsmodels = pytest.importorskip("statsmodels.api")
    _, volumes = systems.nile()
    variances, mean, variance = (15099.0, 1469.1), 1000.0, 160.0**2
    peer = statsmodels.tsa.UnobservedComponents(volumes, level="llevel")
    peer.ssm.initialize_known(np.array([mean]), np.array([[variance]]))
    peer.loglikelihood_burn = 0
    expected = peer.loglike(np.array(variances))
    ssm = psd.linear_gaussian(
        1.0, variances[1], 1.0, variances[0], mean, variance, state_box=(250, 1750)
    )
    model = psd.learn(ssm, 1e-7, engine="nodes")
    # statsmodels puts the known law on the first state itself.
    post = psd.run_filter(model, volumes, first="observe")
    assert abs(float(post.log_likelihood) - expected) < 1e-4


@pytest.mark.slow
def test_the_box_route_is_kalman_in_two_dimensions():
    F = np.array([[0.8, 0.2], [-0.15, 0.7]])
    Q, H, R = np.diag([0.5, 0.4]), np.array([[1.0, 0.4]]), np.array([[0.6]])
    ys = np.random.default_rng(1).normal(size=(12, 1))
    start = np.array([0.2, -0.1])
    ssm = psd.linear_gaussian(
        F, Q, H, R, start, 0.6 * np.eye(2), state_box=([-7.5, -6.5], [7.5, 6.5])
    )
    post = psd.run_filter(psd.learn(ssm, 1e-6, engine="nodes"), ys)
    means, covariances, logs = kalman(ys, F, Q, H, R, start, 0.6 * np.eye(2))
    np.testing.assert_allclose(post.mean, means, atol=1e-5)
    np.testing.assert_allclose(post.covariance, covariances, atol=1e-5)
    np.testing.assert_allclose(post.log_likelihoods, logs, atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("tol", [1e-2, 1e-3, 1e-4, 1e-5, 1e-6])
@pytest.mark.parametrize("name", ["ungm", "bounded_ar", "noisy_logistic"])
def test_every_tolerance_holds_on_the_other_systems(name, tol):
    errors = errors_on(name, tol, num_steps=40)
    assert max(errors.values()) <= tol, errors


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "tol"),
    [
        ("sine_map", 1e-4),
        ("stochastic_volatility", 1e-3),
        ("ungm", 1e-3),
        ("theta_logistic", 1e-3),
        ("linear_1d", 1e-3),
        ("bounded_ar", 1e-3),
        ("noisy_logistic", 1e-3),
        ("pendulum", 1e-2),
        ("range_only", 1e-2),
        ("linear_2d", 1e-2),
    ],
)
def test_the_error_estimate_is_within_a_factor_of_ten(name, tol):
    system = systems.ALL[name]
    _, ys = system.simulate(5, 20)
    post = psd.run_filter(psd.learn(system(), tol, engine="nodes"), ys)
    truth = largest_distance(post, system.reference(np.asarray(ys)), every=1)
    assert truth / 10 <= float(post.error_estimate) <= 10 * truth


@pytest.mark.slow
def test_the_closed_engine_has_the_same_results():
    system = systems.sine_map
    _, ys = system.simulate(7, 8)
    ys = np.asarray(ys)
    model = psd.learn(system(), 1e-2, engine="closed", ys=ys)
    post, nodes = (
        psd.run_filter(model, ys),
        psd.run_filter(psd.learn(system(), 1e-3, engine="nodes"), ys),
    )
    np.testing.assert_allclose(post.pit, nodes.pit, atol=1e-2)
    np.testing.assert_allclose(post.log_predictive, nodes.log_predictive, atol=8e-2)
    closed, other = psd.forecast(model, post, 2), psd.forecast(nodes.model, nodes, 2)
    np.testing.assert_allclose(closed.covariance, other.covariance, atol=1e-2)
    with pytest.raises(ValueError, match='it is one of engine "nodes", the model is one of'):
        psd.forecast(model, nodes, 2)


@pytest.mark.slow
def test_errors_of_the_closed_engine():
    system = systems.sine_map
    _, ys = system.simulate(7, 8)
    ys = np.asarray(ys)
    post = psd.run_filter(psd.learn(system(), 1e-2, engine="closed"), ys)
    truth = largest_distance(post, system.reference(ys), every=1)
    assert truth / 10 <= float(post.error_estimate) <= 10 * truth
    assert np.max(post.certificate.bound) >= truth
    smooth = psd.run_smoother(psd.learn(system(), 1e-2, engine="closed"), ys)
    np.testing.assert_allclose(smooth.mean[-1], post.mean[-1], atol=1e-2)


@pytest.mark.slow
def test_a_million_steps_in_constant_memory(sine):
    """With summaries only, a step leaves a few numbers behind, not its density at the nodes."""
    model, _, _ = sine

    def run(ys):
        post = psd.run_filter(model, ys, keep="summaries", throw=False)
        return post.log_likelihood, post.mean[-1]

    sizes = []
    for num in (200_000, 1_000_000):
        ys = jnp.asarray(np.random.default_rng(0).uniform(0, 1, (num, 1)))
        compiled = jax.jit(run).lower(ys).compile()
        sizes.append(compiled.memory_analysis().temp_size_in_bytes)
    slope = (sizes[1] - sizes[0]) / 800_000
    assert slope < 0.7 * 8 * model.filled.plan.num_nodes
    log_likelihood, _ = compiled(ys)
    assert np.isfinite(log_likelihood)
