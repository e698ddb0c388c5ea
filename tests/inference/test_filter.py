"""The filter against dense references, Kalman, and itself in other forms."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import errors_on, kalman, largest_distance, learned, slow
from jax.scipy.stats import norm

import psdfilter as psd
from psdfilter import systems
from psdfilter._inference.nodes.online import NodesLaw
from psdfilter._inference.series import as_rows


@pytest.mark.long
@pytest.mark.parametrize(
    ("name", "tol"),
    [
        ("sine_map", 1e-2),
        slow("sine_map", 1e-4),
        slow("stochastic_volatility", 1e-2),
        slow("stochastic_volatility", 1e-4),
    ],
)
def test_the_tolerance_holds_in_one_dimension(name, tol):
    errors = errors_on(name, tol)
    assert max(errors.values()) <= tol, errors


@pytest.mark.slow
def test_the_tolerance_holds_in_two_dimensions():
    errors = errors_on("range_only", 1e-2, num_steps=12)
    assert max(errors.values()) <= 1e-2, errors


@pytest.mark.slow
@pytest.mark.parametrize("tol", [1e-2, 1e-3, 1e-4, 1e-5, 1e-6])
@pytest.mark.parametrize(
    "name", ["sine_map", "stochastic_volatility", "theta_logistic", "linear_1d"]
)
def test_every_tolerance_holds_in_one_dimension(name, tol):
    errors = errors_on(name, tol, num_steps=60)
    assert max(errors.values()) <= tol, errors


@pytest.mark.slow
@pytest.mark.parametrize("tol", [1e-2, 1e-3])
@pytest.mark.parametrize("name", ["range_only", "pendulum", "linear_2d"])
def test_every_tolerance_holds_in_two_dimensions(name, tol):
    errors = errors_on(name, tol, num_steps=40)
    assert max(errors.values()) <= tol, errors


@pytest.mark.slow
def test_a_linear_gaussian_model_is_filtered_like_kalman():
    F, Q, H, R = (np.array([[v]]) for v in (0.9, 0.3, 1.0, 0.5))
    rng = np.random.default_rng(0)
    ys = rng.normal(size=(25, 1))
    ssm = psd.linear_gaussian(F, Q, H, R, [0.0], [[1.0]], state_box=(-8, 8))
    post = psd.run_filter(psd.learn(ssm, 1e-7), ys)
    means, covariances, logs = kalman(ys, F, Q, H, R, np.zeros(1), np.eye(1))
    np.testing.assert_allclose(post.mean, means, atol=1e-6)
    np.testing.assert_allclose(post.covariance, covariances, atol=1e-6)
    np.testing.assert_allclose(post.log_likelihoods, logs, atol=1e-6)


@pytest.fixture(scope="module")
def sine():
    system = systems.sine_map
    _, ys = system.simulate(7, 20)
    return learned("sine_map", 1e-3), np.asarray(ys)


@pytest.mark.long
def test_online_steps_equal_the_scan(sine):
    model, ys = sine
    state = psd.init(model)
    for y in ys:
        state = psd.update(model, psd.predict(model, state), y)
    post = psd.run_filter(model, ys)
    np.testing.assert_allclose(state.log_likelihood, post.log_likelihood, rtol=1e-12)
    np.testing.assert_allclose(state.law.values, post.trace.laws.densities[-1], rtol=1e-10)
    x = np.linspace(-0.9, 0.9, 7)[:, None]
    np.testing.assert_allclose(state.density(model)(x), post.density(-1)(x), rtol=1e-8)
    assert int(state.step) == len(ys)
    mean, covariance = state.moments(model)
    np.testing.assert_allclose(mean, post.mean[-1], atol=1e-10)
    np.testing.assert_allclose(covariance, post.covariance[-1], rtol=1e-8)


def test_online_steps_may_be_scanned(sine):
    model, ys = sine

    def step(state, y):
        return psd.update(model, psd.predict(model, state), y), None

    state, _ = jax.lax.scan(step, psd.init(model), jnp.asarray(ys))
    np.testing.assert_allclose(state.log_likelihood, psd.run_filter(model, ys).log_likelihood)
    x = np.linspace(-0.9, 0.9, 5)[:, None]
    prior = psd.init(model).density(model)
    np.testing.assert_allclose(prior(x), 0.5, rtol=1e-3)


@pytest.mark.long
def test_long_series_in_chunks_equal_the_step_by_step_recursion(sine):
    model, ys = sine
    long = np.resize(ys, (150, 1))
    whole = psd.run_filter(model, long)
    brief = psd.run_filter(model, long, keep="summaries")
    filled = model.filled
    weights, table = np.asarray(filled.plan.node_weights()), np.asarray(filled.tables.squares[0])
    density = np.asarray(filled.prior)
    for t in range(150):
        density = (weights * density) @ table
        law, _ = model.update(NodesLaw(jnp.asarray(density)), long[t], jnp.array(t + 1), None)
        density = np.asarray(law.values)
    np.testing.assert_allclose(whole.trace.laws.densities[-1], density, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(brief.mean, whole.mean, atol=1e-13)
    with pytest.raises(ValueError, match="keep="):
        brief.quantile(0.5)


@pytest.mark.long
def test_observing_first_is_bayes_rule_on_the_prior(sine):
    model, ys = sine
    post = psd.run_filter(model, ys[:3], first="observe")
    weights, prior = np.asarray(model.filled.plan.node_weights()), np.asarray(model.filled.prior)
    z = np.asarray(model.filled.plan.nodes[0])
    likelihood = np.exp(-0.5 * ((ys[0] - z**2) / 0.1) ** 2) / (0.1 * np.sqrt(2 * np.pi))
    np.testing.assert_allclose(
        post.log_likelihoods[0], np.log(weights @ (prior * likelihood)), atol=1e-3
    )
    after = psd.run_filter(model, ys[:3], times=[0, 1, 2])
    np.testing.assert_allclose(after.log_likelihoods, post.log_likelihoods, rtol=1e-12)


def test_missing_rows_skip_the_update(sine):
    model, ys = sine
    gappy = ys.copy()
    gappy[4] = np.nan
    post = psd.run_filter(model, gappy)
    skipped = psd.run_filter(
        model, np.delete(ys, 4, axis=0), times=np.delete(np.arange(1, len(ys) + 1), 4)
    )
    assert float(post.log_likelihoods[4]) == 0.0
    assert not bool(post.seen[4])
    np.testing.assert_allclose(post.mean[-1], skipped.mean[-1], atol=1e-10)
    observed = np.delete(np.asarray(post.log_likelihoods), 4)
    np.testing.assert_allclose(observed, skipped.log_likelihoods, atol=1e-5)


def test_all_missing_is_the_forecast_of_the_prior(sine):
    model, _ = sine
    post = psd.run_filter(model, np.full((5, 1), np.nan))
    assert float(post.log_likelihood) == 0.0
    weights = model.filled.plan.node_weights()
    np.testing.assert_allclose(jnp.sum(post.trace.laws.densities * weights[None], 1), 1.0)


@pytest.mark.slow
def test_two_sensors_at_one_time_are_one_joint_observation(sine):
    model, _ = sine
    twice = psd.run_filter(model, [[0.3], [0.35], [0.2]], times=[1, 1, 2])
    density = twice.density(1)
    z = np.linspace(-0.95, 0.95, 7)[:, None]
    single = psd.run_filter(model, [[0.3]])
    prior_odds = np.asarray(single.density(0)(z))
    extra = np.exp(-0.5 * ((0.35 - z[:, 0] ** 2) / 0.1) ** 2)
    expected = prior_odds * extra
    ratio = np.asarray(density(z)) / expected
    keep = expected > 1e-3 * expected.max()
    np.testing.assert_allclose(ratio[keep], ratio[keep][0], rtol=5e-3)


@pytest.mark.long
def test_batches_map_and_likelihoods_differentiate(sine):
    model, ys = sine
    batch = jnp.stack([jnp.asarray(ys), jnp.asarray(ys[::-1])])
    together = jax.jit(jax.vmap(lambda y: psd.run_filter(model, y).log_likelihood))(batch)
    np.testing.assert_allclose(together[1], psd.run_filter(model, ys[::-1]).log_likelihood)

    def log_likelihood(y):
        return psd.run_filter(model, y).log_likelihood

    step = 1e-6
    bumped = [ys.copy(), ys.copy()]
    bumped[0][3] += step
    bumped[1][3] -= step
    numeric = (log_likelihood(bumped[0]) - log_likelihood(bumped[1])) / (2 * step)
    np.testing.assert_allclose(jax.grad(log_likelihood)(jnp.asarray(ys))[3, 0], numeric, rtol=1e-5)


def test_new_data_of_the_same_shape_do_not_retrace(sine):
    model, ys = sine
    count = 0

    @jax.jit
    def run(y):
        nonlocal count
        count += 1
        return psd.run_filter(model, y).log_likelihood

    run(jnp.asarray(ys))
    run(jnp.asarray(2 * ys))
    assert count == 1


@pytest.mark.long
def test_a_density_is_a_psd_model(sine):
    model, ys = sine
    post = psd.run_filter(model, ys)
    density = post.density(6)
    expanded = density.expand()
    x = np.linspace(-0.9, 0.9, 11)[:, None]
    np.testing.assert_allclose(expanded(x), density(x), rtol=1e-8, atol=1e-10)
    np.testing.assert_allclose(psd.integral(expanded, (-1, 1)), 1.0, atol=1e-4)
    mean, covariance = psd.moments(expanded, (-1, 1))
    np.testing.assert_allclose(mean, post.mean[6], atol=1e-4)
    np.testing.assert_allclose(covariance, post.covariance[6], atol=1e-4)


@pytest.mark.slow
def test_the_error_estimate_is_close_to_the_error():
    system = systems.sine_map
    _, ys = system.simulate(11, 15)
    post = psd.run_filter(psd.learn(system(), 1e-3, engine="nodes"), ys)
    truth = largest_distance(post, system.reference(np.asarray(ys)), every=1)
    estimate = float(post.error_estimate)
    assert truth / 10 <= estimate <= 10 * truth


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda m: psd.run_filter(m, np.zeros((0, 1))), "ys must hold at least one observation"),
        (lambda m: psd.run_filter(m, np.zeros((3, 2, 1))), r"ys must be one series of shape"),
        (lambda m: psd.run_filter(m, np.zeros((3, 2))), "ys must have 1 columns"),
        (lambda m: psd.run_filter(m, [0.1, np.inf, 0.2]), r"failed at ys\[1\]: .*infinite"),
        (lambda m: psd.run_filter(m, [0.1], first="later"), "first must be"),
        (lambda m: psd.run_filter(m, [0.1], keep="none"), "keep must be"),
        (lambda m: psd.run_filter(m, [0.1, 0.2], times=[2, 1]), "times must be whole"),
        (
            lambda m: psd.run_filter(m, [0.1, 0.2], inputs=np.zeros((3, 1))),
            "inputs must have 2 rows",
        ),
        (
            lambda m: psd.run_filter(m, [0.1, 0.2], inputs=[1.0, 2.0, 3.0]),
            r"inputs must have 2 rows, as ys has, got shape \(3,\)",
        ),
        (
            lambda m: psd.run_filter(m, [0.1, 0.2], inputs=[np.zeros(2), np.ones(2)]),
            "may be rows or columns: pass np.stack",
        ),
        (lambda m: psd.run_filter("model", [0.1]), "model must come from psdfilter.learn"),
        (lambda m: psd.run_filter(m, [0.1]).density(3), r"t must lie in 0..0, got 3"),
        (lambda m: psd.run_filter(m, [0.1]).quantile(1.5), "q must lie in"),
        (lambda m: psd.run_filter(m, [0.1]).sample(key=0, num=3), "key must be a JAX random key"),
        (lambda m: psd.learn(m.filled.ssm, 0.0), "tol must lie in"),
        (lambda m: psd.update(m, psd.init(m), [0.1, 0.2]), r"y must have shape \(1,\)"),
        (lambda m: psd.mode(psd.run_filter(m, [0.1]).density(0)), r"expand\(\)"),
        (lambda m: psd.learn(lambda x: x), "ssm must be a StateSpaceModel"),
    ],
)
def test_bad_input_is_named(sine, call, message):
    with pytest.raises(ValueError, match=message):
        call(sine[0])


@pytest.mark.parametrize(
    "inputs",
    [[1.0, 2.0, 3.0], [[1.0], [2.0], [3.0]], [np.array([1.0]), np.array([2.0]), np.array([3.0])]],
)
def test_lists_of_inputs_are_arrays_of_rows(inputs):
    """A list is a pytree for JAX; nobody who writes one means that."""
    np.testing.assert_array_equal(np.ravel(as_rows(inputs, 3)), [1.0, 2.0, 3.0])
    pair = [np.zeros((3, 1)), np.ones((3, 2))]
    assert [a.shape for a in as_rows(pair, 3)] == [(3, 1), (3, 2)]


@pytest.mark.long
def test_an_impossible_observation_has_a_code_and_a_time():
    box = psd.Box(-1, 1)
    ssm = psd.StateSpaceModel(
        lambda x: jnp.zeros(()),
        lambda u, x: norm.logpdf(x[0], 0.5 * u[0], 0.2),
        lambda x, y: jnp.where(y[0] > 5.0, -jnp.inf, -0.5 * jnp.square(y[0] - x[0])),
        box,
        observation_box=psd.Box(-3, 3),
        sample_observation=lambda key, x: x + jax.random.normal(key, (1,)),
    )
    model = psd.learn(ssm, 1e-2)
    with pytest.raises(ValueError, match=r"failed at ys\[2\]: .*likelihood zero"):
        psd.run_filter(model, [0.1, 0.2, 9.0, 0.3])
    post = psd.run_filter(model, [0.1, 0.2, 9.0, 0.3], throw=False)
    assert [int(c) for c in post.codes] == [0, 0, 1, 0]
    assert np.all(np.isfinite(post.mean))
    assert float(post.log_likelihood) == -np.inf


def test_a_prior_without_mass_in_the_box_is_refused():
    ssm = psd.StateSpaceModel(
        lambda x: -jnp.inf,
        lambda u, x: -jnp.square(x[0] - u[0]),
        lambda x, y: -jnp.square(y[0] - x[0]),
        psd.Box(-1, 1),
    )
    with pytest.raises(ValueError, match="log_prior must put mass on state_box"):
        psd.learn(ssm, 1e-2)


def walk(log_transition, half_width=3.0):
    """A random walk on a box, seen with noise."""
    return psd.StateSpaceModel(
        lambda x: norm.logpdf(x[0]),
        log_transition,
        lambda x, y: norm.logpdf(y[0], x[0], 0.5),
        psd.Box(-half_width, half_width),
    )


@pytest.mark.long
def test_a_density_in_place_of_its_logarithm_is_named():
    with pytest.warns(UserWarning, match="log_transition must be the logarithm of a density"):
        psd.learn(walk(lambda u, x: norm.pdf(x[0], 0.5 * u[0], 0.5)))


@pytest.mark.long
def test_a_box_that_loses_mass_is_named():
    with pytest.warns(UserWarning, match=r"% of the mass leaves state_box"):
        psd.learn(walk(lambda u, x: norm.logpdf(x[0], u[0], 0.6), 1.0))


def test_learning_under_a_transformation_points_to_likelihoods():
    def value(sd):
        model = psd.learn(walk(lambda u, x: norm.logpdf(x[0], 0.5 * u[0], sd)))
        return psd.run_filter(model, [0.1]).log_likelihood

    with pytest.raises(ValueError, match=r"use psdfilter\.likelihood"):
        jax.grad(value)(0.5)


@pytest.mark.slow
@pytest.mark.parametrize("gain", [0.5, 0.6, 0.9])
def test_states_that_the_model_throws_out_of_a_wide_box(gain):
    """Nothing comes back from the ends of the box: x' = u + gain (u - u^3 / 2) + noise."""

    def law(u, x):
        return norm.logpdf(x, u + gain * (u - u**3 / 2), 0.2 * jnp.sqrt(1 + 0.5 * u**2))

    ssm = psd.StateSpaceModel(
        lambda x: norm.logpdf(x[0]),
        lambda u, x: law(u[0], x[0]),
        lambda x, y: norm.logpdf(y[0], 0.5 * x[0] ** 2 + 0.1 * x[0], 0.3),
        psd.Box(-6, 6),
    )
    ys = 0.3 + np.abs(np.random.default_rng(1).normal(size=40))
    grid = np.linspace(-6, 6, 3001)
    step = grid[1] - grid[0]
    table = np.exp(np.asarray(law(grid[:, None], grid[None, :]))) * step
    p, total = np.exp(np.asarray(norm.logpdf(grid))), 0.0
    for y in ys:
        p = (p @ table) * np.asarray(norm.pdf(y, 0.5 * grid**2 + 0.1 * grid, 0.3))
        mass = p.sum() * step
        p, total = p / mass, total + np.log(mass)
    post = psd.run_filter(psd.learn(ssm, 1e-3), ys)
    assert abs(float(post.log_likelihood) - total) < 1e-3 * len(ys)
