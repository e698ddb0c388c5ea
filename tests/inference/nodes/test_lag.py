"""Fixed-lag smoothing against full smoothers of series that end where the window ends."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import at_nodes, learned

import psdfilter as psd
from psdfilter import systems
from psdfilter._inference.nodes import lagged


@pytest.fixture(scope="module")
def sine():
    system = systems.sine_map
    _, ys = system.simulate(7, 9)
    ys = np.asarray(ys).copy()
    ys[4] = np.nan
    model = learned("sine_map", 1e-3)
    return model, ys, psd.run_smoother(model, ys, lag=2)


def gap_to_windows(model, ys, lag: int, post, rows=None, **more) -> float:
    """Largest gap of row t of the lagged smoother to row t of the smoother of ys[: t + lag + 1]."""
    gaps = []
    for t in range(len(ys)) if rows is None else rows:
        end = min(t + lag + 1, len(ys))
        cut = {key: np.asarray(value)[:end] for key, value in more.items()}
        whole = psd.run_smoother(model, ys[:end], **cut)
        for got, wanted in (
            (post.mean[t], whole.mean[t]),
            (post.covariance[t], whole.covariance[t]),
        ):
            gaps.append(jnp.max(jnp.abs(got - wanted) / (1 + jnp.abs(wanted))))
    return float(jnp.max(jnp.stack(gaps)))


@pytest.mark.slow
def test_every_row_is_the_smoother_of_its_window(sine):
    model, ys, post = sine
    assert gap_to_windows(model, ys, 2, post, rows=(3, 7)) <= 1e-10
    assert post.lag == 2


@pytest.mark.slow
def test_densities_and_quantiles_of_a_window(sine):
    model, ys, post = sine
    whole = psd.run_smoother(model, ys[:6])
    x = np.linspace(-0.9, 0.9, 7)[:, None]
    np.testing.assert_allclose(post.density(3)(x), whole.density(3)(x), rtol=1e-8, atol=1e-10)
    np.testing.assert_allclose(post.quantile(0.3)[3], whole.quantile(0.3)[3], atol=1e-8)
    w = np.asarray(model.filled.plan.node_weights())
    np.testing.assert_allclose(np.asarray(post.pair_law(3)) @ w, at_nodes(post)[3], atol=1e-10)


@pytest.mark.slow
def test_a_lag_past_the_end_is_the_full_smoother(sine):
    model, ys, _ = sine
    post, whole = psd.run_smoother(model, ys, lag=20), psd.run_smoother(model, ys)
    np.testing.assert_allclose(post.mean, whole.mean, atol=1e-12)
    np.testing.assert_allclose(at_nodes(post), at_nodes(whole), atol=1e-10)


@pytest.mark.long
def test_segments_and_summaries_change_nothing(sine, monkeypatch):
    model, ys, post = sine
    monkeypatch.setattr(lagged, "_segment_steps", lambda model, num, lag: 4)
    brief = psd.run_smoother(model, ys, lag=2, keep="summaries")
    np.testing.assert_allclose(brief.mean, post.mean, atol=1e-13)
    np.testing.assert_allclose(brief.covariance, post.covariance, atol=1e-13)
    np.testing.assert_allclose(brief.log_likelihood, post.log_likelihood)
    assert brief.given is None
    with pytest.raises(ValueError, match="keep="):
        brief.quantile(0.5)


@pytest.mark.slow
def test_lags_with_gaps_between_times(sine):
    model, ys, _ = sine
    times = np.array([1, 2, 5, 6, 8, 9, 10, 13, 14])
    post = psd.run_smoother(model, ys, lag=3, times=times)
    assert gap_to_windows(model, ys, 3, post, times=times) <= 1e-10


@pytest.mark.slow
def test_lags_of_a_transition_that_varies_in_time():
    system = systems.ungm
    _, ys = system.simulate(2, 8)
    model = psd.learn(system(), 1e-2, engine="nodes")
    ys = np.asarray(ys)
    post = psd.run_smoother(model, ys, lag=2)
    assert gap_to_windows(model, ys, 2, post) <= 1e-10
    times = np.array([1, 2, 4, 5, 7, 8, 9, 10])
    post = psd.run_smoother(model, ys, lag=2, times=times)
    assert gap_to_windows(model, ys, 2, post, times=times) <= 1e-10


@pytest.mark.slow
def test_memory_does_not_grow_with_the_length(sine):
    """Arrays that live at one time: as many numbers for 40 as for 10 segments."""
    model, ys, _ = sine
    largest = []
    for num in (4_000, 16_000):
        long = jnp.asarray(np.resize(np.nan_to_num(ys, nan=0.3), (num, 1)))
        compiled = jax.jit(
            lambda y: psd.run_smoother(model, y, lag=5, keep="summaries").mean
        ).lower(long)
        largest.append(compiled.compile().memory_analysis().temp_size_in_bytes / num)
    # Beyond what every row leaves behind (mean, covariance, codes), less per row, not more.
    assert largest[1] <= 1.1 * largest[0]


@pytest.mark.long
def test_smoothers_jump_over_gaps_as_over_missing_rows(sine):
    """Q to a power, in a time-varying model as well: rows of NaN are the oracle."""
    model, ys, _ = sine
    keep = np.array([0, 1, 3, 6, 7])
    gappy = np.full((8, 1), np.nan)
    gappy[keep] = ys[[0, 1, 2, 3, 5]]
    jumps = psd.run_smoother(model, gappy[keep], times=keep + 1)
    whole = psd.run_smoother(model, gappy)
    np.testing.assert_allclose(jumps.mean, whole.mean[keep], atol=1e-10)
    np.testing.assert_allclose(jumps.covariance, whole.covariance[keep], atol=1e-10)


@pytest.mark.slow
def test_paths_over_gaps_have_the_law_of_paths_through_missing_rows(sine):
    model, ys, _ = sine
    keep = np.array([0, 1, 4])
    gappy = np.full((5, 1), np.nan)
    gappy[keep] = ys[[0, 1, 2]]
    jumps = psd.run_smoother(model, gappy[keep], times=keep + 1)
    whole = psd.run_smoother(model, gappy)
    num = 4000
    a = np.asarray(jumps.sample(key=jax.random.key(0), num=num))[..., 0]
    b = np.asarray(whole.sample(key=jax.random.key(1), num=num))[:, keep, 0]
    for i, j in ((0, 1), (1, 2), (0, 2)):
        first, second = a[:, i] * a[:, j], b[:, i] * b[:, j]
        error = np.sqrt((first.var() + second.var()) / num)
        assert abs(first.mean() - second.mean()) < 6 * error


@pytest.mark.slow
def test_a_smoother_over_gaps_of_a_time_varying_model():
    system = systems.ungm
    _, ys = system.simulate(2, 6)
    model = psd.learn(system(), 1e-2, engine="nodes")
    keep = np.array([0, 2, 3, 5])
    gappy = np.full((6, 1), np.nan)
    gappy[keep] = np.asarray(ys)[keep]
    jumps = psd.run_smoother(model, gappy[keep], times=keep + 1)
    whole = psd.run_smoother(model, gappy)
    np.testing.assert_allclose(jumps.mean, whole.mean[keep], atol=1e-9)
    x = np.linspace(-20, 20, 9)[:, None]
    for i, t in enumerate(keep[:-1]):
        np.testing.assert_allclose(jumps.density(i)(x), whole.density(int(t))(x), atol=1e-8)


def test_bad_lags_are_named(sine):
    model, ys, post = sine
    with pytest.raises(ValueError, match="lag must be a whole number >= 1"):
        psd.run_smoother(model, ys, lag=0)
    with pytest.raises(ValueError, match="lag needs one row for each time"):
        psd.run_smoother(model, ys[:3], lag=1, times=[1, 1, 2])
    with pytest.raises(ValueError, match='keep must be "densities" for a smoother without lag'):
        psd.run_smoother(model, ys, keep="summaries")
    with pytest.raises(ValueError, match="sample draws whole paths"):
        post.sample(key=jax.random.key(0), num=2)
