"""docs/assets/density.png: one two-dimensional model, its marginals, slices and samples."""

from pathlib import Path

import jax
import matplotlib.pyplot as plt
import numpy as np
from matplotlib.colors import LinearSegmentedColormap

import psdfilter as psd

jax.config.update("jax_enable_x64", True)
plt.switch_backend("Agg")  # files only, no window

TARGET = Path(__file__).parents[1] / "docs" / "assets" / "density.png"
BOX = psd.Box([-1.0, -1.0], [1.0, 1.0])
INK, BLUE, SOFT = "#26304a", "#2f5fb3", "#dfe8f6"
SLICES = ((-0.35, "#d1495b"), (0.40, "#e09f3e"))
COLOURS = LinearSegmentedColormap.from_list(
    "paper", ["#ffffff", "#e3ecf8", "#b4cdec", "#7ba6da", "#3f74bf", "#1d3f86"]
)


def model() -> psd.GaussianPSD:
    """Bumps along an arc, and bumps of opposite sign that cut it."""
    angle = np.linspace(0.05 * np.pi, 1.30 * np.pi, 8)
    arc = np.column_stack([0.58 * np.cos(angle), 0.52 * np.sin(angle)])
    anchors = np.vstack([arc, [[0.50, -0.42], [-0.02, 0.70]]])
    first = np.array([1.0, 0.9, 0.9, 0.6, 0.8, 0.7, 0.75, 0.95, -1.15, -0.8])
    second = np.array([0.1, 0.0, 0.2, 0.1, 0.1, -0.3, 0.2, 0.3, 0.3, 0.1])
    return psd.normalize(
        psd.GaussianPSD(anchors, np.column_stack([first, second]), [13.0, 13.0]), BOX
    )


def main() -> None:
    """Print the numbers, then draw."""
    f = model()
    mean, covariance = psd.moments(f, BOX)
    levels = np.asarray(psd.densities.hdr_level(f, [0.9, 0.5], BOX))
    points = np.asarray(psd.sample(f, BOX, key=jax.random.key(1), num=500))
    print("mean", mean, "covariance", covariance, "levels of 90 and 50 per cent", levels)

    plt.rcParams.update(
        {
            "font.size": 10,
            "axes.edgecolor": INK,
            "axes.labelcolor": INK,
            "xtick.color": INK,
            "ytick.color": INK,
            "text.color": INK,
            "axes.linewidth": 0.8,
        }
    )
    figure = plt.figure(figsize=(8.6, 6.4), layout="constrained", facecolor="white")
    grid = figure.add_gridspec(2, 2, width_ratios=[3.0, 1.15], height_ratios=[1.0, 3.0])
    joint = figure.add_subplot(grid[1, 0])
    top = figure.add_subplot(grid[0, 0], sharex=joint)
    side = figure.add_subplot(grid[1, 1], sharey=joint)

    t = np.linspace(-1.0, 1.0, 301)
    heights = np.asarray(f(np.stack(np.meshgrid(t, t, indexing="ij"), axis=-1))).T
    joint.contourf(t, t, heights, levels=np.linspace(0.02, 1.0, 24) * heights.max(), cmap=COLOURS)
    joint.contour(t, t, heights, levels=levels, colors=BLUE, linewidths=[0.9, 1.4])
    joint.plot(*points.T, ".", color=INK, markersize=1.8, alpha=0.55)
    for value, colour in SLICES:
        joint.axhline(value, color=colour, linewidth=1.3, linestyle=(0, (5, 3)))
    joint.set(xlabel="$x_1$", ylabel="$x_2$", xlim=(-1, 1), ylim=(-1, 1))

    for axis, ax in ((0, top), (1, side)):
        line = np.asarray(psd.marginal(f, axis, BOX)(t[:, None]))
        if axis == 0:
            ax.fill_between(t, line, color=SOFT)
            ax.plot(t, line, color=BLUE, linewidth=1.8, label="$p(x_1)$, marginal")
        else:
            ax.fill_betweenx(t, line, color=SOFT)
            ax.plot(line, t, color=BLUE, linewidth=1.8)
    for value, colour in SLICES:
        slice_ = psd.partial(f, 1, value)
        conditional = psd.normalize(slice_, BOX.keep((0,)))
        label = f"$p(x_1\\,|\\,x_2={value:g})$, a slice"
        top.plot(t, conditional(t[:, None]), color=colour, linewidth=1.3, label=label)
    side.set_title("$p(x_2)$, marginal", color=BLUE, fontsize=10)
    corner = figure.add_subplot(grid[0, 1])
    corner.axis("off")
    corner.legend(
        *top.get_legend_handles_labels(),
        frameon=False,
        loc="center left",
        handlelength=1.4,
        borderpad=0.0,
        labelcolor="linecolor",
    )
    top.set_ylim(0, None)
    side.set_xlim(0, None)
    for ax, hidden in ((top, "left"), (side, "bottom")):
        ax.spines[["top", "right", hidden]].set_visible(False)
    top.tick_params(left=False, labelleft=False, labelbottom=False)
    side.tick_params(bottom=False, labelbottom=False, labelleft=False)
    joint.spines[["top", "right"]].set_visible(False)
    figure.savefig(TARGET, dpi=150, metadata={"Software": None})


if __name__ == "__main__":
    main()
