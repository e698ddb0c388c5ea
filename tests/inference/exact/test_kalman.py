"""`linear_gaussian`: the Kalman filter and smoother, on any scale, singular or not."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import joint_law, kalman, random_model, simulate

import psdfilter as psd

SLOW = pytest.mark.slow


def build(model: dict, **changes) -> psd.StateSpaceModel:
    given = {**model, **changes}
    b, d = given.pop("b"), given.pop("d")
    return psd.linear_gaussian(*(given[k] for k in ("F", "Q", "H", "R", "m0", "P0")), b=b, d=d)


def assert_close(got, wanted, tol=1e-10):
    np.testing.assert_allclose(got, wanted, rtol=tol, atol=tol)


@pytest.mark.parametrize(
    "dim",
    [1, pytest.param(2, marks=SLOW), pytest.param(3, marks=SLOW), 4]
    + [pytest.param(n, marks=SLOW) for n in (5, 6)],
)
@pytest.mark.parametrize("first", ["predict", "observe"])
def test_is_the_kalman_filter(dim, first):
    rng = np.random.default_rng(dim)
    model = random_model(rng, dim, max(1, dim // 2))
    ys = simulate(rng, model, 200)
    ys[3] = np.nan
    ys[10:14, 0] = np.nan
    learned = psd.learn(build(model))
    post = psd.run_filter(learned, ys, first=first)
    means, covariances, logs = kalman(ys, **model, first=first)
    assert_close(post.mean, means)
    assert_close(post.covariance, covariances)
    assert_close(post.log_likelihoods, logs)
    assert "exact" in str(learned.report)
    assert float(post.log_likelihoods[3]) == 0.0


@pytest.mark.parametrize("offset", [1e2, 1e5])
def test_an_offset_of_the_units_costs_no_digits(offset):
    """x -> x + c, y -> y + H c leaves covariances and likelihoods alone and moves the means."""
    rng = np.random.default_rng(0)
    model = random_model(rng, 4, 2)
    ys = simulate(rng, model, 200)
    means, covariances, logs = kalman(ys, **model)
    c = offset * rng.normal(size=4)
    F, H = model["F"], model["H"]
    moved = {**model, "m0": model["m0"] + c, "b": model["b"] + c - F @ c, "d": model["d"] - H @ c}
    post = psd.run_filter(psd.learn(build(moved)), ys)
    np.testing.assert_allclose(post.mean, means + c, rtol=1e-10, atol=1e-10 * offset)
    assert_close(post.covariance, covariances)
    # Residuals are differences of numbers of the size of the offset.
    assert abs(float(post.log_likelihood) - logs.sum()) < 1e-10 * max(offset, 1.0) ** 0.75


def test_the_offset_of_the_data_themselves():
    """States and observations near 1e5, against the same data near zero."""
    rng = np.random.default_rng(5)
    model = random_model(rng, 4, 2)
    ys = simulate(rng, model, 200)
    _, covariances, logs = kalman(ys, **model)
    c = 1e5 * np.ones(4)
    moved = {**model, "m0": model["m0"] + c, "b": model["b"] + c - model["F"] @ c}
    post = psd.run_filter(psd.learn(build(moved)), ys + model["H"] @ c)
    assert_close(post.covariance, covariances)
    assert abs(float(post.log_likelihood) - logs.sum()) < 1e-6


@pytest.mark.long
def test_smoother_is_the_law_of_the_whole_series():
    rng = np.random.default_rng(3)
    model = random_model(rng, 3, 2)
    ys = simulate(rng, model, 12)
    ys[4] = np.nan
    ys[7, 1] = np.nan
    smooth = psd.run_smoother(psd.learn(build(model)), ys)
    means, covariances = joint_law(ys, model)
    assert_close(smooth.mean, means)
    assert_close(smooth.covariance, covariances)
    paths = smooth.sample(key=jax.random.key(0), num=4000)
    error = np.abs(np.asarray(paths).mean(0) - means) / np.sqrt(np.diagonal(covariances, 0, 1, 2))
    assert error.max() < 6 / np.sqrt(4000)
    # Neighbours are drawn jointly: the lag-one covariance is that of the joint law.
    assert smooth.method == "exact"


@pytest.mark.long
def test_a_lag_ends_each_window_early():
    """Row t is row t of the joint law of y_1 ... y_{t+L}; past the end, of the whole series."""
    rng = np.random.default_rng(6)
    model = random_model(rng, 2, 2)
    ys = simulate(rng, model, 9)
    ys[4], ys[6, 0] = np.nan, np.nan
    learned = psd.learn(build(model))
    smooth = psd.run_smoother(learned, ys, lag=3)
    for t in range(9):
        means, covariances = joint_law(ys[: t + 4], model)
        assert_close(smooth.mean[t], means[t])
        assert_close(smooth.covariance[t], covariances[t])
    with pytest.raises(ValueError, match="smoother with a lag has no law"):
        smooth.sample(key=jax.random.key(0), num=1)
    with pytest.raises(ValueError, match="lag must be a whole number >= 1"):
        psd.run_smoother(learned, ys, lag=0)


@pytest.mark.slow
def test_a_lag_of_several_gaussians_at_uneven_times():
    """Weights are those at the end of each window; against smoothers of the shorter series."""
    _, ys = psd.systems.mixture_start.simulate(0, 10)
    learned = psd.learn(psd.systems.mixture_start())
    times = np.array([1, 2, 2, 5, 6, 9, 10, 10, 11, 13])
    smooth = psd.run_smoother(learned, ys, lag=2, times=times)
    x = np.linspace(-8, 8, 9)[:, None] + np.zeros(2)
    for t in range(10):
        window = psd.run_smoother(learned, ys[: t + 3], times=times[: t + 3])
        assert_close(smooth.mean[t], window.mean[t])
        assert_close(smooth.density(t)(x), window.density(t)(x))


@pytest.mark.long
def test_times_and_gaps_are_missing_rows():
    rng = np.random.default_rng(4)
    model = random_model(rng, 2, 1)
    ys = simulate(rng, model, 9)
    learned = psd.learn(build(model))
    full = np.full((9, 1), np.nan)
    full[[0, 3, 8]] = ys[:3]
    wanted = psd.run_filter(learned, full)
    got = psd.run_filter(learned, ys[:3], times=[1, 4, 9])
    assert_close(got.mean, wanted.mean[np.array([0, 3, 8])])
    assert_close(got.log_likelihood, wanted.log_likelihood)
    smooth = psd.run_smoother(learned, ys[:3], times=[1, 4, 9])
    assert_close(smooth.mean, psd.run_smoother(learned, full).mean[np.array([0, 3, 8])])
    assert psd.run_smoother(learned, ys[:3], times=[1, 1, 9]).sample(
        key=jax.random.key(1), num=2
    ).shape == (2, 3, 2)


@pytest.mark.long
def test_singular_covariances():
    """Dirac rows in Q and P0, and a sensor without noise, as limits of small noises."""
    F = np.array([[1.0, 1.0], [0.0, 1.0]])
    H = np.array([[1.0, 0.0]])
    rng = np.random.default_rng(0)
    ys = np.cumsum(rng.normal(size=(20, 1)), axis=0)

    def run(Q, R, P0):
        model = {
            "F": F,
            "Q": Q,
            "H": H,
            "R": R,
            "m0": np.zeros(2),
            "P0": P0,
            "b": np.zeros(2),
            "d": np.zeros(1),
        }
        learned = psd.learn(build(model))
        return model, psd.run_filter(learned, ys), psd.run_smoother(learned, ys), learned

    Q = np.outer([0.5, 1.0], [0.5, 1.0])
    for R in (np.eye(1) * 0.3, np.zeros((1, 1))):
        model, post, smooth, learned = run(Q, R, np.zeros((2, 2)))
        means, covariances, logs = kalman(ys, **model)
        assert_close(post.mean, means)
        assert_close(post.covariance, covariances)
        assert_close(post.log_likelihoods, logs)
        wanted, _ = joint_law(ys, model)
        assert_close(smooth.mean, wanted, 1e-8)
        paths = np.asarray(smooth.sample(key=jax.random.key(0), num=500))
        assert np.isfinite(paths).all()
        # Every path obeys the degenerate part of the dynamics: x_1' - x_1 - x_2 = (x_2' - x_2) / 2.
        moved = paths[:, 1:, 0] - paths[:, :-1, 0] - paths[:, :-1, 1]
        np.testing.assert_allclose(moved, 0.5 * (paths[:, 1:, 1] - paths[:, :-1, 1]), atol=1e-6)
    assert "Q, R, P0" in str(learned.report)
    with pytest.raises(Exception, match="no density"):
        post.density(-1)(np.zeros(2))


@pytest.mark.long
def test_a_sensor_that_repeats_itself_without_noise_is_refused_by_name():
    H = np.array([[1.0, 0.0], [1.0, 0.0]])
    ssm = psd.linear_gaussian(np.eye(2), np.eye(2), H, np.zeros((2, 2)), np.zeros(2), np.eye(2))
    learned = psd.learn(ssm)
    with pytest.raises(ValueError, match=r"ys\[0\].*singular"):
        psd.run_filter(learned, np.ones((3, 2)))
    post = psd.run_filter(learned, np.ones((3, 2)), throw=False)
    assert set(np.asarray(post.codes)) == {4}
    assert np.isfinite(post.mean).all()
    post = psd.run_filter(learned, [[1.0, np.nan], [np.inf, 1.0]], throw=False)
    assert list(np.asarray(post.codes)) == [0, 2]


@pytest.mark.long
def test_gradient_vmap_and_jit():
    rng = np.random.default_rng(8)
    model = random_model(rng, 2, 1)
    ys = simulate(rng, model, 30)

    def log_likelihood(q):
        ssm = build(model, Q=q * jnp.asarray(model["Q"]))
        return psd.run_filter(psd.learn(ssm), ys, throw=False).log_likelihood

    got = jax.grad(log_likelihood)(1.3)
    step = 1e-5
    near = [kalman(ys, **{**model, "Q": (1.3 + s) * model["Q"]})[2].sum() for s in (-step, step)]
    assert abs(float(got) - (near[1] - near[0]) / (2 * step)) < 1e-5 * abs(float(got))
    learned = psd.learn(build(model))
    many = np.stack([ys, ys + 0.5])
    got = jax.vmap(lambda y: psd.run_filter(learned, y).log_likelihood)(many)
    wanted = [kalman(y, **model)[2].sum() for y in many]
    assert_close(got, wanted)


@pytest.mark.long
def test_online_steps_forecast_and_residuals():
    rng = np.random.default_rng(9)
    model = random_model(rng, 2, 2)
    ys = simulate(rng, model, 40)
    learned = psd.learn(build(model))
    post = psd.run_filter(learned, ys)
    state = psd.init(learned)
    for y in ys:
        state = psd.update(learned, psd.predict(learned, state), y)
    assert_close(state.log_likelihood, post.log_likelihood)
    assert_close(state.moments(learned)[0], post.mean[-1])
    F, Q, H, R = (model[k] for k in "FQHR")
    m, P = np.asarray(post.mean[-1]), np.asarray(post.covariance[-1])
    ahead = psd.forecast(learned, post, 3)
    for k in range(3):
        m, P = F @ m + model["b"], F @ P @ F.T + Q
        assert_close(ahead.mean[k], m)
        assert_close(ahead.covariance[k], P)
        assert_close(ahead.observations.mean[k], H @ m + model["d"])
        assert_close(ahead.observations.covariance[k], H @ P @ H.T + R)
    # Innovations, whitened in the order of the coordinates.
    e = np.asarray(post.predicted_observations.mean) - ys
    S = np.asarray(post.predicted_observations.covariance)
    wanted = [-np.linalg.solve(np.linalg.cholesky(s), r) for s, r in zip(S, e, strict=True)]
    assert_close(post.residuals, wanted, 1e-7)


def test_a_model_is_saved_without_its_functions(tmp_path):
    model = random_model(np.random.default_rng(1), 2, 1)
    learned = psd.learn(build(model))
    psd.save(tmp_path / "model.psd", learned)
    again = psd.load(tmp_path / "model.psd")
    ys = np.ones((4, 1))
    assert_close(psd.run_filter(again, ys).mean, psd.run_filter(learned, ys).mean, 1e-15)
    state = psd.predict(learned, psd.init(learned))
    psd.save(tmp_path / "state.psd", state)
    for got, wanted in zip(
        psd.load(tmp_path / "state.psd").moments(again), state.moments(learned), strict=True
    ):
        assert_close(got, wanted, 1e-15)


def test_nile_has_the_likelihood_that_statsmodels_gives():
    pytest.importorskip("statsmodels")
    from statsmodels.tsa.statespace.structural import UnobservedComponents

    series = psd.systems.nile()
    flow = np.asarray(series[1] if isinstance(series, tuple) else series, dtype=float).ravel()
    variances = (15099.0, 1469.1)
    peer = UnobservedComponents(flow, "llevel")
    peer.ssm.initialize_known(np.array([1000.0]), np.array([[1e6]]))
    wanted = peer.filter(np.asarray(variances)).llf_obs
    ssm = psd.linear_gaussian(1.0, variances[1], 1.0, variances[0], 1000.0, 1e6)
    post = psd.run_filter(psd.learn(ssm), flow, first="observe")
    assert_close(post.log_likelihoods, wanted)


def test_dynamax_agrees():
    pytest.importorskip("dynamax")
    from dynamax.linear_gaussian_ssm import LinearGaussianSSM, lgssm_filter

    rng = np.random.default_rng(2)
    model = random_model(rng, 3, 2)
    ys = simulate(rng, model, 50)
    peer = LinearGaussianSSM(3, 2)
    parameters, _ = peer.initialize(
        jax.random.key(0),
        initial_mean=jnp.asarray(model["m0"]),
        initial_covariance=jnp.asarray(model["P0"]),
        dynamics_weights=jnp.asarray(model["F"]),
        dynamics_bias=jnp.asarray(model["b"]),
        dynamics_covariance=jnp.asarray(model["Q"]),
        emission_weights=jnp.asarray(model["H"]),
        emission_bias=jnp.asarray(model["d"]),
        emission_covariance=jnp.asarray(model["R"]),
    )
    wanted = lgssm_filter(parameters, jnp.asarray(ys))
    post = psd.run_filter(psd.learn(build(model)), ys, first="observe")
    # dynamax adds 1e-9 to the innovation covariances.
    assert_close(post.mean, wanted.filtered_means, 1e-6)
    assert_close(post.log_likelihood, wanted.marginal_loglik, 1e-6)
