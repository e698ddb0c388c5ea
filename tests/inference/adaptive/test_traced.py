"""Series under jit and vmap: a fixed plan, whose steps say when they miss."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import psdfilter as psd


def kalman(ys, rate, noise, sensor):
    """The textbook's log-likelihood."""
    mean, variance, total = 0.0, 1.0, 0.0
    for y in ys:
        mean, variance = rate * mean, rate**2 * variance + noise
        spread = variance + sensor
        total -= 0.5 * (np.log(2 * np.pi * spread) + (y - mean) ** 2 / spread)
        mean, variance = mean + variance / spread * (y - mean), variance * sensor / spread
    return total


@pytest.mark.slow
def test_an_outlier_has_a_code_and_ordinary_series_have_none():
    rng = np.random.default_rng(0)
    x, ys = 0.0, []
    for _ in range(40):
        x = 0.9 * x + 0.3 * rng.normal()
        ys.append(x + 0.2 * rng.normal())
    plain = np.array(ys)
    outlying = plain.copy()
    outlying[20] += 3.0
    ssm = psd.additive_gaussian(
        lambda x: 0.9 * x, lambda x: x, 0.09 * np.eye(1), 0.04 * np.eye(1), np.zeros(1), np.eye(1)
    )
    model = psd.learn(ssm, 1e-3)

    def filtered(y):
        post = psd.run_filter(model, y)
        return post.log_likelihood, post.codes

    logs, codes = jax.jit(jax.vmap(filtered))(jnp.stack([plain, outlying])[:, :, None])
    assert abs(float(logs[0]) - kalman(plain, 0.9, 0.09, 0.04)) < 1e-3
    assert not np.any(np.asarray(codes[0]))
    # wrong, and said to be
    assert abs(float(logs[1]) - kalman(outlying, 0.9, 0.09, 0.04)) > 1.0
    assert int(codes[1][20]) != 0
