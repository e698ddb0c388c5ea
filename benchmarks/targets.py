"""Models of three to six coordinates whose noise is far smaller than their posteriors.

    x' = f(u) + N(0, Q),  y = h(x) + N(0, R),  x_0 ~ N(m0, P0)

Each is a target of the textbooks. A filter of it is held against bootstrap filters of very many
particles, next to extended and unscented Kalman filters.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import psdfilter as psd


class Target(NamedTuple):
    """A model, and how long it is followed."""

    f: Callable[[Any], Any]
    h: Callable[[Any], Any]
    Q: np.ndarray
    R: np.ndarray
    m0: np.ndarray
    P0: np.ndarray
    num_steps: int

    @property
    def dim(self) -> int:
        """Number of coordinates of the state."""
        return len(self.m0)

    def model(self) -> psd.StateSpaceModel:
        """As the library takes it."""
        return psd.additive_gaussian(self.f, self.h, self.Q, self.R, self.m0, self.P0)


def runge_kutta(rate: Callable[[Any], Any], dt: float) -> Callable[[Any], Any]:
    """One step of the classical rule of order four."""

    def step(u):
        a = rate(u)
        b = rate(u + 0.5 * dt * a)
        c = rate(u + 0.5 * dt * b)
        d = rate(u + dt * c)
        return u + dt / 6 * (a + 2 * b + 2 * c + d)

    return step


def integrated_noise(dt: float) -> np.ndarray:
    """Covariance of (position, velocity) under white noise of unit density in the velocity."""
    return np.array([[dt**3 / 3, dt**2 / 2], [dt**2 / 2, dt]])


def coordinated_turn() -> Target:
    """A target that turns at an unknown rate, (x, vx, y, vy, rate); range and bearing."""

    def f(u):
        x, vx, y, vy, rate = u
        # sin(w)/w and (1 - cos(w))/w by sinc, without a division by zero.
        along = jnp.sinc(rate / jnp.pi)
        across = 0.5 * rate * jnp.square(jnp.sinc(0.5 * rate / jnp.pi))
        c, s = jnp.cos(rate), jnp.sin(rate)
        return jnp.stack(
            [
                x + along * vx - across * vy,
                c * vx - s * vy,
                y + across * vx + along * vy,
                s * vx + c * vy,
                rate,
            ]
        )

    def h(x):
        return jnp.stack([jnp.sqrt(x[0] ** 2 + x[2] ** 2), jnp.arctan2(x[2], x[0])])

    Q = np.zeros((5, 5))
    Q[:2, :2] = Q[2:4, 2:4] = 0.1 * integrated_noise(1.0)
    Q[4, 4] = 4e-6
    return Target(
        f,
        h,
        Q,
        np.diag([30.0**2, 0.02**2]),
        np.array([2000.0, 60.0, 2000.0, 0.0, 0.0]),
        np.diag([100.0, 20.0, 100.0, 20.0, 0.05]) ** 2,
        100,
    )


def lorenz() -> Target:
    """Lorenz's convection, sampled every 0.01, seen by its first coordinate."""

    def rate(u):
        x, y, z = u
        return jnp.stack([10.0 * (y - x), x * (28.0 - z) - y, x * y - 8.0 / 3.0 * z])

    return Target(
        runge_kutta(rate, 0.01),
        lambda x: x[:1],
        0.01 * np.eye(3),
        np.array([[4.0]]),
        np.array([0.0, 0.0, 25.0]),
        np.diag([5.0, 5.0, 5.0]) ** 2,
        300,
    )


def three_pendulums() -> Target:
    """Three pendulums joined by springs, (angles, velocities), every 0.02; two sines seen."""
    dt, gravity, spring = 0.02, 9.8, 4.0

    def rate(u):
        a, v = u[:3], u[3:]
        left, right = a[1] - a[0], a[2] - a[1]
        pull = spring * jnp.stack([left, right - left, -right])
        return jnp.concatenate([v, pull - gravity * jnp.sin(a)])

    return Target(
        runge_kutta(rate, dt),
        lambda x: jnp.sin(x[jnp.asarray([0, 2])]),
        np.kron(0.1 * integrated_noise(dt), np.eye(3)),
        0.04 * np.eye(2),
        np.array([1.0, 0.0, -1.0, 0.0, 0.0, 0.0]),
        np.diag([0.3, 0.5, 0.3, 0.5, 0.5, 0.5]) ** 2,
        200,
    )


def reentry() -> Target:
    """A body that falls through the air, (position, velocity) in km; range, azimuth, elevation.

    Drag c exp(-height / 7) |v| v, a radar on the ground, one observation every 0.5 s.
    """
    drag, gravity = 0.05, 0.0098

    def rate(u):
        position, v = u[:3], u[3:]
        speed = jnp.sqrt(jnp.sum(jnp.square(v)) + 1e-12)
        slowed = -drag * jnp.exp(-position[2] / 7.0) * speed * v
        return jnp.concatenate([v, slowed - jnp.asarray([0.0, 0.0, gravity])])

    def h(x):
        ground = jnp.sqrt(x[0] ** 2 + x[1] ** 2)
        return jnp.stack(
            [
                jnp.sqrt(jnp.sum(jnp.square(x[:3]))),
                jnp.arctan2(x[1], x[0]),
                jnp.arctan2(x[2], ground),
            ]
        )

    return Target(
        runge_kutta(rate, 0.5),
        h,
        np.kron(1e-3 * integrated_noise(0.5), np.eye(3)),
        np.diag([0.1, 0.05, 0.05]) ** 2,
        np.array([6.0, 4.0, 20.0, -0.1, -0.05, -1.2]),
        np.diag([1.0, 1.0, 1.0, 0.2, 0.2, 0.2]) ** 2,
        40,
    )


TARGETS = {
    "Lorenz, 3-d": lorenz,
    "coordinated turn, 5-d": coordinated_turn,
    "three pendulums, 6-d": three_pendulums,
    "re-entry, 6-d": reentry,
}


def root_of(matrix: np.ndarray) -> np.ndarray:
    """A root of a covariance that may be singular."""
    values, vectors = np.linalg.eigh(matrix)
    return vectors * np.sqrt(np.maximum(values, 0.0))


def simulate(target: Target, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """States and observations."""
    rng = np.random.default_rng(seed)
    f, h = jax.jit(target.f), jax.jit(target.h)
    roots = [root_of(m) for m in (target.P0, target.Q, target.R)]
    x, states, seen = target.m0 + roots[0] @ rng.normal(size=target.dim), [], []
    for _ in range(target.num_steps):
        x = np.asarray(f(x)) + roots[1] @ rng.normal(size=target.dim)
        states.append(x)
        seen.append(np.asarray(h(x)) + roots[2] @ rng.normal(size=len(target.R)))
    return np.asarray(states), np.asarray(seen)


class Moments(NamedTuple):
    mean: np.ndarray
    variance: np.ndarray


def bootstrap(target: Target, num: int) -> Callable[[np.ndarray, int], Moments]:
    """ys, seed -> moments of a bootstrap filter, resampled systematically when half is lost."""
    start, move = root_of(target.P0), jnp.asarray(root_of(target.Q))
    white = jnp.asarray(np.linalg.inv(np.linalg.cholesky(target.R)))

    # On the host: random numbers and the copies of particles, for which NumPy is faster.
    @jax.jit
    def step(x, logs, noise, y):
        x = jax.vmap(target.f)(x) + noise @ move.T
        g = (jax.vmap(target.h)(x) - y[None, :]) @ white.T
        logs = logs - 0.5 * jnp.sum(jnp.square(g), axis=1)
        w = jax.nn.softmax(logs)
        mean = w @ x
        return x, logs, w, mean, w @ jnp.square(x - mean[None, :])

    def run(ys, seed):
        rng = np.random.Generator(np.random.SFC64(seed))
        x = target.m0 + rng.standard_normal((num, target.dim)) @ start.T
        logs, w, means, variances = np.zeros(num), np.full(num, 1 / num), [], []
        for y in ys:
            if num * np.sum(np.square(w)) > 2:
                ends = np.ceil(num * np.cumsum(w) - rng.random()).astype(int)
                ends = np.minimum(ends, num)
                ends[-1] = num
                x, logs = np.repeat(x, np.diff(ends, prepend=0), axis=0), np.zeros(num)
            noise = rng.standard_normal((num, target.dim))
            x, logs, w, mean, variance = map(np.asarray, step(x, logs, noise, y))
            means.append(mean)
            variances.append(variance)
        return Moments(np.asarray(means), np.asarray(variances))

    return run


class Reference(NamedTuple):
    mean: np.ndarray
    sd: np.ndarray
    scatter: float  # rms of what is left of the noise of its mean, in sd


def reference(target: Target, ys: np.ndarray, num: int, runs: int) -> Reference:
    """The average of several large filters."""
    run = bootstrap(target, num)
    each = [run(ys, 1000 + seed) for seed in range(runs)]
    means = np.stack([np.asarray(m.mean) for m in each])
    mean = means.mean(axis=0)
    # Of the mixture of all runs, each a sample of the posterior.
    sd = np.sqrt(np.mean([np.asarray(m.variance) for m in each], axis=0) + means.var(axis=0))
    scatter = np.sqrt(np.mean(means.var(axis=0, ddof=1) / runs / sd**2))
    return Reference(mean, sd, float(scatter))


def extended(target: Target) -> Callable[[Any], Any]:
    """ys -> moments of the extended Kalman filter."""
    Q, R = jnp.asarray(target.Q), jnp.asarray(target.R)

    @jax.jit
    def run(ys):
        def step(at, y):
            m, P = at
            F = jax.jacfwd(target.f)(m)
            m, P = target.f(m), F @ P @ F.T + Q
            H = jax.jacfwd(target.h)(m)
            S = H @ P @ H.T + R
            K = jnp.linalg.solve(S, H @ P).T
            m, P = m + K @ (y - target.h(m)), P - K @ S @ K.T
            return (m, P), Moments(m, jnp.diagonal(P))

        start = jnp.asarray(target.m0), jnp.asarray(target.P0)
        return jax.lax.scan(step, start, jnp.asarray(ys))[1]

    return run


def unscented(target: Target) -> Callable[[Any], Any]:
    """ys -> moments of the unscented Kalman filter, alpha = 1, kappa = max(3 - d, 0)."""
    dim, spread = target.dim, max(3.0, target.dim)
    rest = 1 - dim / spread
    weights = jnp.asarray([rest] + [0.5 / spread] * (2 * dim))
    Q, R = jnp.asarray(target.Q), jnp.asarray(target.R)

    def points(m, P):
        root = jnp.linalg.cholesky(P) * jnp.sqrt(spread)
        return jnp.concatenate([m[None], m[None] + root.T, m[None] - root.T])

    def covariance(a, b):
        return jnp.einsum("n,ni,nj->ij", weights, a, b)

    @jax.jit
    def run(ys):
        def step(at, y):
            x = jax.vmap(target.f)(points(*at))
            m = weights @ x
            P = covariance(x - m[None], x - m[None]) + Q
            x = points(m, P)
            h = jax.vmap(target.h)(x)
            mean = weights @ h
            S = covariance(h - mean[None], h - mean[None]) + R
            C = covariance(x - m[None], h - mean[None])
            K = jnp.linalg.solve(S, C.T).T
            m, P = m + K @ (y - mean), P - K @ S @ K.T
            return (m, P), Moments(m, jnp.diagonal(P))

        start = jnp.asarray(target.m0), jnp.asarray(target.P0)
        return jax.lax.scan(step, start, jnp.asarray(ys))[1]

    return run
