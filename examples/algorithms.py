"""Algorithms 1 and 2 of the paper as printed, beside the default engine, on the sine map.

Algorithm 1 learns Q(u, x) and G(x, y) on uniform random anchors from uniform random points;
Algorithm 2 is `filter_step` in a loop. Both filters are compared with a dense grid, and the loop
with the filter of its own Q^ and G^ on that grid, which tells the error of learning from that of
arithmetic. The noise is wider than that of `systems.sine_map`: uniform anchors in the plane would
have to be several hundred, and the order of the filter is their square. Prints a table and draws
output/algorithms.png.

    python examples/algorithms.py
"""

import time
from pathlib import Path

import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
from rich.console import Console
from rich.table import Table

import psdfilter as psd

jax.config.update("jax_enable_x64", True)
plt.switch_backend("Agg")  # files only, no window

OUTPUT = Path("output/algorithms.png")
NUM_STEPS = 6
SYSTEM, NOISE = psd.systems.sine_map, {"sd": 0.35, "sensor_sd": 0.3}
STATE = psd.Box(-1.0, 1.0)
PAIR, SEEN = psd.Box([-1, -1], [1, 1]), psd.Box([-1, -1.2], [1, 2.2])


def algorithm_one(num_anchors: int, seed: int) -> tuple[psd.GaussianPSD, psd.GaussianPSD]:
    """Q^ and G^: M uniform anchors and N = 10 M uniform points each, kernel ridge regression."""
    ssm = SYSTEM(**NOISE)
    of_q, of_g = jax.random.split(jax.random.key(seed))
    # The root of N(x | ., sd^2) is a kernel of precision 1 / (4 sd^2): 2.0 for Q, 2.8 for G.
    design = {
        "anchors": "uniform",
        "num_anchors": num_anchors,
        "num_points": 10 * num_anchors,
        "precision": 3.0,
        "ridge": 1e-9,
        "log": True,
    }
    Q = psd.learn_rank_one(lambda z: ssm.log_transition(z[:1], z[1:]), PAIR, key=of_q, **design)
    G = psd.learn_rank_one(lambda z: ssm.log_observation(z[:1], z[1:]), SEEN, key=of_g, **design)
    return Q.model, G.model


def algorithm_two(
    Q: psd.GaussianPSD, G: psd.GaussianPSD, ys: jnp.ndarray
) -> tuple[list[psd.GaussianPSD], float]:
    """pi_1 ... pi_T, each a Gaussian PSD model, and the log-likelihood."""
    # A kernel that hardly varies over the box: the uniform prior to 1e-8.
    density = psd.normalize(psd.GaussianPSD([[0.0]], [1.0], 1e-8), STATE)
    densities, total = [], 0.0
    for y in ys:
        density, log_Z = psd.filter_step(Q, G, density, y, STATE)
        densities.append(density)
        total += float(log_Z)
    return densities, total


def errors(densities, truth: psd.systems.Reference) -> np.ndarray:
    """Total variation to the dense grid at every time."""
    pairs = zip(densities, truth.densities, strict=True)
    return np.array([truth.weights @ np.abs(np.asarray(p(truth.nodes)) - q) for p, q in pairs])


def on_grid(
    Q: psd.GaussianPSD, G: psd.GaussianPSD, ys: jnp.ndarray, truth: psd.systems.Reference
) -> np.ndarray:
    """The filter of Q^ and G^ on the nodes of the dense grid: right arithmetic, the same models."""
    z, w = truth.nodes, truth.weights
    old, new = (np.broadcast_to(a, (len(z), len(z))) for a in (z, z.T))
    moves = np.asarray(Q(np.stack([old, new], axis=-1)))
    density, out = np.full(len(z), 0.5), []
    for y in np.asarray(ys):
        seen = np.asarray(G(np.concatenate([z, np.broadcast_to(y, z.shape)], axis=1)))
        density = (w * density) @ moves * seen
        density = density / (w @ density)
        out.append(density)
    return np.array(out)


def main() -> None:
    _, ys = SYSTEM.simulate(0, NUM_STEPS, **NOISE)
    truth = SYSTEM.reference(ys, **NOISE)
    table = Table(
        "filter", "order", "TV", "TV, right arithmetic", "error of log L", "learn s", "run s"
    )
    fig, axes = plt.subplots(1, 2, figsize=(10, 3.6))
    grid = np.linspace(-1, 1, 400)[:, None]
    for num_anchors in (30, 60):
        start = time.perf_counter()
        Q, G = algorithm_one(num_anchors, seed=0)
        learned = time.perf_counter()
        densities, log_likelihood = algorithm_two(Q, G, ys)
        done = time.perf_counter()
        off = errors(densities, truth)
        right = np.abs(on_grid(Q, G, ys, truth) - truth.densities) @ truth.weights
        table.add_row(
            f"Algorithms 1 + 2, M = {num_anchors}",
            f"{densities[-1].order}",
            f"{off.max():.2e}",
            f"{right.max():.2e}",
            f"{abs(log_likelihood - truth.log_likelihood):.1e}",
            f"{learned - start:.1f}",
            f"{done - learned:.1f}",
        )
        axes[0].plot(grid, densities[-1](grid), label=f"Algorithms 1 + 2, M = {num_anchors}")
        axes[1].semilogy(range(1, NUM_STEPS + 1), off, marker=".")
    start = time.perf_counter()
    model = psd.learn(SYSTEM(**NOISE), tol=1e-3)
    learned = time.perf_counter()
    post = psd.run_filter(model, ys)
    post.mean.block_until_ready()
    done = time.perf_counter()
    off = errors([post.density(t) for t in range(NUM_STEPS)], truth)
    gap = abs(float(post.log_likelihood) - truth.log_likelihood)
    table.add_row(
        "default, tol = 1e-3",
        "-",
        f"{off.max():.2e}",
        "-",
        f"{gap:.1e}",
        f"{learned - start:.1f}",
        f"{done - learned:.1f}",
    )
    Console().print(table)
    axes[0].plot(grid, post.density(NUM_STEPS - 1)(grid), label="default, tol = 1e-3")
    axes[0].plot(truth.nodes, truth.densities[-1], "k:", label="dense grid")
    axes[0].set(xlabel="state", title=f"density after {NUM_STEPS} observations")
    axes[0].legend()
    axes[1].semilogy(range(1, NUM_STEPS + 1), off, marker=".")
    axes[1].set(xlabel="step", title="total variation to the dense grid")
    OUTPUT.parent.mkdir(exist_ok=True)
    fig.tight_layout()
    fig.savefig(OUTPUT, dpi=120)
    print(f"drawn: {OUTPUT}")


if __name__ == "__main__":
    main()
