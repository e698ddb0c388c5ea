"""Pictures of series: forecasts, predictions, likelihoods, errors, regimes, certificates."""

from types import SimpleNamespace

import numpy as np
import pytest
import scipy.stats

import psdfilter as psd
from psdfilter._inference.certificate.accumulation import Split

matplotlib = pytest.importorskip("matplotlib")
matplotlib.use("Agg")
pytest.importorskip("matplotlib.dates")

YS = 50.0 + np.array([0.4, 0.9, np.nan, -0.3, 9.0])


@pytest.fixture(autouse=True)
def closed():
    from matplotlib import pyplot

    yield
    pyplot.close("all")


@pytest.fixture(scope="module")
def level():
    ssm = psd.linear_gaussian(1.0, 0.3, 1.0, 0.5, 50.0, 1.0)
    model = psd.learn(ssm)
    return model, psd.run_filter(model, YS)


def moments(result):
    return np.asarray(result.mean)[:, 0], np.sqrt(np.asarray(result.covariance)[:, 0, 0])


def labelled(ax):
    return {line.get_label(): line for line in ax.lines}


def ends_of(collection):
    corners = collection.get_paths()[0].vertices
    at = np.unique(corners[:, 0])
    rows = [corners[corners[:, 0] == x, 1] for x in at]
    return at, np.array([y.min() for y in rows]), np.array([y.max() for y in rows])


def test_a_forecast_starts_where_its_history_ends(level):
    model, post = level
    ahead = psd.forecast(model, post, 3)
    ax = psd.plot.forecast(post, ahead, truth=[50.0, 51.0, 52.0], names=("level",))
    drawn = labelled(ax)
    fan = drawn["forecast, 50%, 80%, 95%"]
    np.testing.assert_array_equal(fan.get_xdata(), [5, 6, 7, 8])
    means = np.append(moments(post)[0][-1], moments(ahead)[0])
    np.testing.assert_allclose(fan.get_ydata(), means, rtol=1e-7)
    np.testing.assert_array_equal(drawn["what came"].get_xdata(), [6, 7, 8])
    at, lower, _ = ends_of(ax.collections[1])
    np.testing.assert_array_equal(at, [5, 6, 7, 8])
    sd = np.append(moments(post)[1][-1], moments(ahead)[1])
    np.testing.assert_allclose(lower, means + sd * scipy.stats.norm.ppf(0.025), rtol=1e-7)
    _, history, _ = ends_of(ax.collections[0])
    mean, spread = moments(post)
    np.testing.assert_allclose(history, mean + spread * scipy.stats.norm.ppf(0.025), rtol=1e-7)


def test_a_forecast_of_observations_follows_what_was_seen(level):
    model, post = level
    ahead = psd.forecast(model, post, 2)
    ax = psd.plot.forecast(post, ahead, of="observations", history=3)
    drawn = labelled(ax)
    np.testing.assert_array_equal(drawn["observed"].get_ydata(), YS[-3:])
    mean, sd = moments(ahead)
    at, lower, upper = ends_of(ax.collections[0])
    np.testing.assert_array_equal(at, [6, 7])
    reach = scipy.stats.norm.ppf(0.975) * np.sqrt(sd**2 + 0.5)
    np.testing.assert_allclose(lower, mean - reach, rtol=1e-6)
    np.testing.assert_allclose(upper, mean + reach, rtol=1e-6)


def test_predictions_mark_what_they_did_not_hold(level):
    _, post = level
    ax = psd.plot.observations(post, mass=0.9, names=("y",))
    drawn = labelled(ax)
    np.testing.assert_array_equal(drawn["outside"].get_data(), [[5], [59.0]])
    np.testing.assert_array_equal(drawn["observed"].get_xdata(), [1, 2, 4])
    # One step ahead of a normal law: variances add up.
    mean, sd = moments(post)
    before = np.append(50.0, mean[:-1]), np.sqrt(np.append(1.0, sd[:-1] ** 2) + 0.3 + 0.5)
    _, lower, upper = ends_of(ax.collections[0])
    np.testing.assert_allclose(lower, scipy.stats.norm.ppf(0.05, *before), rtol=1e-6)
    np.testing.assert_allclose(upper, scipy.stats.norm.ppf(0.95, *before), rtol=1e-6)


def test_contributions_of_what_was_seen(level):
    _, post = level
    ax = psd.plot.log_likelihoods(post)
    np.testing.assert_array_equal(ax.lines[1].get_xdata(), [1, 2, 4, 5])
    seen = np.asarray(post.log_likelihoods)[[0, 1, 3, 4]]
    np.testing.assert_array_equal(ax.lines[1].get_ydata(), seen)
    assert ax.lines[0].get_ydata()[0] == pytest.approx(seen.mean())


def test_a_filter_and_its_smoother_on_one_picture(level):
    model, post = level
    smooth = psd.run_smoother(model, YS)
    ax = psd.plot.comparison({"filter": post, "smoother": smooth}, mass=0.8, truth=YS)
    drawn = labelled(ax)
    np.testing.assert_allclose(
        drawn["smoother, 80% band"].get_ydata(), moments(smooth)[0], rtol=1e-7
    )
    mean, sd = moments(post)
    _, lower, _ = ends_of(ax.collections[0])
    np.testing.assert_allclose(lower, mean + sd * scipy.stats.norm.ppf(0.1), rtol=1e-7)


@pytest.mark.long
def test_errors_beside_the_tolerance():
    ssm = psd.additive_gaussian(lambda x: 0.9 * x, lambda x: x**2 / 4, 0.2, 0.1, 0.0, 1.0)
    post = psd.run_filter(psd.learn(ssm, 1e-2), [0.9, 0.7])
    ax = psd.plot.errors(post)
    np.testing.assert_array_equal(
        labelled(ax)["estimate"].get_ydata(), np.maximum(post.error_estimates, 1e-16)
    )
    assert labelled(ax)["tolerance"].get_ydata()[0] == 1e-2
    assert ax.get_yscale() == "log"


def test_regimes_fill_up_to_one():
    shares = np.array([[0.2, 0.8], [0.5, 0.5], [0.9, 0.1]])
    fake = SimpleNamespace(regimes=shares, times=np.arange(3))
    ax = psd.plot.regimes(fake, names=("calm", "wild"), truth=[1, 0, 0])
    for collection, low, high in zip(
        ax.collections[:2], (np.zeros(3), shares[:, 0]), (shares[:, 0], np.ones(3)), strict=True
    ):
        _, bottom, top = ends_of(collection)
        np.testing.assert_allclose(bottom, low)
        np.testing.assert_allclose(top, high)
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["calm", "wild"]
    with pytest.raises(ValueError, match="names must be 2"):
        psd.plot.regimes(fake, names=("one",))
    with pytest.raises(ValueError, match="truth must have shape"):
        psd.plot.regimes(fake, truth=[0])


def test_a_certificate_shows_bounds_and_estimates():
    def split(values):
        return Split(np.asarray(values), np.zeros(3))

    fake = SimpleNamespace(
        theorem=split([3.0, 2.0, 1.0]),
        sharp=split([np.nan] * 3),
        estimate=np.array([1e-3, 2e-3, 1e-3]),
        one_step=np.array([1e-4, 1e-4, 0.0]),
    )
    drawn = labelled(psd.plot.certificate(fake))
    np.testing.assert_array_equal(drawn["bound of the theorem"].get_ydata(), [3.0, 2.0, 1.0])
    np.testing.assert_array_equal(drawn["one step"].get_ydata(), [1e-4, 1e-4, 1e-16])
    assert "bound, sharp constant" not in drawn


def test_single_checks_are_those_of_all_four(level):
    _, post = level
    bars = [patch.get_height() for patch in psd.plot.pit(post, bins=4).patches[:4]]
    pit = np.asarray(post.pit).ravel()
    np.testing.assert_array_equal(bars, np.histogram(pit[np.isfinite(pit)], 4, (0, 1))[0])
    ax = psd.plot.residuals(post)
    np.testing.assert_array_equal(ax.lines[0].get_xdata(), [1, 2, 4, 5])


def test_axes_of_time_have_the_name_of_the_index(level):
    pandas = pytest.importorskip("pandas")
    days = pandas.date_range("2024-02-20", periods=5, freq="D", name="day in $\u202e")
    model, _ = level
    data = pandas.Series(YS, index=days)
    post = psd.run_filter(model, data)
    ahead = psd.forecast(model, post, 2)
    for ax in (
        psd.plot.states(post)[0],
        psd.plot.comparison({"filter": post}),
        psd.plot.forecast(post, ahead),
        psd.plot.observations(post),
        psd.plot.over_time(post),
        psd.plot.log_likelihoods(post),
        psd.plot.residuals(post),
    ):
        assert ax.get_xlabel() == "day in \\$\N{REPLACEMENT CHARACTER}"
    assert psd.plot.over_time(post, style="ridges").get_ylabel().startswith("day")
    # Other times, and transitions, are nobody's days.
    assert psd.plot.states(post, times=np.arange(5))[0].get_xlabel() == "time"
    fake = SimpleNamespace(regimes=np.full((5, 2), 0.5), times=np.arange(5), labels=post.labels)
    ax = psd.plot.regimes(fake)
    assert ax.get_xlabel().startswith("day")
    first, last = matplotlib.dates.date2num(days[[0, -1]])
    np.testing.assert_allclose(ax.get_xlim(), (first, last))


def test_what_is_no_result_and_no_axes_is_refused_by_name(level):
    model, post = level
    ahead = psd.forecast(model, post, 2)
    for draw, name in (
        (psd.plot.states, "post must come from run_filter or run_smoother or forecast"),
        (psd.plot.over_time, "result must come from run_filter"),
        (psd.plot.observations, "post must come from run_filter, got"),
        (psd.plot.log_likelihoods, "post must come from run_filter, got"),
        (psd.plot.errors, "post must come from run_filter, got"),
        (psd.plot.residuals, "post must come from run_filter, got"),
        (lambda none: psd.plot.snapshots(none, [0]), "result must come from run_filter"),
        (psd.plot.regimes, "result must come from inference in a model of regimes"),
        (lambda none: psd.plot.forecast(none, ahead), "post must come from run_filter or"),
        (lambda none: psd.plot.forecast(post, none), "ahead must come from forecast"),
        (lambda none: psd.plot.comparison({"a": none}), r"results\['a'\] must come from"),
    ):
        with pytest.raises(ValueError, match=f"{name}.*NoneType"):
            draw(None)
    for draw in (
        lambda: psd.plot.over_time(post, ax=3),
        lambda: psd.plot.states(post, axes=3),
        lambda: psd.plot.observations(post, ax=(1, 2)),
    ):
        with pytest.raises(ValueError, match="must be Matplotlib axes"):
            draw()
