"""Dense and tensor-grid ridge solvers against the normal equations, solved in NumPy."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import slow

from psdfilter._density.anchors import TensorGrid
from psdfilter._learning.axes import Axis
from psdfilter._learning.ridge import DenseRidge
from psdfilter._learning.tensor_ridge import TensorRidge

SHAPES = {1: ((7,), (11,)), 2: ((5, 6), (8, 9)), 3: ((3, 4, 5), (5, 6, 7))}


def problem(dim, seed=0):
    rng = np.random.default_rng(seed)
    num_anchors, num_points = SHAPES[dim]
    anchors = TensorGrid([np.linspace(-1.2, 1.2, n) for n in num_anchors])
    points = TensorGrid([np.sort(rng.uniform(-1, 1, n)) for n in num_points])
    precision = 0.4 / np.square([2.4 / (n - 1) for n in num_anchors])
    return anchors, points, precision, rng.normal(size=np.prod(num_points))


def oracle(anchors, points, precision, ridge, values):
    """(Phi'Phi / n + lambda K) a = Phi'y / n in extended precision."""
    x, z = np.asarray(points.points()), np.asarray(anchors.points())

    def kernel(p, q):
        distance = np.sum(precision * (p[:, None] - q[None]) ** 2, axis=2, dtype=np.longdouble)
        return np.exp(-distance)

    phi, n = kernel(x, z), len(x)
    left = (phi.T @ phi / n + ridge * kernel(z, z)).astype(float)
    return np.linalg.solve(left, (phi.T @ values / n).astype(float))


@pytest.mark.parametrize("ridge", [1e-2, 1e-5])
@pytest.mark.parametrize("dim", [slow(1), 2, slow(3)])
def test_solvers_match_the_normal_equations(dim, ridge):
    anchors, points, precision, values = problem(dim)
    expected = oracle(anchors, points, precision, ridge, values)
    tensor = TensorRidge(anchors, points, precision, ridge).solve(values)
    dense = DenseRidge(anchors.points(), points.points(), precision, ridge).solve(values)
    scale = np.abs(expected).max()
    np.testing.assert_allclose(tensor, expected, atol=1e-7 * scale)
    np.testing.assert_allclose(dense, expected, atol=1e-7 * scale)
    np.testing.assert_allclose(dense, tensor, atol=1e-9 * scale)


def test_many_right_hand_sides():
    anchors, points, precision, values = problem(2)
    for solver in (
        TensorRidge(anchors, points, precision, 1e-6),
        DenseRidge(anchors.points(), points.points(), precision, 1e-6),
    ):
        columns = np.stack([values, 2 * values, values**2], axis=1)
        together = solver.solve(columns)
        for i in range(3):
            np.testing.assert_allclose(together[:, i], solver.solve(columns[:, i]), atol=1e-10)


@pytest.mark.slow
def test_transformations():
    anchors, points, precision, values = problem(2)
    solver = TensorRidge(anchors, points, precision, 1e-6)
    batch = jnp.stack([values, -values, values**2])
    mapped = jax.vmap(solver.solve)(batch)
    np.testing.assert_allclose(mapped[2], solver.solve(batch[2]), atol=1e-10)
    jitted = eqx.filter_jit(lambda s, y: s.solve(y))(solver, values)
    np.testing.assert_allclose(jitted, solver.solve(values), atol=1e-10)

    def loss(y):
        return jnp.sum(jnp.square(solver.solve(y)))

    direction = np.random.default_rng(1).normal(size=values.shape)
    step = 1e-6
    slope = (loss(values + step * direction) - loss(values - step * direction)) / (2 * step)
    assert jax.grad(loss)(jnp.asarray(values)) @ direction == pytest.approx(float(slope), rel=1e-5)


@pytest.mark.long
def test_duplicated_anchors_do_no_harm():
    anchors = jnp.array([[-0.5], [0.0], [0.0], [0.5]])
    points = jnp.linspace(-1, 1, 20)[:, None]
    values = jnp.exp(-jnp.square(points[:, 0]))
    twice = DenseRidge(anchors, points, 1.0, 1e-10).solve(values)
    once = DenseRidge(anchors[jnp.array([0, 1, 3])], points, 1.0, 1e-10).solve(values)
    np.testing.assert_allclose(twice[1] + twice[2], once[1], atol=1e-6)


@pytest.mark.long
def test_folds_give_a_periodic_function():
    axis = Axis.circular(9, 0.4, 6, 1.5)
    solver = TensorRidge(
        TensorGrid([axis.anchors]),
        TensorGrid([axis.nodes]),
        [axis.precision],
        1e-14,
        folds=[axis.fold],
    )
    a = np.asarray(solver.solve(np.exp(np.cos(np.pi * (axis.nodes - 0.3)))))
    assert a.shape == (21,)
    np.testing.assert_allclose(a[:6], a[9:15], atol=1e-12)

    def value(x):
        return np.exp(-axis.precision * (x - axis.anchors) ** 2) @ a

    assert value(-1.0) == pytest.approx(value(1.0), abs=1e-6)
    assert value(0.3) == pytest.approx(np.e, rel=1e-3)


def test_errors():
    anchors, points, precision, values = problem(2)
    with pytest.raises(ValueError, match="anchors must be a TensorGrid"):
        TensorRidge(np.ones((3, 2)), points, precision, 1e-3)
    with pytest.raises(ValueError, match="ridge must be >= 0"):
        TensorRidge(anchors, points, precision, -1.0)
    with pytest.raises(ValueError, match=r"values must have shape \(72,\)"):
        TensorRidge(anchors, points, precision, 1e-3).solve(values[:-1])
    with pytest.raises(ValueError, match="points must have 2 axes"):
        TensorRidge(anchors, TensorGrid([np.ones(3)]), precision, 1e-3)
    with pytest.raises(ValueError, match="points must have 2 coordinates"):
        DenseRidge(anchors.points(), np.ones((4, 3)), precision, 1e-3)
    with pytest.raises(ValueError, match="must be concrete"):
        jax.jit(lambda x: TensorRidge(TensorGrid([x, x]), points, precision, 1e-3).ridge)(
            jnp.linspace(-1, 1, 4)
        )
