"""Nonlinear dynamics with little noise in three to six dimensions, against particle filters.

    python benchmarks/test_targets.py

prints the table of the guide, seeded: posterior means and standard deviations of one series of each
target of `benchmarks/targets.py`, in standard deviations of the reference, which is the average of
four bootstrap filters of 10^6 particles. What is left of the noise of that average is in the table
too. As a test it takes smaller references, and asks for what they cannot explain to be small.
"""

import sys
import time
from typing import NamedTuple

import jax
import numpy as np
import pytest

import psdfilter as psd
from benchmarks.targets import (
    TARGETS,
    Reference,
    bootstrap,
    extended,
    reference,
    simulate,
    unscented,
)


class Row(NamedTuple):
    name: str
    mean: float  # rms error of the posterior mean, in sd
    largest: float
    deviation: float  # rms of the relative error of the sd
    time: float  # ms a step


def row(name: str, moments, truth: Reference, seconds: float) -> Row:
    mean, variance = (np.asarray(a) for a in moments)
    gap = np.abs(mean - truth.mean) / truth.sd
    ratio = np.sqrt(variance) / truth.sd - 1
    rms, deviation = (float(np.sqrt(np.mean(np.square(a)))) for a in (gap, ratio))
    return Row(name, rms, float(gap.max()), deviation, 1e3 * seconds / len(mean))


def clocked(fn, repeats: int = 3):
    """What a call gives, and seconds of the fastest one after the first."""
    out = jax.block_until_ready(fn())
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        jax.block_until_ready(fn())
        times.append(time.perf_counter() - start)
    return out, min(times)


def table(target, ys, truth: Reference, tols, numbers) -> list[Row]:
    rows = []

    def ours(model):
        post = psd.run_filter(model, ys)
        return post.mean, np.diagonal(post.covariance, axis1=1, axis2=2)

    for tol in tols:
        model = psd.learn(target.model(), tol, engine="mixture")
        out, seconds = clocked(lambda m=model: ours(m))
        rows.append(row(f"psdfilter, {model.report.order} Gaussians", out, truth, seconds))
    for name, build in (("extended Kalman", extended), ("unscented Kalman", unscented)):
        run = build(target)
        out, seconds = clocked(lambda r=run: r(ys))
        rows.append(row(name, out, truth, seconds))
    for num in numbers:
        run = bootstrap(target, num)
        out, seconds = clocked(lambda r=run: r(ys, 7), repeats=1)
        rows.append(row(f"bootstrap, N = {num}", out, truth, seconds))
    return rows


def show(title: str, truth: Reference, rows: list[Row]) -> str:
    lines = [f"{title}; reference known to {truth.scatter:.4f} sd"]
    lines.append(f"{'':28}{'mean':>9}{'largest':>9}{'sd':>9}{'ms/step':>9}")
    lines += [
        f"{r.name:28}{r.mean:9.4f}{r.largest:9.3f}{r.deviation:9.4f}{r.time:9.2f}" for r in rows
    ]
    return "\n".join(lines)


@pytest.mark.parametrize("name", TARGETS)
def test_targets_are_followed_as_by_particles(name, capsys):
    """Means within 4 % of a standard deviation, as far as the reference can tell."""
    target = TARGETS[name]()
    _, ys = simulate(target, 0)
    truth = reference(target, ys, 400_000, 4)
    rows = table(target, ys, truth, (1e-3,), ())
    with capsys.disabled():
        print(f"\n{show(name, truth, rows)}")
    assert rows[0].mean ** 2 < 0.04**2 + (1.5 * truth.scatter) ** 2


if __name__ == "__main__":
    jax.config.update("jax_enable_x64", True)
    num, runs = (10**6, 4) if "--quick" not in sys.argv else (10**5, 3)
    for title, build in TARGETS.items():
        made = build()
        data = simulate(made, 0)[1]
        known = reference(made, data, num, runs)
        numbers = (10_000, 100_000)
        print(show(title, known, table(made, data, known, (1e-2, 1e-3), numbers)), flush=True)
