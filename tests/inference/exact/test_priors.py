"""Linear-Gaussian models with multimodal priors: Kalman filters, mixed by their evidence."""

import numpy as np
import pytest
from helpers import kalman, random_model, simulate

import psdfilter as psd


def build(model: dict, prior) -> psd.StateSpaceModel:
    matrices = (model[name] for name in "FQHR")
    return psd.linear_gaussian(*matrices, None, None, b=model["b"], d=model["d"], prior=prior)


@pytest.fixture(scope="module")
def problem():
    rng = np.random.default_rng(7)
    model = random_model(rng, 2, 1)
    return rng, model, simulate(rng, model, 20)


def mixed(ys, model, weights, means, covariances):
    """Weights, means, covariances and log-likelihoods of a bank of textbook filters."""
    runs = [
        kalman(ys, **{**model, "m0": m, "P0": P}) for m, P in zip(means, covariances, strict=True)
    ]
    logs = np.stack([run[2] for run in runs])
    scores = np.log(weights)[:, None] + np.cumsum(logs, axis=1)
    totals = np.logaddexp.reduce(scores, axis=0)
    shares = np.exp(scores - totals)
    each_m, each_P = (np.stack([run[k] for run in runs]) for k in (0, 1))
    mean = np.einsum("kt,ktd->td", shares, each_m)
    delta = each_m - mean[None]
    covariance = np.einsum("kt,ktde->tde", shares, each_P)
    covariance += np.einsum("kt,ktd,kte->tde", shares, delta, delta)
    return shares, mean, covariance, np.diff(totals, prepend=0.0)


@pytest.mark.long
@pytest.mark.parametrize("shared", [True, False])
def test_a_mixture_is_a_bank_of_kalman_filters(problem, shared):
    rng, model, ys = problem
    weights, means = np.array([0.2, 0.5, 0.3]), 4 * rng.normal(size=(3, 2))
    roots = rng.normal(size=(3, 2, 2))
    covariances = roots @ np.swapaxes(roots, 1, 2) + np.eye(2)
    if shared:
        covariances[:] = covariances[0]
    prior = psd.GaussianBlocks.mixture(weights, means, covariances)
    learned = psd.learn(build(model, prior))
    post = psd.run_filter(learned, ys)
    shares, mean, covariance, logs = mixed(ys, model, weights, means, covariances)
    np.testing.assert_allclose(post.log_likelihoods, logs, atol=1e-10)
    np.testing.assert_allclose(post.mean, mean, atol=1e-10)
    np.testing.assert_allclose(post.covariance, covariance, atol=1e-10)
    np.testing.assert_allclose(
        np.exp(np.asarray(post.density(4).log_weights)), shares[:, 4], atol=1e-10
    )
    assert learned.report.order == 3


@pytest.mark.long
def test_a_canonical_mixture_is_the_same_prior(problem):
    rng, model, ys = problem
    weights, means = np.array([0.6, 0.4]), rng.normal(size=(2, 2))
    covariances = np.stack([np.eye(2), np.diag([0.3, 2.0])])
    both = [
        psd.run_filter(psd.learn(build(model, prior)), ys)
        for prior in (
            psd.from_mixture(weights, means, covariances),
            psd.GaussianBlocks.mixture(weights, means, covariances),
        )
    ]
    np.testing.assert_allclose(both[0].mean, both[1].mean, atol=1e-11)
    np.testing.assert_allclose(both[0].log_likelihood, both[1].log_likelihood, atol=1e-11)


@pytest.fixture(scope="module")
def interfering(problem):
    """A PSD prior of order three whose components interfere, filtered."""
    rng, model, ys = problem
    anchors, factor = 2 * rng.normal(size=(3, 2)), rng.normal(size=(3, 2))
    prior = psd.GaussianPSD(anchors, factor, [0.4, 0.7])
    return prior, psd.run_filter(psd.learn(build(model, prior)), ys[:3])


def step_by_step(prior, model, ys):
    """The filter by product, marginal and partial evaluation of generalised models."""
    f, log_z = psd.generalize(psd.normalize(prior)), []
    Q = psd.conditional_gaussian(model["F"], model["Q"], model["b"])
    G = psd.conditional_gaussian(model["H"], model["R"], model["d"])
    for y in ys:
        ahead = psd.marginal(psd.product(f, Q, f_axes=(0, 1), g_axes=(0, 1, 2, 3)), (2, 3))
        joint = psd.product(ahead, psd.partial(G, 2, y))
        log_z.append(float(psd.log_integral(joint)))
        f = psd.normalize(joint)
    return f, log_z


@pytest.mark.slow
def test_a_psd_prior_keeps_its_order(problem, interfering):
    rng, model, ys = problem
    prior, post = interfering
    f, log_z = step_by_step(prior, model, ys[:3])
    np.testing.assert_allclose(post.log_likelihoods, log_z, atol=1e-10)
    x = np.asarray(post.mean[-1]) + 2 * rng.normal(size=(50, 2))
    density = post.density(2)
    np.testing.assert_allclose(density(x), f(x), rtol=1e-8, atol=1e-12)
    mean, covariance = psd.moments(f)
    np.testing.assert_allclose(post.mean[-1], mean, atol=1e-10)
    np.testing.assert_allclose(post.covariance[-1], covariance, atol=1e-10)
    assert density.order == 3
    assert float(np.min(density(10 * rng.normal(size=(500, 2))))) >= 0.0


@pytest.mark.long
def test_quantiles_of_a_psd_posterior(interfering):
    _, post = interfering
    q = post.quantile([0.1, 0.5, 0.9])
    for axis in range(2):
        below = post.density(1).cdf(axis, q[:, 1, axis])
        np.testing.assert_allclose(below, [0.1, 0.5, 0.9], atol=1e-9)


@pytest.mark.long
def test_components_that_interfere_may_differ_in_precision(problem):
    """Against a grid over the first state."""
    rng, model, ys = problem
    prior = psd.GeneralizedGaussianPSD.from_centers(
        rng.normal(size=(2, 2)), rng.normal(size=(2, 2)), np.stack([np.eye(2), 2 * np.eye(2)])
    )
    post = psd.run_filter(psd.learn(build(model, prior)), ys[:1])
    line = np.linspace(-8.0, 8.0, 401)
    u = np.stack(np.meshgrid(line, line, indexing="ij"), axis=-1).reshape(-1, 2)
    shares = np.asarray(prior(u))
    shares = shares / np.sum(shares)
    F, Q, H, R, b, d = (np.atleast_2d(np.asarray(model[name])) for name in "FQHRbd")
    ahead = u @ F.T + b
    spread = (H @ Q @ H.T + R)[0, 0]
    gap = np.asarray(ys)[0, 0] - (ahead @ H.T + d)[:, 0]
    likely = shares * np.exp(-0.5 * gap**2 / spread) / np.sqrt(2 * np.pi * spread)
    np.testing.assert_allclose(post.log_likelihood, np.log(np.sum(likely)), atol=1e-8)
    gain = (Q @ H.T)[:, 0] / spread
    mean = likely @ (ahead + gap[:, None] * gain[None, :]) / np.sum(likely)
    np.testing.assert_allclose(post.mean[0], mean, atol=1e-8)


@pytest.mark.slow
def test_damped_kernels_differ_by_their_damping(problem):
    """The paper's integrable kernels: p exp(-lambda |u|^2), whose filter tends to Kalman's."""
    _, model, _ = problem
    rng = np.random.default_rng(0)
    for damping in (1e-3, 1e-1):
        plain = psd.conditional_gaussian(model["F"], model["Q"], model["b"])
        damped = psd.conditional_gaussian(model["F"], model["Q"], model["b"], damping=damping)
        u = rng.normal(size=(20, 4))
        ratio = np.asarray(damped(u) / plain(u))
        np.testing.assert_allclose(ratio, np.exp(-damping * np.sum(u**2, axis=1)), rtol=1e-12)


@pytest.mark.slow
def test_components_that_interfere_with_precisions_of_their_own():
    """Against a dense grid of the prior's values, moved and corrected by formulas."""
    prior = psd.GeneralizedGaussianPSD.from_centers(
        [[-1.0], [0.8], [0.1]], [[1.0, 0.3], [-0.7, 0.6], [0.5, 0.2]], [[[1.0]], [[0.4]], [[2.0]]]
    )
    ssm = psd.linear_gaussian(0.9, 0.3, 1.0, 0.5, None, None, prior=prior)
    ys = [0.4, -0.6, 1.1]
    model = psd.learn(ssm)
    post = psd.run_filter(model, ys)
    x, w = np.polynomial.legendre.leggauss(600)
    x, w = 15 * x, 15 * w
    law = np.asarray(prior(x[:, None]))
    law, total = law / (w @ law), 0.0
    kernel = np.exp(-0.5 * (x[None] - 0.9 * x[:, None]) ** 2 / 0.3) / np.sqrt(0.6 * np.pi)
    for t, y in enumerate(ys):
        law = (law * w) @ kernel * np.exp(-0.5 * (y - x) ** 2 / 0.5) / np.sqrt(np.pi)
        mass = w @ law
        total, law = total + np.log(mass), law / mass
        np.testing.assert_allclose(post.mean[t, 0], w @ (law * x), atol=1e-10)
        np.testing.assert_allclose(post.density(t)(x[:, None]), law, atol=1e-9)
    np.testing.assert_allclose(post.log_likelihood, total, atol=1e-10)
    assert isinstance(post.density(1), psd.densities.PairwiseGaussianPSD)
    np.testing.assert_allclose(model.prior([0.3]), prior([0.3]) / psd.integral(prior), rtol=1e-12)
    np.testing.assert_allclose(psd.integral(post.density(2)), 1.0, atol=1e-12)
