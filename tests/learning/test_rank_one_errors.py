"""Bad input is refused with the argument, the point and the remedy."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from psdfilter._density.box import Box
from psdfilter._learning.rank_one import learn_rank_one

BOX = Box([0.0, 10.0], [1.0, 20.0])


def good(x):
    return jnp.exp(-jnp.sum(jnp.square(x)) / 100)


@pytest.mark.parametrize(
    ("f", "words"),
    [
        (lambda x: x[0] - 0.5, ["f must", ">= 0", "at x = ("]),
        (lambda x: jnp.where(x[0] > 0.7, jnp.nan, 1.0), ["f must", "nan", "at x = ("]),
        (lambda x: jnp.where(x[0] > 0.7, jnp.inf, 1.0), ["f must", "inf", "at x = ("]),
        (lambda x: 0.0 * x[0], ["zero at all", "log=True"]),
        (lambda x: x, ["f must map (2,) -> scalar", "(2,)", "vectorized=True"]),
        (lambda x: jnp.ones((1,)), ["f must map", "(1,)"]),
        (lambda x, y: x[0], ["f must take one argument"]),
        (lambda: 1.0, ["f must take one argument"]),
        (lambda x: x[5] / None, ["f failed at x = (0.5, 15)"]),
        (3.0, ["f must be a function", "float"]),
        (lambda x: 1j * x[0], ["real"]),
    ],
)
def test_bad_functions(f, words):
    with pytest.raises(ValueError, match="f") as caught:
        learn_rank_one(f, BOX, tol=1e-2)
    for word in words:
        assert word in str(caught.value)


def test_the_point_named_is_a_bad_one():
    with pytest.raises(ValueError, match="at x =") as caught:
        learn_rank_one(lambda x: jnp.where(x[1] > 18.0, -1.0, 1.0), BOX)
    point = str(caught.value).split("x = (")[1].split(")")[0].split(",")
    assert float(point[1]) > 18.0


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"tol": 0.0}, ["tol must be a positive number"]),
        ({"tol": -1e-3}, ["tol must be a positive number"]),
        ({"tol": float("nan")}, ["tol must be a positive number"]),
        ({"tol": "tight"}, ["tol must be a positive number"]),
        ({"tol": 1e-15}, ["tol must be at least"]),
        ({"anchors": "uniform"}, ["anchors", "key="]),
        ({"anchors": "sobol", "tol": 1e-2}, ["anchors", "key="]),
        ({"anchors": "gird"}, ["anchors must be", "'gird'"]),
        ({"anchors": np.ones((5, 3))}, ["anchors must have 2 coordinates"]),
        ({"anchors": np.ones((5, 2)), "points": "uniform"}, ["points", "key="]),
        ({"points": np.ones((5, 2))}, ["anchors"]),
        ({"precision": -1.0}, ["precision must be positive"]),
        ({"anchors": np.ones((5, 2)), "ridge": -1.0}, ["ridge must be >= 0"]),
        ({"periodic": 2}, ["periodic must lie in 0..1"]),
        ({"max_anchors": 0}, ["max_anchors"]),
        ({"max_memory": -1}, ["max_memory"]),
    ],
)
def test_bad_options(options, words):
    with pytest.raises(ValueError, match=r"\w") as caught:
        learn_rank_one(good, BOX, **options)
    for word in words:
        assert word in str(caught.value)


def test_infinite_box():
    with pytest.raises(ValueError, match="box must be finite"):
        learn_rank_one(good, Box([0.0, 0.0], [1.0, np.inf]))


def test_box_as_a_pair():
    assert learn_rank_one(good, ([0.0, 10.0], [1.0, 20.0]), tol=1e-2).report.met
    with pytest.raises(ValueError, match="box must be"):
        learn_rank_one(good, 3.0)


@pytest.mark.parametrize("options", [{"max_anchors": 50}, {"max_memory": 2e3}])
def test_budget(options):
    def f(x):
        return jnp.exp(-0.5 * jnp.square((x[0] - x[1]) / 0.1))

    with pytest.raises(ValueError, match=r"needs about|would be needed") as caught:
        learn_rank_one(f, Box([-1.0, -1.0], [1.0, 1.0]), tol=1e-4, **options)
    assert "raise tol" in str(caught.value)


def test_rough_root_points_elsewhere():
    with pytest.raises(ValueError, match="out of reach") as caught:
        learn_rank_one(
            lambda x: jnp.square(x[0] - 0.1), Box([-1.0], [1.0]), tol=1e-9, max_anchors=200
        )
    assert "learn_roots" in str(caught.value)
    assert "learn_full_rank" in str(caught.value)


def test_jump():
    with pytest.raises(ValueError, match="out of reach"):
        learn_rank_one(lambda x: jnp.where(x[0] > 0.1, 1.0, 0.2), Box([-1.0], [1.0]), tol=1e-3)


def test_without_x64():
    with jax.enable_x64(False), pytest.raises(ValueError, match="jax_enable_x64"):
        learn_rank_one(good, ([0.0], [1.0]))
