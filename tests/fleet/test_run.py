"""Fleets: the numbers of single runs, whatever holds the series and whatever is wrong with some."""

import errno
import warnings

import jax.numpy as jnp
import numpy as np
import pytest
import xarray
from scipy.stats import norm

import psdfilter as psd
from psdfilter.fleet import _run, _store
from psdfilter.fleet._sources import AbstractSource, Raw
from psdfilter.systems import sine_map


def linear():
    return psd.learn(psd.linear_gaussian(0.9, 0.1, 1.0, 0.2, 0.0, 1.0))


def ragged(seed=0, lengths=(5, 9, 1, 0, 6, 14)):
    rng = np.random.default_rng(seed)
    ys = {f"s{i}": rng.normal(size=(n, 1)) for i, n in enumerate(lengths)}
    ys["s1"][-1:] = np.nan
    ys[f"s{len(lengths) - 1}"][-2:] = np.nan  # rows at the end that are there, and missing
    return ys


def gap(data, name, label, wanted):
    values = data[name].sel(series=label).values
    num = len(np.asarray(wanted))
    assert np.isnan(values[num:]).all()
    return np.abs(values[:num] - np.asarray(wanted)).max()


@pytest.fixture(scope="module")
def nodes():
    return psd.learn(sine_map(), 1e-3, engine="nodes")


@pytest.mark.long
def test_equals_single_runs_with_a_code_for_what_is_bad(nodes):
    ys = {f"s{i}": np.array(sine_map.simulate(i, n)[1]) for i, n in enumerate((5, 9, 1, 14))}
    ys["s1"][3] = np.nan
    ys |= {"empty": np.zeros((0, 1)), "wide": np.zeros((3, 2)), "far": np.full((4, 1), 40.0)}
    ys |= {"infinite": np.array([[0.2], [np.inf]]), "words": np.array([["a"], ["b"]])}
    with pytest.warns(psd.ResolutionWarning, match="1 of 9 series miss"):
        data = psd.run_fleet(nodes, ys, quantiles=(0.1, 0.9))
    for label in ("s1", "s2"):
        single = psd.run_filter(nodes, ys[label])
        assert gap(data, "mean", label, single.mean) < 1e-12
        assert gap(data, "sd", label, np.sqrt(single.covariance[:, :, 0])) < 1e-12
        assert gap(data, "log_likelihoods", label, single.log_likelihoods) < 1e-12
        assert abs(float(data.log_likelihood.sel(series=label) - single.log_likelihood)) < 1e-12
        wanted = np.moveaxis(np.asarray(single.quantile([0.1, 0.9])), 0, -1)
        assert gap(data, "quantiles", label, wanted) < 1e-10
        assert 0 < float(data.error_estimate.sel(series=label)) < 1e-3
    codes = dict(zip(data.series.values, data.code.values, strict=True))
    assert codes["s0"] == codes["empty"] == 0
    assert codes["wide"] == codes["words"] == 6
    assert codes["infinite"] == 2
    assert codes["far"] in (1, 3)
    assert "2 columns" in str(data.message.sel(series="wide").values) or "got 2" in str(
        data.message.sel(series="wide").values
    )
    assert "code 6, 2 series (wide, words)" in data.attrs["summary"]
    assert float(data.log_likelihood.sel(series="empty")) == 0.0


@pytest.mark.long
@pytest.mark.parametrize("what", ["smooth", "forecast"])
def test_smoothers_and_forecasts(what):
    model, ys = linear(), ragged()
    steps = 3 if what == "forecast" else None
    data = psd.run_fleet(model, ys, what=what, steps=steps, quantiles=(0.5,))
    for label in ("s2", "s5"):
        if what == "smooth":
            single = psd.run_smoother(model, ys[label])
        else:
            single = psd.forecast(model, psd.run_filter(model, ys[label]), 3)
        assert gap(data, "mean", label, single.mean) < 1e-12
        wanted = np.asarray(single.quantile(0.5))
        assert gap(data.isel(quantile=0), "quantiles", label, wanted) < 1e-10


def frames(ys):
    import pandas
    import polars

    rows = {
        "series": np.concatenate([[label] * len(y) for label, y in ys.items()]),
        "time": np.concatenate([1 + np.arange(len(y)) for y in ys.values()]),
        "y": np.concatenate([y[:, 0] for y in ys.values()]),
    }
    return pandas.DataFrame(rows), polars.DataFrame(rows)


@pytest.mark.long
def test_every_holder_of_series_gives_the_same(tmp_path):
    import zarr

    model, ys = linear(), ragged(lengths=(5, 9, 1, 14))
    ys["s1"][-1:], ys["s3"][-2:] = 0.1, 0.3  # a Zarr array cannot tell such rows from the end
    wanted = psd.run_fleet(model, ys)
    pandas_frame, polars_frame = frames(ys)
    shuffled = pandas_frame.sample(frac=1, random_state=0)
    path = tmp_path / "table.parquet"
    pandas_frame.to_parquet(path, row_group_size=7)
    array = np.full((4, 14, 1), np.nan)
    for row, y in zip(array, ys.values(), strict=True):
        row[: len(y)] = y
    stored = zarr.create_array(tmp_path / "array.zarr", data=array, chunks=(2, 14, 1))
    holders = {
        "list": list(ys.values()),
        "pandas": pandas_frame,
        "shuffled": shuffled,
        "polars": polars_frame,
        "parquet": str(path),
        "zarr": stored,
        "path": str(tmp_path / "array.zarr"),
    }
    for name, holder in holders.items():
        data = psd.run_fleet(model, holder)
        same = (
            data.assign_coords(series=wanted.series) if name in ("list", "zarr", "path") else data
        )
        same = same.sel(series=wanted.series)
        xarray.testing.assert_allclose(same.drop_attrs(), wanted.drop_attrs(), atol=1e-14)


@pytest.mark.long
def test_names_of_columns():
    model = linear()
    frame = frames(ragged(lengths=(5, 9)))[0].rename(columns={"series": "id", "time": "t"})
    columns = {"series": "id", "time": "t", "values": ["y"]}
    assert psd.run_fleet(model, frame, columns=columns).sizes["series"] == 2
    with pytest.raises(ValueError, match=r"lacks \['series'\]: say columns="):
        psd.run_fleet(model, frame)
    with pytest.raises(ValueError, match="columns may name"):
        psd.run_fleet(model, frame, columns={"who": "id"})


def test_what_cannot_be_a_fleet_is_refused():
    model = linear()
    with pytest.raises(ValueError, match="series must be several"):
        psd.run_fleet(model, [1.0, 2.0])
    with pytest.raises(ValueError, match="what must be"):
        psd.run_fleet(model, ragged(), what="guess")
    with pytest.raises(ValueError, match="steps must be given"):
        psd.run_fleet(model, ragged(), what="forecast")
    with pytest.raises(ValueError, match="where there is nothing"):
        psd.run_fleet(model, "no/such/file.parquet")
    with pytest.raises(ValueError, match="client must be None"):
        psd.run_fleet(model, ragged(), client=3)


def kalman(ys, q, r):
    """Textbook filter of x' = 0.9 x + N(0, q), y = x + N(0, r), x_0 ~ N(0, 0.5)."""
    mean, variance, total, out = 0.0, 0.5, 0.0, []
    for value in ys[:, 0]:
        mean, variance = 0.9 * mean, 0.81 * variance + q
        total += norm.logpdf(value, mean, np.sqrt(variance + r))
        gain = variance / (variance + r)
        mean, variance = mean + gain * (value - mean), (1 - gain) * variance
        out.append((mean, np.sqrt(variance)))
    return np.asarray(out), total


@pytest.mark.slow
@pytest.mark.parametrize("r", [0.25, 0.01])
def test_outliers_and_far_series_are_right_or_loud(r):
    """Of 6, 10 and 50 sd, and series far from typical, against Kalman's filter in NumPy."""
    ssm = psd.additive_gaussian(lambda x: 0.9 * x, lambda x: x, 0.09, r, 0.0, 0.5)
    model = psd.learn(ssm, 1e-3)
    rng = np.random.default_rng(1)
    sd = np.sqrt(0.09 / 0.19 + r)
    ys = {}
    for name in ("plain", 4, 6, 10, 50, "far", "half", "first"):
        x, rows = 0.0, []
        for _ in range(16):
            x = 0.9 * x + 0.3 * rng.normal()
            rows.append(x + np.sqrt(r) * rng.normal())
        y = np.asarray(rows)[:, None]
        if isinstance(name, int):
            y[8] += name * sd
        y[0] += 9 * sd * (name == "first")
        y += 6 * sd * (name == "far")
        y[8:] += 3 * sd * (name == "half")
        ys[str(name)] = y
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        data = psd.run_fleet(model, ys)
    assert int(data.code.sel(series="plain")) == 0
    for label, y in ys.items():
        wanted, total = kalman(y, 0.09, r)
        one = data.sel(series=label)
        off = np.abs(one["mean"].values[:, 0] - wanted[:, 0]) / wanted[:, 1]
        if int(one.code) == 0:
            assert off.max() < 2e-3, label
            assert abs(float(one.log_likelihood) - total) < 1e-3 * len(y), label
        else:
            assert float(one.error_estimate) > 1e-3


def on_a_grid(ys, phi, q, box, num=3001):
    """Log volatility x' = -1 + phi (x + 1) + N(0, q), y ~ N(0, e^x), by sums on a dense grid."""
    x = np.linspace(*box, num)
    step = x[1] - x[0]
    moves = norm.pdf(x[None, :], (-1 + phi * (x + 1))[:, None], np.sqrt(q)) * step
    p, out = norm.pdf(x, -1, np.sqrt(q / (1 - phi**2))), []
    for y in ys[:, 0]:
        p = (p @ moves) * norm.pdf(y, 0, np.exp(x / 2))
        p /= p.sum() * step
        mean = (x * p).sum() * step
        out.append((mean, np.sqrt((np.square(x - mean) * p).sum() * step)))
    return np.asarray(out)


@pytest.mark.slow
def test_series_elsewhere_than_the_nodes_are_done_again():
    """A volatility near a unit root: each series has a level of its own, nodes are where one is."""
    phi, q, box = 0.998, 0.15**2, (-14.0, 12.0)
    start = q / (1 - phi**2)
    ssm = psd.StateSpaceModel(
        log_prior=lambda x: -0.5 * (x[0] + 1) ** 2 / start - 0.5 * jnp.log(2 * jnp.pi * start),
        log_transition=lambda u, x: (
            -0.5 * (x[0] + 1 - phi * (u[0] + 1)) ** 2 / q - 0.5 * jnp.log(2 * jnp.pi * q)
        ),
        log_observation=lambda x, y: -0.5 * (x[0] + y[0] ** 2 * jnp.exp(-x[0])),
        state_box=psd.Box([box[0]], [box[1]]),
    )
    rng, ys = np.random.default_rng(5), []
    for _ in range(5):
        x, rows = -1 + np.sqrt(start) * rng.normal(), []
        for _ in range(30):
            x = -1 + phi * (x + 1) + np.sqrt(q) * rng.normal()
            rows.append(np.exp(x / 2) * rng.normal())
        ys.append(np.asarray(rows)[:, None])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        data = psd.run_fleet(psd.learn(ssm, 1e-3), ys)
    for i, y in enumerate(ys):
        wanted, one = on_a_grid(y, phi, q, box), data.isel(series=i)
        off = np.abs(one["mean"].values[:, 0] - wanted[:, 0]) / wanted[:, 1]
        # Steps are held to the tolerance each; a few of them add up.
        assert int(one.code) != 0 or off.max() < 1e-2, i


@pytest.mark.long
def test_a_store_is_resumed_by_content(tmp_path, monkeypatch):
    model, ys = linear(), ragged(lengths=tuple(range(1, 15)))
    monkeypatch.setattr(_run, "_LEAST_BLOCK", 4)
    path = tmp_path / "store.zarr"
    wanted = psd.run_fleet(model, ys)
    data = psd.run_fleet(model, ys, out=path)
    xarray.testing.assert_equal(data.load().drop_attrs(), wanted.drop_attrs())
    assert "side by side" in data.attrs["summary"]
    calls = []
    honest = _run.run_block
    monkeypatch.setattr(_run, "run_block", lambda *a: calls.append(1) or honest(*a))
    again = psd.run_fleet(model, ys, out=path, resume=True)
    assert calls == []
    xarray.testing.assert_equal(again.load().drop_attrs(), wanted.drop_attrs())
    changed = {**ys, "s6": ys["s6"] + 1.0}
    psd.run_fleet(model, changed, out=path, resume=True)
    assert len(calls) == 1  # of four blocks the one whose data are others
    with pytest.raises(ValueError, match="exists: pass resume=True"):
        psd.run_fleet(model, ys, out=path)
    with pytest.raises(ValueError, match="results of another fleet"):
        psd.run_fleet(model, ys, out=path, resume=True, quantiles=(0.5,))


def test_nothing_is_torn_where_a_store_cannot_be_written(tmp_path, monkeypatch):
    model, ys = linear(), ragged(lengths=tuple(range(1, 15)))
    monkeypatch.setattr(_run, "_LEAST_BLOCK", 4)
    path, wanted = tmp_path / "store.zarr", psd.run_fleet(model, ys)
    honest, left = _store.Store.write, [2]

    def full(self, index, rows, digest):
        with _store.clear_errors(self.path):
            if left[0] == 0:
                raise OSError(errno.ENOSPC, "No space left on device")
            left[0] -= 1
        honest(self, index, rows, digest)

    monkeypatch.setattr(_store.Store, "write", full)
    with pytest.raises(OSError, match=r"cannot be written \(No space left.*resume=True"):
        psd.run_fleet(model, ys, out=path)
    monkeypatch.setattr(_store.Store, "write", honest)
    data = psd.run_fleet(model, ys, out=path, resume=True)
    xarray.testing.assert_equal(data.load().drop_attrs(), wanted.drop_attrs())
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(OSError, match="cannot be written"):
        psd.run_fleet(model, ys, out=tmp_path / "file" / "store.zarr")


@pytest.mark.long
def test_times_inputs_and_the_first_observation():
    rng = np.random.default_rng(0)
    model = linear()
    ys = [rng.normal(size=(4, 1)), rng.normal(size=(3, 1))]
    times = [[1, 1, 4, 5], [2, 3, 9]]
    data = psd.run_fleet(model, ys, times=times)
    for i, (y, at) in enumerate(zip(ys, times, strict=True)):
        single = psd.run_filter(model, y, times=at)
        assert gap(data, "mean", i, single.mean) < 1e-12
    data = psd.run_fleet(model, ys, first="observe")
    assert gap(data, "mean", 1, psd.run_filter(model, ys[1], first="observe").mean) < 1e-12
    assert data.time.values[0] == 0


def test_many_lengths_take_few_programs():
    lengths = np.random.default_rng(0).integers(10, 2001, 5000)
    source = Lengths(lengths)
    work = _run._as_work("filter", (), None, "predict")
    shape = _run._shape_of(source, 1, work, 3)
    kit = _run._kit_for(linear(), source, work, shape.block)
    assert len(kit.sizes) > 1
    assert len(kit.sizes) + len(kit.finer_sizes) <= 12
    assert kit.sizes[-1][0] == kit.finer_sizes[-1][0] == lengths.max()
    # Another machine has the same blocks, whatever its cores.
    assert shape.num_blocks >= 16


class Lengths(AbstractSource):
    """Series of which only the lengths are of interest."""

    def __init__(self, lengths):
        self.lengths, self.labels = lengths, np.arange(len(lengths))

    def read(self, start, stop):
        return [Raw(np.zeros((self.lengths[i], 1))) for i in range(start, stop)]


@pytest.mark.slow
def test_engines_that_take_one_series_at_a_time():
    model = psd.learn(sine_map(), 1e-2, engine="closed")
    ys = {"a": np.array([[0.1], [0.4], [0.2]]), "b": np.array([[1.0], [0.0], [0.3]])}
    data = psd.run_fleet(model, ys)
    assert set(data.method.values) == {"closed"}
    assert gap(data, "mean", "a", psd.run_filter(model, ys["a"]).mean) < 1e-12
    assert not data.code.values.any()
    batch = psd.run_filter(model, list(ys.values()))
    assert np.abs(np.asarray(batch[1].mean - psd.run_filter(model, ys["b"]).mean)).max() < 1e-12
    with pytest.raises(ValueError, match='side by side, got engine "closed"'):
        psd.OnlineFleet(model, 2)
