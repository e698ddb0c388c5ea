"""Noise far smaller than the posterior: a pendulum from an SDE, sampled at dt = 0.0125.

    python benchmarks/test_small_noise.py

prints one table, seeded and timed in one run: psdfilter, extended and unscented Kalman filters, and
the bootstrap filter of `particles` (or, where that is missing, the one below). Errors are those of
the posterior means in posterior standard deviations, over three series of 400 steps, against the
average of bootstrap filters with 10^6 particles each. As a test it takes one series, a smaller
reference, and asks for the accuracy and for the ratio of times.
"""

import sys
import time
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import psdfilter as psd

DT, GRAVITY, SPECTRAL, SENSOR = 0.0125, 9.8, 1.0, 0.1
Q = SPECTRAL * np.array([[DT**3 / 3, DT**2 / 2], [DT**2 / 2, DT]])
MEAN, SD = np.array([1.5, 0.0]), np.array([0.32, 0.32])


class Reference(NamedTuple):
    mean: np.ndarray
    sd: np.ndarray
    scatter: float  # rms of what is left of the noise of the reference, in sd


def bootstrap(ys: np.ndarray, num: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Means and variances of a bootstrap filter, resampled systematically when half is lost."""
    rng = np.random.default_rng(seed)
    root = np.linalg.cholesky(Q)
    angle = MEAN[0] + SD[0] * rng.standard_normal(num)
    velocity = MEAN[1] + SD[1] * rng.standard_normal(num)
    weights = np.full(num, 1 / num)
    means, variances = [], []
    for y in ys:
        if 1 / np.sum(weights**2) < num / 2:
            points = (rng.random() + np.arange(num)) / num
            index = np.minimum(np.searchsorted(np.cumsum(weights), points), num - 1)
            angle, velocity, weights = angle[index], velocity[index], np.full(num, 1 / num)
        z = rng.standard_normal((2, num))
        angle, velocity = (
            angle + DT * velocity + root[0, 0] * z[0],
            velocity - GRAVITY * DT * np.sin(angle) + root[1, 0] * z[0] + root[1, 1] * z[1],
        )
        logs = -0.5 * np.square(y - np.sin(angle)) / SENSOR
        weights = weights * np.exp(logs - logs.max())
        weights /= weights.sum()
        mean = np.array([weights @ angle, weights @ velocity])
        means.append(mean)
        variances.append([weights @ (angle - mean[0]) ** 2, weights @ (velocity - mean[1]) ** 2])
    return np.asarray(means), np.asarray(variances)


def reference(ys: np.ndarray, num: int, runs: int) -> Reference:
    each = [bootstrap(ys, num, 1000 + seed) for seed in range(runs)]
    means = np.stack([m for m, _ in each])
    sd = np.sqrt(np.mean([v for _, v in each], axis=0))
    scatter = np.sqrt(np.mean(np.var(means, axis=0, ddof=1) / runs / sd**2))
    return Reference(means.mean(axis=0), sd, float(scatter))


def drift(u):
    return jnp.stack([u[0] + DT * u[1], u[1] - GRAVITY * DT * jnp.sin(u[0])])


def sigma_points(m, P):
    root = jnp.linalg.cholesky(P) * jnp.sqrt(3.0)  # alpha = 1, kappa = 3 - d
    return jnp.concatenate([m[None], m + root.T, m - root.T])


_WEIGHTS = jnp.asarray([1 / 3, 1 / 6, 1 / 6, 1 / 6, 1 / 6])


@jax.jit
def extended(ys):
    """The extended Kalman filter."""

    def step(at, y):
        m, P = at
        F = jax.jacfwd(drift)(m)
        m, P = drift(m), F @ P @ F.T + Q
        H = jnp.stack([jnp.cos(m[0]), 0.0])
        S = H @ P @ H + SENSOR
        K = P @ H / S
        m, P = m + K * (y - jnp.sin(m[0])), P - jnp.outer(K, K) * S
        return (m, P), m

    return jax.lax.scan(step, (jnp.asarray(MEAN), jnp.diag(jnp.asarray(SD) ** 2)), ys)[1]


@jax.jit
def unscented(ys):
    """The unscented Kalman filter."""

    def step(at, y):
        x = jax.vmap(drift)(sigma_points(*at))
        m = _WEIGHTS @ x
        P = jnp.einsum("n,ni,nj->ij", _WEIGHTS, x - m, x - m) + Q
        x = sigma_points(m, P)
        h = jnp.sin(x[:, 0])
        mean = _WEIGHTS @ h
        S = _WEIGHTS @ jnp.square(h - mean) + SENSOR
        K = (_WEIGHTS * (h - mean)) @ (x - m) / S
        m, P = m + K * (y - mean), P - jnp.outer(K, K) * S
        return (m, P), m

    return jax.lax.scan(step, (jnp.asarray(MEAN), jnp.diag(jnp.asarray(SD) ** 2)), ys)[1]


def particle_filter(num: int):
    """The bootstrap filter of `particles` with its defaults, ys -> means; ours without it."""
    try:
        import particles
        from particles import distributions as dists
        from particles import state_space_models as models
        from particles.collectors import Moments
    except ImportError:
        return "bootstrap", lambda ys, seed: bootstrap(ys, num, seed)[0]

    class Pendulum(models.StateSpaceModel):
        def PX0(self):
            return dists.MvNormal(loc=MEAN, cov=np.diag(SD**2))

        def PX(self, t, xp):
            moved = [xp[:, 0] + DT * xp[:, 1], xp[:, 1] - GRAVITY * DT * np.sin(xp[:, 0])]
            return dists.MvNormal(loc=np.stack(moved, axis=1), cov=Q)

        def PY(self, t, xp, x):
            return dists.Normal(loc=np.sin(x[:, 0]), scale=np.sqrt(SENSOR))

    class Flat(Pendulum):
        """The first observation comes one transition after the prior: a first one says nothing."""

        def PY(self, t, xp, x):
            scale = 1e9 if t == 0 else np.sqrt(SENSOR)
            return dists.Normal(loc=np.sin(x[:, 0]), scale=scale)

    def run(ys, seed):
        np.random.seed(seed)  # noqa: NPY002 - the library draws from the global state
        filtered = particles.SMC(
            fk=models.Bootstrap(ssm=Flat(), data=np.concatenate([[0.0], ys])),
            N=num,
            collect=[Moments()],
        )
        filtered.run()
        return np.stack([m["mean"] for m in filtered.summaries.moments[1:]])

    return "particles", run


def seconds(fn, repeats: int) -> float:
    best = np.inf
    for _ in range(repeats):
        start = time.perf_counter()
        jax.block_until_ready(fn())
        best = min(best, time.perf_counter() - start)
    return best


class Row(NamedTuple):
    name: str
    rms: float
    high: float  # 95 % quantile over time of the larger coordinate
    largest: float
    time: float


def rows(series: list[np.ndarray], truths: list[Reference], tols, numbers) -> list[Row]:
    """Errors over all series, and microseconds per step of the first."""
    out = []

    def add(name, means, once, repeats):
        gaps = [np.abs(np.asarray(m) - t.mean) / t.sd for m, t in zip(means, truths, strict=True)]
        rms = np.sqrt(np.mean([np.mean(gap**2) for gap in gaps]))
        over_time = np.concatenate([gap.max(axis=1) for gap in gaps])
        high, largest = (float(np.quantile(over_time, q)) for q in (0.95, 1.0))
        time_of_step = seconds(once, repeats) / len(series[0]) * 1e6
        out.append(Row(name, float(rms), high, largest, time_of_step))

    ssm = psd.systems.pendulum_sde()
    for tol in tols:
        model = psd.learn(ssm, tol)
        means = [psd.run_filter(model, ys).mean for ys in series]
        name = f"psdfilter, tol {tol:g}, {model.report.order} Gaussians"
        add(name, means, lambda m=model: psd.run_filter(m, series[0]).mean, 5)
    for name, fn in (("extended Kalman", extended), ("unscented Kalman", unscented)):
        add(name, [fn(ys) for ys in series], lambda f=fn: f(series[0]), 5)
    for num in numbers:
        name, run = particle_filter(num)
        means = [run(ys, 7 + k) for k, ys in enumerate(series)]
        add(f"{name}, N = {num}", means, lambda r=run: r(series[0], 7), 1)
    return out


def simulated(seed: int, num_steps: int) -> np.ndarray:
    return np.asarray(psd.systems.pendulum_sde.simulate(seed, num_steps)[1])[:, 0]


def show(table: list[Row]) -> str:
    lines = [f"{'':36}{'rms error':>10}{'95 %':>8}{'largest':>9}{'us/step':>10}"]
    lines += [f"{r.name:36}{r.rms:10.4f}{r.high:8.4f}{r.largest:9.3f}{r.time:10.1f}" for r in table]
    return "\n".join(lines)


def test_small_noise_is_followed_faster_than_by_particles(capsys):
    """2 % of a standard deviation; a particle filter of that accuracy takes four times as long."""
    ys = simulated(0, 400)
    truth = reference(ys, 300_000, 4)
    table = rows([ys], [truth], (1e-3,), (10_000, 30_000))
    with capsys.disabled():
        print(f"\nreference known to {truth.scatter:.4f} sd\n{show(table)}")
    ours, particle = table[0], table[-2:]
    assert ours.high < 0.02
    assert ours.largest < 0.05
    # The error of a particle filter goes with N^{-1/2}, its time with N.
    at_our_error = np.mean([row.time * (row.rms / ours.rms) ** 2 for row in particle])
    assert at_our_error > 4 * ours.time


if __name__ == "__main__":
    jax.config.update("jax_enable_x64", True)
    num, runs = (10**6, 6) if "--quick" not in sys.argv else (10**5, 3)
    data = [simulated(seed, 400) for seed in range(3)]
    truths = [reference(ys, num, runs) for ys in data]
    print(f"references known to {max(t.scatter for t in truths):.4f} sd")
    print(show(rows(data, truths, (1e-2, 1e-3, 3e-4), (1_000, 10_000, 100_000))))
