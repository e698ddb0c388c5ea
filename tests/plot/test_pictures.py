"""What is drawn: numbers of the artists against arrays of results, in user units, with labels."""

from types import SimpleNamespace

import numpy as np
import pytest
import scipy.stats

import psdfilter as psd

matplotlib = pytest.importorskip("matplotlib")
matplotlib.use("Agg")

SERIES = np.array([[0.4], [0.9], [-0.3], [np.nan], [0.7], [1.8]])


@pytest.fixture(scope="module")
def level():
    """A random walk around 50, far from unit coordinates."""
    ssm = psd.linear_gaussian(1.0, 0.3, 1.0, 0.5, 50.0, 1.0)
    model = psd.learn(ssm)
    return model, psd.run_filter(model, 50.0 + SERIES)


@pytest.fixture
def plt():
    from matplotlib import pyplot

    yield pyplot
    pyplot.close("all")


def band_of(collection):
    """Lower and upper ends of a filled band, by its abscissas."""
    corners = collection.get_paths()[0].vertices
    at = np.unique(corners[:, 0])
    ends = [(np.min(y), np.max(y)) for y in (corners[corners[:, 0] == x, 1] for x in at)]
    return at, *np.transpose(ends)


@pytest.mark.long
def test_states_are_medians_and_central_intervals_in_user_units(level, plt):
    _, post = level
    truth = 50.0 + np.linspace(0.0, 1.0, 6)
    times = np.array([3, 4, 5, 7, 8, 9])
    (ax,) = psd.plot.states(post, truth=truth, times=times, mass=0.8, names=("level",))
    median, drawn_truth = ax.lines
    np.testing.assert_array_equal(median.get_xdata(), times)
    # Normal laws: quantiles from means and variances, by SciPy.
    mean, sd = np.asarray(post.mean)[:, 0], np.sqrt(np.asarray(post.covariance)[:, 0, 0])
    np.testing.assert_allclose(median.get_ydata(), mean, rtol=1e-7)
    np.testing.assert_array_equal(drawn_truth.get_ydata(), truth)
    at, lower, upper = band_of(ax.collections[0])
    np.testing.assert_array_equal(at, times)
    np.testing.assert_allclose(lower, mean + sd * scipy.stats.norm.ppf(0.1), rtol=1e-7)
    np.testing.assert_allclose(upper, mean + sd * scipy.stats.norm.ppf(0.9), rtol=1e-7)
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("time", "level")
    names = [text.get_text() for text in ax.get_legend().get_texts()]
    assert names == ["80% band", "median", "truth"]


@pytest.mark.long
def test_every_coordinate_has_axes_of_its_own(plt):
    model = psd.learn(psd.systems.linear_2d(), 1e-3, engine="exact")
    post = psd.run_filter(model, np.array([[0.2, 0.1], [0.5, 0.3], [0.1, -0.2]])[:, :1])
    axes = psd.plot.states(post)
    assert [ax.get_ylabel() for ax in axes] == ["$x_1$", "$x_2$"]
    for i, ax in enumerate(axes):
        np.testing.assert_array_equal(ax.lines[0].get_xdata(), [1, 2, 3])
        np.testing.assert_allclose(ax.lines[0].get_ydata(), post.mean[:, i], atol=1e-7)


@pytest.mark.long
def test_states_are_drawn_on_given_axes_and_of_forecasts(level, plt):
    model, post = level
    ahead = psd.forecast(model, post, 4)
    _, ax = plt.subplots()
    assert list(psd.plot.states(ahead, axes=ax)) == [ax]
    np.testing.assert_allclose(ax.lines[0].get_ydata(), ahead.mean[:, 0], rtol=1e-7)


@pytest.mark.long
def test_checks_show_the_transforms_of_the_observations_that_were_seen(level, plt):
    _, post = level
    pit = np.asarray(post.pit).ravel()
    pit = pit[np.isfinite(pit)]
    residuals = scipy.stats.norm.ppf(pit)
    assert pit.size == 5
    histogram, quantiles, over_time, correlations = psd.plot.checks(post, lags=3, bins=4)

    heights = [patch.get_height() for patch in histogram.patches[:4]]
    np.testing.assert_array_equal(heights, np.histogram(pit, 4, (0, 1))[0])
    assert histogram.lines[0].get_ydata()[0] == pytest.approx(5 / 4)
    assert histogram.get_xlabel() == "probability transform of y"

    diagonal, points = quantiles.lines
    np.testing.assert_array_equal(diagonal.get_xdata(), diagonal.get_ydata())
    np.testing.assert_allclose(points.get_ydata(), np.sort(residuals), rtol=1e-9)
    np.testing.assert_allclose(
        points.get_xdata(), scipy.stats.norm.ppf((np.arange(5) + 0.5) / 5), atol=1e-12
    )
    assert (quantiles.get_xlabel(), quantiles.get_ylabel()) == ("normal quantile", "residual")

    np.testing.assert_allclose(over_time.lines[0].get_ydata(), residuals, rtol=1e-9)
    assert [line.get_ydata()[0] for line in over_time.lines[1:]] == [-1.96, 0.0, 1.96]
    assert (over_time.get_xlabel(), over_time.get_ylabel()) == ("time", "residual")

    for collection, values in zip(
        correlations.collections, (residuals, residuals**2), strict=False
    ):
        tops = [segment[1, 1] for segment in collection.get_segments()]
        gaps = values - values.mean()
        whole = np.correlate(gaps, gaps, "full") / np.sum(gaps**2)
        np.testing.assert_allclose(tops, whole[5:8], rtol=1e-9)
    assert correlations.get_xlabel() == "lag"


def test_a_profile_is_drawn_below_its_maximum_with_its_interval(plt):
    values = np.linspace(-2.0, 2.0, 9)
    fake = SimpleNamespace(
        name="theta",
        values=values,
        log_likelihoods=7.0 - 0.5 * values**2,
        best=7.0,
        interval=lambda level: (-scipy.stats.norm.ppf(0.5 + level / 2), np.inf),
    )
    ax = psd.plot.profile(fake, level=0.9)
    curve, level, *ends = ax.lines
    np.testing.assert_array_equal(curve.get_xdata(), values)
    np.testing.assert_allclose(curve.get_ydata(), -0.5 * values**2, atol=1e-14)
    # At the ends of a normal interval a parabola is at the level of the chi-squared law.
    (end,) = ends
    assert end.get_xdata()[0] == pytest.approx(-1.6448536, abs=1e-6)
    assert level.get_ydata()[0] == pytest.approx(-0.5 * end.get_xdata()[0] ** 2)
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("theta", "profile log-likelihood")
