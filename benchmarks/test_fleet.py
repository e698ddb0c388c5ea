"""Fleets beside one bare vmapped filter of the same padded array, in the same run.

Figures are ratios of processor time, measured alternately: wall time says nothing on a machine that
others use too. How busy the cores are is processor time over wall time, printed with the load.
"""

import os
import subprocess
import sys
import time

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import psdfilter as psd
from psdfilter.systems import stochastic_volatility

TOL = 1e-4


def simulated(num: int, steps: int) -> np.ndarray:
    keys = jax.random.split(jax.random.key(0), num)
    return np.asarray(jax.vmap(lambda k: stochastic_volatility.simulate(k, steps)[1])(keys))


def processor_time(fn) -> tuple[float, float]:
    cpu, wall = time.process_time(), time.perf_counter()
    fn()
    return time.process_time() - cpu, time.perf_counter() - wall


def alternately(*fns, times: int = 2) -> np.ndarray:
    """The least processor time of each, and its wall time."""
    for fn in fns:
        fn()  # compile
    rounds = np.asarray([[processor_time(fn) for fn in fns] for _ in range(times)])
    best = np.argmin(rounds[:, :, 0], axis=0)
    return rounds[best, np.arange(len(fns))]


def bare(model, ys):
    """One vmapped scan of the same plan: means, deviations and likelihoods, nothing else."""
    plan = model.batched()

    def one(y):
        post = psd.run_filter(plan, y, keep="summaries", throw=False)
        return post.mean, post.covariance, post.log_likelihoods

    many = jax.jit(jax.vmap(one))
    return lambda: jax.block_until_ready(many(ys))


def extended_kalman(ys):
    """A vmapped extended Kalman filter, written by hand: as fast as it gets, and wrong.

    log y^2 = x + log chi^2_1, its mean and variance taken for those of a Gaussian.
    """
    phi, q, mean, r, shift = 0.98, 0.15**2, -1.0, np.pi**2 / 2, -1.2704

    def one(y):
        seen = jnp.log(jnp.square(y[:, 0]) + 1e-12) - shift

        def step(carry, z):
            m, v = carry
            m, v = mean + phi * (m - mean), phi * phi * v + q
            s = v + r
            m, v, log_z = m + v / s * (z - m), v - v * v / s, -0.5 * (jnp.log(s) + (z - m) ** 2 / s)
            return (m, v), (m, v, log_z)

        return jax.lax.scan(step, (mean, q / (1 - phi**2)), seen)[1]

    many = jax.jit(jax.vmap(one))
    return lambda: jax.block_until_ready(many(ys))


@pytest.fixture(scope="module")
def model():
    return psd.learn(stochastic_volatility(), TOL)


def test_means_and_likelihoods_cost_little_more_than_a_bare_scan(model, tmp_path, capsys):
    num, steps = 2000, 500
    ys = simulated(num, steps)
    runs = iter(range(100))

    def full():
        path = tmp_path / f"{next(runs)}.zarr"
        psd.run_fleet(model, ys, out=path, quantiles=(0.05, 0.95))

    times = alternately(
        bare(model, ys), lambda: psd.run_fleet(model, ys), full, extended_kalman(ys)
    )
    cpu, wall = times.T
    each = 1e6 * cpu / ys.size
    with capsys.disabled():
        print(
            f"\nprocessor µs a series-step: bare {each[0]:.2f}, fleet {each[1]:.2f}, with "
            f"quantiles and writing {each[2]:.2f}, hand-written EKF {each[3]:.2f}; cores busy "
            f"{cpu[1] / wall[1]:.2f}, load {os.getloadavg()[0]:.1f}"
        )
    # 1.3 is what is aimed at, and missed: 1.9 was measured on one core of a loaded machine. The
    # bare scan returns no codes, so that the compiler drops its checks of the sensor.
    assert cpu[1] < 1.3 * cpu[0]


def test_ragged_series_cost_no_more_than_half_as_much_again(model, capsys):
    rng = np.random.default_rng(0)
    lengths = rng.integers(10, 2001, 5000)
    longest = simulated(5000, 2000)
    ragged = [y[:n] for y, n in zip(longest, lengths, strict=True)]
    equal = list(longest[:2500])
    times = alternately(
        lambda: psd.run_fleet(model, ragged), lambda: psd.run_fleet(model, equal), times=2
    )
    per_row = times[:, 0] / np.asarray([lengths.sum(), 2500 * 2000])
    with capsys.disabled():
        print(f"\nragged over equal lengths, processor time a row: {per_row[0] / per_row[1]:.2f}")
    assert per_row[0] < 1.5 * per_row[1]


MEMORY = """
import sys, resource
import jax; jax.config.update("jax_enable_x64", True)
import numpy as np, psdfilter as psd, zarr
from psdfilter.systems import stochastic_volatility
model = psd.learn(stochastic_volatility(), 1e-4)
psd.run_fleet(model, sys.argv[1], out=sys.argv[2], quantiles=(0.05, 0.95))
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
"""


def test_memory_is_flat_in_the_number_of_series(tmp_path, capsys):
    import zarr

    ys = simulated(500, 500)
    peaks = []
    for copies in (4, 8):
        path = tmp_path / f"{copies}.zarr"
        array = zarr.create_array(
            path, shape=(500 * copies, 500, 1), chunks=(500, 500, 1), dtype="f8"
        )
        for k in range(copies):
            array[500 * k : 500 * (k + 1)] = ys
        out = subprocess.run(
            [sys.executable, "-c", MEMORY, str(path), str(tmp_path / f"out{copies}.zarr")],
            capture_output=True, text=True, check=True,
        )  # fmt: skip
        peaks.append(float(out.stdout.split()[-1]))
    with capsys.disabled():
        print(f"\npeak memory: {peaks[0]:.0f} MiB, with twice the series {peaks[1]:.0f} MiB")
    assert peaks[1] < 2048
    assert peaks[1] < 1.2 * peaks[0]
