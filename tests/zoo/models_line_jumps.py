"""One dimension: heavy-tailed, skewed and kinked noise whose data jump, without samplers."""

import jax.numpy as jnp
import numpy as np
from jax.scipy import stats
from jax.scipy.special import log_ndtr

from . import densities as nd
from .case import Registry
from .models_line_noise import ar, gaussian_model, gaussian_truth

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
