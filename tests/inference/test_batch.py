"""Several series at once: the numbers of single runs, whatever their lengths."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import norm

import psdfilter as psd
from psdfilter._inference.buckets import stack_lengths
from psdfilter.systems import sine_map

LENGTHS = (5, 9, 1, 14)


def linear():
    return psd.learn(psd.linear_gaussian(0.9, 0.1, 1.0, 0.2, 0.0, 1.0))


@pytest.fixture(scope="module")
def line():
    """A model on nodes, ragged series of it, and their batch."""
    model = psd.learn(sine_map(), 1e-3, engine="nodes")
    ys = [np.array(sine_map.simulate(i, n)[1]) for i, n in enumerate(LENGTHS)]
    ys[3][4] = np.nan
    return model, ys, psd.run_filter(model, ys)


@pytest.fixture(scope="module")
def singles(line):
    model, ys, _ = line
    return [psd.run_filter(model, y) for y in ys]


FIELDS = ("mean", "covariance", "log_likelihoods", "log_kept", "codes", "seen", "times")


@pytest.mark.long
def test_a_batch_equals_single_runs(line, singles):
    _, ys, batch = line
    assert len(batch) == len(ys)
    for name in FIELDS:
        whole = np.asarray(getattr(batch, name), dtype=float)
        for i, single in enumerate(singles):
            wanted = np.asarray(getattr(single, name), dtype=float)
            assert np.abs(whole[i, : len(wanted)] - wanted).max() < 1e-12
            assert np.abs(np.asarray(getattr(batch[i], name), dtype=float) - wanted).max() < 1e-12
    for i, single in enumerate(singles):
        assert abs(float(batch.log_likelihood[i] - single.log_likelihood)) < 1e-12
        assert abs(float(batch.log_predictive[i] - single.log_predictive)) < 1e-12
    assert np.isnan(np.asarray(batch.mean)[2, 1:]).all()


@pytest.mark.slow
def test_every_question_has_an_answer_with_an_axis_of_series(line, singles):
    _, ys, batch = line
    i, single = 1, singles[1]
    num = len(ys[i])

    def gap(whole, one, axis=0):
        at = (slice(None),) * axis + (slice(num),)
        return np.abs(np.asarray(whole)[i][at] - np.asarray(one)).max()

    assert gap(batch.quantile([0.1, 0.8]), single.quantile([0.1, 0.8]), 1) < 1e-10
    assert gap(batch.interval(0.5)[1], single.interval(0.5)[1]) < 1e-10
    assert gap(batch.cdf([0.2]), single.cdf([0.2])) < 1e-10
    assert gap(batch.expect(jnp.sum), single.expect(jnp.sum)) < 1e-10
    # Grids of y are found for all laws at once, and are right to about this.
    assert gap(batch.pit, single.pit) < 1e-9
    drawn = np.asarray(batch.sample(key=jax.random.key(0), num=3))
    assert drawn.shape == (4, 3, 14, 1)
    assert np.isfinite(drawn[1, :, :9]).all()
    assert np.isnan(drawn[1, :, 9:]).all()
    points = np.linspace(-1, 1, 7)[:, None]
    there = batch.density(7)
    assert [one is None for one in there] == [True, False, True, False]
    assert np.abs(there[1](points) - single.density(7)(points)).max() < 1e-10
    assert batch.error_estimates.shape == (4, 14)
    assert float(batch.error_estimate.max()) < 1e-3
    table = batch.to_xarray()
    assert dict(table.sizes) == {"series": 4, "time": 14, "state": 1, "quantile": 3}
    assert "4, of 1 to 14 rows" in str(batch)


def test_a_member_is_an_ordinary_posterior(line, singles):
    model, _, batch = line
    ahead, wanted = psd.forecast(model, batch[1], 2), psd.forecast(model, singles[1], 2)
    assert np.abs(np.asarray(ahead.mean - wanted.mean)).max() < 1e-12
    assert len(list(batch)) == 4
    assert batch[-1].mean.shape == (14, 1)
    with pytest.raises(IndexError, match=r"i must lie in 0\.\.3"):
        batch[4]


@pytest.mark.long
def test_times_of_their_own_and_several_sensors():
    model = linear()
    rng = np.random.default_rng(0)
    ys = [rng.normal(size=(4, 1)), rng.normal(size=(3, 1))]
    times = [[1, 1, 4, 5], [2, 3, 9]]
    batch = psd.run_filter(model, ys, times=times)
    for i, (y, at) in enumerate(zip(ys, times, strict=True)):
        single = psd.run_filter(model, y, times=at)
        assert np.abs(np.asarray(batch[i].mean - single.mean)).max() < 1e-12
        assert float(batch.log_likelihood[i] - single.log_likelihood) == pytest.approx(0, abs=1e-12)
    with pytest.raises(ValueError, match="times must be a list with one entry for each of 2"):
        psd.run_filter(model, ys, times=[1, 2, 3])


@pytest.mark.long
def test_one_bad_series_is_named_or_has_a_code():
    model = linear()
    ys = [np.zeros((3, 1)), np.array([[0.1], [np.inf]])]
    with pytest.raises(ValueError, match=r"failed at ys\[1\]\[1\]"):
        psd.run_filter(model, ys)
    batch = psd.run_filter(model, ys, throw=False)
    assert np.asarray(batch.code).tolist() == [0, 2]


@pytest.mark.slow
def test_outliers_of_a_default_model_are_done_again():
    """Against Kalman's filter, in NumPy: the fixed plan alone is off by several sd."""
    ssm = psd.additive_gaussian(lambda x: 0.9 * x, lambda x: x, 0.09, 0.01, 0.0, 0.5)
    model = psd.learn(ssm, 1e-3)
    rng = np.random.default_rng(1)
    ys = []
    for outlier in (0.0, 8.0, 0.0):
        x, rows = 0.0, []
        for _ in range(10):
            x = 0.9 * x + 0.3 * rng.normal()
            rows.append(x + 0.1 * rng.normal())
        rows[5] += 0.35 * outlier
        ys.append(np.asarray(rows)[:, None])
    batch = psd.run_filter(model, ys)
    for i, y in enumerate(ys):
        mean, variance, total = 0.0, 0.5, 0.0
        for row, value in enumerate(y[:, 0]):
            mean, variance = 0.9 * mean, 0.81 * variance + 0.09
            spread = variance + 0.01
            total += norm.logpdf(value, mean, np.sqrt(spread))
            gain = variance / spread
            mean, variance = mean + gain * (value - mean), (1 - gain) * variance
            assert abs(float(batch.mean[i, row, 0]) - mean) < 2e-3 * np.sqrt(variance)
        assert abs(float(batch.log_likelihood[i]) - total) < 1e-2
    assert not np.asarray(batch.code).any()
    assert isinstance(batch[1], psd.Posterior)


def test_lengths_of_stacks():
    assert stack_lengths(np.array([3, 5, 7])).tolist() == [7]
    assert stack_lengths(np.zeros(2, int)).tolist() == []
    lengths = np.random.default_rng(0).integers(10, 2001, 100_000)
    chosen = stack_lengths(lengths)
    assert len(chosen) == 8
    assert chosen[-1] == lengths.max()
    padded = chosen[np.searchsorted(chosen, lengths)].sum()
    assert padded < 1.15 * lengths.sum()
