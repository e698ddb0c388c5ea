"""States of two coordinates: lattices chosen at every step, against dense grids."""

import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from plane_grid import Grid

import psdfilter as psd

SDS = (0.3, 0.3)


def turn(x):
    """A damped pendulum."""
    return np.stack([0.9 * x[:, 0] + 0.3 * x[:, 1], 0.9 * x[:, 1] - 0.5 * np.sin(x[:, 0])], axis=1)


def normal(x, mean, sd):
    return np.exp(-0.5 * ((x - mean) / sd) ** 2) / (np.sqrt(2 * np.pi) * sd)


def prior(x):
    return normal(x[:, 0], 0.5, 0.5) * normal(x[:, 1], 0.0, 0.5)


def swing(sensor_sd=0.3, **more):
    return psd.additive_gaussian(
        lambda x: jnp.stack([0.9 * x[0] + 0.3 * x[1], 0.9 * x[1] - 0.5 * jnp.sin(x[0])]),
        lambda x: jnp.sin(x[0]),
        [SDS[0] ** 2, SDS[1] ** 2],
        sensor_sd**2,
        [0.5, 0.0],
        [0.25, 0.25],
        **more,
    )


def height(y, sd=0.3):
    return lambda x: normal(y, np.sin(x[:, 0]), sd)


YS = np.array([0.4, 0.7, 0.1, -0.5, -0.8, 0.2])


@pytest.fixture(scope="module")
def truth():
    grid = Grid([-6, -6], [6, 6])
    return grid, *grid.run(prior, turn, SDS, [height(y) for y in YS])


@pytest.mark.long
@pytest.mark.parametrize("tol", [1e-2, 1e-3, 1e-5])
def test_the_tolerance_holds(truth, tol):
    grid, filtered, logs, _ = truth
    model = psd.learn(swing(), tol)
    assert model.engine == "adaptive"
    post = psd.run_filter(model, YS)
    distances = [grid.distance(post.density(t), p) for t, p in enumerate(filtered)]
    assert max(distances) < tol
    np.testing.assert_allclose(post.log_likelihoods, logs, atol=tol)
    assert np.all(np.asarray(post.error_estimates) < tol)
    assert np.all(np.asarray(post.codes) == 0)


@pytest.mark.slow
def test_smoothed_laws_are_those_of_a_grid(truth):
    grid, filtered, _, smoothed = truth
    model = psd.learn(swing(), 1e-4)
    post = psd.run_smoother(model, YS)
    for t, p in enumerate(smoothed):
        assert grid.distance(post.density(t), p) < 1e-3
        np.testing.assert_allclose(post.mean[t], p @ grid.points * grid.cell, atol=1e-3)
    lagged = psd.run_smoother(model, YS, lag=2)
    short = Grid([-6, -6], [6, 6]).run(prior, turn, SDS, [height(y) for y in YS[:3]])[2]
    assert grid.distance(lagged.density(0), short[0]) < 1e-3
    assert grid.distance(lagged.density(5), filtered[5]) < 1e-3


@pytest.mark.long
def test_quantiles_and_draws(truth):
    grid, filtered, _, _ = truth
    post = psd.run_filter(psd.learn(swing(), 1e-4), YS)
    for coordinate in range(2):
        x, levels = grid.marginal_cdf(filtered[-1], coordinate)
        for q in (0.05, 0.5, 0.9):
            wanted = np.interp(q, levels, x)
            np.testing.assert_allclose(post.quantile(q)[-1, coordinate], wanted, atol=2e-3)
    draws = np.asarray(post.sample(key=jax.random.key(0), num=20_000))[:, -1]
    np.testing.assert_allclose(draws.mean(0), post.mean[-1], atol=0.02)
    np.testing.assert_allclose(np.cov(draws.T), post.covariance[-1], atol=0.02)


@pytest.mark.long
@pytest.mark.parametrize("far", [5, 10, 20])
def test_outliers_are_followed(far):
    """One observation far off: the posterior is that of the model, then and after."""
    ssm = psd.additive_gaussian(
        lambda x: 0.9 * x, lambda x: x, [0.09, 0.09], [0.09, 0.09], [0.0, 0.0], [1.0, 1.0]
    )
    ys = np.zeros((5, 2))
    ys[2] = [0.5 * far, 0.0]
    mean, covariance = np.zeros(2), np.eye(2)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        post = psd.run_filter(psd.learn(ssm, 1e-3, engine="adaptive"), ys)
        state, model = psd.init(psd.learn(ssm, 1e-3, engine="adaptive")), post.model
        for y in ys:
            state = psd.update(model, psd.predict(model, state), y)
    for t, y in enumerate(ys):
        ahead = 0.81 * covariance + 0.09 * np.eye(2)
        gain = ahead @ np.linalg.inv(ahead + 0.09 * np.eye(2))
        mean = 0.9 * mean + gain @ (y - 0.9 * mean)
        covariance = ahead - gain @ ahead
        np.testing.assert_allclose(post.mean[t], mean, atol=2e-4)
        np.testing.assert_allclose(post.covariance[t], covariance, atol=2e-4)
    np.testing.assert_allclose(state.moments(model)[0], mean, atol=2e-4)
    assert int(state.code) == 0


@pytest.mark.long
@pytest.mark.parametrize("variance", [1e-2, 1e-6])
def test_noise_that_is_correlated_and_a_sensor_that_is_precise(variance):
    noise = np.array([[0.09, 0.06], [0.06, 0.09]])
    ssm = psd.additive_gaussian(
        lambda x: 0.8 * x, lambda x: x[:1] + x[1:], noise, variance, [0.0, 0.0], [1.0, 0.5]
    )
    ys = np.array([[0.3], [0.5], [-0.2]])
    post = psd.run_filter(psd.learn(ssm, 1e-3, engine="adaptive"), ys)
    mean, covariance, h = np.zeros(2), np.diag([1.0, 0.5]), np.array([1.0, 1.0])
    for t, y in enumerate(ys):
        mean, covariance = 0.8 * mean, 0.64 * covariance + noise
        spread = h @ covariance @ h + variance
        gain = covariance @ h / spread
        log_z = -0.5 * ((y[0] - h @ mean) ** 2 / spread + np.log(2 * np.pi * spread))
        mean = mean + gain * (y[0] - h @ mean)
        covariance = covariance - np.outer(gain, h @ covariance)
        np.testing.assert_allclose(post.mean[t], mean, atol=1e-3)
        np.testing.assert_allclose(post.log_likelihoods[t], log_z, atol=1e-3)


@pytest.mark.long
def test_a_box_that_cuts_the_density():
    """State and noise confined to a box that the density does not fade out in."""
    box = psd.Box([-1.0, -1.0], [1.0, 1.0])

    def log_transition(u, x):
        return -0.5 * jnp.sum((x - 0.9 * u) ** 2) / 0.5**2

    ssm = psd.StateSpaceModel(
        log_prior=lambda x: jnp.zeros(()),
        log_transition=log_transition,
        log_observation=lambda x, y: -0.5 * (y[0] - x[0] * x[1]) ** 2 / 0.2**2,
        state_box=box,
    )
    ys = np.array([0.5, 0.6, -0.3])
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".*leaves state_box|.*logarithm of a density")
        post = psd.run_filter(psd.learn(ssm, 1e-3, engine="adaptive"), ys)
    grid = Grid([-1, -1], [1, 1], num=120)
    filtered, _, _ = grid.run(
        lambda x: np.ones(len(x)),
        lambda x: 0.9 * x,
        (0.5, 0.5),
        [lambda x, y=y: normal(y, x[:, 0] * x[:, 1], 0.2) for y in ys],
    )
    for t, p in enumerate(filtered):
        # The midpoint rule of the grid is worse than the tolerance at the walls.
        assert grid.distance(post.density(t), p) < 2e-3


@pytest.mark.long
def test_a_coordinate_that_is_known_exactly():
    exact = psd.additive_gaussian(
        lambda x: 0.8 * x, lambda x: x, [0.09, 0.09], [0.09, 0.09], [1.0, 0.0], [0.0, 1.0]
    )
    post = psd.run_filter(psd.learn(exact, 1e-3, engine="adaptive"), np.array([[1.0, 0.3]]))
    ahead = np.diag([0.09, 0.64 + 0.09])
    gain = np.diag(ahead) / (np.diag(ahead) + 0.09)
    mean = np.array([0.8, 0.0]) + gain * (np.array([1.0, 0.3]) - [0.8, 0.0])
    np.testing.assert_allclose(post.mean[0], mean, atol=1e-4)
    np.testing.assert_allclose(np.diag(post.covariance[0]), (1 - gain) * np.diag(ahead), atol=1e-4)
    assert np.all(np.asarray(post.codes) == 0)


@pytest.mark.long
def test_gaps_and_several_sensors(truth):
    grid = truth[0]
    model = psd.learn(swing(), 1e-3)
    ys = np.array([0.4, 0.7, 0.6, 0.1])
    post = psd.run_filter(model, ys, times=[1, 3, 3, 4])

    def both(x):
        return height(0.7)(x) * height(0.6)(x)

    filtered, logs, smoothed = grid.run(prior, turn, SDS, [height(0.4), None, both, height(0.1)])
    assert grid.distance(post.density(2), filtered[2]) < 1e-3
    assert grid.distance(post.density(3), filtered[3]) < 1e-3
    np.testing.assert_allclose(post.log_likelihood, np.sum(logs), atol=3e-3)
    back = psd.run_smoother(model, ys, times=[1, 3, 3, 4])
    for row, at in ((0, 0), (1, 2), (2, 2), (3, 3)):
        np.testing.assert_allclose(
            back.mean[row], smoothed[at] @ grid.points * grid.cell, atol=2e-3
        )


@pytest.mark.long
def test_what_cannot_be_resolved_is_said():
    """A map with a jump: the error falls slowly with the nodes."""
    ssm = psd.additive_gaussian(
        lambda x: jnp.stack([jnp.where(x[0] + x[1] > 0, -1.0, 1.0) + 0.5 * x[0], 0.9 * x[1]]),
        lambda x: x[0] + x[1],
        [0.01, 0.01],
        0.25,
        [0.0, 0.0],
        [0.25, 0.25],
    )
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        post = psd.run_filter(psd.learn(ssm, 1e-6, engine="adaptive"), np.array([0.3]))
    large = np.asarray(post.error_estimates) > 1e-6
    assert np.all((np.asarray(post.codes) != 0) == large)
    assert bool(np.any(large)) == any(w.category is psd.ResolutionWarning for w in caught)
    assert np.any(large)


@pytest.mark.slow
def test_impossible_and_infinite_observations():
    ssm = psd.StateSpaceModel(
        log_prior=lambda x: -0.5 * jnp.sum(x**2),
        log_transition=lambda u, x: (
            -0.5 * jnp.sum((x - 0.5 * u) ** 2) / 0.25 - jnp.log(2 * jnp.pi * 0.25)
        ),
        log_observation=lambda x, y: jnp.where(y[0] > 0, -0.5 * (y[0] - x[0]) ** 2, -jnp.inf),
        state_box=psd.Box([-5.0, -5.0], [5.0, 5.0]),
    )
    model = psd.learn(ssm, 1e-2, engine="adaptive")
    post = psd.run_filter(model, np.array([0.5, -1.0, np.inf, 0.2]), throw=False)
    codes = np.asarray(post.codes)
    assert codes[0] == 0
    assert codes[1] != 0
    assert codes[2] != 0
    assert np.isneginf(float(post.log_likelihoods[1]))
    assert np.all(np.isfinite(np.asarray(post.mean)))


def test_an_online_state_is_saved_and_goes_on(tmp_path):
    model = psd.learn(swing(), 1e-2)
    state = psd.init(model)
    for y in YS[:3]:
        state = psd.update(model, psd.predict(model, state), y)
    psd.save(tmp_path / "state.psd", state)
    again = psd.load(tmp_path / "state.psd")
    one = psd.update(model, psd.predict(model, state), YS[3])
    two = psd.update(model, psd.predict(model, again), YS[3])
    assert float(one.log_likelihood) == float(two.log_likelihood)
    np.testing.assert_array_equal(one.moments(model)[0], two.moments(model)[0])


@pytest.mark.slow
def test_a_ridge_across_a_box():
    """A sensor of the sum, a thousandth of the box: the lattice turns along what it leaves."""
    noise = np.array([[0.16, 0.05], [0.05, 0.09]])
    precision, log_det = np.linalg.inv(noise), float(np.log(np.linalg.det(2 * np.pi * noise)))

    def log_transition(u, x):
        gap = x - 0.7 * u
        return -0.5 * gap @ jnp.asarray(precision) @ gap - 0.5 * log_det

    ssm = psd.StateSpaceModel(
        log_prior=lambda x: -0.5 * jnp.sum(x**2),
        log_transition=log_transition,
        log_observation=lambda x, y: (
            -0.5 * ((y[0] - x[0] - x[1]) / 0.01) ** 2 - jnp.log(0.01 * jnp.sqrt(2 * jnp.pi))
        ),
        state_box=psd.Box([-6.0, -6.0], [6.0, 6.0]),
    )
    ys = np.array([0.4, -0.3])
    post = psd.run_filter(psd.learn(ssm, 1e-3, engine="adaptive"), ys)
    mean, covariance, h = np.zeros(2), np.eye(2), np.ones(2)
    for t, y in enumerate(ys):
        mean, covariance = 0.7 * mean, 0.49 * covariance + noise
        spread = h @ covariance @ h + 1e-4
        gain = covariance @ h / spread
        log_z = -0.5 * ((y - h @ mean) ** 2 / spread + np.log(2 * np.pi * spread))
        mean = mean + gain * (y - h @ mean)
        covariance = covariance - np.outer(gain, h @ covariance)
        np.testing.assert_allclose(post.mean[t], mean, atol=1e-3)
        np.testing.assert_allclose(post.covariance[t], covariance, atol=1e-3)
        np.testing.assert_allclose(post.log_likelihoods[t], log_z, atol=1e-3)
    assert np.all(np.asarray(post.codes) == 0)
