"""The calculus of densities in one page: evaluate, multiply, marginalise, and check by quadrature.

Prints a table of closed-form numbers next to their quadratures and draws output/density.png.
"""

from pathlib import Path

import jax
import matplotlib.pyplot as plt
import numpy as np
from rich.console import Console
from rich.table import Table

import psdfilter as psd

jax.config.update("jax_enable_x64", True)
plt.switch_backend("Agg")  # files only, no window

OUTPUT = Path("output/density.png")
BOX = psd.Box([-1.0, -1.0], [1.0, 1.0])


def prior() -> psd.GaussianPSD:
    """p(x, y): bumps along an arc, from which a bump of opposite sign carves a gap."""
    angle = np.linspace(0.15 * np.pi, 1.25 * np.pi, 7)
    arc = 0.55 * np.column_stack([np.cos(angle), np.sin(angle)])
    anchors = np.vstack([arc, [[0.45, -0.35], [-0.05, 0.62]]])
    weights = np.array([0.7, 0.9, 1.0, 1.0, 1.0, 0.9, 0.6, -1.1, -1.3])
    return psd.normalize(psd.GaussianPSD(anchors, weights, [9.0, 9.0]), BOX)


def likelihood() -> psd.GaussianPSD:
    """g(y) of a measurement of y alone that cannot tell two places apart."""
    g = psd.from_mixture([0.6, 0.4], [[0.45], [-0.4]], [0.02])
    assert isinstance(g, psd.GaussianPSD)  # one variance for both bumps
    return g


def quadrature() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Nodes and weights on (-1, 1), and the grid of all pairs of nodes."""
    t, w = np.polynomial.legendre.leggauss(80)
    x, y = np.meshgrid(t, t, indexing="ij")
    return t, w, np.stack([x, y], axis=-1)


def report(p: psd.GaussianPSD, g: psd.GaussianPSD, posterior: psd.GaussianPSD) -> Table:
    """Every number twice: in closed form, and by an 80 x 80 Gauss-Legendre rule."""
    t, w, grid = quadrature()
    values, seen = np.asarray(p(grid)), np.asarray(g(t[:, None]))
    joint = values * seen[None, :]
    mass = w @ joint @ w
    mean, covariance = psd.moments(posterior, BOX)
    marginal = psd.marginal(posterior, 0, BOX)
    median = psd.quantile(posterior, 0, 0.5, BOX)
    below = psd.cdf(posterior, 0, 0.0, BOX)
    left = np.polynomial.legendre.leggauss(80)
    left_nodes, left_weights = 0.5 * (left[0] - 1), 0.5 * left[1]
    left_grid = np.stack(np.meshgrid(left_nodes, t, indexing="ij"), axis=-1)
    left_mass = left_weights @ (np.asarray(p(left_grid)) * seen[None, :]) @ w
    mean_x = w @ (t[:, None] * joint) @ w / mass
    rows = [
        ("mass of the prior on the box", psd.integral(p, BOX), w @ values @ w),
        ("evidence  Z = ∫ p(x, y) g(y)", psd.integral(psd.product(p, g, g_axes=1), BOX), mass),
        ("posterior mean of x", mean[0], mean_x),
        ("posterior mean of y", mean[1], w @ (t[None, :] * joint) @ w / mass),
        (
            "posterior variance of x",
            covariance[0, 0],
            w @ ((t[:, None] - mean_x) ** 2 * joint) @ w / mass,
        ),
        ("posterior marginal at x = 0.3", marginal(0.3), None),
        ("P(x < 0) given the measurement", below, left_mass / mass),
        ("its median of x, through the cdf", psd.cdf(posterior, 0, median, BOX), 0.5),
    ]
    at = np.column_stack([np.full(80, 0.3), t])
    rows[5] = (*rows[5][:2], w @ (np.asarray(p(at)) * seen) / mass)
    table = Table(title="Gaussian PSD models: closed form against quadrature")
    table.add_column("quantity")
    for name in ("closed form", "quadrature", "difference"):
        table.add_column(name, justify="right")
    for name, closed, numeric in rows:
        gap = abs(float(closed) - float(numeric))
        if gap > 1e-8:
            raise RuntimeError(
                f"{name}: {float(closed)} in closed form, {float(numeric)} otherwise"
            )
        table.add_row(name, f"{float(closed):.10f}", f"{float(numeric):.10f}", f"{gap:.0e}")
    return table


def draw(p: psd.GaussianPSD, g: psd.GaussianPSD, posterior: psd.GaussianPSD) -> None:
    """Prior, posterior, and the two marginals of x."""
    t = np.linspace(-1.0, 1.0, 241)
    grid = np.stack(np.meshgrid(t, t, indexing="ij"), axis=-1)
    figure, axes = plt.subplots(1, 3, figsize=(12.0, 3.9), layout="constrained")
    shown = ((p, "prior  p(x, y)"), (posterior, "posterior  p(x, y) g(y) / Z"))
    for ax, (f, title) in zip(axes, shown, strict=False):
        ax.contourf(t, t, np.asarray(f(grid)).T, levels=16, cmap="Blues")
        ax.set(title=title, xlabel="x", ylabel="y", aspect="equal")
    axes[0].plot(0.12 * np.asarray(g(t[:, None])) - 1.0, t, color="tab:orange")
    axes[0].annotate("g(y)", (-0.72, 0.5), color="tab:orange")
    for f, name, colour in ((p, "prior", "0.55"), (posterior, "posterior", "tab:blue")):
        line = psd.marginal(f, 0, BOX)
        axes[2].plot(t, line(t[:, None]), color=colour, label=name)
    axes[2].set(title="marginals of x", xlabel="x", xlim=(-1, 1), ylim=(0, None))
    axes[2].legend(frameon=False)
    OUTPUT.parent.mkdir(exist_ok=True)
    figure.savefig(OUTPUT, dpi=140)


def main() -> None:
    """Run everything and say where the picture is."""
    p, g = prior(), likelihood()
    posterior = psd.normalize(psd.product(p, g, g_axes=1), BOX)
    console = Console()
    console.print(report(p, g, posterior))
    draw(p, g, posterior)
    console.print(
        f"prior of order {p.order}, likelihood of order {g.order}, posterior of order "
        f"{posterior.order}; picture in {OUTPUT}"
    )


if __name__ == "__main__":
    main()
