"""One dimension: noise, sensors and drifts that vary in time, unit roots, tight boxes."""
# ruff: noqa: E731 (maps of one line are named by assignment, as formulas are)

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy import stats

import psdfilter as psd

from . import densities as nd
from .case import Line, Registry, simulate
from .models_line_sensor import moving, noisy, same, seen_by, series

ZOO = Registry()


@ZOO.add(1, "time-varying", "narrow")
def noise_narrows():
    def build():
        def log_transition(u, x, t):
            return stats.norm.logpdf(x[0], 0.9 * u[0], jnp.where(t >= 25, 0.02, 0.5))

        return psd.StateSpaceModel(
            log_prior=lambda x: stats.norm.logpdf(x[0]),
            log_transition=log_transition,
            log_observation=lambda x, y: stats.norm.logpdf(y[0], x[0], 0.3),
            state_box=psd.Box(-8, 8),
            sample_observation=lambda key, x: x + 0.3 * jax.random.normal(key, (1,)),
        )

    def sd(t):
        return 0.02 if t >= 25 else 0.5

    def data():
        move = lambda rng, u, t: rng.normal(0.9 * u, sd(t))
        return {"ys": simulate(80, 40, lambda rng: 0.0, move, noisy(same, 0.3))}

    truth = Line(
        log_prior=lambda x: nd.normal(x, 0.0, 1.0),
        log_transition=lambda u, x, t: nd.normal(x, 0.9 * u, sd(t)),
        log_observation=lambda x, y, t: nd.normal(y[0], x, 0.3),
        centre=lambda u, t: 0.9 * u,
        width=lambda u, t: np.full(np.shape(u), sd(t)),
        prior=(-8.0, 8.0),
        box=(-8.0, 8.0),
    )
    return build, data, truth


@ZOO.add(1, "time-varying", "precise")
def sensor_narrows():
    def build():
        def log_observation(x, y, t):
            return stats.norm.logpdf(y[0], x[0], jnp.where(t >= 25, 0.005, 0.5))

        return psd.StateSpaceModel(
            log_prior=lambda x: stats.norm.logpdf(x[0]),
            log_transition=lambda u, x: stats.norm.logpdf(x[0], 0.9 * u[0], 0.5),
            log_observation=log_observation,
            state_box=psd.Box(-8, 8),
        )

    def sd(t):
        return 0.005 if t >= 25 else 0.5

    def data():
        move = lambda rng, u, t: rng.normal(0.9 * u, 0.5)
        see = lambda rng, x, t: rng.normal(x, sd(t))
        return {"ys": simulate(81, 40, lambda rng: 0.0, move, see)}

    return (
        build,
        data,
        moving(lambda u: 0.9 * u, 0.5, lambda x, y, t: nd.normal(y[0], x, sd(t)), box=(-8.0, 8.0)),
    )


@ZOO.add(1, "time-varying")
def seasonal_drift():
    def data():
        move = lambda rng, u, t: rng.normal(0.8 * u + 2 * np.sin(t), 0.3)
        return {"ys": simulate(82, 30, lambda rng: 0.0, move, noisy(np.arctan, 0.1))}

    truth = Line(
        log_prior=lambda x: nd.normal(x, 0.0, 1.0),
        log_transition=lambda u, x, t: nd.normal(x, 0.8 * u + 2 * np.sin(t), 0.3),
        log_observation=lambda x, y, t: nd.normal(y[0], np.arctan(x), 0.1),
        centre=lambda u, t: 0.8 * u + 2 * np.sin(t),
        width=0.3,
        prior=(-9.5, 9.5),
    )
    return (
        lambda: psd.additive_gaussian(
            lambda x, t: 0.8 * x + 2 * jnp.sin(jnp.asarray(t, float)),
            jnp.arctan,
            0.09,
            0.01,
            0.0,
            1.0,
        ),
        data,
        truth,
    )


@ZOO.add(1, "unit root", "smooth")
def near_unit_root():
    h = lambda x: np.log1p(np.exp(x))
    return (
        lambda: psd.additive_gaussian(
            lambda x: 0.999 * x, lambda x: jnp.logaddexp(x, 0.0), 0.01, 0.25, 2.0, 1.0
        ),
        series(83, 200, lambda u: 0.999 * u, 0.1, noisy(h, 0.5), 2.0),
        moving(lambda u: 0.999 * u, 0.1, seen_by(h, 0.5), (2.0, 1.0)),
    )


@ZOO.add(1, "bounded", "box")
def walk_in_a_tight_box():
    return (
        lambda: psd.additive_gaussian(
            lambda x: x, lambda x: x, 0.25, 1.0, 0.0, 1.0, state_box=(-1.5, 1.5)
        ),
        lambda: {"ys": np.array([0.5, 1.0, 2.0, 1.4, 0.0, -1.0, -2.0, -1.6, 0.3, 1.1])},
        moving(same, 0.5, seen_by(same, 1.0), box=(-1.5, 1.5)),
    )


@ZOO.add(1, "small noise")
def tiny_noise():
    f = lambda u: u + 0.1 * np.sin(3 * u)
    return (
        lambda: psd.additive_gaussian(
            lambda x: x + 0.1 * jnp.sin(3 * x), lambda x: x, 1e-4, 1.0, 0.0, 1.0
        ),
        series(84, 25, f, 0.01, noisy(same, 1.0), 0.8),
        moving(f, 0.01, seen_by(same, 1.0)),
    )


@ZOO.add(1, "smooth", "box")
def linear_on_a_box():
    return (
        lambda: psd.linear_gaussian(0.9, 0.25, 1.0, 0.25, 0.0, 1.0, state_box=(-8, 8)),
        series(85, 25, lambda u: 0.9 * u, 0.5, noisy(same, 0.5)),
        moving(lambda u: 0.9 * u, 0.5, seen_by(same, 0.5), box=(-8.0, 8.0)),
    )


@ZOO.add(1, "smooth")
def linear_on_the_line():
    return (
        lambda: psd.linear_gaussian(1.0, 0.25, 1.0, 1e-6, 0.0, 1e4),
        series(86, 25, same, 0.5, noisy(same, 1e-3), 30.0),
        moving(same, 0.5, seen_by(same, 1e-3), (0.0, 100.0)),
    )
