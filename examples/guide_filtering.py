"""The pictures of the guide on filtering: a gap in the data, a forecast, and a model that is wrong.

Writes docs/assets/filtering_gap.png, filtering_forecast.png and filtering_check.png.
"""

from pathlib import Path

import jax
import matplotlib.pyplot as plt
import numpy as np

import psdfilter as psd

jax.config.update("jax_enable_x64", True)
plt.switch_backend("Agg")  # files only, no window

ASSETS = Path(__file__).parents[1] / "docs" / "assets"


def shade(ax: plt.Axes, post, colour: str, name: str) -> None:
    """Mean and a central interval of 90 per cent."""
    steps = np.arange(1, len(post.mean) + 1)
    low, high = (np.asarray(end)[:, 0] for end in post.interval(0.9))
    ax.fill_between(steps, low, high, color=colour, alpha=0.2, lw=0)
    ax.plot(steps, post.mean[:, 0], color=colour, lw=1.2, label=name)


def gap() -> None:
    """Filter, smoother and smoother with a lag, while twenty observations are missing."""
    system = psd.systems.stochastic_volatility
    states, ys = (np.asarray(a) for a in system.simulate(2, 100))
    seen = ys.copy()
    seen[50:70] = np.nan
    model = psd.learn(system(), tol=1e-3)
    figure, axes = plt.subplots(1, 2, figsize=(10.5, 3.6), sharey=True, layout="constrained")
    shade(axes[0], psd.run_filter(model, seen), "tab:blue", "filter")
    shade(axes[1], psd.run_smoother(model, seen), "tab:green", "smoother")
    lagged, steps = psd.run_smoother(model, seen, lag=5), np.arange(1, 101)
    axes[1].plot(steps, lagged.mean[:, 0], "--", color="0.3", lw=1, label="lag 5")
    for ax in axes:
        ax.plot(steps, states[:, 0], ".", color="tab:red", ms=3, label="state")
        ax.axvspan(50.5, 70.5, color="0.9", zorder=0, lw=0)
        ax.set(xlabel="step", xlim=(1, 100))
        ax.legend(frameon=False, loc="lower right", fontsize=9)
    axes[0].set(ylabel="log-variance of the returns")
    figure.savefig(ASSETS / "filtering_gap.png", dpi=130)


def forecast() -> None:
    """The state eight steps ahead: two modes, mixed a little more at every step."""
    system = psd.systems.sine_map
    states, ys = (np.asarray(a) for a in system.simulate(4, 32))
    model = psd.learn(system(), tol=1e-3)
    post = psd.run_filter(model, ys[:24])
    ahead = psd.forecast(model, post, 8)
    x = np.linspace(-1.0, 1.0, 301)
    columns = [post.density(t) for t in range(24)] + [ahead.density(k) for k in range(8)]
    image = np.stack([np.asarray(density(x[:, None])) for density in columns], axis=1)
    figure, axes = plt.subplots(
        2, 1, figsize=(9.0, 5.0), sharex=True, height_ratios=[2, 1], layout="constrained"
    )
    steps = np.arange(1, 33)
    axes[0].pcolormesh(steps, x, np.sqrt(image), cmap="Blues", shading="nearest")
    axes[0].plot(steps, states[:, 0], ".", color="tab:red", ms=4)
    axes[0].axvline(24.5, color="0.4", lw=1)
    axes[0].set(ylabel="x", title="filtered up to step 24, forecast from there")
    axes[1].plot(steps, ys[:, 0], ".", color="0.2", ms=4, label="y")
    low, high = (np.asarray(end)[:, 0] for end in ahead.observations.interval(0.9))
    axes[1].fill_between(steps[24:], low, high, color="tab:blue", alpha=0.25, lw=0, label="90 %")
    axes[1].axvline(24.5, color="0.4", lw=1)
    axes[1].set(xlabel="step", ylabel="y")
    axes[1].legend(frameon=False, ncols=2, loc="upper left", fontsize=9)
    figure.savefig(ASSETS / "filtering_forecast.png", dpi=130)


def check() -> None:
    """Probability transforms under the model that made the data, and under a quieter one."""
    system = psd.systems.stochastic_volatility
    _, ys = system.simulate(5, 400)
    figure, axes = plt.subplots(1, 2, figsize=(9.0, 2.9), sharey=True, layout="constrained")
    quiet = system(mu=-2.0, sigma=0.05)
    models = (("the model that made the data", system()), ("too quiet a model", quiet))
    for ax, (title, ssm) in zip(axes, models, strict=True):
        post = psd.run_filter(psd.learn(ssm, tol=1e-2), ys)
        ax.hist(np.asarray(post.pit), bins=20, range=(0, 1), color="tab:blue", alpha=0.7)
        ax.axhline(20, color="0.3", lw=1)
        ax.set(title=f"{title}: log-likelihood {float(post.log_likelihood):.1f}", xlabel="PIT")
        ax.title.set_fontsize(10)
    axes[0].set(ylabel="of 400")
    figure.savefig(ASSETS / "filtering_check.png", dpi=130)


if __name__ == "__main__":
    gap()
    forecast()
    check()
