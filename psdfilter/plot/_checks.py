"""Does the model fit? Probability transforms and residuals, in one picture."""

from typing import Any

import numpy as np
import scipy.stats

from ._axes import BAND, DATA, LINE, pyplot, quiet


def checks(post: Any, *, lags: int = 20, bins: int = 10) -> Any:
    """Four views of the one-step predictions of y: if the model is right, nothing is seen in them.

    The histogram of the probability transforms is flat, the residuals are standard normal (a line
    on the quantile plot), scattered without pattern over time, and neither they nor their squares
    are correlated. Grey lines and bands hold 95 per cent under the model.

    Args:
        post: from `run_filter`, of one observed coordinate.
        lags: number of autocorrelations.
        bins: of the histogram.
    """
    transforms = np.asarray(post.pit)
    transforms = transforms[np.isfinite(transforms)]
    residuals = scipy.stats.norm.ppf(np.clip(transforms, 1e-12, 1 - 1e-12))
    plt = pyplot()
    figure, axes = plt.subplots(2, 2, figsize=(8, 5.6), layout="constrained")
    _histogram(axes[0, 0], transforms, bins)
    _quantiles(axes[0, 1], residuals)
    _over_time(axes[1, 0], residuals)
    _correlations(axes[1, 1], residuals, min(lags, len(residuals) - 1))
    for ax in axes.ravel():
        quiet(ax)
    return figure


def _histogram(ax: Any, transforms: np.ndarray, bins: int) -> None:
    count = len(transforms)
    ax.hist(transforms, bins=bins, range=(0, 1), color=BAND, edgecolor="white")
    low, high = scipy.stats.binom.ppf([0.025, 0.975], count, 1 / bins)
    ax.axhspan(low, high, color=DATA, alpha=0.15, lw=0)
    ax.axhline(count / bins, color=DATA, lw=0.8)
    ax.set(xlabel="probability transform of y", ylabel="count")


def _quantiles(ax: Any, residuals: np.ndarray) -> None:
    count = len(residuals)
    ranks = np.arange(1, count + 1)
    at = scipy.stats.norm.ppf((ranks - 0.5) / count)
    low, high = (
        scipy.stats.norm.ppf(scipy.stats.beta.ppf(q, ranks, count + 1 - ranks))
        for q in (0.025, 0.975)
    )
    ax.fill_between(at, low, high, color=DATA, alpha=0.15, lw=0)
    ax.plot(at, at, color=DATA, lw=0.8)
    ax.plot(at, np.sort(residuals), ".", color=LINE, ms=3)
    ax.set(xlabel="normal quantile", ylabel="residual")


def _over_time(ax: Any, residuals: np.ndarray) -> None:
    ax.plot(residuals, ".", color=LINE, ms=3)
    for level in (-1.96, 0.0, 1.96):
        ax.axhline(level, color=DATA, lw=0.8, ls="-" if level == 0 else "--")
    ax.set(xlabel="t", ylabel="residual")
    ax.margins(x=0.01)


def _correlations(ax: Any, residuals: np.ndarray, lags: int) -> None:
    at = np.arange(1, lags + 1)
    for values, shift, colour, label in (
        (residuals, -0.15, LINE, "residuals"),
        (np.square(residuals), 0.15, BAND, "their squares"),
    ):
        ax.vlines(at + shift, 0, autocorrelations(values, lags), color=colour, lw=3, label=label)
    bound = 1.96 / np.sqrt(len(residuals))
    ax.axhspan(-bound, bound, color=DATA, alpha=0.15, lw=0)
    ax.axhline(0, color=DATA, lw=0.8)
    ax.set(xlabel="lag", ylabel="autocorrelation")
    ax.legend(frameon=False, fontsize="small")


def autocorrelations(values: np.ndarray, lags: int) -> np.ndarray:
    """Of lags 1 ... lags."""
    centred = values - values.mean()
    total = np.sum(np.square(centred))
    return np.array([np.sum(centred[k:] * centred[:-k]) for k in range(1, lags + 1)]) / total
