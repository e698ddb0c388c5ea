"""Models of other libraries give the numbers of those libraries."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import psdfilter as psd

RNG = np.random.default_rng(1)
Y = np.cumsum(RNG.normal(size=40))


@pytest.mark.long
def test_results_of_statsmodels_become_a_model_with_their_likelihood():
    tsa = pytest.importorskip("statsmodels.api").tsa
    results = tsa.SARIMAX(Y, order=(2, 0, 1), trend="c").fit(disp=0)
    model = psd.learn(psd.from_statsmodels(results))
    post = psd.run_filter(model, Y, first="observe")
    assert float(post.log_likelihood) == pytest.approx(results.llf, abs=1e-6)
    ahead = psd.forecast(model, post, 3).observations
    other = results.get_forecast(3)
    np.testing.assert_allclose(ahead.mean[:, 0], other.predicted_mean, atol=1e-8)
    np.testing.assert_allclose(ahead.covariance[:, 0, 0], other.var_pred_mean, rtol=1e-8)


class Initial(NamedTuple):
    mean: np.ndarray
    cov: np.ndarray


class Map(NamedTuple):
    weights: np.ndarray
    bias: np.ndarray
    cov: np.ndarray


class Linear(NamedTuple):
    initial: Initial
    dynamics: Map
    emissions: Map


class Nonlinear(NamedTuple):
    initial_mean: np.ndarray
    initial_covariance: np.ndarray
    dynamics_function: object
    dynamics_covariance: np.ndarray
    emission_function: object
    emission_covariance: np.ndarray


@pytest.mark.long
def test_parameters_of_dynamax_by_the_joint_law_of_two_observations():
    params = Linear(
        Initial(np.array([0.3]), np.array([[0.5]])),
        Map(np.array([[0.8]]), np.array([0.1]), np.array([[0.2]])),
        Map(np.array([[2.0]]), np.array([0.4]), np.array([[0.3]])),
    )
    bent = Nonlinear(
        params.initial.mean, params.initial.cov, lambda x: 0.8 * x + 0.1,
        params.dynamics.cov, lambda x: 2.0 * x + 0.4, params.emissions.cov,
    )  # fmt: skip
    mean = np.array([2 * 0.3 + 0.4, 2 * (0.24 + 0.1) + 0.4])
    later = 0.64 * 0.5 + 0.2
    cov = np.array([[4 * 0.5 + 0.3, 4 * 0.8 * 0.5], [4 * 0.8 * 0.5, 4 * later + 0.3]])
    want = stats.multivariate_normal(mean, cov).logpdf([0.9, 1.4])
    for given, tol in ((params, 1e-10), (bent, 1e-4)):
        model = psd.learn(psd.from_dynamax(given), 1e-4)
        post = psd.run_filter(model, [0.9, 1.4], first="observe")
        assert float(post.log_likelihood) == pytest.approx(want, abs=tol)
    with pytest.raises(ValueError, match="ParamsLGSSM"):
        psd.from_dynamax(3.0)
    many = params._replace(emissions=params.emissions._replace(weights=np.ones((3, 1, 1))))
    with pytest.raises(ValueError, match=r"emissions\.weights of shape \(3, 1, 1\)"):
        psd.from_dynamax(many)
    with pytest.raises(ValueError, match="filter_results"):
        psd.from_statsmodels(3.0)


@pytest.mark.long
def test_dynamax_itself():
    """Its own filters, where they are exact; `psd_solve` of dynamax adds 1e-9 to a diagonal."""
    linear = pytest.importorskip("dynamax.linear_gaussian_ssm", exc_type=ImportError)
    bent = pytest.importorskip("dynamax.nonlinear_gaussian_ssm", exc_type=ImportError)
    key = jax.random.key(0)
    params, _ = linear.LinearGaussianSSM(2, 1).initialize(
        key, dynamics_bias=jnp.array([0.1, 0.0]), emission_bias=jnp.array([0.4])
    )
    theirs = linear.lgssm_filter(params, jnp.asarray(Y)[:, None])
    ours = psd.run_filter(psd.learn(psd.from_dynamax(params)), Y, first="observe")
    assert float(ours.log_likelihood) == pytest.approx(float(theirs.marginal_loglik), abs=1e-6)
    np.testing.assert_allclose(ours.mean, theirs.filtered_means, atol=1e-7)
    params = bent.ParamsNLGSSM(
        jnp.array([0.3]), jnp.array([[0.5]]), lambda x: 0.8 * x + 0.1, jnp.array([[0.2]]),
        lambda x: 2.0 * x + 0.4, jnp.array([[0.3]]),
    )  # fmt: skip
    theirs = bent.extended_kalman_filter(params, jnp.asarray(Y)[:, None])
    ours = psd.run_filter(psd.learn(psd.from_dynamax(params), 1e-5), Y, first="observe")
    assert float(ours.log_likelihood) == pytest.approx(float(theirs.marginal_loglik), abs=1e-3)
    driven, _ = linear.LinearGaussianSSM(2, 1, input_dim=1).initialize(
        key, dynamics_input_weights=jnp.ones((2, 1))
    )
    with pytest.raises(ValueError, match=r"must not have inputs, got dynamics\.input_weights"):
        psd.from_dynamax(driven)


def test_an_online_filter_is_told_what_happens():
    model = psd.learn(psd.linear_gaussian(1.0, 0.1, 1.0, 0.2, 0.0, 1.0))
    kf = psd.OnlineFilter(model)
    for y in (0.3, float("nan"), 0.5):
        kf.predict().update(y)
    post = psd.run_filter(model, [0.3, np.nan, 0.5])
    assert kf.log_likelihood == pytest.approx(float(post.log_likelihood), abs=1e-12)
    np.testing.assert_allclose(kf.x, post.mean[-1])
    np.testing.assert_allclose(kf.P, post.covariance[-1])
    at = jnp.array([[0.4]])
    np.testing.assert_allclose(kf.pdf(at), post.density(2)(at))
    assert "3 transitions" in repr(kf)
