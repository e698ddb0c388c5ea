"""Real times, dates, and matrices that change with them, against the joint law of all states."""

from datetime import UTC, datetime, timedelta

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import psdfilter as psd

RNG = np.random.default_rng(0)
TIMES = np.cumsum(RNG.exponential(1.0, size=8))
YS = np.where(np.arange(8) == 4, np.nan, TIMES + RNG.normal(size=8))


def velocity(q=0.3):
    """Constant velocity with white acceleration, seen in position."""

    def F(dt):
        return jnp.array([[1.0, 0.0], [0.0, 1.0]]) + dt * jnp.array([[0.0, 1.0], [0.0, 0.0]])

    def Q(dt):
        return q * jnp.stack([jnp.stack([dt**3 / 3, dt**2 / 2]), jnp.stack([dt**2 / 2, dt])])

    return psd.linear_gaussian(F, Q, [[1.0, 0.0]], 0.5, [0.0, 1.0], [1.0, 1.0])


def joint(times, ys, q=0.3):
    """log p(y), smoothed means and covariance, by conditioning the joint law of all states."""

    def F(d):
        return np.array([[1.0, d], [0.0, 1.0]])

    dts, num = np.diff(times, prepend=0.0), len(times)
    mean, S, means = np.array([0.0, 1.0]), np.eye(2), []
    C = np.zeros((2 * num, 2 * num))
    for i, d in enumerate(dts):
        noise = q * np.array([[d**3 / 3, d**2 / 2], [d**2 / 2, d]])
        mean, S = F(d) @ mean, F(d) @ S @ F(d).T + noise
        means.append(mean)
        across, at = S.copy(), slice(2 * i, 2 * i + 2)
        C[at, at] = S
        for j in range(i + 1, num):
            across = F(dts[j]) @ across
            C[2 * j : 2 * j + 2, at], C[at, 2 * j : 2 * j + 2] = across, across.T
    seen = np.flatnonzero(~np.isnan(ys))
    H = np.eye(2 * num)[2 * seen]
    r, Sy = ys[seen] - H @ np.concatenate(means), H @ C @ H.T + 0.5 * np.eye(len(seen))
    gain = C @ H.T @ np.linalg.inv(Sy)
    ll = -0.5 * (r @ np.linalg.solve(Sy, r) + np.linalg.slogdet(2 * np.pi * Sy)[1])
    return ll, (np.concatenate(means) + gain @ r).reshape(num, 2), C - gain @ H @ C


@pytest.mark.long
def test_matrices_that_are_functions_of_dt_are_exact():
    model, (ll, mean, covariance) = psd.learn(velocity()), joint(TIMES, YS)
    smooth = psd.run_smoother(model, YS, times=TIMES)
    assert float(smooth.log_likelihood) == pytest.approx(ll, abs=1e-10)
    np.testing.assert_allclose(smooth.mean, mean, atol=1e-10)
    np.testing.assert_allclose(smooth.covariance[3], covariance[6:8, 6:8], atol=1e-10)
    np.testing.assert_allclose(smooth.times, TIMES)
    paths = np.asarray(smooth.sample(key=jax.random.key(0), num=4000))
    got = np.cov(paths[:, 2, 0], paths[:, 3, 1])[0, 1]
    spread = np.sqrt(covariance[4, 4] * covariance[7, 7] + covariance[4, 7] ** 2)
    assert abs(got - covariance[4, 7]) < 6 * spread / np.sqrt(4000)


@pytest.mark.long
def test_forecasts_online_steps_and_likelihoods_know_the_time():
    model, (ll, mean, _) = psd.learn(velocity()), joint(TIMES, YS)
    post = psd.run_filter(model, YS, times=TIMES)
    ahead = psd.forecast(model, post, 2, times=TIMES[-1] + np.array([0.5, 2.0]))
    expected = mean[-1, 0] + mean[-1, 1] * np.array([0.5, 2.0])
    np.testing.assert_allclose(ahead.observations.mean[:, 0], expected, atol=1e-9)
    with pytest.raises(ValueError, match="not equally spaced"):
        psd.forecast(model, post, 2)
    state = psd.init(model)
    for dt, y in zip(np.diff(TIMES, prepend=0.0), YS, strict=True):
        state = psd.update(model, psd.predict(model, state, dt=dt), y)
    assert float(state.log_likelihood) == pytest.approx(ll, abs=1e-10)
    of_q = psd.likelihood(velocity, 0.3, YS, times=TIMES)
    slope = (joint(TIMES, YS, 0.3001)[0] - joint(TIMES, YS, 0.2999)[0]) / 2e-4
    assert float(jax.grad(of_q)(0.3)) == pytest.approx(slope, rel=1e-5)


@pytest.mark.long
def test_one_matrix_for_each_step():
    gains = np.array([0.5, 0.6, 0.7, 0.8])
    ssm = psd.linear_gaussian(gains[:, None, None], 0.1, 1.0, 0.2, 0.0, 1.0)
    post = psd.run_filter(psd.learn(ssm), [1.0, 2.0, 1.0], times=[1, 2, 4])
    mean, P = 0.0, 1.0
    for steps, y in (([0.5], 1.0), ([0.6], 2.0), ([0.7, 0.8], 1.0)):
        for a in steps:
            mean, P = a * mean, a * a * P + 0.1
        gain = P / (P + 0.2)
        mean, P = mean + gain * (y - mean), (1 - gain) * P
    assert float(post.mean[-1, 0]) == pytest.approx(mean, abs=1e-12)
    assert float(post.covariance[-1, 0, 0]) == pytest.approx(P, abs=1e-12)


def decaying():
    """Ornstein-Uhlenbeck, by a density that takes dt."""

    def log_transition(u, x, dt):
        a = jnp.exp(-dt)
        return jax.scipy.stats.norm.logpdf(x[0], a * u[0], jnp.sqrt(1 - a * a))

    return psd.StateSpaceModel(
        lambda x: jax.scipy.stats.norm.logpdf(x[0]),
        log_transition,
        lambda x, y: jax.scipy.stats.norm.logpdf(y[0], x[0], 0.5),
        psd.Box(-6.0, 6.0),
    )


@pytest.mark.slow
def test_densities_that_take_dt_follow_irregular_times():
    times, ys = np.array([0.1, 0.5, 1.7, 1.8, 4.0]), np.array([0.3, -0.2, 1.0, 0.8, 0.0])
    post = psd.run_filter(psd.learn(decaying(), 1e-4), ys, times=times)
    mean, P, ll = 0.0, 1.0, 0.0
    for dt, y in zip(np.diff(times, prepend=0.0), ys, strict=True):
        a = np.exp(-dt)
        mean, P = a * mean, a * a * P + 1 - a * a
        S = P + 0.25
        ll -= 0.5 * (np.log(2 * np.pi * S) + (y - mean) ** 2 / S)
        mean, P = mean + P / S * (y - mean), P - P * P / S
    assert float(post.log_likelihood) == pytest.approx(ll, abs=1e-4)
    assert float(post.mean[-1, 0]) == pytest.approx(mean, abs=1e-4)


@pytest.mark.long
def test_dates_count_in_days_from_the_first():
    pandas = pytest.importorskip("pandas")
    model = psd.learn(velocity())
    dates = pandas.DatetimeIndex(
        np.array(["2020-01-01T00", "2020-01-02T12", "2020-01-05T00", "2020-02-01T00"], "M8[us]")
    )
    days = np.array([0.0, 1.5, 4.0, 31.0])
    by_date = psd.run_filter(model, YS[:4], times=dates)
    by_day = psd.run_filter(model, YS[:4], times=days)
    assert float(by_date.log_likelihood) == float(by_day.log_likelihood)
    assert list(by_date.times) == list(dates.to_numpy())
    ahead = psd.forecast(model, by_date, 1, times=np.array(["2020-02-02"], dtype="datetime64[D]"))
    assert str(ahead.times[0])[:10] == "2020-02-02"
    again = psd.run_filter(model, YS[:4], times=[d.to_pydatetime() for d in dates])
    assert float(again.log_likelihood) == float(by_day.log_likelihood)


def _dates(*days):
    return np.datetime64("2020-01-01") + np.array(days).astype("timedelta64[D]")


@pytest.mark.parametrize(
    ("times", "message"),
    [
        (_dates(0, 2, 1), r"in order, but times\[2\] = 2020-01-02"),
        (_dates(0, 1, 1), "must not repeat"),
        (np.array(["2020-01-01", "NaT", "2020-01-03"], dtype="datetime64[D]"), "NaT at 1"),
        ([1971, 1972, 1973], "are these years"),
        ([0.5, 0.2, 0.9], "in order"),
        ([0.0, np.nan, 1.0], "finite"),
        ([-1.0, 0.0, 1.0], "not before that of the prior"),
        ([1.0, 2.0], "must have shape"),
        (["a", "b", "c"], "numbers or dates.*np.asarray"),
        (_dates(0, 1, 2) - _dates(0), r"times / np.timedelta64\(1, .D.\)"),
        ([datetime(2020, 1, 1), datetime(2020, 1, 2, tzinfo=UTC), None], "time zone, got UTC"),
        ([datetime(2020, 1, 1), None, datetime(2020, 1, 3)], "NaT at 1"),
        ([datetime(2020, 1, 1), "tomorrow", datetime(2020, 1, 3)], "must all be dates"),
        ([0.0, np.inf, np.inf], "finite"),
        (1.6e9 + 60 * np.arange(3.0), "seconds since 1970"),
    ],
)
def test_times_that_make_no_sense_are_named(times, message):
    with pytest.raises(ValueError, match=message):
        psd.run_filter(psd.learn(velocity()), YS[:3], times=times)


@pytest.mark.long
def test_dates_come_in_many_forms():
    pandas, polars = pytest.importorskip("pandas"), pytest.importorskip("polars")
    model, dates = psd.learn(velocity()), pandas.date_range("2020-01-01", periods=3)
    plain = [d.to_pydatetime() for d in dates]
    want = float(psd.run_filter(model, YS[:3], times=[0.0, 1.0, 2.0]).log_likelihood)
    for times in (
        dates.to_series(), pandas.Series(plain, dtype=object), dates.to_period("D"),
        dates.to_period("D").to_series(), list(dates.to_period("D")), np.array(plain),
        [d.date() for d in plain], polars.Series(plain), polars.Series([d.date() for d in plain]),
    ):  # fmt: skip
        assert float(psd.run_filter(model, YS[:3], times=times).log_likelihood) == want
    for zoned in (
        dates.tz_localize("UTC").to_series(), list(dates.tz_localize("Asia/Tokyo")),
        polars.Series(plain).dt.replace_time_zone("UTC"),
    ):  # fmt: skip
        with pytest.raises(ValueError, match="without a time zone"):
            psd.run_filter(model, YS[:3], times=zoned)


@pytest.mark.long
def test_times_ahead_come_after_the_data():
    model = psd.learn(velocity())
    post = psd.run_filter(model, YS[:3], times=_dates(0, 1, 4))
    for times, message in (
        (_dates(3), r"times\[0\] is not after the last of the data"),
        (_dates(5, 6), "must hold 1 times, as many as steps"),
        ([7.0], "must be dates if those of the data were"),
    ):
        with pytest.raises(ValueError, match=message):
            psd.forecast(model, post, 1, times=np.atleast_1d(times))
    state = psd.init(model)
    for dt in (np.timedelta64(36, "h"), timedelta(hours=36), 1.5):
        assert float(psd.predict(model, state, dt=dt).row.dt) == 1.5


def test_time_zones_and_years_are_refused_with_the_remedy():
    pandas = pytest.importorskip("pandas")
    zoned = pandas.date_range("2020-01-01", periods=3, tz="Europe/Berlin")
    with pytest.raises(ValueError, match="tz_localize"):
        psd.run_filter(psd.learn(velocity()), YS[:3], times=zoned)
    counted = psd.learn(psd.linear_gaussian(1.0, 0.1, 1.0, 0.1, 0.0, 1.0))
    with pytest.raises(ValueError, match="Pass times - times"):
        psd.run_filter(counted, YS[:3], times=[1971, 1972, 1975])
    with pytest.raises(ValueError, match="write the transition with the keyword dt"):
        psd.run_filter(counted, YS[:3], times=_dates(0, 1, 2))
    # Whole numbers keep their meaning: gaps are several transitions.
    a = psd.run_filter(counted, [0.3, np.nan, 0.5])
    b = psd.run_filter(counted, [0.3, 0.5], times=[1, 3])
    assert float(a.log_likelihood) == pytest.approx(float(b.log_likelihood), abs=1e-12)


def on_a_line():
    return psd.additive_gaussian(
        f=lambda x: 2 * jnp.sin(x), h=lambda x: x**2 / 4, Q=0.2, R=0.1, m0=0.0, P0=1.0
    )


def in_the_plane():
    return psd.additive_gaussian(
        f=lambda x: jnp.array([2 * jnp.sin(x[0]) + 0.1 * x[1], 0.5 * x[1]]),
        h=lambda x: x[0] ** 2 / 4,
        Q=[0.2, 0.2],
        R=0.1,
        m0=[0.0, 0.0],
        P0=[1.0, 1.0],
    )


@pytest.mark.long
@pytest.mark.parametrize(("make", "tol"), [(on_a_line, 1e-6), (in_the_plane, 1e-2)])
def test_smoothed_densities_across_a_gap_are_those_of_missing_rows(make, tol):
    model, gap = psd.learn(make(), tol), np.nan
    short = psd.run_smoother(model, [0.9, 0.7, 0.8, 0.3], times=[1, 2, 5, 6])
    full = psd.run_smoother(model, [0.9, 0.7, gap, gap, 0.8, 0.3])
    rows = np.array([0, 1, 4, 5])
    np.testing.assert_allclose(short.mean, full.mean[rows], atol=tol)
    np.testing.assert_allclose(short.covariance, full.covariance[rows], atol=tol)
    x = np.random.default_rng(0).normal(size=(40, model.dim))
    for t, row in enumerate(rows):
        np.testing.assert_allclose(short.density(t)(x), full.density(row)(x), atol=tol)


@pytest.mark.long
def test_a_gap_in_dates_needs_no_rows():
    pandas = pytest.importorskip("pandas")
    pytest.importorskip("xarray")
    days = pandas.to_datetime(["2024-01-01", "2024-01-02", "2024-01-04", "2024-01-05"])
    data = pandas.Series([0.9, 0.7, 0.8, 0.3], index=days, name="level")
    smooth = psd.run_smoother(psd.learn(on_a_line(), 1e-3), data)
    table = smooth.to_xarray(grid=200)
    mass = np.trapezoid(table.density.values[:, 0], table.x.values[0], axis=1)
    np.testing.assert_allclose(mass, 1.0, atol=5e-3)
