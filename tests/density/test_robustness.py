"""What users do to a library: odd input, odd scales, transformations, repeated calls."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import box_of, make

import psdfilter as psd

KEY = jax.random.key(0)


@pytest.mark.long
def test_lists_numpy_and_jax_arrays_and_integers_are_the_same():
    lists = psd.GaussianPSD([[0, 0], [1, 0]], [1, -1], [2, 3])
    numpy = psd.GaussianPSD(np.array([[0, 0], [1, 0]], dtype=np.float32), np.array([1, -1]), [2, 3])
    arrays = psd.GaussianPSD(jnp.array([[0.0, 0], [1, 0]]), jnp.array([1.0, -1]), jnp.array([2, 3]))
    for f in (lists, numpy, arrays):
        np.testing.assert_array_equal(f([0.3, 0.2]), lists([0.3, 0.2]))
        assert psd.integral(f, ([-1, -1], [1, 1])).dtype == jnp.float64
    np.testing.assert_array_equal(
        psd.marginal(lists, np.int64(1))(0.2), psd.marginal(lists, [1])(0.2)
    )


BAD = {
    "axes None": (lambda f: psd.marginal(f, None), "keep must be integers, got None"),
    "axes float": (lambda f: psd.product(f, f, (0.5, 1)), "f_axes must be integers"),
    "axes bool": (lambda f: psd.partial(f, True, 0.0), "axes must be integers, got True"),
    "two axes": (lambda f: psd.cdf(f, [0, 1], 0.0), "axis must be one integer"),
    "x infinite": (lambda f: f([np.inf, 0.0]), "x must be finite, got inf"),
    "x text": (lambda f: f("here"), "x must be an array of numbers, got str"),
    "box text": (lambda f: psd.Box("a", "b"), "lower must be an array of numbers"),
    "no axes": (lambda f: psd.densities.TensorGrid(5), "axes must be a sequence"),
    "unbounded units": (lambda f: psd.Box(-np.inf, 1.0).to_unit(0.0), "finite bounds"),
    "lopsided": (
        lambda f: psd.from_mixture([1.0], [[0.0, 0.0]], [[[1.0, 0.5], [0.0, 1.0]]]),
        "symmetric positive definite",
    ),
    "wide precision": (
        lambda f: psd.GeneralizedGaussianPSD.from_centers([[0.0, 0.0]], [1.0], np.eye(3)),
        "precision must have shape",
    ),
    "probe": (
        lambda f: psd.densities.PairwiseGaussianPSD.from_pairs(
            [[1.0]], [[[0.0]]], [[[[1.0]]]], [[0.0]], check_points=[[0.0, 1.0]]
        ),
        r"check_points must have shape \(n, 1\)",
    ),
    "too large": (
        lambda f: psd.integral(psd.GaussianPSD([[0.0]], [1e200], 1.0)),
        r"f\.factor must be finite, and so must the sum of its squares.*log_scale",
    ),
    "scale of a number": (lambda f: psd.scale(2.0, 1.0), "f must be a GaussianPSD"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_input_is_named(name):
    call, message = BAD[name]
    with pytest.raises(ValueError, match=message):
        call(make("scattered_full", 0, 2))


def test_float32_mode_is_refused_by_boxes_and_points_too():
    f = make("scattered_full", 0, 1)
    with jax.enable_x64(False):
        for call in (lambda: psd.Box(-1.0, 1.0), lambda: f(0.0), lambda: psd.scale(f, 1.0)):
            with pytest.raises(ValueError, match=r'jax.config.update\("jax_enable_x64", True\)'):
                call()


@pytest.mark.slow
def test_what_does_not_depend_on_the_scale_does_not_feel_it():
    f, box = make("scattered_full", 2, 1), box_of(1)
    g, h = psd.scale(f, -1e5), psd.scale(f, 1e5)
    np.testing.assert_allclose(psd.log_integral(g, box), psd.log_integral(f, box) - 1e5)
    for call in (
        lambda f: psd.moments(f, box)[1],
        lambda f: psd.cdf(f, 0, 0.1, box),
        lambda f: psd.quantile(f, 0, 0.3, box),
        lambda f: psd.sample(f, box, key=KEY, num=3),
        lambda f: psd.mode(f, box),
        lambda f: psd.normalize(f, box)(0.2),
        lambda f: psd.transition(make("grid_rank_one", 0, 2), psd.normalize(f, box), box)(0.1),
    ):
        np.testing.assert_allclose(call(g), call(f), rtol=1e-8)
        np.testing.assert_allclose(call(h), call(f), rtol=1e-8)


@pytest.mark.parametrize("kind", ["scattered_full", "components", "pairs", "grid_rank_three"])
def test_infinitely_far_away_there_is_nothing_and_no_nan(kind):
    f = make(kind, 0, 2)
    assert float(f([1e200, 0.0])) == 0.0
    assert float(f.log_density([1e200, 0.0])) == -np.inf
    assert np.isfinite(f.log_density([1e6, 3.0]))


@pytest.mark.long
def test_a_second_call_with_other_numbers_compiles_nothing(caplog):
    def run(seed):
        f, box = make("scattered_full", seed, 1), box_of(1)
        psd.integral(f, box), psd.moments(f, box), psd.quantile(f, 0, 0.3, box)
        psd.transition(make("grid_rank_one", seed, 2), f, box)
        psd.product(f, f), psd.normalize(f, box)(0.2), psd.total_variation(f, f, box)
        psd.sample(f, box, key=jax.random.key(seed), num=2)

    run(1)
    run(2)
    with jax.log_compiles(), caplog.at_level("WARNING"):
        run(3)
    assert not [r.message for r in caplog.records if "ompil" in r.message]
