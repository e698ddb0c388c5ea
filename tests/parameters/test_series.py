"""What ys means: one rule for filters and likelihoods."""

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import psdfilter as psd

THETA = 0.3


def build(num: int):
    def at(theta):
        return psd.linear_gaussian(
            0.8 * np.eye(num), jnp.exp(theta) * np.eye(num), np.eye(num), 0.5, np.zeros(num), 1.0
        )

    return at


# All ways to write one series (T, p), and several.
ONE = {
    "array": lambda ys: ys,
    "device": jnp.asarray,
    "lists": lambda ys: ys.tolist(),
    "tuple of lists": lambda ys: tuple(ys.tolist()),
}
ONE_OF_NUMBERS = ONE | {
    "flat": lambda ys: ys[:, 0],
    "numbers": lambda ys: ys[:, 0].tolist(),
    "scalars": lambda ys: list(ys[:, 0]),
    "short arrays": list,
    "short device arrays": lambda ys: [jnp.asarray(y) for y in ys],
}


@pytest.mark.slow
@settings(max_examples=8, deadline=None)
@given(data=st.data())
def test_filters_and_likelihoods_agree(data):
    num = data.draw(st.integers(1, 2))
    lengths = data.draw(st.lists(st.sampled_from([1, 5]), min_size=1, max_size=3))
    rng = np.random.default_rng(data.draw(st.integers(0, 99)))
    forms = ONE_OF_NUMBERS if num == 1 else ONE
    learned = psd.learn(build(num)(THETA))
    several = [rng.normal(size=(n, num)) for n in lengths]
    written = [forms[data.draw(st.sampled_from(sorted(forms)))](ys) for ys in several]
    each = [float(psd.run_filter(learned, ys).log_likelihood) for ys in written]
    for ys, wanted in zip(written, each, strict=True):
        ll = psd.likelihood(build(num), THETA, ys)
        assert abs(float(ll(THETA)) - wanted) < 1e-10
    together = psd.likelihood(build(num), THETA, several)
    assert abs(float(together(THETA)) - sum(each)) < 1e-10


@pytest.mark.long
def test_series_of_numbers_of_different_lengths_stay_series():
    rng = np.random.default_rng(0)
    ys = [rng.normal(size=4), rng.normal(size=7)]
    learned = psd.learn(build(1)(THETA))
    wanted = sum(float(psd.run_filter(learned, y).log_likelihood) for y in ys)
    assert abs(float(psd.likelihood(build(1), THETA, ys)(THETA)) - wanted) < 1e-10
    assert abs(float(psd.run_filter(learned, ys).log_likelihood.sum()) - wanted) < 1e-10


def test_a_list_that_could_be_either_is_refused():
    ys = [np.zeros(3), np.ones(3)]
    with pytest.raises(ValueError, match=r"ys must say.*2 rows with 3.*np\.stack.*2 series of 3"):
        psd.likelihood(build(1), THETA, ys)
    with pytest.raises(ValueError, match=r"ys must say.*2 rows with 3.*np\.stack.*2 series of 3"):
        psd.run_filter(psd.learn(build(1)(THETA)), ys)
    with pytest.raises(ValueError, match="got both in one list"):
        psd.likelihood(build(1), THETA, [1.0, np.zeros(3)])
