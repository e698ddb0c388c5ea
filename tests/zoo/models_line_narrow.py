"""One dimension: narrow, precise, heavy-tailed and bounded sensors; chaotic maps."""
# ruff: noqa: E731 (maps of one line are named by assignment, as formulas are)

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy import stats

import psdfilter as psd

from . import densities as nd
from .case import Registry
from .models_line_sensor import moving, noisy, same, seen_by, series

ZOO = Registry()


@ZOO.add(1, "narrow")
def narrow_beam():
    def log_observation(x, y):  # 1 if the beam of width .01 at 1 is broken
        p = 0.001 + 0.998 * jnp.exp(-0.5 * ((x[0] - 1.0) / 0.01) ** 2)
        return jnp.where(y[0] > 0.5, jnp.log(p), jnp.log1p(-p))

    def see(x, y, t):
        p = 0.001 + 0.998 * np.exp(-0.5 * ((x - 1.0) / 0.01) ** 2)
        return np.log(p) if y[0] > 0.5 else np.log1p(-p)

    return (
        lambda: psd.linear_gaussian(
            1.0, 0.04, None, None, 0.0, 1.0, log_observation=log_observation
        ),
        lambda: {"ys": np.array([0, 0, 1, 0, 0, 1, 1, 0, 0, 0], dtype=float)},
        moving(same, 0.2, see, breaks=(0.8, 0.95, 0.98, 1.0, 1.02, 1.05, 1.2)),
    )


@ZOO.add(1, "narrow", "multimodal")
def proximity_detectors():
    places = np.array([-2.0, 0.5, 3.0])

    def log_observation(x, y):
        hit = jnp.exp(-0.5 * ((x[0] - jnp.asarray(places)) / 0.03) ** 2)
        return jnp.sum(stats.norm.logpdf(y, hit, 0.05))

    def see(x, y, t):
        return sum(
            nd.normal(y[i], np.exp(-0.5 * ((x - places[i]) / 0.03) ** 2), 0.05) for i in range(3)
        )

    def data():
        rng = np.random.default_rng(40)
        ys = 0.05 * rng.normal(size=(10, 3))
        ys[3, 1] += 1.0
        ys[7, 1] += 0.6
        return {"ys": ys}

    marks = tuple(float(c + s) for c in places for s in (-0.3, -0.1, -0.05, 0, 0.05, 0.1, 0.3))
    return (
        lambda: psd.linear_gaussian(
            0.98, 0.04, None, None, 0.0, 1.0, log_observation=log_observation
        ),
        data,
        moving(lambda u: 0.98 * u, 0.2, see, breaks=marks, deep=400.0),
    )


def _precise(seed, sd):
    f = lambda u: 0.9 * u + np.sin(u)
    return (
        lambda: psd.additive_gaussian(
            lambda x: 0.9 * x + jnp.sin(x), lambda x: x, 0.25, sd**2, 0.0, 1.0
        ),
        series(seed, 25, f, 0.5, noisy(same, sd)),
        moving(f, 0.5, seen_by(same, sd)),
    )


@ZOO.add(1, "precise")
def precise_sensor_1e2():
    return _precise(41, 1e-2)


@ZOO.add(1, "precise")
def precise_sensor_1e3():
    return _precise(42, 1e-3)


@ZOO.add(1, "precise")
def precise_sensor_1e4():
    return _precise(43, 1e-4)


@ZOO.add(1, "precise", "multimodal")
def precise_square_sensor():
    h = lambda x: x**2
    return (
        lambda: psd.additive_gaussian(lambda x: 0.9 * x + 0.05, h, 0.25, 1e-4, 0.0, 1.0),
        series(44, 20, lambda u: 0.9 * u + 0.05, 0.5, noisy(h, 1e-2)),
        moving(lambda u: 0.9 * u + 0.05, 0.5, seen_by(h, 1e-2), breaks=(0.0,)),
    )


def _many(seed, num):
    def data():
        rng = np.random.default_rng(seed)
        states = np.cumsum(0.4 * rng.normal(size=4))
        ys = (states[:, None] + 0.5 * rng.normal(size=(4, num))).ravel()
        return {"ys": ys, "times": np.repeat(np.arange(1, 5), num)}

    return (
        lambda: psd.additive_gaussian(
            lambda x: x, lambda x: x, 0.16, 0.25, 0.0, 1.0, state_box=(-8, 8)
        ),
        data,
        moving(same, 0.4, seen_by(same, 0.5), box=(-8.0, 8.0)),
    )


@ZOO.add(1, "simultaneous")
def ten_sensors():
    return _many(45, 10)


@ZOO.add(1, "simultaneous")
def thirty_sensors():
    return _many(46, 30)


@ZOO.add(1, "simultaneous", "discrete")
def ten_counts():
    def build():
        return psd.StateSpaceModel(
            log_prior=lambda x: stats.norm.logpdf(x[0]),
            log_transition=lambda u, x: stats.norm.logpdf(x[0], 0.9 * u[0], 0.5),
            log_observation=lambda x, y: stats.poisson.logpmf(y[0], jnp.exp(x[0])),
            state_box=psd.Box(-6, 6),
            sample_observation=lambda key, x: jax.random.poisson(key, jnp.exp(x)),
        )

    def data():
        rng = np.random.default_rng(47)
        rates = np.exp(np.repeat([0.5, 1.2, 0.1], 10))
        return {"ys": rng.poisson(rates).astype(float), "times": np.repeat([1, 2, 3], 10)}

    return (
        build,
        data,
        moving(lambda u: 0.9 * u, 0.5, lambda x, y, t: nd.poisson(y[0], x), box=(-6.0, 6.0)),
    )


@ZOO.add(1, "chaotic", "box")
def logistic_map():
    f = lambda u: 3.8 * u * (1 - u)
    return (
        lambda: psd.additive_gaussian(
            lambda x: 3.8 * x * (1 - x), lambda x: x, 4e-4, 0.01, 0.4, 0.01, state_box=(-0.3, 1.3)
        ),
        series(48, 30, f, 0.02, noisy(same, 0.1), 0.4),
        moving(f, 0.02, seen_by(same, 0.1), (0.4, 0.1), box=(-0.3, 1.3)),
    )


@ZOO.add(1, "chaotic", "kinked")
def tent_map():
    f = lambda u: 1.9 * np.minimum(u, 1 - u)
    return (
        lambda: psd.additive_gaussian(
            lambda x: 1.9 * jnp.minimum(x, 1 - x), lambda x: x, 4e-4, 0.04, 0.4, 0.01
        ),
        series(49, 30, f, 0.02, noisy(same, 0.2), 0.4),
        moving(f, 0.02, seen_by(same, 0.2), (0.4, 0.1), breaks=(0.5,)),
    )


@ZOO.add(1, "heavy", "outlier")
def cauchy_sensor():
    def data():
        see = lambda rng, x, t: x + 0.3 * rng.standard_cauchy()
        ys = series(50, 30, lambda u: 0.98 * u, 0.3, see)()["ys"]
        ys[12], ys[20] = 500.0, -40.0
        return {"ys": ys}

    return (
        lambda: psd.linear_gaussian(
            0.98,
            0.09,
            None,
            None,
            0.0,
            1.0,
            log_observation=lambda x, y: stats.cauchy.logpdf(y[0], x[0], 0.3),
        ),
        data,
        moving(lambda u: 0.98 * u, 0.3, lambda x, y, t: nd.cauchy(y[0], x, 0.3)),
    )


@ZOO.add(1, "heavy", "outlier")
def student_sensor():
    def data():
        see = lambda rng, x, t: x + 0.2 * rng.standard_t(4)
        ys = series(51, 30, lambda u: 2 * np.sin(u), 0.3, see)()["ys"]
        ys[10:13] += 6.0
        return {"ys": ys}

    def build():
        return psd.StateSpaceModel(
            log_prior=lambda x: stats.norm.logpdf(x[0]),
            log_transition=lambda u, x: stats.norm.logpdf(x[0], 2 * jnp.sin(u[0]), 0.3),
            log_observation=lambda x, y: stats.t.logpdf(y[0], 4.0, x[0], 0.2),
            state_box=psd.Box(-6, 6),
        )

    return (
        build,
        data,
        moving(
            lambda u: 2 * np.sin(u),
            0.3,
            lambda x, y, t: nd.student(y[0], x, 0.2, 4),
            box=(-6.0, 6.0),
            deep=150.0,
        ),
    )


@ZOO.add(1, "kinked", "level")
def laplace_sensor():
    def data():
        see = lambda rng, x, t: x + rng.laplace(0, 0.2)
        ys = series(52, 30, same, 0.3, see)()["ys"]
        ys[15:] += 5.0
        return {"ys": ys}

    return (
        lambda: psd.linear_gaussian(
            1.0,
            0.09,
            None,
            None,
            0.0,
            1.0,
            log_observation=lambda x, y: stats.laplace.logpdf(y[0], x[0], 0.2),
        ),
        data,
        moving(
            same,
            0.3,
            lambda x, y, t: nd.laplace(y[0], x, 0.2),
            sensor_breaks=lambda y, t: (y[0],),
            deep=250.0,
        ),
    )


@ZOO.add(1, "jumping", "bounded")
def bounded_sensor():
    def log_observation(x, y):
        return jnp.where(jnp.abs(y[0] - x[0]) <= 0.4, -jnp.log(0.8), -jnp.inf)

    return (
        lambda: psd.linear_gaussian(
            1.0, 0.09, None, None, 0.0, 1.0, log_observation=log_observation
        ),
        series(53, 30, same, 0.3, lambda rng, x, t: x + rng.uniform(-0.4, 0.4)),
        moving(
            same,
            0.3,
            lambda x, y, t: nd.uniform(y[0] - x, -0.4, 0.4),
            sensor_breaks=lambda y, t: (y[0] - 0.4, y[0] + 0.4),
        ),
    )


@ZOO.add(1, "multimodal")
def clutter_sensor():
    def log_observation(x, y):  # a third of the returns come from clutter around 1
        seen = jnp.log(2 / 3) + stats.norm.logpdf(y[0], x[0], 0.1)
        return jnp.logaddexp(seen, jnp.log(1 / 3) + stats.norm.logpdf(y[0], 1.0, 2.0))

    draw = lambda rng, x, t: rng.normal(x, 0.1) if rng.random() < 2 / 3 else rng.normal(1, 2)
    return (
        lambda: psd.linear_gaussian(
            1.0, 0.09, None, None, 0.0, 1.0, log_observation=log_observation
        ),
        series(54, 30, same, 0.3, draw),
        moving(
            same,
            0.3,
            lambda x, y, t: nd.mixture(
                [2 / 3, 1 / 3], [nd.normal(y[0], x, 0.1), nd.normal(y[0], 1.0, 2.0)]
            ),
            sensor_breaks=lambda y, t: (y[0] - 0.5, y[0], y[0] + 0.5),
        ),
    )


@ZOO.add(1, "multimodal")
def wrapped_phase():
    def log_observation(x, y):  # von Mises, concentration 20
        k = jnp.log(2 * jnp.pi) + jnp.log(jax.scipy.special.i0e(20.0))
        return 20 * (jnp.cos(y[0] - x[0]) - 1) - k

    def see(x, y, t):
        return 20 * (np.cos(y[0] - x) - 1) - np.log(2 * np.pi) - np.log(np.i0(20.0)) + 20

    draw = lambda rng, x, t: (x + rng.vonmises(0, 20) + np.pi) % (2 * np.pi) - np.pi
    return (
        lambda: psd.linear_gaussian(
            1.0, 0.16, None, None, 0.0, 9.0, log_observation=log_observation
        ),
        series(55, 25, same, 0.4, draw),
        moving(same, 0.4, see, (0.0, 3.0)),
    )
