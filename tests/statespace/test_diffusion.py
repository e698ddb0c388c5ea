"""Stochastic differential equations, against processes with known transitions."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import psdfilter as psd
from psdfilter._statespace.step_laws import Leaning

TIMES = np.array([0.3, 0.5, 1.4])


def kalman(transition, ys, noise, mean, P):
    """log p(y) and the last mean; transition: dt -> a, b, q of x' = a x + b + N(0, q)."""
    ll = 0.0
    for dt, y in zip(np.diff(TIMES, prepend=0.0), ys, strict=True):
        a, b, q = transition(dt)
        mean, P = a * mean + b, a * a * P + q
        S = P + noise
        ll -= 0.5 * (np.log(2 * np.pi * S) + (y - mean) ** 2 / S)
        mean, P = mean + P / S * (y - mean), P - P * P / S
    return ll, mean, P


@pytest.mark.slow
def test_ornstein_uhlenbeck_is_exact_whatever_the_step():
    ys = [0.5, 0.2, -0.3]

    def transition(dt):
        a = np.exp(-1.5 * dt)
        return a, 0.0, 0.49 * (1 - a * a) / 3

    ll, mean, _ = kalman(transition, ys, 0.04, 0.0, 0.5)
    ssm = psd.diffusion(
        lambda x: -1.5 * x, lambda x: 0.7, m0=0.0, P0=0.5, h=lambda x: x, R=0.04, step=0.5
    )
    post = psd.run_filter(psd.learn(ssm, 1e-5), ys, times=TIMES)
    # Halving transitions changes nothing: once is enough to see it.
    assert list(np.asarray(post.series.hops)) == [2, 2, 4]
    assert post.model.source.step == 0.25
    assert float(post.log_likelihood) == pytest.approx(ll, abs=1e-5)
    assert float(post.mean[-1, 0]) == pytest.approx(mean, abs=1e-5)


@pytest.mark.slow
def test_geometric_brownian_motion_is_exact_in_its_logarithm():
    ys = np.array([1.1, 1.2, 0.9])
    ll, mean, P = kalman(lambda dt: (1.0, 0.055 * dt, 0.09 * dt), np.log(ys), 0.01, 0.0, 0.04)

    ssm = psd.diffusion(
        lambda x: 0.1 * x,
        lambda x: 0.3 * x,
        prior=NearOne(),
        log_observation=lambda x, y: jax.scipy.stats.norm.logpdf(jnp.log(y[0]), jnp.log(x[0]), 0.1),
        support="positive",
        step=1.0,
    )
    model = psd.learn(ssm, 1e-5)
    post = psd.run_filter(model, ys, times=TIMES)
    assert float(post.log_likelihood) == pytest.approx(ll, abs=1e-5)
    assert float(post.mean[-1, 0]) == pytest.approx(np.exp(mean + P / 2), abs=1e-5)
    ahead = psd.forecast(model, post, 1, times=[3.4])
    later = np.exp(mean + 0.055 * 2 + (P + 0.18) / 2)
    assert float(ahead.mean[0, 0]) == pytest.approx(later, rel=1e-4)


def _one_step(ssm, u, x, dt, parts):
    """The transition density over dt, `parts` sub-steps composed on a fine grid of z."""
    z = jnp.asarray(x)
    row = psd._statespace.functions.Row(None, None, jnp.asarray(dt / parts), None)
    log_q = jax.jit(
        jax.vmap(
            jax.vmap(lambda a, b: ssm.log_transition(a[None], b[None], inputs=row), (None, 0)),
            (0, None),
        )
    )
    table = np.exp(np.asarray(log_q(z, z)))
    first = np.exp(np.asarray(log_q(jnp.asarray([u]), z)))[0]
    weights = np.gradient(np.asarray(x))
    law = first
    for _ in range(parts - 1):
        law = (law * weights) @ table
    return law, weights


@pytest.mark.slow
def test_square_root_process_converges_to_its_noncentral_chi_square():
    kappa, theta, s = 1.0, 1.0, 0.5
    ssm = psd.diffusion(
        lambda x: kappa * (theta - x),
        lambda x: s * jnp.sqrt(x),
        m0=1.0,
        P0=0.01,
        log_observation=lambda x, y: 0.0,
        support="positive",
        step=0.1,
    )
    x = np.exp(np.linspace(-4.0, 1.6, 701))
    c = 2 * kappa / ((1 - np.exp(-kappa)) * s * s)
    exact = (
        2 * c * stats.ncx2.pdf(2 * c * x, 4 * kappa * theta / s**2, 2 * c * 0.8 * np.exp(-kappa))
    )
    errors = []
    for parts in (4, 8, 16):
        law, weights = _one_step(ssm, 0.8, x, 1.0, parts)
        errors.append(np.abs(law - exact) @ weights)
    assert errors[-1] < 2e-3
    assert errors[1] < 0.35 * errors[0]
    assert errors[2] < 0.35 * errors[1]


@pytest.mark.parametrize("skewness", [0.0, 1e-6, -0.2, 0.7])
def test_a_step_has_the_moments_that_it_is_made_of(skewness):
    law = Leaning.of(jnp.array([0.3]), jnp.array([[0.04]]), jnp.asarray(skewness))
    z = np.linspace(-2.0, 4.0, 40_001)
    p = np.exp(np.asarray(jax.vmap(law.log_density)(jnp.asarray(z)[:, None]))) * (z[1] - z[0])
    assert np.sum(p) == pytest.approx(1.0, abs=1e-9)
    assert p @ z == pytest.approx(0.3, abs=1e-9)
    assert p @ (z - 0.3) ** 2 == pytest.approx(0.04, rel=1e-7)
    assert p @ (z - 0.3) ** 3 / 0.008 == pytest.approx(skewness, abs=1e-7)
    drawn = np.asarray(jax.vmap(law.draw)(jax.random.split(jax.random.key(0), 4000)))[:, 0]
    # Kolmogorov's distance of 4000 draws exceeds this once in 10 000 times.
    assert stats.kstest(drawn, lambda x: np.interp(x, z, np.cumsum(p))).statistic < 0.036


def square_root_filter(ys, noise, s):
    """log p(y) and densities of dx = (1 - x) dt + s sqrt(x) dW by exact transitions, on a grid."""
    x = np.exp(np.linspace(-5.0, 2.0, 1501))
    w, ll, laws = np.gradient(x), 0.0, []
    p = stats.norm.pdf(np.log(x), 0.0, 0.2) / x
    for dt, y in zip(np.diff(TIMES, prepend=0.0), ys, strict=True):
        c = 2 / ((1 - np.exp(-dt)) * s * s)
        table = 2 * c * stats.ncx2.pdf(2 * c * x, 4 / s**2, 2 * c * x[:, None] * np.exp(-dt))
        p = ((p * w) @ table) * stats.norm.pdf(y, x, noise)
        ll, p = ll + np.log(p @ w), p / (p @ w)
        laws.append(p)
    return ll, x, w, laws


class NearOne:
    """Lognormal, of location 0 and scale 0.2."""

    def log_prob(self, x):
        return jax.scipy.stats.norm.logpdf(jnp.log(x), 0.0, 0.2) - jnp.log(x)

    def sample(self, key):
        return jnp.exp(0.2 * jax.random.normal(key, (1,)))


@pytest.mark.slow
@pytest.mark.parametrize(("tol", "s"), [(1e-2, 0.5), (1e-3, 0.5), (1e-3, 0.8)])
def test_the_filter_takes_steps_as_short_as_the_tolerance_asks_for(tol, s):
    ys = [0.7, 0.6, 1.3]
    ll, x, w, laws = square_root_filter(ys, 0.1, s)
    ssm = psd.diffusion(
        lambda x: 1 - x,
        lambda x: s * jnp.sqrt(x),
        prior=NearOne(),
        h=lambda x: x,
        R=0.01,
        support="positive",
    )
    post = psd.run_filter(psd.learn(ssm, tol), ys, times=TIMES)
    errors = [np.abs(np.asarray(post.density(t)(x[:, None])) - p) @ w for t, p in enumerate(laws)]
    assert max(errors) < tol
    assert float(post.log_likelihood) == pytest.approx(ll, abs=3 * tol)
    # The estimate is of the right size, too.
    assert max(errors) < 3 * max(float(post.error_estimate), 0.1 * tol)
    assert post.model.source.step < ssm.step


@pytest.mark.slow
def test_a_step_that_is_too_long_is_named_online():
    ssm = psd.diffusion(
        lambda x: 4 * x - 4 * x**3, lambda x: 0.8, m0=0.5, P0=0.1, h=lambda x: x, R=0.1, step=0.4
    )
    model = psd.learn(ssm, 1e-2)
    with pytest.warns(psd.ResolutionWarning, match="tol"):
        state = psd.predict(model, psd.init(model), dt=0.4)
    assert float(state.error) > 1e-2
    assert int(state.code) == 3
    assert int(state.step) == 2


@pytest.mark.long
def test_double_well_converges_with_the_square_of_the_step():
    ssm = psd.diffusion(
        lambda x: 4 * x - 4 * x**3, lambda x: 0.8, m0=0.0, P0=0.1, h=lambda x: x, R=0.1, step=0.05
    )
    x = np.linspace(-2.5, 2.5, 701)
    fine, weights = _one_step(ssm, 0.3, x, 0.8, 256)
    errors = [np.abs(_one_step(ssm, 0.3, x, 0.8, n)[0] - fine) @ weights for n in (16, 32, 64)]
    assert errors[1] < 0.35 * errors[0]
    assert errors[2] < 0.35 * errors[1]
    assert errors[2] < 2e-3


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"drift": 1.0}, "drift must be a function"),
        ({"m0": None}, "m0 and P0 must be given"),
        ({"R": None}, "h and R must be given"),
        ({"step": -1.0}, "step must be a positive number"),
        ({"m0": np.zeros(3), "P0": 1.0}, "one or two coordinates"),
    ],
)
def test_bad_input_is_named(changes, message):
    given = {
        "drift": lambda x: -x, "diffusion": lambda x: 1.0, "m0": 0.0, "P0": 1.0,
        "h": lambda x: x, "R": 1.0, "step": 0.1, **changes,
    }  # fmt: skip
    with pytest.raises(ValueError, match=message):
        psd.diffusion(**given)


@pytest.mark.slow
def test_a_diffusion_is_learned_without_a_word_about_boxes():
    # Over one unit of time a single Gaussian step of this drift would leave any box; the filter
    # takes shorter ones. Warnings are errors here.
    ssm = psd.diffusion(
        lambda x: x - x**3, lambda x: 0.5 + 0.0 * x, m0=-1.0, P0=0.1, h=lambda x: x, R=0.36
    )
    model = psd.learn(ssm, tol=1e-2)
    assert model.report.engine == "adaptive"


@pytest.mark.long
def test_a_prior_that_reaches_beyond_the_support_has_a_box():
    """N(1, 0.1) has a share of 0.0008 below zero, where prices are not."""
    drift, sd = 0.05, 0.2
    ssm = psd.diffusion(
        lambda x: drift * x, lambda x: sd * x, support="positive", m0=1.0, P0=0.1,
        h=lambda x: x, R=0.01,
    )  # fmt: skip
    post = psd.run_filter(psd.learn(ssm, 1e-3), [1.0, 1.1], times=[0.0, 1.0])
    x = np.linspace(1e-4, 4.0, 4000)
    law = stats.norm.pdf(x, 1.0, 0.1**0.5) * stats.norm.pdf(1.0, x, 0.1)
    law /= law.sum()
    middle = np.log(x) + drift - sd**2 / 2
    law = stats.norm.pdf(np.log(x)[:, None], middle[None, :], sd) @ law / x
    law *= stats.norm.pdf(1.1, x, 0.1)
    mean = (law @ x) / law.sum()
    assert float(post.mean[-1, 0]) == pytest.approx(mean, abs=1e-3)
    with pytest.raises(ValueError, match="m0 must lie in the support"):
        psd.diffusion(
            lambda x: x, lambda x: x, support="positive", m0=-1.0, P0=0.1, h=lambda x: x, R=0.1
        )
