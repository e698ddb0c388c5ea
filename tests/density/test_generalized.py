"""Generalised models against quadrature, and against the diagonal family after conversion."""

import jax.numpy as jnp
import numpy as np
import pytest
from helpers import GENERALIZED, box_of, box_rule, definition, make, seeds, slow, wide_rule
from hypothesis import given, settings
from hypothesis import strategies as st

import psdfilter as psd

kinds = st.sampled_from(sorted(GENERALIZED))


def assert_close(actual, expected, rtol=1e-9):
    size = float(np.max(np.abs(np.asarray(expected))))
    np.testing.assert_allclose(actual, expected, rtol=rtol, atol=rtol * size)


@pytest.mark.long
@pytest.mark.parametrize("dim", [slow(1), 2, slow(3), slow(4)])
@given(kind=kinds, seed=seeds)
@settings(max_examples=8)
def test_evaluation_and_integral(dim, kind, seed):
    f = make(kind, seed, dim)
    x = np.random.default_rng(seed).uniform(-1.5, 1.5, (6, dim))
    assert_close(f(x), definition(f, x), 1e-11)
    assert np.all(np.asarray(f(x)) >= 0)
    if dim < 4:
        whole = wide_rule(dim)
        assert_close(psd.integral(f), whole.weights @ definition(f, whole.nodes))


@pytest.mark.slow
@given(kind=kinds, seed=seeds)
@settings(max_examples=8)
def test_integral_in_four_dimensions_through_its_marginals(kind, seed):
    f = make(kind, seed, 4)
    line = psd.marginal(f, 2)
    whole = wide_rule(1)
    assert_close(whole.weights @ np.asarray(line(whole.nodes)), psd.integral(f))


@pytest.mark.long
@pytest.mark.parametrize("dim", [2, pytest.param(3, marks=pytest.mark.slow)])
@given(kind=kinds, seed=seeds)
@settings(max_examples=10)
def test_partial_and_marginal(dim, kind, seed):
    f = make(kind, seed, dim)
    rng = np.random.default_rng(seed)
    axis = int(rng.integers(dim))
    rest = [a for a in range(dim) if a != axis]
    whole = wide_rule(dim - 1)
    nodes = np.empty((whole.weights.size, dim))
    nodes[:, rest], nodes[:, axis] = whole.nodes, 0.3
    values = definition(f, nodes)
    slice_ = psd.partial(f, axis, 0.3)
    assert_close(slice_(whole.nodes[::97]), values[::97], 1e-10)
    assert_close(psd.marginal(f, axis)(0.3), whole.weights @ values)
    assert_close(psd.integral(slice_), whole.weights @ values)


PARTNERS = [
    ("components", "full_mixture"),
    ("shared_precision", "from_diagonal"),
    ("components", "shared_precision"),
    ("pairs", "components"),
]


@pytest.mark.parametrize("axes", [((0, 1), (1, 2)), slow(((1, 0), (2, 1)))])
@pytest.mark.parametrize("kinds_of", [*map(slow, PARTNERS[:3]), PARTNERS[3]])
@given(seed=seeds)
@settings(max_examples=4)
def test_product(axes, kinds_of, seed):
    f_axes, g_axes = axes
    f, g = make(kinds_of[0], seed, 2), make(kinds_of[1], seed + 1, 2)
    x = np.random.default_rng(seed).uniform(-1, 1, (6, len(set(f_axes) | set(g_axes))))
    expected = definition(f, x[:, list(f_axes)]) * definition(g, x[:, list(g_axes)])
    assert_close(psd.product(f, g, f_axes, g_axes)(x), expected, 1e-10)


@pytest.mark.parametrize("dim", [slow(1), 2, slow(3)])
@given(kind=kinds, seed=seeds)
@settings(max_examples=8)
def test_moments(dim, kind, seed):
    f = make(kind, seed, dim)
    whole = wide_rule(dim)
    p = whole.weights * definition(f, whole.nodes)
    p = p / p.sum()
    mean = p @ whole.nodes
    covariance = (whole.nodes - mean).T @ (p[:, None] * (whole.nodes - mean))
    got_mean, got_covariance = psd.moments(f)
    np.testing.assert_allclose(got_mean, mean, atol=1e-9)
    np.testing.assert_allclose(got_covariance, covariance, atol=1e-9)


@pytest.mark.long
@pytest.mark.parametrize("dim", [slow(1), 2, slow(3), slow(4)])
@given(seed=seeds)
@settings(max_examples=4)
def test_converted_diagonal_models_agree_in_every_operation(dim, seed):
    f, g = make("scattered_full", seed, dim), make("scattered_rank_one", seed + 1, dim)
    F = psd.generalize(f)
    x = np.random.default_rng(seed).uniform(-1, 1, (6, dim))
    assert_close(F(x), f(x), 1e-11)
    assert_close(psd.integral(F), psd.integral(f), 1e-11)
    assert_close(psd.product(F, g)(x), psd.product(f, g)(x), 1e-10)
    if dim in (1, 2):
        assert_close(psd.integral(F, box_of(dim)), psd.integral(f, box_of(dim)), 1e-10)
    if dim in (2, 4):
        for got, expected in zip(psd.moments(F), psd.moments(f), strict=True):
            np.testing.assert_allclose(got, expected, atol=1e-10)
    if dim > 1:
        marginal = psd.marginal(F, 0)
        assert isinstance(marginal, psd.GeneralizedGaussianPSD)  # shared precision stays closed
        assert_close(marginal(x[:, :1]), psd.marginal(f, 0)(x[:, :1]), 1e-10)
        sliced = psd.partial(F, 1, 0.2)
        assert_close(sliced(x[:, 1:]), psd.partial(f, 1, 0.2)(x[:, 1:]), 1e-10)


def test_box_integrals_of_coupled_precisions_are_refused():
    f = make("components", 0, 2)
    with pytest.raises(ValueError, match="couples its axes"):
        psd.integral(f, box_of(2))
    inside = box_rule(2)
    g = make("from_diagonal", 0, 2)
    assert_close(psd.integral(g, box_of(2)), inside.weights @ definition(g, inside.nodes))


@pytest.mark.long
@given(seed=seeds, damping=st.sampled_from([0.0, 1e-3, 0.1]))
def test_conditional_gaussian_is_the_density_times_its_damping(seed, damping):
    rng = np.random.default_rng(seed)
    F, b = rng.normal(size=(2, 3)), rng.normal(size=2)
    root = rng.normal(size=(2, 2)) + 2 * np.eye(2)
    S = root @ root.T
    f = psd.conditional_gaussian(F, S, b, damping=damping)
    u = rng.normal(size=(6, 5))
    gap = u[:, 3:] - u[:, :3] @ F.T - b
    quad = np.einsum("ni,ij,nj->n", gap, np.linalg.inv(S), gap)
    log_density = -0.5 * quad - 0.5 * np.log(np.linalg.det(2 * np.pi * S))
    expected = np.exp(log_density - damping * np.sum(u**2, axis=1))
    assert_close(f(u), expected, 1e-11)
    assert f.order == 1
    if damping == 0.0:
        with pytest.raises(ValueError, match="no finite integral"):
            psd.integral(f)


@pytest.mark.parametrize(
    "call", [psd.integral, slow(psd.moments), slow(lambda g: psd.quantile(g, 0, 0.5))]
)
def test_a_precision_that_is_singular_up_to_rounding_has_no_integral(call):
    # Cholesky accepts this one: its last pivot is 1e-17 instead of zero.
    f = psd.conditional_gaussian([[1.0]], [[1.0]])
    with pytest.raises(ValueError, match=r"finite|not positive definite"):
        call(f)
    damped = psd.conditional_gaussian([[1.0]], [[1.0]], damping=1e-12)
    assert np.isfinite(psd.log_integral(damped))


def kalman_step(mean, covariance, F, W, H, R, y):
    """The textbook step, predict then update."""
    mean, covariance = F @ mean, F @ covariance @ F.T + W
    S = H @ covariance @ H.T + R
    gain = covariance @ H.T @ np.linalg.inv(S)
    gap = y - H @ mean
    log_mass = -0.5 * (gap @ np.linalg.inv(S) @ gap + np.log(np.linalg.det(2 * np.pi * S)))
    return mean + gain @ gap, covariance - gain @ H @ covariance, log_mass


@pytest.mark.long
@pytest.mark.parametrize("dim", [2, slow(3)])
def test_filter_step_is_the_kalman_step_without_damping(dim):
    rng = np.random.default_rng(dim)
    F, H = 0.5 * rng.normal(size=(dim, dim)), rng.normal(size=(1, dim))
    W, R = np.diag(rng.uniform(0.2, 1.0, dim)), np.array([[0.3]])
    Q, G = psd.conditional_gaussian(F, W), psd.conditional_gaussian(H, R)
    mean, covariance = rng.normal(size=dim), np.eye(dim)
    state = psd.from_mixture([1.0], mean[None], covariance[None])
    total, expected_total = 0.0, 0.0
    for y in rng.normal(size=10):
        state, log_mass = psd.filter_step(Q, G, state, [y])
        mean, covariance, expected = kalman_step(mean, covariance, F, W, H, R, np.array([y]))
        total, expected_total = total + float(log_mass), expected_total + expected
        got_mean, got_covariance = psd.moments(state)
        np.testing.assert_allclose(got_mean, mean, atol=1e-11)
        np.testing.assert_allclose(got_covariance, covariance, atol=1e-11)
        assert state.order == 1
    np.testing.assert_allclose(total, expected_total, rtol=1e-12)


@pytest.mark.slow
def test_a_multimodal_prior_keeps_its_order_and_is_a_mixture_of_kalman_filters():
    F, W, H, R = np.array([[0.9]]), np.array([[0.2]]), np.array([[1.0]]), np.array([[0.5]])
    means, weights = np.array([[-2.0], [0.5], [2.0]]), np.array([0.3, 0.3, 0.4])
    prior = psd.from_mixture(weights, means, np.full((3, 1, 1), 0.4))
    posterior, log_mass = psd.filter_step(
        psd.conditional_gaussian(F, W), psd.conditional_gaussian(H, R), prior, [0.7]
    )
    steps = [kalman_step(m, np.array([[0.4]]), F, W, H, R, np.array([0.7])) for m in means]
    shares = weights * np.exp([s[2] for s in steps])
    np.testing.assert_allclose(np.exp(log_mass), shares.sum(), rtol=1e-12)
    x = np.linspace(-3, 3, 7)
    expected = sum(
        w * np.exp(-((x - s[0][0]) ** 2) / (2 * s[1][0, 0])) / np.sqrt(2 * np.pi * s[1][0, 0])
        for w, s in zip(shares / shares.sum(), steps, strict=True)
    )
    np.testing.assert_allclose(posterior(x[:, None]), expected, rtol=1e-10)
    assert posterior.order == 3


@pytest.mark.slow
def test_filter_step_of_two_families_agrees_with_quadrature():
    rng = np.random.default_rng(0)
    Q, G, f = make("components", 1, 2), make("components", 2, 2), make("pairs", 3, 1)
    posterior, log_mass = psd.filter_step(Q, G, f, [0.2])
    whole = wide_rule(1)
    x = rng.uniform(-1, 1, 5)
    predicted = [
        whole.weights
        @ (
            definition(Q, np.column_stack([whole.nodes[:, 0], np.full(whole.weights.size, xi)]))
            * definition(f, whole.nodes)
        )
        for xi in x
    ]
    expected = predicted * definition(G, np.column_stack([x, np.full(5, 0.2)]))
    assert_close(np.asarray(posterior(x[:, None])) * np.exp(float(log_mass)), expected)
    assert posterior.order == Q.order * f.order * G.order


@pytest.mark.long
def test_pairs_that_do_not_give_a_psd_kernel_are_refused():
    centers = np.zeros((2, 2, 1))
    good = np.array([[[[2.0]], [[2.0]]], [[[2.0]], [[2.0]]]])
    bad = np.array([[[[2.0]], [[0.5]]], [[[0.5]], [[2.0]]]])
    kept = psd.densities.PairwiseGaussianPSD.from_pairs(np.eye(2), centers, good, np.zeros((2, 2)))
    np.testing.assert_allclose(kept([[0.5]]), 2 * np.exp(-0.5), rtol=1e-12)
    with pytest.raises(ValueError, match=r"B\(x\) positive semidefinite .* smallest eigenvalue"):
        psd.densities.PairwiseGaussianPSD.from_pairs(np.eye(2), centers, bad, np.zeros((2, 2)))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([1.0], np.eye(2), [[0.0, 0.0]], [0.0, 0.0]), r"offset must have shape \(1,\)"),
        (([1.0], np.eye(3), [[0.0, 0.0]], [0.0]), "precision must have shape"),
        (([1.0], -np.eye(2), [[0.0, 0.0]], [0.0]), "positive semidefinite matrices.*-1"),
        (([1.0], [[1.0, 0.5], [0.0, 1.0]], [[0.0, 0.0]], [0.0]), "symmetric matrices"),
        (([1.0, 2.0], np.eye(2), [[0.0, 0.0]], [0.0]), "factor must have shape"),
    ],
)
def test_bad_input_is_named(arguments, message):
    with pytest.raises(ValueError, match=message):
        psd.GeneralizedGaussianPSD(*arguments)


@pytest.mark.long
@given(kind=kinds, seed=seeds)
@settings(max_examples=8)
def test_change_of_units_carries_the_jacobian(kind, seed):
    f = make(kind, seed, 2)
    center, scale = jnp.array([1.0, -2.0]), jnp.array([0.5, 3.0])
    g = psd.densities.change_units(f, center, scale)
    z = np.random.default_rng(seed).uniform(-1, 1, (5, 2))
    assert_close(g(np.asarray(center) + np.asarray(scale) * z), f(z) / 1.5, 1e-10)
    assert_close(psd.integral(g), psd.integral(f), 1e-10)
