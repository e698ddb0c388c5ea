"""What holds of every engine."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from engines import CASES, filtered, learned, level, series, two_levels

import psdfilter as psd
from psdfilter._inference.ability import Ability

NAMES = [
    pytest.param(name, marks=[pytest.mark.slow] if case.slow else [])
    for name, case in CASES.items()
]
every_engine = pytest.mark.parametrize("name", NAMES)


def spread_points(post, t, num):
    """A grid around a law, wide enough to hold all of it; and the volume of its cells."""
    mean, sd = np.asarray(post.mean[t]), np.sqrt(np.diagonal(np.asarray(post.covariance[t])))
    low, high = mean - 9 * sd, mean + 9 * sd
    box = post.model.report.nodes is not None or post.model.engine in (
        "closed",
        "reference",
        "free",
    )
    if box:
        low, high = np.maximum(low, -1.0), np.minimum(high, 1.0)
    axes = [np.linspace(a, b, num) for a, b in zip(low, high, strict=True)]
    points = np.stack([m.ravel() for m in np.meshgrid(*axes, indexing="ij")], axis=-1)
    weights = np.ones(1)
    for axis in axes:
        w = np.full(num, axis[1] - axis[0])
        w[[0, -1]] *= 0.5
        weights = np.multiply.outer(weights, w).ravel()
    return points, weights


@pytest.mark.long
@every_engine
def test_densities_have_mass_one_and_are_never_negative(name):
    post = filtered(name)
    for t in (0, -1):
        num = 4001 if post.mean.shape[1] == 1 else 301
        points, weights = spread_points(post, t, num)
        values = np.asarray(post.density(t)(points))
        assert values.min() >= 0
        np.testing.assert_allclose(weights @ values, 1.0, atol=max(CASES[name].accuracy, 2e-3))
    scattered = np.random.default_rng(0).normal(size=(50, post.mean.shape[1]))
    assert np.asarray(post.density(0)(scattered)).min() >= 0


@pytest.mark.long
@every_engine
def test_modes_are_the_local_maxima_of_the_density(name):
    post = filtered(name)
    if post.mean.shape[1] > 2:
        with pytest.raises(ValueError, match="one or two coordinates"):
            post.modes(0)
        return
    density, modes = post.density(-1), np.asarray(post.modes(-1))
    np.testing.assert_array_equal(post.mode(-1), modes[0])
    heights = np.asarray(density(modes))
    assert (np.diff(heights) <= 0).all()
    # Nothing on a grid around the law is higher than the highest, by more than its own spacing.
    points, _ = spread_points(post, -1, 2001 if modes.shape[1] == 1 else 201)
    assert heights[0] >= (1 - 1e-9) * np.asarray(density(points)).max()
    # A step of a thousandth of a deviation leads down from every one.
    sd = np.sqrt(np.diagonal(np.asarray(post.covariance[-1])))
    for step in np.concatenate([np.diag(sd), -np.diag(sd)]) * 1e-3:
        assert (np.asarray(density(modes + step)) <= heights * (1 + 1e-9)).all()


@pytest.mark.long
@every_engine
def test_the_mean_is_the_expectation_of_the_state(name):
    post, accuracy = filtered(name), CASES[name].accuracy
    np.testing.assert_allclose(post.expect(lambda x: x), post.mean, atol=10 * accuracy)
    second = post.expect(lambda x: jnp.outer(x, x))
    outer = np.einsum("ti,tj->tij", post.mean, post.mean)
    np.testing.assert_allclose(second - outer, post.covariance, atol=10 * accuracy)


@every_engine
@pytest.mark.parametrize("q", [0.03, 0.5, 0.9])
def test_distribution_functions_undo_quantiles(name, q):
    post = filtered(name)
    np.testing.assert_allclose(post.cdf(post.quantile(q)), q, atol=1e-8)
    low, high = post.interval(0.8)
    assert np.all(np.asarray(low) < np.asarray(high))


@pytest.mark.long
@every_engine
def test_one_observation_at_a_time_is_the_whole_series(name):
    model, post = learned(name), filtered(name)
    state = psd.init(model)
    for y in series(name):
        state = psd.update(model, psd.predict(model, state), y)
    # Nodes that are chosen at every step are others in a scan: equal to the tolerance, far below.
    adaptive = model.engine == "adaptive"
    close = 0.01 * CASES[name].tol if adaptive else 1e-9
    if model.engine == "free":
        close = 1e-8  # a fit of a free shape ends where its gradient is small, not zero
    gap = abs(float(state.log_likelihood - post.log_likelihood))
    assert gap <= (close if adaptive else 1e-10 * (1 + abs(float(post.log_likelihood))))
    mean, covariance = state.moments(model)
    np.testing.assert_allclose(mean, post.mean[-1], rtol=1e-8, atol=close)
    np.testing.assert_allclose(covariance, post.covariance[-1], rtol=1e-8, atol=close)
    points, _ = spread_points(post, -1, 9)
    # Several squares are fitted by one there, to the tolerance.
    atol = 0.1 * CASES[name].tol if name == "nodes joint" else close
    np.testing.assert_allclose(
        state.density(model)(points), post.density(-1)(points), rtol=1e-6, atol=atol
    )
    assert int(state.step) == len(series(name))
    assert int(state.code) == 0


@pytest.mark.long
@every_engine
def test_a_missing_row_is_a_time_without_an_observation(name):
    model, ys = learned(name), series(name)
    gap = np.concatenate([ys[:1], np.full_like(ys[:1], np.nan), ys[1:2]])
    missing = psd.run_filter(model, gap)
    skipped = psd.run_filter(model, ys[:2], times=[1, 3])
    close = 0.01 * CASES[name].tol if model.engine == "adaptive" else 1e-9
    np.testing.assert_allclose(missing.mean[-1], skipped.mean[-1], rtol=1e-8, atol=close)
    # A missing row forgives the mass that has left the box.
    kept = float(missing.log_kept[1])
    assert abs(float(missing.log_likelihood + kept - skipped.log_likelihood)) < 10 * close
    assert float(missing.log_likelihoods[1]) == 0.0


@pytest.mark.long
@every_engine
def test_several_sensors_at_one_time_are_their_product(name):
    model, ys = learned(name), series(name)
    there = psd.run_filter(model, ys[:2], times=[1, 1])
    back = psd.run_filter(model, ys[1::-1], times=[1, 1])
    accuracy = max(CASES[name].tol, 1e-8) if model.engine in ("mixture", "free") else 1e-2
    np.testing.assert_allclose(there.mean[-1], back.mean[-1], atol=accuracy)
    np.testing.assert_allclose(there.log_likelihood, back.log_likelihood, atol=5 * accuracy)


BATCHED = [name for name, case in CASES.items() if name != "reference" and not case.slow]


@pytest.mark.long
@pytest.mark.parametrize("name", BATCHED)
def test_vmap_is_a_loop_and_jit_changes_nothing(name):
    model, ys = learned(name), series(name)
    if model.engine == "mixture":
        model = model.sized(psd._inference.series.as_series(ys, model.num_observed))
    both = np.stack([ys, ys[::-1]])

    def summary(y):
        post = psd.run_filter(model, y, throw=False)
        return post.log_likelihoods, post.mean

    each = [summary(y) for y in both]
    batch = jax.vmap(summary)(jnp.asarray(both))
    compiled = jax.jit(summary)(jnp.asarray(ys))
    # Traced series have a fixed plan there: another engine, the same tolerance.
    atol = CASES[name].tol if model.engine == "adaptive" else 1e-11
    for k in range(2):
        np.testing.assert_allclose(batch[k], [one[k] for one in each], rtol=1e-9, atol=atol)
        np.testing.assert_allclose(compiled[k], each[0][k], rtol=1e-9, atol=atol)


@pytest.mark.long
@pytest.mark.parametrize("name", [name for name in CASES if name != "reference"][:5])
def test_a_second_call_and_an_equal_model_compile_nothing(name, caplog):
    case, model, ys = CASES[name], learned(name), series(name)
    run = [psd.run_filter(model, ys).mean, psd.update(model, psd.init(model), ys[0])]
    psd.run_filter(model, ys[::-1])  # it may need another of the few sizes that there are
    again = psd.learn(case.ssm(), case.tol, engine=case.engine)
    with jax.log_compiles(), caplog.at_level("WARNING"):
        run += [psd.run_filter(model, ys[::-1]).mean, psd.run_filter(again, ys).mean]
        run += [psd.update(again, psd.init(again), ys[1])]
    compiled = [r.getMessage() for r in caplog.records if "Compiling" in r.getMessage()]
    assert not [message for message in compiled if "_run" in message or "_update" in message]
    np.testing.assert_array_equal(run[0], run[3])


@every_engine
def test_files_hold_all_of_it(name, tmp_path):
    model, ys = learned(name), series(name)
    if model.engine == "reference":
        pytest.skip("small orders for the docs and the tests: not worth a file")
    psd.save(tmp_path / "model", model)
    psd.save(tmp_path / "state", psd.update(model, psd.init(model), ys[0]))
    back = psd.load(tmp_path / "model", ssm=CASES[name].ssm())
    state = psd.load(tmp_path / "state")
    again = psd.update(back, psd.predict(back, state), ys[1])
    first = psd.update(model, psd.init(model), ys[0])
    straight = psd.update(model, psd.predict(model, first), ys[1])
    np.testing.assert_array_equal(again.log_likelihood, straight.log_likelihood)
    np.testing.assert_allclose(psd.run_filter(back, ys).mean, filtered(name).mean, rtol=1e-12)


@pytest.mark.long
@pytest.mark.filterwarnings("ignore:.*averages over paths:psdfilter.ResolutionWarning")
@every_engine
def test_the_last_smoothed_law_is_the_last_filtered_one(name):
    model, post = learned(name), filtered(name)
    if model.engine == "reference":
        with pytest.raises(ValueError, match=r'"nodes".* can'):
            psd.run_smoother(model, series(name))
        return
    smooth = psd.run_smoother(model, series(name))
    # Mixtures average over 1024 paths.
    accuracy = 0.1 if smooth.method == "backward sampling" else 1e-6
    sd = np.sqrt(np.asarray(post.covariance[-1]).diagonal())
    assert np.all(np.abs(np.asarray(smooth.mean[-1] - post.mean[-1])) <= accuracy * sd)
    assert smooth.sample(key=jax.random.key(0), num=3).shape == (3, *post.mean.shape)
    np.testing.assert_array_equal(smooth.log_likelihoods, post.log_likelihoods)


@pytest.mark.long
@every_engine
def test_a_forecast_of_no_steps_is_the_filter_and_one_of_two_is_two_missing_rows(name):
    model, post, ys = learned(name), filtered(name), series(name)
    now = psd.forecast(model, post, 0)
    np.testing.assert_allclose(now.mean[0], post.mean[-1], rtol=1e-12)
    np.testing.assert_allclose(now.quantile(0.3)[0], post.quantile(0.3)[-1], rtol=1e-10)
    ahead = psd.forecast(model, post, 2)
    longer = psd.run_filter(model, np.concatenate([ys, np.full_like(ys[:2], np.nan)]))
    # Forecasts of adaptive steps are made on nodes of their own.
    atol = 0.1 * CASES[name].tol if model.engine == "adaptive" else 1e-8
    np.testing.assert_allclose(ahead.mean, longer.mean[-2:], rtol=1e-6, atol=atol)
    np.testing.assert_allclose(ahead.covariance, longer.covariance[-2:], rtol=1e-6, atol=atol)


@pytest.mark.long
@every_engine
def test_laws_of_observations_are_those_of_simulated_ones(name):
    # Both regimes see what the random walk does.
    ssm = level() if CASES[name].ssm is two_levels else CASES[name].ssm()
    model, sensor, num = learned(name), ssm.sample_observation, 20_000
    ahead = psd.forecast(model, filtered(name), 1)
    if sensor is None or Ability.OBSERVED_LAWS not in model.abilities:
        with pytest.raises(ValueError, match=r"law of y|sample_observation|observation_box"):
            _ = ahead.observations
        return
    laws, (k1, k2) = ahead.observations, jax.random.split(jax.random.key(7))
    states = ahead.sample(key=k1, num=num)[:, 0]
    y = np.asarray(jax.vmap(sensor)(jax.random.split(k2, num), states))
    if "circle" in name:
        y = y - 2 * np.pi * np.round((y - np.asarray(laws.mean[0])) / (2 * np.pi))
    slack = 0.1 * CASES[name].tol
    for q in (0.02, 0.5, 0.9):
        share = np.mean(y <= np.asarray(laws.quantile(q))[0], axis=0)
        np.testing.assert_allclose(share, q, atol=6 * np.sqrt(q * (1 - q) / num) + slack, rtol=0)
    gaps = np.abs(y.mean(0) - np.asarray(laws.mean[0])) / y.std(0)
    assert gaps.max() < 6 / np.sqrt(num) + slack
    ratio = np.asarray(laws.covariance[0]).diagonal() / y.var(0)
    # The kurtosis of these laws is below five.
    np.testing.assert_allclose(ratio, 1.0, atol=6 * np.sqrt(4 / num) + slack)


@every_engine
def test_what_was_filtered_before_does_not_matter(name):
    case, ys = CASES[name], series(name)
    model, fresh = learned(name), psd.learn(case.ssm(), case.tol, engine=case.engine)
    other = psd.run_filter(model, ys[::-1])
    np.testing.assert_array_equal(
        psd.run_filter(model, ys).log_likelihoods, psd.run_filter(fresh, ys).log_likelihoods
    )
    assert not np.array_equal(other.log_likelihoods, filtered(name).log_likelihoods)


@every_engine
def test_an_impossible_observation_has_a_code_and_changes_nothing(name):
    model, ys = learned(name), series(name).copy()
    ys[1] = np.inf
    with pytest.raises(ValueError, match=r"the filter failed at ys\[1\]"):
        psd.run_filter(model, ys)
    post = psd.run_filter(model, ys, throw=False)
    assert int(post.codes[1]) != 0
    assert "infinite" in psd.explain(post.codes[1])
    ys[1] = np.nan
    np.testing.assert_allclose(post.mean[1], psd.run_filter(model, ys).mean[1], rtol=1e-9)


@every_engine
def test_errors_are_estimated_or_the_refusal_says_who_does(name):
    post = filtered(name)
    if post.model.engine == "reference":
        with pytest.raises(ValueError, match='"reference" does not offer an error estimate'):
            _ = post.error_estimates
        return
    errors = np.asarray(post.error_estimates)
    assert errors.shape == (len(series(name)),)
    assert np.all(errors >= 0)
    assert float(post.error_estimate) == errors.max()


@every_engine
def test_results_print_and_become_data_sets(name):
    post = filtered(name)
    assert post.model.engine in str(post)
    assert post.model.engine in str(post.model.report)
    data = post.to_xarray()
    assert dict(data.sizes)["time"] == len(series(name))
    assert data.attrs["engine"] == post.model.engine
