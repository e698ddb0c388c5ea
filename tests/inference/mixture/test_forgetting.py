"""Errors of earlier steps are forgotten as fast as the filter's gains say."""

import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import norm

import psdfilter as psd
from psdfilter._inference.gaussian.forgetting import conditioned, increased, no_error, transitioned


def kalman(F, Q, H, R, mean, P, ys):
    """The textbook's: means and covariances before and after each observation."""
    for y in ys:
        before, mean = F @ P @ F.T + Q, F @ mean
        gain = before @ H.T @ np.linalg.inv(H @ before @ H.T + R)
        mean, P = mean + gain @ (y - H @ mean), before - gain @ H @ before
        yield before, mean, P


@pytest.mark.long
def test_a_shift_of_the_prior_is_never_larger_than_what_is_carried():
    # a target of which the position is seen: one step forgets nothing of the velocity, many do
    F, Q = np.array([[1.0, 0.5], [0.0, 1.0]]), np.diag([0.01, 0.05])
    H, R = np.array([[1.0, 0.0]]), np.array([[0.04]])
    rng = np.random.default_rng(0)
    ys, P = rng.normal(size=(30, 1)), np.eye(2)
    for shift in rng.normal(size=(5, 2)):
        size = 0.1
        shift = size * shift / np.linalg.norm(shift)
        one = list(kalman(F, Q, H, R, np.zeros(2), P, ys))
        other = list(kalman(F, Q, H, R, shift, P, ys))
        nowhere = jnp.zeros(2)
        carried = increased(no_error((nowhere, jnp.asarray(P))), jnp.asarray(size))
        for (before, mean, after), (_, moved, _) in zip(one, other, strict=True):
            ahead = nowhere, jnp.asarray(before)
            carried = transitioned(carried, jnp.asarray(F) @ carried.root, ahead)
            carried = conditioned(carried, (nowhere, jnp.asarray(after)))
            true = np.linalg.norm(np.linalg.solve(np.linalg.cholesky(after), moved - mean))
            assert true <= float(carried.size) * (1 + 1e-9)
        assert float(carried.size) < 1e-3 * size


def test_errors_add_up_and_stop_at_two():
    carried = no_error((jnp.zeros(3), jnp.eye(3)))
    for _ in range(4):
        carried = increased(carried, jnp.asarray(0.1))
    assert float(carried.size) == pytest.approx(0.2)
    assert float(increased(carried, jnp.asarray(50.0)).size) == 2.0


@pytest.mark.parametrize("y", [0.1, 2.0, 6.0])
def test_likelihoods_of_the_unexpected_are_off_by_more(y):
    """A mean that is off by .01, and an observation at y: log Z against its own formula."""
    shift, noise = 0.01, 0.05
    carried = increased(no_error((jnp.zeros(1), jnp.eye(1))), jnp.asarray(shift))
    off = norm.logpdf(y, shift, np.sqrt(1 + noise)) - norm.logpdf(y, 0.0, np.sqrt(1 + noise))
    estimate = float(carried.likelihood_error(jnp.array([y / (1 + noise)])))
    assert estimate == pytest.approx(abs(off), rel=0.1)


@pytest.mark.slow
def test_estimates_of_a_long_series_do_not_grow_and_steps_that_miss_have_codes():
    ssm = psd.additive_gaussian(
        lambda x: jnp.array([x[0] + 0.1 * x[1], x[1] - 0.3 * jnp.sin(x[0])]),
        lambda x: x[:1],
        [0.02, 0.02],
        [0.1],
        [0.5, 0.0],
        [0.3, 0.3],
    )
    ys = np.sin(0.2 * np.arange(120))[:, None]
    with pytest.warns(psd.ResolutionWarning, match="Mixture"):
        post = psd.run_filter(psd.learn(ssm, 1e-4, engine="mixture"), ys)
    estimates = np.asarray(post.error_estimates)
    assert np.max(estimates[60:]) < 3 * np.max(estimates[:60])
    assert np.array_equal(np.asarray(post.codes) != 0, estimates > 1e-4)
