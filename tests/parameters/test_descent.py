"""Quasi-Newton steps and Hessians by differences, on functions whose answers are known."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from psdfilter._parameters.descent import Verdict, descend, evaluated, hessian_at


class Valley(eqx.Module):
    """Rosenbrock's function, beside a coordinate of another scale; the minimum is at (1, 1, m)."""

    middle: float
    width: float

    def __call__(self, free):
        x, y, z = free
        bent = 100 * (y - x**2) ** 2 + (1 - x) ** 2
        return bent + jnp.cosh((z - self.middle) / self.width) - 1


class Wall(eqx.Module):
    """x - log x: NaN for x < 0, where the first step from 0.2 leads."""

    def __call__(self, free):
        return jnp.sum(free - jnp.log(free)) * 3.0


def always(_):
    return Verdict(True, True)


@pytest.mark.parametrize(("middle", "width"), [(0.3, 1.0), (-2.0, 0.05)])
def test_the_bottom_of_a_valley(middle, width):
    found = descend(Valley(middle, width), np.array([-1.2, 1.0, middle + width]), 400, always)
    assert found.rested
    np.testing.assert_allclose(found.free, [1.0, 1.0, middle], atol=2e-3)


def test_steps_out_of_the_domain_are_taken_back():
    found = descend(Wall(), np.array([6.0]), 100, always)
    assert found.rested
    np.testing.assert_allclose(found.free, 1.0, atol=1e-2)


def test_a_search_stops_where_it_is_told_to_and_after_its_steps():
    start = np.array([-1.2, 1.0, 0.0])
    valley = Valley(0.0, 1.0)
    first = evaluated(valley, start).value
    left = descend(valley, start, 400, lambda here: Verdict(here.value > 5.0, True))
    assert not left.rested
    assert evaluated(valley, left.free).value <= 5.0
    # A step to where nothing is to be trusted is shortened: the end is inside.
    inside = descend(valley, start, 4, lambda here: Verdict(True, here.value > 4.0))
    assert 4.0 < evaluated(valley, inside.free).value < first
    assert descend(Valley(0.0, 1.0), start, 3, always)[1:3] == (3, False)
    nowhere = descend(Wall(), np.array([-1.0]), 9, always)
    assert nowhere[1:3] == (0, False)


def test_a_search_goes_on_with_what_it_knows():
    valley, start = Valley(0.3, 1.0), np.array([-1.2, 1.0, 0.0])
    whole = descend(valley, start, 400, always)
    half = descend(valley, start, whole.taken // 2, always)
    rest = descend(valley, half.free, 400, always, half.inverse)
    assert rest.rested
    np.testing.assert_allclose(rest.free, [1.0, 1.0, 0.3], atol=2e-3)
    assert half.taken + rest.taken <= whole.taken + 5


@pytest.mark.parametrize("width", [1e-4, 1.0, 1e4])
def test_differences_of_gradients_are_hessians(width):
    objective, at = Valley(50.0, width), np.array([0.7, 0.4, 50.0])
    want = 250 * jax.hessian(objective)(jnp.asarray(at))
    got = hessian_at(objective, evaluated(objective, at), 250.0)
    scale = np.sqrt(np.abs(np.outer(np.diagonal(want), np.diagonal(want))))
    np.testing.assert_allclose(got / scale, want / scale, atol=2e-6)
