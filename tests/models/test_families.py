"""Parameters of families, and what is no parameter."""

import numpy as np
import pytest

import psdfilter as psd
from psdfilter import models

YS = np.random.default_rng(0).normal(size=12)


@pytest.mark.parametrize(
    ("family", "theta", "message"),
    [
        (models.StochasticVolatility(), {"phi": 1.2}, "phi must be a number from -1 to 1, got 1.2"),
        (models.StochasticVolatility(), {"sigma": -0.2}, "sigma must be a number from 0 to inf"),
        (models.StochasticVolatility(), {"mu": np.nan}, "mu must be a number"),
        (models.StochasticVolatility(), {"phi": "a"}, "phi must be an array of numbers, got str"),
        (models.StochasticVolatility(), {"phi": [0.9, 0.8]}, "phi must be one number"),
        (models.StochasticVolatility(), {"nu": 4.0}, "must be some of mu, phi, sigma, got .'nu'"),
        (models.StochasticVolatility(leverage=True), {"rho": 1.2}, "rho must be a number from -1"),
        (models.OrnsteinUhlenbeck(), {"kappa": -1.0}, "kappa must be a number from 0 to inf"),
        (models.LocalLevel(), {"sigma_level": -1.0}, "sigma_level must be a number from 0"),
    ],
)
def test_parameters_that_are_none_are_named(family, theta, message):
    with pytest.raises(ValueError, match=message):
        family.at(YS, **theta)
    with pytest.raises(ValueError, match=message):
        family.fit(YS, theta0=theta)


def test_a_level_that_never_moves_is_a_regression_on_a_constant():
    """Bounds themselves are left to the model."""
    fitted = models.LocalLevel().at(YS, sigma_level=0.0, sigma_noise=1.0)
    post = fitted.filter()
    variances = np.asarray(post.covariance[:, 0, 0])
    np.testing.assert_allclose(1 / variances[1:] - 1 / variances[:-1], 1.0, rtol=1e-6)


@pytest.mark.parametrize("dt", ["1", np.nan, 2.0])
def test_times_between_steps_are_for_models_that_take_them(dt):
    model = psd.learn(psd.linear_gaussian(0.9, 0.1, 1.0, 1.0, 0.0, 1.0))
    with pytest.raises(ValueError, match="dt must be left out"):
        psd.predict(model, psd.init(model), dt=dt)


def test_a_level_of_risk_is_one_number():
    with pytest.raises(ValueError, match="level must be one number that"):
        models.value_at_risk(models.StochasticVolatility().at(YS), [0.01, 0.05])
