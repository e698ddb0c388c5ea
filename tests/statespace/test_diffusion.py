"""Stochastic differential equations, against processes with known transitions."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import psdfilter as psd

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
    assert list(np.asarray(post.series.hops)) == [1, 1, 2]
    assert float(post.log_likelihood) == pytest.approx(ll, abs=1e-5)
    assert float(post.mean[-1, 0]) == pytest.approx(mean, abs=1e-5)


@pytest.mark.slow
def test_geometric_brownian_motion_is_exact_in_its_logarithm():
    ys = np.array([1.1, 1.2, 0.9])
    ll, mean, P = kalman(lambda dt: (1.0, 0.055 * dt, 0.09 * dt), np.log(ys), 0.01, 0.0, 0.04)

    class LogNormal:
        """Of location 0 and scale 0.2."""

        def log_prob(self, x):
            return jax.scipy.stats.norm.logpdf(jnp.log(x), 0.0, 0.2) - jnp.log(x)

        def sample(self, key):
            return jnp.exp(0.2 * jax.random.normal(key, (1,)))

    ssm = psd.diffusion(
        lambda x: 0.1 * x,
        lambda x: 0.3 * x,
        prior=LogNormal(),
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
    assert errors[-1] < 0.02
    # At least of first order, because the noise depends on the state.
    assert errors[1] < 0.6 * errors[0]
    assert errors[2] < 0.6 * errors[1]


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


def test_a_diffusion_is_learned_without_a_word_about_boxes():
    # Over one unit of time a single Gaussian step of this drift would leave any box; the filter
    # takes shorter ones. Warnings are errors here.
    ssm = psd.diffusion(
        lambda x: x - x**3, lambda x: 0.5 + 0.0 * x, m0=-1.0, P0=0.1, h=lambda x: x, R=0.36
    )
    model = psd.learn(ssm, tol=1e-2)
    assert model.report.engine == "adaptive"
