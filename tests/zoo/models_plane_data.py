"""Two dimensions: outliers, priors, gaps, time, thresholds, with additive Gaussian noise."""
# ruff: noqa: E731 (maps of one line are named by assignment, as formulas are)

import jax.numpy as jnp
import numpy as np
from jax.scipy import stats

import psdfilter as psd

from . import densities as nd
from .case import Registry
from .models_plane import column, moving, seen_by, series

ZOO = Registry()


@ZOO.add(2, "precise")
def plane_precise_sensor():
    f = lambda u, t: column(np.sin(2 * u[:, 1]), 0.9 * u[:, 0])
    h = lambda x: column(x[:, 0], x[:, 1])
    return (
        lambda: psd.additive_gaussian(
            lambda x: jnp.stack([jnp.sin(2 * x[1]), 0.9 * x[0]]),
            lambda x: x,
            [0.09, 0.09],
            [1e-4, 1e-4],
            [0.0, 0.0],
            [1.0, 1.0],
        ),
        series(114, 10, f, (0.3, 0.3), h, 0.01, (0, 0)),
        moving(f, (0.3, 0.3), seen_by(h, 0.01)),
    )


@ZOO.add(2, "prior", "box")
def plane_sharp_prior():
    f = lambda u, t: column(u[:, 0] + 0.3 * u[:, 1], u[:, 1] - 0.3 * np.sin(u[:, 0]))
    h = lambda x: column(x[:, 0] * x[:, 1])
    box = ((-5.0, -5.0), (5.0, 5.0))
    return (
        lambda: psd.additive_gaussian(
            lambda x: jnp.stack([x[0] + 0.3 * x[1], x[1] - 0.3 * jnp.sin(x[0])]),
            lambda x: x[0] * x[1],
            [0.09, 0.09],
            0.25,
            [1.0, -0.5],
            [1e-4, 1e-2],
            state_box=box,
        ),
        lambda: {**series(115, 10, f, (0.3, 0.3), h, 0.5, (1, -0.5))(), "first": "observe"},
        moving(f, (0.3, 0.3), seen_by(h, 0.5), (1.0, -0.5), (0.01, 0.1), box=box),
    )


@ZOO.add(2, "missing")
def plane_gaps():
    f = lambda u, t: column(0.9 * u[:, 0] + 0.3 * u[:, 1], 0.9 * u[:, 1])
    h = lambda x: column(x[:, 0] ** 2, x[:, 1])

    def data():
        ys = series(116, 12, f, (0.3, 0.3), h, 0.5, (1, 0))()["ys"]
        ys[3:5], ys[7, 0], ys[9, 1] = np.nan, np.nan, np.nan
        return {"ys": ys}

    return (
        lambda: psd.additive_gaussian(
            lambda x: jnp.stack([0.9 * x[0] + 0.3 * x[1], 0.9 * x[1]]),
            lambda x: jnp.stack([x[0] ** 2, x[1]]),
            [0.09, 0.09],
            [0.25, 0.25],
            [0.0, 0.0],
            [1.0, 1.0],
        ),
        data,
        moving(f, (0.3, 0.3), seen_by(h, 0.5)),
    )


@ZOO.add(2, "time-varying", "precise")
def plane_sensor_narrows():
    def sd(t):
        return 0.02 if t >= 6 else 0.5

    def build():
        return psd.StateSpaceModel(
            log_prior=lambda x: jnp.sum(stats.norm.logpdf(x)),
            log_transition=lambda u, x: jnp.sum(stats.norm.logpdf(x, 0.9 * jnp.sin(u), 0.4)),
            log_observation=lambda x, y, t: stats.norm.logpdf(
                y[0], x[0] + x[1], jnp.where(t >= 6, 0.02, 0.5)
            ),
            state_box=psd.Box([-5.0, -5.0], [5.0, 5.0]),
        )

    f = lambda u, t: 0.9 * np.sin(u)
    h = lambda x: column(x[:, 0] + x[:, 1])
    see = lambda x, y, t: nd.normal(y[0], x[:, 0] + x[:, 1], sd(t))
    return (
        build,
        series(117, 10, f, (0.4, 0.4), h, 0.02, (0, 0)),
        moving(f, (0.4, 0.4), see, box=((-5.0, -5.0), (5.0, 5.0))),
    )


@ZOO.add(2, "jumping")
def plane_threshold_in_f():
    def f(u, t):
        return column(np.where(u[:, 0] > 0, -1.0, 1.0) + 0.5 * u[:, 0], 0.9 * u[:, 1])

    h = lambda x: column(x[:, 0] + x[:, 1])
    return (
        lambda: psd.additive_gaussian(
            lambda x: jnp.stack([jnp.where(x[0] > 0, -1.0, 1.0) + 0.5 * x[0], 0.9 * x[1]]),
            lambda x: x[0] + x[1],
            [0.04, 0.09],
            0.25,
            [0.0, 0.0],
            [0.25, 0.25],
        ),
        series(118, 12, f, (0.2, 0.3), h, 0.5, (0, 0)),
        moving(f, (0.2, 0.3), seen_by(h, 0.5), start=(0.5, 0.5), breaks=((0.0,), ())),
    )


@ZOO.add(2, "simultaneous")
def plane_ten_sensors():
    f = lambda u, t: 0.95 * u

    def data():
        rng = np.random.default_rng(119)
        ys = 1.4 + 0.3 * rng.normal(size=(20, 1))
        return {"ys": ys, "times": np.repeat([1, 2], 10)}

    box = ((-5.0, -5.0), (6.0, 6.0))
    return (
        lambda: psd.additive_gaussian(
            lambda x: 0.95 * x,
            lambda x: jnp.sqrt(x[0] ** 2 + x[1] ** 2 + 0.01),
            [0.16, 0.16],
            0.09,
            [1.0, 1.0],
            [1.0, 1.0],
            state_box=box,
        ),
        data,
        moving(
            f,
            (0.4, 0.4),
            seen_by(lambda x: column(np.sqrt(x[:, 0] ** 2 + x[:, 1] ** 2 + 0.01)), 0.3),
            (1.0, 1.0),
            box=box,
        ),
    )


@ZOO.add(2, "short")
def plane_one_observation():
    f = lambda u, t: column(u[:, 0] * np.cos(u[:, 1]), u[:, 1])
    h = lambda x: column(x[:, 0] * x[:, 1])
    return (
        lambda: psd.additive_gaussian(
            lambda x: jnp.stack([x[0] * jnp.cos(x[1]), x[1]]),
            lambda x: x[0] * x[1],
            [0.25, 0.25],
            0.09,
            [0.0, 0.0],
            [1.0, 1.0],
        ),
        lambda: {"ys": np.array([1.5])},
        moving(f, (0.5, 0.5), seen_by(h, 0.3)),
    )


@ZOO.add(2, "smooth")
def plane_linear():
    f = lambda u, t: u @ np.array([[0.9, 0.2], [-0.2, 0.9]]).T
    h = lambda x: column(x[:, 0])
    return (
        lambda: psd.linear_gaussian(
            [[0.9, 0.2], [-0.2, 0.9]], [0.09, 0.09], [[1.0, 0.0]], 0.25, [0.0, 0.0], [1.0, 1.0]
        ),
        series(120, 12, f, (0.3, 0.3), h, 0.5, (0, 0)),
        moving(f, (0.3, 0.3), seen_by(h, 0.5)),
    )
