"""One dimension: outliers, level shifts, priors, gaps, time-varying noise and sensors."""
# ruff: noqa: E731 (maps of one line are named by assignment, as formulas are)

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy import stats

import psdfilter as psd

from . import densities as nd
from .case import Line, Registry
from .models_line_sensor import moving, noisy, same, seen_by, series

ZOO = Registry()


def _outlier(seed, sds, box=None):
    """A nonlinear walk with one observation that is `sds` standard deviations off."""
    f = lambda u: 0.9 * u + 0.3 * np.sin(2 * u)

    def data():
        ys = series(seed, 16, f, 0.3, noisy(same, 0.3))()["ys"]
        ys[7] += sds * 0.45
        return {"ys": ys}

    return (
        lambda: psd.additive_gaussian(
            lambda x: 0.9 * x + 0.3 * jnp.sin(2 * x),
            lambda x: x,
            0.09,
            0.09,
            0.0,
            1.0,
            state_box=box,
        ),
        data,
        moving(f, 0.3, seen_by(same, 0.3), deep=60 + 0.7 * sds**2, box=box),
    )


@ZOO.add(1, "outlier")
def outlier_5():
    return _outlier(60, 5)


@ZOO.add(1, "outlier", "box")
def outlier_6_box():
    return _outlier(61, 6, (-8.0, 8.0))


@ZOO.add(1, "outlier")
def outlier_10():
    return _outlier(62, 10)


@ZOO.add(1, "outlier", "box")
def outlier_10_box():
    return _outlier(63, 10, (-10.0, 10.0))


@ZOO.add(1, "outlier")
def outlier_20():
    return _outlier(64, 20)


@ZOO.add(1, "outlier")
def outlier_50():
    return _outlier(65, 50)


@ZOO.add(1, "outlier", "saturating")
def huge_observation():
    def data():
        ys = series(66, 12, same, 0.3, noisy(np.tanh, 0.3))()["ys"]
        ys[6] = 1e6
        return {"ys": ys}

    return (
        lambda: psd.linear_gaussian(
            1.0,
            0.09,
            None,
            None,
            0.0,
            1.0,
            log_observation=lambda x, y: stats.t.logpdf(y[0], 3.0, jnp.tanh(x[0]), 0.3),
        ),
        data,
        moving(same, 0.3, lambda x, y, t: nd.student(y[0], np.tanh(x), 0.3, 3)),
    )


@ZOO.add(1, "level", "outlier")
def level_shift_15():
    h = lambda x: x + 0.1 * x**2

    def data():
        ys = np.concatenate([np.zeros(10), np.full(10, 7.5)])
        return {"ys": ys + 0.2 * np.random.default_rng(67).normal(size=20)}

    return (
        lambda: psd.additive_gaussian(lambda x: 0.99 * x, h, 0.04, 0.25, 0.0, 0.25),
        data,
        moving(lambda u: 0.99 * u, 0.2, seen_by(h, 0.5), (0.0, 0.5), deep=300.0),
    )


def _sharp(seed, sd):
    f = lambda u: u + 0.4 * np.sin(u)
    return (
        lambda: psd.additive_gaussian(
            lambda x: x + 0.4 * jnp.sin(x), lambda x: x, 0.09, 0.25, 0.7, sd**2, state_box=(-5, 5)
        ),
        lambda: {"ys": series(seed, 15, f, 0.3, noisy(same, 0.5), 0.7)()["ys"], "first": "observe"},
        moving(f, 0.3, seen_by(same, 0.5), (0.7, sd), box=(-5.0, 5.0)),
    )


@ZOO.add(1, "prior", "box")
def sharp_prior_1e1():
    return _sharp(70, 1.0)


@ZOO.add(1, "prior", "box")
def sharp_prior_1e2():
    return _sharp(71, 0.1)


@ZOO.add(1, "prior", "box")
def sharp_prior_1e3():
    return _sharp(72, 0.01)


@ZOO.add(1, "prior")
def exact_start():
    f = lambda u: 1.5 * np.tanh(u)
    return (
        lambda: psd.additive_gaussian(
            lambda x: 1.5 * jnp.tanh(x), lambda x: x, 0.16, 0.25, 0.2, 0.0
        ),
        series(73, 15, f, 0.4, noisy(same, 0.5), 0.2),
        moving(f, 0.4, seen_by(same, 0.5), start=0.2),
    )


@ZOO.add(1, "prior", "multimodal", "box")
def bimodal_prior():
    def build():
        return psd.StateSpaceModel(
            log_prior=lambda x: jnp.logaddexp(
                stats.norm.logpdf(x[0], -3.0, 0.2), stats.norm.logpdf(x[0], 3.0, 0.05)
            ),
            log_transition=lambda u, x: stats.norm.logpdf(x[0], u[0], 0.2),
            log_observation=lambda x, y: stats.norm.logpdf(y[0], jnp.abs(x[0]), 0.5),
            state_box=psd.Box(-7, 7),
            sample_observation=lambda key, x: jnp.abs(x) + 0.5 * jax.random.normal(key, (1,)),
        )

    truth = Line(
        log_prior=lambda x: np.logaddexp(nd.normal(x, -3.0, 0.2), nd.normal(x, 3.0, 0.05)),
        log_transition=lambda u, x, t: nd.normal(x, u, 0.2),
        log_observation=lambda x, y, t: nd.normal(y[0], np.abs(x), 0.5),
        centre=lambda u, t: u,
        width=0.2,
        prior=(-6.0, 6.0),
        box=(-7.0, 7.0),
        breaks=(0.0, 2.8, 3.0, 3.2),
    )
    return build, series(74, 20, same, 0.2, noisy(np.abs, 0.5), 3.0), truth


@ZOO.add(1, "prior", "jumping", "bounded")
def uniform_prior():
    def log_prior(x):
        return jnp.where(jnp.abs(x[0] - 1.0) < 2.0, -jnp.log(4.0), -jnp.inf)

    truth = Line(
        log_prior=lambda x: nd.uniform(x, -1.0, 3.0),
        log_transition=lambda u, x, t: nd.normal(x, u, 0.1),
        log_observation=lambda x, y, t: nd.normal(y[0], x, 1.0),
        centre=lambda u, t: u,
        width=0.1,
        prior=(-1.0, 3.0),
        box=(-4.0, 6.0),
        breaks=(-1.0, 3.0),
    )

    def build():
        return psd.linear_gaussian(
            1.0, 0.01, 1.0, 1.0, None, None, prior=log_prior, state_box=(-4, 6)
        )

    return build, series(75, 15, same, 0.1, noisy(same, 1.0), 2.5), truth


@ZOO.add(1, "prior")
def diffuse_prior():
    h = lambda x: x + np.sin(x)
    return (
        lambda: psd.additive_gaussian(lambda x: x, lambda x: x + jnp.sin(x), 0.25, 0.25, 0.0, 1e4),
        series(76, 15, same, 0.5, noisy(h, 0.5), 60.0),
        moving(same, 0.5, seen_by(h, 0.5), (0.0, 100.0)),
    )


@ZOO.add(1, "short")
def one_observation():
    f, h = (lambda u: 2 * np.cos(u)), np.exp
    return (
        lambda: psd.additive_gaussian(lambda x: 2 * jnp.cos(x), jnp.exp, 0.25, 0.25, 0.0, 1.0),
        lambda: {"ys": np.array([2.3])},
        moving(f, 0.5, seen_by(h, 0.5)),
    )


@ZOO.add(1, "missing")
def all_missing():
    f = lambda u: 0.8 * u + np.cos(u)
    return (
        lambda: psd.additive_gaussian(
            lambda x: 0.8 * x + jnp.cos(x), lambda x: x**2, 0.09, 0.25, 0.0, 1.0
        ),
        lambda: {"ys": np.full(10, np.nan)},
        moving(f, 0.3, seen_by(lambda x: x**2, 0.5)),
    )


@ZOO.add(1, "missing", "multimodal", "box")
def gaps():
    f = lambda u: 2 * np.sin(u)

    def data():
        ys = series(77, 25, f, 0.4, noisy(lambda x: x**2 / 2, 0.3))()["ys"]
        ys[5:12], ys[17] = np.nan, np.nan
        return {"ys": ys}

    return (
        lambda: psd.additive_gaussian(
            lambda x: 2 * jnp.sin(x), lambda x: x**2 / 2, 0.16, 0.09, 0.0, 1.0, state_box=(-6, 6)
        ),
        data,
        moving(f, 0.4, seen_by(lambda x: x**2 / 2, 0.3), box=(-6.0, 6.0)),
    )


@ZOO.add(1, "missing", "times")
def irregular_times():
    def data():
        ys = series(78, 10, lambda u: 0.9 * u, 0.5, noisy(same, 0.4))()["ys"]
        return {"ys": ys, "times": np.array([1, 2, 5, 5, 6, 12, 13, 13, 14, 20])}

    def build():
        return psd.StateSpaceModel(
            log_prior=lambda x: stats.norm.logpdf(x[0]),
            log_transition=lambda u, x: stats.norm.logpdf(x[0], 2 * jnp.tanh(u[0]), 0.5),
            log_observation=lambda x, y: stats.norm.logpdf(y[0], x[0], 0.4),
            state_box=psd.Box(-8, 8),
        )

    f = lambda u: 2 * np.tanh(u)
    return build, data, moving(f, 0.5, seen_by(same, 0.4), box=(-8.0, 8.0))


@ZOO.add(1, "no sampler", "box")
def no_sampler():
    def build():
        return psd.StateSpaceModel(
            log_prior=lambda x: -0.5 * (x[0] / 0.8) ** 2,
            log_transition=lambda u, x: stats.norm.logpdf(x[0], 0.97 * u[0], 0.2),
            log_observation=lambda x, y: stats.norm.logpdf(y[0], 0.0, jnp.exp(x[0])),
            state_box=psd.Box(-5, 5),
        )

    see = lambda rng, x, t: rng.normal(0, np.exp(x))
    return (
        build,
        series(79, 50, lambda u: 0.97 * u, 0.2, see),
        moving(
            lambda u: 0.97 * u,
            0.2,
            lambda x, y, t: nd.normal(y[0], 0.0, np.exp(x)),
            (0.0, 0.8),
            box=(-5.0, 5.0),
        ),
    )
