"""Pictures of angles wrap."""

import numpy as np
import pytest

import psdfilter as psd
from psdfilter._inference.numerics.circles import Circle, copies_of

matplotlib = pytest.importorskip("matplotlib")
matplotlib.use("Agg")
PI = np.pi


def test_curves_have_no_jumps_and_show_at_both_sides():
    middle = np.array([2.8, 3.1, -3.0, -2.6])  # crosses the half turn
    copies = copies_of([middle, middle - 0.3, middle + 0.3], Circle(-PI, PI))
    assert len(copies) == 2
    for copy in copies:
        assert np.abs(np.diff(copy[0])).max() < 0.5
        np.testing.assert_allclose(copy[2] - copy[1], 0.6)
        np.testing.assert_allclose(np.exp(1j * copy[0]), np.exp(1j * middle))
    np.testing.assert_allclose(copies[1][0] - copies[0][0], 2 * PI)
    assert copies_of([middle], None) == [[middle]]
    # A wheel that turns on and on shows once for each turn.
    assert len(copies_of([np.linspace(0.0, 20 * PI, 200)], Circle(-PI, PI))) == 11


@pytest.mark.long
def test_a_heading_that_passes_half_a_turn():
    from matplotlib import pyplot

    box = psd.Box(-PI, PI, periodic=0)
    compass = psd.additive_gaussian(
        lambda u: u + 0.4, lambda x: x, 0.04, 0.09, 2.5, 0.25, state_box=box, wrap=[True]
    )
    post = psd.run_filter(psd.learn(compass, 1e-2), [3.0, -2.9, -2.4, -2.3])
    for ax in (
        psd.plot.states(post, truth=[2.9, 3.3, -2.6, -2.2])[0],
        psd.plot.comparison({"a": post}),
    ):
        np.testing.assert_allclose(ax.get_ylim(), (-PI, PI))
        assert all(np.abs(np.diff(line.get_ydata())).max() < 1.0 for line in ax.lines)
        assert len(ax.collections) == 2
        _, labels = ax.get_legend_handles_labels()
        assert len(labels) == len(set(labels))
    heat = psd.plot.over_time(post, mass=0.9)
    np.testing.assert_allclose(heat.get_ylim(), (-PI, PI))
    pyplot.close("all")


@pytest.mark.long
def test_forecasts_and_observations_of_angles_cross_no_picture():
    from matplotlib import pyplot

    box = psd.Box(-PI, PI, periodic=0)
    compass = psd.additive_gaussian(
        lambda u: u + 0.4, lambda x: x, 0.04, 0.09, 2.5, 0.25, state_box=box, wrap=[True]
    )
    model = psd.learn(compass, 1e-2)
    ys = [3.0, -2.9, -2.4]
    post = psd.run_filter(model, ys)
    ahead = psd.forecast(model, post, 12)
    for ax in (
        psd.plot.forecast(post, ahead, truth=np.linspace(-2.0, 8.0, 12)),
        psd.plot.forecast(post, ahead, of="observations"),
        psd.plot.observations(post),
    ):
        np.testing.assert_allclose(ax.get_ylim(), (-PI, PI))
        curves = [line for line in ax.lines if line.get_linestyle() == "-"]
        assert curves
        assert all(np.abs(np.diff(line.get_ydata())).max() < 1.0 for line in curves)
        points = [line.get_ydata() for line in ax.lines if line.get_linestyle() == "None"]
        assert all(np.abs(each).max() <= PI for each in points)
        _, labels = ax.get_legend_handles_labels()
        assert len(labels) == len(set(labels))
        assert "outside" not in labels  # -2.9 was expected at 3.38
    # Headings that are counted from zero stay so.
    post = psd.run_filter(model, np.mod(ys, 2 * PI))
    np.testing.assert_allclose(psd.plot.observations(post).get_ylim(), (0.0, 2 * PI))
    pyplot.close("all")
