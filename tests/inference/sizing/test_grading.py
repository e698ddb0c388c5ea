"""Graded rules, many-anchor regressions, and transitions that vary in time."""

import jax.numpy as jnp
import numpy as np
import pytest
from scipy.integrate import quad

import psdfilter as psd
from psdfilter._inference.sizing.grading import Grading, finer_rule, grading_for
from psdfilter._learning.axes import Axis, factor_axis, features
from psdfilter._learning.banded import banded_fit
from psdfilter._learning.sizing import pad_for, ridge_for, spread_for


def narrow(u):
    return np.exp(-0.5 * np.square((u - 0.1) / 0.01)) + np.exp(-0.5 * np.square((u + 0.4) / 0.3))


def test_graded_nodes_integrate_what_is_narrow_with_few():
    grading = grading_for(lambda u: np.log(narrow(u))[None], 1e-8)
    exact = quad(narrow, -1, 1, points=[0.05, 0.1, 0.15], epsabs=1e-13)[0]
    nodes, weights = grading.rule(72)
    assert np.all(weights > 0)
    assert np.all(np.diff(nodes) > 0)
    assert np.abs(nodes).max() < 1
    assert abs(weights @ narrow(nodes) - exact) < 1e-8
    even, even_weights = np.polynomial.legendre.leggauss(72)
    assert abs(even_weights @ narrow(even) - exact) > 1e-4


def test_a_finer_rule_of_the_same_grading():
    nodes, weights = Grading(np.linspace(0.02, 0.4, 32)).rule(60)
    fine, fine_weights = finer_rule(nodes, weights, 130)
    assert fine.shape == (130,)
    assert np.all(np.diff(fine) > 0)
    for degree in range(6):
        exact = (1 - (-1) ** (degree + 1)) / (degree + 1)
        assert abs(weights @ nodes**degree - exact) < 1e-9
        assert abs(fine_weights @ fine**degree - exact) < 1e-9
    assert finer_rule(nodes, weights, 60)[0] is nodes


@pytest.mark.parametrize("finer", [45, 80, 1000])
def test_weights_of_a_rough_grading_stay_positive(finer):
    # Forty nodes for eight narrow places: the polynomial through them turns back, and normalisers
    # by weights of both signs were no numbers.
    widths = np.where(np.arange(256) % 32 < 2, 0.01, 0.3)
    nodes, weights = Grading(widths).rule(40)
    fine, fine_weights = finer_rule(nodes, weights, finer)
    assert np.all(np.diff(fine) > 0)
    assert fine_weights.min() > 0
    assert abs(fine_weights.sum() - 2) < 0.05


@pytest.mark.parametrize("tol", [1e-3, 1e-8])
def test_banded_equations_fit_like_a_singular_value_decomposition(tol):
    spread = spread_for(tol)
    axis = Axis.padded(200, spread, pad_for(tol, spread), 1.25)
    values = np.sin(9 * axis.nodes)[:, None]
    ridge = ridge_for(tol)
    ours = banded_fit(axis.nodes, axis.anchors, axis.precision, ridge, values)
    factor = factor_axis(axis.nodes, axis.anchors, axis.precision)
    gain = factor.singular / (factor.singular**2 + len(axis.nodes) * ridge)
    theirs = (factor.lift * gain) @ (factor.left.T @ values)
    x = np.linspace(-1, 1, 501)
    at = features(x, axis.anchors, axis.precision)
    np.testing.assert_allclose(at @ ours, at @ theirs, atol=1e-2 * tol)
    np.testing.assert_allclose((at @ ours)[:, 0], np.sin(9 * x), atol=tol)


@pytest.fixture(scope="module")
def drifting():
    """x' = 0.7 u + cos(t) + N(0, 0.4^2): no two transitions are alike."""
    return psd.learn(
        psd.additive_gaussian(
            lambda u, t: 0.7 * u + 0.5 * jnp.cos(jnp.asarray(t, dtype=float)),
            lambda x: x,
            0.16,
            0.25,
            [0.0],
            0.5,
            state_box=([-5.0], [5.0]),
        ),
        1e-4,
        engine="nodes",
    )


def kalman(ys):
    mean, variance, means = 0.0, 0.5, []
    for t, y in enumerate(ys, start=1):
        mean, variance = 0.7 * mean + 0.5 * np.cos(t), 0.49 * variance + 0.16
        if not np.isnan(y):
            gain = variance / (variance + 0.25)
            mean, variance = mean + gain * (y - mean), (1 - gain) * variance
        means.append(mean)
    return np.array(means)


@pytest.mark.slow
def test_every_step_has_its_own_transition(drifting):
    ys = np.random.default_rng(0).normal(size=12)
    post = psd.run_filter(drifting, ys)
    np.testing.assert_allclose(post.mean[:, 0], kalman(ys), atol=1e-4)
    again = psd.run_filter(drifting, ys[::-1])
    np.testing.assert_allclose(again.mean[:, 0], kalman(ys[::-1]), atol=1e-4)


@pytest.mark.long
def test_gaps_in_time_pass_through_the_transitions_between(drifting):
    ys = np.array([0.3, np.nan, np.nan, -0.4, np.nan, 0.9])
    seen = ~np.isnan(ys)
    post = psd.run_filter(drifting, ys[seen], times=1 + np.flatnonzero(seen))
    np.testing.assert_allclose(post.mean[:, 0], kalman(ys)[seen], atol=1e-4)


def test_a_tolerance_below_rounding_is_refused(drifting):
    with pytest.raises(ValueError, match=r"tol must be at least 1e-10"):
        psd.learn(drifting.filled.ssm, 1e-12, engine="nodes")
