"""Sup error against order: components with free shapes next to anchors on a grid.

Q(u, x) = N(x | 0.9 sin 2.2u, 0.15^2) truncated to (-1, 1), and the same Q untruncated on a larger
box. Nothing is random. Writes experiments/results/generalized_orders.json, then
docs/assets/generalized_orders.png; `--plot` draws again from the numbers.
"""

import json
import os
import sys
from pathlib import Path

# A Cholesky factor of 240 rows is not worth a second thread: on a busy machine OpenBLAS's threads
# wait for each other a thousand times longer than they compute (0.4 ms against 500 ms).
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.stats import norm
from scipy.special import ndtr

from psdfilter import Box, integral
from psdfilter._learning.generalized import learn_generalized
from psdfilter._learning.rank_one import learn_rank_one

ROOT = Path(__file__).resolve().parents[1]
NUMBERS = ROOT / "experiments" / "results" / "generalized_orders.json"
FIGURE = ROOT / "docs" / "assets" / "generalized_orders.png"

SD = 0.15
ORDERS = (5, 10, 20, 40)
LARGE_ORDERS = (80, 160, 320, 640)
UNTRUNCATED_ORDER, WIDE = 30, 1.8
GRID = np.linspace(-1.0, 1.0, 401)


def log_normal(z):
    return norm.logpdf(z[1], 0.9 * jnp.sin(2.2 * z[0]), SD)


def log_truncated(z):
    mean = 0.9 * jnp.sin(2.2 * z[0])
    return log_normal(z) - jnp.log(norm.cdf((1 - mean) / SD) - norm.cdf((-1 - mean) / SD))


def truth(u: np.ndarray, x: np.ndarray, truncated: bool) -> np.ndarray:
    """Q on the grid u x x, by NumPy and SciPy."""
    mean = 0.9 * np.sin(2.2 * u)[:, None]
    density = np.exp(-0.5 * ((x[None] - mean) / SD) ** 2) / (SD * np.sqrt(2 * np.pi))
    return density / (ndtr((1 - mean) / SD) - ndtr((-1 - mean) / SD)) if truncated else density


def mesh(u: np.ndarray, x: np.ndarray) -> np.ndarray:
    return np.stack([m.ravel() for m in np.meshgrid(u, x, indexing="ij")], axis=-1)


def generalized(order: int) -> dict:
    box = Box([-1.0, -1.0], [1.0, 1.0])
    first, second = (learn_generalized(log_truncated, box, order, given=0, log=True) for _ in "ab")
    exact = truth(GRID, GRID, truncated=True)
    error = np.abs(np.asarray(second.model(mesh(GRID, GRID))).reshape(exact.shape) - exact)
    result = {
        "order": order,
        "sup_error": float(error.max() / exact.max()),
        "mean_error": float(error.mean() / exact.mean()),
        "reported_sup_error": second.report.sup_error,
        "sum_alpha": second.report.amplitude_l1,
        "steps": second.report.iterations,
        "seconds": second.report.seconds,
        "seconds_with_compilation": first.report.seconds,
    }
    print(result, flush=True)
    return result


def diagonal(order: int, exact: np.ndarray) -> dict:
    """The best padded grid of at most `order` anchors, chosen by the very error that is shown."""
    best: dict = {"order": order, "sup_error": np.inf}
    for num_u in range(2, order // 2 + 1):
        num_x = order // num_u
        if order > 40 and not 0.4 < num_u / num_x < 4:
            continue
        for spread in (0.2, 0.35, 0.5, 0.8, 1.2):
            for pad in (0.0, 0.25, 0.5, 1.0, 1.5):
                if 2 * pad / np.sqrt(spread) > min(num_u, num_x) - 2:
                    continue  # the padding would take all anchors
                error = diagonal_error(num_u, num_x, spread, pad, exact)
                if error < best["sup_error"]:
                    shape = [num_u, num_x]
                    best |= {"shape": shape, "spread": spread, "pad": pad, "sup_error": error}
    print(best, flush=True)
    return best


def diagonal_error(num_u: int, num_x: int, spread: float, pad: float, exact: np.ndarray) -> float:
    """Least squares on sqrt(Q), axis by axis: f_hat = (phi(u)' a phi(x))^2, a = F_u^+ Y F_x^+'."""
    nodes, inverses, fine = [], [], []
    for num in (num_u, num_x):
        # Anchors reach `pad` kernel lengths past the box, and eta h^2 = spread.
        h = 2.0 / (num - 1 - 2 * pad / np.sqrt(spread))
        anchors = h * (np.arange(num) - 0.5 * (num - 1))
        points = np.cos(np.linspace(np.pi, 0.0, 3 * num + 20))
        kernel = [np.exp(-spread * ((x[:, None] - anchors) / h) ** 2) for x in (points, GRID)]
        nodes.append(points)
        inverses.append(np.linalg.pinv(kernel[0], rcond=1e-10))
        fine.append(kernel[1])
    a = inverses[0] @ np.sqrt(truth(*nodes, truncated=True)) @ inverses[1].T
    return float(np.abs((fine[0] @ a @ fine[1].T) ** 2 - exact).max() / exact.max())


def untruncated() -> dict:
    """Q on R as the filter on all of space needs it: error on the large box, mass outside of it."""
    box = Box([-WIDE, -WIDE], [WIDE, WIDE])
    fit = learn_generalized(log_normal, box, UNTRUNCATED_ORDER, given=0, log=True)
    axis = np.linspace(-WIDE, WIDE, 601)
    exact = truth(axis, axis, truncated=False)
    fitted = np.asarray(fit.model(mesh(axis, axis))).reshape(exact.shape)
    far = np.linspace(-4.0, 4.0, 1601)
    inner = np.linspace(-1.0, 1.0, 201)
    mass = np.trapezoid(np.asarray(fit.model(mesh(inner, far))).reshape(201, -1), far, axis=1)
    result = {
        "order": UNTRUNCATED_ORDER,
        "half_width": WIDE,
        "sup_error": float(np.abs(fitted - exact).max() / exact.max()),
        "mass_over_x_error_for_u_within_1": float(np.abs(mass - 1).max()),
        "mass_on_plane": float(integral(fit.model)),
        "mass_on_box": float(np.trapezoid(np.trapezoid(fitted, axis, axis=1), axis)),
        "seconds": fit.report.seconds,
    }
    print(result, flush=True)
    return result


def narrow() -> list[dict]:
    """Less noise: 20 components, and the grid that learn_rank_one finds for a similar error."""
    box, results = Box([-1.0, -1.0], [1.0, 1.0]), []
    for sd in (0.05, 0.03):

        def log_density(z, sd=sd):
            return norm.logpdf(z[1], 0.9 * jnp.sin(2.2 * z[0]), sd)

        free = learn_generalized(log_density, box, 20, given=0, log=True).report
        grid = learn_rank_one(log_density, box, tol=5e-3, log=True).report
        result = {
            "sd": sd,
            "order": free.order,
            "sup_error": free.sup_error,
            "grid_anchors": grid.num_anchors,
            "grid_sup_error": grid.sup_error,
        }
        print(result, flush=True)
        results.append(result)
    return results


def measure() -> None:
    exact = truth(GRID, GRID, truncated=True)
    numbers = {
        "target": "N(x | 0.9 sin 2.2u, 0.15^2) truncated to (-1, 1)",
        "max_f": float(exact.max()),
        "generalized": [generalized(order) for order in ORDERS],
        "diagonal": [diagonal(order, exact) for order in (*ORDERS, *LARGE_ORDERS)],
        "untruncated": untruncated(),
        "narrow": narrow(),
    }
    NUMBERS.parent.mkdir(exist_ok=True)
    NUMBERS.write_text(json.dumps(numbers, indent=2) + "\n")


def plot() -> None:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    numbers = json.loads(NUMBERS.read_text())
    fig, ax = plt.subplots(figsize=(6.4, 4.0), layout="constrained")
    for name, label, colour, marker in (
        ("diagonal", "anchors on the best regular grid", "#b5651d", "s"),
        ("generalized", "components with free shapes", "#1f5fa8", "o"),
    ):
        rows = numbers[name]
        orders, errors = [r["order"] for r in rows], [r["sup_error"] for r in rows]
        ax.loglog(orders, errors, marker=marker, color=colour, label=label)
    ax.set_xticks([5, 10, 20, 40, 80, 160, 320, 640])
    ax.set_xticklabels(["5", "10", "20", "40", "80", "160", "320", "640"])
    ax.minorticks_off()
    ax.set_xlabel("order")
    ax.set_ylabel("sup error / max Q")
    ax.set_title("Q(u, x) = N(x | 0.9 sin 2.2u, 0.15²) truncated to (−1, 1)", fontsize=10)
    ax.grid(alpha=0.3)
    ax.legend(frameon=False)
    fig.savefig(FIGURE, dpi=160)


if __name__ == "__main__":
    jax.config.update("jax_enable_x64", True)
    if "--plot" not in sys.argv:
        measure()
    plot()
