"""Likelihoods on the windows of a run, where a fixed plan gets outliers wrong."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import psdfilter as psd
from psdfilter._inference.adaptive.frozen import FrozenWindows
from psdfilter._inference.adaptive.reach import Frame
from psdfilter._inference.adaptive.windows import Window, row_of, united

THETA = {"rate": 0.9, "noise": 0.3}
SENSOR = 0.2
LINE = Frame(-np.inf, np.inf, None, None)


def build(p):
    return psd.additive_gaussian(
        lambda x: p["rate"] * x,
        lambda x: x,
        jnp.reshape(p["noise"] ** 2, (1, 1)),
        np.array([[SENSOR**2]]),
        np.zeros(1),
        np.eye(1),
    )


def kalman(p, ys, moves):
    """The textbook's log-likelihood; rows of one time have no transition between them."""
    mean, variance, total = 0.0, 1.0, 0.0
    for y, moved in zip(ys, moves, strict=True):
        if moved:
            mean, variance = p["rate"] * mean, p["rate"] ** 2 * variance + p["noise"] ** 2
        if np.isnan(y):
            continue
        spread = variance + SENSOR**2
        total -= 0.5 * (jnp.log(2 * jnp.pi * spread) + (y - mean) ** 2 / spread)
        mean, variance = mean + variance / spread * (y - mean), variance * SENSOR**2 / spread
    return total


def outlying(num, size):
    rng = np.random.default_rng(3)
    x, ys = 0.0, []
    for _ in range(num):
        x = 0.9 * x + 0.3 * rng.normal()
        ys.append(x + SENSOR * rng.normal())
    ys[num // 2] += size * SENSOR
    return np.array(ys)


def assert_exact(ll, theta, exact):
    value, gradient = jax.value_and_grad(ll)(theta)
    expected, slope = jax.value_and_grad(exact)(theta)
    assert abs(float(value) - float(expected)) < 1e-4
    for name in theta:
        assert abs(float(gradient[name]) - float(slope[name])) < 1e-4 * (1 + abs(slope[name]))


@pytest.mark.slow
def test_an_outlier_has_the_likelihood_and_the_score_of_the_model():
    ys = outlying(16, 15.0)
    ll = psd.likelihood(build, THETA, ys, tol=1e-4)
    assert isinstance(ll.core.frozen, FrozenWindows)
    assert_exact(ll, THETA, lambda p: kalman(p, ys, np.ones(16, bool)))
    # nearby thetas are served by the same windows
    near = {"rate": 0.85, "noise": 0.36}
    assert_exact(ll, near, lambda p: kalman(p, ys, np.ones(16, bool)))
    post = ll.posterior(THETA)
    np.testing.assert_allclose(ll.increments(THETA), post.log_likelihoods, atol=1e-5)


@pytest.mark.slow
def test_gaps_and_several_sensors_at_one_time():
    ys, times = outlying(14, 12.0), np.array([1, 2, 2, 2, 3, 4, 7, 8, 8, 9, 10, 11, 12, 13])
    ys[4] = np.nan
    ll = psd.likelihood(build, THETA, ys, times=times, tol=1e-4)
    assert isinstance(ll.core.frozen, FrozenWindows)
    full, moves = [], []
    for k, t in enumerate(times):
        gap = t - (times[k - 1] if k else 0)
        full += [np.nan] * (gap - 1) + [ys[k]]
        moves += [True] * (gap - 1) + [gap > 0]
    assert_exact(ll, THETA, lambda p: kalman(p, full, moves))


@pytest.mark.slow
def test_several_series_and_covers():
    each = [outlying(9, 15.0), outlying(16, 0.0)]
    wide = {"rate": 0.6, "noise": 0.5}
    ll = psd.likelihood(build, THETA, [y[:, None] for y in each], cover=[wide], tol=1e-4)
    assert isinstance(ll.core.frozen, FrozenWindows)

    def exact(p):
        return sum(kalman(p, y, np.ones(len(y), bool)) for y in each)

    assert_exact(ll, THETA, exact)
    assert_exact(ll, wide, exact)


@pytest.mark.slow
def test_where_a_fixed_plan_serves_it_is_taken():
    ll = psd.likelihood(build, THETA, outlying(16, 0.0), tol=1e-4)
    assert not isinstance(ll.core.frozen, FrozenWindows)


LATTICE = Window(np.array([-6.0]), np.array([6.0]), 0.25)
WINDOWS = {
    "lattice": LATTICE,
    "panels": Window(np.array([-6.0, -1.0, 0.5]), np.array([-1.0, 0.5, 6.0]), 0.0),
    "chebyshev": Window(np.array([-6.0]), np.array([6.0]), -65.0),
}


@pytest.mark.parametrize("one", WINDOWS)
@pytest.mark.parametrize("other", WINDOWS)
def test_united_windows_integrate_what_each_of_them_does(one, other):
    shifted = WINDOWS[other]._replace(
        lower=WINDOWS[other].lower + 1.5, upper=WINDOWS[other].upper + 1.5
    )
    row = row_of(united([WINDOWS[one], shifted]), LINE)
    for mean in (0.0, 1.5):
        density = np.exp(-0.5 * (row.nodes - mean) ** 2) / np.sqrt(2 * np.pi)
        assert abs(np.exp(row.log_weights) @ density - 1) < 1e-8
