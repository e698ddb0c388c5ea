"""Functions made anew share programs, and only if they are the same."""

import gc
import math
import weakref
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
import pytest
from jax.scipy.interpolate import RegularGridInterpolator
from jax.scipy.stats import norm

import psdfilter as psd
from psdfilter._statespace.sameness import Same

SCALE = 2.0
TABLE = None


class Settings:
    scale = 2.0


class Rate(NamedTuple):
    rate: float

    def move(self, x):
        return SCALE * self.rate * x


def closed(number, array=None, helper=None):
    return lambda x: number * x + (0 if array is None else array[0]) + (helper or math.sin)(1.0)


def test_functions_made_anew_are_the_same():
    assert Same(closed(0.5)) == Same(closed(0.5))
    assert hash(Same(closed(0.5))) == hash(Same(closed(0.5)))
    assert Same(closed(0.5, np.ones(2))) == Same(closed(0.5, np.ones(2)))
    assert Same(closed(0.5, jnp.ones(2))) == Same(closed(0.5, jnp.ones(2)))
    assert Same(closed(0.5, helper=closed(1.0))) == Same(closed(0.5, helper=closed(1.0)))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (closed(0.5), closed(0.25)),
        (closed(0.0), closed(-0.0)),
        (closed(1), closed(1.0)),
        (closed(0.5, np.ones(2)), closed(0.5, np.zeros(2))),
        (closed(0.5, np.ones(2)), closed(0.5, jnp.ones(2))),
        (closed(0.5, helper=closed(1.0)), closed(0.5, helper=closed(2.0))),
        (lambda x: x + 1, lambda x: x + 2),
        (lambda x, a=1.0: x + a, lambda x, a=2.0: x + a),
    ],
)
def test_functions_that_differ_are_not(one, other):
    assert Same(one) != Same(other)


def test_numbers_that_a_function_looks_up_count():
    def build():
        return lambda x: SCALE * x

    before = Same(build())
    globals()["SCALE"] = 3.0
    try:
        assert Same(build()) != before
    finally:
        globals()["SCALE"] = 2.0
    assert Same(build()) == before


def test_what_may_change_is_never_shared():
    def build():
        return lambda x: Settings.scale * x

    assert Same(build()) != Same(build())
    array = np.ones(2)
    one = Same(closed(0.5, array))
    array[0] = 2.0
    assert Same(closed(0.5, array)) != one


@pytest.mark.long
def test_a_model_built_again_with_other_numbers_has_other_results():
    def build(rate):
        return psd.StateSpaceModel(
            log_prior=lambda x: norm.logpdf(x[0]),
            log_transition=lambda u, x: norm.logpdf(x[0], rate * u[0], 0.5),
            log_observation=lambda x, y: norm.logpdf(y[0], x[0]),
            state_box=psd.Box(-6.0, 6.0),
        )

    ys = np.array([0.3, 1.0, 0.2])
    first, second, again = (
        float(psd.run_filter(psd.learn(build(rate), 1e-3), ys).log_likelihood)
        for rate in (0.9, 0.1, 0.9)
    )
    assert first == again
    assert abs(first - second) > 1e-3


def test_methods_of_a_users_class_are_never_the_same():
    """They may read global names: a tuple of equal numbers says nothing about those."""
    one, two = Rate(0.5), Rate(0.5)
    assert Same(lambda x: one.move(x)) != Same(lambda x: two.move(x))
    assert Same(one.move) != Same(two.move)


@pytest.mark.long
def test_a_filter_follows_a_global_name_in_a_method(monkeypatch):
    ys, logs = [0.3, 1.0, -0.5], []
    for scale in (0.6, 1.8):
        monkeypatch.setitem(globals(), "SCALE", scale)
        rate = Rate(0.5)
        ssm = psd.additive_gaussian(
            f=lambda x, rate=rate: rate.move(x), h=lambda x: x, Q=0.1, R=0.1, m0=0.0, P0=1.0
        )
        exact = psd.linear_gaussian(0.5 * scale, 0.1, 1.0, 0.1, 0.0, 1.0)
        logs.append([psd.run_filter(psd.learn(m, 1e-3), ys).log_likelihood for m in (ssm, exact)])
    np.testing.assert_allclose(*np.array(logs).T, atol=2e-3)


@pytest.mark.long
def test_what_is_told_by_identity_is_kept_alive():
    """Else another table could have its address, and with it its program."""
    globals()["TABLE"] = RegularGridInterpolator((jnp.arange(3.0),), jnp.arange(3.0))
    kept = weakref.ref(globals()["TABLE"])
    same = Same(lambda x: TABLE(x))
    globals()["TABLE"] = None
    gc.collect()
    assert kept() is not None
    assert same != Same(lambda x: TABLE(x))


def test_a_build_that_cannot_be_compared_is_the_same_as_itself():
    settings = Settings()

    def build(theta):
        return settings.scale * theta

    assert Same(build, constant=True) == Same(build, constant=True)
    assert Same(build) != Same(build)
