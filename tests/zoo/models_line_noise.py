"""One dimension: kinds of transition noise, on a box, with a Gaussian sensor unless said."""

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy import stats
from jax.scipy.special import log_ndtr

import psdfilter as psd

from . import densities as nd
from .case import Line, Registry, simulate

ZOO = Registry()


def gaussian_model(log_transition, box, seen=0.3, prior=(0.0, 1.0), sampler=True):
    """The user's model: Q as given, y = x + N(0, seen^2), x_0 ~ N(prior)."""
    return psd.StateSpaceModel(
        log_prior=lambda x: stats.norm.logpdf(x[0], prior[0], prior[1]),
        log_transition=log_transition,
        log_observation=lambda x, y: stats.norm.logpdf(y[0], x[0], seen),
        state_box=psd.Box(*box),
        sample_observation=(
            (lambda key, x: x + seen * jax.random.normal(key, (1,))) if sampler else None
        ),
    )


def gaussian_truth(log_transition, box, centre, width, seen=0.3, prior=(0.0, 1.0), **more):
    low, high = prior[0] - 10 * prior[1], prior[0] + 10 * prior[1]
    return Line(
        log_prior=lambda x: nd.normal(x, prior[0], prior[1]),
        log_transition=log_transition,
        log_observation=lambda x, y, t: nd.normal(y[0], x, seen),
        centre=centre,
        width=width,
        prior=(max(low, box[0]), min(high, box[1])),
        box=box,
        **more,
    )


def gaussian_data(seed, move, start=0.0, seen=0.3, num=25):
    def data():
        ys = simulate(seed, num, lambda rng: start, move, lambda rng, x, t: rng.normal(x, seen))
        return {"ys": ys}

    return data


def ar(rate):
    return lambda u, t: rate * u


@ZOO.add(1, "heavy")
def student3_noise():
    box = (-20.0, 20.0)
    return (
        lambda: gaussian_model(lambda u, x: stats.t.logpdf(x[0], 3.0, 0.9 * u[0], 0.3), box),
        gaussian_data(1, lambda rng, u, t: 0.9 * u + 0.3 * rng.standard_t(3)),
        gaussian_truth(
            lambda u, x, t: nd.student(x, 0.9 * u, 0.3, 3), box, ar(0.9), 0.2, reach="box"
        ),
    )


@ZOO.add(1, "heavy")
def cauchy_noise():
    box = (-40.0, 40.0)
    return (
        lambda: gaussian_model(lambda u, x: stats.cauchy.logpdf(x[0], 0.8 * u[0], 0.2), box, 0.5),
        gaussian_data(
            2, lambda rng, u, t: np.clip(0.8 * u + 0.2 * rng.standard_cauchy(), -35, 35), seen=0.5
        ),
        gaussian_truth(
            lambda u, x, t: nd.cauchy(x, 0.8 * u, 0.2), box, ar(0.8), 0.1, 0.5, reach="box"
        ),
    )


@ZOO.add(1, "skewed", "bounded")
def lognormal_noise():
    box = (-6.0, 20.0)

    def log_transition(u, x):
        e = x[0] - 0.7 * u[0]
        safe = jnp.where(e > 0, e, 1.0)
        inside = stats.norm.logpdf(jnp.log(safe), -0.5, 0.6) - jnp.log(safe)
        return jnp.where(e > 0, inside, -jnp.inf)

    return (
        lambda: gaussian_model(log_transition, box),
        gaussian_data(3, lambda rng, u, t: 0.7 * u + rng.lognormal(-0.5, 0.6)),
        gaussian_truth(
            lambda u, x, t: nd.lognormal(x - 0.7 * u, -0.5, 0.6),
            box,
            ar(0.7),
            0.1,
            reach="box",
            kinks=lambda x, t: x[:, None] / 0.7,
        ),
    )


@ZOO.add(1, "skewed")
def skew_normal_noise():
    box = (-8.0, 10.0)

    def log_transition(u, x):
        e = (x[0] - 0.8 * u[0]) / 0.6
        return jnp.log(2 / 0.6) + stats.norm.logpdf(e) + log_ndtr(6 * e)

    def move(rng, u, t):
        a, b, d = rng.normal(), rng.normal(), 6 / np.sqrt(37)
        return 0.8 * u + 0.6 * (d * abs(a) + np.sqrt(1 - d**2) * b)

    return (
        lambda: gaussian_model(log_transition, box),
        gaussian_data(4, move),
        gaussian_truth(
            lambda u, x, t: nd.skew_normal(x, 0.8 * u, 0.6, 6.0), box, ar(0.8), 0.1, spread=6.0
        ),
    )


@ZOO.add(1, "kinked")
def laplace_noise():
    box = (-10.0, 10.0)
    return (
        lambda: gaussian_model(lambda u, x: stats.laplace.logpdf(x[0], 0.9 * u[0], 0.3), box),
        gaussian_data(5, lambda rng, u, t: 0.9 * u + rng.laplace(0, 0.3)),
        gaussian_truth(
            lambda u, x, t: nd.laplace(x, 0.9 * u, 0.3),
            box,
            ar(0.9),
            0.3,
            reach="box",
            kinks=lambda x, t: x[:, None] / 0.9,
        ),
    )


@ZOO.add(1, "jumping", "bounded")
def exponential_noise():
    box = (-6.0, 16.0)

    def log_transition(u, x):
        e = x[0] - 0.8 * u[0]
        return jnp.where(e >= 0, -e / 0.5 - jnp.log(0.5), -jnp.inf)

    return (
        lambda: gaussian_model(log_transition, box),
        gaussian_data(6, lambda rng, u, t: 0.8 * u + rng.exponential(0.5)),
        gaussian_truth(
            lambda u, x, t: nd.exponential(x - 0.8 * u, 0.5),
            box,
            ar(0.8),
            0.4,
            reach="box",
            kinks=lambda x, t: x[:, None] / 0.8,
        ),
    )


@ZOO.add(1, "kinked", "bounded")
def gamma_noise():
    box = (-6.0, 16.0)

    def log_transition(u, x):
        e = x[0] - 0.7 * u[0]
        safe = jnp.where(e > 0, e, 1.0)
        return jnp.where(e > 0, jnp.log(safe) - safe / 0.4 - 2 * jnp.log(0.4), -jnp.inf)

    return (
        lambda: gaussian_model(log_transition, box),
        gaussian_data(7, lambda rng, u, t: 0.7 * u + rng.gamma(2.0, 0.4)),
        gaussian_truth(
            lambda u, x, t: nd.gamma(x - 0.7 * u, 2.0, 0.4),
            box,
            ar(0.7),
            0.4,
            reach="box",
            kinks=lambda x, t: x[:, None] / 0.7,
        ),
    )


@ZOO.add(1, "kinked", "bounded")
def beta_noise():
    box = (-5.0, 5.0)

    def log_transition(u, x):
        e = x[0] - 0.8 * u[0] + 0.6
        inside = (e > 0) & (e < 1)
        safe = jnp.where(inside, e, 0.5)
        return jnp.where(inside, jnp.log(12.0) + jnp.log(safe) + 2 * jnp.log1p(-safe), -jnp.inf)

    return (
        lambda: gaussian_model(log_transition, box),
        gaussian_data(8, lambda rng, u, t: 0.8 * u - 0.6 + rng.beta(2, 3)),
        gaussian_truth(
            lambda u, x, t: nd.beta(x - 0.8 * u + 0.6, 2.0, 3.0),
            box,
            ar(0.8),
            0.25,
            reach="box",
            kinks=lambda x, t: np.stack([(x + 0.6) / 0.8, (x - 0.4) / 0.8], axis=1),
        ),
    )


@ZOO.add(1, "jumping", "bounded")
def uniform_noise():
    box = (-5.0, 5.0)

    def log_transition(u, x):
        return jnp.where(jnp.abs(x[0] - 0.8 * u[0]) <= 0.5, 0.0, -jnp.inf)

    return (
        lambda: gaussian_model(log_transition, box),
        gaussian_data(9, lambda rng, u, t: 0.8 * u + rng.uniform(-0.5, 0.5)),
        gaussian_truth(
            lambda u, x, t: nd.uniform(x - 0.8 * u, -0.5, 0.5),
            box,
            ar(0.8),
            0.3,
            reach="box",
            kinks=lambda x, t: np.stack([(x + 0.5) / 0.8, (x - 0.5) / 0.8], axis=1),
        ),
    )
