"""The filter on a state whose sign is never seen: two modes, followed as densities.

Prints errors and times next to a dense reference, and to a bootstrap particle filter if the package
`particles` is installed; draws output/filter.png.
"""

import time
from pathlib import Path

import jax
import matplotlib.pyplot as plt
import numpy as np
from rich.console import Console
from rich.table import Table

import psdfilter as psd

jax.config.update("jax_enable_x64", True)
plt.switch_backend("Agg")  # files only, no window

OUTPUT = Path("output/filter.png")
NUM_STEPS = 60


def measure(tol: float, ys: np.ndarray, reference: psd.systems.Reference):
    """The filter at one tolerance: its posterior, largest errors, and times."""
    started = time.perf_counter()
    model = psd.learn(psd.systems.sine_map(), tol)
    learned = time.perf_counter() - started
    psd.run_filter(model, ys).mean.block_until_ready()
    started = time.perf_counter()
    post = psd.run_filter(model, ys)
    post.mean.block_until_ready()
    seconds = time.perf_counter() - started
    errors = [
        reference.weights @ np.abs(np.asarray(post.density(t)(reference.nodes)) - density)
        for t, density in enumerate(reference.densities)
        if t % 6 == 0
    ]
    gap = abs(float(post.log_likelihood) - float(np.sum(reference.log_likelihoods)))
    if max(errors) > tol:
        raise RuntimeError(f"total variation {max(errors)} at tolerance {tol}")
    return post, max(errors), gap, learned, seconds


def measure_particles(ys: np.ndarray, reference: psd.systems.Reference, num: int = 10_000):
    """A bootstrap filter of `particles`: largest errors and times; None if it is not installed.

    Its density at time t is sum_i W_i Q(x_i, x) G(x, y_t) over the particles of the step before,
    the best that can be made of them.
    """
    try:
        import particles
        from particles import distributions, state_space_models
    except ImportError:
        return None

    class FirstState(distributions.ProbDist):
        """One transition after a uniform prior."""

        def rvs(self, size=None):
            return transition(np.random.uniform(-1, 1, size)).rvs(size=size)  # noqa: NPY002

    def transition(u):
        return distributions.TruncNormal(mu=0.9 * np.sin(2.2 * u), sigma=0.15, a=-1.0, b=1.0)

    class SineMap(state_space_models.StateSpaceModel):
        def PX0(self):
            return FirstState()

        def PX(self, t, xp):
            return transition(xp)

        def PY(self, t, xp, x):
            return distributions.Normal(loc=x**2, scale=0.1)

    np.random.seed(0)  # noqa: NPY002
    boot = state_space_models.Bootstrap(ssm=SineMap(), data=ys[:, 0])
    run = particles.SMC(fk=boot, N=num, store_history=True)
    started = time.perf_counter()
    run.run()
    seconds = time.perf_counter() - started
    x, errors = reference.nodes[:, 0], []
    for t in range(6, NUM_STEPS, 6):
        weights, old = run.hist.wgts[t - 1].W, run.hist.X[t - 1]
        density = np.array([weights @ np.exp(transition(old).logpdf(z)) for z in x])
        density = density * np.exp(-0.5 * ((ys[t, 0] - x**2) / 0.1) ** 2)
        density = density / (reference.weights @ density)
        errors.append(reference.weights @ np.abs(density - reference.densities[t]))
    gap = abs(run.logLt - float(np.sum(reference.log_likelihoods)))
    return max(errors), gap, seconds, num


def draw(post: psd.Posterior, xs: np.ndarray, ys: np.ndarray) -> None:
    """Densities over time, with the states that were to be found."""
    x = np.linspace(-1.0, 1.0, 301)
    image = np.stack([np.asarray(post.density(t)(x[:, None])) for t in range(NUM_STEPS)], axis=1)
    figure, (top, bottom) = plt.subplots(
        2, 1, figsize=(9.0, 5.6), sharex=True, height_ratios=[3, 1], layout="constrained"
    )
    steps = np.arange(1, NUM_STEPS + 1)
    top.pcolormesh(steps, x, np.sqrt(image), cmap="Blues", shading="nearest")
    top.plot(steps, xs[:, 0], ".", color="tab:red", ms=5, label="state")
    top.plot(steps, post.mean[:, 0], color="0.4", lw=1, label="posterior mean")
    top.set(ylabel="x", ylim=(-1, 1), title="filtered densities: the sensor sees x² only")
    top.legend(loc="center right", bbox_to_anchor=(1.0, 0.62), framealpha=0.9)
    bottom.plot(steps, ys[:, 0], ".", color="0.2", ms=4)
    bottom.set(xlabel="step", ylabel="y", xlim=(0.5, NUM_STEPS + 0.5))
    OUTPUT.parent.mkdir(exist_ok=True)
    figure.savefig(OUTPUT, dpi=140)


def main() -> None:
    """Filter at three tolerances, compare, draw."""
    system = psd.systems.sine_map
    xs, ys = (np.asarray(a) for a in system.simulate(4, NUM_STEPS))
    reference = system.reference(ys)
    table = Table(title="the filter against a dense grid")
    names = ("tolerance", "estimate", "TV error", "log-lik. error", "learn", "a step")
    for name in names:
        table.add_column(name, justify="right")
    for tol in (1e-2, 1e-4, 1e-6):
        post, error, gap, learned, seconds = measure(tol, ys, reference)
        table.add_row(
            f"{tol:.0e}",
            f"{float(np.max(post.error_estimates)):.1e}",
            f"{error:.1e}",
            f"{gap:.1e}",
            f"{learned:.1f} s",
            f"{1e6 * seconds / NUM_STEPS:.1f} µs",
        )
    rival = measure_particles(ys, reference)
    if rival is not None:
        error, gap, seconds, num = rival
        table.add_row(
            f"{num} particles",
            "",
            f"{error:.1e}",
            f"{gap:.1e}",
            "",
            f"{1e6 * seconds / NUM_STEPS:.1f} µs",
        )
    draw(post, xs, ys)
    console = Console()
    console.print(table)
    if rival is None:
        console.print("(install particles for a row of a bootstrap particle filter)")
    console.print(f"posterior densities over time in {OUTPUT}")


if __name__ == "__main__":
    main()
