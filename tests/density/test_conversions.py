"""Ways into and out of the families, against SciPy's densities and the defining sums."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import KINDS, definition, make, seeds, slow
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

import psdfilter as psd


@pytest.mark.parametrize("dim", [1, slow(3)])
def test_mixtures_with_shared_variances(dim):
    rng = np.random.default_rng(dim)
    weights, means, variance = (
        rng.dirichlet(np.ones(4)),
        rng.normal(size=(4, dim)),
        0.1 + rng.random(dim),
    )
    f = psd.from_mixture(weights, means, variance)
    assert isinstance(f, psd.GaussianPSD)
    x = rng.normal(size=(6, dim))
    expected = sum(
        w * stats.multivariate_normal(m, np.diag(variance)).pdf(x)
        for w, m in zip(weights, means, strict=True)
    )
    np.testing.assert_allclose(f(x), expected, rtol=1e-11)
    np.testing.assert_allclose(psd.integral(f), 1.0, rtol=1e-12)
    np.testing.assert_allclose(f.precision, 0.25 / variance, rtol=1e-15)


@pytest.mark.long
@pytest.mark.parametrize("dim", [slow(1), 3])
def test_mixtures_with_covariances_of_their_own(dim):
    rng = np.random.default_rng(dim)
    weights, means = rng.dirichlet(np.ones(3)), rng.normal(size=(3, dim))
    roots = rng.normal(size=(3, dim, dim))
    covariances = roots @ np.swapaxes(roots, 1, 2) + 0.2 * np.eye(dim)
    f = psd.from_mixture(weights, means, covariances)
    x = rng.normal(size=(6, dim))
    expected = sum(
        w * stats.multivariate_normal(m, s).pdf(x)
        for w, m, s in zip(weights, means, covariances, strict=True)
    )
    np.testing.assert_allclose(f(x), expected, rtol=1e-10)
    np.testing.assert_allclose(psd.integral(f), 1.0, rtol=1e-11)
    mean, covariance = psd.moments(f)
    np.testing.assert_allclose(mean, weights @ means, atol=1e-11)
    second = np.einsum("k,kij->ij", weights, covariances + np.einsum("ki,kj->kij", means, means))
    np.testing.assert_allclose(covariance, second - np.outer(mean, mean), atol=1e-10)


def test_the_example_with_a_negative_coefficient():
    # (e^{-(x-2)^2} - e^{-(x-3)^2})^2 = e^{-2(x-2)^2} - 2 e^{-1/2} e^{-2(x-5/2)^2} + e^{-2(x-3)^2}
    f = psd.densities.from_linear([[2.0], [3.0]], [1.0, -1.0], 1.0)
    x = np.linspace(0.0, 5.0, 21)
    expected = (np.exp(-((x - 2) ** 2)) - np.exp(-((x - 3) ** 2))) ** 2
    np.testing.assert_allclose(f(x[:, None]), expected, rtol=1e-12, atol=1e-16)
    mixture = psd.densities.to_mixture(f)
    order = np.argsort(mixture.centers[:, 0])
    np.testing.assert_allclose(mixture.centers[order, 0], [2.0, 2.5, 3.0])
    np.testing.assert_allclose(mixture.weights[order], [1.0, -2 * np.exp(-0.5), 1.0], rtol=1e-14)
    np.testing.assert_allclose(mixture.precision, [2.0])


@given(kind=st.sampled_from(KINDS), seed=seeds)
@settings(max_examples=8)
def test_signed_mixtures_are_the_same_function(kind, seed):
    f = make(kind, seed, 2)
    x = np.random.default_rng(seed).uniform(-1, 1, (6, 2))
    weights, centers, precision = (np.asarray(a) for a in psd.densities.to_mixture(f))
    assert weights.size == f.order * (f.order + 1) // 2
    delta = x[:, None, :] - centers[None]
    values = np.exp(-np.einsum("nkd,d->nk", delta**2, precision)) @ weights
    expected = definition(f, x)
    size = np.abs(weights).sum()
    np.testing.assert_allclose(values, expected, rtol=1e-10, atol=1e-13 * size)


def test_squares_of_linear_models():
    rng = np.random.default_rng(0)
    anchors, a, eta = rng.normal(size=(4, 2)), rng.normal(size=4), np.array([1.0, 2.0])
    x = rng.normal(size=(6, 2))
    g = np.exp(-np.einsum("nmd,d->nm", (x[:, None] - anchors[None]) ** 2, eta)) @ a
    np.testing.assert_allclose(psd.densities.from_linear(anchors, a, eta)(x), g**2, rtol=1e-11)
    with pytest.raises(ValueError, match="coefficients must have 1 axes"):
        psd.densities.from_linear(anchors, a[:, None], eta)


@pytest.mark.long
@given(kind=st.sampled_from(KINDS), seed=seeds)
@settings(max_examples=8)
def test_change_of_units_carries_the_jacobian_and_the_moments(kind, seed):
    f = make(kind, seed, 2)
    center, scale = np.array([1.0, -2.0]), np.array([0.5, 3.0])
    g = psd.densities.change_units(f, center, scale)
    assert isinstance(g.anchors, psd.densities.TensorGrid) == isinstance(
        f.anchors, psd.densities.TensorGrid
    )
    z = np.random.default_rng(seed).uniform(-1, 1, (6, 2))
    expected = definition(f, z) / 1.5
    np.testing.assert_allclose(
        g(center + scale * z), expected, rtol=1e-9, atol=1e-12 * expected.max()
    )
    unit = psd.Box([-1.0, -1.0], [1.0, 1.0])
    room = psd.Box(center - scale, center + scale)
    np.testing.assert_allclose(psd.integral(g, room), psd.integral(f, unit), rtol=1e-10)
    back = psd.densities.change_units(g, -center / scale, 1 / scale)
    np.testing.assert_allclose(back(z), f(z), rtol=1e-9, atol=1e-12 * expected.max())


def test_one_number_serves_all_axes():
    f = make("mixture", 0, 2)
    x = np.zeros((1, 2))
    expected = psd.densities.change_units(f, [0.5, 0.5], [2.0, 2.0])(x)
    np.testing.assert_allclose(psd.densities.change_units(f, 0.5, 2.0)(x), expected)


def test_conversions_accept_lists_and_traced_values():
    run = jax.jit(jax.grad(lambda m: psd.from_mixture([1.0], m[None], [0.04])([0.3])))
    expected = stats.norm(0.1, 0.2).pdf(0.3) * 0.2 / 0.04
    np.testing.assert_allclose(run(jnp.array([0.1]))[0], expected, rtol=1e-10)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: psd.from_mixture([0.5, -0.5], [[0.0], [1.0]], [1.0]), "non-negative, got -0.5"),
        (lambda: psd.from_mixture([1.0], [[0.0], [1.0]], [1.0]), r"weights must have shape \(2,\)"),
        (lambda: psd.from_mixture([1.0], [[0.0]], [-1.0]), "covariance must be positive"),
        (lambda: psd.from_mixture([1.0], [[0.0, 0.0]], np.eye(2)), "covariance must have shape"),
        (lambda: psd.from_mixture([1.0], [[0.0]], [[[-1.0]]]), "positive definite"),
        (lambda: psd.densities.to_mixture(make("components", 0, 1)), "f must be a GaussianPSD"),
        (
            lambda: psd.densities.change_units(make("mixture", 0, 1), 0.0, -1.0),
            "scale must be positive",
        ),
        (
            lambda: psd.densities.change_units(make("mixture", 0, 1), [0.0, 1.0], 1.0),
            "center must be",
        ),
        (lambda: psd.densities.change_units(3.0, 0.0, 1.0), "f must be a PSD model, got float"),
        (
            lambda: psd.conditional_gaussian([[1.0]], [[-1.0]]),
            "covariance must be symmetric",
        ),
        (lambda: psd.conditional_gaussian([[1.0]], np.eye(2)), r"covariance must have shape \(1"),
        (lambda: psd.conditional_gaussian([[1.0]], [[1.0]], [0.0, 1.0]), "shift must have shape"),
        (lambda: psd.conditional_gaussian([[1.0]], [[1.0]], damping=-1.0), "damping must be >= 0"),
    ],
)
def test_bad_input_is_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()
