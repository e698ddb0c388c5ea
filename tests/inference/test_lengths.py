"""Series of any length go through programs of few lengths, and are not changed by it."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from engines import CASES, learned, series
from hypothesis import given
from hypothesis import strategies as st

import psdfilter as psd
from psdfilter._inference.lengths import count_of, room_for, scan_rows

# Their programs are those of a row, or are not for series of many lengths.
_OTHERS = {"closed", "reference", "free", "nodes joint"}
ENGINES = [
    pytest.param(name, marks=pytest.mark.slow if CASES[name].slow else pytest.mark.long)
    for name in CASES
    if name not in _OTHERS
]


@given(st.integers(1, 10**7), st.sampled_from([1, 2, 8]))
def test_there_is_room_and_little_of_it_is_left(num, parts):
    room = room_for(num, parts)
    assert room >= num
    assert room <= max(32 // parts, num * (1 + 1 / parts) + 1)
    assert room_for(room, parts) == room


def test_lengths_are_few():
    assert len({room_for(num) for num in range(1, 100_001)}) == 13
    assert len({room_for(num, 8) for num in range(33, 1025)}) == 5 * 8


@pytest.mark.parametrize("num", [1, 3, 8])
def test_a_loop_that_ends_early_is_the_scan_of_its_rows(num):
    xs = {"a": jnp.arange(8.0), "b": jnp.ones((8, 2))}

    def step(carry, x):
        new = 0.9 * carry + x["a"] * x["b"]
        return new, (new.sum(), jnp.sign(new) > 0)

    start = jnp.zeros(2)
    part = jax.tree.map(lambda a: a[:num], xs)
    last, rows = jax.jit(lambda *args: scan_rows(step, *args))(start, xs, count_of(num))
    expected = jax.lax.scan(step, start, part)
    np.testing.assert_array_equal(last, expected[0])
    for ours, theirs in zip(rows, expected[1], strict=True):
        np.testing.assert_array_equal(ours[:num], theirs)
    assert not np.any(rows[0][num:])


def long(name, num):
    return np.resize(series(name), (num, series(name).shape[1]))


@pytest.mark.parametrize("name", ENGINES)
@pytest.mark.filterwarnings("ignore::psdfilter.ResolutionWarning")
def test_a_new_length_compiles_nothing(name, caplog):
    model = learned(name)
    longest = psd.run_filter(model, long(name, 18), throw=False)
    found = [longest.mean, longest.log_likelihood]
    with jax.log_compiles(), caplog.at_level("WARNING"):
        shorter = psd.run_filter(model, long(name, 17), throw=False)
        found += [shorter.mean, shorter.log_likelihood]
    assert not [r.getMessage() for r in caplog.records if "Compiling" in r.getMessage()]
    assert shorter.mean.shape == (17, model.dim)
    # Engines that look at a whole series choose their nodes by it.
    atol = 0.0 if model.engine in ("nodes", "exact", "mixture") else CASES[name].tol
    np.testing.assert_allclose(shorter.mean, longest.mean[:17], rtol=1e-13, atol=atol)


@pytest.mark.long
def test_inputs_are_those_of_their_rows():
    def f(x, inputs):
        return x + inputs[0]

    ssm = psd.additive_gaussian(
        f, lambda x: x + 0.1 * x**2, 1e-2, 1e-2, 0.3, 0.04, inputs=np.zeros(1)
    )
    model = psd.learn(ssm, 0.2, engine="mixture")
    ys, rows = np.array([0.4, np.nan, 0.5, 0.3, 0.6]), np.linspace(-0.1, 0.1, 5)[:, None]

    def run(ys):
        post = psd.run_filter(model, ys, inputs=rows, throw=False)
        return post.mean, post.covariance, post.log_likelihoods

    for ours, theirs in zip(run(ys), jax.jit(run)(jnp.asarray(ys)), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-12, atol=1e-13)


def test_real_times_are_those_of_kalman():
    ssm = psd.linear_gaussian(
        lambda dt: 0.9**dt, lambda dt: 0.2 * dt, 1.0, 0.3, 0.0, 1.0, b=lambda dt: 0.1 * dt
    )
    ys, times = np.array([0.4, np.nan, 0.5, 0.3, 0.6]), np.array([0.5, 0.5, 1.25, 4.0, 4.5])
    mean, variance, expected = 0.0, 1.0, []
    for y, dt in zip(ys, np.diff(times, prepend=0.0), strict=True):
        if dt > 0:
            mean, variance = 0.9**dt * mean + 0.1 * dt, 0.81**dt * variance + 0.2 * dt
        gain = 0.0 if np.isnan(y) else variance / (variance + 0.3)
        mean, variance = mean + gain * (0.0 if np.isnan(y) else y - mean), (1 - gain) * variance
        expected.append((mean, variance))
    model = psd.learn(ssm)
    post = psd.run_filter(model, ys, times=times)
    np.testing.assert_allclose(post.mean[:, 0], [m for m, _ in expected], rtol=1e-13)
    np.testing.assert_allclose(post.covariance[:, 0, 0], [v for _, v in expected], rtol=1e-13)
    ahead = psd.forecast(model, post, 1, times=[5.0])
    np.testing.assert_allclose(ahead.mean[0, 0], 0.9**0.5 * mean + 0.05, rtol=1e-13)


def test_gaps_and_sensors_of_one_time_are_rows_like_others():
    model = psd.learn(psd.linear_gaussian(0.9, 0.2, 1.0, 0.3, 0.0, 1.0))
    gappy = np.full(9, np.nan)
    gappy[[0, 3, 8]] = 0.3, 0.5, -0.2
    straight = psd.run_filter(model, gappy).mean[np.array([0, 3, 8])]
    jumps = psd.run_filter(model, gappy[[0, 3, 8]], times=[1, 4, 9])
    np.testing.assert_allclose(jumps.mean, straight, rtol=1e-13)
    twice = psd.run_filter(model, [0.3, 0.5, np.nan, -0.2], times=[1, 4, 4, 9])
    np.testing.assert_allclose(twice.mean, straight[np.array([0, 1, 1, 2])], rtol=1e-13)


@pytest.mark.long
def test_derivatives_go_through_numbers_that_only_functions_know():
    """No argument is traced here, and no loop that ends with the data has a derivative."""

    def log_likelihood(rate):
        ssm = psd.additive_gaussian(
            lambda u: rate * jnp.sin(u), lambda x: x, 0.1, 0.2, 0.1, 0.3, state_box=(-3.0, 3.0)
        )
        model = psd.learn(ssm, 0.5, engine=psd.engines.Mixture(order=1))
        return psd.run_filter(model, [0.2, 0.5, -0.1]).log_likelihood

    step = 1e-5
    wanted = (log_likelihood(0.9 + step) - log_likelihood(0.9 - step)) / (2 * step)
    assert float(jax.grad(log_likelihood)(0.9)) == pytest.approx(float(wanted), rel=1e-5)


@pytest.mark.parametrize("traced", ["Q", "m0"])
def test_derivatives_of_a_whole_posterior_need_no_jit(traced):
    """Arrays of NumPy and traced ones lie side by side in what a filter leaves behind."""

    def log_likelihood(value):
        parts = {"Q": 0.2, "m0": 0.0} | {traced: value}
        ssm = psd.linear_gaussian(0.9, parts["Q"], 1.0, 0.3, parts["m0"], 1.0)
        return psd.run_filter(psd.learn(ssm), [0.2, 0.5, -0.1], throw=False).log_likelihood

    wanted = (log_likelihood(0.3 + 1e-5) - log_likelihood(0.3 - 1e-5)) / 2e-5
    assert float(jax.grad(log_likelihood)(0.3)) == pytest.approx(float(wanted), rel=1e-6)
    assert float(jax.jit(jax.grad(log_likelihood))(0.3)) == pytest.approx(float(wanted), rel=1e-6)
