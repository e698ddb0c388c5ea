"""The likelihood of theta, against central differences, dense references and the Kalman score."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import psdfilter as psd

SYSTEMS = {
    "stochastic_volatility": {"mu": -0.9, "rho": 0.93, "sigma": 0.25},
    "theta_logistic": {"growth": 1.1, "theta": 1.2, "sd": 0.3, "sensor_sd": 0.25},
    "ungm": {"state_variance": 9.0, "sensor_variance": 1.2},
    "range_only": {},
}


def differences(fn, theta, step=1e-4):
    """Central differences of fourth order in every number of a dict."""
    out = {}
    for name, value in theta.items():
        h = step * max(abs(value), 1e-2)
        at = {k: float(fn({**theta, name: value + k * h})) for k in (-2, -1, 1, 2)}
        out[name] = (8 * (at[1] - at[-1]) - (at[2] - at[-2])) / (12 * h)
    return out


def assert_close(gradient, expected, rtol):
    size = max(abs(v) for v in expected.values())
    for name, value in expected.items():
        assert abs(float(gradient[name]) - value) <= rtol * max(abs(value), 0.05 * size), name


def kalman_log_likelihood(ys, F, Q, H, R, mean, covariance):
    """The textbook recursion, a prediction first."""
    total = 0.0
    for y in ys:
        mean, covariance = F @ mean, F @ covariance @ F.T + Q
        innovation, spread = y - H @ mean, H @ covariance @ H.T + R
        gain = covariance @ H.T @ np.linalg.inv(spread)
        total -= 0.5 * (innovation @ np.linalg.solve(spread, innovation))
        total -= 0.5 * np.linalg.slogdet(2 * np.pi * spread)[1]
        mean, covariance = mean + gain @ innovation, covariance - gain @ spread @ gain.T
    return total


@pytest.fixture(scope="module")
def volatility():
    system = psd.systems.stochastic_volatility
    theta = SYSTEMS["stochastic_volatility"]
    ys = np.asarray(system.simulate(3, 90)[1])
    return system, theta, ys, psd.likelihood(lambda p: system(**p), theta, ys)


@pytest.mark.slow
def test_the_value_is_that_of_the_filter_and_of_a_dense_reference(volatility):
    system, theta, ys, ll = volatility
    reference = system.reference(ys, **theta)
    assert abs(float(ll(theta)) - np.sum(reference.log_likelihoods)) < 1e-4
    post = ll.posterior(theta)
    np.testing.assert_allclose(ll.increments(theta), post.log_likelihoods, atol=1e-10)


@pytest.mark.long
def test_the_gradient_agrees_with_differences_and_with_the_score_of_a_dense_reference(volatility):
    system, theta, ys, ll = volatility
    gradient = jax.jit(jax.grad(ll))(theta)
    assert_close(gradient, differences(ll, theta), 1e-6)
    dense = differences(lambda p: np.sum(system.reference(ys, **p).log_likelihoods), theta)
    assert_close(gradient, dense, 1e-3)


@pytest.mark.slow
def test_the_hessian_is_symmetric_and_is_the_derivative_of_the_gradient(volatility):
    _, theta, _, ll = volatility
    names = sorted(theta)
    hessian = jax.jit(jax.hessian(ll))(theta)
    matrix = np.array([[float(hessian[a][b]) for b in names] for a in names])
    np.testing.assert_allclose(matrix, matrix.T, rtol=1e-9, atol=1e-7 * np.abs(matrix).max())
    gradient = jax.jit(jax.grad(ll))
    for b in names:
        h = 1e-4
        up, down = ({**theta, b: theta[b] + s * h} for s in (1, -1))
        gap = [(float(gradient(up)[a]) - float(gradient(down)[a])) / (2 * h) for a in names]
        np.testing.assert_allclose(
            gap, matrix[:, names.index(b)], rtol=1e-4, atol=1e-4 * np.abs(matrix).max()
        )


@pytest.mark.slow
def test_another_theta_compiles_nothing(volatility):
    _, theta, _, ll = volatility
    gradient = jax.jit(jax.value_and_grad(ll))
    gradient(theta)
    ll(theta)
    counts = []

    def listen(event, duration, **_):
        if "backend_compile" in event:
            counts.append(event)

    jax.monitoring.register_event_duration_secs_listener(listen)
    try:
        for shift in (0.01, -0.01):
            other = {name: value + shift for name, value in theta.items()}
            ll(other)
            gradient(other)
    finally:
        jax.monitoring.unregister_event_duration_listener(listen)
    assert counts == []


@pytest.mark.slow
def test_several_series_are_independent_and_may_differ_in_length(volatility):
    system, theta, ys, _ = volatility
    parts = [ys[:40], ys[40:60], ys[60:]]
    both = psd.likelihood(lambda p: system(**p), theta, parts)
    alone = [np.sum(system.reference(part, **theta).log_likelihoods) for part in parts]
    assert abs(float(both(theta)) - sum(alone)) < 1e-4
    for part, values in zip(parts, both.increments(theta), strict=True):
        assert values.shape == (len(part),)


def test_a_plan_that_no_longer_serves_warns(volatility):
    _, theta, _, ll = volatility
    with pytest.warns(psd.PlanWarning, match="too narrow"):
        ll({**theta, "sigma": 0.002})
    with pytest.warns(psd.PlanWarning, match="leaves the box"):
        ll({**theta, "mu": 3.0, "rho": 0.5})


@pytest.mark.long
def test_a_sampler_that_leaves_the_plan_has_to_turn_back(volatility):
    _, theta, _, ll = volatility
    compiled = jax.jit(ll)
    assert np.isfinite(compiled(theta))
    assert np.isneginf(compiled({**theta, "sigma": 0.002}))
    assert np.isneginf(compiled({**theta, "mu": 3.0, "rho": 0.5}))


@pytest.mark.slow
def test_an_outlier_is_followed_and_makes_no_theta_impossible():
    """Without walls: the box of the system moves with theta, and the outlier is beyond it."""
    theta = SYSTEMS["stochastic_volatility"]
    ys = np.array(psd.systems.stochastic_volatility.simulate(3, 90)[1])
    ys[20] = 14.0

    def build(p):
        mu, rho, variance = p["mu"], p["rho"], p["sigma"] ** 2
        return psd.additive_gaussian(
            lambda x: mu + rho * (x - mu),
            Q=variance,
            m0=jnp.atleast_1d(mu),
            P0=variance / (1 - rho**2),
            log_observation=lambda x, y: jax.scipy.stats.norm.logpdf(y[0], 0.0, jnp.exp(x[0] / 2)),
        )

    ll = psd.likelihood(build, theta, ys, tol=1e-3)
    compiled = jax.jit(ll)
    for other in (theta, {**theta, "sigma": 0.22}, {**theta, "rho": 0.9}):
        truth = psd.run_filter(psd.learn(build(other), 1e-5), ys).log_likelihood
        assert float(compiled(other)) == pytest.approx(float(truth), abs=1e-4)


@pytest.mark.slow
def test_a_fit_to_other_data_reuses_the_programs_of_the_first():
    """Sizes are rounded, so that most of the time other data need no others."""
    system, bounds = psd.systems.stochastic_volatility, {"rho": (-1, 1), "sigma": (0, 2)}
    build = lambda p: system(**p)  # noqa: E731
    start = SYSTEMS["stochastic_volatility"]
    slow_ones = []

    def listen(event, duration, **rest):
        if "backend_compile" in event and "value_and_gradient" in rest.get("fun_name", ""):
            slow_ones.append(rest["fun_name"])

    jax.monitoring.register_event_duration_secs_listener(listen)
    try:
        for seed in range(6):
            ys = np.asarray(system.simulate(seed, 300, **start)[1])
            psd.fit(build, start, ys, tol=1e-3, bounds=bounds)
    finally:
        jax.monitoring.unregister_event_duration_listener(listen)
    assert 1 <= len(slow_ones) <= 4


@pytest.mark.slow
def test_a_cover_serves_all_of_its_thetas(volatility):
    system, theta, ys, _ = volatility
    other = {"mu": -0.9, "rho": 0.96, "sigma": 0.17}
    ll = psd.likelihood(lambda p: system(**p), theta, ys, cover=[other], tol=1e-4)
    for p in (theta, other):
        # 4e-5 of it at any tolerance: the references have boxes of their own, narrower ones.
        gap = np.asarray(ll.increments(p)) - system.reference(ys, **p).log_likelihoods
        assert np.max(np.abs(gap)) < 2 * ll.tol


@pytest.mark.slow
def test_irregular_times_are_missing_rows_in_between(volatility):
    system, theta, ys, _ = volatility
    times = np.array([1, 2, 5, 6, 9])
    sparse = np.full((9, 1), np.nan)
    sparse[times - 1] = ys[:5]
    build = lambda p: system(**p)  # noqa: E731
    few = psd.likelihood(build, theta, ys[:5], times=times)
    full = psd.likelihood(build, theta, sparse)
    np.testing.assert_allclose(float(few(theta)), float(full(theta)), atol=1e-5)
    assert few.increments(theta).shape == (5,)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["theta_logistic", "ungm"])
def test_score_in_one_dimension(name):
    system, theta = getattr(psd.systems, name), SYSTEMS[name]
    ys = np.asarray(system.simulate(5, 60)[1])
    ll = psd.likelihood(lambda p: system(**p), theta, ys)
    gradient = jax.jit(jax.grad(ll))(theta)
    assert_close(gradient, differences(ll, theta), 1e-6)
    dense = differences(lambda p: np.sum(system.reference(ys, **p).log_likelihoods), theta)
    assert_close(gradient, dense, 1e-3)


@pytest.mark.slow
def test_score_in_two_dimensions():
    system = psd.systems.pendulum
    theta = {"damping": 0.7, "angle_sd": 0.22, "velocity_sd": 0.28, "sensor_sd": 0.2}
    ys = np.asarray(system.simulate(5, 25)[1])
    ll = psd.likelihood(lambda p: system(**p), theta, ys, tol=1e-3)
    gradient = jax.jit(jax.grad(ll))(theta)
    assert_close(gradient, differences(ll, theta), 1e-6)


@pytest.mark.slow
def test_the_kalman_score():
    F, H = np.array([[0.9, 0.2], [-0.1, 0.8]]), np.eye(2)
    theta = {"q": 0.3, "r": 0.5}

    def build(p):
        return psd.linear_gaussian(
            F, jnp.full(2, p["q"]), H, jnp.full(2, p["r"]), jnp.zeros(2), jnp.ones(2)
        )

    rng = np.random.default_rng(0)
    x, ys = np.zeros(2), []
    for _ in range(40):
        x = F @ x + np.sqrt(theta["q"]) * rng.normal(size=2)
        ys.append(x + np.sqrt(theta["r"]) * rng.normal(size=2))
    ys = np.array(ys)
    ll = psd.likelihood(build, theta, ys)

    def exact(p):
        Q, R = p["q"] * np.eye(2), p["r"] * np.eye(2)
        return kalman_log_likelihood(ys, F, Q, H, R, np.zeros(2), np.eye(2))

    assert abs(float(ll(theta)) - exact(theta)) < 1e-3
    assert_close(jax.grad(ll)(theta), differences(exact, theta), 1e-3)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"build": 3}, "build must be a function"),
        ({"build": lambda p: 3}, "build must return a StateSpaceModel"),
        ({"theta": {}}, "theta must hold"),
    ],
)
def test_bad_arguments_are_named(arguments, message):
    system = psd.systems.theta_logistic
    given = {"build": lambda p: system(**p), "theta": {"growth": 1.0}, "ys": np.zeros((5, 1))}
    with pytest.raises(ValueError, match=message):
        psd.likelihood(*{**given, **arguments}.values())


@pytest.mark.parametrize(
    ("engine", "message"),
    [
        ("closed", '"closed" does not offer a likelihood of parameters'),
        (psd.engines.Nodes(renormalize=True), "needs Q as it is"),
    ],
)
def test_engines_without_a_likelihood_are_refused(volatility, engine, message):
    system, theta, ys, _ = volatility
    with pytest.raises(ValueError, match=message):
        psd.likelihood(lambda p: system(**p), theta, ys, tol=1e-2, engine=engine)


def test_theta_must_have_the_same_names(volatility):
    _, theta, _, ll = volatility
    with pytest.raises(ValueError, match="structure"):
        ll({"mu": theta["mu"]})
