"""The adaptive engine against dense references and Kalman's filter, which share no code with it."""

import importlib.util
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import psdfilter as psd
from psdfilter._inference.adaptive import laws, rules, smooth
from psdfilter._inference.adaptive.plan import plan_for
from psdfilter._inference.adaptive.reach import frame_of
from psdfilter._inference.adaptive.run import run
from psdfilter._inference.adaptive.state import evaluate
from psdfilter._inference.adaptive.tables import values_of

_spec = importlib.util.spec_from_file_location(
    "adaptive_models", Path(__file__).with_name("models.py")
)
models = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(models)

QUICK = ["student3", "two_modes", "one_step"]


def _run(case, tol):
    num = len(case.ys)
    return run(case.ssm, plan_for(tol), case.ys, np.arange(1, num + 1), np.ones(num, dtype=int))


def _errors(case, trace):
    """Distances to a dense filter, its log Z, and how far it is from one three times as coarse.

    The dense filter is of first order where Q jumps, and of second where it has a kink.
    """
    case.num -= case.num % 3
    ref, log_z, x, h = models.dense(case)
    values = values_of(case.ssm)
    found = [np.exp(evaluate(values, law, x)[0]) for law in trace.laws]
    case.num //= 3
    coarse, *_ = models.dense(case)
    own = np.sum(np.abs(coarse - ref[:, 1::3]), axis=1) * 3 * h
    return np.sum(np.abs(np.array(found) - ref), axis=1) * h, log_z, own


def _silent_steps(name, tol):
    """Steps that are wrong without a code."""
    case = models.REGISTRY[name]()
    trace = _run(case, tol)
    tv, _, own = _errors(case, trace)
    assert np.median(own) < 0.05  # the reference knows something
    # Of first order, the reference is off by half the difference; of second, by an eighth.
    return np.flatnonzero((tv > 3 * tol + 0.5 * own) & (trace.codes == 0))


@pytest.mark.slow
@pytest.mark.parametrize("name", QUICK)
def test_right_or_loud(name):
    assert len(_silent_steps(name, 1e-3)) == 0


@pytest.mark.slow
def test_a_prior_far_wider_than_the_noise():
    """Old nodes lie several deviations of the noise apart: one of them holds the whole sum."""
    ssm = psd.additive_gaussian(lambda x: x, lambda x: x + jnp.sin(x), 0.25, 0.25, 0.0, 1e4)
    y = 60.56567767
    post = psd.run_filter(psd.learn(ssm, 1e-3), np.array([y]))
    x = np.linspace(50.0, 70.0, 20001)
    prior = np.exp(-0.5 * x**2 / 10000.25) / np.sqrt(2 * np.pi * 10000.25)
    f = prior * np.exp(-0.5 * (y - x - np.sin(x)) ** 2 / 0.25) / np.sqrt(2 * np.pi * 0.25)
    total = np.sum(f) * 1e-3
    assert abs(float(post.log_likelihoods[0]) - np.log(total)) < 1e-3
    found = np.asarray(post.density(0)(x[:, None]))
    assert np.sum(np.abs(found - f / total)) * 1e-3 < 1e-3


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(set(models.REGISTRY) - {"outlier_50"}))
def test_right_or_loud_everywhere(name):
    # Other tolerances are those of the zoo.
    assert len(_silent_steps(name, 1e-3)) == 0


def _kalman(ys):
    mean, var, out = 0.0, 1.0, []
    for y in ys[:, 0]:
        mean, var = 0.9 * mean, 0.81 * var + 0.25
        total = var + 0.25
        log_z = -0.5 * ((y - mean) ** 2 / total + np.log(2 * np.pi * total))
        mean, var = mean + var / total * (y - mean), var * (1 - var / total)
        out.append((mean, var, log_z))
    return np.array(out)


@pytest.mark.slow
def test_outliers_of_fifty_deviations_are_followed():
    case = models.REGISTRY["outlier_50"]()
    trace, truth = _run(case, 1e-3), _kalman(case.ys)
    np.testing.assert_allclose(trace.mean[:, 0], truth[:, 0], atol=1e-4)
    np.testing.assert_allclose(trace.log_masses, truth[:, 2], atol=1e-4)
    assert np.all(trace.codes == 0)


def test_nested_rules_have_their_degrees():
    rule = rules.patterson()
    for weights, degree in zip(rule.weights, (22, 10, 4), strict=True):
        for power in range(0, degree + 1, 2):
            assert abs(weights @ rule.nodes**power - 2 / (power + 1)) < 1e-13
    x = np.linspace(0.0, 1.0, 65)
    for weights in rules.equispaced(65):
        assert abs(weights @ np.exp(x) / 64 - (np.e - 1)) < 1e-9


@pytest.mark.long
def test_smoothing_laws_and_steps_agree():
    case = models.REGISTRY["outlier_6"]()
    case.ys = case.ys[:8]
    trace, values = _run(case, 1e-3), values_of(case.ssm)
    truth = _kalman(case.ys)
    back = smooth.smooth(values, trace, 1e-3, 1e-4)
    mean, var = truth[-1, 0], truth[-1, 1]
    for k in range(len(truth) - 2, -1, -1):
        gain = truth[k, 1] * 0.9 / (0.81 * truth[k, 1] + 0.25)
        var = truth[k, 1] + gain**2 * (var - 0.81 * truth[k, 1] - 0.25)
        mean = truth[k, 0] + gain * (mean - 0.9 * truth[k, 0])
        assert abs(back.mean[k, 0] - mean) < 1e-3
        assert abs(back.covariance[k, 0, 0] - var) < 1e-3
    law = trace.laws[-1]
    level = np.array([0.1, 0.5, 0.9])
    np.testing.assert_allclose(laws.cdf(law, laws.quantile(law, level)), level, atol=1e-6)
    paths = smooth.draw_paths(values, trace, np.random.default_rng(0), 4000)
    assert abs(paths[:, 0].mean() - back.mean[0, 0]) < 6 * paths[:, 0].std() / 4000**0.5
    model = psd.learn(case.ssm, 1e-3, engine="adaptive")
    state = psd.init(model)
    for y in case.ys:
        state = psd.update(model, psd.predict(model, state), y)
    assert abs(state.log_likelihood - trace.log_masses.sum()) < 1e-3
    ahead = smooth.forecast(values, frame_of(case.ssm), law, [(9, None)], 1e-4)
    assert abs(ahead[0].masses @ ahead[0].nodes - 0.9 * truth[-1, 0]) < 1e-3


@pytest.mark.long
def test_likelihoods_that_overflow_far_away_do_no_harm():
    """exp(x / 2) underflows at x = -709 in such a way that JAX's logpdf is +inf there."""

    def log_observation(x, y):
        return jax.scipy.stats.norm.logpdf(y[0], 0.0, jnp.exp(x[0] / 2))

    def same(x, y):
        return jax.scipy.stats.norm.logpdf(y[0] * jnp.exp(-x[0] / 2)) - x[0] / 2

    found = [
        psd.run_filter(
            psd.learn(
                psd.linear_gaussian(0.9, 0.1, None, None, -0.2, 0.25, log_observation=log_g), 1e-3
            ),
            np.array([0.5, -1.0]),
            first="observe",
        ).log_likelihoods
        for log_g in (log_observation, same)
    ]
    np.testing.assert_allclose(found[0], found[1], atol=1e-3)
