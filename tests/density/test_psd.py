"""Evaluation, construction and bad input of the diagonal family."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import KINDS, definition, make, representative, seeds, slow
from hypothesis import given
from hypothesis import strategies as st

import psdfilter as psd

kinds = st.sampled_from(KINDS)


@pytest.mark.parametrize("dim", [1, 2, slow(3)])
@given(kind=kinds, seed=seeds)
def test_evaluation_equals_the_defining_sum(dim, kind, seed):
    f = make(representative(kind, dim), seed, dim)
    x = np.random.default_rng(seed).uniform(-2, 2, (6, dim))
    np.testing.assert_allclose(
        f(x), definition(f, x), rtol=1e-9, atol=1e-13 * definition(f, x).max()
    )
    np.testing.assert_allclose(f.log_density(x), np.log(f(x)), rtol=1e-12, atol=1e-12)
    assert np.all(np.asarray(f(x)) >= 0)


@pytest.mark.long
@pytest.mark.parametrize("dim", [slow(1), 2, slow(3)])
@given(kind=kinds, seed=seeds)
def test_gradient_matches_finite_differences(dim, kind, seed):
    f = make(representative(kind, dim), seed, dim)
    x = np.random.default_rng(seed).uniform(-1, 1, dim)
    step = 1e-5
    numeric = (f(x + step * np.eye(dim)) - f(x - step * np.eye(dim))) / (2 * step)
    size = float(f(x)) + float(np.max(np.abs(numeric)))
    np.testing.assert_allclose(f.gradient(x), numeric, rtol=1e-5, atol=1e-6 * size)


@pytest.mark.slow
@given(kind=kinds, seed=seeds)
def test_anchors_permuted_or_split_give_the_same_function(kind, seed):
    f = make(kind, seed, 2)
    points = f.anchors.points() if isinstance(f.anchors, psd.densities.TensorGrid) else f.anchors
    order = np.random.default_rng(seed).permutation(f.order)
    permuted = psd.GaussianPSD(points[order], f.factor[order], f.precision, f.log_scale)
    doubled = psd.GaussianPSD(
        jnp.concatenate([points, points]),
        jnp.concatenate([0.3 * f.factor, 0.7 * f.factor]),
        f.precision,
        f.log_scale,
    )
    x = np.random.default_rng(seed).uniform(-1, 1, (6, 2))
    np.testing.assert_allclose(permuted(x), f(x), rtol=1e-9, atol=1e-14 * float(f(x).max()))
    np.testing.assert_allclose(doubled(x), f(x), rtol=1e-9, atol=1e-14 * float(f(x).max()))


def test_log_density_survives_far_tails():
    f = psd.GaussianPSD([[0.0, 0.0]], [2.0], [3.0, 5.0])
    expected = np.log(4.0) - 2 * (3.0 * 40.0**2 + 5.0 * 70.0**2)
    np.testing.assert_allclose(f.log_density([40.0, 70.0]), expected, rtol=1e-14)
    assert float(f([40.0, 70.0])) == 0.0


def test_many_points_are_evaluated_in_blocks_to_the_same_values():
    f = make("scattered_full", 3, 2)
    x = np.random.default_rng(0).uniform(-1, 1, (10_001, 2))
    np.testing.assert_allclose(f(x)[:100], f(x[:100]), rtol=1e-13)
    np.testing.assert_allclose(f(x), definition(f, x), rtol=1e-10)


@pytest.mark.long
def test_golden_values():
    f = psd.GaussianPSD.from_weights([[-0.5], [0.4]], [[1.0, 0.5], [0.5, 1.0]], 4.0)
    box = psd.Box(-1, 1)
    mean, covariance = psd.moments(f, box)
    np.testing.assert_allclose(f(0.0), 0.607352625981, atol=1e-12)
    np.testing.assert_allclose(psd.integral(f), 1.377328755974, atol=1e-12)
    np.testing.assert_allclose(psd.integral(f, box), 1.357924546526, atol=1e-12)
    np.testing.assert_allclose(mean[0], -0.043327293675, atol=1e-12)
    np.testing.assert_allclose(covariance[0, 0], 0.233859636309, atol=1e-12)


@pytest.mark.long
def test_is_a_pytree_that_vmaps_and_jits():
    models = jax.vmap(lambda s: psd.GaussianPSD([[0.0], [1.0]], jnp.stack([s, -s]), 2.0))(
        jnp.linspace(1.0, 2.0, 4)
    )
    values = jax.jit(jax.vmap(lambda f: f(0.3)))(models)
    single = psd.GaussianPSD([[0.0], [1.0]], [2.0, -2.0], 2.0)
    np.testing.assert_allclose(values[-1], single(0.3), rtol=1e-14)
    masses = jax.vmap(psd.integral)(models)
    np.testing.assert_allclose(masses[-1], psd.integral(single), rtol=1e-14)


@pytest.mark.long
def test_a_second_call_of_the_same_shape_does_not_retrace():
    count = 0

    @jax.jit
    def run(factor, x):
        nonlocal count
        count += 1
        f = psd.GaussianPSD([[0.0], [1.0]], factor, 2.0)
        return f(x), psd.integral(f, psd.Box(-1, 1))

    run(jnp.ones(2), jnp.zeros((3, 1)))
    run(2 * jnp.ones(2), jnp.ones((3, 1)))
    assert count == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([0.0, 1.0], [1.0, 1.0], 1.0), r"anchors must have shape \(m, d\), got \(2,\)"),
        ((np.zeros((0, 2)), np.zeros(0), 1.0), "anchors must hold at least one point"),
        (
            ([[0.0], [np.nan]], [1.0, 1.0], 1.0),
            r"anchors must be finite, got nan at index \(1, 0\)",
        ),
        (([[0.0], [1.0]], [1.0], 1.0), r"factor must have shape \(2, r\) or \(2,\).* got \(1, 1\)"),
        (([[0.0], [1.0]], [1.0, np.inf], 1.0), "factor must be finite"),
        (([[0.0], [1.0]], [1.0, 1.0], -1.0), "precision must be positive on every axis, got"),
        (
            ([[0.0], [1.0]], [1.0, 1.0], [1.0, 2.0]),
            r"precision must be a number or have shape \(1,",
        ),
        (([["x"]], [1.0], 1.0), "anchors must be an array of numbers"),
    ],
)
def test_bad_input_is_named(arguments, message):
    with pytest.raises(ValueError, match=message):
        psd.GaussianPSD(*arguments)


def test_weights_that_are_not_psd_are_refused_with_their_eigenvalue():
    with pytest.raises(ValueError, match=r"weights must be positive semidefinite.*-1"):
        psd.GaussianPSD.from_weights([[0.0], [1.0]], [[1.0, 2.0], [2.0, 1.0]], 1.0)
    with pytest.raises(ValueError, match=r"weights must be symmetric.*differs .* by 0.5"):
        psd.GaussianPSD.from_weights([[0.0], [1.0]], [[1.0, 0.5], [0.0, 1.0]], 1.0)
    with pytest.raises(ValueError, match=r"weights must have shape \(2, 2\)"):
        psd.GaussianPSD.from_weights([[0.0], [1.0]], np.eye(3), 1.0)


def test_points_of_the_wrong_width_are_refused():
    f = make("mixture", 0, 2)
    with pytest.raises(ValueError, match=r"x must have shape \(..., 2\), got \(3,\)"):
        f([1.0, 2.0, 3.0])


def test_float32_mode_is_refused_with_the_line_to_add():
    with jax.enable_x64(False), pytest.raises(ValueError, match="jax_enable_x64"):
        psd.GaussianPSD([[0.0]], [1.0], 1.0)


@pytest.mark.parametrize(
    ("lower", "upper", "message"),
    [
        ([0.0, 1.0], [1.0, 1.0], r"lower must be below upper.*\[1.0, 1.0\] on axis 1"),
        ([0.0], [1.0, 2.0], "two vectors of one length"),
        ([np.nan], [1.0], "must not be NaN"),
        ([], [], "at least one coordinate"),
    ],
)
def test_bad_boxes_are_refused(lower, upper, message):
    with pytest.raises(ValueError, match=message):
        psd.Box(lower, upper)


def test_box_units_round_trip():
    box = psd.Box([-2.0, 5.0], [4.0, 6.0])
    x = np.random.default_rng(0).uniform([-2, 5], [4, 6], (10, 2))
    np.testing.assert_allclose(box.from_unit(box.to_unit(x)), x, rtol=1e-14)
    np.testing.assert_allclose(box.to_unit([[4.0, 5.0]]), [[1.0, -1.0]])
    np.testing.assert_array_equal(box.contains([[0.0, 5.5], [0.0, 6.5]]), [True, False])
    np.testing.assert_allclose(box.volume, 6.0)
