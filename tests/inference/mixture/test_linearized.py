"""Models with additive noise followed by Gaussians: Kalman, grids and particles as oracles."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import kalman, random_model, simulate

import psdfilter as psd
from psdfilter import _results

SLOW = pytest.mark.slow
# Mixtures say what they miss; these tests measure it.
pytestmark = pytest.mark.filterwarnings("ignore::psdfilter.ResolutionWarning")


def linear(model):
    F, H, b, d = (jnp.asarray(model[k]) for k in ("F", "H", "b", "d"))
    return psd.additive_gaussian(
        lambda u: F @ u + b, lambda x: H @ x + d,
        *(model[k] for k in ("Q", "R", "m0", "P0")),
    )  # fmt: skip


@pytest.mark.long
@pytest.mark.parametrize(
    ("dim", "order"), [(1, 1), *(pytest.param(n, None, marks=SLOW) for n in (1, 2, 4, 6))]
)
def test_a_linear_model_is_the_kalman_filter(dim, order):
    """Nothing bends, so nothing is split, and each step is Kalman's; gaps included."""
    rng = np.random.default_rng(dim)
    model = random_model(rng, dim, max(1, dim // 2))
    ys = simulate(rng, model, 60)
    ys[3] = np.nan
    ys[10:14, 0] = np.nan
    post = psd.run_filter(
        psd.learn(linear(model), 0.1, engine=psd.engines.Mixture(order=order)), ys
    )
    means, covariances, logs = kalman(ys, **model)
    for got, wanted in (
        (post.mean, means), (post.covariance, covariances), (post.log_likelihoods, logs),
    ):  # fmt: skip
        np.testing.assert_allclose(got, wanted, rtol=1e-10, atol=1e-10)
    assert float(post.error_estimates[-1]) < 1e-10
    assert int(jnp.isfinite(post.trace.last.log_sizes).sum()) == 1


@SLOW
def test_smoother_forecast_and_online_step_of_a_linear_model():
    rng = np.random.default_rng(1)
    model = random_model(rng, 2, 1)
    ys = simulate(rng, model, 40)
    ys[7] = np.nan
    learned = psd.learn(linear(model), 0.1, engine="mixture")
    exact = psd.learn(
        psd.linear_gaussian(
            *(model[k] for k in ("F", "Q", "H", "R", "m0", "P0")), b=model["b"], d=model["d"]
        )
    )
    post, wanted = psd.run_filter(learned, ys), psd.run_filter(exact, ys)
    np.testing.assert_allclose(post.pit, wanted.pit, atol=1e-10)
    seen, wanted_seen = post.predicted_observations, wanted.predicted_observations
    np.testing.assert_allclose(seen.mean, wanted_seen.mean, atol=1e-10)
    ahead, wanted_ahead = psd.forecast(learned, post, 5), psd.forecast(exact, wanted, 5)
    np.testing.assert_allclose(ahead.covariance, wanted_ahead.covariance, atol=1e-10)
    np.testing.assert_allclose(ahead.observations.mean, wanted_ahead.observations.mean, atol=1e-10)
    state = psd.init(learned)
    for y in ys[:9]:
        state = psd.update(learned, psd.predict(learned, state), y)
    np.testing.assert_allclose(state.moments(learned)[0], post.mean[8], atol=1e-12)
    assert abs(float(state.log_likelihood - jnp.sum(post.log_likelihoods[:9]))) < 1e-10
    smooth, wanted_smooth = psd.run_smoother(learned, ys), psd.run_smoother(exact, ys)
    sd = np.sqrt(np.diagonal(wanted_smooth.covariance, axis1=1, axis2=2))
    # Averages over 1024 paths.
    assert np.max(np.abs(smooth.mean - wanted_smooth.mean) / sd) < 6 / np.sqrt(1024)
    scaled = (smooth.covariance - wanted_smooth.covariance) / (sd[:, :, None] * sd[:, None, :])
    assert np.max(np.abs(scaled)) < 6 * np.sqrt(2 / 1024)
    paths = smooth.sample(key=jax.random.key(0), num=2000)
    lagged = np.mean(
        (paths[:, 20, 0] - wanted_smooth.mean[20, 0])
        * (paths[:, 21, 0] - wanted_smooth.mean[21, 0])
    )
    exact_paths = wanted_smooth.sample(key=jax.random.key(1), num=20000)
    truth = np.cov(exact_paths[:, 20, 0], exact_paths[:, 21, 0])[0, 1]
    assert abs(lagged - truth) < 6 * sd[20, 0] * sd[21, 0] * np.sqrt(2 / 2000)


@pytest.fixture(scope="module")
def bent():
    """A mildly bent line that a grid can follow too; learned both ways."""
    ssm = psd.additive_gaussian(
        lambda u: 0.9 * jnp.sin(1.2 * u), lambda x: x + 0.2 * x**2,
        0.03, 0.05, [0.2], 0.3, state_box=([-2.5], [2.5]),
    )  # fmt: skip
    rng = np.random.default_rng(0)
    x, ys = 0.2, []
    for _ in range(40):
        x = 0.9 * np.sin(1.2 * x) + np.sqrt(0.03) * rng.normal()
        ys.append(x + 0.2 * x * x + np.sqrt(0.05) * rng.normal())
    return ssm, np.asarray(ys)[:, None], psd.learn(ssm, 1e-2, engine="mixture")


@SLOW
def test_agrees_with_the_grid_in_one_dimension(bent):
    ssm, ys, _ = bent
    grid = psd.run_filter(psd.learn(ssm, 1e-4, engine="nodes"), ys)
    post = psd.run_filter(psd.learn(ssm, 1e-3, engine="mixture"), ys)
    sd = np.sqrt(grid.covariance[:, 0])
    assert np.max(np.abs(post.mean - grid.mean) / sd) < 0.03
    assert abs(float(post.log_likelihood - grid.log_likelihood)) < 0.1
    x = np.linspace(-2.5, 2.5, 1001)[:, None]
    variations = [
        np.sum(np.abs(post.density(t)(x) - grid.density(t)(x))) * 0.005 for t in range(0, 40, 8)
    ]
    assert max(variations) < 0.04
    # The estimate is no bound, but of the right size: above the error, and not far above.
    assert max(variations) < float(jnp.max(post.trace.errors)) < 1.0
    assert float(post.error_estimate) == float(jnp.max(post.error_estimates))


@SLOW
def test_agrees_with_the_grid_in_two_dimensions():
    system = psd.systems.pendulum
    _, ys = system.simulate(0, 40)
    grid = psd.run_filter(psd.learn(system(), 1e-2, engine="nodes"), ys)
    post = psd.run_filter(psd.learn(system(), 1e-3, engine="mixture"), ys)
    sd = np.sqrt(np.diagonal(grid.covariance, axis1=1, axis2=2))
    error = np.abs(post.mean - grid.mean) / sd
    assert np.sqrt(np.mean(error**2)) < 0.02
    assert np.max(error) < 0.1


@SLOW
def test_missing_and_impossible_rows_and_their_codes(bent):
    """An impossible measurement, an infinite one, and one not made."""
    _, ys, learned = bent
    bad = ys.copy()
    bad[5], bad[9], bad[12] = 1e6, np.inf, np.nan
    post = psd.run_filter(learned, bad, throw=False)
    codes = np.asarray(post.codes)
    assert codes[5] == _results.NO_MASS
    assert codes[9] == _results.BAD_OBSERVATION
    assert np.isin(np.delete(codes, [5, 9]), [_results.OK, _results.UNRESOLVED]).all()
    assert float(post.log_likelihoods[12]) == 0.0
    assert np.isfinite(post.mean).all()
    # Refused rows leave the law as missing ones do.
    gaps = bad.copy()
    gaps[[5, 9]] = np.nan
    np.testing.assert_array_equal(post.mean, psd.run_filter(learned, gaps).mean)
    with pytest.raises(ValueError, match=r"failed at ys\[5\]"):
        psd.run_filter(learned, bad)


@SLOW
def test_first_observe_and_repeated_times(bent):
    _, ys, learned = bent
    observed = psd.run_filter(learned, ys, first="observe")
    timed = psd.run_filter(learned, ys, times=np.arange(len(ys)))
    np.testing.assert_allclose(observed.mean, timed.mean, atol=1e-12)
    state = psd.update(learned, psd.init(learned), ys[0])
    np.testing.assert_allclose(state.moments(learned)[0], observed.mean[0], atol=1e-12)
    skipped = psd.run_filter(learned, ys[:5], times=[1, 2, 5, 5, 6])
    rows = np.full((6, 1), np.nan)
    rows[[0, 1, 4]] = ys[:3]
    full = psd.run_filter(learned, rows[:5])
    np.testing.assert_allclose(skipped.mean[2], full.mean[4], atol=1e-12)


@SLOW
def test_inputs_time_and_vmap():
    """A drift that takes inputs equals one with those numbers in it; batches equal single runs."""
    pushes = np.linspace(-1, 1, 12)

    def build(f, **more):
        return psd.learn(
            psd.additive_gaussian(
                f, lambda x: jnp.sin(x), 0.001, 0.02, [0.3], 0.1, state_box=([-9.0], [9.0]), **more
            ),
            1e-2,
            engine="mixture",
        )

    table = jnp.asarray(np.concatenate([[0.0], pushes]))
    by_input = build(lambda u, inputs: 0.9 * u + 0.1 * inputs[0], inputs=np.zeros(1))
    by_time = build(lambda u, t: 0.9 * u + 0.1 * table[jnp.asarray(t, int)])
    rng = np.random.default_rng(0)
    ys = rng.normal(size=(3, 12, 1)) * 0.3
    ys[1, 4] = np.nan
    single = [psd.run_filter(by_time, y).mean for y in ys]
    fed = psd.run_filter(by_input, ys[0], inputs=pushes[:, None])
    np.testing.assert_allclose(fed.mean, single[0], atol=1e-12)
    many = jax.vmap(lambda y: psd.run_filter(by_time, y, throw=False).mean)(jnp.asarray(ys))
    np.testing.assert_allclose(many, np.stack(single), atol=1e-10)


@SLOW
def test_the_likelihood_has_a_gradient(bent):
    """Through functions that close over the parameter, where no split changes in between."""
    _, ys, _ = bent

    def log_likelihood(rate):
        ssm = psd.additive_gaussian(
            lambda u: 0.9 * jnp.sin(rate * u), lambda x: x + 0.2 * x**2,
            0.03, 0.05, [0.2], 0.3, state_box=([-2.5], [2.5]),
        )  # fmt: skip
        learned = psd.learn(ssm, 1e-2, engine="mixture")
        return psd.run_filter(learned, ys[:15], throw=False).log_likelihood

    slope = jax.grad(log_likelihood)(1.2)
    difference = (log_likelihood(1.2 + 1e-5) - log_likelihood(1.2 - 1e-5)) / 2e-5
    assert abs(float(slope - difference)) < 1e-4 * abs(float(slope)) + 1e-6


@pytest.mark.long
def test_the_engine_follows_from_the_noise():
    def build(sd, **more):
        return psd.additive_gaussian(
            jnp.sin,
            lambda x: x,
            sd**2,
            0.1,
            [0.0, 0.0],
            0.1,
            state_box=([-2.0, -2.0], [2.0, 2.0]),
            **more,
        )

    small = psd.learn(build(0.002))
    assert small.engine == "mixture"
    assert "1.0e-03 of the box's half-width" in str(small.report)
    with pytest.raises(ValueError, match='engine "closed" cannot serve'):
        psd.learn(build(0.0), engine="closed")
    with pytest.raises(ValueError, match="at most 6 coordinates"):
        psd.learn(
            psd.additive_gaussian(lambda u: 0.5 * u, lambda x: x, 1.0, 1.0, np.zeros(7), 1.0),
            engine="mixture",
        )


@SLOW
def test_in_the_plane_wide_noise_needs_no_mixture():
    ssm = psd.additive_gaussian(
        jnp.sin, lambda x: x, 0.09, 0.1, [0.0, 0.0], 0.1, state_box=([-2.0, -2.0], [2.0, 2.0])
    )
    assert psd.learn(ssm, 1e-2).engine == "adaptive"


@pytest.mark.slow
def test_on_a_line_little_noise_needs_no_mixture():
    ssm = psd.additive_gaussian(
        jnp.sin, lambda x: x, 0.002**2, 0.1, [0.0], 0.1, state_box=([-2.0], [2.0])
    )
    assert psd.learn(ssm).engine == "adaptive"


@SLOW
def test_dirac_rows_of_the_noise():
    """A position that is exactly the sum of velocities: Q of rank one, P0 of rank one."""
    rng = np.random.default_rng(4)
    model = {
        "F": np.array([[1.0, 1.0], [0.0, 0.9]]),
        "Q": np.diag([0.0, 0.1]),
        "H": np.array([[1.0, 0.0]]),
        "R": np.array([[0.2]]),
        "m0": np.zeros(2),
        "P0": np.diag([0.0, 1.0]),
        "b": np.zeros(2),
        "d": np.zeros(1),
    }
    ys = simulate(rng, model, 50)
    post = psd.run_filter(psd.learn(linear(model)), ys)
    means, _, logs = kalman(ys, **model)
    np.testing.assert_allclose(post.mean, means, atol=1e-10)
    np.testing.assert_allclose(post.log_likelihoods, logs, atol=1e-10)


@SLOW
def test_small_noise_against_particles():
    """The pendulum from an SDE: means within 2 % of a standard deviation, rms over 150 steps."""
    system = psd.systems.pendulum_sde
    _, ys = system.simulate(0, 150)
    learned = psd.learn(system())
    post = psd.run_filter(learned, ys)
    means, sd = particle_means(np.asarray(ys)[:, 0], 200_000)
    error = np.abs(np.asarray(post.mean) - means) / sd
    assert np.sqrt(np.mean(error**2)) < 0.02
    assert np.isin(np.asarray(post.codes), [_results.OK, _results.UNRESOLVED]).all()


def particle_means(ys, num, dt=0.0125, gravity=9.8, spectral=1.0, sensor_variance=0.1):
    rng = np.random.default_rng(7)
    Q = spectral * np.array([[dt**3 / 3, dt**2 / 2], [dt**2 / 2, dt]])
    root = np.linalg.cholesky(Q)
    angle, velocity = 1.5 + 0.32 * rng.normal(size=num), 0.32 * rng.normal(size=num)
    weights = np.full(num, 1 / num)
    means, deviations = [], []
    for y in ys:
        if 1 / np.sum(weights**2) < num / 2:
            points = (rng.random() + np.arange(num)) / num
            index = np.minimum(np.searchsorted(np.cumsum(weights), points), num - 1)
            angle, velocity, weights = angle[index], velocity[index], np.full(num, 1 / num)
        z = root @ rng.normal(size=(2, num))
        angle, velocity = (
            angle + dt * velocity + z[0],
            velocity - gravity * dt * np.sin(angle) + z[1],
        )
        logs = -0.5 * (y - np.sin(angle)) ** 2 / sensor_variance
        weights = weights * np.exp(logs - logs.max())
        weights /= weights.sum()
        mean = np.array([weights @ angle, weights @ velocity])
        means.append(mean)
        deviations.append(
            np.sqrt([weights @ (angle - mean[0]) ** 2, weights @ (velocity - mean[1]) ** 2])
        )
    return np.asarray(means), np.asarray(deviations)


@SLOW
def test_ten_thousand_steps():
    """No NaN, no failure, weights of sum one, and errors that do not grow."""
    system = psd.systems.pendulum_sde
    xs, ys = system.simulate(3, 10_000)
    post = psd.run_filter(psd.learn(system(), 1e-2), ys, keep="summaries")
    assert np.isin(np.asarray(post.codes), [_results.OK, _results.UNRESOLVED]).all()
    assert np.isfinite(post.mean).all()
    assert np.isfinite(post.log_likelihoods).all()
    assert np.min(np.linalg.eigvalsh(post.covariance)) > 0
    total = jax.scipy.special.logsumexp(post.trace.last.log_sizes)
    assert abs(float(total)) < 1e-10
    # Turns of the angle cannot be told apart by its sine: the velocity can be followed.
    miss = np.abs(np.asarray(post.mean - xs))[:, 1]
    assert np.mean(miss[-2000:]) < 2 * np.mean(miss[:2000])


@SLOW
def test_a_saved_model_filters_the_same(bent, tmp_path):
    ssm, ys, learned = bent
    psd.save(tmp_path / "model.psd", learned)
    loaded = psd.load(tmp_path / "model.psd", ssm=ssm)
    np.testing.assert_array_equal(psd.run_filter(loaded, ys).mean, psd.run_filter(learned, ys).mean)


@pytest.mark.long
def test_a_function_that_turns_at_the_mean_is_no_line():
    """At zero u + sin(u) / 2 has no quadratic part: its bend is in the terms after that."""
    ssm = psd.additive_gaussian(lambda u: u + 0.5 * jnp.sin(u), lambda x: x, 0.01, 0.04, 0.0, 1.0)
    model = psd.learn(ssm, 1e-3, engine=psd.engines.Mixture(order=1))
    post = psd.run_filter(model, [0.9])
    u, x = np.linspace(-7, 7, 1401), np.linspace(-4, 5, 1801)
    law = np.exp(-0.5 * u**2)
    moved = np.exp(-0.5 * (x[:, None] - u - 0.5 * np.sin(u)) ** 2 / 0.01) @ law
    moved = moved * np.exp(-0.5 * (0.9 - x) ** 2 / 0.04)
    moved /= moved.sum() * (x[1] - x[0])
    gap = np.abs(np.asarray(post.density(0)(x[:, None])) - moved).sum() * (x[1] - x[0])
    assert gap > 1e-3
    assert 0.1 * gap < float(post.error_estimate) < 10 * gap
    assert int(post.codes[0]) == _results.UNRESOLVED
