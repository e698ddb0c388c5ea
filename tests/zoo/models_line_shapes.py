"""One dimension: transition noise whose shape or scale depends on the state, and mixtures."""
# ruff: noqa: E731 (maps of one line are named by assignment, as formulas are)

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy import stats
from jax.scipy.special import gammaln

import psdfilter as psd

from . import densities as nd
from .case import Line, Registry, simulate
from .models_line_noise import ar, gaussian_data, gaussian_model, gaussian_truth

ZOO = Registry()


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
            box,
            ar(0.8),
            0.15,
            0.5,
            spread=1.0,
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
            lambda u, x, t: nd.normal(x, 0.7 * u, sd(u)),
            box,
            ar(0.7),
            lambda u, t: np.minimum(0.5 * sd(u), 0.2),
            reach="box",
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
        prior=(0.02, 25.0),
        box=box,
        reach="box",
    )
    move = lambda rng, u, t: u**0.9 * np.exp(0.05 + 0.3 * rng.normal())
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
            lambda u, x, t: nd.logistic(x, 2 * np.tanh(u), 0.2),
            box,
            lambda u, t: 2 * np.tanh(u),
            0.2,
            reach="box",
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
            box,
            ar(0.95),
            0.08,
            reach="box",
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
            box,
            lambda u, t: u,
            0.4,
            prior=(1.0, 0.5),
            reach="box",
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
        centre=lambda u, t: mean(u),
        width=0.04,
        prior=box,
        box=box,
        reach="box",
    )
    move = lambda rng, u, t: rng.beta(40 * mean(u), 40 * (1 - mean(u)))
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
        centre=lambda u, t: 0.5 + 0.8 * u,
        width=lambda u, t: 0.2 + 0.2 * u,
        prior=box,
        box=box,
        reach="box",
    )

    def data():
        move = lambda rng, u, t: rng.gamma(8.0, (0.5 + 0.8 * u) / 8)
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
            box,
            lambda u, t: np.stack([0.9 * u, -2 * np.sin(u)]),
            0.2,
            spread=0.5,
        ),
    )
