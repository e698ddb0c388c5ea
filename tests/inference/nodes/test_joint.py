"""G learned jointly over (x, y): the same filter, and closed forms in y."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import at_nodes, learned

import psdfilter as psd
from psdfilter import systems

# Two sensors of one coordinate, without Gaussian shortcuts.
SEEN_VARIANCES = (0.3, 0.4)
JOINT = psd.engines.Nodes(observation="joint")


def log_two_sensors(x, y):
    means = jnp.stack([x[0], 0.5 * x[0] ** 2])
    variances = jnp.asarray(SEEN_VARIANCES)
    return jnp.sum(-0.5 * (y - means) ** 2 / variances - 0.5 * jnp.log(2 * jnp.pi * variances))


def one_sensor(axis: int, x: np.ndarray, y: float) -> np.ndarray:
    mean = x if axis == 0 else 0.5 * x**2
    variance = SEEN_VARIANCES[axis]
    return np.exp(-0.5 * (y - mean) ** 2 / variance) / np.sqrt(2 * np.pi * variance)


def two_sensors() -> psd.StateSpaceModel:
    return psd.StateSpaceModel(
        lambda x: -0.5 * x[0] ** 2,
        lambda u, x: -0.5 * (x[0] - 0.8 * u[0]) ** 2 / 0.3 - 0.5 * np.log(2 * np.pi * 0.3),
        log_two_sensors,
        psd.Box(-4, 4),
        psd.Box([-6.5, -3.5], [6.5, 11.0]),
    )


@pytest.fixture(scope="module")
def sine():
    system = systems.sine_map
    _, ys = system.simulate(7, 12)
    ssm = system()
    ys = np.asarray(ys)
    joint, each = psd.learn(ssm, 1e-3, engine=JOINT), learned("sine_map", 1e-3)
    return joint, psd.run_filter(joint, ys), psd.run_filter(each, ys), ys


@pytest.fixture(scope="module")
def sensors():
    ys = np.array([[0.1, 0.2], [np.nan, 1.0], [0.3, np.nan], [np.nan, np.nan], [-0.4, 0.3]])
    model = psd.learn(two_sensors(), 1e-2, engine=JOINT)
    return model, psd.run_filter(model, ys), ys


@pytest.mark.slow
def test_joint_and_each_agree(sine):
    _, joint, each, ys = sine
    truth = systems.sine_map.reference(ys)
    for t in (0, 6, 11):
        values = np.asarray(joint.density(t)(truth.nodes))
        assert truth.weights @ np.abs(values - truth.densities[t]) < 1e-3
    np.testing.assert_allclose(joint.log_likelihoods, each.log_likelihoods, atol=1e-3)
    np.testing.assert_allclose(joint.pit, each.pit, atol=1e-3)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "tol"),
    [
        ("sine_map", 1e-5),
        ("stochastic_volatility", 1e-3),
        ("stochastic_volatility", 1e-5),
        ("range_only", 1e-2),
        ("pendulum", 1e-2),
        ("linear_1d", 1e-4),
    ],
)
def test_joint_meets_the_tolerance(name, tol):
    system = systems.ALL[name]
    _, ys = system.simulate(3, 20)
    ys = np.asarray(ys)
    truth = system.reference(ys)
    joint = psd.run_filter(psd.learn(system(), tol, engine=JOINT), ys)
    each = psd.run_filter(psd.learn(system(), tol), ys)
    for t in range(0, 20, 4):
        density = np.asarray(joint.density(t)(truth.nodes))
        assert truth.weights @ np.abs(density - truth.densities[t]) < tol
        assert truth.weights @ np.abs(density - np.asarray(each.density(t)(truth.nodes))) < tol
    np.testing.assert_allclose(joint.log_likelihoods, truth.log_likelihoods, atol=tol)
    np.testing.assert_allclose(joint.log_likelihoods, each.log_likelihoods, atol=tol)
    assert not np.any(joint.codes)


@pytest.mark.long
def test_the_corrected_predictive_integrates_to_one(sine):
    """Z_t / D_t as a function of y_t, by quadrature over F: a filter run for each y."""
    model, post, _, ys = sine
    z, w = np.polynomial.legendre.leggauss(120)
    box = model.filled.ssm.observation_box
    y, w = float(box.center[0]) + float(box.half_width[0]) * z, float(box.half_width[0]) * w
    series = jnp.asarray(np.stack([np.concatenate([ys[:4, 0], [value]]) for value in y]))

    def last(row):
        run = psd.run_filter(model, row)
        return run.log_likelihoods[-1] - run.trace.log_normalizers[-1]

    values = np.exp(np.asarray(jax.jit(jax.vmap(last))(series)))
    np.testing.assert_allclose(w @ values, 1.0, atol=1e-10)
    # The same density in closed form.
    density = post.observation_density(4)
    assert isinstance(density, psd.GaussianPSD)
    np.testing.assert_allclose(density(y[:, None]), values, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(psd.integral(density, box), 1.0, rtol=1e-12)
    np.testing.assert_allclose(psd.cdf(density, 0, ys[4, 0], box), post.pit[4], atol=1e-12)


def test_the_correction_is_as_small_as_the_error_of_g(sine):
    _, post, each, _ = sine
    assert np.max(np.abs(post.trace.log_normalizers)) < 1e-3
    assert abs(float(post.log_predictive - each.log_predictive)) < 12e-3


def dense_recursion(ys: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Means and log-likelihoods by quadrature, missing coordinates left out of the product."""
    z, w = np.polynomial.legendre.leggauss(200)
    z, w = 4 * z, 4 * w
    table = np.exp(-0.5 * (z[None] - 0.8 * z[:, None]) ** 2 / 0.3) / np.sqrt(2 * np.pi * 0.3)
    density = np.exp(-0.5 * z**2)
    density = density / (w @ density)
    means, logs = [], []
    for y in ys:
        predicted = (w * density) @ table
        seen = ~np.isnan(y)
        for axis in np.flatnonzero(seen):
            predicted = predicted * one_sensor(int(axis), z, y[axis])
        mass = w @ predicted
        density = predicted / mass
        logs.append(np.log(mass) if seen.any() else 0.0)
        means.append(w @ (density * z))
    return np.array(means), np.array(logs)


@pytest.mark.long
def test_gaps_are_integrated_out_in_closed_form(sensors):
    _, post, ys = sensors
    means, logs = dense_recursion(ys)
    np.testing.assert_allclose(post.log_likelihoods, logs, atol=1e-2)
    np.testing.assert_allclose(post.mean[:, 0], means, atol=1e-2)
    np.testing.assert_allclose(post.seen, [True, True, True, False, True])


@pytest.mark.long
def test_a_marginal_over_a_gap_equals_quadrature_of_the_learned_model(sensors):
    """int G^(x, y) dy_0 over the box by Gauss-Legendre, to rounding."""
    model, _, _ = sensors
    joint, box = model.filled.joint, model.filled.ssm.observation_box
    z, w = np.polynomial.legendre.leggauss(120)
    half = float(box.half_width[0])
    y = np.column_stack([float(box.center[0]) + half * z, np.full(120, 1.0)])
    whole = np.asarray(joint.values(joint.table, jnp.asarray(y))) @ (half * w)
    gap = jnp.exp(joint.log_scale) * joint.at_nodes(jnp.asarray([np.nan, 1.0]), True)
    np.testing.assert_allclose(gap, whole, rtol=1e-9, atol=1e-12 * whole.max())


@pytest.mark.slow
def test_densities_with_gaps_are_psd_models(sensors):
    _, post, _ = sensors
    x = np.linspace(-3.5, 3.5, 9)[:, None]
    for t in (1, 2):
        density = post.density(t)
        np.testing.assert_allclose(density.expand()(x), density(x), rtol=1e-7, atol=1e-9)


@pytest.mark.slow
def test_gaps_online_and_smoothed(sensors):
    model, post, ys = sensors
    state = psd.init(model)
    for y in ys:
        state = psd.update(model, psd.predict(model, state), y)
    np.testing.assert_allclose(state.log_likelihood, post.log_likelihood, rtol=1e-11)
    smooth = psd.run_smoother(model, ys)
    np.testing.assert_allclose(smooth.mean[-1], post.mean[-1], atol=1e-10)
    pair = np.asarray(smooth.pair_law(1))
    w = np.asarray(model.filled.plan.node_weights())
    np.testing.assert_allclose(w @ pair, at_nodes(smooth)[2], atol=1e-9)


@pytest.mark.slow
def test_laws_of_y_in_two_coordinates(sensors):
    model, post, _ = sensors
    density = post.observation_density(2)
    box = model.filled.ssm.observation_box
    np.testing.assert_allclose(psd.integral(density, box), 1.0, rtol=1e-10)
    mean, covariance = psd.moments(density, box)
    laws = post.predicted_observations
    np.testing.assert_allclose(mean, laws.mean[2], atol=1e-3)
    np.testing.assert_allclose(covariance, laws.covariance[2], atol=1e-2)


@pytest.mark.slow
def test_a_numpy_model_is_learned_jointly():
    """The sine map as a black box: G is tabulated once, and observations cost no more calls."""
    from scipy.stats import norm

    system, calls = systems.sine_map, [0]

    def log_transition(u, x):
        mean = 0.9 * np.sin(2.2 * u[:, 0])
        inside = norm.cdf((1 - mean) / 0.15) - norm.cdf((-1 - mean) / 0.15)
        return norm.logpdf(x[:, 0], mean, 0.15) - np.log(inside)

    def log_observation(x, y, t):
        calls[0] += 1
        return -0.5 * ((y[:, 0] - x[:, 0] ** 2) / 0.1) ** 2 - np.log(0.1 * np.sqrt(2 * np.pi))

    box = psd.StateSpaceModel(
        lambda x: np.zeros(len(x)),
        log_transition,
        log_observation,
        psd.Box(-1, 1),
        psd.Box(-0.6, 1.6),
        vectorized=True,
    )
    model = psd.learn(box, 1e-2, engine=JOINT)
    before = calls[0]
    _, ys = system.simulate(7, 6)
    post = psd.run_filter(model, ys)
    assert calls[0] == before
    truth = system.reference(np.asarray(ys))
    np.testing.assert_allclose(post.log_likelihoods, truth.log_likelihoods, atol=1e-2)


@pytest.mark.slow
def test_files_keep_the_joint_model(sine, tmp_path):
    model, post, _, ys = sine
    psd.save(tmp_path / "model.npz", model)
    again = psd.load(tmp_path / "model.npz", ssm=model.filled.ssm)
    np.testing.assert_array_equal(psd.run_filter(again, ys).mean, post.mean)
    assert str(again.report) == str(model.report)


@pytest.mark.slow
def test_a_joint_model_has_a_certificate(sine):
    _, post, _, ys = sine
    assert np.all(np.isfinite(post.certificate.observation_error))
    truth = systems.sine_map.reference(ys)
    gaps = [
        truth.weights @ np.abs(np.asarray(post.density(t)(truth.nodes)) - truth.densities[t])
        for t in range(len(ys))
    ]
    assert np.all(np.asarray(gaps) <= post.certificate.bound + 1e-12)


@pytest.mark.long
def test_what_a_joint_model_cannot_do_is_named(sine):
    model, _, each, _ = sine
    ssm = model.filled.ssm
    with pytest.raises(ValueError, match=r"ys\[1\]: .*outside observation_box"):
        psd.run_filter(model, [0.2, 9.0, 0.1])
    post = psd.run_filter(model, [0.2, 9.0, 0.1], throw=False)
    missing = psd.run_filter(model, [0.2, np.nan, 0.1])
    np.testing.assert_allclose(post.mean, missing.mean)
    bare = psd.StateSpaceModel(
        ssm.log_prior, ssm.log_transition, ssm.log_observation, ssm.state_box
    )
    with pytest.raises(ValueError, match="needs observation_box"):
        psd.learn(bare, 1e-2, engine=JOINT)
    varying = psd.StateSpaceModel(
        ssm.log_prior,
        ssm.log_transition,
        lambda x, y, t: -0.5 * (y[0] - x[0]) ** 2 * (1.0 + jnp.asarray(t, dtype=float)),
        ssm.state_box,
        ssm.observation_box,
    )
    with pytest.raises(ValueError, match="does not vary in time"):
        psd.learn(varying, 1e-2, engine=JOINT)
    with pytest.raises(ValueError, match='observation must be "each" or "joint"'):
        psd.engines.Nodes(observation="both")
    closed = psd.run_filter(psd.learn(ssm, 1e-2, engine="closed"), [0.2])
    with pytest.raises(ValueError, match='"closed" does not offer the law of y as a PSD model'):
        closed.observation_density(0)
    with pytest.raises(ValueError, match=r'observation_density needs .*observation="joint"'):
        each.observation_density(0)
