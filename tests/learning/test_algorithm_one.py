"""The paper's Algorithm 1 to the letter: random anchors and points drawn once, ridge as given."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import psdfilter as psd

BOX = psd.Box([-1.0, 0.0], [1.0, 3.0])
KEY = jax.random.key(2)


def target(x):
    return jnp.exp(-4 * jnp.square(x[1] - 1.5 - 0.5 * x[0])) * (1 + 0.5 * x[0])


def learned(**options):
    design = {"num_anchors": 30, "num_points": 300, "precision": [2.0, 1.5], "ridge": 1e-9}
    return psd.learn_rank_one(target, BOX, anchors="uniform", key=KEY, **{**design, **options})


@pytest.mark.long
def test_it_is_the_normal_equations_on_the_drawn_points():
    fit = learned()
    anchors, points = np.asarray(fit.model.anchors), np.asarray(fit.points)
    assert anchors.shape == (30, 2)
    assert points.shape == (300, 2)
    assert bool(jnp.all(BOX.contains(anchors)))
    assert bool(jnp.all(BOX.contains(points)))
    eta = np.array([2.0, 1.5])
    k = lambda a, b: np.exp(-np.sum(eta * (a[:, None] - b[None]) ** 2, axis=-1))  # noqa: E731
    phi, gram = k(points, anchors), k(anchors, anchors)
    values = np.sqrt(np.asarray(jax.vmap(target)(points)))
    # (Phi'Phi / n + lambda K) a = Phi'y / n, through the least squares that it is.
    root = np.linalg.cholesky(gram + 1e-15 * np.eye(30)).T
    tall = np.concatenate([phi / np.sqrt(300), np.sqrt(1e-9) * root])
    a = np.linalg.lstsq(tall, np.concatenate([values / np.sqrt(300), np.zeros(30)]), rcond=None)[0]
    x = np.random.default_rng(0).uniform([-1, 0], [1, 3], (50, 2))
    # A ridge of 1e-9 leaves the coefficients free along small eigenvalues; the fit agrees.
    np.testing.assert_allclose(fit.model(x), (k(x, anchors) @ a) ** 2, atol=1e-5)
    assert fit.report.ridge == 1e-9
    assert fit.report.num_anchors == 30
    assert fit.report.precision == (2.0, 1.5)


def test_the_nystrom_solver_gives_the_same_model():
    x = np.random.default_rng(0).uniform([-1, 0], [1, 3], (50, 2))
    dense, nystrom = learned(ridge=1e-7), learned(ridge=1e-7, solver="nystrom")
    np.testing.assert_allclose(nystrom.model(x), dense.model(x), atol=1e-6)


@pytest.mark.slow
def test_the_nystrom_solver_reaches_many_points():
    fit = learned(num_anchors=300, num_points=200_000, solver="nystrom", max_memory=2**27)
    assert fit.report.num_points == 200_000
    assert fit.report.sup_error < 1e-2


def test_points_default_to_four_for_each_anchor_and_are_no_anchors():
    fit = learned(num_points=None)
    assert fit.report.num_points == 120
    gaps = np.asarray(fit.points)[:, None] - np.asarray(fit.model.anchors)[None]
    assert np.min(np.linalg.norm(gaps, axis=-1)) > 1e-6


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"anchors": [[0.0, 1.0]], "num_anchors": 3}, "num_anchors says how many random anchors"),
        ({"anchors": [[0.0, 1.0]], "num_points": 3}, "num_points says how many random training"),
        ({"anchors": "uniform", "num_anchors": 0, "key": KEY}, "num_anchors must be a whole"),
        ({"anchors": "uniform", "num_anchors": 5}, "needs key="),
        ({"solver": "cg", "anchors": "uniform", "key": KEY}, 'solver must be "dense" or "nystrom"'),
    ],
)
def test_bad_input_is_named(options, message):
    with pytest.raises(ValueError, match=message):
        psd.learn_rank_one(target, BOX, **options)
