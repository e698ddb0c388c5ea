"""Whole systems learned with free shapes: dense grids in NumPy as oracles."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import psdfilter as psd
from psdfilter import _results, systems

pytestmark = pytest.mark.slow

LOGISTIC = systems.noisy_logistic


@pytest.fixture(scope="module")
def logistic():
    return psd.learn(LOGISTIC(), engine="free")


def densities_at(post, nodes: np.ndarray) -> np.ndarray:
    """All densities in one program; the last one as a user gets it."""
    box = post.model.state_box
    unit = jnp.asarray((nodes - np.asarray(box.center)) / np.asarray(box.half_width))
    values = jax.lax.map(lambda law: law(unit), post.laws.laws, batch_size=100)
    values = np.asarray(values) / float(np.prod(box.half_width))
    np.testing.assert_allclose(post.density(-1)(nodes), values[-1], atol=1e-7 * values[-1].max())
    return values


@pytest.mark.parametrize("name", ["theta_logistic", "noisy_logistic", "stochastic_volatility"])
def test_against_a_dense_grid(name):
    """Far better than a total variation of 1e-3 over 50 steps at order 70."""
    system = systems.ALL[name]
    learned = psd.learn(system(), engine="free")
    assert "MISSED" not in str(learned.report)
    for seed in range(3):
        _, ys = system.simulate(seed, 50)
        post, wanted = psd.run_filter(learned, ys), system.reference(ys)
        values = densities_at(post, wanted.nodes)
        assert not np.asarray(post.codes).any()
        assert max(post.density(t).order for t in range(50)) <= 64
        assert wanted.distance_to(values).max() < 2e-4
        np.testing.assert_allclose(post.log_likelihoods, wanted.log_likelihoods, atol=2e-4)
        np.testing.assert_allclose(post.mean, wanted.mean, atol=2e-4)


def test_no_drift_over_ten_thousand_steps():
    """The sine map never tells the sign of its state: errors of the odds are not forgotten."""
    system, num = systems.sine_map, 10_000
    learned = psd.learn(system(), engine="free")
    _, ys = system.simulate(7, num)
    post, wanted = psd.run_filter(learned, ys), system.reference(ys)
    values = densities_at(post, wanted.nodes)
    distances = wanted.distance_to(values)
    assert np.isfinite(np.asarray(post.mean)).all()
    assert np.isfinite(values).all()
    assert values.min() >= 0
    assert distances.max() < 1e-3
    medians = np.median(distances.reshape(10, -1), axis=1)
    assert medians.max() < 4e-4
    assert medians[-3:].mean() < 3 * medians[:3].mean()


def test_observations_that_nobody_expected(logistic):
    _, ys = LOGISTIC.simulate(1, 30)
    for shift in (0.8, 1.6):  # four and eight standard deviations of the sensor
        seen = np.asarray(ys).copy()
        seen[10] += shift
        post, wanted = psd.run_filter(logistic, seen), LOGISTIC.reference(seen)
        assert wanted.log_likelihoods[10] < -7
        np.testing.assert_allclose(post.log_likelihoods, wanted.log_likelihoods, atol=1e-4)
        assert wanted.distance_to(densities_at(post, wanted.nodes)).max() < 1e-4


def grid_smoother(ys: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Nodes, weights and smoothed densities of the noisy logistic map, forwards and backwards."""
    filtered = LOGISTIC.reference(ys)
    x, w = filtered.nodes, filtered.weights
    densities = LOGISTIC.densities()
    table = np.exp(densities.log_axis(0, x, x[:, 0], 1))
    smoothed, beta = [filtered.densities[-1]], np.ones(len(x))
    for t in range(len(ys) - 1, 0, -1):
        seen = 1.0 if np.isnan(ys[t, 0]) else np.exp(densities.log_observation(x, ys[t], t))
        beta = table @ (w * seen * beta)
        beta /= beta.max()
        product = filtered.densities[t - 1] * beta
        smoothed.append(product / (w @ product))
    return x, w, np.stack(smoothed[::-1])


def test_the_smoother_of_a_dense_grid(logistic):
    ys = np.asarray(LOGISTIC.simulate(3, 20)[1]).copy()
    ys[8:10] = np.nan
    post = psd.run_smoother(logistic, ys)
    x, w, wanted = grid_smoother(ys)
    mean = (wanted * w) @ x[:, 0]
    variance = (wanted * w) @ x[:, 0] ** 2 - mean**2
    assert (np.abs(densities_at(post, x) - wanted) @ w).max() < 1e-4
    np.testing.assert_allclose(post.mean[:, 0], mean, atol=1e-5)
    np.testing.assert_allclose(post.covariance[:, 0, 0], variance, atol=1e-5)
    assert post.method == "two-filter"
    # Rows that are left out are times without data.
    kept = np.flatnonzero(~np.isnan(ys[:, 0]))
    timed = psd.run_smoother(logistic, ys[kept], times=kept + 1)
    np.testing.assert_allclose(timed.mean, np.asarray(post.mean)[kept], atol=1e-8)
    # Two sensors at one time see one state.
    twice = psd.run_smoother(logistic, np.repeat(ys[:3], 2, axis=0), times=[1, 1, 2, 2, 3, 3])
    np.testing.assert_array_equal(twice.mean[0::2], twice.mean[1::2])


def test_paths_have_the_marginals_and_the_pairs(logistic):
    ys = np.asarray(LOGISTIC.simulate(4, 6)[1])
    post, num = psd.run_smoother(logistic, ys), 4000
    paths = np.asarray(post.sample(key=jax.random.key(0), num=num))[:, :, 0]
    x, w, wanted = grid_smoother(ys)
    mean = (wanted * w) @ x[:, 0]
    sd = np.sqrt((wanted * w) @ x[:, 0] ** 2 - mean**2)
    assert (np.abs(paths.mean(axis=0) - mean) < 6 * sd / np.sqrt(num)).all()
    # p(x_5, x_6 | y) is pi_5(u) Q(u, x) G(x, y_6), up to a factor.
    densities, filtered = LOGISTIC.densities(), LOGISTIC.reference(ys)
    pair = filtered.densities[4][:, None] * np.exp(densities.log_axis(0, x, x[:, 0], 1))
    pair = pair * np.exp(densities.log_observation(x, ys[5], 6)) * np.outer(w, w)
    pair = pair / pair.sum()
    wanted_product = x[:, 0] @ pair @ x[:, 0]
    products = paths[:, 4] * paths[:, 5]
    assert abs(products.mean() - wanted_product) < 6 * products.std() / np.sqrt(num)


def test_laws_of_observations(logistic):
    ys = np.asarray(LOGISTIC.simulate(5, 12)[1])
    post, wanted = psd.run_filter(logistic, ys), LOGISTIC.reference(ys)
    densities, x, w = LOGISTIC.densities(), wanted.nodes, wanted.weights
    table = np.exp(densities.log_axis(0, x, x[:, 0], 1))
    ahead = (w * wanted.densities[:-1]) @ table  # of x_2 ... x_T; y = x + noise has their mean
    mean = ahead * w @ x[:, 0]
    np.testing.assert_allclose(post.predicted_observations.mean[1:, 0], mean, atol=1e-5)
    forecast = psd.forecast(logistic, post, 1)
    last = (w * wanted.densities[-1]) @ table
    np.testing.assert_allclose(forecast.observations.mean[0, 0], last * w @ x[:, 0], atol=1e-5)
    normal = jax.scipy.stats.norm.cdf
    below = normal((ys[1:] - x[:, 0][None, :]) / 0.2)
    np.testing.assert_allclose(post.pit[1:], np.sum(ahead * w * below, axis=1), atol=1e-5)
    np.testing.assert_allclose(normal(post.residuals), post.pit, atol=1e-12)
    np.testing.assert_allclose(post.log_predictive, wanted.log_likelihood, atol=1e-3)
    np.testing.assert_allclose(post.predictive_density(3)(x), ahead[2], atol=1e-3)


def walk(drift: float, sensor) -> psd.engines.AbstractModel:
    """x' = u + drift + N(0, 0.1^2) on (-1, 1), started at -0.5."""

    def log_normal(residual, sd):
        return -0.5 * (residual / sd) ** 2 - jnp.log(sd * np.sqrt(2 * np.pi))

    ssm = psd.StateSpaceModel(
        log_prior=lambda x: log_normal(x[0] + 0.5, 0.1),
        log_transition=lambda u, x: log_normal(x[0] - u[0] - drift, 0.1),
        log_observation=sensor,
        state_box=psd.Box(-1.0, 1.0),
    )
    return psd.learn(ssm, engine="free")


@pytest.mark.filterwarnings("ignore::psdfilter.ResolutionWarning")  # of ys[3], 3e-3 for 1e-3
def test_what_cannot_be_used_has_a_code():
    """An impossible measurement, and a state that leaves the box."""
    close = walk(0.0, lambda x, y: jnp.where(jnp.abs(x[0] - y[0]) < 0.5, 0.0, -jnp.inf))
    ys = np.array([-0.5, -0.4, 5.0, -0.3])
    post = psd.run_filter(close, ys, throw=False)
    assert np.asarray(post.codes == _results.NO_MASS).tolist() == [False, False, True, False]
    assert np.isneginf(np.asarray(post.log_likelihoods)).tolist() == [False, False, True, False]
    assert np.isfinite(np.asarray(post.mean)).all()
    with pytest.raises(ValueError, match=r"failed at ys\[2\].*likelihood zero"):
        psd.run_filter(close, ys)
    with pytest.raises(ValueError, match=r"failed at ys\[1\].*infinite"):
        psd.run_filter(close, [0.0, np.inf])
    gone = psd.run_filter(walk(0.7, lambda x, y: jnp.zeros(())), np.zeros(5), throw=False)
    assert int(gone.codes[0]) == _results.OK
    assert _results.NO_MASS in np.asarray(gone.codes)[2:4]
    assert float(gone.log_kept[2]) < -3
    assert np.isfinite(np.asarray(gone.mean)).all()


def test_numpy_models_need_a_joint_density():
    ssm = psd.StateSpaceModel(
        lambda x: np.zeros(len(x)),
        lambda u, x: -np.square(x[:, 0] - u[:, 0]),
        lambda x, y: -np.square(x[:, 0] - y[:, 0]),
        psd.Box(-1.0, 1.0),
        vectorized=True,
    )
    with pytest.raises(ValueError, match='takes observation="joint" for NumPy models'):
        psd.learn(ssm, engine="free")


def test_a_joint_density_serves_as_well(logistic):
    """G learned too: no functions are needed any more."""
    joint = psd.learn(LOGISTIC(), engine=psd.engines.Free(observation="joint"))
    _, ys = LOGISTIC.simulate(0, 30)
    one, other = psd.run_filter(logistic, ys), psd.run_filter(joint, ys)
    np.testing.assert_allclose(other.mean, one.mean, atol=2e-4)
    np.testing.assert_allclose(other.log_likelihoods, one.log_likelihoods, atol=1e-3)


def test_saved_with_the_functions_of_the_sensor(logistic, tmp_path):
    psd.save(tmp_path / "model.npz", logistic)
    _, ys = LOGISTIC.simulate(0, 5)
    again = psd.run_filter(psd.load(tmp_path / "model.npz", ssm=LOGISTIC()), ys)
    np.testing.assert_array_equal(again.mean, psd.run_filter(logistic, ys).mean)
