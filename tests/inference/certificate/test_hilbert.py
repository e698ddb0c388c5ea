"""Hilbert's metric, Birkhoff and Dobrushin coefficients on matrices: the inequalities."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from psdfilter._inference.certificate.hilbert import (
    birkhoff_coefficient,
    birkhoff_of,
    dobrushin_coefficient,
    hilbert_after_mixing,
    hilbert_distance,
    log_projective_diameter,
    mixing_birkhoff,
    mixing_constant,
    projective_diameter,
    tv_of_hilbert,
)

SLACK = 1 + 1e-9
TINY = 1e-12


@st.composite
def matrices(draw, rows=None):
    """Positive matrices, from nearly constant to nearly singular."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    spread = draw(st.sampled_from([0.01, 0.3, 1.0, 4.0]))
    shape = (rows or draw(st.integers(2, 7)), draw(st.integers(2, 7)))
    return np.exp(spread * rng.normal(size=shape))


@st.composite
def kernels_and_measures(draw):
    """A Markov kernel and two probabilities, near each other or not."""
    K = draw(matrices())
    K = K / K.sum(axis=1, keepdims=True)
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    mu = np.exp(draw(st.sampled_from([0.1, 1.0, 5.0])) * rng.normal(size=len(K)))
    nu = mu * np.exp(draw(st.sampled_from([1e-3, 0.3, 3.0])) * rng.normal(size=len(K)))
    return K, mu / mu.sum(), nu / nu.sum()


def tv(mu, nu):
    return np.sum(np.abs(mu / mu.sum() - nu / nu.sum()))


@given(matrices())
def test_diameter_is_the_largest_cross_ratio(K):
    largest = max(
        np.log(K[u, x] * K[v, y] / (K[u, y] * K[v, x]))
        for u in range(len(K))
        for v in range(len(K))
        for x in range(K.shape[1])
        for y in range(K.shape[1])
    )
    np.testing.assert_allclose(projective_diameter(K), largest, rtol=1e-10, atol=1e-12)


@given(kernels_and_measures())
def test_hilbert_distance_is_a_projective_metric(case):
    _, mu, nu = case
    rho = np.linspace(1.0, 2.0, len(mu))
    h = hilbert_distance(mu, nu)
    np.testing.assert_allclose(hilbert_distance(3.0 * nu, 0.2 * mu), h, rtol=1e-9, atol=TINY)
    assert hilbert_distance(mu, 5.0 * mu) < TINY
    assert h <= (hilbert_distance(mu, rho) + hilbert_distance(rho, nu)) * SLACK + TINY


@given(kernels_and_measures())
def test_total_variation_is_at_most_two_tanh(case):
    _, mu, nu = case
    h = hilbert_distance(mu, nu)
    assert tv(mu, nu) <= tv_of_hilbert(h) * SLACK + TINY
    assert tv_of_hilbert(h) <= 0.5 * h * SLACK
    assert 0.5 * h <= 2 / np.log(3) * h


@pytest.mark.parametrize("h", [1e-3, 0.5, 3.0, 20.0])
def test_two_tanh_is_attained(h):
    # mu / nu takes two values; nu splits so that both differences are equal.
    nu = np.array([1.0, np.exp(h / 2)])
    mu = nu[::-1]
    np.testing.assert_allclose(hilbert_distance(mu, nu), h, rtol=1e-12)
    np.testing.assert_allclose(tv(mu, nu), tv_of_hilbert(h), rtol=1e-12)


@given(kernels_and_measures())
def test_kernels_contract_by_their_birkhoff_coefficient(case):
    K, mu, nu = case
    moved = hilbert_distance(mu @ K, nu @ K)
    assert moved <= birkhoff_coefficient(K) * hilbert_distance(mu, nu) * SLACK + TINY
    assert moved <= projective_diameter(K) * SLACK + TINY


@given(kernels_and_measures())
def test_mixing_turns_total_variation_into_hilbert_distance(case):
    K, mu, nu = case
    sigma, distance = mixing_constant(K), tv(mu, nu)
    moved = hilbert_distance(mu @ K, nu @ K)
    sharp = hilbert_after_mixing(distance, sigma)
    assert moved <= sharp * SLACK + TINY
    assert sharp <= (sigma**-2 - 1) * distance * SLACK + TINY
    assert (sigma**-2 - 1) * distance <= sigma**-2 * distance


@given(matrices())
def test_mixing_bounds_the_diameter(K):
    sigma = mixing_constant(K)
    assert projective_diameter(K) <= 4 * np.log(1 / sigma) * SLACK + TINY
    assert birkhoff_coefficient(K) <= mixing_birkhoff(sigma) * SLACK + TINY
    np.testing.assert_allclose(
        mixing_birkhoff(sigma), birkhoff_of(-4 * np.log(sigma)), rtol=1e-8, atol=1e-12
    )
    xi = K.min(axis=0) / sigma
    assert np.all(sigma * xi <= K * SLACK)
    assert np.all(xi / sigma * SLACK >= K)


@given(matrices(rows=5), st.integers(0, 2**32 - 1))
def test_birkhoff_is_submultiplicative(K, seed):
    other = np.exp(np.random.default_rng(seed).normal(size=(K.shape[1], 4)))
    product = birkhoff_coefficient(K @ other)
    assert product <= birkhoff_coefficient(K) * birkhoff_coefficient(other) * SLACK + TINY


@given(matrices(), st.integers(0, 2**32 - 1))
def test_an_observation_changes_neither_diameter_nor_mixing(K, seed):
    G = np.exp(3 * np.random.default_rng(seed).normal(size=K.shape[1]))
    np.testing.assert_allclose(
        projective_diameter(K * G), projective_diameter(K), rtol=1e-8, atol=1e-10
    )
    np.testing.assert_allclose(mixing_constant(K * G), mixing_constant(K), rtol=1e-12)


@given(matrices(rows=4), matrices(rows=4))
def test_diameter_of_a_product_of_factors(first, second):
    whole = (first[:, :, None] * second[:, None, :]).reshape(len(first), -1)
    np.testing.assert_allclose(
        log_projective_diameter([np.log(first), np.log(second)]),
        projective_diameter(whole),
        rtol=1e-9,
    )


@given(kernels_and_measures(), st.integers(0, 2**32 - 1))
def test_dobrushin(case, seed):
    K, mu, nu = case
    d = dobrushin_coefficient(K)
    assert np.sum(np.abs((mu - nu) @ K)) <= d * tv(mu, nu) * SLACK + TINY
    assert d <= birkhoff_coefficient(K) * SLACK + TINY
    assert d <= 1 - np.sum(K.min(axis=0)) + TINY
    other = np.random.default_rng(seed).dirichlet(np.ones(3), size=K.shape[1])
    assert dobrushin_coefficient(K @ other) <= d * dobrushin_coefficient(other) * SLACK + TINY
    weights = np.linspace(0.5, 1.5, K.shape[1])
    np.testing.assert_allclose(dobrushin_coefficient(K / weights, weights), d, rtol=1e-9)


def test_zeros():
    assert hilbert_distance([1.0, 0.0, 2.0], [2.0, 0.0, 4.0]) == 0.0
    assert hilbert_distance([1.0, 0.0], [1.0, 1.0]) == np.inf
    assert hilbert_distance([1.0, 0.0], [0.0, 1.0]) == np.inf
    assert birkhoff_coefficient(np.eye(3)) == 1.0
    assert mixing_constant(np.eye(2)) == 0.0
    assert dobrushin_coefficient(np.eye(2)) == 1.0
    assert dobrushin_coefficient(np.ones((3, 2))) == 0.0
    assert projective_diameter(np.outer([1.0, 2.0], [1.0, 0.0, 3.0])) < TINY


def test_bad_input_is_named():
    with pytest.raises(ValueError, match="vectors of one length"):
        hilbert_distance([1.0], [1.0, 2.0])
    with pytest.raises(ValueError, match="must not be negative"):
        hilbert_distance([1.0, -1.0], [1.0, 2.0])
    with pytest.raises(ValueError, match="K must be a matrix"):
        birkhoff_coefficient(np.ones(3))
    with pytest.raises(ValueError, match="non-negative"):
        mixing_constant(-np.ones((2, 2)))
    with pytest.raises(ValueError, match="zero everywhere"):
        mixing_constant(np.zeros((2, 2)))
    with pytest.raises(ValueError, match="positive mass"):
        dobrushin_coefficient(np.array([[1.0, 1.0], [0.0, 0.0]]))


def test_factor_of_the_bound_is_real():
    """A chain of two states that flips with probability .05, learned with .06 for one of them.

    The observations say nothing. No step is off by more than .01, yet the filter drifts nine times
    as far: a bound of the whole error by the largest error of a step needs a factor.
    """
    Q, learned = np.array([[0.95, 0.05], [0.05, 0.95]]), np.array([[0.94, 0.06], [0.05, 0.95]])
    exact = approximate = np.array([0.5, 0.5])
    steps = []
    for _ in range(300):
        steps.append(np.sum(np.abs(approximate @ learned - approximate @ Q)))
        exact, approximate = exact @ Q, approximate @ learned
    error, sigma = np.sum(np.abs(approximate - exact)), mixing_constant(Q)
    assert max(steps) == pytest.approx(0.01)
    assert error == pytest.approx(0.0909, abs=1e-4)
    assert sigma == pytest.approx(np.sqrt(0.05 / 0.95))
    sharp, paper = (3 + sigma**-4) / 4, 1 + (1 + sigma**2) / (sigma**4 * np.log(3))
    assert error <= max(steps) * sharp <= max(steps) * paper
