"""Functions that take the observation before, against dense grids and closed forms."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import psdfilter as psd

MU, PHI, SIGMA, RHO = -0.2, 0.95, 0.25, -0.6
YS = np.array([0.5, -1.0, 0.3, 2.0, -0.7, 0.1])


def leverage(rho=RHO):
    def move(u, last_y):
        return MU + PHI * (u - MU) + SIGMA * rho * last_y * jnp.exp(-u / 2)

    return psd.additive_gaussian(
        move,
        None,
        SIGMA**2 * (1 - rho**2),
        None,
        MU,
        0.25,
        log_observation=lambda x, y: (
            jax.scipy.stats.norm.logpdf(y[0] * jnp.exp(-x[0] / 2)) - x[0] / 2
        ),
        sample_observation=lambda key, x: jnp.exp(x / 2) * jax.random.normal(key, (1,)),
    )


def grid(rho=RHO, ys=YS):
    x = np.linspace(-6.0, 6.0, 1501)
    h = x[1] - x[0]
    p, ll, last = stats.norm.pdf(x, MU, 0.5), 0.0, None
    for y in ys:
        if last is not None:
            mean = MU + PHI * (x - MU) + SIGMA * rho * last * np.exp(-x / 2)
            p = (p * h) @ stats.norm.pdf(x[None], mean[:, None], SIGMA * np.sqrt(1 - rho**2))
        p = p * stats.norm.pdf(y, 0, np.exp(x / 2))
        z = p.sum() * h
        p, ll, last = p / z, ll + np.log(z), y
    return x, h, p, ll


@pytest.mark.slow
def test_leverage_in_the_filter_and_online():
    model, (x, h, p, ll) = psd.learn(leverage(), 1e-4), grid()
    post = psd.run_filter(model, YS, first="observe")
    assert float(post.log_likelihood) == pytest.approx(ll, abs=1e-4)
    assert float(post.mean[-1, 0]) == pytest.approx(p @ x * h, abs=1e-4)
    state = psd.update(model, psd.init(model), YS[0])
    for y in YS[1:]:
        state = psd.update(model, psd.predict(model, state), y)
    assert float(state.log_likelihood) == pytest.approx(ll, abs=1e-4)


@pytest.mark.slow
def test_a_forecast_simulates_what_nobody_has_seen_and_says_so():
    model, (x, h, p, _) = psd.learn(leverage(), 1e-3), grid()
    ahead = psd.forecast(model, psd.run_filter(model, YS, first="observe"), 3)
    # The standardised return is N(0, 1) whatever the state: beyond the first step e is N(0, 1).
    mean = MU + PHI * (x - MU) + SIGMA * RHO * YS[-1] * np.exp(-x / 2)
    law = (p * h) @ stats.norm.pdf(x[None], mean[:, None], SIGMA * np.sqrt(1 - RHO**2))
    free = stats.norm.pdf(x[None], (MU + PHI * (x - MU))[:, None], SIGMA) * h
    laws = [law, law @ free, law @ free @ free]
    errors = np.asarray(ahead.simulation_errors)[:, 0]
    assert errors[0] == 0
    assert 0 < errors[1] < 0.01
    gaps = np.asarray(ahead.mean)[:, 0] - np.array([q @ x * h for q in laws])
    assert np.all(np.abs(gaps) <= 6 * errors + 1e-3)
    third = float(ahead.density(2)([[0.0]])[0])
    assert third == pytest.approx(np.interp(0.0, x, laws[2]), rel=0.05)
    # Laws of y: a mixture of normals over the law of x.
    low = float(ahead.observations.quantile(0.05)[2, 0])
    below = (laws[2] * h) @ stats.norm.cdf(low, 0, np.exp(x / 2))
    assert below == pytest.approx(0.05, abs=6 * np.sqrt(0.05 * 0.95 / 2**16) + 1e-3)


@pytest.mark.slow
def test_leverage_is_estimated_and_smoothed():
    ll = psd.likelihood(leverage, RHO, YS, first="observe")
    assert float(ll(RHO)) == pytest.approx(grid()[3], abs=1e-4)
    slope = (grid(RHO + 1e-4)[3] - grid(RHO - 1e-4)[3]) / 2e-4
    assert float(jax.grad(ll)(RHO)) == pytest.approx(slope, rel=1e-3)
    smooth = psd.run_smoother(psd.learn(leverage(), 1e-3), YS, first="observe")
    assert float(smooth.mean[-1, 0]) == pytest.approx(grid()[2] @ grid()[0] * grid()[1], abs=1e-3)


@pytest.mark.parametrize(
    ("ys", "first", "message"),
    [
        (YS, "predict", "first_y must be given"),
        (np.where(np.arange(6) == 3, np.nan, YS), "observe", r"ys\[3\] is missing"),
    ],
)
def test_an_observation_that_is_not_there_is_named(ys, first, message):
    model = psd.learn(leverage(), 1e-2)
    with pytest.raises(ValueError, match=message):
        psd.run_filter(model, ys, first=first)


@pytest.mark.long
def test_linear_models_with_memory_are_those_with_the_data_put_in():
    # x' = 0.8 x + 0.3 y_{t-1} is a linear model with a known offset in every step.
    ssm = psd.additive_gaussian(
        lambda u, last_y: 0.8 * u + 0.3 * last_y, lambda x: x, 0.1, 0.2, 0.0, 1.0, first_y=0.4
    )
    post = psd.run_filter(psd.learn(ssm, 1e-5), YS)
    mean, P, ll = 0.0, 1.0, 0.0
    for last, y in zip([0.4, *YS[:-1]], YS, strict=True):
        mean, P = 0.8 * mean + 0.3 * last, 0.64 * P + 0.1
        S = P + 0.2
        ll -= 0.5 * (np.log(2 * np.pi * S) + (y - mean) ** 2 / S)
        mean, P = mean + P / S * (y - mean), P - P * P / S
    assert float(post.log_likelihood) == pytest.approx(ll, abs=1e-5)
