import jax
import numpy as np
import pytest

from psdfilter._density.box import Box
from psdfilter._learning.points import padded_grid, sobol_points, training_grid, uniform_points

BOX = Box([0.0, -3.0], [2.0, 5.0])


@pytest.mark.parametrize("maker", [uniform_points, sobol_points])
def test_random_points_fill_the_box(maker):
    points = np.asarray(maker(BOX, 1000, key=jax.random.key(1)))
    assert points.shape == (1000, 2)
    assert np.all(BOX.contains(points))
    standard_error = np.asarray(BOX.half_width) / np.sqrt(3 * 1000)
    assert np.all(np.abs(points.mean(0) - np.asarray(BOX.center)) < 6 * standard_error)
    np.testing.assert_array_equal(points, maker(BOX, 1000, key=jax.random.key(1)))
    assert np.any(points != np.asarray(maker(BOX, 1000, key=jax.random.key(2))))


def test_sobol_is_more_even_than_chance():
    points = np.asarray(sobol_points(BOX, 1024, key=jax.random.key(0)))
    cells = np.floor((np.asarray(BOX.to_unit(points)) + 1) * 4).astype(int)
    counts = np.bincount(cells[:, 0] * 8 + cells[:, 1], minlength=64)
    assert np.all(counts == 16)


def test_padded_grid():
    grid, precision = padded_grid(BOX, (20, 30), spread=0.4, pad=1.0)
    for axis, eta, low, high in zip(grid.axes, precision, BOX.lower, BOX.upper, strict=True):
        steps = np.diff(np.asarray(axis))
        np.testing.assert_allclose(steps, steps[0])
        assert float(eta) * steps[0] ** 2 == pytest.approx(0.4)
        assert float(low - axis[0]) == pytest.approx(float(eta) ** -0.5)
        assert float(axis[-1] - high) == pytest.approx(float(eta) ** -0.5)


@pytest.mark.parametrize("kind", ["stretched", "chebyshev", "legendre", "regular"])
def test_training_grids(kind):
    grid = training_grid(BOX, (9, 12), kind)
    assert grid.shape == (9, 12)
    for axis, low, high in zip(grid.axes, BOX.lower, BOX.upper, strict=True):
        values = np.asarray(axis)
        assert np.all(np.diff(values) > 0)
        assert values[0] >= low - 1e-12
        assert values[-1] <= high + 1e-12
        np.testing.assert_allclose(values + values[::-1], float(low + high), atol=1e-12)


def test_errors():
    with pytest.raises(ValueError, match="key must be a JAX random key"):
        uniform_points(BOX, 10, key=None)
    with pytest.raises(ValueError, match="num must be a whole number"):
        uniform_points(BOX, 0, key=jax.random.key(0))
    with pytest.raises(ValueError, match="num must be at least"):
        padded_grid(BOX, 4)
    with pytest.raises(ValueError, match="num must be a number or 2 numbers"):
        padded_grid(BOX, (10, 10, 10))
    with pytest.raises(ValueError, match="kind must be one of"):
        training_grid(BOX, 5, "gauss")
