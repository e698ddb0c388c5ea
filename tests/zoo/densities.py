"""Log-densities in NumPy, for the second writing of every model."""

import numpy as np
from scipy.special import gammaln, log_ndtr

HALF_LOG_2PI = 0.5 * np.log(2 * np.pi)


def normal(x, mean, sd):
    return -0.5 * ((x - mean) / sd) ** 2 - np.log(sd) - HALF_LOG_2PI


def student(x, mean, scale, df):
    z = (x - mean) / scale
    constant = gammaln((df + 1) / 2) - gammaln(df / 2) - 0.5 * np.log(df * np.pi)
    return constant - np.log(scale) - 0.5 * (df + 1) * np.log1p(z**2 / df)


def cauchy(x, mean, scale):
    return -np.log(np.pi * scale) - np.log1p(((x - mean) / scale) ** 2)


def laplace(x, mean, scale):
    return -np.abs(x - mean) / scale - np.log(2 * scale)


def logistic(x, mean, scale):
    z = np.abs(x - mean) / scale
    return -z - 2 * np.log1p(np.exp(-z)) - np.log(scale)


def skew_normal(x, mean, sd, shape):
    return np.log(2.0) + normal(x, mean, sd) + log_ndtr(shape * (x - mean) / sd)


def uniform(x, low, high):
    return np.where((x >= low) & (x <= high), -np.log(high - low), -np.inf)


def gamma(x, shape, scale):
    with np.errstate(divide="ignore", invalid="ignore"):
        inside = (shape - 1) * np.log(x) - x / scale - gammaln(shape) - shape * np.log(scale)
    return np.where(x > 0, inside, -np.inf)


def exponential(x, scale):
    return np.where(x >= 0, -x / scale - np.log(scale), -np.inf)


def lognormal(x, mean, sd):
    with np.errstate(divide="ignore", invalid="ignore"):
        log = np.log(x)
        inside = normal(log, mean, sd) - log
    return np.where(x > 0, inside, -np.inf)


def beta(x, a, b):
    with np.errstate(divide="ignore", invalid="ignore"):
        inside = (a - 1) * np.log(x) + (b - 1) * np.log1p(-x)
    return np.where((x > 0) & (x < 1), inside - gammaln(a) - gammaln(b) + gammaln(a + b), -np.inf)


def poisson(k, log_rate):
    return k * log_rate - np.exp(log_rate) - gammaln(k + 1)


def bernoulli(k, logit):
    return -np.logaddexp(0.0, np.where(k > 0.5, -logit, logit))


def mixture(weights, logs):
    total = np.log(weights[0]) + logs[0]
    for weight, log in zip(weights[1:], logs[1:], strict=True):
        total = np.logaddexp(total, np.log(weight) + log)
    return total
