"""Estimation: the optimum, its standard errors, profiles and tests, against independent oracles."""

from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.optimize
import scipy.stats

import psdfilter as psd
from psdfilter._parameters.summary import summary_table

F, H = 0.8, 1.0
TRUTH = {"q": 0.5, "r": 0.3}
BOUNDS = {"q": (0, None), "r": (0, None)}


def build(theta):
    return psd.linear_gaussian(F, theta["q"], H, theta["r"], [0.0], 1.0)


def exact(theta, ys):
    """log-likelihood of the scalar Kalman filter."""
    mean, variance, total = 0.0, 1.0, 0.0
    for y in ys:
        mean, variance = F * mean, F * F * variance + theta["q"]
        spread = variance + theta["r"]
        total -= 0.5 * (np.log(2 * np.pi * spread) + (y - mean) ** 2 / spread)
        gain = variance / spread
        mean, variance = mean + gain * (y - mean), (1 - gain) * variance
    return total


@pytest.fixture(scope="module")
def series():
    rng = np.random.default_rng(4)
    x, ys = 0.0, []
    for _ in range(200):
        x = F * x + np.sqrt(TRUTH["q"]) * rng.normal()
        ys.append(x + np.sqrt(TRUTH["r"]) * rng.normal())
    return np.array(ys)


@pytest.fixture(scope="module")
def fitted(series):
    return psd.fit(build, {"q": 1.5, "r": 1.0}, series, bounds=BOUNDS)


@pytest.fixture(scope="module")
def oracle(series):
    """Maximum and Hessian by SciPy and differences, in logarithms."""

    def loss(z):
        return -exact({"q": np.exp(z[0]), "r": np.exp(z[1])}, series)

    best = scipy.optimize.minimize(
        loss,
        [0.0, 0.0],
        method="Nelder-Mead",
        options={"xatol": 1e-9, "fatol": 1e-12, "maxiter": 2000},
    )
    h, eye, hessian = 1e-3, np.eye(2), np.empty((2, 2))
    for i in range(2):
        for j in range(2):
            a, b = h * eye[i], h * eye[j]
            z = best.x
            hessian[i, j] = (
                loss(z + a + b) - loss(z + a - b) - loss(z - a + b) + loss(z - a - b)
            ) / (4 * h * h)
    return best, hessian


@pytest.mark.slow
def test_the_optimum_is_that_of_another_optimiser(fitted, oracle):
    best, _ = oracle
    assert fitted.converged
    np.testing.assert_allclose(np.log(np.asarray(fitted.estimates)), best.x, atol=1e-4)
    assert abs(float(fitted.log_likelihood) + best.fun) < 1e-6


def test_standard_errors_come_from_the_hessian(fitted, oracle):
    best, hessian = oracle
    errors = np.exp(best.x) * np.sqrt(np.diagonal(np.linalg.inv(hessian)))
    np.testing.assert_allclose(fitted.standard_errors, errors, rtol=1e-3)
    lower, upper = fitted.interval(0.95)
    reach = 1.959964 * np.sqrt(np.diagonal(np.linalg.inv(hessian)))
    np.testing.assert_allclose(lower, np.exp(best.x - reach), rtol=2e-3)
    np.testing.assert_allclose(upper, np.exp(best.x + reach), rtol=2e-3)


def test_the_table_says_what_people_look_for(fitted):
    text = fitted.summary()
    for word in ("log-likelihood", "AIC", "BIC", "coef", "std err", "[0.025", "0.975]", "q", "r"):
        assert word in text
    assert fitted.aic == pytest.approx(4 - 2 * float(fitted.log_likelihood))
    assert fitted.bic == pytest.approx(2 * np.log(200) - 2 * float(fitted.log_likelihood))


def test_the_table_shows_digits_of_estimates_at_a_bound():
    fake = SimpleNamespace(
        names=("q", "r"),
        estimates=np.array([3.21e-8, 0.5]),
        standard_errors=np.array([1.1e-7, 0.05]),
        interval=lambda level: (np.array([0.0, 0.4]), np.array([2.5e-7, 0.6])),
        objective=SimpleNamespace(log_prior=None),
        likelihood=SimpleNamespace(core=SimpleNamespace(frozen=SimpleNamespace(has_plan=False))),
        num_observed=200,
        log_likelihood=-10.0,
        aic=24.0,
        bic=26.0,
        converged=True,
        num_steps=3,
        num_plans=1,
        seconds=0.1,
    )
    rows = {line.split()[0]: line.split()[1:] for line in summary_table(fake, 0.95).splitlines()}
    assert rows["q"] == ["3.21e-08", "1.1e-07", "0.29", "0.770", "0.0000", "2.5e-07"]
    assert rows["r"][:2] == ["0.5000", "0.0500"]


@pytest.mark.long
def test_the_profile_is_the_best_of_the_others(fitted, series):
    profile = fitted.profile("q", num=5, width=2.5)
    for value, reached in zip(profile.values, profile.log_likelihoods, strict=True):
        best = scipy.optimize.minimize_scalar(
            lambda z, q=value: -exact({"q": q, "r": np.exp(z)}, series),
            bounds=(-25.0, 2.0),
            method="bounded",
        )
        assert reached == pytest.approx(-best.fun, abs=1e-5)
    lower, upper = profile.interval(0.9)
    assert lower < float(fitted.theta["q"]) < upper


@pytest.mark.slow
def test_a_prior_moves_the_estimate_to_the_mode_of_the_posterior(series):
    def log_prior(theta):
        return -10 * jnp.square(jnp.log(theta["q"] / 0.2))

    found = psd.fit(build, TRUTH, series, bounds=BOUNDS, log_prior=log_prior)

    def loss(z):
        theta = {"q": np.exp(z[0]), "r": np.exp(z[1])}
        return -exact(theta, series) + 10 * np.log(theta["q"] / 0.2) ** 2

    best = scipy.optimize.minimize(loss, [0.0, 0.0], method="Nelder-Mead", options={"xatol": 1e-8})
    np.testing.assert_allclose(np.log(np.asarray(found.estimates)), best.x, atol=1e-4)
    assert "maximum a posteriori" in found.summary()


@pytest.mark.slow
def test_tests_between_nested_models(fitted, series):
    null = psd.fit(lambda p: build({"q": 0.2, **p}), {"r": 0.5}, series, bounds={"r": (0, None)})
    ratio = psd.likelihood_ratio_test(null, fitted)
    best = scipy.optimize.minimize_scalar(
        lambda r: -exact({"q": 0.2, "r": r}, series), bounds=(1e-3, 3.0), method="bounded"
    )
    expected = 2 * (float(fitted.log_likelihood) + best.fun)
    assert ratio.degrees == 1
    assert ratio.statistic == pytest.approx(expected, rel=1e-4)
    assert ratio.p_value == pytest.approx(scipy.stats.chi2.sf(expected, 1), rel=1e-3)

    theta = {"q": 0.2, "r": float(null.theta["r"])}
    score = psd.score_test(fitted.likelihood, theta, ["q"], information="observed")
    h = 1e-5
    slope = (exact({**theta, "q": 0.2 + h}, series) - exact({**theta, "q": 0.2 - h}, series)) / (
        2 * h
    )
    matrix = -np.asarray(
        jax.hessian(lambda v: fitted.likelihood({"q": v[0], "r": v[1]}))(
            jnp.array([0.2, theta["r"]])
        )
    )
    assert score.statistic == pytest.approx(slope**2 * np.linalg.inv(matrix)[0, 0], rel=1e-3)
    outer = psd.score_test(fitted.likelihood, theta, ["q"])
    assert 0.2 < outer.statistic / ratio.statistic < 5

    table = psd.compare({"full": fitted, "null": null})
    assert table.names[0] == ("full" if fitted.aic < null.aic else "null")
    assert np.sum(table.weights) == pytest.approx(1)
    assert "log-likelihood" in str(table)


@pytest.mark.parametrize(
    ("keywords", "message"),
    [
        ({"bounds": {"s": (0, 1)}}, "bounds names 's'"),
        ({"max_steps": 0}, "max_steps must be"),
        ({"theta0": {"q": -1.0, "r": 1.0}}, "inside its bounds"),
        ({"engine": "magic"}, "engine must be"),
    ],
)
def test_bad_arguments_are_named(series, keywords, message):
    given = {"theta0": TRUTH, "bounds": BOUNDS, **keywords}
    with pytest.raises(ValueError, match=message):
        psd.fit(build, ys=series, **given)


def test_no_profile_of_an_unknown_parameter(fitted):
    with pytest.raises(ValueError, match="name must be one of q, r"):
        fitted.profile("s")


@pytest.mark.slow
def test_far_starting_points_reach_one_optimum_on_nodes():
    system = psd.systems.stochastic_volatility
    ys = np.asarray(system.simulate(1, 400)[1])
    starts = [
        {"mu": -1.0, "rho": 0.9, "sigma": 0.3},
        {"mu": 1.0, "rho": 0.5, "sigma": 1.0},
    ]
    bounds = {"rho": (-1, 1), "sigma": (0, None)}
    fits = [psd.fit(lambda p: system(**p), start, ys, bounds=bounds) for start in starts]
    for fit in fits:
        assert fit.converged
        gap = np.asarray(fit.estimates - fits[0].estimates) / np.asarray(fit.standard_errors)
        assert np.max(np.abs(gap)) < 0.02
    dense = np.sum(
        system.reference(ys, **{k: float(v) for k, v in fits[0].theta.items()}).log_likelihoods
    )
    assert abs(float(fits[0].log_likelihood) - dense) < 1e-2
