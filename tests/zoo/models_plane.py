"""Two dimensions: additive Gaussian noise."""
# ruff: noqa: E731 (maps of one line are named by assignment, as formulas are)

import jax.numpy as jnp
import numpy as np
from jax.scipy import stats

import psdfilter as psd

from . import densities as nd
from .case import Plane, Registry, simulate

ZOO = Registry()


def prior_of(mean, sds):
    return lambda x: sum(nd.normal(x[:, i], mean[i], sds[i]) for i in (0, 1))


def moving(f, sds, see, mean=(0.0, 0.0), start=(1.0, 1.0), frame=None, **more):
    """The truth of x' = f(x, t) + frame N(0, diag sds^2) and x_0 ~ N(mean, diag start^2)."""
    inverse = np.eye(2) if frame is None else np.linalg.inv(frame)

    def centre(u, t):
        return f(u, t) @ inverse.T

    middle, half = inverse @ np.array(mean), 7.5 * np.abs(inverse) @ np.array(start)
    return Plane(
        log_prior=prior_of(mean, start),
        log_axis=lambda i, u, z, t, c: nd.normal(z[None, :], centre(u, t)[:, i, None], sds[i]),
        log_observation=see,
        centre=centre,
        width=sds,
        prior=(tuple(middle - half), tuple(middle + half)),
        frame=frame,
        **more,
    )


def seen_by(h, sd):
    """Independent noise; coordinates of y that are NaN are left out."""

    def see(x, y, t):
        return sum(nd.normal(y[i], h(x)[:, i], sd) for i in range(len(y)) if not np.isnan(y[i]))

    return see


def series(seed, num, f, sds, h, sd, start, frame=None):
    """Data as `moving` and `seen_by` have it."""
    mix = np.diag(sds) if frame is None else np.asarray(frame) @ np.diag(sds)

    def data():
        def move(rng, u, t):
            return f(u[None], t)[0] + mix @ rng.normal(size=2)

        def see(rng, x, t):
            mean = h(x[None])[0]
            return mean + sd * rng.normal(size=len(mean))

        return {"ys": simulate(seed, num, lambda rng: np.array(start, float), move, see)}

    return data


def column(*parts):
    return np.stack(parts, axis=1)


def stay(u, t):
    return u


def distance(x):
    return column(np.hypot(x[:, 0], x[:, 1]))


def _range(seed, sd, box):
    def build():
        return psd.additive_gaussian(
            lambda x: x,
            lambda x: jnp.sqrt(x[0] ** 2 + x[1] ** 2 + 1e-30),
            [0.09, 0.09],
            sd**2,
            [2.0, 1.0],
            [1.0, 1.0],
            state_box=None if box is None else (box[0], box[1]),
        )

    return (
        build,
        series(seed, 10, stay, (0.3, 0.3), distance, sd, (2, 1)),
        moving(
            stay, (0.3, 0.3), seen_by(distance, sd), (2.0, 1.0), box=box, breaks=((0.0,), (0.0,))
        ),
    )


@ZOO.add(2, "ring")
def range_only():
    return _range(101, 0.2, None)


@ZOO.add(2, "ring", "precise", "box")
def ring_precise():
    return _range(102, 0.05, ((-7.0, -7.0), (8.0, 8.0)))


@ZOO.add(2, "bearing")
def bearing_only():
    h = lambda x: column(np.arctan2(x[:, 1], x[:, 0] + 9))
    f = lambda u, t: 0.97 * u
    return (
        lambda: psd.additive_gaussian(
            lambda x: 0.97 * x,
            lambda x: jnp.arctan2(x[1], x[0] + 9),
            [0.09, 0.09],
            0.05**2,
            [0.0, 0.0],
            [1.0, 1.0],
        ),
        series(103, 12, f, (0.3, 0.3), h, 0.05, (1, 1)),
        moving(f, (0.3, 0.3), seen_by(h, 0.05)),
    )


@ZOO.add(2, "bearing", "box")
def two_bearings():
    h = lambda x: column(np.arctan2(x[:, 1] + 8, x[:, 0] + 8), np.arctan2(x[:, 1] + 8, x[:, 0] - 8))

    def build():
        def log_observation(x, y):
            angles = jnp.arctan2(x[1] + 8, jnp.stack([x[0] + 8, x[0] - 8]))
            return jnp.sum(stats.norm.logpdf(y, angles, 0.02))

        def log_transition(u, x):
            return jnp.sum(stats.norm.logpdf(x, 0.98 * u, 0.4))

        return psd.StateSpaceModel(
            log_prior=lambda x: jnp.sum(stats.norm.logpdf(x)),
            log_transition=log_transition,
            log_observation=log_observation,
            state_box=psd.Box([-6.0, -6.0], [6.0, 6.0]),
        )

    f = lambda u, t: 0.98 * u
    return (
        build,
        series(104, 12, f, (0.4, 0.4), h, 0.02, (0, 1)),
        moving(f, (0.4, 0.4), seen_by(h, 0.02), box=((-6.0, -6.0), (6.0, 6.0))),
    )


@ZOO.add(2, "smooth")
def pendulum():
    f = lambda u, t: column(u[:, 0] + 0.2 * u[:, 1], u[:, 1] - 0.6 * np.sin(u[:, 0]))
    h = lambda x: column(np.sin(x[:, 0]))
    return (
        lambda: psd.additive_gaussian(
            lambda x: jnp.stack([x[0] + 0.2 * x[1], x[1] - 0.6 * jnp.sin(x[0])]),
            lambda x: jnp.sin(x[0]),
            [0.01, 0.04],
            0.04,
            [1.0, 0.0],
            [0.25, 0.25],
        ),
        series(105, 15, f, (0.1, 0.2), h, 0.2, (1, 0)),
        moving(f, (0.1, 0.2), seen_by(h, 0.2), (1.0, 0.0), (0.5, 0.5)),
    )


@ZOO.add(2, "smooth", "box")
def van_der_pol():
    def f(u, t):
        a, b = u[:, 0], u[:, 1]
        return column(a + 0.1 * b, b + 0.1 * (2 * (1 - a**2) * b - a))

    h = lambda x: column(x[:, 0])
    box = ((-5.0, -8.0), (5.0, 8.0))
    return (
        lambda: psd.additive_gaussian(
            lambda x: jnp.array(
                [x[0] + 0.1 * x[1], x[1] + 0.2 * (1 - x[0] ** 2) * x[1] - 0.1 * x[0]]
            ),
            lambda x: x[:1],
            [0.01, 0.04],
            0.25,
            [1.0, 0.0],
            [0.25, 0.25],
            state_box=box,
        ),
        series(106, 15, f, (0.1, 0.2), h, 0.5, (1, 0)),
        moving(f, (0.1, 0.2), seen_by(h, 0.5), (1.0, 0.0), (0.5, 0.5), box=box),
    )


@ZOO.add(2, "chaotic")
def henon_map():
    f = lambda u, t: column(1 - 1.2 * u[:, 0] ** 2 + u[:, 1], 0.3 * u[:, 0])
    h = lambda x: column(x[:, 0])
    box = ((-3.0, -1.5), (3.0, 1.5))
    return (
        lambda: psd.additive_gaussian(
            lambda x: jnp.stack([1 - 1.2 * x[0] ** 2 + x[1], 0.3 * x[0]]),
            lambda x: x[0],
            [0.0016, 0.0016],
            0.04,
            [0.2, 0.1],
            [0.09, 0.01],
            state_box=box,
        ),
        series(107, 12, f, (0.04, 0.04), h, 0.2, (0.2, 0.1)),
        moving(f, (0.04, 0.04), seen_by(h, 0.2), (0.2, 0.1), (0.3, 0.1), box=box),
    )


@ZOO.add(2, "chaotic", "small noise")
def standard_map():
    def f(u, t):
        p = u[:, 1] + 0.9 * np.sin(u[:, 0])
        return column(u[:, 0] + p, p)

    def step(x):
        p = x[1] + 0.9 * jnp.sin(x[0])
        return jnp.stack([x[0] + p, p])

    h = lambda x: column(np.cos(x[:, 0]), np.sin(x[:, 0]))
    return (
        lambda: psd.additive_gaussian(
            step,
            lambda x: jnp.stack([jnp.cos(x[0]), jnp.sin(x[0])]),
            [0.01, 0.01],
            [0.04, 0.04],
            [0.5, 0.3],
            [0.04, 0.04],
        ),
        series(108, 12, f, (0.1, 0.1), h, 0.2, (0.5, 0.3)),
        moving(f, (0.1, 0.1), seen_by(h, 0.2), (0.5, 0.3), (0.2, 0.2)),
    )


@ZOO.add(2, "correlated")
def correlated_noise():
    frame = np.array([[0.3, 0.0], [0.24, 0.18]])
    f = lambda u, t: column(0.9 * u[:, 0], 0.9 * u[:, 1] + 0.5 * np.sin(u[:, 0]))
    h = lambda x: column(x[:, 0] ** 2 + x[:, 1])
    return (
        lambda: psd.additive_gaussian(
            lambda x: jnp.stack([0.9 * x[0], 0.9 * x[1] + 0.5 * jnp.sin(x[0])]),
            lambda x: x[0] ** 2 + x[1],
            [[0.09, 0.072], [0.072, 0.09]],
            0.25,
            [0.0, 0.0],
            [1.0, 1.0],
        ),
        series(109, 12, f, (1.0, 1.0), h, 0.5, (0, 0), frame),
        moving(f, (1.0, 1.0), seen_by(h, 0.5), frame=frame),
    )


@ZOO.add(2, "correlated", "target")
def velocity_target():
    cov = 0.2 * np.array([[1 / 3, 1 / 2], [1 / 2, 1.0]])
    frame = np.linalg.cholesky(cov)
    f = lambda u, t: column(u[:, 0] + u[:, 1], u[:, 1])
    h = lambda x: column(np.sqrt(4 + x[:, 0] ** 2))
    return (
        lambda: psd.linear_gaussian(
            [[1.0, 1.0], [0.0, 1.0]],
            cov,
            None,
            None,
            [1.0, 0.3],
            [1.0, 0.25],
            log_observation=lambda x, y: stats.norm.logpdf(y[0], jnp.sqrt(4 + x[0] ** 2), 0.3),
        ),
        series(110, 12, f, (1.0, 1.0), h, 0.3, (1, 0.3), frame),
        moving(f, (1.0, 1.0), seen_by(h, 0.3), (1.0, 0.3), (1.0, 0.5), frame=frame),
    )


def _outlier(seed, sds):
    f = lambda u, t: column(0.9 * u[:, 0] + 0.2 * np.sin(u[:, 1]), 0.8 * u[:, 1])
    h = lambda x: column(x[:, 0], x[:, 1])

    def data():
        ys = series(seed, 10, f, (0.3, 0.3), h, 0.4, (0, 0))()["ys"]
        ys[5, 0] += 0.55 * sds
        return {"ys": ys}

    return (
        lambda: psd.additive_gaussian(
            lambda x: jnp.stack([0.9 * x[0] + 0.2 * jnp.sin(x[1]), 0.8 * x[1]]),
            lambda x: x,
            [0.09, 0.09],
            [0.16, 0.16],
            [0.0, 0.0],
            [1.0, 1.0],
        ),
        data,
        moving(f, (0.3, 0.3), seen_by(h, 0.4), deep=35 + 0.6 * sds**2),
    )


@ZOO.add(2, "outlier")
def plane_outlier_5():
    return _outlier(111, 5)


@ZOO.add(2, "outlier")
def plane_outlier_10():
    return _outlier(112, 10)


@ZOO.add(2, "outlier")
def plane_outlier_20():
    return _outlier(113, 20)
