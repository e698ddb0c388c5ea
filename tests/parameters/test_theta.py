import hypothesis.strategies as st
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings

from psdfilter._parameters.theta import Coordinates, as_theta, names_of

THETA = {"free": 0.3, "low": 1.5, "high": -2.0, "both": [0.1, 0.7]}
BOUNDS = {"low": (1.0, None), "high": (None, 0.5), "both": (-1, 1)}


def test_every_number_has_a_name():
    assert names_of(as_theta("theta", THETA)) == ("both[0]", "both[1]", "free", "high", "low")
    assert names_of(jnp.zeros(2)) == ("theta[0]", "theta[1]")
    assert names_of(1.0) == ("theta",)
    assert names_of({"noise": {"q": 1.0}}) == ("noise.q",)


@settings(max_examples=20, deadline=None)
@given(st.lists(st.floats(-8, 8), min_size=5, max_size=5))
def test_free_coordinates_go_there_and_back_and_respect_the_bounds(free):
    coordinates = Coordinates.of(as_theta("theta", THETA), BOUNDS)
    z = jnp.asarray(free)
    natural = np.asarray(coordinates.natural(z))
    assert (natural > np.asarray(coordinates.lower)).all()
    assert (natural < np.asarray(coordinates.upper)).all()
    back = coordinates.to_free(coordinates.to_theta(z))
    np.testing.assert_allclose(back, z, rtol=1e-9, atol=1e-9)


def test_coordinates_of_the_same_form_are_equal():
    theta = as_theta("theta", THETA)
    other = jax.tree.map(lambda leaf: leaf + 0.01, theta)
    assert Coordinates.of(theta, BOUNDS) == Coordinates.of(other, BOUNDS)
    assert hash(Coordinates.of(theta, BOUNDS)) == hash(Coordinates.of(other, BOUNDS))
    assert Coordinates.of(theta, BOUNDS) != Coordinates.of(theta, {})


@pytest.mark.long
def test_the_jacobian_is_the_diagonal_of_the_derivative():
    coordinates = Coordinates.of(as_theta("theta", THETA), BOUNDS)
    z = jnp.asarray([0.2, -0.4, 1.0, 0.3, -1.1])
    np.testing.assert_allclose(
        jax.jacobian(coordinates.natural)(z), jnp.diag(coordinates.jacobian(z))
    )


@pytest.mark.parametrize(
    ("bounds", "message"),
    [
        ({"nobody": (0, 1)}, "bounds names 'nobody'"),
        ({"free": (1, 0)}, "lower < upper"),
        ({"free": 3.0}, "a pair"),
        ({"free": (1.0, None)}, "inside its bounds"),
    ],
)
def test_bad_bounds_are_named(bounds, message):
    with pytest.raises(ValueError, match=message):
        Coordinates.of(as_theta("theta", THETA), bounds)


@pytest.mark.parametrize("theta", [{}, "rho", {"a": "b"}])
def test_theta_must_hold_numbers(theta):
    with pytest.raises(ValueError, match="theta0 must"):
        as_theta("theta0", theta)
