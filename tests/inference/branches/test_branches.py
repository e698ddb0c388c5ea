"""Linear-Gaussian regimes in the plane, against a Gaussian for every history of regimes."""

from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import psdfilter as psd

F = np.array([[1.0, 0.5], [0.0, 1.0]])
PARTS = [
    (F, np.zeros(2), np.diag([0.01, 0.01])),
    (0.8 * F, np.array([0.3, 0.1]), np.diag([0.3, 0.8])),
]
H, R = np.array([[1.0, 0.0]]), 0.2
P = np.array([[0.9, 0.1], [0.2, 0.8]])
INITIAL = np.array([2 / 3, 1 / 3])
YS = np.cumsum(np.random.default_rng(0).normal(size=9))


@cache
def regimes():
    models = [psd.linear_gaussian(A, Q, H, R, np.zeros(2), np.eye(2), b=b) for A, b, Q in PARTS]
    return psd.switching(models, P)


def kalman(m, S, y):
    s, r = S[0, 0] + R, y - m[0]
    gain = S[:, 0] / s
    return -0.5 * (r * r / s + np.log(2 * np.pi * s)), m + gain * r, S - np.outer(gain, gain) * s


@cache
def all_histories():
    """log-likelihoods, probabilities of regimes and means, from 2^(T+1) Gaussians."""
    law = [(np.log(INITIAL[k]), k, np.zeros(2), np.eye(2)) for k in range(2)]
    logs, shares, means = [], [], []
    for y in YS:
        new = []
        for weight, j, m, S in law:
            for k, (A, b, Q) in enumerate(PARTS):
                log, mean, covariance = kalman(A @ m + b, A @ S @ A.T + Q, y)
                new.append((weight + np.log(P[j, k]) + log, k, mean, covariance))
        total = np.logaddexp.reduce([w for w, *_ in new])
        law = [(w - total, k, m, S) for w, k, m, S in new]
        weights, which = np.exp([w for w, *_ in law]), np.array([k for _, k, *_ in law])
        logs.append(total)
        shares.append([weights[which == k].sum() for k in range(2)])
        means.append(sum(w * m for w, (_, _, m, _) in zip(weights, law, strict=True)))
    return np.array(logs), np.array(shares), np.array(means)


def interacting_multiple_models():
    """IMM: one Gaussian for each regime, mixed before the transition."""
    weights, means, covariances = INITIAL, [np.zeros(2)] * 2, [np.eye(2)] * 2
    shares = []
    for y in YS:
        ahead = weights @ P
        logs, new_means, new_covariances = [], [], []
        for k, (A, b, Q) in enumerate(PARTS):
            mix = weights * P[:, k] / ahead[k]
            m = sum(mix[j] * means[j] for j in range(2))
            deltas = [means[j] - m for j in range(2)]
            S = sum(mix[j] * (covariances[j] + np.outer(deltas[j], deltas[j])) for j in range(2))
            log, mean, covariance = kalman(A @ m + b, A @ S @ A.T + Q, y)
            logs.append(np.log(ahead[k]) + log)
            new_means.append(mean)
            new_covariances.append(covariance)
        weights = np.exp(logs - np.logaddexp.reduce(logs))
        means, covariances = new_means, new_covariances
        shares.append(weights)
    return np.array(shares)


@pytest.mark.slow
def test_a_few_gaussians_are_as_good_as_all_histories():
    logs, shares, means = all_histories()
    post = psd.run_filter(psd.learn(regimes(), 5e-2, engine=psd.engines.Branches(order=8)), YS)
    np.testing.assert_allclose(post.log_likelihoods, logs, atol=2e-4)
    np.testing.assert_allclose(post.regimes, shares, atol=2e-4)
    np.testing.assert_allclose(post.mean, means, atol=2e-4)
    error = np.abs(np.asarray(post.regimes) - shares).sum(axis=1).max()
    assert error <= float(post.error_estimate) <= 5e-2
    assert psd.learn(regimes()).report.engine == "branches"


@pytest.mark.slow
def test_at_equal_order_errors_are_below_those_of_imm_and_fall_with_the_order():
    _, shares, _ = all_histories()

    def error(found):
        return np.abs(np.asarray(found) - shares).sum(axis=1).mean()

    errors = []
    for order in (1, 2, 4):
        model = psd.learn(regimes(), 1e-3, engine=psd.engines.Branches(order=order))
        with pytest.warns(psd.ResolutionWarning, match="ask for more Gaussians"):
            errors.append(error(psd.run_filter(model, YS).regimes))
    assert errors[0] < 0.8 * error(interacting_multiple_models())
    assert errors[1] < 0.5 * errors[0]
    assert errors[2] < 0.2 * errors[0]


@pytest.mark.long
def test_a_series_gets_as_many_gaussians_as_it_asks_for():
    post = psd.run_filter(psd.learn(regimes(), 5e-3, engine=psd.engines.Branches()), YS[:5])
    assert post.model.sizes.order > 8 or float(post.error_estimate) <= 5e-3
    np.testing.assert_allclose(post.log_likelihoods, all_histories()[0][:5], atol=5e-3)


@pytest.mark.slow
def test_an_autoregression_with_regimes_is_hamiltons_filter():
    regression = pytest.importorskip("statsmodels.tsa.regime_switching.markov_autoregression")
    rng, path = np.random.default_rng(4), [0.0]
    for t in range(80):
        k = (t // 20) % 2
        path.append((0.9, -0.4)[k] * path[-1] + (0.5, 1.0)[k] * rng.normal())
    ys = np.array(path)
    chain, slopes, sds = np.array([[0.95, 0.05], [0.1, 0.9]]), (0.9, -0.4), (0.5, 1.0)
    theirs = regression.MarkovAutoregression(
        ys, k_regimes=2, order=1, trend="n", switching_ar=True, switching_variance=True
    )
    # p[0->0], p[1->0], variances, autoregressive coefficients.
    params = np.array([chain[0, 0], chain[1, 0], sds[0] ** 2, sds[1] ** 2, *slopes])
    wanted = theirs.smooth(params)
    parts = [
        psd.linear_gaussian(a, s**2, 1.0, 1e-6, 0.0, 1.0) for a, s in zip(slopes, sds, strict=True)
    ]
    model = psd.learn(psd.switching(parts, chain), 1e-3, engine=psd.engines.Branches(order=2))
    with pytest.warns(psd.ResolutionWarning, match="81 of 81 smoothed laws.*averages over paths"):
        post = psd.run_smoother(model, ys, first="observe")
    np.testing.assert_allclose(
        post.filtered.regimes[1:], wanted.filtered_marginal_probabilities, atol=1e-4
    )
    np.testing.assert_allclose(np.sum(post.log_likelihoods[1:]), wanted.llf, atol=1e-3)
    np.testing.assert_allclose(post.regimes[1:], wanted.smoothed_marginal_probabilities, atol=0.05)


@pytest.mark.slow
def test_gradients_match_differences():
    def build(theta):
        leave = jax.nn.sigmoid(theta["leave"])
        chain = jnp.stack([jnp.stack([1 - leave, leave]), jnp.array([0.2, 0.8])])
        calm = psd.linear_gaussian(0.9, jnp.exp(theta["log_q"]), 1.0, 0.2, 0.0, 1.0)
        return psd.switching([calm, psd.linear_gaussian(0.5, 1.0, 1.0, 0.2, 0.0, 1.0)], chain)

    theta = {"leave": -2.0, "log_q": -2.0}
    engine = psd.engines.Branches(order=2)
    ll = psd.likelihood(build, theta, YS[:4], tol=0.5, engine=engine)
    slopes = jax.grad(ll)(theta)
    for name in theta:
        up, down = ({**theta, name: theta[name] + d} for d in (1e-5, -1e-5))
        assert abs(float(slopes[name]) - float(ll(up) - ll(down)) / 2e-5) < 1e-6


@pytest.mark.long
def test_what_is_not_linear_is_refused():
    bent = psd.additive_gaussian(jnp.sin, lambda x: x, 1.0, 1.0, 0.0, 1.0)
    with pytest.raises(ValueError, match="regime 0 must have linear-Gaussian dynamics"):
        psd.learn(psd.switching([bent, bent], P), engine="branches")
    line = psd.linear_gaussian(1.0, 1.0, 1.0, 1.0, 0.0, 1.0)
    with pytest.raises(ValueError, match="P must be a matrix, got a function of the state"):
        psd.learn(psd.switching([line, line], lambda u: jnp.eye(2)), engine="branches")
