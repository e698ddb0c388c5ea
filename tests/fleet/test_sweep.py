"""Likelihood surfaces against filters at single parameters."""

import numpy as np
import pytest

import psdfilter as psd


def build(theta):
    return psd.linear_gaussian(theta["a"], theta["q"], 1.0, 0.2, 0.0, 1.0)


@pytest.mark.long
def test_a_surface_is_the_likelihood_at_every_theta():
    rng = np.random.default_rng(0)
    ys = {"one": rng.normal(size=(5, 1)), "two": rng.normal(size=(8, 1))}
    thetas = [{"a": a, "q": q} for a in (0.2, 0.6, 0.9) for q in (0.1, 0.4)]
    data = psd.run_sweep(build, thetas, ys)
    assert dict(data.sizes) == {"theta": 6, "series": 2}
    for i in (0, 5):
        model = psd.learn(build(thetas[i]))
        for label, y in ys.items():
            wanted = float(psd.run_filter(model, y).log_likelihood)
            assert abs(float(data.log_likelihoods.isel(theta=i).sel(series=label)) - wanted) < 1e-10
    assert np.abs(data.log_likelihood - data.log_likelihoods.sum("series")).max() < 1e-12
    assert not data.code.values.any()
    assert data.a.values.tolist() == [t["a"] for t in thetas]


def test_thetas_of_one_form():
    with pytest.raises(ValueError, match="same form"):
        psd.run_sweep(build, [{"a": 1.0}, {"b": 1.0}], [np.zeros((3, 1))])
    with pytest.raises(ValueError, match="at least one theta"):
        psd.run_sweep(build, [], [np.zeros((3, 1))])
