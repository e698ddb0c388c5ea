"""Single steps of the adaptive engine: against a dense grid, and against whole series."""

import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from scipy.special import logsumexp

import psdfilter as psd
from psdfilter._inference.adaptive import backtrack

TOL, NOISE, SENSOR = 1e-3, 0.2, 0.1
# What an observation after one transition varies by, about.
SPREAD = float(np.hypot(NOISE, SENSOR))
GRID = np.linspace(-16.0, 16.0, 2401)
SPACING = GRID[1] - GRID[0]


@pytest.fixture(scope="module")
def model():
    ssm = psd.additive_gaussian(
        lambda u: 0.9 * u + 0.3 * jnp.sin(u), lambda x: x, NOISE**2, SENSOR**2, 0.0, 1.0
    )
    return psd.learn(ssm, TOL)


def _log_normal(r, sd):
    return -0.5 * np.square(r / sd) - np.log(sd) - 0.5 * np.log(2 * np.pi)


def dense(times, ys):
    """Densities on the grid after each row, and log Z; in logarithms, 50 deviations out."""
    table = _log_normal(GRID[None, :] - (0.9 * GRID + 0.3 * np.sin(GRID))[:, None], NOISE)
    logs, at, out, log_z = _log_normal(GRID, 1.0), 0, [], []
    for time, y in zip(times, ys, strict=True):
        for _ in range(time - at):
            logs = logsumexp(logs[:, None] + table, axis=0) + np.log(SPACING)
        at, logs = time, logs + _log_normal(y - GRID, SENSOR)
        log_z.append(logsumexp(logs) + np.log(SPACING))
        logs = logs - log_z[-1]
        out.append(np.exp(logs))
    return np.array(out), np.array(log_z)


def online(model, times, ys, state=None, at=0):
    """The states after each row, one prediction at a time."""
    state, out = psd.init(model) if state is None else state, []
    for time, y in zip(times, ys, strict=True):
        for _ in range(time - at):
            state = psd.predict(model, state)
        state, at = psd.update(model, state, y), time
        out.append(state)
    return out


def assert_same(model, state, post):
    np.testing.assert_allclose(state.log_likelihood, post.log_likelihood, rtol=1e-10, atol=1e-10)
    mean, covariance = state.moments(model)
    np.testing.assert_allclose(mean, post.mean[-1], rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(covariance, post.covariance[-1], rtol=1e-9, atol=1e-9)
    points = (mean + np.linspace(-3, 3, 7) * np.sqrt(covariance[0, 0]))[:, None]
    # Lattices drop nodes of 1e-4 of a step's error: where one starts decides which.
    np.testing.assert_allclose(
        state.density(model)(points), post.density(-1)(points), rtol=1e-8, atol=1e-8
    )
    # What a lattice has dropped is known within a series, and bounded where a step starts anew.
    np.testing.assert_allclose(state.error, post.error_estimates[-1], rtol=1e-8, atol=1e-2 * TOL)


CASES = {
    "outliers": ([1, 2, 3, 4, 5, 6], [0.1, 0.0, -0.1, 0.05, 4.0, 4.1]),
    "there and back": ([1, 2, 3, 4, 5, 6], [0.1, 0.0, 3.0, -3.0, 0.0, 0.1]),
    "gap": ([1, 2, 7, 8], [0.1, 0.0, 6.0, 6.0]),
    "second sensor": ([1, 2, 3, 3, 4], [0.1, 0.0, 0.0, 3.0, 3.0]),
    "gap after the prior": ([0, 2], [-0.131, 3.608]),
    "sensors of the prior": ([0, 0, 1, 1, 3, 3], [0.1, 0.2, 2.0, 4.0, -1.0, -1.1]),
}


@pytest.mark.long
@pytest.mark.parametrize("deviations", [5, 10, pytest.param(50, marks=pytest.mark.slow)])
def test_outliers_are_followed_one_observation_at_a_time(model, deviations):
    far = deviations * SPREAD
    times, ys = range(1, 7), [0.1, 0.0, -0.1, 0.05, far, far + 0.1]
    truth, log_z = dense(times, ys)
    for k, state in enumerate(online(model, times, ys)):
        found = np.asarray(state.density(model)(GRID[:, None]))
        assert np.sum(np.abs(found - truth[k])) * SPACING < TOL
        assert abs(float(state.log_likelihood) - np.sum(log_z[: k + 1])) < TOL
        assert int(state.code) == 0


LONG = {"there and back", "gap", "sensors of the prior"}


@pytest.mark.long
@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=pytest.mark.slow if n in LONG else []) for n in CASES]
)
def test_single_steps_are_the_whole_series(model, name):
    times, ys = CASES[name]
    truth, log_z = dense(times, ys)
    post = psd.run_filter(model, np.array(ys), times=times)
    states = online(model, times, ys)
    assert_same(model, states[-1], post)
    for k, state in enumerate(states):
        for found in (state.density(model), post.density(k)):
            gap = np.abs(np.asarray(found(GRID[:, None])) - truth[k])
            assert np.sum(gap) * SPACING < TOL
    np.testing.assert_allclose(post.log_likelihoods, log_z, atol=TOL)


_rows = st.lists(
    st.tuples(
        st.integers(0, 3),
        st.floats(-1.0, 1.0),
        st.sampled_from([0.0, 0.0, 0.0, -2.0, 3.0, 8.0]),
    ),
    min_size=2,
    max_size=7,
)


@pytest.mark.slow
@settings(max_examples=5, deadline=None, derandomize=True, phases=[Phase.generate])
@given(rows=_rows)
def test_single_steps_are_random_series(model, rows):
    hops, small, far = (np.array(part) for part in zip(*rows, strict=True))
    times, ys = np.cumsum(hops), small + far
    post = psd.run_filter(model, ys, times=times)
    assert_same(model, online(model, times, ys)[-1], post)


@pytest.mark.slow
def test_a_state_that_was_saved_still_goes_back(model, tmp_path):
    straight = online(model, *CASES["outliers"])[-1]
    first = online(model, [1, 2, 3, 4], CASES["outliers"][1][:4])[-1]
    for k, state in enumerate([first, psd.predict(model, first)]):
        psd.save(tmp_path / f"state{k}", state)
        back = psd.load(tmp_path / f"state{k}")
        again = online(model, [5, 6], CASES["outliers"][1][4:], back, at=4 + k)[-1]
        np.testing.assert_array_equal(again.log_likelihood, straight.log_likelihood)
        np.testing.assert_array_equal(again.moments(model)[0], straight.moments(model)[0])
        np.testing.assert_array_equal(again.law.law.log_masses, straight.law.law.log_masses)


@pytest.mark.slow
def test_a_state_does_not_grow(model):
    rng = np.random.default_rng(3)
    ys = 0.2 * rng.standard_normal(70)
    ys[68] = 4.0
    states = online(model, range(1, 71), ys)
    assert len(states[-1].law.kept.outcomes) == len(states[-1].law.kept.steps) == backtrack.DEPTH
    sizes = [sum(np.size(leaf) for leaf in jax.tree.leaves(states[k])) for k in (63, 67)]
    assert sizes[1] <= 1.01 * sizes[0]
    post = psd.run_filter(model, ys)
    np.testing.assert_allclose(states[-1].log_likelihood, post.log_likelihood, atol=1e-8)
    np.testing.assert_allclose(states[-1].moments(model)[0], post.mean[-1], atol=1e-8)


@pytest.mark.long
def test_what_misses_is_said_once_for_each_stretch(model, monkeypatch):
    monkeypatch.setattr(backtrack, "_WIDER", 1)  # no way back
    ys = [0.1, 0.0, 4.0, 4.0, 3.6, 3.5, 3.4, 3.3, 0.0, 0.1]
    state, told, errors = psd.init(model), [], []
    for y in ys:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            state = psd.update(model, psd.predict(model, state), y)
        told.append([one.category for one in caught])
        errors.append(float(state.error))
    bad = [not error <= TOL for error in errors]
    starts = [now and not before for before, now in zip([False, *bad[:-1]], bad, strict=True)]
    assert starts[2]
    assert [bool(one) for one in told] == starts
    assert all(one in ([], [psd.ResolutionWarning]) for one in told)
    assert int(state.code) == 3


@pytest.mark.slow
def test_inputs_of_the_sensor_may_differ_from_those_of_the_transition():
    ssm = psd.StateSpaceModel(
        lambda x: -0.5 * x[0] ** 2 - 0.5 * np.log(2 * np.pi),
        lambda u, x, *, inputs: (
            -0.5 * ((x[0] - u[0] - inputs[0]) / 0.2) ** 2 - np.log(0.2 * np.sqrt(2 * np.pi))
        ),
        lambda x, y, *, inputs: (
            -0.5 * ((y[0] - x[0] - inputs[0]) / 0.1) ** 2 - np.log(0.1 * np.sqrt(2 * np.pi))
        ),
        state_box=psd.Box([-9.0], [9.0]),
    )
    learned = psd.learn(ssm, TOL, inputs=np.zeros((1, 1)))
    mean, variance, log_z, state = 0.0, 1.0, 0.0, psd.init(learned)
    # The last rows are alike for both, then of the sensor only, then outliers.
    for push, shift, y in [(0.3, 0.3, 0.7), (0.1, 0.5, 1.1), (-0.2, 0.4, 4.0), (0.1, 0.1, 3.5)]:
        state = psd.predict(learned, state, inputs=np.array([push]))
        state = psd.update(learned, state, y, inputs=np.array([shift]))
        mean, variance = mean + push, variance + 0.04
        residual, total = y - shift - mean, variance + 0.01
        log_z -= 0.5 * (residual**2 / total + np.log(2 * np.pi * total))
        mean, variance = mean + variance / total * residual, variance * 0.01 / total
        np.testing.assert_allclose(state.moments(learned)[0], mean, atol=1e-5)
        np.testing.assert_allclose(state.log_likelihood, log_z, atol=TOL)
    assert int(state.code) == 0
