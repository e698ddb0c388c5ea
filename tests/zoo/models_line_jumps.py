"""One dimension: heavy-tailed, skewed and kinked noise whose data jump, without samplers."""

import jax.numpy as jnp
import numpy as np
from jax.scipy import stats
from jax.scipy.special import gammaln, log_ndtr

import psdfilter as psd

from . import densities as nd
from .case import Registry
from .models_line_noise import ar, gaussian_model, gaussian_truth
from .models_line_sensor import moving, series

ZOO = Registry()


def steps(seed, sizes, seen):
    """Levels of four steps each, seen with noise."""

    def data():
        rng = np.random.default_rng(seed)
        return {"ys": np.repeat(sizes, 4) + seen * rng.normal(size=4 * len(sizes))}

    return data


@ZOO.add(1, "heavy", "level", "no sampler")
def student3_jumps():
    box = (-20.0, 20.0)
    return (
        lambda: gaussian_model(
            lambda u, x: stats.t.logpdf(x[0], 3.0, u[0], 0.1), box, 0.1, sampler=False
        ),
        steps(150, [0.0, 6.0, -9.0, 1.0], 0.1),
        gaussian_truth(
            lambda u, x, t: nd.student(x, u, 0.1, 3),
            box,
            ar(1.0),
            0.07,
            0.1,
            reach="box",
            deep=60.0,
        ),
    )


@ZOO.add(1, "heavy", "level", "no sampler")
def cauchy_jumps():
    box = (-50.0, 50.0)
    return (
        lambda: gaussian_model(
            lambda u, x: stats.cauchy.logpdf(x[0], u[0], 0.2), box, 0.5, sampler=False
        ),
        steps(151, [0.0, 30.0, -20.0, 45.0], 0.5),
        gaussian_truth(
            lambda u, x, t: nd.cauchy(x, u, 0.2), box, ar(1.0), 0.1, 0.5, reach="box", deep=60.0
        ),
    )


@ZOO.add(1, "kinked", "level", "no sampler")
def laplace_jumps():
    box = (-12.0, 12.0)
    return (
        lambda: gaussian_model(
            lambda u, x: stats.laplace.logpdf(x[0], u[0], 0.2), box, sampler=False
        ),
        steps(152, [0.0, 5.0, -4.0], 0.3),
        gaussian_truth(
            lambda u, x, t: nd.laplace(x, u, 0.2),
            box,
            ar(1.0),
            0.2,
            reach="box",
            kinks=lambda x, t: x[:, None],
            deep=120.0,
        ),
    )


@ZOO.add(1, "skewed", "outlier", "no sampler")
def skew_normal_wrong_way():
    box = (-10.0, 10.0)

    def log_transition(u, x):
        e = (x[0] - 0.9 * u[0]) / 0.5
        return jnp.log(2 / 0.5) + stats.norm.logpdf(e) + log_ndtr(4 * e)

    return (
        lambda: gaussian_model(log_transition, box, sampler=False),
        steps(153, [1.0, 4.0, -1.5], 0.3),
        gaussian_truth(
            lambda u, x, t: nd.skew_normal(x, 0.9 * u, 0.5, 4.0),
            box,
            ar(0.9),
            0.12,
            reach="box",
            deep=500.0,
        ),
    )


@ZOO.add(1, "discrete", "level", "box")
def poisson_growth_box():
    def build():
        return psd.StateSpaceModel(
            log_prior=lambda x: stats.norm.logpdf(x[0], 1.0, 0.5),
            log_transition=lambda u, x: stats.norm.logpdf(x[0], u[0] + 0.15, 0.1),
            log_observation=lambda x, y: y[0] * x[0] - jnp.exp(x[0]) - gammaln(y[0] + 1),
            state_box=psd.Box(-2, 11),
        )

    return (
        build,
        series(154, 50, lambda u: u + 0.15, 0.1, lambda rng, x, t: rng.poisson(np.exp(x)), 1.0),
        moving(
            lambda u: u + 0.15,
            0.1,
            lambda x, y, t: nd.poisson(y[0], x),
            (1.0, 0.5),
            box=(-2.0, 11.0),
        ),
    )


@ZOO.add(1, "smooth", "box", "no sampler")
def cubic_sensor_box():
    def build():
        return psd.StateSpaceModel(
            log_prior=lambda x: stats.norm.logpdf(x[0]),
            log_transition=lambda u, x: stats.norm.logpdf(x[0], u[0], 0.5),
            log_observation=lambda x, y: stats.norm.logpdf(y[0], x[0] ** 3, 0.5),
            state_box=psd.Box(-12, 12),
        )

    def see(rng, x, t):
        return rng.normal(x**3, 0.5)

    return (
        build,
        series(155, 30, lambda u: u, 0.5, see),
        moving(
            lambda u: u,
            0.5,
            lambda x, y, t: nd.normal(y[0], x**3, 0.5),
            box=(-12.0, 12.0),
            deep=60.0,
        ),
    )
