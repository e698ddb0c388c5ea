"""One dimension: kinds of transition noise, on a box, with a Gaussian sensor unless said."""

import jax
import jax.numpy as jnp
import numpy as np
import psdfilter as psd
from jax.scipy import stats
from jax.scipy.special import gammaln, log_ndtr

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
        gaussian_data(2, lambda rng, u, t: np.clip(0.8 * u + 0.2 * rng.standard_cauchy(), -35, 35),
                      seen=0.5),
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
            lambda u, x, t: nd.lognormal(x - 0.7 * u, -0.5, 0.6), box, ar(0.7), 0.1,
            reach="box", kinks=lambda x, t: x[:, None] / 0.7,
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
            lambda u, x, t: nd.laplace(x, 0.9 * u, 0.3), box, ar(0.9), 0.3, reach="box",
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
            lambda u, x, t: nd.exponential(x - 0.8 * u, 0.5), box, ar(0.8), 0.4, reach="box",
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
            lambda u, x, t: nd.gamma(x - 0.7 * u, 2.0, 0.4), box, ar(0.7), 0.4, reach="box",
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
            lambda u, x, t: nd.beta(x - 0.8 * u + 0.6, 2.0, 3.0), box, ar(0.8), 0.25, reach="box",
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
            lambda u, x, t: nd.uniform(x - 0.8 * u, -0.5, 0.5), box, ar(0.8), 0.3, reach="box",
            kinks=lambda x, t: np.stack([(x + 0.5) / 0.8, (x - 0.5) / 0.8], axis=1),
        ),
    )


@ZOO.add(1, "multimodal")
def two_humped_noise():
    box = (-9.0, 9.0)

    def log_transition(u, x):
        m = 0.8 * u[0]
        up, down = (stats.norm.logpdf(x[0], m + s, 0.15) for s in (0.8, -0.8))
        return jnp.logaddexp(up, down) - jnp.log(2.0)

    return (
        lambda: gaussian_model(log_transition, box, 0.5),
        gaussian_data(
            10, lambda rng, u, t: 0.8 * u + rng.choice([-0.8, 0.8]) + rng.normal(0, 0.15), seen=0.5
        ),
        gaussian_truth(
            lambda u, x, t: nd.mixture(
                [0.5, 0.5], [nd.normal(x, 0.8 * u + s, 0.15) for s in (0.8, -0.8)]
            ),
            box, ar(0.8), 0.15, 0.5, spread=1.0,
        ),
    )


@ZOO.add(1, "state-dependent")
def state_dependent_noise():
    box = (-12.0, 12.0)

    def log_transition(u, x):
        return stats.norm.logpdf(x[0], 0.7 * u[0], jnp.sqrt(0.02 + 0.2 * u[0] ** 2))

    def sd(u):
        return np.sqrt(0.02 + 0.2 * u**2)

    return (
        lambda: gaussian_model(log_transition, box),
        gaussian_data(11, lambda rng, u, t: rng.normal(0.7 * u, sd(u)), start=1.0),
        gaussian_truth(
            lambda u, x, t: nd.normal(x, 0.7 * u, sd(u)), box, ar(0.7),
            lambda u, t: np.minimum(0.5 * sd(u), 0.2), reach="box",
        ),
    )


@ZOO.add(1, "state-dependent", "skewed")
def multiplicative_noise():
    box = (0.02, 25.0)

    def build():
        def log_transition(u, x):
            z = jnp.log(x[0]) - 0.9 * jnp.log(u[0]) - 0.05
            return stats.norm.logpdf(z, 0.0, 0.3) - jnp.log(x[0])

        return psd.StateSpaceModel(
            log_prior=lambda x: stats.norm.logpdf(jnp.log(x[0]), 0.0, 0.5) - jnp.log(x[0]),
            log_transition=log_transition,
            log_observation=lambda x, y: stats.norm.logpdf(y[0], x[0], 0.3),
            state_box=psd.Box(*box),
            sample_observation=lambda key, x: x + 0.3 * jax.random.normal(key, (1,)),
        )

    truth = Line(
        log_prior=lambda x: nd.lognormal(x, 0.0, 0.5),
        log_transition=lambda u, x, t: nd.lognormal(x, 0.9 * np.log(u) + 0.05, 0.3),
        log_observation=lambda x, y, t: nd.normal(y[0], x, 0.3),
        centre=lambda u, t: np.exp(0.9 * np.log(np.maximum(u, 1e-9)) + 0.05),
        width=lambda u, t: np.maximum(0.3 * u, 0.1),
        prior=(0.02, 25.0), box=box, reach="box",
    )
    move = lambda rng, u, t: u**0.9 * np.exp(0.05 + 0.3 * rng.normal())  # noqa: E731
    return build, gaussian_data(12, move, start=1.0), truth


@ZOO.add(1, "jumping", "multimodal")
def threshold_ar():
    box = (-6.0, 6.0)

    def log_transition(u, x):
        mean = jnp.where(u[0] > 0.0, -0.9 + 0.4 * u[0], 1.1 + 0.7 * u[0])
        return stats.norm.logpdf(x[0], mean, 0.25)

    def f(u):
        return np.where(u > 0, -0.9 + 0.4 * u, 1.1 + 0.7 * u)

    return (
        lambda: gaussian_model(log_transition, box),
        gaussian_data(13, lambda rng, u, t: rng.normal(float(f(u)), 0.25)),
        gaussian_truth(
            lambda u, x, t: nd.normal(x, f(u), 0.25), box, lambda u, t: f(u), 0.25, breaks=(0.0,)
        ),
    )


@ZOO.add(1, "smooth", "heavy")
def logistic_noise():
    box = (-12.0, 12.0)
    return (
        lambda: gaussian_model(
            lambda u, x: stats.logistic.logpdf(x[0], 2 * jnp.tanh(u[0]), 0.2), box
        ),
        gaussian_data(14, lambda rng, u, t: rng.logistic(2 * np.tanh(u), 0.2)),
        gaussian_truth(
            lambda u, x, t: nd.logistic(x, 2 * np.tanh(u), 0.2), box,
            lambda u, t: 2 * np.tanh(u), 0.2, reach="box",
        ),
    )


@ZOO.add(1, "heavy", "narrow")
def contaminated_noise():
    box = (-12.0, 12.0)

    def log_transition(u, x):
        core = jnp.log(0.95) + stats.norm.logpdf(x[0], 0.95 * u[0], 0.08)
        return jnp.logaddexp(core, jnp.log(0.05) + stats.norm.logpdf(x[0], 0.95 * u[0], 1.5))

    return (
        lambda: gaussian_model(log_transition, box),
        gaussian_data(
            15, lambda rng, u, t: rng.normal(0.95 * u, 1.5 if rng.random() < 0.05 else 0.08)
        ),
        gaussian_truth(
            lambda u, x, t: nd.mixture(
                [0.95, 0.05], [nd.normal(x, 0.95 * u, s) for s in (0.08, 1.5)]
            ),
            box, ar(0.95), 0.08, reach="box",
        ),
    )


@ZOO.add(1, "bounded", "kinked")
def reflected_walk():
    box = (0.0, 8.0)

    def log_transition(u, x):
        here, mirrored = (stats.norm.logpdf(x[0], s * u[0], 0.4) for s in (1.0, -1.0))
        return jnp.logaddexp(here, mirrored)

    return (
        lambda: gaussian_model(log_transition, box, prior=(1.0, 0.5)),
        gaussian_data(16, lambda rng, u, t: abs(rng.normal(u, 0.4)), start=0.5),
        gaussian_truth(
            lambda u, x, t: np.logaddexp(nd.normal(x, u, 0.4), nd.normal(x, -u, 0.4)),
            box, lambda u, t: u, 0.4, prior=(1.0, 0.5), reach="box",
        ),
    )


@ZOO.add(1, "bounded", "state-dependent")
def beta_autoregression():
    box = (0.0, 1.0)

    def build():
        def log_transition(u, x):
            m = 0.1 + 0.8 * u[0]
            return stats.beta.logpdf(x[0], 40 * m, 40 * (1 - m))

        return psd.StateSpaceModel(
            log_prior=lambda x: stats.beta.logpdf(x[0], 2.0, 2.0),
            log_transition=log_transition,
            log_observation=lambda x, y: stats.norm.logpdf(y[0], x[0], 0.1),
            state_box=psd.Box(*box),
            sample_observation=lambda key, x: x + 0.1 * jax.random.normal(key, (1,)),
        )

    def mean(u):
        return 0.1 + 0.8 * u

    truth = Line(
        log_prior=lambda x: nd.beta(x, 2.0, 2.0),
        log_transition=lambda u, x, t: nd.beta(x, 40 * mean(u), 40 * (1 - mean(u))),
        log_observation=lambda x, y, t: nd.normal(y[0], x, 0.1),
        centre=lambda u, t: mean(u), width=0.04, prior=box, box=box, reach="box",
    )
    move = lambda rng, u, t: rng.beta(40 * mean(u), 40 * (1 - mean(u)))  # noqa: E731
    return build, gaussian_data(17, move, start=0.5, seen=0.1), truth


@ZOO.add(1, "bounded", "state-dependent", "skewed")
def gamma_autoregression():
    box = (0.0, 25.0)

    def build():
        def log_transition(u, x):
            scale = (0.5 + 0.8 * u[0]) / 8
            return 7 * jnp.log(x[0]) - x[0] / scale - gammaln(8.0) - 8 * jnp.log(scale)

        return psd.StateSpaceModel(
            log_prior=lambda x: jnp.log(x[0]) - x[0],
            log_transition=log_transition,
            log_observation=lambda x, y: y[0] * jnp.log(x[0]) - x[0] - gammaln(y[0] + 1),
            state_box=psd.Box(*box),
            sample_observation=lambda key, x: jax.random.poisson(key, x),
        )

    truth = Line(
        log_prior=lambda x: nd.gamma(x, 2.0, 1.0),
        log_transition=lambda u, x, t: nd.gamma(x, 8.0, (0.5 + 0.8 * u) / 8),
        log_observation=lambda x, y, t: nd.poisson(y[0], np.log(x)),
        centre=lambda u, t: 0.5 + 0.8 * u, width=lambda u, t: 0.2 + 0.2 * u,
        prior=box, box=box, reach="box",
    )

    def data():
        move = lambda rng, u, t: rng.gamma(8.0, (0.5 + 0.8 * u) / 8)  # noqa: E731
        return {"ys": simulate(18, 25, lambda rng: 2.0, move, lambda rng, x, t: rng.poisson(x))}

    return build, data, truth


@ZOO.add(1, "multimodal")
def two_maps():
    box = (-6.0, 6.0)

    def log_transition(u, x):
        stay = jnp.log(0.7) + stats.norm.logpdf(x[0], 0.9 * u[0], 0.2)
        return jnp.logaddexp(stay, jnp.log(0.3) + stats.norm.logpdf(x[0], -2 * jnp.sin(u[0]), 0.3))

    def move(rng, u, t):
        return rng.normal(0.9 * u, 0.2) if rng.random() < 0.7 else rng.normal(-2 * np.sin(u), 0.3)

    return (
        lambda: gaussian_model(log_transition, box),
        gaussian_data(19, move, start=1.0),
        gaussian_truth(
            lambda u, x, t: nd.mixture(
                [0.7, 0.3], [nd.normal(x, 0.9 * u, 0.2), nd.normal(x, -2 * np.sin(u), 0.3)]
            ),
            box, lambda u, t: np.stack([0.9 * u, -2 * np.sin(u)]), 0.2, spread=0.5,
        ),
    )
