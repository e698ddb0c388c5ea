"""Pictures of laws of two modes: regions and modes, and no line where the state never is."""

import numpy as np
import pytest

import psdfilter as psd

matplotlib = pytest.importorskip("matplotlib")
matplotlib.use("Agg")
# Two modes at -3 and 3 that a poor sensor does not tell apart; variances grow by 0.01 a step.
SPREAD = np.sqrt(0.04 + 0.01 * np.arange(1, 5))


@pytest.fixture(scope="module")
def results():
    prior = psd.from_mixture([0.5, 0.5], [[-3.0], [3.0]], [0.04])
    model = psd.learn(psd.linear_gaussian(1.0, 0.01, 1.0, 1e4, 0.0, 1.0, prior=prior))
    post = psd.run_filter(model, np.zeros(4))
    return post, psd.forecast(model, post, 2)


@pytest.fixture(autouse=True)
def closed():
    from matplotlib import pyplot

    yield
    pyplot.close("all")


def bars(collection):
    """Times and ends of vertical lines."""
    return np.array([[a[0], a[1], b[1]] for a, b in collection.get_segments()])


def labelled(ax):
    return {line.get_label(): line for line in ax.lines}


def is_right(segments, start=1):
    count = len(segments) // 2
    np.testing.assert_array_equal(segments[:, 0], np.repeat(np.arange(start, start + count), 2))
    assert np.abs(segments[:, 1:]).min() > 2
    lengths = (segments[1::2, 2] - segments[1::2, 1]) / 2
    np.testing.assert_allclose(lengths, 1.645 * SPREAD[:count], rtol=0.03)


@pytest.mark.long
def test_states_and_comparison_draw_regions_and_modes(results):
    post, _ = results
    (ax,) = psd.plot.states(post)
    is_right(bars(ax.collections[0]))
    drawn = labelled(ax)
    assert "median" not in drawn
    np.testing.assert_allclose(drawn["modes"].get_ydata(), [-3, 3] * 4, atol=0.01)
    ax = psd.plot.comparison({"filter": post, "again": post})
    assert len(ax.collections) == 2
    for collection in ax.collections:
        is_right(bars(collection))


@pytest.mark.long
def test_a_heat_map_has_the_ends_of_regions(results):
    ax = psd.plot.over_time(results[0], mass=0.9)
    ends = np.reshape(labelled(ax)["90% region"].get_ydata(), (4, 4))
    np.testing.assert_allclose(ends[:, 3] - 3, 1.645 * SPREAD, rtol=0.05)
    np.testing.assert_allclose(ends[:, 2], -ends[:, 1], atol=1e-6)


@pytest.mark.long
def test_a_forecast_of_two_modes_has_two(results):
    post, ahead = results
    ax = psd.plot.forecast(post, ahead, history=3)
    drawn = labelled(ax)
    np.testing.assert_allclose(drawn["forecast, 50%, 80%, 95%"].get_ydata(), [-3, 3] * 2, atol=0.01)
    times = [np.unique(bars(each)[:, 0]).tolist() for each in ax.collections]
    assert times == [[2, 3, 4], [5, 6], [5, 6], [5, 6]]
    lengths = [np.diff(bars(each)[-1, 1:]).item() for each in ax.collections[1:]]
    assert lengths == sorted(lengths, reverse=True)


@pytest.mark.long
def test_bars_of_the_first_and_the_last_time_are_whole(results):
    post, ahead = results
    for ax in (
        psd.plot.states(post)[0],
        psd.plot.comparison({"filter": post}),
        psd.plot.forecast(post, ahead),
    ):
        ax.figure.canvas.draw()
        frame = ax.get_window_extent()
        half = 0.5 * ax.collections[0].get_linewidths()[0] * ax.figure.dpi / 72
        times = [at for each in ax.collections for at in bars(each)[:, 0]]
        ends = ax.transData.transform([[min(times), 0.0], [max(times), 0.0]])[:, 0]
        assert ends[0] - half >= frame.x0
        assert ends[1] + half <= frame.x1
