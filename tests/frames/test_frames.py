"""Data frames in and out: times and names are kept, gaps are seen, doubtful indices are refused."""

import datetime
import decimal

import jax
import numpy as np
import pytest

import psdfilter as psd
from psdfilter._frames.table import as_table, bare
from psdfilter.plot._axes import shared_times
from psdfilter.systems import kalman, matrices

pandas = pytest.importorskip("pandas")
polars = pytest.importorskip("polars")
xarray = pytest.importorskip("xarray")

YS = np.array([0.3, -0.4, 1.1, np.nan, 0.2, 0.9])
DAYS = np.array([f"2024-01-0{d}" for d in range(1, 7)], dtype="datetime64[ns]")


@pytest.fixture(scope="module")
def model():
    return psd.learn(psd.linear_gaussian(0.8, 0.3, 1.0, 0.5, 0.0, 0.3 / 0.36))


def series_of(days, ys=YS, **keywords):
    return pandas.Series(ys, index=pandas.DatetimeIndex(days, **keywords), name="level")


def same_frames():
    """One and the same series in the clothes of four libraries."""
    dates = polars.Series("day", DAYS)
    return {
        "pandas series": series_of(DAYS),
        "pandas frame": pandas.DataFrame({"level": YS}, index=pandas.DatetimeIndex(DAYS)),
        "nullable": pandas.DataFrame(
            {"level": pandas.array(YS, dtype="Float64")}, index=pandas.DatetimeIndex(DAYS)
        ),
        "polars": polars.DataFrame([dates, polars.Series("level", YS).fill_nan(None)]),
        "polars dates": polars.DataFrame([dates.cast(polars.Date), polars.Series("level", YS)]),
        "data array": xarray.DataArray(YS, coords={"day": DAYS}, dims="day", name="level"),
        "transposed": xarray.DataArray(
            YS[None], coords={"day": DAYS, "what": ["level"]}, dims=("what", "day")
        ),
        "data set": xarray.Dataset({"level": ("day", YS)}, coords={"day": DAYS}),
    }


@pytest.mark.parametrize("kind", same_frames())
def test_every_frame_gives_what_its_numbers_give_and_keeps_its_names(kind, model):
    plain = psd.run_filter(model, YS)
    post = psd.run_filter(model, same_frames()[kind])
    np.testing.assert_array_equal(post.mean, plain.mean)
    np.testing.assert_array_equal(post.labels.values, DAYS)
    assert post.labels.columns == ("level",)
    means, _, logs = kalman(YS[:, None], matrices(1))
    table = post.to_pandas()
    np.testing.assert_allclose(table["x0_mean"], means[:, 0], rtol=1e-10)
    np.testing.assert_allclose(table["log_likelihood"], logs, rtol=1e-10)
    np.testing.assert_array_equal(table.index.to_numpy(), DAYS)
    assert list(table["seen"]) == [True, True, True, False, True, True]


@pytest.mark.long
def test_tables_have_one_schema(model):
    post, smooth = (run(model, series_of(DAYS)) for run in (psd.run_filter, psd.run_smoother))
    ahead = psd.forecast(model, post, 2)
    for result in (post, smooth, ahead, ahead.observations):
        name = "level" if result is not post and result.given_names else "x0"
        one, two = result.to_pandas(), result.to_polars()
        assert ["step", *one.columns[1:]] == two.columns[1:]
        assert [f"{name}_{end}" for end in ("mean", "sd", "q0.05", "q0.5", "q0.95")] == list(
            one.columns[1:6]
        )
        data = result.to_xarray(grid=41)
        for column in one.columns[6:]:
            np.testing.assert_array_equal(one[column], two[column])
            np.testing.assert_array_equal(one[column], data[column])
        np.testing.assert_array_equal(data["time"], one.index)
        np.testing.assert_allclose(data["quantiles"][2, :, 0], one[f"{name}_q0.95"])
        x, values = data["x"][0], data["density"][:, 0]
        mass = np.trapezoid(values, x, axis=1)
        np.testing.assert_allclose(mass, 1.0, atol=5e-3)
    named = post.to_pandas(quantiles=(), names=["a"])
    assert list(named.columns[:3]) == ["step", "a_mean", "a_sd"]
    with pytest.raises(ValueError, match="names must be 1"):
        post.to_pandas(names=["a", "b"])


@pytest.mark.slow
def test_laws_of_y_on_a_grid_have_densities_too():
    model = psd.learn(psd.systems.linear_1d(), 1e-2, engine="nodes")
    data = psd.run_filter(model, YS).predicted_observations.to_xarray(grid=60)
    width = np.diff(data["x"][0])[0]
    np.testing.assert_allclose(data["density"].sum("point") * width, 1.0, atol=3e-3)


def test_one_quantile_need_not_be_a_list(model):
    post = psd.run_filter(model, YS)
    one, several = post.to_pandas(0.5), post.to_pandas([0.5])
    pandas.testing.assert_frame_equal(one, several)
    assert post.to_polars(quantiles=0.5).columns[3] == "x0_q0.5"
    assert post.to_xarray(0.5)["quantiles"].shape == (1, 6, 1)
    with pytest.raises(ValueError, match=r"quantiles must be a level or a list of levels, got 'x'"):
        post.to_pandas("x")


def test_without_frames_rows_are_called_by_their_steps(model):
    post = psd.run_filter(model, YS)
    assert post.labels is None
    assert list(post.to_pandas().index) == [1, 2, 3, 4, 5, 6]
    assert post.to_polars().columns[0] == "step"


def test_dates_that_are_left_out_are_missing_steps(model):
    kept = [0, 1, 4, 5]
    post = psd.run_filter(model, series_of(DAYS[kept], YS[kept]))
    np.testing.assert_array_equal(post.times, [1, 2, 5, 6])
    holes = YS.copy()
    holes[2:4] = np.nan
    whole = psd.run_filter(model, holes)
    np.testing.assert_allclose(post.mean, whole.mean[np.array(kept)], rtol=1e-12)
    np.testing.assert_allclose(post.log_likelihood, whole.log_likelihood, rtol=1e-12)
    late = psd.run_filter(model, series_of(DAYS[kept], YS[kept]), first="observe")
    np.testing.assert_array_equal(late.times, [0, 1, 4, 5])


@pytest.mark.parametrize(
    ("index", "steps", "following"),
    [
        (pandas.to_datetime(["2020-01-31", "2020-02-29", "2020-05-31"]), [1, 2, 5], "2020-06-30"),
        (pandas.to_datetime(["2020-01-15", "2020-04-15", "2021-01-15"]), [1, 2, 5], "2021-04-15"),
        (pandas.to_datetime(["2000-01-01", "2001-01-01", "2004-01-01"]), [1, 2, 5], "2005-01-01"),
        (pandas.period_range("2020-01", periods=3, freq="M"), [1, 2, 3], "2020-04-01"),
        # Friday, Monday: weekends are no gaps of days without any.
        (pandas.to_datetime(["2024-01-04", "2024-01-05", "2024-01-08"]), [1, 2, 3], "2024-01-09"),
        (pandas.to_datetime(["2024-01-05", "2024-01-06", "2024-01-08"]), [1, 2, 4], "2024-01-09"),
        (
            pandas.date_range("2024-03-30", periods=3, freq="D", tz="Europe/Paris"),
            [1, 2, 3],
            "2024-04-02",
        ),
        (pandas.Index([1871, 1872, 1875]), [1, 2, 5], 1876),
        (pandas.Index([0.1, 0.2, 0.5]), [1, 2, 5], 0.6),
        (pandas.Index(["a", "b", "c"]), [1, 2, 3], None),
    ],
)
def test_steps_follow_the_calendar(index, steps, following, model):
    frame = pandas.Series([0.1, 0.2, 0.3], index=index)
    post = psd.run_filter(model, frame)
    np.testing.assert_array_equal(post.times, steps)
    ahead = psd.forecast(model, post, 1).to_pandas()
    if following is None:
        assert ahead.index[0] == 4
    elif isinstance(following, str):
        assert ahead.index[0] == pandas.Timestamp(following, tz=post.labels.zone)
    else:
        assert ahead.index[0] == pytest.approx(following)


def test_time_zones_come_back(model):
    frame = series_of(DAYS).tz_localize("America/New_York")
    post = psd.run_filter(model, frame)
    pandas.testing.assert_index_equal(post.to_pandas().index, frame.index, exact="equiv")
    table = post.to_polars()
    assert table["time"].dtype.time_zone == "America/New_York"
    data = post.to_xarray()
    assert data.attrs["time_zone"] == "America/New_York"
    assert data["time"].to_numpy()[0] == np.datetime64("2024-01-01T05:00")


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: series_of(DAYS[[1, 0, 2]], YS[:3]), "must increase, got 2024-01-02.*sort"),
        (lambda: series_of(DAYS[[0, 1, 1]], YS[:3]), "must be distinct.*rows 1 and 2"),
        (lambda: series_of([DAYS[0], "NaT"], YS[:2]), "must not be missing.*row 1"),
        (
            lambda: series_of(DAYS[:3] + np.array([0, 1, 3700], "timedelta64[s]"), YS[:3]),
            "must have a step.*pass times=",
        ),
        (
            lambda: pandas.DataFrame({"d": DAYS, "level": YS}),
            r"column 'd' of ys holds dates.*set_index\('d'\)",
        ),
        (
            lambda: pandas.Series([1.0, 1.0, 1.0], index=[20240130, 20240131, 20240201]),
            r"got dates written as numbers, 20240130 first: pandas.to_datetime\(.*%Y%m%d",
        ),
        (lambda: pandas.Series(DAYS), "ys holds dates: they belong into its index"),
        (lambda: pandas.Series([1 + 2j, 1.0]), "ys must hold real numbers, got complex128"),
        (lambda: pandas.Series([1 + 2j, 1.0], dtype=object), "ys must hold real numbers"),
        (
            lambda: pandas.Series([1.0], index=[datetime.time(12)]),
            r"must hold dates, numbers or strings, got objects of \['time'\].*reset_index",
        ),
        (
            lambda: pandas.DataFrame({"level": ["1", "x"]}),
            "column 'level' of ys must hold real numbers",
        ),
        (lambda: pandas.DataFrame(np.ones((2, 2)), columns=["a", "a"]), "distinct, got \\['a'\\]"),
        (
            lambda: pandas.Series(
                [1.0], index=pandas.MultiIndex.from_tuples([("a", 1)], names=["k", "t"])
            ),
            "one series, got a MultiIndex",
        ),
        (
            lambda: pandas.Series(
                [1.0, 2.0],
                index=pandas.Index(
                    [
                        pandas.Timestamp("2024-01-01", tz="UTC"),
                        pandas.Timestamp("2024-01-02", tz="Europe/Paris"),
                    ],
                    dtype=object,
                ),
            ),
            "dates of one time zone",
        ),
        (lambda: polars.DataFrame({"a": DAYS, "b": DAYS, "y": YS}), "one column of dates at most"),
        (lambda: polars.DataFrame({"y": ["a"]}), "column 'y' of ys must hold real numbers"),
        (lambda: polars.LazyFrame({"y": [1.0]}), "collected first"),
        (lambda: xarray.DataArray(np.ones((2, 2, 2))), "one or two dimensions"),
        (
            lambda: xarray.Dataset({"a": ("t", [1.0]), "b": ("s", [1.0])}),
            "one and the same dimension",
        ),
    ],
)
def test_doubtful_frames_are_refused(make, message, model):
    with pytest.raises(ValueError, match=message):
        psd.run_filter(model, make())


@pytest.mark.parametrize("start", ["2024-01-05", "2024-01-08"])
def test_a_weekday_that_is_left_out_is_a_gap_with_and_without_a_weekend(start, model):
    days = pandas.bdate_range(start, "2024-01-12").drop("2024-01-10")
    post = psd.run_filter(model, pandas.Series(np.zeros(len(days)), index=days))
    np.testing.assert_array_equal(np.diff(post.times)[-4:], [1, 1, 2, 1][-len(days) + 1 :])
    assert post.times[-1] == len(days) + 1


@pytest.mark.parametrize("zone", ["Asia/Tokyo", "America/New_York", "UTC", None])
def test_weekdays_are_those_of_the_place(zone, model):
    days = pandas.bdate_range("2024-03-01", periods=9, tz=zone)
    post = psd.run_filter(model, pandas.Series(np.zeros(9), index=days))
    np.testing.assert_array_equal(post.times, np.arange(1, 10))
    ahead = psd.forecast(model, post, 3).to_pandas()
    assert list(ahead.index) == list(pandas.bdate_range("2024-03-14", periods=3, tz=zone))


SPANS = pandas.to_timedelta([0, 1, 8], unit="D")
DATES = [datetime.date(2024, 1, 5), datetime.date(2024, 1, 6), datetime.date(2024, 1, 13)]


@pytest.mark.parametrize(
    "index",
    [
        pandas.Index(DATES),
        pandas.CategoricalIndex(DATES),
        pandas.Index([datetime.datetime(2024, 1, day) for day in (5, 6, 13)], dtype=object),
        SPANS,
        pandas.Index([datetime.timedelta(days) for days in (0, 1, 8)], dtype=object),
        pandas.Index([1, 2, 9], dtype=object),
        pandas.Index([1, 2, 9], dtype="Int64"),
        pandas.Index([0.5, 1, 4.5], dtype=object),
        pandas.Index([1_700_000_000_000_000_000 + 1_000_000 * i for i in (0, 1, 8)]),
    ],
)
@pytest.mark.parametrize("library", ["pandas", "xarray"])
def test_gaps_of_every_kind_of_index_are_seen(index, library):
    frame = pandas.Series([1.0, 1.0, 1.0], index=index)
    if library == "xarray":
        frame = xarray.DataArray(np.ones(3), coords={"t": index}, dims="t")
    table = as_table("ys", frame)
    np.testing.assert_array_equal(table.labels.steps("ys", 1), [1, 2, 9])


def test_times_since_something_come_back_and_go_on(model):
    frame = pandas.Series([1.0, 1.0, 1.0], index=SPANS)
    post = psd.run_filter(model, frame)
    pandas.testing.assert_index_equal(post.to_pandas().index, SPANS, exact=False)
    assert psd.forecast(model, post, 1).to_pandas().index[0] == pandas.Timedelta(9, "D")
    assert "3, from 0 seconds to 8 days" in str(post)
    assert shared_times(post, post)[0].tolist() == [1, 2, 9]
    assert post.to_polars()["time"].to_list()[2] == datetime.timedelta(8)


def test_objects_that_are_numbers_are_taken(model):
    values = pandas.Series([1, None, decimal.Decimal("0.5")], dtype=object)
    for ys in (values[:2], values[2:], pandas.Series([1, 2.5, None], dtype=object)):
        want = psd.run_filter(model, np.asarray(ys, dtype=float))
        np.testing.assert_array_equal(psd.run_filter(model, ys).mean, want.mean)


def test_given_times_have_the_last_word(model):
    irregular = series_of(DAYS[:3] + np.array([0, 1, 3700], "timedelta64[s]"), YS[:3])
    post = psd.run_filter(model, irregular, times=[1, 1, 4])
    np.testing.assert_array_equal(post.times, [1, 1, 4])
    np.testing.assert_array_equal(post.to_pandas().index, irregular.index)


def test_models_with_real_times_get_the_index_as_it_is():
    irregular = series_of(DAYS[:3] + np.array([0, 1, 3700], "timedelta64[s]"), YS[:3])
    values, times = bare("ys", irregular, None, 1, is_real=True)
    np.testing.assert_array_equal(times, irregular.index)
    np.testing.assert_array_equal(values[:, 0], YS[:3])
    with pytest.raises(ValueError, match="must increase"):
        bare("ys", irregular[::-1], None, 1, is_real=True)


@pytest.mark.long
def test_inputs_have_to_have_the_index_of_the_observations():
    ssm = psd.additive_gaussian(
        lambda x, inputs: 0.5 * x + inputs,
        lambda x: x,
        0.3,
        0.5,
        0.0,
        1.0,
        state_box=(-5.0, 5.0),
    )
    model = psd.learn(ssm, 1e-2, inputs=np.zeros((6, 1)))
    push = pandas.DataFrame({"push": np.linspace(0, 1, 6)}, index=pandas.DatetimeIndex(DAYS))
    post = psd.run_filter(model, series_of(DAYS), inputs=push)
    plain = psd.run_filter(model, YS, inputs=push.to_numpy())
    np.testing.assert_array_equal(post.mean, plain.mean)
    with pytest.raises(ValueError, match="inputs must have the index of ys"):
        psd.run_filter(model, series_of(DAYS), inputs=push.shift(1, freq="D"))


@pytest.mark.long
def test_fits_take_frames_and_lists_of_frames():
    def build(theta):
        return psd.linear_gaussian(0.8, theta["q"], 1.0, 0.5, 0.0, 1.0)

    ll = psd.likelihood(build, {"q": 0.3}, [series_of(DAYS), series_of(DAYS[:3], YS[:3])])
    plain = psd.likelihood(build, {"q": 0.3}, [YS[:, None], YS[:3, None]])
    np.testing.assert_allclose(ll({"q": 0.4}), plain({"q": 0.4}), rtol=1e-12)
    one = psd.likelihood(build, {"q": 0.3}, series_of(DAYS))
    assert one.settings.num_observed == 5
    np.testing.assert_array_equal(one.posterior({"q": 0.3}).to_pandas().index, DAYS)


@pytest.mark.long
def test_draws_as_arviz_data(model):
    pytest.importorskip("arviz")
    smooth = psd.run_smoother(model, series_of(DAYS))
    data = smooth.to_arviz(key=jax.random.key(0), num=500)
    x = data.posterior["x"]
    assert dict(x.sizes) == {"chain": 1, "draw": 500, "time": 6, "state": 1}
    np.testing.assert_array_equal(x["time"], DAYS)
    error = np.asarray(x.mean(("chain", "draw")))[:, 0] - np.asarray(smooth.mean)[:, 0]
    assert np.all(np.abs(error) < 5 * np.sqrt(smooth.covariance[:, 0, 0] / 500))


def test_frames_of_other_dates_share_their_programs(model):
    one = psd.run_filter(model, series_of(DAYS))
    assert one.labels == psd.run_filter(model, series_of(DAYS)).labels
    other = psd.run_filter(model, series_of(DAYS + np.timedelta64(1, "D")))
    assert one.labels != other.labels
    assert jax.tree.structure(one.series) == jax.tree.structure(other.series)


@pytest.mark.long
def test_pictures_have_dates_on_their_axis(model):
    plt = pytest.importorskip("matplotlib.pyplot")
    plt.switch_backend("Agg")
    from matplotlib.dates import DateConverter, num2date  # noqa: F401

    post = psd.run_filter(model, series_of(DAYS))
    ahead = psd.forecast(model, post, 2)
    for ax in (
        psd.plot.over_time(post),
        psd.plot.observations(post),
        psd.plot.forecast(post, ahead, of="observations"),
    ):
        low, high = (num2date(end).replace(tzinfo=None) for end in ax.get_xlim())
        assert low <= pandas.Timestamp(DAYS[0])
        assert high >= pandas.Timestamp(DAYS[-1])
    assert ax.get_ylabel() == "level"
    ridges = psd.plot.over_time(post, style="ridges")
    assert ridges.get_yticklabels()[0].get_text() == "2024-01-01"
    plt.close("all")
