"""Models with regimes on lattices, against filters written down plainly."""

import warnings
from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from models.particles_oracle import bootstrap
from regime_oracles import dense_filter, dense_smoother, hidden_markov, normal

import psdfilter as psd

P = np.array([[0.9, 0.1], [0.3, 0.7]])
INITIAL = np.array([0.75, 0.25])  # what P keeps
YS = np.array([0.4, -0.2, np.nan, 1.5, 2.2, 1.1])
GRID = np.linspace(-9.0, 9.0, 901)

STARTS = [lambda x: normal(x, 0.0, 1.0), lambda x: normal(x, 0.5, 0.7)]
MOVES = [
    lambda u, x: normal(x, 0.9 * np.sin(u), 0.3),
    lambda u, x: normal(x, 0.5 * u + 0.4, 1.0),
]
SENSORS = [lambda x, y: normal(y, x, 0.5), lambda x, y: normal(y, x + 0.1 * x**2, 0.8)]


@cache
def bent():
    """Two regimes with other dynamics, sensors and priors."""
    one = psd.additive_gaussian(lambda u: 0.9 * jnp.sin(u), lambda x: x, 0.09, 0.25, 0.0, 1.0)
    two = psd.additive_gaussian(
        lambda u: 0.5 * u + 0.4, lambda x: x + 0.1 * x**2, 1.0, 0.64, 0.5, 0.49
    )
    return psd.switching([one, two], P)


@cache
def learned():
    return psd.learn(bent(), 1e-4)


@cache
def filtered():
    return psd.run_filter(learned(), YS)


@cache
def exact():
    return dense_filter(GRID, STARTS, MOVES, SENSORS, P, INITIAL, YS)


def joint(result, t):
    """p(x, k) on the grid."""
    shares = np.asarray(result.regimes[t])
    each = [result.density(t, regime=k)(GRID[:, None]) for k in range(len(shares))]
    return shares[:, None] * np.asarray(each)


@pytest.mark.long
def test_laws_are_those_of_a_dense_grid():
    post, (logs, laws, _) = filtered(), exact()
    h = GRID[1] - GRID[0]
    np.testing.assert_allclose(post.log_likelihoods, logs, atol=1e-6)
    np.testing.assert_allclose(post.regimes, laws.sum(axis=2) * h, atol=1e-6)
    for t in (0, -1):
        assert np.abs(joint(post, t) - laws[t]).sum() * h < 1e-6
    whole = np.asarray(post.density(-1)(GRID[:, None]))
    np.testing.assert_allclose(whole, laws[-1].sum(axis=0), atol=1e-6)
    np.testing.assert_allclose(post.mean[:, 0], laws.sum(axis=1) @ GRID * h, atol=1e-6)
    levels = np.cumsum(laws[-1].sum(axis=0)) * h
    assert abs(np.interp(float(post.quantile(0.2)[-1, 0]) - h / 2, GRID, levels) - 0.2) < 1e-4
    assert float(post.error_estimate) < 1e-4
    assert post.model.report.engine == "lattice"


@pytest.mark.long
def test_laws_are_those_of_a_million_particles():
    """Particles (k, x): the regime moves first, then the state by the dynamics of the new one."""

    def start(rng, num):
        k = (rng.random(num) < INITIAL[1]).astype(int)
        x = np.where(k == 0, rng.normal(size=num), 0.5 + 0.7 * rng.normal(size=num))
        return np.stack([k, x], axis=1)

    def move(rng, particles):
        old, u = particles[:, 0].astype(int), particles[:, 1]
        k = (rng.random(len(u)) < P[old, 1]).astype(int)
        mean, sd = np.where(k == 0, 0.9 * np.sin(u), 0.5 * u + 0.4), np.where(k == 0, 0.3, 1.0)
        return np.stack([k, mean + sd * rng.normal(size=len(u))], axis=1)

    def seen(y):
        def log_density(particles):
            each = [np.log(sensor(particles[:, 1], y)) for sensor in SENSORS]
            return np.where(particles[:, 0] == 0, *each)

        return None if np.isnan(y) else log_density

    means, errors, log_likelihood, error = bootstrap(
        start, [move] * len(YS), [seen(y) for y in YS], num=1_000_000
    )
    ours = np.stack([filtered().regimes[:, 1], filtered().mean[:, 0]], axis=1)
    # Standard errors of four runs are uncertain themselves: none is below that of the mean.
    least = np.sqrt([0.25, 2.0]) / np.sqrt(1e6)
    assert (np.abs(ours - means) < 6 * np.maximum(errors, least)).all()
    assert abs(filtered().log_likelihood - log_likelihood) < 6 * max(error, 1e-3)


@pytest.mark.slow
def test_the_smoother_is_that_of_a_dense_grid():
    smooth = psd.run_smoother(learned(), YS)
    _, laws, predicted = exact()
    wanted = dense_smoother(GRID, MOVES, P, laws, predicted)
    h = GRID[1] - GRID[0]
    np.testing.assert_allclose(smooth.regimes, wanted.sum(axis=2) * h, atol=1e-6)
    np.testing.assert_allclose(smooth.mean[:, 0], wanted.sum(axis=1) @ GRID * h, atol=1e-6)
    assert np.abs(joint(smooth, 1) - wanted[1]).sum() * h < 1e-6
    paths = np.asarray(smooth.sample(key=jax.random.key(1), num=2000))[:, :, 0]
    sd = np.sqrt(np.asarray(smooth.covariance)[:, 0, 0])
    assert (np.abs(paths.mean(axis=0) - smooth.mean[:, 0]) < 6 * sd / np.sqrt(2000)).all()


@pytest.mark.long
def test_forecasts_of_states_regimes_and_observations():
    ahead = psd.forecast(learned(), filtered(), 2)
    more = np.append(YS, [np.nan, np.nan])
    _, laws, _ = dense_filter(GRID, STARTS, MOVES, SENSORS, P, INITIAL, more)
    h = GRID[1] - GRID[0]
    np.testing.assert_allclose(ahead.regimes, laws[-2:].sum(axis=2) * h, atol=1e-6)
    np.testing.assert_allclose(ahead.mean[:, 0], laws[-2:].sum(axis=1) @ GRID * h, atol=1e-6)
    y = np.linspace(-8, 14, 4001)
    law_y = sum((laws[-1][k] * h) @ SENSORS[k](GRID[:, None], y[None, :]) for k in range(2))
    levels = np.cumsum(law_y) * (y[1] - y[0])
    seen = ahead.observations
    np.testing.assert_allclose(seen.quantile(0.9)[-1, 0], np.interp(0.9, levels, y), atol=6e-3)
    np.testing.assert_allclose(seen.mean[-1, 0], law_y @ y * (y[1] - y[0]), atol=1e-5)


@pytest.mark.long
def test_the_transform_of_an_observation_is_its_level():
    _, _, predicted = exact()
    h, y = GRID[1] - GRID[0], np.linspace(-10, YS[3], 8001)
    density = sum((predicted[3][k] * h) @ SENSORS[k](GRID[:, None], y[None, :]) for k in range(2))
    pit = np.asarray(filtered().pit)
    assert abs(pit[3] - np.trapezoid(density, y)) < 1e-5
    assert np.isnan(pit[2])


def hidden_chain():
    """Sensors that look at the regime only: a hidden Markov model."""

    def regime(level):
        return psd.linear_gaussian(0.5, 1.0, [[0.0]], 0.25, 0.0, 1.0, d=[level])

    return psd.switching([regime(-1.0), regime(1.0)], P)


HIDDEN = np.array([0.3, -0.8, 1.4, 0.9, 0.2])


@pytest.mark.long
@pytest.mark.filterwarnings("ignore:.*averages over paths:psdfilter.ResolutionWarning")
@pytest.mark.parametrize("engine", ["lattice", "branches"])
def test_sensors_of_the_regime_alone_make_a_hidden_markov_model(engine):
    model = psd.learn(hidden_chain(), 1e-2, engine=engine)
    likelihoods = np.stack([normal(HIDDEN, mean, 0.5) for mean in (-1.0, 1.0)], axis=1)
    logs, forward, smoothed = hidden_markov(P, INITIAL, likelihoods)
    post = psd.run_smoother(model, HIDDEN)
    np.testing.assert_allclose(post.log_likelihoods, logs, atol=1e-5)
    np.testing.assert_allclose(post.filtered.regimes, forward, atol=1e-5)
    # That of Gaussians is an average over paths.
    atol = 1e-5 if engine == "lattice" else 0.02
    np.testing.assert_allclose(post.regimes, smoothed, atol=atol)


@pytest.mark.long
def test_switching_that_depends_on_the_state_and_on_inputs():
    def chain(u, inputs):
        leave = jax.nn.sigmoid(u[0] - 1.0 + inputs)
        return jnp.stack([jnp.stack([1 - leave, leave]), jnp.array([0.3, 0.7])])

    parts = bent().regimes.models
    model = psd.learn(psd.switching(parts, chain, initial=INITIAL), 1e-3)
    post = psd.run_filter(model, YS[:2], inputs=np.array([0.5, 0.5]))

    def matrices(u):
        leave = 1 / (1 + np.exp(-(u - 0.5)))
        rows = np.stack([np.stack([1 - leave, leave], -1), np.tile([0.3, 0.7], (len(u), 1))], 1)
        return rows

    logs, laws, _ = dense_filter(GRID, STARTS, MOVES, SENSORS, matrices, INITIAL, YS[:2])
    np.testing.assert_allclose(post.log_likelihoods, logs, atol=1e-5)
    np.testing.assert_allclose(post.regimes[-1], laws[-1].sum(axis=1) * 0.02, atol=1e-5)


@pytest.mark.slow
def test_gaps_and_several_sensors_at_one_time():
    ys, times = YS[[0, 1, 3]], [2, 2, 3]
    post = psd.run_filter(learned(), ys, times=times)
    both = [lambda x, y, k=k: SENSORS[k](x, ys[0]) * SENSORS[k](x, ys[1]) for k in range(2)]
    one = dense_filter(GRID, STARTS, MOVES, SENSORS, P, INITIAL, [np.nan, ys[0]])
    two = dense_filter(GRID, STARTS, MOVES, both, P, INITIAL, [np.nan, 0.0])
    np.testing.assert_allclose(post.log_likelihoods[0], one[0][1], atol=1e-5)
    np.testing.assert_allclose(post.log_likelihoods[:2].sum(), two[0][1], atol=1e-5)
    np.testing.assert_allclose(post.regimes[1], two[1][1].sum(axis=1) * 0.02, atol=1e-5)


@pytest.mark.slow
def test_walls_cut_the_state_and_what_leaves_lowers_the_likelihood():
    box = psd.Box(-1.0, 2.0)
    parts = [
        psd.additive_gaussian(lambda u, a=a: a * u, lambda x: x, 0.25, 0.25, 0.5, 0.25, box)
        for a in (0.9, 0.2)
    ]
    post = psd.run_filter(psd.learn(psd.switching(parts, P), 1e-4), YS[:3])
    cells = np.linspace(-1, 2, 1501)
    x = 0.5 * (cells[1:] + cells[:-1])
    start = normal(x, 0.5, 0.5) / (normal(x, 0.5, 0.5).sum() * 0.002)
    logs, laws, predicted = dense_filter(
        x,
        [lambda _: start] * 2,
        [lambda u, x, a=a: normal(x, a * u, 0.5) for a in (0.9, 0.2)],
        [lambda x, y: normal(y, x, 0.5)] * 2,
        P,
        INITIAL,
        YS[:3],
    )
    np.testing.assert_allclose(post.log_likelihoods, logs, atol=1e-5)
    np.testing.assert_allclose(post.regimes, laws.sum(axis=2) * 0.002, atol=1e-5)
    np.testing.assert_allclose(post.log_kept[0], np.log(predicted[0].sum() * 0.002), atol=1e-5)
    assert float(post.density(0)(np.array([2.5]))) == 0.0


WRONG = {
    "rows of P must sum to one: row 1 sums": lambda m: psd.switching([m, m], [[1, 0], [0.2, 0.7]]),
    "its columns do, so pass P.T": lambda m: psd.switching([m, m], [[0.9, 0.3], [0.1, 0.7]]),
    r"P must have shape \(2, 2\)": lambda m: psd.switching([m, m], np.eye(3)),
    r"P\(u\) at u = .* must hold probabilities, got nan": lambda m: psd.switching(
        [m, m], lambda u: jnp.full((2, 2), jnp.nan)
    ),
    "row 0 sums to 100": lambda m: psd.switching([m, m], [[90, 10], [20, 80]]),
    "P must be finite, got nan": lambda m: psd.switching([m, m], [[np.nan, 1], [0, 1]]),
    "P must hold probabilities, got -0.1": lambda m: psd.switching([m, m], [[1.1, -0.1], [0, 1]]),
    r"rows of P\(u\) at": lambda m: psd.switching([m, m], lambda u: jnp.ones((2, 2))),
    "initial must be probabilities": lambda m: psd.switching([m, m], np.eye(2), initial=[1, 1]),
    "models must be a list": lambda m: psd.switching(m, np.eye(1)),
    "states of one number of coordinates": lambda m: psd.switching([m, plane()], np.eye(2)),
    "observations of one size": lambda m: psd.switching([m, wide()], np.eye(2)),
    'engine "exact" cannot serve this model: it does not know regimes': lambda m: psd.learn(
        psd.switching([m, m], np.eye(2)), engine="exact"
    ),
}  # fmt: skip


def plane():
    return psd.linear_gaussian(np.eye(2), np.eye(2), [[1.0, 0.0]], 1.0, [0, 0], np.eye(2))


def wide():
    return psd.linear_gaussian(1.0, 1.0, [[1.0], [1.0]], [1.0, 1.0], 0.0, 1.0)


@pytest.mark.parametrize("message", WRONG)
def test_what_makes_no_sense_is_refused_with_its_cause(message):
    level = psd.linear_gaussian(1.0, 1.0, 1.0, 1.0, 0.0, 1.0)
    with pytest.raises(ValueError, match=message):
        WRONG[message](level)


@pytest.mark.long
@pytest.mark.parametrize("engine", ["lattice", "branches"])
def test_one_observation_at_a_time_has_regimes_too(engine):
    model = psd.learn(hidden_chain(), 1e-2, engine=engine)
    state = psd.init(model)
    for y in HIDDEN:
        state = psd.update(model, psd.predict(model, state), y)
    post = psd.run_filter(model, HIDDEN)
    np.testing.assert_allclose(state.regimes(model), post.regimes[-1], atol=1e-9)
    np.testing.assert_allclose(psd.forecast(model, post, 0).regimes, post.regimes[-1:], atol=1e-12)


def test_results_without_regimes_say_so():
    model = psd.learn(psd.linear_gaussian(1.0, 1.0, 1.0, 1.0, 0.0, 1.0))
    with pytest.raises(ValueError, match=r"has no regimes: psdfilter.switching"):
        _ = psd.run_filter(model, [0.0]).regimes


def squared(x):
    return x**2


HARD = {
    "an outlier of twenty deviations": (lambda x: x, 0.1, [0.3, 9.0, 0.2]),
    "two narrow peaks": (squared, 0.02, [0.9, 1.4, 0.7]),
    "noise far below the law": (lambda x: x, 0.004, [0.3, 0.8, -0.2]),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", HARD)
def test_hard_observations_are_right_or_there_is_a_warning(name):
    h, sd, ys = HARD[name]
    scales = ((0.9, 0.0, 0.3), (0.5, 1.0, 1.0))
    parts = [
        psd.additive_gaussian(lambda u, a=a, b=b: a * u + b, h, q**2, sd**2, 0.0, 1.0)
        for a, b, q in scales
    ]
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        post = psd.run_filter(psd.learn(psd.switching(parts, P), 1e-3), ys)
    x = np.linspace(-10, 12, 5501)
    logs, laws, _ = dense_filter(
        x,
        [lambda x: normal(x, 0.0, 1.0)] * 2,
        [lambda u, x, s=s: normal(x, s[0] * u + s[1], s[2]) for s in scales],
        [lambda x, y: normal(y, h(x), sd)] * 2,
        P,
        INITIAL,
        ys,
    )
    right = np.abs(np.asarray(post.log_likelihoods) - logs).max() < 1e-3
    right &= np.abs(np.asarray(post.regimes) - laws.sum(axis=2) * (x[1] - x[0])).max() < 1e-3
    assert right or heard


@pytest.mark.slow
def test_gradients_of_the_likelihood_also_in_the_chain():
    def build(theta):
        p, q = jax.nn.sigmoid(theta["p"]), jax.nn.sigmoid(theta["q"])
        chain = jnp.stack([jnp.stack([1 - p, p]), jnp.stack([q, 1 - q])])
        calm = psd.linear_gaussian(0.9, jnp.exp(theta["log_q"]), 1.0, 0.2, 0.0, 1.0)
        return psd.switching([calm, psd.linear_gaussian(0.5, 1.0, 1.0, 0.2, 0.0, 1.0)], chain)

    theta = {"p": -2.0, "q": -1.0, "log_q": -2.0}
    ll = psd.likelihood(build, theta, YS, times=[1, 2, 3, 5, 6, 6], tol=1e-4)
    slopes = jax.grad(ll)(theta)
    for name in theta:
        up, down = ({**theta, name: theta[name] + d} for d in (1e-5, -1e-5))
        assert abs(float(slopes[name]) - float(ll(up) - ll(down)) / 2e-5) < 1e-6
    again = psd.run_filter(ll.model(theta), YS, times=[1, 2, 3, 5, 6, 6])
    np.testing.assert_allclose(ll(theta), again.log_likelihood, atol=1e-9)
