"""Sensors that sometimes say nothing of the state: a narrow peak on a floor, in closed form."""

import warnings

import jax.numpy as jnp
import numpy as np
import pytest
from jax.scipy.special import gammaln

import psdfilter as psd


def normal(gap, variance):
    return np.exp(-0.5 * gap**2 / variance) / np.sqrt(2 * np.pi * variance)


@pytest.mark.long
@pytest.mark.parametrize("sd", [1e-1, 1e-2, 1e-3])
@pytest.mark.parametrize("boxed", [True, False])
def test_clutter_on_a_line(sd, boxed):
    """Seen with probability 0.7, to `sd`; else anything on an interval of length 20."""

    def log_observation(x, y):
        seen = -0.5 * ((y[0] - x[0]) / sd) ** 2 - jnp.log(sd * np.sqrt(2 * np.pi))
        return jnp.logaddexp(np.log(0.3 / 20), np.log(0.7) + seen)

    if boxed:
        ssm = psd.StateSpaceModel(
            log_prior=lambda x: -0.5 * x[0] ** 2,
            log_transition=lambda u, x: -0.5 * (x[0] - u[0]) ** 2 - 0.5 * np.log(2 * np.pi),
            log_observation=log_observation,
            state_box=psd.Box([-10.0], [10.0]),
        )
    else:
        ssm = psd.linear_gaussian(1.0, 1.0, None, None, 0.0, 1.0, log_observation=log_observation)
    y = 1.234
    post = psd.run_filter(psd.learn(ssm, 1e-3), np.array([y]))
    peak, floor = 0.7 * normal(y, 2 + sd**2), 0.3 / 20
    np.testing.assert_allclose(post.log_likelihood, np.log(peak + floor), atol=1e-3)
    mean = peak / (peak + floor) * y * 2 / (2 + sd**2)
    np.testing.assert_allclose(post.mean[0, 0], mean, atol=2e-3)
    assert float(post.error_estimate) < 1e-3


@pytest.mark.long
@pytest.mark.parametrize("sd", [0.1, 0.03, 0.01])
def test_clutter_in_the_plane_is_right_or_said(sd):
    """A lattice holds a peak of a tenth of the law and its floor; of narrower ones it warns."""
    y = np.array([2.2, 2.4])

    def log_observation(x, y):
        seen = -0.5 * jnp.sum((x - y) ** 2) / sd**2 - jnp.log(2 * np.pi * sd**2)
        return jnp.logaddexp(np.log(0.5) + seen, np.log(0.5 / 400))

    ssm = psd.linear_gaussian(
        0.95 * np.eye(2),
        [0.3, 0.3],
        None,
        None,
        [0.0, 0.0],
        [1.0, 1.0],
        log_observation=log_observation,
    )
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        post = psd.run_filter(psd.learn(ssm, 1e-2), y[None])
    spread = 0.95**2 + 0.3 + sd**2
    exact = np.log(0.5 * np.prod(normal(y, spread)) + 0.5 / 400)
    off = abs(float(post.log_likelihood) - exact)
    warned = any(issubclass(w.category, psd.ResolutionWarning) for w in caught)
    assert off < 1e-2 or warned
    assert off < 1e-2 or float(post.error_estimate) > off / 10
    assert (sd < 0.1) or off < 1e-3


@pytest.mark.long
def test_smoothed_densities_where_the_transition_vanishes():
    """A beta-like transition on (0, 1), zero at both ends: no value is NaN."""

    def log_transition(u, x):
        a = 8 * u[0] + 1.5
        b = 8 * (1 - u[0]) + 1.5
        norm = jnp.asarray(0.0)
        for sign, value in ((1, a), (1, b), (-1, a + b)):
            norm = norm + sign * gammaln(value)
        return (a - 1) * jnp.log(x[0]) + (b - 1) * jnp.log1p(-x[0]) - norm

    ssm = psd.StateSpaceModel(
        log_prior=lambda x: jnp.log(6 * x[0] * (1 - x[0])),
        log_transition=log_transition,
        log_observation=lambda x, y: -0.5 * ((y[0] - x[0]) / 0.1) ** 2,
        state_box=psd.Box([0.0], [1.0]),
    )
    back = psd.run_smoother(psd.learn(ssm, 1e-3), np.array([0.4, 0.6, 0.5]))
    nodes, weights = np.polynomial.legendre.leggauss(200)
    x, w = 0.5 * (nodes + 1), 0.5 * weights
    for t in range(3):
        values = np.asarray(back.density(t)(x[:, None]))
        np.testing.assert_allclose(w @ values, 1.0, atol=1e-2)
        np.testing.assert_allclose(w @ (x * values), back.mean[t, 0], atol=1e-2)
