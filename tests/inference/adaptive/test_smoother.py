"""Smoothed laws that are narrower than filtered ones, against Rauch, Tung and Striebel."""

import jax.numpy as jnp
import numpy as np
import pytest
from helpers import kalman

import psdfilter as psd
from psdfilter._inference.adaptive.tables import Source, values_of


def smoothed(ys, moves, noise, mean, variance):
    """Means and variances; `moves` are (a, q) of x' = a x + N(0, q) before every observation."""
    means, variances, before = [], [], []
    for y, (a, q) in zip(ys, moves, strict=True):
        mean, variance = a * mean, a * a * variance + q
        before.append((mean, variance))
        gain = variance / (variance + noise)
        mean, variance = mean + gain * (y - mean), (1 - gain) * variance
        means.append(mean)
        variances.append(variance)
    for k in range(len(ys) - 2, -1, -1):
        gain = variances[k] * moves[k + 1][0] / before[k + 1][1]
        variances[k] += gain**2 * (variances[k + 1] - before[k + 1][1])
        means[k] += gain * (means[k + 1] - before[k + 1][0])
    return np.array(means), np.array(variances)


def normal(x, mean, variance):
    return np.exp(-0.5 * (x - mean) ** 2 / variance) / np.sqrt(2 * np.pi * variance)


def distances(smooth, means, variances):
    """Total variation to normal laws, as int |f - g|."""
    out = []
    for t, (mean, variance) in enumerate(zip(means, variances, strict=True)):
        x = mean + np.sqrt(variance) * np.linspace(-7, 7, 401)
        gap = np.abs(np.asarray(smooth.density(t)(x[:, None])) - normal(x, mean, variance))
        out.append(gap.sum() * (x[1] - x[0]))
    return np.array(out)


@pytest.mark.long
@pytest.mark.parametrize("noise", [1e-2, 1e-4])
def test_a_state_that_hardly_moves_is_smoothed_as_by_kalman(noise):
    """A law of one time is ten and a hundred times wider than the noise of its transition."""
    ys = np.array([0.3, 0.5, -0.1, 0.2])
    ssm = psd.additive_gaussian(lambda u: u, lambda x: x, noise, 0.25, 0.0, 1.0)
    smooth = psd.run_smoother(psd.learn(ssm, 1e-3), ys)
    means, variances = smoothed(ys, [(1.0, noise)] * 4, 0.25, 0.0, 1.0)
    np.testing.assert_allclose(smooth.mean[:, 0], means, atol=1e-4)
    np.testing.assert_allclose(smooth.covariance[:, 0, 0], variances, rtol=1e-3)
    true = distances(smooth, means, variances)
    assert np.all(true < 1e-3)
    assert np.all(np.asarray(smooth.error_estimates) <= 1e-3)
    assert np.all(true < 10 * np.asarray(smooth.error_estimates) + 1e-6)


@pytest.mark.slow
def test_two_times_that_are_close_are_smoothed_as_by_kalman():
    times = np.array([0.0, 1.5, 1.5001, 6.0])
    ys = np.array([0.2, 0.5, 0.45, 0.1])
    ssm = psd.diffusion(lambda x: -x, lambda x: 1.0, m0=0.0, P0=0.5, h=lambda x: x, R=0.04)
    smooth = psd.run_smoother(psd.learn(ssm, 1e-3), ys, times=times)
    decay = np.exp(-np.diff(times, prepend=0.0))
    moves = [(a, 0.5 * (1 - a * a)) for a in decay]
    means, variances = smoothed(ys, moves, 0.04, 0.0, 0.5)
    np.testing.assert_allclose(smooth.mean[:, 0], means, atol=1e-4)
    np.testing.assert_allclose(smooth.covariance[:, 0, 0], variances, rtol=1e-3)
    assert float(smooth.error_estimate) <= 1e-3


@pytest.mark.long
def test_densities_after_a_long_gap_are_told():
    """Hundreds of transitions before a law are none of its density's business."""
    ssm = psd.diffusion(
        lambda x: -x, lambda x: 1.0, m0=0.0, P0=0.5, h=lambda x: x, R=0.04, step=0.1
    )
    post = psd.run_filter(psd.learn(ssm, 1e-3), [0.2, 0.1], times=[0.0, 150.0])
    x = np.linspace(-1.0, 1.0, 9)
    variance = 0.5 * 0.04 / 0.54
    wanted = normal(x, 0.1 * 0.5 / 0.54, variance)
    np.testing.assert_allclose(post.density(-1)(x[:, None]), wanted, atol=1e-3)


def test_exact_smoothers_state_no_error_and_others_that_they_do_not_know_it():
    ssm = psd.linear_gaussian(0.9, 0.2, 1.0, 0.3, 0.0, 1.0)
    smooth = psd.run_smoother(psd.learn(ssm), [0.1, 0.4])
    assert list(np.asarray(smooth.error_estimates)) == [0.0, 0.0]
    mean, _, _ = kalman(
        np.array([[0.1], [0.4]]), *(np.array([[v]]) for v in (0.9, 0.2, 1.0, 0.3)),
        np.zeros(1), np.eye(1),
    )  # fmt: skip
    assert smooth.mean[-1, 0] == pytest.approx(mean[-1, 0])
    nodes = psd.run_smoother(psd.learn(ssm, 1e-2, engine="nodes"), [0.1, 0.4])
    with pytest.raises(ValueError, match=r"nodes.*does not estimate the errors of smoothed laws"):
        _ = nodes.error_estimates


def test_backward_sums_start_from_what_is_possible():
    """A first block of nodes that no transition reaches counts nothing, and is no NaN."""

    def within(u, x):
        return jnp.where(jnp.abs(x[0] - u[0]) < 0.5, 0.0, -jnp.inf)

    ssm = psd.StateSpaceModel(
        log_prior=lambda x: -0.5 * x[0] ** 2,
        log_transition=within,
        log_observation=lambda x, y: -0.5 * (y[0] - x[0]) ** 2,
        state_box=psd.Box(-8.0, 8.0),
    )
    nodes = np.linspace(-6.0, 6.0, 700)
    masses = np.full(700, 1 / 700)
    values = values_of(ssm)
    source = Source(nodes, np.log(masses), np.ones((4, 700)), None, 1, None)
    out = values.pull(source, nodes, masses)
    assert np.all(np.isfinite(out))
    assert out.sum() == pytest.approx(1.0, abs=1e-12)
