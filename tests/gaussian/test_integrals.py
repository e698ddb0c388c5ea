"""Interval masses and moments against SciPy's tail functions and against quadrature."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import rule
from scipy import special

from psdfilter._gaussian.integrals import (
    erfcx,
    scaled_interval_mass,
    scaled_interval_moments,
)
from psdfilter._gaussian.quadrature import gauss_legendre

mass_fn = jax.jit(scaled_interval_mass)
moments_fn = jax.jit(scaled_interval_moments)


def log_mass_by_log_ndtr(a, b, m, kappa):
    """log int_a^b exp(-kappa (t - m)^2) dt, from log-cdf differences on the nearer side."""
    p, q = np.sqrt(2 * kappa) * (a - m), np.sqrt(2 * kappa) * (b - m)
    p, q = np.where(p + q > 0, -q, p), np.where(p + q > 0, -p, q)
    high, low = special.log_ndtr(q), special.log_ndtr(p)
    return 0.5 * np.log(np.pi / kappa) + high + np.log1p(-np.exp(low - high))


def arrays(*values):
    return tuple(jnp.asarray(v, dtype=float) for v in np.broadcast_arrays(*values))


def log_mass(*arguments):
    mass, exponent = mass_fn(*arrays(*arguments))
    return np.log(np.asarray(mass)) - np.asarray(exponent)


@pytest.mark.long
def test_scaled_erfc_everywhere_and_its_slope():
    # Dense around 26.6, where JAX's own is zero, and around the switch to the asymptotic series.
    t = np.concatenate([np.linspace(0.0, 40.0, 4001), np.linspace(24.9, 26.8, 2001), [1e3, 1e8]])
    np.testing.assert_allclose(jax.jit(erfcx)(t), special.erfcx(t), rtol=4e-15)
    slope = jax.jit(jax.vmap(jax.grad(erfcx)))(t)
    expected = 2 * t * special.erfcx(t) - 2 / np.sqrt(np.pi)
    np.testing.assert_allclose(slope[t < 40], expected[t < 40], rtol=1e-11, atol=1e-14)
    assert np.all(np.asarray(slope) < 0)


@pytest.mark.parametrize("side", [-1.0, 1.0])
@pytest.mark.parametrize("kappa", [0.3, 2.0, 5e3])
def test_mass_from_the_centre_to_a_thousand_standard_deviations(side, kappa):
    sd = 1 / np.sqrt(2 * kappa)
    near = np.array([-3.0, -0.5, 0.0, 0.3, 1, 3, 8, 20, 37, 37.6, 38, 100, 400, 1000]) * sd
    far = near + 2.5 * sd
    a, b = (near, far) if side > 0 else (-far, -near)
    np.testing.assert_allclose(
        log_mass(a, b, 0.0, kappa), log_mass_by_log_ndtr(a, b, 0.0, kappa), rtol=1e-13, atol=1e-12
    )


@pytest.mark.parametrize("distance", [0.0, 0.2, 1.0, 6.0, 30.0, 1000.0])
@pytest.mark.parametrize("width", [1e-1, 3e-2, 1e-4, 1e-8, 1e-12])
def test_narrow_intervals_keep_their_digits(distance, width):
    # A Gauss rule on the interval itself, of exp(s - kappa t^2) = exp(-kappa (t - a)(t + a)).
    a, b, kappa = distance, distance + width, 0.5
    width = b - a  # what the doubles a and b say, not what was asked for
    t, w = np.polynomial.legendre.leggauss(30)
    offset = 0.5 * width * (1 + t)
    expected = 0.5 * width * np.sum(w * np.exp(-kappa * offset * (offset + 2 * a)))
    mass, exponent = mass_fn(*arrays(a, b, 0.0, kappa))
    np.testing.assert_allclose(mass, expected, rtol=2e-12)
    np.testing.assert_allclose(exponent, kappa * a**2, rtol=1e-14)


def test_an_interval_across_the_centre_that_is_nearly_a_point():
    mass, exponent = mass_fn(*arrays(-1e-11, 2e-11, 0.0, 3.0))
    np.testing.assert_allclose(mass, 3e-11, rtol=1e-13)
    assert exponent == 0.0


@pytest.mark.parametrize("at", [-70.0, -1.0, 0.0, 2.0, 70.0])
def test_an_empty_interval_has_no_mass_and_is_not_nan(at):
    mass, exponent = mass_fn(*arrays(at, at, 0.0, 4.0))
    assert mass == 0.0
    assert np.isfinite(exponent)


def test_infinite_bounds():
    inf = np.inf
    a = np.array([-inf, -inf, -inf, 1.0, -4.0, 30.0, -inf])
    b = np.array([inf, 1.0, -4.0, inf, inf, inf, -30.0])
    p, q = np.sqrt(2 * 1.7) * (a - 0.2), np.sqrt(2 * 1.7) * (b - 0.2)
    near_left = np.where(np.isneginf(p), special.log_ndtr(q), special.log_ndtr(-p))
    expected = np.where(np.isinf(p) & np.isinf(q), 0.0, near_left) + 0.5 * np.log(np.pi / 1.7)
    np.testing.assert_allclose(log_mass(a, b, 0.2, 1.7), expected, rtol=1e-13, atol=1e-14)


@pytest.mark.parametrize(
    ("a", "b"), [(-1.0, 0.7), (0.4, 2.0), (-3.0, -2.5), (5.0, 6.0), (-0.1, 0.1), (7.0, 7.01)]
)
def test_moments_equal_quadrature(a, b):
    m, kappa = 0.15, 2.3
    along = rule(a, b, 60)
    t = along.nodes[:, 0]
    j0, j1, j2, s = moments_fn(*arrays(a, b, m, kappa))
    weight = along.weights * np.exp(float(s) - kappa * (t - m) ** 2)
    for k, actual in enumerate((j0, j1, j2)):
        np.testing.assert_allclose(actual, np.sum(weight * (t - m) ** k), rtol=1e-9)


def test_moments_over_half_lines_and_the_line():
    kappa = 0.8
    j0, j1, j2, s = moments_fn(*arrays([-np.inf, 0.0, -np.inf], [np.inf, np.inf, 0.0], 0.0, kappa))
    whole = np.sqrt(np.pi / kappa)
    np.testing.assert_allclose(s, 0.0)
    np.testing.assert_allclose(j0, whole * np.array([1, 0.5, 0.5]), rtol=1e-14)
    np.testing.assert_allclose(j1, np.array([0, 0.5, -0.5]) / kappa, rtol=1e-14)
    np.testing.assert_allclose(j2, j0 / (2 * kappa), rtol=1e-14)


def log_mass_at(theta, bounds):
    """log mass in (lower, upper, center, kappa), where lower and upper move only if finite."""
    low = jnp.where(jnp.isfinite(bounds[0]), theta[0], bounds[0])
    high = jnp.where(jnp.isfinite(bounds[1]), theta[1], bounds[1])
    mass, exponent = scaled_interval_mass(low, high, theta[2], theta[3])
    return jnp.log(mass) - exponent


value_fn, gradient_fn = jax.jit(log_mass_at), jax.jit(jax.grad(log_mass_at))


@pytest.mark.parametrize(
    ("a", "b"),
    [(-1.0, 0.7), (0.4, 2.0), (-9.0, -8.5), (40.0, 41.0), (0.3, 0.30001), (-1e-7, 1e-7),
     (-np.inf, 0.3), (2.0, np.inf), (-np.inf, np.inf), (300.0, np.inf)],
)  # fmt: skip
def test_gradients_are_finite_and_match_finite_differences(a, b):
    bounds = np.array([a, b])
    theta = np.array([a if np.isfinite(a) else 0.0, b if np.isfinite(b) else 0.0, 0.1, 1.3])
    gradient = np.asarray(gradient_fn(theta, bounds))
    assert np.all(np.isfinite(gradient))
    width = min(1.0, b - a)
    step = 1e-4 * np.array([width, width, min(1.0, 1e2 * width), 1.0])
    numeric = [
        (value_fn(theta + e, bounds) - value_fn(theta - e, bounds)) / (2 * max(e))
        for e in np.diag(step)
    ]
    np.testing.assert_allclose(gradient, numeric, rtol=1e-5, atol=1e-5)


@pytest.mark.long
def test_moment_gradients_are_finite_with_infinite_bounds():
    def value(theta):
        parts = scaled_interval_moments(jnp.asarray(-jnp.inf), theta[0], theta[1], theta[2])
        return parts[0] + parts[1] + parts[2] + parts[3]

    gradient = jax.jit(jax.grad(value))(jnp.array([0.4, 0.1, 1.3]))
    assert np.all(np.isfinite(gradient))


@pytest.mark.long
def test_rules_of_many_nodes_are_made_of_panels():
    for num in (5, 64, 65, 700):
        nodes, weights = gauss_legendre(jnp.array([-1.0]), jnp.array([3.0]), [num])
        assert num <= nodes.shape[0] <= num + num // 64 + 1
        assert np.all(np.asarray(weights) > 0)
        assert np.all(np.diff(np.asarray(nodes)[:, 0]) > 0)
        np.testing.assert_allclose(
            weights @ jnp.exp(nodes[:, 0]), np.exp(3) - np.exp(-1), rtol=1e-6 if num == 5 else 1e-13
        )
