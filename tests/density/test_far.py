"""Generalised models far from zero: every operation gives what it gives at zero.

Canonical parameters of N(5e6, 0.1^2) are 1e15: they are measured from an origin amid the mass.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import psdfilter as psd
from psdfilter import densities

assert_close = np.testing.assert_allclose
# Coordinates of a map in metres, and deviations of centimetres: five digits are left below them.
FAR = np.array([5e6, -3e5])
MEANS = np.array([[-0.1, 0.05], [0.2, -0.1], [0.0, 0.15]])
COVARIANCES = np.array(
    [[[0.01, 0.004], [0.004, 0.02]], [[0.02, 0.0], [0.0, 0.01]], [[0.015, -0.005], [-0.005, 0.01]]]
)


def mixture(shift):
    return psd.from_mixture([0.3, 0.5, 0.2], MEANS + shift[None, :], COVARIANCES)


def interfering(shift):
    factor = [[1.0, 0.2], [-0.6, 0.5], [0.3, -0.4]]
    return psd.GeneralizedGaussianPSD.from_centers(
        MEANS + shift, factor, np.linalg.inv(COVARIANCES) / 4
    )


def shared(shift):
    return psd.generalize(psd.GaussianPSD(MEANS + shift, [1.0, -0.7, 0.4], [20.0, 30.0]))


def joint(shift):
    """Two coordinates left of four, one pair at a time."""
    wide = np.concatenate([MEANS + shift, MEANS[:, ::-1] - shift], axis=1)
    precision = np.stack([np.eye(4) * s + 3.0 for s in (20.0, 30.0, 25.0)])
    f = psd.GeneralizedGaussianPSD.from_centers(wide, [1.0, -0.3, 0.5], precision)
    return psd.marginal(f, (0, 1))


def blocks(shift):
    """Order one, out of the laws of a Kalman filter."""
    ssm = psd.linear_gaussian(np.eye(2), 0.01 * np.eye(2), np.eye(2), 0.02, shift, 0.02 * np.eye(2))
    post = psd.run_filter(psd.learn(ssm, tol=1e-6), MEANS + shift)
    return psd.generalize(post.density(2))


MODELS = [mixture, interfering, shared, joint, blocks]
POINTS = np.random.default_rng(0).normal(0.0, 0.15, (7, 2))
# Points near 5e6 are known to 1e-9, which is 1e-8 of a deviation.
RTOL = 1e-6


@pytest.mark.parametrize("make", MODELS)
def test_values_masses_and_moments(make):
    near, far = make(np.zeros(2)), make(FAR)
    assert_close(far(POINTS + FAR), near(POINTS), rtol=RTOL)
    assert_close(psd.integral(far), psd.integral(near), rtol=RTOL)
    mean, covariance = psd.moments(far)
    expected, spread = psd.moments(near)
    assert_close(mean - FAR, expected, atol=1e-8)
    assert_close(covariance, spread, rtol=RTOL, atol=1e-9)


@pytest.mark.parametrize("make", MODELS)
def test_slices_margins_and_products(make):
    near, far = make(np.zeros(2)), make(FAR)
    x = POINTS[:, :1]
    assert_close(
        psd.partial(far, 1, FAR[1] + 0.1)(x + FAR[0]), psd.partial(near, 1, 0.1)(x), rtol=RTOL
    )
    assert_close(psd.marginal(far, 0)(x + FAR[0]), psd.marginal(near, 0)(x), rtol=RTOL)
    for one, two in ((mixture, make), (make, mixture)):
        here = psd.product(one(np.zeros(2)), two(np.zeros(2)))
        there = psd.product(one(FAR), two(FAR))
        assert_close(there(POINTS + FAR), here(POINTS), rtol=RTOL)
    crossed = psd.product(far, mixture(FAR[::-1]), (0, 1), (1, 2))
    expected = psd.product(near, mixture(np.zeros(2)), (0, 1), (1, 2))
    z = np.concatenate([POINTS, POINTS[:, :1]], axis=1)
    assert_close(crossed(z + FAR[[0, 1, 0]]), expected(z), rtol=RTOL)


@pytest.mark.long
@pytest.mark.parametrize("make", [mixture, interfering, blocks])
def test_distributions_distances_and_draws(make):
    near, far = psd.normalize(make(np.zeros(2))), psd.normalize(make(FAR))
    assert_close(psd.cdf(far, 0, FAR[0] + 0.05), psd.cdf(near, 0, 0.05), rtol=RTOL)
    assert_close(psd.quantile(far, 0, 0.9) - FAR[0], psd.quantile(near, 0, 0.9), atol=1e-7)
    other = psd.normalize(mixture(FAR + 0.05)), psd.normalize(mixture(np.full(2, 0.05)))
    distance = psd.total_variation(far, other[0]), psd.total_variation(near, other[1])
    assert_close(distance[0], distance[1], rtol=1e-5)
    drawn = psd.sample(far, key=jax.random.key(0), num=50)
    assert_close(
        np.asarray(drawn) - FAR, psd.sample(near, key=jax.random.key(0), num=50), atol=1e-6
    )
    small = psd.compress(far, rank=1)
    assert_close(small(POINTS + FAR), psd.compress(near, rank=1)(POINTS), rtol=1e-5, atol=1e-9)
    assert len(densities.modes(far)) == len(densities.modes(near))


def test_a_filter_step_is_the_kalman_step():
    """Conditional densities have no place of their own: they are moved to that of the law."""
    c, Q = FAR[0], psd.conditional_gaussian([[1.1]], [[0.01]], [3.0])
    G = psd.conditional_gaussian([[2.0]], [[0.02]])
    p = psd.from_mixture([1.0], [[c]], [[[0.01]]])
    m, P, y = 1.1 * c + 3.0, 1.21 * 0.01 + 0.01, 2.0 * (1.1 * c + 3.0) + 0.1
    post, log_Z = psd.filter_step(Q, G, p, y)
    assert_close(log_Z, stats.norm.logpdf(0.1, 0.0, np.sqrt(4 * P + 0.02)), rtol=1e-6)
    gain = 2 * P / (4 * P + 0.02)
    mean, variance = psd.moments(post)
    assert_close(mean[0] - m, gain * 0.1, atol=1e-8)
    assert_close(variance[0, 0], (1 - 2 * gain) * P, rtol=1e-7)
    assert_close(psd.integral(post), 1.0, rtol=1e-8)


def test_derivatives_do_not_notice_the_origin():
    def value(shift, x):
        f = psd.product(mixture(jnp.asarray(FAR) + shift), mixture(FAR))
        return jnp.log(psd.partial(f, 1, FAR[1] + x)([FAR[0] + 0.1]))

    def plain(shift, x):
        f = psd.product(mixture(shift), mixture(np.zeros(2)))
        return jnp.log(psd.partial(f, 1, x)([0.1]))

    for k in range(2):
        at = jnp.asarray([0.02, -0.03]), jnp.asarray(0.04)
        assert_close(jax.grad(value, k)(*at), jax.grad(plain, k)(*at), rtol=1e-5)
    slope = jax.grad(lambda b: psd.conditional_gaussian([[1.0]], [[0.1]], b)([0.2, 0.5]))
    b = jnp.asarray([0.3])
    gap = 0.5 - 0.2 - 0.3
    expected = stats.norm.pdf(gap, 0.0, np.sqrt(0.1)) * gap / 0.1
    assert_close(slope(b), [expected], atol=1e-12)


def test_derivatives_of_units():
    def value(center):
        return densities.change_units(mixture(np.zeros(2)), center, 2.0)([0.1, 0.2])

    step = jnp.asarray([1e-6, 0.0])
    slope = (value(step) - value(-step)) / 2e-6
    assert_close(jax.grad(value)(jnp.zeros(2))[0], slope, rtol=1e-6)


def test_parameters_that_have_lost_their_digits_are_refused():
    """Written about zero by the user, they cannot say more than double precision does."""
    P, c = 100.0, 5e6
    f = psd.GeneralizedGaussianPSD([1.0], [[P]], [[P * c]], [-P * c * c])
    with pytest.raises(ValueError, match="digit"):
        psd.integral(f)
    g = psd.GeneralizedGaussianPSD([1.0], [[P]], [[0.0]], [0.0], origin=[c])
    assert_close(psd.integral(g), np.sqrt(np.pi / (2 * P)), rtol=1e-13)
