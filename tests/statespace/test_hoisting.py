"""Numbers taken out of functions: the same values, one program, kept where they are needed."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.scipy import stats

import psdfilter as psd
from psdfilter._statespace.hoisting import Hoisted, hoisted

BOX = psd.Box([-4.0], [4.0])
X, Y, U = jnp.array([0.3]), jnp.array([0.5]), jnp.array([-0.2])


def model(transition, prior_sd=1.0):
    return psd.StateSpaceModel(
        log_prior=lambda x: stats.norm.logpdf(x[0], 0.0, prior_sd),
        log_transition=transition,
        log_observation=lambda x, y: stats.norm.logpdf(y[0], x[0], 0.3),
        state_box=BOX,
    )


def volatile(p):
    def mean(u):
        return p["rate"] * u[0]

    return model(lambda u, x, sd=0.3: stats.norm.logpdf(x[0], mean(u), sd * p["scale"]))


def test_values_are_the_same_and_numbers_are_leaves():
    ssm = volatile({"rate": 0.8, "scale": jnp.asarray(1.5)})
    out = hoisted(ssm)
    assert isinstance(out.log_transition, Hoisted)
    assert out.log_transition(U, X) == ssm.log_transition(U, X)
    assert out.log_prior(X) == ssm.log_prior(X)
    leaves = [float(leaf) for leaf in jax.tree.leaves(out.log_transition)]
    assert sorted(leaves) == [0.3, 0.8, 0.8, 1.5, 1.5]  # p is closed over twice


def test_other_numbers_are_the_same_program():
    one, other = (hoisted(volatile({"rate": a, "scale": 1.0})) for a in (0.8, 0.5))
    assert jax.tree.structure(one) == jax.tree.structure(other)
    traced = []

    @jax.jit
    def value(ssm, u, x):
        traced.append(1)
        return ssm.log_transition(u, x)

    first, second = value(one, U, X), value(other, U, X)
    assert len(traced) == 1
    assert abs(float(first) - stats.norm.logpdf(0.3, -0.16, 0.3)) < 1e-14
    assert abs(float(second) - stats.norm.logpdf(0.3, -0.1, 0.3)) < 1e-14


def test_other_code_is_another_program():
    def times(a):
        return model(lambda u, x: stats.norm.logpdf(x[0], a * u[0], 0.3))

    def plus(a):
        return model(lambda u, x: stats.norm.logpdf(x[0], a + u[0], 0.3))

    one, other = hoisted(times(0.8)), hoisted(plus(0.8))
    assert jax.tree.structure(one) != jax.tree.structure(other)


def test_functions_that_need_their_numbers_keep_them():
    def rooted(q):
        return model(lambda u, x: stats.norm.logpdf(x[0], u[0], math.sqrt(q)))

    def branched(q):
        return model(lambda u, x: stats.norm.logpdf(x[0], u[0] if q > 0 else -u[0], 0.3))

    for ssm in (rooted(0.09), branched(1.0)):
        assert hoisted(ssm) is ssm


@pytest.mark.long
def test_filters_of_other_numbers_are_their_own():
    ys = [0.1, -0.3, 0.4]
    for rate in (0.9, 0.2):
        p = {"rate": rate, "scale": 1.0}
        post = psd.run_filter(psd.learn(volatile(p), 1e-6), ys)
        mean, variance, total = 0.0, 1.0, 0.0
        for y in ys:
            mean, variance = rate * mean, rate**2 * variance + 0.09
            spread = variance + 0.09
            total -= 0.5 * (np.log(2 * np.pi * spread) + (y - mean) ** 2 / spread)
            mean, variance = mean + variance / spread * (y - mean), variance * 0.09 / spread
        # the box cuts off 6e-5 of the prior
        assert abs(float(post.log_likelihood) - total) < 1e-3


@pytest.mark.long
def test_a_model_is_a_value_even_if_what_it_closed_over_changes():
    p = {"rate": 0.8, "scale": 1.0}
    learned = psd.learn(volatile(p), 1e-4)
    before = float(psd.run_filter(learned, [0.5, 0.1]).log_likelihood)
    p["rate"] = -0.8
    assert float(psd.run_filter(learned, [0.5, 0.1]).log_likelihood) == before


class Drift:
    """A callable that its user changes."""

    rate = 0.0

    def __call__(self, u, x):
        return stats.norm.logpdf(x[0], self.rate * u[0], 0.3)


@pytest.mark.long
def test_an_object_that_has_changed_is_another_program():
    drift, found = Drift(), []
    for rate in (0.9, -0.7):
        again = Drift()
        drift.rate = again.rate = rate
        logs = [
            float(psd.run_filter(psd.learn(model(fn), 1e-3), [0.5, 0.9]).log_likelihood)
            for fn in (drift, again)
        ]
        assert logs[0] == logs[1]
        found.append(logs[0])
    assert abs(found[0] - found[1]) > 0.1


@pytest.mark.long
def test_a_dict_that_has_changed_is_read_again_by_the_next_model():
    table = {"rates": {"up": 0.9, "name": "x"}}

    def moved(u, x):
        return stats.norm.logpdf(x[0], table["rates"]["up"] * u[0], 0.3)

    found = []
    for rate in (0.9, -0.7):
        table["rates"]["up"] = rate
        post = psd.run_filter(psd.learn(model(moved), 1e-3), [0.5, 0.9])
        found.append(float(post.log_likelihood))
    assert abs(found[0] - found[1]) > 0.1
