"""Quantiles and draws of models of high order, which go by Legendre series."""

import jax
import numpy as np
import pytest
from scipy import stats

import psdfilter as psd


def ragged(order: int, seed: int = 0) -> psd.GaussianPSD:
    """Many narrow kernels with signs of all kinds: a density of many modes."""
    anchors = np.linspace(-1.0, 1.0, order)[:, None]
    factor = np.random.default_rng(seed).normal(size=(order, 2))
    return psd.GaussianPSD(anchors, factor, np.array([order**1.5 / 8]))


@pytest.mark.parametrize("box", [None, (-0.3, 0.2)])
def test_quantiles_are_undone_by_distribution_functions(box):
    f, levels = ragged(400), np.linspace(0.0, 1.0, 101)
    where = None if box is None else psd.Box(*box)
    quantiles = np.asarray(psd.quantile(f, 0, levels, where))
    assert (np.diff(quantiles) > 0).all()
    some = slice(1, -1, 14)
    back = np.asarray(psd.cdf(f, 0, quantiles[some], where))
    np.testing.assert_allclose(back, levels[some], atol=1e-12)
    # Few levels go by bisection of the closed form.
    few = np.asarray(psd.quantile(f, 0, levels[some][:2], where))
    np.testing.assert_allclose(few, quantiles[some][:2], atol=1e-11)
    ends = (-np.inf, np.inf) if box is None else box
    assert tuple(quantiles[[0, -1]]) == ends


@pytest.mark.long
def test_draws_are_those_of_the_model():
    f = ragged(400)
    draws = psd.sample(f, key=jax.random.key(0), num=500)
    levels = np.asarray(psd.cdf(f, 0, draws[:, 0]))
    assert stats.kstest(levels, "uniform").pvalue > 1e-3


@pytest.mark.long
def test_moments_of_many_kernels_need_no_pairs():
    order = 6000
    f = ragged(order)
    x = np.linspace(-1.1, 1.1, 200_001)
    weights = np.asarray(f(x[:, None])) * (x[1] - x[0])
    mean, covariance = psd.moments(f)
    want = weights @ x / weights.sum()
    np.testing.assert_allclose(mean[0], want, atol=1e-9)
    np.testing.assert_allclose(
        covariance[0, 0], weights @ (x - want) ** 2 / weights.sum(), rtol=1e-8
    )
    np.testing.assert_allclose(psd.integral(f), weights.sum(), rtol=1e-9)
