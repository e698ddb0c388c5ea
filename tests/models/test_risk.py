"""Back-tests of values at risk, and covariates: against published tables and dense grids."""

import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import psdfilter as psd
from psdfilter._inference.series import asked_by
from psdfilter._models.risk import _coverage, _independence
from psdfilter._parameters.covering import along_inputs
from psdfilter._parameters.settings import Settings, as_list

RNG = np.random.default_rng(5)
Y = np.array([0.5, -1.0, 0.3, 2.0, -0.7, 0.1])
Z = np.array([0.0, 1.0, -0.5, 0.3, 2.0, -1.0])
THETA = {"mu": -0.2, "phi": 0.9, "sigma": 0.3, "beta0": 0.4}


@pytest.mark.parametrize(
    ("level", "num", "low", "high"),
    [
        # Numbers of failures that a test of 5 % accepts: Kupiec (1995), as in Jorion (2007).
        (0.01, 255, 0, 7),
        (0.01, 510, 1, 11),
        (0.01, 1000, 4, 17),
        (0.05, 255, 6, 21),
        (0.05, 510, 16, 36),
        (0.05, 1000, 37, 65),
    ],
)
def test_coverage_accepts_what_kupiec_accepts(level, num, low, high):
    def accepts(count):
        return _coverage(np.arange(num) < count, level) > 0.05

    assert accepts(low + 1)
    assert accepts(high - 1)
    assert not accepts(high)
    assert low == 0 or not accepts(low)


def test_independence_is_a_likelihood_ratio_of_a_table_of_pairs():
    below = RNG.random(400) < 0.1
    counted = RNG.random(400) < 0.95
    both = counted[1:] & counted[:-1]
    pairs = [[np.sum(both & (below[:-1] == i) & (below[1:] == j)) for j in (0, 1)] for i in (0, 1)]
    want = stats.chi2_contingency(pairs, correction=False, lambda_="log-likelihood").pvalue
    assert _independence(below, counted) == pytest.approx(want, rel=1e-9)
    assert np.isnan(_independence(np.zeros(9, bool), np.ones(9, bool)))


def grid(theta, ys, zs, rho=0.0):
    """Predictions of x on a dense grid, and log p(y)."""
    mu, phi, sigma, beta = (theta[name] for name in ("mu", "phi", "sigma", "beta0"))
    x = np.linspace(-7.0, 7.0, 1401)
    h, ll, last, laws = x[1] - x[0], 0.0, None, []
    p = stats.norm.pdf(x, mu, sigma / np.sqrt(1 - phi**2))
    for y, z in zip(ys, zs, strict=True):
        if last is not None:
            mean = mu + phi * (x - mu) + beta * z + sigma * rho * last * np.exp(-x / 2)
            p = (p * h) @ stats.norm.pdf(x[None], mean[:, None], sigma * np.sqrt(1 - rho**2))
        laws.append(p)
        p = p * stats.norm.pdf(y, 0, np.exp(x / 2))
        ll, p, last = ll + np.log(p.sum() * h), p / (p.sum() * h), y
    return x, h, laws, ll


@pytest.mark.slow
@pytest.mark.parametrize("rho", [0.0, -0.5])
def test_covariates_move_the_log_variance(rho):
    family = psd.models.StochasticVolatility(leverage=rho != 0, covariates=1)
    theta = THETA if rho == 0 else {**THETA, "rho": rho}
    fitted = family.at(Y, inputs=Z, **theta)
    post = fitted.filter(1e-4)
    x, h, laws, ll = grid(THETA, Y, Z, rho)
    assert float(post.log_likelihood) == pytest.approx(ll, abs=1e-4)
    found = psd.models.backtest(fitted, 0.1, skip=1)
    for cut, law in zip(found.value_at_risk, laws, strict=True):
        assert (law * h) @ stats.norm.cdf(cut, 0, np.exp(x / 2)) == pytest.approx(0.1, abs=1e-3)
    np.testing.assert_array_equal(found.below, (found.value_at_risk > Y) & (np.arange(6) > 0))
    assert (found.num, found.num_below) == (5, int(found.below.sum()))
    assert f"{found.num_below} of 5 returns below the value at risk of 0.1" in str(found)
    # More of what raises the variance, a larger loss.
    cuts = [psd.models.value_at_risk(fitted, 0.05, inputs=np.array([z]))[0] for z in (0.0, 2.0)]
    assert cuts[1] < cuts[0] < 0


@pytest.mark.slow
def test_slopes_of_covariates_are_found():
    rng, num = np.random.default_rng(2), 300
    z = rng.normal(size=(num, 2))
    x, y = -0.5, np.empty(num)
    for t in range(num):
        x = -0.5 + 0.9 * (x + 0.5) + (z[t] @ [0.5, 0.0] if t else 0.0) + 0.1 * rng.normal()
        y[t] = np.exp(x / 2) * rng.normal()
    fitted = psd.models.StochasticVolatility(covariates=2).fit(y, inputs=z, tol=1e-3)
    errors = dict(zip(fitted.names, np.asarray(fitted.fitted.standard_errors), strict=True))
    assert abs(float(fitted.theta["beta0"]) - 0.5) < 4 * errors["beta0"] < 1.0
    assert abs(float(fitted.theta["beta1"])) < 4 * errors["beta1"]


@pytest.mark.long
def test_what_cannot_be_tested_is_named():
    family = psd.models.StochasticVolatility(covariates=1)
    with pytest.raises(ValueError, match="covariates must be a whole number"):
        psd.models.StochasticVolatility(covariates=-1)
    with pytest.raises(ValueError, match="inputs must have 1 columns, as covariates says, got 2"):
        family.filter(Y, inputs=np.zeros((6, 2)))
    with pytest.raises(ValueError, match="inputs must be given"):
        family.filter(Y)
    with pytest.raises(ValueError, match=r"inputs must be finite numbers, got nan in row 2"):
        family.filter(Y, inputs=np.where(np.arange(6) == 2, np.nan, Z))
    with pytest.raises(ValueError, match=r"level must be one number that lies in \(0, 1\)"):
        psd.models.value_at_risk(family.at(Y, inputs=Z), 1.0)
    post = psd.run_filter(psd.learn(psd.linear_gaussian(0.9, 0.1, 1.0, 0.1, 0.0, 1.0)), Y)
    with pytest.raises(ValueError, match="skip must leave some returns of 6"):
        psd.models.backtest(post, skip=6)
    two = psd.linear_gaussian(0.9, 0.1, [[1.0], [1.0]], [0.1, 0.1], 0.0, 1.0)
    with pytest.raises(ValueError, match="must be of scalar returns, got 2 columns"):
        psd.models.backtest(psd.run_filter(psd.learn(two), jnp.zeros((3, 2))))


def test_leverage_is_planned_without_the_returns_of_the_data():
    """States that were simulated have not caused them: the box reached to 1e95."""
    family = psd.models.StochasticVolatility(errors="student", leverage=True)
    mu, phi, rho, sigma, nu = -0.525, 0.968, -0.943, 0.229, 5.86
    ssm = family.build({"mu": mu, "phi": phi, "rho": rho, "sigma": sigma, "nu": nu})
    rng, x, ys = np.random.default_rng(3), mu, []
    for _ in range(500):
        e = rng.standard_t(nu) * np.sqrt((nu - 2) / nu)
        ys.append(np.exp(x / 2) * e)
        x = mu + phi * (x - mu) + sigma * (rho * e + np.sqrt(1 - rho**2) * rng.normal())
    given = {"first": "observe", "inputs": None, "times": None}
    (planned,) = along_inputs([ssm], Settings(as_list(np.array(ys)), given, asked_by(ssm)))
    assert float(planned.state_box.half_width[0]) < 2 * float(ssm.state_box.half_width[0])
