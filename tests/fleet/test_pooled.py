"""One likelihood of many series: sums of pieces are the whole."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import psdfilter as psd
from psdfilter._parameters import likelihood as module
from psdfilter._parameters.pooling import PooledCore


def build(theta):
    return psd.linear_gaussian(theta["a"], 0.1, 1.0, jnp.exp(theta["r"]), 0.0, 1.0)


THETA = {"a": 0.8, "r": -1.0}


def series(num, seed=0):
    rng = np.random.default_rng(seed)
    out = []
    for length in rng.integers(3, 12, num):
        x, rows = 0.0, []
        for _ in range(length):
            x = 0.7 * x + np.sqrt(0.1) * rng.normal()
            rows.append([x + 0.5 * rng.normal()])
        out.append(np.asarray(rows))
    return out


@pytest.mark.slow
def test_pieces_sum_to_the_whole(monkeypatch):
    ys = series(7)
    whole = psd.likelihood(build, THETA, ys)
    monkeypatch.setattr(module, "PIECE", 3)
    monkeypatch.setattr(module, "in_pieces", lambda s: psd._parameters.pooling.in_pieces(s, 3))
    pieces = psd.likelihood(build, THETA, dict(enumerate(ys)))
    assert isinstance(pieces.core, PooledCore)
    assert pieces.core.series.ys.shape[:2] == (3, 3)
    assert abs(float(pieces(THETA) - whole(THETA))) < 1e-10
    here, there = jax.grad(pieces)(THETA), jax.grad(whole)(THETA)
    assert max(abs(float(here[k] - there[k])) for k in THETA) < 1e-9
    each = zip(pieces.increments(THETA), whole.increments(THETA), strict=True)
    assert max(float(jnp.abs(a - b).max()) for a, b in each) < 1e-12


@pytest.mark.slow
def test_series_have_estimates_of_their_own():
    ys = {"one": np.concatenate(series(8, 1)), "two": np.concatenate(series(8, 2))}
    data = psd.run_fleet(build, ys, what="fit", theta0=THETA)
    wanted = psd.fit(build, THETA, ys["two"], progress=False)
    found = data.sel(series="two")
    assert list(data.parameter.values) == list(wanted.names)
    gap = np.abs(found.estimate.values - np.asarray(wanted.estimates))
    assert (gap < 1e-3 * np.asarray(wanted.standard_errors)).all()
    assert abs(float(found.log_likelihood - wanted.log_likelihood)) < 1e-6
