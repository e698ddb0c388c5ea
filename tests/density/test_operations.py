"""The calculus against quadrature of the defining sums, over the registry, in d = 1, 2, 3."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import (
    KINDS,
    box_of,
    box_rule,
    definition,
    make,
    representative,
    rule,
    seeds,
    slow,
    wide_rule,
)
from hypothesis import given, settings
from hypothesis import strategies as st

import psdfilter as psd

kinds = st.sampled_from(KINDS)
dims = pytest.mark.parametrize("dim", [1, 2, slow(3)])


def assert_close(actual, expected, rtol=1e-9):
    """Relative to the largest entry: small entries next to large ones are differences."""
    size = float(np.max(np.abs(np.asarray(expected))))
    np.testing.assert_allclose(actual, expected, rtol=rtol, atol=rtol * size)


@pytest.mark.long
@dims
@given(kind=kinds, seed=seeds)
@settings(max_examples=8)
def test_integral_equals_quadrature(dim, kind, seed):
    f = make(representative(kind, dim), seed, dim)
    whole, inside = wide_rule(dim), box_rule(dim)
    assert_close(psd.integral(f), whole.weights @ definition(f, whole.nodes))
    expected = inside.weights @ definition(f, inside.nodes)
    assert_close(psd.integral(f, box_of(dim)), expected)
    assert_close(psd.log_integral(f, box_of(dim)), np.log(expected))


@dims
@given(kind=kinds, seed=seeds)
def test_mass_of_a_box_is_the_sum_over_its_parts(dim, kind, seed):
    f, box = make(representative(kind, dim), seed, dim), box_of(dim)
    cut = 0.1
    left = psd.Box(box.lower, box.upper.at[0].set(cut))
    right = psd.Box(box.lower.at[0].set(cut), box.upper)
    assert_close(psd.integral(f, left) + psd.integral(f, right), psd.integral(f, box), 1e-11)
    infinite = psd.Box([-np.inf] * dim, [np.inf] * dim)
    assert_close(psd.integral(f, infinite), psd.integral(f), 1e-12)


@pytest.mark.parametrize("dim", [2, slow(3)])
@given(kind=kinds, seed=seeds)
def test_partial_evaluation_commutes_with_evaluation(dim, kind, seed):
    f = make(representative(kind, dim), seed, dim)
    rng = np.random.default_rng(seed)
    axes = tuple(rng.permutation(dim)[: dim - 1].tolist())
    rest = tuple(a for a in range(dim) if a not in axes)
    values = rng.uniform(-1, 1, dim - 1)
    x = rng.uniform(-1, 1, (6, 1))
    full = np.empty((6, dim))
    full[:, list(axes)], full[:, list(rest)] = values, x
    assert_close(psd.partial(f, axes, values)(x), definition(f, full), 1e-11)


@pytest.mark.long
@pytest.mark.parametrize("dim", [2, slow(3)])
@given(kind=kinds, seed=seeds, whole=st.booleans())
@settings(max_examples=10)
def test_marginal_equals_quadrature_and_keeps_the_integral(dim, kind, seed, whole):
    f, box = make(representative(kind, dim), seed, dim), box_of(dim)
    rng = np.random.default_rng(seed)
    keep = int(rng.integers(dim))
    drop = [a for a in range(dim) if a != keep]
    domain = None if whole else box
    index = np.array(drop)
    along = wide_rule(dim - 1) if whole else rule(box.lower[index], box.upper[index], 40)
    got = psd.marginal(f, keep, domain)
    for point in (-0.4, 0.5):
        nodes = np.empty((along.nodes.shape[0], dim))
        nodes[:, drop], nodes[:, keep] = along.nodes, point
        assert_close(got(point), along.weights @ definition(f, nodes))
    inner = None if whole else box.keep((keep,))
    assert_close(psd.integral(got, inner), psd.integral(f, domain), 1e-10)
    assert np.linalg.eigvalsh(np.asarray(got.weights))[0] >= -1e-12 * np.max(got.weights)


@pytest.mark.long
def test_marginal_orders_axes_as_named():
    f = make("grid_rank_three", 5, 3)
    g = psd.marginal(f, (2, 0))
    h = psd.marginal(f, (0, 2))
    x = np.random.default_rng(0).uniform(-1, 1, (6, 2))
    assert_close(g(x[:, ::-1]), h(x), 1e-11)


@pytest.mark.parametrize("kinds_of", [("scattered_full", "grid_rank_one"),
                                      ("grid_rank_one", "grid_rank_three")])  # fmt: skip
@pytest.mark.parametrize("axes", [((0,), (0,)), slow(((0,), (1,))), ((0, 1), (1, 2)),
                                  slow(((2, 0), (0, 1))), slow(((0, 1), (0, 1)))])  # fmt: skip
@given(seed=seeds)
@settings(max_examples=5)
def test_product_is_the_pointwise_product(kinds_of, axes, seed):
    f_axes, g_axes = axes
    f, g = make(kinds_of[0], seed, len(f_axes)), make(kinds_of[1], seed + 1, len(g_axes))
    x = np.random.default_rng(seed).uniform(-1, 1, (6, len(set(f_axes) | set(g_axes))))
    expected = definition(f, x[:, list(f_axes)]) * definition(g, x[:, list(g_axes)])
    fg = psd.product(f, g, f_axes, g_axes)
    assert fg.order == f.order * g.order
    assert_close(fg(x), expected, 1e-11)


# f enters a transition through its expanded anchors and its factor, whatever its kind.
@pytest.mark.long
@pytest.mark.parametrize(("dim", "whole"), [(1, False), slow(1, True), slow(2, False)])
@pytest.mark.parametrize("q_kind", ["scattered_rank_one", "scattered_full", "grid_rank_three"])
@given(kind=st.sampled_from(["singular_weights", "mixture"]), seed=seeds)
@settings(max_examples=8)
def test_transition_equals_quadrature_at_constant_order(dim, whole, q_kind, kind, seed):
    Q, f = make(q_kind, seed, dim + 1), make(kind, seed + 1, dim)
    box = None if whole else box_of(dim)
    along = wide_rule(dim) if whole else box_rule(dim)
    got = psd.transition(Q, f, box)
    for point in (-0.3, 0.6):
        nodes = np.column_stack([along.nodes, np.full(along.weights.size, point)])
        expected = along.weights @ (definition(Q, nodes) * definition(f, along.nodes))
        assert_close(got(point), expected)
    expected_order = (
        Q.anchors.shape[-1] if isinstance(Q.anchors, psd.densities.TensorGrid) else Q.order
    )
    assert got.order == expected_order


@pytest.mark.slow
@given(kind=st.just("grid_rank_one"), seed=seeds)
@settings(max_examples=6)
def test_a_transition_is_the_marginal_of_the_product(kind, seed):
    Q, f = make("grid_rank_three", seed, 2), make(kind, seed + 1, 1)
    slow = psd.marginal(psd.product(Q, f), 1, psd.Box([-1.0, -1.0], [0.9, 1.0]))
    assert_close(psd.transition(Q, f, box_of(1))([0.2]), slow([0.2]), 1e-9)


@pytest.mark.slow
def test_a_transition_does_not_care_how_its_prior_is_split():
    Q, f = make("grid_rank_one", 1, 2), make("mixture", 2, 1)
    doubled = psd.GaussianPSD(
        jnp.concatenate([f.anchors, f.anchors]),
        jnp.concatenate([0.4 * f.factor, 0.6 * f.factor]),
        f.precision,
    )
    x = np.linspace(-1, 1, 6)[:, None]
    box = box_of(1)
    assert_close(psd.transition(Q, f, box)(x), psd.transition(Q, doubled, box)(x), 1e-11)


@dims
@given(kind=kinds, seed=seeds)
def test_normalised_models_have_mass_one(dim, kind, seed):
    f = make(representative(kind, dim), seed, dim)
    assert_close(psd.integral(psd.normalize(f)), 1.0, 1e-12)
    assert_close(psd.integral(psd.normalize(f, box_of(dim)), box_of(dim)), 1.0, 1e-12)


@pytest.mark.long
@pytest.mark.parametrize("scattered", [False, slow(True)])
def test_golden_filter_step(scattered):
    grid = psd.densities.TensorGrid([[-1.0, 0.0, 1.0]] * 2)
    a = [1 / (1 + abs(p - q)) for p in range(3) for q in range(3)]
    Q = G = psd.GaussianPSD(grid.points() if scattered else grid, a, 1.0)
    box = psd.Box(-1, 1)
    prior = psd.normalize(psd.GaussianPSD([[0.0]], [1.0], 1.0), box)
    posterior, log_mass = psd.filter_step(Q, G, prior, [0.3], box)
    mean, covariance = psd.moments(posterior, box)
    np.testing.assert_allclose(np.exp(log_mass), 23.524939253496, atol=1e-10)
    np.testing.assert_allclose(mean[0], 0.047449141226, atol=1e-12)
    np.testing.assert_allclose(covariance[0, 0], 0.238823456441, atol=1e-12)
    np.testing.assert_allclose(posterior(0.0), 0.695412255644, atol=1e-12)


def test_masses_survive_the_far_tail():
    # int_{10}^{11} exp(-8 x^2) dx, where exp(-800) underflows: compare in logs with mpmath's value
    # of log erfc, log(sqrt(pi/8)/2 (erfc(10 sqrt 8) - erfc(11 sqrt 8))).
    f = psd.GaussianPSD([[0.0]], [1.0], 4.0)
    from scipy.special import log_ndtr

    expected = 0.5 * np.log(np.pi / 8) + log_ndtr(-10 * np.sqrt(16.0))
    np.testing.assert_allclose(psd.log_integral(f, psd.Box(10, 11)), expected, rtol=1e-13)
    np.testing.assert_allclose(psd.log_integral(f, psd.Box(-11, -10)), expected, rtol=1e-13)
    assert np.isfinite(psd.log_integral(f, psd.Box(100, 101)))


def chain(eta, base, Q):
    """A number that passes through every root of the calculus."""
    f = psd.GaussianPSD(base.anchors, base.factor, eta, base.log_scale)
    moved = psd.transition(Q, f, box_of(1))
    return psd.log_integral(moved, (-1.0, 1.0)) + psd.marginal(Q, 0, box_of(2))(0.1) * eta[0]


def scattered_marginal(eta, base):
    f = psd.GaussianPSD(base.anchors, base.factor, eta, base.log_scale)
    return psd.marginal(f, 0, box_of(2))(0.1)


chain_fn, chain_gradient_fn = jax.jit(chain), jax.jit(jax.grad(chain))
schur_fns = jax.jit(scattered_marginal), jax.jit(jax.grad(scattered_marginal))


@pytest.mark.slow
@given(seed=seeds)
@settings(max_examples=5)
def test_gradients_through_singular_roots_match_finite_differences(seed):
    base, Q = make("singular_weights", seed, 1), make("grid_rank_one", seed, 2)
    eta, step = base.precision, 1e-5
    got = chain_gradient_fn(eta, base, Q)
    numeric = (chain_fn(eta + step, base, Q) - chain_fn(eta - step, base, Q)) / (2 * step)
    np.testing.assert_allclose(got[0], numeric, rtol=1e-5, atol=1e-6)


@pytest.mark.slow
@given(seed=seeds)
@settings(max_examples=5)
def test_gradients_through_schur_roots_match_finite_differences(seed):
    base, step = make("singular_weights", seed, 2), 1e-5
    value, gradient = schur_fns
    got = gradient(base.precision, base)
    numeric = [
        (value(base.precision + step * e, base) - value(base.precision - step * e, base))
        / (2 * step)
        for e in np.eye(2)
    ]
    np.testing.assert_allclose(got, np.stack(numeric), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda f: psd.integral(f, (-1, 1)), "box must have 2 coordinates, got 1"),
        (lambda f: psd.integral(f, "box"), r"box must be a psdfilter.Box or a pair .* got str"),
        (lambda f: psd.partial(f, 2, 0.0), r"axes must lie in 0..1, got 2"),
        (lambda f: psd.partial(f, (0, 1), [0.0, 0.0]), "leave at least one of 2 coordinates free"),
        (lambda f: psd.partial(f, 0, [0.0, 1.0]), r"values must have shape \(1,\)"),
        (lambda f: psd.marginal(f, (0, 0)), "keep must be distinct"),
        (lambda f: psd.marginal(f, ()), "keep must name at least one axis"),
        (lambda f: psd.product(f, f, (0, 1), (2, 3, 4)), "g_axes must name 2 distinct variables"),
        (lambda f: psd.product(f, f, (0, 1), (4, 5)), "must name every variable"),
        (lambda f: psd.transition(f, f), "Q must have more coordinates than f"),
        (lambda f: psd.integral(lambda x: x), "f must be a GaussianPSD"),
        (lambda f: psd.normalize(psd.GaussianPSD([[0.0]], [0.0], 1.0)), "positive mass"),
        (lambda f: psd.moments(psd.GaussianPSD([[0.0]], [0.0], 1.0)), "positive mass"),
        (lambda f: psd.partial(f, 0, np.nan), "values must be finite"),
    ],
)
def test_bad_input_is_named(call, message):
    with pytest.raises(ValueError, match=message):
        call(make("mixture", 0, 2))


def test_zero_mass_under_jit_is_a_runtime_error_not_a_nan():
    run = jax.jit(lambda a: psd.moments(psd.GaussianPSD([[0.0]], a, 1.0))[0])
    np.testing.assert_allclose(run(jnp.ones(1)), [0.0])
    with pytest.raises(Exception, match="positive mass"):
        jax.block_until_ready(run(jnp.zeros(1)))
