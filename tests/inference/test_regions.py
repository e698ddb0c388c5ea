"""Regions of highest density on a line, against normal laws."""

import numpy as np
import pytest
import scipy.stats

from psdfilter._inference.numerics.circles import Circle, pieces_of
from psdfilter._inference.numerics.regions import (
    GAP_LEVELS,
    have_gaps,
    highest_regions,
    modes_within,
)

X = np.linspace(-6.0, 6.0, 161)
normal = scipy.stats.norm


def test_of_one_mode_it_is_the_central_interval():
    density = normal.pdf(X, 0.3, 0.8)
    regions = highest_regions(X, density, 0.9)
    np.testing.assert_allclose(regions, [normal.interval(0.9, 0.3, 0.8)], atol=0.01)
    np.testing.assert_allclose(modes_within(X, density, regions), [0.3], atol=1e-6)


def test_of_two_modes_there_are_two_and_nothing_between():
    density = 0.5 * (normal.pdf(X, -2.0, 0.4) + normal.pdf(X, 2.0, 0.4))
    regions = highest_regions(X, density, 0.9)
    low, high = normal.interval(0.9, 0.0, 0.4)
    np.testing.assert_allclose(regions, [[low - 2, high - 2], [low + 2, high + 2]], atol=0.02)
    np.testing.assert_allclose(modes_within(X, density, regions), [-2, 2], atol=1e-3)


def test_a_region_may_end_where_the_points_end():
    np.testing.assert_allclose(highest_regions(X, np.ones_like(X), 1.0), [[-6.0, 6.0]])
    assert highest_regions(X, np.zeros_like(X), 0.9).shape == (0, 2)


@pytest.mark.parametrize(
    "law", [normal(3.0, 0.1), scipy.stats.expon(), scipy.stats.t(1.0), scipy.stats.uniform()]
)
def test_one_mode_has_no_gap(law):
    assert not have_gaps(law.ppf(GAP_LEVELS)[:, None, None])[0]


@pytest.mark.parametrize("share", [0.1, 0.5, 0.8])
def test_two_modes_have_a_gap_at_any_time(share):
    x = np.linspace(-6.0, 6.0, 4001)
    cdf = share * normal.cdf(x, -2.0, 0.4) + (1 - share) * normal.cdf(x, 2.0, 0.4)
    two = np.interp(GAP_LEVELS, cdf, x)
    both = np.stack([normal.ppf(GAP_LEVELS), two], axis=1)
    np.testing.assert_array_equal(have_gaps(np.stack([both, both[:, [0, 0]]], 2)), [True, False])


def test_a_point_has_no_gap():
    rng = np.random.default_rng(0)
    points = 3.0 + 1e-15 * np.sort(rng.normal(size=(39, 4, 1)), axis=0)
    assert not have_gaps(points)[0]


def test_a_region_across_the_ends_of_a_circle_is_one():
    x = np.linspace(-np.pi, np.pi, 181)
    density = normal.pdf(x, 3.0, 0.3) + normal.pdf(x, 3.0 - 2 * np.pi, 0.3)
    regions = highest_regions(x, density, 0.9, 2 * np.pi)
    np.testing.assert_allclose(regions, [normal.interval(0.9, 3.0, 0.3)], atol=0.03)
    np.testing.assert_allclose(modes_within(x, density, regions, 2 * np.pi), [3.0], atol=1e-3)
    assert len(highest_regions(x, density, 0.9)) == 2
    circle = Circle(-np.pi, np.pi)
    np.testing.assert_allclose(
        pieces_of(regions, circle),
        [[regions[0, 0], np.pi], [-np.pi, regions[0, 1] - 2 * np.pi]],
    )
    np.testing.assert_allclose(pieces_of(np.array([[4.0, 5.0]]), circle) + 2 * np.pi, [[4.0, 5.0]])
