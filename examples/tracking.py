"""A target seen by its distances to two beacons: two mirrored tracks, followed in four dimensions.

Both beacons lie on the line y = 0, so that a track and its mirror image look the same; the prior
gives them 0.7 and 0.3 of the mass. Draws output/tracking.png.
"""

from pathlib import Path

import jax
import matplotlib.pyplot as plt
import numpy as np

import psdfilter as psd

jax.config.update("jax_enable_x64", True)
plt.switch_backend("Agg")  # files only, no window

OUTPUT = Path("output/tracking.png")
SHOWN = (0, 30, 60, 99)


def draw(post: psd.Posterior, states: np.ndarray, beacons: np.ndarray) -> None:
    """Densities of the position at a few times, and the mass of each mode over time."""
    figure, (plane, masses) = plt.subplots(
        1, 2, figsize=(10, 4.2), width_ratios=(1.6, 1), layout="constrained"
    )
    plane.plot(states[:, 0], states[:, 2], color="0.3", lw=1, label="truth")
    plane.plot(states[:, 0], -states[:, 2], color="0.3", lw=1, ls=":", label="its mirror image")
    plane.plot(*beacons.T, "k^", label="beacons")
    for t in SHOWN:
        position = post.density(t).marginal([0, 2])
        mean, sd = states[t, [0, 2]], float(np.sqrt(post.covariance[t, 0, 0]))
        for side in (1, -1):
            x = mean[0] + np.linspace(-5, 5, 121) * sd
            y = side * mean[1] + np.linspace(-5, 5, 121) * sd
            mesh = np.stack(np.meshgrid(x, y), axis=-1)
            plane.contour(x, y, np.asarray(position(mesh)), levels=5, cmap="viridis")
    plane.set(xlabel="x", ylabel="y", title="position, at four of a hundred times", aspect="equal")
    plane.legend(frameon=False, fontsize=8, loc="upper right")
    above = [1 - float(post.density(t).cdf(2, 0.0)) for t in range(0, len(states), 3)]
    times = np.arange(0, len(states), 3)
    masses.stackplot(times, above, 1 - np.asarray(above), colors=["#31688e", "#b5cfd8"])
    masses.axhline(0.7, color="k", lw=0.8, ls=":")
    masses.set(xlabel="t", title="mass above and below the line", ylim=(0, 1), xlim=(0, times[-1]))
    OUTPUT.parent.mkdir(exist_ok=True)
    figure.savefig(OUTPUT, dpi=120)


def main() -> None:
    """Filter, print, draw."""
    system = psd.systems.range_two_beacons
    states, ys = system.simulate(1, 100)
    model = psd.learn(system())
    print(model.report)
    post = psd.run_filter(model, ys)
    print(post)
    draw(post, np.asarray(states), np.array([[0.0, 0.0], [20.0, 0.0]]))
    print(f"drawn: {OUTPUT}")


if __name__ == "__main__":
    main()
