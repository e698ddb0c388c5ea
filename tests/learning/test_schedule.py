import pytest
from hypothesis import given
from hypothesis import strategies as st

from psdfilter._learning.schedule import learning_schedule


@pytest.mark.long
@given(st.integers(1, 6), st.floats(0.1, 5.0), st.floats(1e-6, 0.3))
def test_rates_are_consistent(dim, excess, epsilon):
    smoothness = dim / 2 + excess
    plan = learning_schedule(epsilon, smoothness, dim)
    # n ~ eps^(-d/beta) and error ~ eps^(1 - d/(2 beta)) mean error ~ n^-(beta/d - 1/2).
    assert plan.sup_error == pytest.approx((epsilon ** (-dim / smoothness)) ** -plan.rate)
    # lambda eta^{-d/2} = eps^2 (the variance and the bias are balanced).
    assert plan.ridge * plan.precision ** (dim / 2) == pytest.approx(epsilon**2)
    finer = learning_schedule(epsilon / 2, smoothness, dim)
    assert finer.num_points >= plan.num_points
    assert finer.num_anchors >= plan.num_anchors
    assert finer.sup_error < plan.sup_error


def test_golden():
    plan = learning_schedule(0.01, 2.0, 1)
    assert plan.precision == pytest.approx(100.0)
    assert plan.ridge == pytest.approx(1e-5)
    assert plan.sup_error == pytest.approx(0.01**0.75)
    assert plan.rate == 1.5
    assert "W_2^2" in str(plan)


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        ((0.0, 2.0, 1), "epsilon"),
        ((1.5, 2.0, 1), "epsilon"),
        ((0.1, 0.5, 1), "smoothness"),
        ((0.1, 2.0, 0), "dim"),
    ],
)
def test_errors(arguments, word):
    with pytest.raises(ValueError, match=f"{word} must"):
        learning_schedule(*arguments)
