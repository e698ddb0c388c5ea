"""Two dimensions: other noise, other sensors, other priors."""
# ruff: noqa: E731 (maps of one line are named by assignment, as formulas are)

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy import stats
from jax.scipy.special import gammaln, log_ndtr

import psdfilter as psd

from . import densities as nd
from .case import Plane, Registry, simulate
from .models_plane import column, moving, prior_of, seen_by, series, stay

ZOO = Registry()
BOX = ((-7.0, -7.0), (7.0, 7.0))


def free(log_axis, centre, see, width, **more):
    """A truth on BOX with a standard normal prior."""
    return Plane(
        log_prior=prior_of((0.0, 0.0), (1.0, 1.0)),
        log_axis=log_axis,
        log_observation=see,
        centre=centre,
        width=width,
        prior=((-7.0, -7.0), (7.0, 7.0)),
        box=BOX,
        **more,
    )


def model(log_transition, log_observation):
    return psd.StateSpaceModel(
        log_prior=lambda x: jnp.sum(stats.norm.logpdf(x)),
        log_transition=log_transition,
        log_observation=log_observation,
        state_box=psd.Box(*BOX),
    )


def sums(rng, x, t):
    return rng.normal([x[0] + x[1], x[0] - x[1]], 0.4)


def see_sums(x, y, t):
    return nd.normal(y[0], x[:, 0] + x[:, 1], 0.4) + nd.normal(y[1], x[:, 0] - x[:, 1], 0.4)


def log_sums(x, y):
    return jnp.sum(stats.norm.logpdf(y, jnp.stack([x[0] + x[1], x[0] - x[1]]), 0.4))


@ZOO.add(2, "heavy")
def plane_student_noise():
    def data():
        move = lambda rng, u, t: 0.8 * u + 0.3 * rng.standard_t(4, size=2)
        return {"ys": simulate(130, 10, lambda rng: np.zeros(2), move, sums)}

    return (
        lambda: model(lambda u, x: jnp.sum(stats.t.logpdf(x, 4.0, 0.8 * u, 0.3)), log_sums),
        data,
        free(
            lambda i, u, z, t, c: nd.student(z[None], 0.8 * u[:, i, None], 0.3, 4),
            lambda u, t: 0.8 * u,
            see_sums,
            (0.25, 0.25),
            reach="box",
        ),
    )


@ZOO.add(2, "skewed")
def plane_skew_noise():
    def log_transition(u, x):
        e = (x - 0.8 * u) / 0.6
        return jnp.sum(stats.norm.logpdf(e) + log_ndtr(4 * e)) + 2 * jnp.log(2 / 0.6)

    def data():
        d = 4 / np.sqrt(17)

        def move(rng, u, t):
            e = d * np.abs(rng.normal(size=2)) + np.sqrt(1 - d**2) * rng.normal(size=2)
            return 0.8 * u + 0.6 * e

        return {"ys": simulate(131, 10, lambda rng: np.zeros(2), move, sums)}

    return (
        lambda: model(log_transition, log_sums),
        data,
        free(
            lambda i, u, z, t, c: nd.skew_normal(z[None], 0.8 * u[:, i, None], 0.6, 4.0),
            lambda u, t: 0.8 * u,
            see_sums,
            (0.2, 0.2),
            spread=4.0,
        ),
    )


@ZOO.add(2, "multimodal")
def plane_two_maps():
    def log_transition(u, x):
        turn = jnp.stack([-u[1], u[0]])
        stay = jnp.log(0.6) + jnp.sum(stats.norm.logpdf(x, 0.9 * u, 0.3))
        return jnp.logaddexp(stay, jnp.log(0.4) + jnp.sum(stats.norm.logpdf(x, turn, 0.2)))

    def maps(u):
        return np.stack([0.9 * u, column(-u[:, 1], u[:, 0])])

    def data():
        def move(rng, u, t):
            k = int(rng.random() > 0.6)
            return rng.normal(maps(u[None])[k, 0], (0.3, 0.2)[k])

        return {"ys": simulate(132, 10, lambda rng: np.array([1.0, 0.5]), move, sums)}

    return (
        lambda: model(log_transition, log_sums),
        data,
        free(
            lambda i, u, z, t, c: nd.normal(z[None], maps(u)[c][:, i, None], (0.3, 0.2)[c]),
            lambda u, t: maps(u),
            see_sums,
            (0.2, 0.2),
            spread=0.8,
            log_weight=lambda u, t: np.log(np.array([[0.6], [0.4]])) + np.zeros((2, len(u))),
        ),
    )


@ZOO.add(2, "state-dependent")
def level_and_volatility():
    def log_transition(u, x):
        level = stats.norm.logpdf(x[0], 0.9 * u[0], jnp.exp(u[1] / 2) / 3)
        return level + stats.norm.logpdf(x[1], 0.95 * u[1], 0.3)

    def log_axis(i, u, z, t, c):
        if i == 0:
            return nd.normal(z[None], 0.9 * u[:, :1], np.exp(u[:, 1:] / 2) / 3)
        return nd.normal(z[None], 0.95 * u[:, 1:], 0.3)

    def data():
        def move(rng, u, t):
            return np.array(
                [rng.normal(0.9 * u[0], np.exp(u[1] / 2) / 3), rng.normal(0.95 * u[1], 0.3)]
            )

        see = lambda rng, x, t: rng.normal(x[:1], 0.3)
        return {"ys": simulate(133, 5, lambda rng: np.zeros(2), move, see)}

    return (
        lambda: model(log_transition, lambda x, y: stats.norm.logpdf(y[0], x[0], 0.3)),
        data,
        free(
            log_axis,
            lambda u, t: u * np.array([0.9, 0.95]),
            seen_by(lambda x: x[:, :1], 0.3),
            (0.07, 0.15),
            reach="box",
        ),
    )


@ZOO.add(2, "discrete")
def predator_prey_counts():
    def step(x):  # logs of two populations
        return jnp.stack(
            [x[0] + 0.3 - 0.3 * jnp.exp(x[1] / 2), x[1] - 0.3 + 0.3 * jnp.exp(x[0] / 2)]
        )

    def f(u, t):
        return column(
            u[:, 0] + 0.3 - 0.3 * np.exp(u[:, 1] / 2), u[:, 1] - 0.3 + 0.3 * np.exp(u[:, 0] / 2)
        )

    def data():
        move = lambda rng, u, t: rng.normal(f(u[None], t)[0], 0.2)
        see = lambda rng, x, t: rng.poisson(3 * np.exp(x))
        return {"ys": simulate(134, 10, lambda rng: np.array([0.3, -0.2]), move, see)}

    def see(x, y, t):
        return sum(nd.poisson(y[i], x[:, i] + np.log(3)) for i in (0, 1))

    return (
        lambda: model(
            lambda u, x: jnp.sum(stats.norm.logpdf(x, step(u), 0.2)),
            lambda x, y: jnp.sum(y * (x + jnp.log(3.0)) - 3 * jnp.exp(x) - gammaln(y + 1)),
        ),
        data,
        moving(f, (0.2, 0.2), see, box=BOX),
    )


@ZOO.add(2, "narrow")
def plane_proximity():
    def log_observation(x, y):
        near = jnp.exp(-0.5 * ((x[0] - 1.0) ** 2 + (x[1] - 0.5) ** 2) / 0.05**2)
        p = 0.01 + 0.98 * near
        return jnp.where(y[0] > 0.5, jnp.log(p), jnp.log1p(-p))

    def see(x, y, t):
        near = np.exp(-0.5 * ((x[:, 0] - 1) ** 2 + (x[:, 1] - 0.5) ** 2) / 0.05**2)
        p = 0.01 + 0.98 * near
        return np.log(p) if y[0] > 0.5 else np.log1p(-p)

    marks = ((0.8, 0.9, 1.0, 1.1, 1.2), (0.3, 0.4, 0.5, 0.6, 0.7))
    return (
        lambda: psd.linear_gaussian(
            np.eye(2),
            [0.09, 0.09],
            None,
            None,
            [0.0, 0.0],
            [1.0, 1.0],
            log_observation=log_observation,
        ),
        lambda: {"ys": np.array([0, 0, 1, 0, 1, 0, 0, 0], dtype=float)},
        moving(stay, (0.3, 0.3), see, breaks=marks),
    )


@ZOO.add(2, "prior", "multimodal")
def plane_bimodal_prior():
    def log_prior(x):
        modes = [
            jnp.sum(stats.norm.logpdf(x, jnp.array(m), 0.3)) for m in ([-2.0, 1.0], [2.0, 1.0])
        ]
        return jnp.logaddexp(*modes) - jnp.log(2.0)

    def build():
        return psd.StateSpaceModel(
            log_prior=log_prior,
            log_transition=lambda u, x: jnp.sum(stats.norm.logpdf(x, 0.95 * u, 0.2)),
            log_observation=lambda x, y: stats.norm.logpdf(y[0], x[0] ** 2 + x[1], 0.5),
            state_box=psd.Box(*BOX),
            sample_observation=lambda key, x: (
                x[:1] ** 2 + x[1:] + 0.5 * jax.random.normal(key, (1,))
            ),
        )

    f = lambda u, t: 0.95 * u
    h = lambda x: column(x[:, 0] ** 2 + x[:, 1])
    truth = Plane(
        log_prior=lambda x: nd.mixture(
            [0.5, 0.5], [prior_of((s, 1.0), (0.3, 0.3))(x) for s in (-2.0, 2.0)]
        ),
        log_axis=lambda i, u, z, t, c: nd.normal(z[None], 0.95 * u[:, i, None], 0.2),
        log_observation=seen_by(h, 0.5),
        centre=f,
        width=(0.2, 0.2),
        prior=((-5.0, -2.0), (5.0, 4.0)),
        box=BOX,
    )
    return build, series(136, 12, f, (0.2, 0.2), h, 0.5, (-2, 1)), truth


@ZOO.add(2, "discrete", "saturating")
def quadrant_sensor():
    def log_observation(x, y):  # two noisy signs
        return jnp.sum(log_ndtr((2 * y - 1) * x / 0.2))

    def see(x, y, t):
        from scipy.special import log_ndtr as tail

        return sum(tail((2 * y[i] - 1) * x[:, i] / 0.2) for i in (0, 1))

    def data():
        move = lambda rng, u, t: rng.normal(
            column(u[None, 0] + 0.3 * u[None, 1], 0.9 * u[None, 1] - 0.3 * u[None, 0])[0], 0.3
        )
        draw = lambda rng, x, t: (rng.normal(x, 0.2) > 0).astype(float)
        return {"ys": simulate(137, 12, lambda rng: np.array([1.0, 0.0]), move, draw)}

    f = lambda u, t: column(u[:, 0] + 0.3 * u[:, 1], 0.9 * u[:, 1] - 0.3 * u[:, 0])
    return (
        lambda: psd.linear_gaussian(
            [[1.0, 0.3], [-0.3, 0.9]],
            [0.09, 0.09],
            None,
            None,
            [0.0, 0.0],
            [1.0, 1.0],
            log_observation=log_observation,
        ),
        data,
        moving(f, (0.3, 0.3), see),
    )


@ZOO.add(2, "heavy", "outlier")
def plane_robust_sensor():
    def data():
        f = lambda u, t: 0.95 * u
        ys = series(138, 10, f, (0.3, 0.3), lambda x: x, 0.3, (0, 0))()["ys"]
        ys[4] += np.array([8.0, 0.0])
        return {"ys": ys}

    return (
        lambda: psd.linear_gaussian(
            0.95 * np.eye(2),
            [0.09, 0.09],
            None,
            None,
            [0.0, 0.0],
            [1.0, 1.0],
            log_observation=lambda x, y: jnp.sum(stats.cauchy.logpdf(y, x, 0.3)),
        ),
        data,
        moving(
            lambda u, t: 0.95 * u,
            (0.3, 0.3),
            lambda x, y, t: sum(nd.cauchy(y[i], x[:, i], 0.3) for i in (0, 1)),
            deep=60.0,
        ),
    )
