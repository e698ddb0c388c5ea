"""Linear-Gaussian dynamics with any sensor: against Kalman, a dense grid, symmetry, particles."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import kalman, random_model, simulate
from scipy.stats import norm

import psdfilter as psd
from psdfilter import _results, systems
from psdfilter._inference.gaussian.mixture import Mixture
from psdfilter._inference.mixture.observation import tilt

# Mixtures say what they miss; these tests measure it.
pytestmark = pytest.mark.filterwarnings("ignore::psdfilter.ResolutionWarning")


def as_sensor(model: dict):
    """The linear sensor as a function that nobody can see into."""
    H, d, R = (jnp.asarray(model[name]) for name in "HdR")
    precision, height = jnp.linalg.inv(R), -0.5 * jnp.linalg.slogdet(2 * jnp.pi * R)[1]

    def log_observation(x, y):
        e = y - H @ x - d
        return -0.5 * e @ precision @ e + height

    return log_observation


def build(model: dict, **keywords) -> psd.StateSpaceModel:
    return psd.linear_gaussian(
        model["F"], model["Q"], None, None, model["m0"], model["P0"], b=model["b"],
        log_observation=as_sensor(model), **keywords,
    )  # fmt: skip


@pytest.mark.long
def test_a_quadratic_likelihood_is_used_exactly():
    """One Kalman update for each component, however stiff; nothing asks to be split."""
    rng = np.random.default_rng(0)
    model = random_model(rng, 3, 1)
    H, d = model["H"], model["d"]
    R, y = np.array([[1e-4]]), np.array([0.7])
    means = rng.normal(size=(4, 3))
    roots = rng.normal(size=(4, 3, 3))
    covariances = roots @ np.swapaxes(roots, 1, 2)
    fn = as_sensor({**model, "R": R})
    start = Mixture(jnp.zeros(4), jnp.asarray(means), jnp.asarray(covariances))
    # G is a function of H x: one measured direction.
    out = jax.jit(lambda m: tilt(m, H.T, lambda x: fn(x, jnp.asarray(y)), jnp.full(4, 0.01)))(start)
    for k in range(4):
        S = H @ covariances[k] @ H.T + R
        K = np.linalg.solve(S, H @ covariances[k]).T
        e = y - H @ means[k] - d
        log_z = -0.5 * (e @ np.linalg.solve(S, e) + np.linalg.slogdet(2 * np.pi * S)[1])
        np.testing.assert_allclose(out.log_masses[k], log_z, rtol=1e-8)
        np.testing.assert_allclose(out.means[k], means[k] + K @ e, atol=1e-8)
        np.testing.assert_allclose(out.covariances[k], covariances[k] - K @ S @ K.T, atol=1e-8)
    assert float(np.max(out.errors)) < 1e-6


@pytest.mark.parametrize(
    ("keywords", "message"),
    [
        ({"order": 2}, "order must be a whole number >= 4"),
        ({"measured": (0, 5)}, "measured must be distinct numbers in 0..2"),
        ({"measured": (0, 1, 2, 0)}, "measured must name 1 to 3 coordinates"),
    ],
)
def test_options_are_checked(keywords, message):
    model = random_model(np.random.default_rng(0), 3, 1)
    with pytest.raises(ValueError, match=message):
        psd.learn(build(model), engine=psd.engines.Mixture(**keywords))


@pytest.mark.long
def test_which_engine_and_why():
    model = random_model(np.random.default_rng(0), 3, 1)
    report = str(psd.learn(build(model), 1e-2).report)
    assert "mixture" in report
    assert "32" in report
    with pytest.raises(ValueError, match="misses some of its coordinates"):
        psd.run_filter(psd.learn(build(model)), [[1.0, np.nan]])


@pytest.fixture(scope="module")
def linear():
    """A series of a linear model, filtered as if its sensor were any function."""
    rng = np.random.default_rng(3)
    model = random_model(rng, 3, 1)
    ys = simulate(rng, model, 30)
    ys[7] = np.nan
    learned = psd.learn(build(model), engine=psd.engines.Mixture(order=8))
    return model, ys, learned, psd.run_filter(learned, ys)


@pytest.mark.slow
def test_a_linear_sensor_in_disguise_is_filtered_like_kalman(linear):
    model, ys, _, post = linear
    means, covariances, logs = kalman(ys, **model)
    np.testing.assert_allclose(post.mean, means, atol=1e-8)
    np.testing.assert_allclose(post.covariance, covariances, atol=1e-8)
    np.testing.assert_allclose(post.log_likelihoods, logs, atol=1e-8)
    # G is a function of one combination of the coordinates, which nobody was told.
    found = np.asarray(post.model.measured)
    assert found.shape == (3, 1)
    cosine = (found[:, 0] @ model["H"][0]) / np.linalg.norm(found) / np.linalg.norm(model["H"])
    assert abs(abs(cosine) - 1) < 1e-9


@pytest.mark.slow
def test_online_steps_are_those_of_the_series(linear):
    _, ys, learned, post = linear
    state = psd.init(learned)
    for y in ys[:5]:
        state = psd.update(learned, psd.predict(learned, state), y)
    np.testing.assert_allclose(state.moments(learned)[0], post.mean[4], atol=1e-12)
    np.testing.assert_allclose(state.log_likelihood, post.log_likelihoods[:5].sum(), atol=1e-12)
    ahead = psd.forecast(learned, post, 2)
    F, b = learned.dynamics.F, learned.dynamics.b
    np.testing.assert_allclose(ahead.mean[0], F @ post.mean[-1] + b, atol=1e-10)


@pytest.mark.slow
def test_a_saved_model_filters_the_same(linear, tmp_path):
    model, ys, learned, post = linear
    psd.save(tmp_path / "model", learned)
    again = psd.run_filter(psd.load(tmp_path / "model", ssm=build(model)), ys)
    np.testing.assert_allclose(again.mean, post.mean, rtol=0, atol=1e-14)


@pytest.mark.slow
def test_smoothing_by_paths_agrees_with_the_exact_smoother(linear):
    model, ys, learned, _ = linear
    smooth = psd.run_smoother(learned, ys)
    exact = psd.run_smoother(
        psd.learn(
            psd.linear_gaussian(*(model[k] for k in ("F", "Q", "H", "R", "m0", "P0")),
                                b=model["b"], d=model["d"])
        ),
        ys,
    )  # fmt: skip
    sd = np.sqrt(np.diagonal(np.asarray(exact.covariance), 0, 1, 2))
    assert np.abs((smooth.mean - exact.mean) / sd).max() < 6 / np.sqrt(1024)
    ratio = np.sqrt(np.diagonal(np.asarray(smooth.covariance), 0, 1, 2)) / sd
    assert np.abs(ratio - 1).max() < 6 / np.sqrt(2 * 1024)
    assert smooth.method == "backward sampling"
    paths = np.asarray(smooth.sample(key=jax.random.key(1), num=1024))
    assert paths.shape == (1024, len(ys), 3)
    assert np.abs((paths.mean(axis=0) - exact.mean) / sd).max() < 6 / np.sqrt(1024)


@pytest.mark.slow
def test_a_bimodal_line_against_a_dense_grid():
    """x' = 0.9 x + N(0, 0.3^2), y = x^2 + N(0, 0.5^2): total variation on 4000 points."""
    rng = np.random.default_rng(0)
    x, ys = 1.0, []
    for _ in range(40):
        x = 0.9 * x + 0.3 * rng.normal()
        ys.append([x**2 + 0.5 * rng.normal()])
    ssm = psd.linear_gaussian(
        0.9, 0.09, None, None, 0.5, 1.0,
        log_observation=lambda x, y: -0.5 * jnp.sum(((y - x**2) / 0.5) ** 2) - np.log(0.5)
        - 0.5 * np.log(2 * np.pi),
    )  # fmt: skip
    grid = np.linspace(-6, 6, 4001)
    step = grid[1] - grid[0]
    kernel = norm.pdf(grid[None, :], 0.9 * grid[:, None], 0.3)
    p, logs, densities = norm.pdf(grid, 0.5, 1.0), [], []
    for y in ys:
        p = step * p @ kernel * norm.pdf(y[0], grid**2, 0.5)
        z = p.sum() * step
        p = p / z
        logs.append(np.log(z))
        densities.append(p)
    errors = []
    for order in (16, 64):
        post = psd.run_filter(psd.learn(ssm, engine=psd.engines.Mixture(order=order)), ys)
        distance = [
            np.abs(np.asarray(post.density(t)(grid[:, None])) - densities[t]).sum() * step
            for t in (0, 10, 39)
        ]
        errors.append((max(distance), abs(float(post.log_likelihood) - sum(logs))))
    assert errors[1][0] < 0.05
    assert errors[1][1] < 0.02
    assert errors[1][0] < errors[0][0]


def upper_mass(post, t: int) -> float:
    """P(y > 0) of the position (x, ., y, .)."""
    return 1.0 - float(post.density(t).cdf(2, 0.0))


@pytest.mark.slow
def test_mirrored_modes_keep_their_masses():
    """Two beacons on the axis of symmetry, far from it: 0.7 and 0.3 for ever."""
    system = systems.range_two_beacons
    xs, ys = system.simulate(1, 100)
    assert float(jnp.min(jnp.abs(xs[:, 2]))) > 10
    post = psd.run_filter(psd.learn(system(), engine=psd.engines.Mixture(order=64)), ys)
    for t in (0, 49, 99):
        assert abs(upper_mass(post, t) - 0.7) < 0.02
    assert set(np.asarray(post.codes).tolist()) <= {_results.OK, _results.UNRESOLVED}


def particle_filter(ys, sd, sensor_sd, weight, num, seed):
    """A bootstrap filter for `range_one_beacon`: means, variances, and the mass above the axis."""
    F = np.kron(np.eye(2), [[1.0, 1.0], [0.0, 1.0]])
    root = np.linalg.cholesky(sd**2 * np.kron(np.eye(2), [[1 / 3, 1 / 2], [1 / 2, 1.0]]))
    mean, spread = np.array([-20.0, 0.4, 25.0, 0.1]), np.sqrt([1.0, 0.02, 1.0, 0.02])

    @jax.jit
    def run(key):
        start_key, key = jax.random.split(key)
        x = mean[None, :] + spread[None, :] * jax.random.normal(start_key, (num, 4))
        flip = jnp.where(jnp.arange(0.0, num) < weight * num, 1.0, -1.0)[:, None]
        x = x * jnp.concatenate([jnp.ones((num, 2)), flip, flip], axis=1)

        def step(x, at):
            y, step_key = at
            move_key, pick_key = jax.random.split(step_key)
            x = x @ F.T + jax.random.normal(move_key, (num, 4)) @ root.T
            logs = -0.5 * jnp.square((y[0] - jnp.hypot(x[:, 0], x[:, 2])) / sensor_sd)
            w = jax.nn.softmax(logs)
            mean = w @ x
            upper = w @ (x[:, 2] > 0).astype(w.dtype)
            variance = w @ jnp.square(x - mean[None, :])
            levels = (jnp.arange(0.0, num) + jax.random.uniform(pick_key)) / num
            index = jnp.minimum(jnp.searchsorted(jnp.cumsum(w), levels), num - 1)
            return x[index], (mean, variance, upper)

        keys = jax.random.split(key, len(ys))
        return jax.lax.scan(step, x, (jnp.asarray(ys), keys))[1]

    return [np.asarray(a) for a in run(jax.random.key(seed))]


@pytest.mark.slow
def test_one_beacon_against_particles():
    """The ring opens up and its ends meet: masses and means of three runs of 300 000 particles."""
    system = systems.range_one_beacon
    _, ys = system.simulate(0, 100)
    runs = [particle_filter(ys, 0.1, 0.5, 0.7, 300_000, seed) for seed in range(3)]
    means, variances, uppers = (np.stack([run[k] for run in runs]) for k in range(3))
    mean, sd = means.mean(0), np.sqrt(variances.mean(0))
    noise = np.sqrt(np.mean(((means - mean) / sd) ** 2) / 2)
    post = psd.run_filter(psd.learn(system(), engine=psd.engines.Mixture(order=128)), ys)
    error = np.sqrt(np.mean(((np.asarray(post.mean) - mean) / sd) ** 2))
    assert error < 0.03 + 3 * noise
    slack = 3 * uppers[:, -1].std() / np.sqrt(3)
    assert abs(upper_mass(post, 99) - uppers[:, -1].mean()) < 0.02 + slack


@pytest.mark.slow
def test_dirac_rows_are_followed():
    system = systems.bearings_dirac
    xs, ys = system.simulate(0, 60)
    post = psd.run_filter(psd.learn(system(), engine=psd.engines.Mixture(order=32)), ys)
    assert set(np.asarray(post.codes).tolist()) <= {_results.OK, _results.UNRESOLVED}
    sd = np.sqrt(np.diagonal(np.asarray(post.covariance), 0, 1, 2))
    z = (np.asarray(post.mean) - np.asarray(xs))[5:] / sd[5:]
    assert np.sqrt(np.mean(z**2)) < 2.0


@pytest.mark.slow
def test_gradient_of_the_likelihood():
    system = systems.range_two_beacons
    _, ys = system.simulate(1, 6)

    engine = psd.engines.Mixture(order=16, measured=(0, 2))

    def log_likelihood(sd):
        learned = psd.learn(system(sd=sd), engine=engine)
        return psd.run_filter(learned, ys, throw=False).log_likelihood

    both = jax.jit(jax.value_and_grad(log_likelihood))
    step = 1e-4
    slope = (both(0.1 + step)[0] - both(0.1 - step)[0]) / (2 * step)
    np.testing.assert_allclose(both(0.1)[1], slope, rtol=1e-3)


@pytest.mark.slow
def test_ten_thousand_steps():
    """Nothing drifts: finite, positive, of mass one, and about the states that were simulated."""
    rng = np.random.default_rng(0)
    F = 0.95 * np.array([[np.cos(0.1), -np.sin(0.1)], [np.sin(0.1), np.cos(0.1)]])
    x, xs, ys = np.zeros(2), [], []
    for _ in range(10_000):
        x = F @ x + 0.3 * rng.normal(size=2)
        xs.append(x)
        ys.append([np.hypot(*x) + 0.1 * rng.normal()])
    ssm = psd.linear_gaussian(
        F, 0.09, None, None, np.zeros(2), np.eye(2),
        log_observation=lambda x, y: jnp.sum(
            -0.5 * jnp.square((y - jnp.sqrt(jnp.sum(jnp.square(x)) + 1e-12)) / 0.1)
        ),
    )  # fmt: skip
    post = psd.run_filter(psd.learn(ssm, engine=psd.engines.Mixture(order=16)), ys)
    assert np.isfinite(post.log_likelihoods).all()
    assert np.isfinite(post.mean).all()
    lowest = np.linalg.eigvalsh(np.asarray(post.covariance))[:, 0]
    assert lowest.min() > 0
    masses = np.exp(np.asarray(post.laws.bank.log_sizes)).sum(axis=(1, 2))
    np.testing.assert_allclose(masses, 1.0, atol=1e-9)
    trace = np.trace(np.asarray(post.covariance), axis1=1, axis2=2)
    errors = np.sum((np.asarray(post.mean) - np.asarray(xs)) ** 2, axis=1)
    for part in np.array_split(errors / trace, 4):
        assert 0.8 < part.mean() < 1.25


@pytest.mark.slow
@pytest.mark.parametrize(
    ("frequency", "order", "bar"), [(3, 8, 0.02), (5, 8, 0.03), (8, 64, 0.1), (30, 64, None)]
)
def test_a_comb_is_resolved_or_refused(frequency, order, bar):
    """exp(30 cos(k (x - y))): up to thirty narrow teeth under one Gaussian."""
    ssm = psd.linear_gaussian(
        np.eye(3), 0.01, None, None, np.zeros(3), np.eye(3),
        log_observation=lambda x, y: 30 * (jnp.cos(frequency * (x[0] - y[0])) - 1),
    )  # fmt: skip
    engine = psd.engines.Mixture(order=order, measured=(0,))
    post = psd.run_filter(psd.learn(ssm, engine=engine), [0.2], throw=False)
    if bar is None:
        assert list(np.asarray(post.codes)) == [3]
        return
    x = np.linspace(-6, 6, 24001)
    wanted = norm.pdf(x, 0, np.sqrt(1.01)) * np.exp(30 * (np.cos(frequency * (x - 0.2)) - 1))
    wanted = wanted / wanted.sum() / (x[1] - x[0])
    got = np.asarray(post.density(0).marginal([0])(x[:, None]))
    assert np.abs(got - wanted).sum() * (x[1] - x[0]) < bar
    assert int(post.codes[0]) in (_results.OK, _results.UNRESOLVED)


@pytest.mark.slow
def test_impossible_observations_have_codes():
    """A sensor with bounded noise: outside of its reach the likelihood is zero."""

    def log_observation(x, y):
        gap = jnp.abs(y[0] - x[0])
        return jnp.where(gap < 1.0, -jnp.log(2.0), -jnp.inf)

    ssm = psd.linear_gaussian(
        np.eye(3), 0.01, None, None, np.zeros(3), np.eye(3), log_observation=log_observation
    )
    learned = psd.learn(ssm, engine=psd.engines.Mixture(order=8, measured=(0,)))
    post = psd.run_filter(learned, [0.2, 1e6, np.nan, np.inf, 0.1], throw=False)
    codes = list(np.asarray(post.codes))
    assert (codes[1], codes[3]) == (1, 2)
    assert codes[2] in (_results.OK, _results.UNRESOLVED)
    for figures in (post.mean, post.trace.errors):
        assert np.isfinite(figures).all()
    # A posterior with edges is no sum of eight Gaussians, and the filter says by how much.
    x = np.linspace(-3, 3, 3001)
    wanted = norm.pdf(x, 0, np.sqrt(1.01)) * (np.abs(x - 0.2) < 1)
    wanted = wanted / wanted.sum() / (x[1] - x[0])
    got = np.asarray(post.density(0).marginal([0])(x[:, None]))
    error = np.abs(got - wanted).sum() * (x[1] - x[0])
    assert 0.05 < error < post.trace.errors[0] < 0.5
    assert list(np.asarray(post.seen)) == [True, False, False, False, True]
    with pytest.raises(ValueError, match=r"ys\[1\].*likelihood zero"):
        psd.run_filter(learned, [0.2, 1e6, np.nan, np.inf, 0.1])
