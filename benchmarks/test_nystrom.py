"""Nyström-PCG: a million points, flat memory, and scikit-learn on the same problem.

    pytest benchmarks/test_nystrom.py -s --benchmark-enable

Run as a script (`python benchmarks/test_nystrom.py n m`) it solves one problem from a memory map
and prints time, iterations, error and peak memory as JSON; the tests do so in fresh processes.
"""

import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pytest

DIM, PRECISION, RIDGE = 4, 1.0, 1e-10


def root(x: np.ndarray) -> np.ndarray:
    """Root of a two-dimensional transition with noise 0.5, up to a constant."""
    u, v, x1, x2 = x.T
    return np.exp(-((x1 - np.sin(u)) ** 2) - (x2 - 0.5 * u * v) ** 2)


def anchors(m: int) -> np.ndarray:
    return np.random.default_rng(1).uniform(-1.1, 1.1, (m, DIM))


def rms_error(predict) -> float:
    x = np.random.default_rng(2).uniform(-1, 1, (20_000, DIM))
    return float(np.sqrt(np.mean((predict(x) - root(x)) ** 2)))


def write_points(folder: Path, n: int) -> tuple[np.memmap, np.memmap]:
    x = np.memmap(folder / "x", dtype=float, mode="w+", shape=(n, DIM))
    y = np.memmap(folder / "y", dtype=float, mode="w+", shape=(n,))
    rng = np.random.default_rng(0)
    for start in range(0, n, 100_000):
        piece = slice(start, min(start + 100_000, n))
        x[piece] = rng.uniform(-1, 1, (piece.stop - start, DIM))
        y[piece] = root(x[piece])
    return x, y


def solve(n: int, m: int) -> dict:
    import jax

    jax.config.update("jax_enable_x64", True)
    from psdfilter._learning.nystrom import nystrom_ridge

    with tempfile.TemporaryDirectory() as name:
        x, y = write_points(Path(name), n)
        start = time.perf_counter()
        fit = nystrom_ridge(x, y, anchors(m), PRECISION, ridge=RIDGE, throw=False)
        seconds = time.perf_counter() - start
    # Pages of the memory map that the kernel keeps count as resident too; they are no allocation.
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    error = rms_error(lambda x: np.sqrt(np.asarray(fit.model(x))))
    report = fit.report
    return {
        "n": n,
        "m": m,
        "seconds": seconds,
        "iterations": report.iterations,
        "preconditioner": report.num_preconditioner,
        "residual": report.residual,
        "rms_error": error,
        "peak_gib": peak,
    }


def in_fresh_process(n: int, m: int) -> dict:
    done = subprocess.run(
        [sys.executable, __file__, str(n), str(m)], check=True, capture_output=True, text=True
    )
    result = json.loads(done.stdout)
    print(result)
    return result


def test_million_points(benchmark):
    result = benchmark.pedantic(in_fresh_process, (1_000_000, 2000), rounds=1)
    benchmark.extra_info.update(result)
    assert result["seconds"] < 300
    assert result["peak_gib"] < 8


def test_memory_is_flat(benchmark):
    small = in_fresh_process(100_000, 1000)
    large = benchmark.pedantic(in_fresh_process, (1_000_000, 1000), rounds=1)
    benchmark.extra_info.update(large)
    # 32 MB of the larger are pages of the memory map.
    assert large["peak_gib"] - small["peak_gib"] < 0.1


@pytest.mark.parametrize("m", [1000, 3000])
def test_against_scikit_learn(benchmark, m):
    """Same anchors' number, kernel and ridge. Both solvers cost O(n m^2) here, and tie at m = 1000;
    ours pulls ahead as m grows and keeps its memory flat, where theirs holds the (n, m) features.
    """
    from sklearn.kernel_approximation import Nystroem
    from sklearn.linear_model import Ridge
    from sklearn.pipeline import make_pipeline

    n = 100_000
    ours = benchmark.pedantic(in_fresh_process, (n, m), rounds=1)
    x = np.random.default_rng(0).uniform(-1, 1, (n, DIM))
    features = Nystroem(gamma=PRECISION, n_components=m, random_state=0)
    peer = make_pipeline(features, Ridge(alpha=n * RIDGE, fit_intercept=False))
    start = time.perf_counter()
    peer.fit(x, root(x))
    theirs = {"seconds": time.perf_counter() - start, "rms_error": rms_error(peer.predict)}
    print({"ours": ours, "scikit-learn": theirs})
    benchmark.extra_info.update({"ours": ours, "scikit-learn": theirs})
    assert ours["rms_error"] < 1.2 * theirs["rms_error"]


if __name__ == "__main__":
    print(json.dumps(solve(int(sys.argv[1]), int(sys.argv[2]))))
