"""Sums of blocks against quadrature and against the families they come from."""

import jax
import numpy as np
import pytest
from helpers import make, slow, wide_rule

import psdfilter as psd
from psdfilter._density.block_conversions import as_blocks
from psdfilter._density.blocks import push_forward

# One kind of each family, and in the slow suite another that is stored alike.
KINDS = ["scattered_full", "full_mixture", slow("mixture"), slow("shared_precision")]


@pytest.fixture(scope="module", params=KINDS)
def pair(request):
    f = make(request.param, 3, 2)
    return f, as_blocks("f", f)


@pytest.mark.long
def test_blocks_are_the_model_they_come_from(pair):
    f, blocks = pair
    x = np.random.default_rng(0).normal(size=(40, 2))
    np.testing.assert_allclose(blocks(x), f(x), rtol=1e-10)
    np.testing.assert_allclose(blocks.log_density(20 * x), f.log_density(20 * x), rtol=1e-9)
    np.testing.assert_allclose(blocks.integral(), psd.integral(f), rtol=1e-10)
    assert blocks.order == f.order


@pytest.mark.long
def test_moments_and_marginals(pair):
    f, blocks = pair
    for got, wanted in zip(blocks.moments(), psd.moments(f), strict=True):
        np.testing.assert_allclose(got, wanted, atol=1e-10)
    t = np.linspace(-2, 2, 9)
    np.testing.assert_allclose(
        blocks.marginal(1)(t[:, None]), psd.marginal(f, 1)(t[:, None]), rtol=1e-8
    )
    np.testing.assert_allclose(blocks.cdf(0, t), psd.cdf(f, 0, t), atol=1e-10)
    q = np.array([0.05, 0.5, 0.95])
    np.testing.assert_allclose(blocks.cdf(0, blocks.quantile(0, q)), q, atol=1e-12)
    assert list(np.asarray(blocks.quantile(1, [0.0, 1.0]))) == [-np.inf, np.inf]


@pytest.mark.long
def test_draws_have_the_distribution(pair):
    _, blocks = pair
    draws = np.asarray(psd.sample(blocks, key=jax.random.key(1), num=2000))
    for axis in range(2):
        levels = np.sort(np.asarray(blocks.cdf(axis, draws[:, axis])))
        distance = np.abs(levels - (np.arange(2000) + 0.5) / 2000).max()
        assert distance < 2.2 / np.sqrt(2000)  # Kolmogorov's distance: level 1e-4


@pytest.mark.long
def test_a_transition_is_the_integral_over_the_old_state(pair):
    f, blocks = pair
    F, b, W = np.array([[0.8, 0.3], [-0.2, 0.5]]), np.array([0.1, -0.2]), np.diag([0.3, 0.1])
    moved = push_forward(blocks, F, b, W)
    rule = wide_rule(2)
    x = np.random.default_rng(0).normal(size=(8, 2))
    delta = x[:, None] - (rule.nodes @ F.T + b)[None]
    kernel = np.exp(-0.5 * np.einsum("nmd,de,nme->nm", delta, np.linalg.inv(W), delta))
    kernel /= 2 * np.pi * np.sqrt(np.linalg.det(W))
    wanted = kernel @ (rule.weights * np.asarray(f(rule.nodes)))
    np.testing.assert_allclose(moved(x), wanted, rtol=1e-7)
    np.testing.assert_allclose(moved.integral(), blocks.integral(), rtol=1e-10)


def test_a_transition_with_singular_noise_and_matrix():
    """F and W of rank one: the law stays of mass one and has the right moments."""
    blocks = as_blocks("f", make("scattered_full", 3, 2))
    F, W = np.array([[1.0, 0.5], [2.0, 1.0]]), np.zeros((2, 2))
    moved = push_forward(blocks, F, None, W)
    mean, covariance = blocks.moments()
    got = moved.moments()
    np.testing.assert_allclose(got[0], F @ mean, atol=1e-10)
    np.testing.assert_allclose(got[1], F @ covariance @ F.T, atol=1e-10)
    np.testing.assert_allclose(moved.integral(), blocks.integral(), rtol=1e-9)


@pytest.mark.long
def test_singular_blocks_have_laws_but_no_density():
    f = psd.GaussianBlocks.mixture([0.25, 0.75], [[0.0, 1.0], [2.0, 3.0]], np.diag([1.0, 0.0]))
    mean, covariance = f.moments()
    np.testing.assert_allclose(mean, [1.5, 2.5])
    np.testing.assert_allclose(covariance, [[1.75, 0.75], [0.75, 0.75]])
    np.testing.assert_allclose(f.cdf(1, [0.9, 1.1, 2.9, 3.1]), [0.0, 0.25, 0.25, 1.0])
    assert set(np.asarray(psd.sample(f, key=jax.random.key(0), num=50)[:, 1])) == {1.0, 3.0}
    np.testing.assert_allclose(f.marginal(0)([[0.0]]), 0.25 * 0.3989422804 + 0.75 * 0.0539909665)
    with pytest.raises(Exception, match="no density"):
        f([0.0, 1.0])


def test_empty_blocks_are_no_part():
    f = psd.GaussianBlocks.mixture([0.5, 0.5, 0.0], np.zeros((3, 1)), np.ones((3, 1, 1)))
    g = psd.GaussianBlocks.mixture([1.0], np.zeros((1, 1)), np.ones((1, 1, 1)))
    x = np.linspace(-3, 3, 7)[:, None]
    np.testing.assert_allclose(f(x), g(x), rtol=1e-12)
    np.testing.assert_allclose(f.moments()[1], g.moments()[1], rtol=1e-12)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"weights": [0.5]}, r"weights must have shape \(2,\)"),
        ({"weights": [0.5, -0.5]}, "non-negative"),
        ({"covariances": np.ones((3, 2, 2))}, r"covariances must have shape \(2, 2, 2\)"),
        ({"covariances": np.diag([1.0, -1.0])}, "positive semidefinite"),
        ({"means": [[0.0, np.nan], [0.0, 0.0]]}, "means must be finite"),
    ],
)
def test_errors_name_the_argument(change, message):
    given = {"weights": [0.5, 0.5], "means": np.zeros((2, 2)), "covariances": np.eye(2)}
    with pytest.raises(ValueError, match=message):
        psd.GaussianBlocks.mixture(**(given | change))
