"""One dimension: dynamics with additive Gaussian noise, and kinds of sensors."""
# ruff: noqa: E731 (maps of one line are named by assignment, as formulas are)

import jax.numpy as jnp
import numpy as np
from jax.scipy import stats
from jax.scipy.special import gammaln, log_ndtr
from scipy.special import gammaln as np_gammaln
from scipy.special import log_ndtr as np_log_ndtr

import psdfilter as psd

from . import densities as nd
from .case import Line, Registry, simulate

ZOO = Registry()


def moving(f, sd, see, prior=(0.0, 1.0), **more):
    """The truth of x' = f(x) + N(0, sd^2), x_0 ~ N(prior) and log G = see(x, y, t)."""
    return Line(
        log_prior=lambda x: nd.normal(x, prior[0], prior[1]),
        log_transition=lambda u, x, t: nd.normal(x, f(u), sd),
        log_observation=see,
        centre=lambda u, t: f(u),
        width=sd,
        prior=(prior[0] - 9.5 * prior[1], prior[0] + 9.5 * prior[1]),
        **more,
    )


def seen_by(h, sd):
    return lambda x, y, t: nd.normal(y[0], h(x), sd)


def series(seed, num, f, sd, see, start=0.0):
    def data():
        move = lambda rng, u, t: rng.normal(f(u), sd)
        return {"ys": simulate(seed, num, lambda rng: start, move, see)}

    return data


def noisy(h, sd):
    return lambda rng, x, t: rng.normal(h(x), sd)


def same(x):
    return x


@ZOO.add(1, "smooth", "unit root", "long")
def volatility_unit_root():
    def build():
        return psd.linear_gaussian(
            0.998,
            0.05**2,
            None,
            None,
            0.0,
            0.6,
            log_observation=lambda x, y: stats.norm.logpdf(y[0], 0.0, jnp.exp(x[0] / 2)),
            state_box=(-6, 6),
        )

    see = lambda rng, x, t: rng.normal(0, np.exp(x / 2))
    return (
        build,
        series(20, 400, lambda u: 0.998 * u, 0.05, see, 0.5),
        moving(
            lambda u: 0.998 * u,
            0.05,
            lambda x, y, t: nd.normal(y[0], 0.0, np.exp(x / 2)),
            (0.0, np.sqrt(0.6)),
            box=(-6.0, 6.0),
        ),
    )


@ZOO.add(1, "smooth")
def cubic_sensor():
    h = lambda x: x**3 / 20
    return (
        lambda: psd.additive_gaussian(lambda x: x, h, 0.25, 0.25, 0.0, 1.0),
        series(21, 40, same, 0.5, noisy(h, 0.5)),
        moving(same, 0.5, seen_by(h, 0.5)),
    )


@ZOO.add(1, "discrete", "level")
def poisson_growth():
    def build():
        return psd.linear_gaussian(
            1.0,
            0.1**2,
            None,
            None,
            1.0,
            0.25,
            b=0.1,
            log_observation=lambda x, y: y[0] * x[0] - jnp.exp(x[0]) - gammaln(y[0] + 1),
        )

    return (
        build,
        series(22, 50, lambda u: u + 0.1, 0.1, lambda rng, x, t: rng.poisson(np.exp(x)), 1.0),
        moving(lambda u: u + 0.1, 0.1, lambda x, y, t: nd.poisson(y[0], x), (1.0, 0.5)),
    )


@ZOO.add(1, "smooth", "multimodal", "box")
def sine_square():
    h = lambda x: x**2 / 4
    return (
        lambda: psd.additive_gaussian(
            lambda x: 2.0 * jnp.sin(x),
            h,
            0.2,
            0.1,
            0.0,
            1.0,
            state_box=psd.Box(-5.0, 5.0),
            observation_box=psd.Box(-3.0, 9.0),
        ),
        series(23, 30, lambda u: 2 * np.sin(u), np.sqrt(0.2), noisy(h, np.sqrt(0.1))),
        moving(lambda u: 2 * np.sin(u), np.sqrt(0.2), seen_by(h, np.sqrt(0.1)), box=(-5.0, 5.0)),
    )


@ZOO.add(1, "smooth", "multimodal", "time-varying")
def growth_benchmark():
    def f(u, t):
        return u / 2 + 25 * u / (1 + u**2) + 8 * jnp.cos(1.2 * jnp.asarray(t, float))

    def g(u, t):
        return u / 2 + 25 * u / (1 + u * u) + 8 * np.cos(1.2 * t)

    def data():
        move = lambda rng, u, t: rng.normal(g(u, t), np.sqrt(10))
        return {"ys": simulate(24, 25, lambda rng: 0.1, move, noisy(lambda x: x**2 / 20, 1.0))}

    truth = Line(
        log_prior=lambda x: nd.normal(x, 0.0, np.sqrt(5)),
        log_transition=lambda u, x, t: nd.normal(x, g(u, t), np.sqrt(10)),
        log_observation=lambda x, y, t: nd.normal(y[0], x**2 / 20, 1.0),
        centre=g,
        width=np.sqrt(10.0),
        prior=(-22.0, 22.0),
        box=(-45.0, 45.0),
    )
    return (
        lambda: psd.additive_gaussian(
            f, lambda x: x**2 / 20, 10.0, 1.0, 0.0, 5.0, state_box=(-45, 45)
        ),
        data,
        truth,
    )


@ZOO.add(1, "comb", "multimodal")
def comb_sensor():
    h = lambda x: np.sin(8 * x)
    return (
        lambda: psd.additive_gaussian(
            lambda x: 0.95 * x, lambda x: jnp.sin(8 * x), 0.05, 0.01, 0.0, 1.0
        ),
        series(25, 30, lambda u: 0.95 * u, np.sqrt(0.05), noisy(h, 0.1)),
        moving(lambda u: 0.95 * u, np.sqrt(0.05), seen_by(h, 0.1)),
    )


@ZOO.add(1, "saturating")
def saturating_sensor():
    h = lambda x: np.tanh(2 * x)
    return (
        lambda: psd.additive_gaussian(
            lambda x: x, lambda x: jnp.tanh(2 * x), 0.04, 0.0025, 0.0, 1.0
        ),
        series(26, 40, same, 0.2, noisy(h, 0.05)),
        moving(same, 0.2, seen_by(h, 0.05)),
    )


@ZOO.add(1, "jumping", "multimodal")
def threshold_in_f():
    f = lambda u: np.where(u > 1, -2.0, u + 0.3)
    return (
        lambda: psd.additive_gaussian(
            lambda x: jnp.where(x > 1.0, -2.0, x + 0.3), lambda x: x, 0.01, 0.04, 0.0, 0.25
        ),
        series(27, 40, f, 0.1, noisy(same, 0.2)),
        moving(f, 0.1, seen_by(same, 0.2), (0.0, 0.5), breaks=(1.0,)),
    )


@ZOO.add(1, "narrow")
def narrow_dip():
    h = lambda x: x - 3 * np.exp(-0.5 * ((x - 0.5) / 0.02) ** 2)
    return (
        lambda: psd.additive_gaussian(
            lambda x: 0.9 * x,
            lambda x: x - 3 * jnp.exp(-0.5 * ((x - 0.5) / 0.02) ** 2),
            0.04,
            0.04,
            0.0,
            1.0,
        ),
        lambda: {"ys": np.array([0.3, 0.6, 0.5, -2.4, -2.5, 0.4, 0.2, -2.45, 0.1, 0.3])},
        moving(
            lambda u: 0.9 * u, 0.2, seen_by(h, 0.2), breaks=(0.4, 0.46, 0.5, 0.54, 0.6), deep=150.0
        ),
    )


@ZOO.add(1, "kinked")
def kinked_dynamics():
    f = lambda u: 2 - np.abs(1.2 * u)
    return (
        lambda: psd.additive_gaussian(
            lambda x: 2 - jnp.abs(1.2 * x),
            lambda x: x,
            0.04,
            0.25,
            0.5,
            0.25,
        ),
        series(28, 30, f, 0.2, noisy(same, 0.5), 0.5),
        moving(f, 0.2, seen_by(same, 0.5), (0.5, 0.5), breaks=(0.0,)),
    )


@ZOO.add(1, "jumping", "box")
def jumping_dynamics():
    f = lambda u: 0.5 * u - np.sign(u)
    return (
        lambda: psd.additive_gaussian(
            lambda x: 0.5 * x - jnp.sign(x),
            lambda x: x**2,
            0.09,
            0.25,
            0.0,
            1.0,
            state_box=(-5, 5),
        ),
        series(29, 30, f, 0.3, noisy(lambda x: x**2, 0.5)),
        moving(f, 0.3, seen_by(lambda x: x**2, 0.5), box=(-5.0, 5.0), breaks=(0.0,)),
    )


@ZOO.add(1, "kinked")
def absolute_sensor():
    return (
        lambda: psd.additive_gaussian(lambda x: 0.97 * x, jnp.abs, 0.04, 0.04, 1.0, 0.25),
        series(30, 30, lambda u: 0.97 * u, 0.2, noisy(np.abs, 0.2), 1.0),
        moving(lambda u: 0.97 * u, 0.2, seen_by(np.abs, 0.2), (1.0, 0.5), breaks=(0.0,)),
    )


@ZOO.add(1, "discrete", "jumping")
def rounded_sensor():
    def log_observation(x, y):  # y = x + N(0, .1^2), rounded to whole numbers
        a, b = (y[0] - 0.5 - x[0]) / 0.1, (y[0] + 0.5 - x[0]) / 0.1
        flip = a > 0
        low, high = jnp.where(flip, -b, a), jnp.where(flip, -a, b)
        top = log_ndtr(high)
        return top + jnp.log1p(-jnp.exp(jnp.minimum(log_ndtr(low) - top, -1e-12)))

    def see(x, y, t):
        a, b = (y[0] - 0.5 - x) / 0.1, (y[0] + 0.5 - x) / 0.1
        low, high = np.where(a > 0, -b, a), np.where(a > 0, -a, b)
        top = np_log_ndtr(high)
        return top + np.log1p(-np.exp(np.minimum(np_log_ndtr(low) - top, -1e-12)))

    return (
        lambda: psd.linear_gaussian(
            0.98, 0.09, None, None, 0.0, 1.0, log_observation=log_observation
        ),
        series(31, 30, lambda u: 0.98 * u, 0.3, lambda rng, x, t: np.round(rng.normal(x, 0.1))),
        moving(lambda u: 0.98 * u, 0.3, see),
    )


@ZOO.add(1, "discrete")
def bernoulli_sensor():
    def log_observation(x, y):
        return -jnp.logaddexp(0.0, jnp.where(y[0] > 0.5, -2 * x[0], 2 * x[0]))

    see = lambda rng, x, t: float(rng.random() < 1 / (1 + np.exp(-2 * x)))
    return (
        lambda: psd.linear_gaussian(
            0.95, 0.16, None, None, 0.0, 1.0, log_observation=log_observation
        ),
        series(32, 40, lambda u: 0.95 * u, 0.4, see),
        moving(lambda u: 0.95 * u, 0.4, lambda x, y, t: nd.bernoulli(y[0], 2 * x)),
    )


@ZOO.add(1, "discrete", "box")
def binomial_sensor():
    def log_observation(x, y):
        k = gammaln(41.0) - gammaln(y[0] + 1) - gammaln(41 - y[0])
        return k - y[0] * jnp.logaddexp(0.0, -x[0]) - (40 - y[0]) * jnp.logaddexp(0.0, x[0])

    def build():
        return psd.StateSpaceModel(
            log_prior=lambda x: stats.norm.logpdf(x[0]),
            log_transition=lambda u, x: stats.norm.logpdf(x[0], u[0], 0.15),
            log_observation=log_observation,
            state_box=psd.Box(-8, 8),
        )

    def see(x, y, t):
        k = np_gammaln(41) - np_gammaln(y[0] + 1) - np_gammaln(41 - y[0])
        return k - y[0] * np.logaddexp(0, -x) - (40 - y[0]) * np.logaddexp(0, x)

    draw = lambda rng, x, t: rng.binomial(40, 1 / (1 + np.exp(-x)))
    return (
        build,
        series(33, 40, same, 0.15, draw),
        moving(same, 0.15, see, box=(-8.0, 8.0)),
    )


@ZOO.add(1, "discrete", "heavy")
def negative_binomial_sensor():
    def log_observation(x, y):
        rate = jnp.exp(x[0])
        return (
            gammaln(y[0] + 3.0)
            - gammaln(3.0)
            - gammaln(y[0] + 1)
            + 3 * jnp.log(3 / (3 + rate))
            + y[0] * (x[0] - jnp.log(3 + rate))
        )

    def see(x, y, t):
        k = np_gammaln(y[0] + 3) - np_gammaln(3) - np_gammaln(y[0] + 1)
        return k + 3 * np.log(3 / (3 + np.exp(x))) + y[0] * (x - np.log(3 + np.exp(x)))

    draw = lambda rng, x, t: rng.poisson(rng.gamma(3.0, np.exp(x) / 3))
    return (
        lambda: psd.linear_gaussian(
            0.9, 0.09, None, None, 1.0, 1.0, b=0.15, log_observation=log_observation
        ),
        series(34, 30, lambda u: 0.15 + 0.9 * u, 0.3, draw, 1.0),
        moving(lambda u: 0.15 + 0.9 * u, 0.3, see, (1.0, 1.0)),
    )


@ZOO.add(1, "bounded", "jumping")
def censored_sensor():
    def log_observation(x, y):  # max(0, x + N(0, .3^2))
        return jnp.where(y[0] > 0, stats.norm.logpdf(y[0], x[0], 0.3), log_ndtr(-x[0] / 0.3))

    def see(x, y, t):
        return nd.normal(y[0], x, 0.3) if y[0] > 0 else np_log_ndtr(-x / 0.3)

    return (
        lambda: psd.linear_gaussian(
            0.95, 0.25, None, None, 0.0, 1.0, log_observation=log_observation
        ),
        series(35, 30, lambda u: 0.95 * u, 0.5, lambda rng, x, t: max(0.0, rng.normal(x, 0.3))),
        moving(lambda u: 0.95 * u, 0.5, see),
    )


@ZOO.add(1, "skewed")
def durations():
    return (
        lambda: psd.linear_gaussian(
            0.95,
            0.04,
            None,
            None,
            0.0,
            0.4,
            log_observation=lambda x, y: -x[0] - y[0] * jnp.exp(-x[0]),
        ),
        series(36, 40, lambda u: 0.95 * u, 0.2, lambda rng, x, t: rng.exponential(np.exp(x))),
        moving(
            lambda u: 0.95 * u, 0.2, lambda x, y, t: -x - y[0] * np.exp(-x), (0.0, np.sqrt(0.4))
        ),
    )
