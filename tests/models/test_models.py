"""Ready-made families, against statsmodels and models written by hand."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import psdfilter as psd

RNG = np.random.default_rng(0)
LEVEL = np.cumsum(0.3 * RNG.normal(size=60)) + 0.5 * RNG.normal(size=60)
RETURNS = 0.01 * RNG.normal(size=20)
COUNTS = np.array([20.0, 25.0, np.nan, 30.0, 28.0, 22.0])


@pytest.mark.slow
def test_local_level_is_that_of_statsmodels():
    tsa = pytest.importorskip("statsmodels.api").tsa
    fitted = psd.models.LocalLevel().fit(LEVEL)
    other = tsa.UnobservedComponents(LEVEL, "llevel").fit(disp=0)
    noise, level = np.sqrt(other.params)
    assert float(fitted.theta["sigma_level"]) == pytest.approx(level, rel=1e-3)
    assert float(fitted.theta["sigma_noise"]) == pytest.approx(noise, rel=1e-3)
    ahead = fitted.forecast(3).observations
    frame = other.get_forecast(3)
    np.testing.assert_allclose(ahead.mean[:, 0], frame.predicted_mean, rtol=1e-3)
    assert "sigma_level" in str(fitted)
    assert fitted.aic == pytest.approx(fitted.fitted.aic)


@pytest.mark.slow
def test_robust_levels_shrug_at_outliers():
    y = LEVEL.copy()
    y[30] += 20
    near = psd.models.LocalLevel(errors="student").at(y[25:35], sigma_level=0.3, sigma_noise=0.5)
    post = near.filter(1e-2)
    plain = psd.models.LocalLevel().filter(y[25:35], sigma_level=0.3, sigma_noise=0.5)
    assert abs(float(post.mean[5, 0]) - LEVEL[30]) < 2
    assert float(plain.mean[5, 0]) - LEVEL[30] > 4


@pytest.mark.long
def test_ornstein_uhlenbeck_at_irregular_times():
    times = np.cumsum(RNG.exponential(0.5, size=12))
    times -= times[0]
    y = RNG.normal(size=12)
    post = psd.models.OrnsteinUhlenbeck().filter(
        y, times=times, kappa=0.7, mu=0.1, sigma=0.9, noise=0.3
    )
    spread = 0.81 / 1.4 * np.exp(-0.7 * np.abs(times[:, None] - times[None]))
    law = stats.multivariate_normal(np.full(12, 0.1), spread + 0.09 * np.eye(12))
    assert float(post.log_likelihood) == pytest.approx(law.logpdf(y), abs=1e-9)


@pytest.mark.long
@pytest.mark.parametrize("errors", ["normal", "student"])
def test_volatility_is_the_model_it_says(errors):
    family = psd.models.StochasticVolatility(errors=errors, leverage=True)
    theta = family.start(RETURNS)
    ssm = family.build(theta)
    x, y = jnp.array([-9.0]), jnp.array([0.02])
    if errors == "normal":
        want = stats.norm.logpdf(0.02, 0, np.exp(-4.5))
    else:
        want = stats.t.logpdf(0.02, 8, scale=np.exp(-4.5) * np.sqrt(6 / 8))
    assert float(ssm.log_observation(x, y)) == pytest.approx(want)
    u, eps = -9.2, 0.015 * np.exp(4.6)
    mean = theta["mu"] + 0.95 * (u - theta["mu"]) + 0.25 * -0.3 * eps
    got = ssm.structure.f(jnp.array([u]), last_y=jnp.array([0.015]))
    assert float(got[0]) == pytest.approx(mean)
    assert float(ssm.structure.Q[0, 0]) == pytest.approx(0.0625 * 0.91)


@pytest.mark.slow
def test_value_at_risk_and_shortfall_are_those_of_the_law_of_the_next_return():
    fitted = psd.models.StochasticVolatility().at(RETURNS, phi=0.9, sigma=0.3)
    cut, shortfall = psd.models.value_at_risk(fitted, 0.05)
    ahead = fitted.forecast(1)
    x = np.linspace(-14.0, -4.0, 2001)
    weights = np.asarray(ahead.density(0)(x[:, None])) * (x[1] - x[0])
    sd = np.exp(x / 2)
    assert stats.norm.cdf(cut, 0, sd) @ weights == pytest.approx(0.05, abs=1e-4)
    mean = -(sd * stats.norm.pdf(cut / sd)) @ weights / 0.05
    assert shortfall == pytest.approx(mean, rel=1e-3)


@pytest.mark.slow
def test_populations_with_gaps():
    family = psd.models.PopulationGrowth(counts="negative_binomial")
    theta = family.start(COUNTS)
    ssm = family.build(theta)
    want = stats.nbinom.logpmf(25, 10, 10 / (10 + np.exp(3.1)))
    assert float(ssm.log_observation(jnp.array([3.1]), jnp.array([25.0]))) == pytest.approx(want)
    move = ssm.structure.f(jnp.array([3.1]))
    assert float(move[0]) == pytest.approx(3.1 + 0.5 * (1 - np.exp(3.1 - theta["log_K"])))
    fitted = family.at(COUNTS)
    ends = fitted.forecast(2).observations.interval(0.9)
    assert np.all(np.asarray(ends[0]) == np.round(np.asarray(ends[0])))
    assert np.all(np.asarray(ends[0]) < 25)
    assert np.all(np.asarray(ends[1]) > 25)
    with pytest.raises(ValueError, match="y must hold counts"):
        family.at([1.5, 2.0])


def test_what_is_wrong_is_named():
    with pytest.raises(ValueError, match='errors must be "normal" or "student"'):
        psd.models.StochasticVolatility(errors="cauchy")
    with pytest.raises(ValueError, match="growth must be one of"):
        psd.models.PopulationGrowth(growth="linear")
    with pytest.raises(ValueError, match="theta must be some of"):
        psd.models.LocalLevel().filter(LEVEL, sigma=1.0)
    with pytest.raises(ValueError, match="y must be a series of numbers"):
        psd.models.LocalLevel().filter(["2020-01-01", "a"])
    with pytest.raises(ValueError, match="needs a fit"):
        _ = psd.models.LocalLevel().at(LEVEL).aic


@pytest.mark.long
@pytest.mark.parametrize(
    ("family", "width"),
    [
        (psd.models.PopulationGrowth("theta-logistic", counts="negative_binomial"), 1),
        (psd.models.SIR(population=1e4), 1),
        (psd.models.LocalLevel(errors="student"), 1),
        (psd.models.OrnsteinUhlenbeck(), 1),
        (psd.models.StochasticVolatility(errors="student", leverage=True), 1),
        (psd.models.ConstantVelocity("range_bearing", clutter=True), 2),
        (psd.models.CoordinatedTurn("range_bearing_doppler"), 3),
        (psd.models.PlanarRobot([[4.0, 4.0]]), 2),
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_model_built_anew_is_the_same_program(family, width):
    y = np.squeeze(np.arange(3.0, 3.0 + 10 * width).reshape(10, width))
    theta, known = family.start(y), family.known(y)
    one, two = (jax.tree.structure(family.build(theta, known)) for _ in range(2))
    assert one == two
    assert hash(one) == hash(two)
