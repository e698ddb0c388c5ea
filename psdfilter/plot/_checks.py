"""Does the model fit? Probability transforms and residuals, in one picture."""

# Drawing is done for its effect on the axes.
# pyright: reportUnusedCallResult=false

from typing import TYPE_CHECKING

import numpy as np
import scipy.stats

from .._inference.posterior import Posterior
from ._axes import (
    BAND,
    DATA,
    LINE,
    as_result,
    axes_for,
    finish,
    name_of_times,
    panels_for,
    times_of,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def checks(post: Posterior, *, lags: int = 20, bins: int = 10, axes: object = None) -> np.ndarray:
    """Four views of the one-step predictions of y: if the model is right, nothing is seen in them.

    The histogram of the probability transforms is flat, the residuals are standard normal (a line
    on the quantile plot), scattered without pattern over time, and neither they nor their squares
    are correlated. Grey lines and bands hold 95 per cent under the model.

    Args:
        post: from `run_filter`, of one observed coordinate.
        lags: number of autocorrelations.
        bins: of the histogram.
        axes: four Matplotlib axes to draw on; by default a new figure.
    """
    at, transforms, scores = _transforms(post)
    panels = panels_for(axes, 2, 2, (4.0, 2.8))
    _histogram(panels[0], transforms, bins)
    _quantiles(panels[1], scores)
    _over_time(panels[2], at, scores, name_of_times(post))
    _correlations(panels[3], scores, min(lags, len(scores) - 1))
    return panels


def pit(post: Posterior, *, bins: int = 10, ax: "Axes | None" = None) -> "Axes":
    """The histogram of the probability transforms of y: flat if the model is right.

    Args:
        post: from `run_filter`, of one observed coordinate.
        bins: of the histogram; the grey band holds 95 per cent of its bars under the model.
        ax: Matplotlib axes to draw on; by default a new figure.
    """
    ax = axes_for(ax, (4.6, 3.0))
    _histogram(ax, _transforms(post)[1], bins)
    return ax


def residuals(post: Posterior, *, ax: "Axes | None" = None) -> "Axes":
    """Normal scores of the probability transforms over time: standard normal, without pattern.

    Args:
        post: from `run_filter`, of one observed coordinate.
        ax: Matplotlib axes to draw on; by default a new figure.
    """
    ax = axes_for(ax, (7.0, 2.6))
    at, _, scores = _transforms(post)
    _over_time(ax, at, scores, name_of_times(post))
    return ax


def _transforms(post: Posterior) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Times, probability transforms and their normal scores, of what was seen."""
    transforms = np.asarray(as_result("post", post, Posterior).pit)
    if transforms.ndim == 2 and transforms.shape[1] > 1:
        raise ValueError(
            "probability transforms are drawn for one observed coordinate, got "
            f"{transforms.shape[1]}"
        )
    transforms = transforms.reshape(len(transforms))
    seen = np.isfinite(transforms)
    if not seen.any():
        raise ValueError("post must hold at least one observation that was seen, got none")
    kept = transforms[seen]
    return times_of(post)[seen], kept, scipy.stats.norm.ppf(np.clip(kept, 1e-12, 1 - 1e-12))


def _histogram(ax: "Axes", transforms: np.ndarray, bins: int) -> None:
    count = len(transforms)
    ax.hist(transforms, bins=bins, range=(0, 1), color=BAND, edgecolor="white")
    low, high = scipy.stats.binom.ppf([0.025, 0.975], count, 1 / bins)
    ax.axhspan(low, high, color=DATA, alpha=0.15, lw=0)
    ax.axhline(count / bins, color=DATA, lw=0.8)
    finish(ax, "probability transform of y", "count")


def _quantiles(ax: "Axes", residuals: np.ndarray) -> None:
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
    finish(ax, "normal quantile", "residual")


def _over_time(ax: "Axes", at: np.ndarray, scores: np.ndarray, called: str) -> None:
    ax.plot(at, scores, ".", color=LINE, ms=3)
    for level in (-1.96, 0.0, 1.96):
        ax.axhline(level, color=DATA, lw=0.8, ls="-" if level == 0 else "--")
    ax.margins(x=0.01)
    finish(ax, called, "residual")


def _correlations(ax: "Axes", residuals: np.ndarray, lags: int) -> None:
    at = np.arange(1, lags + 1)
    for values, shift, colour, label in (
        (residuals, -0.15, LINE, "residuals"),
        (np.square(residuals), 0.15, BAND, "their squares"),
    ):
        ax.vlines(at + shift, 0, autocorrelations(values, lags), color=colour, lw=3, label=label)
    bound = 1.96 / np.sqrt(len(residuals))
    ax.axhspan(-bound, bound, color=DATA, alpha=0.15, lw=0)
    ax.axhline(0, color=DATA, lw=0.8)
    finish(ax, "lag", "autocorrelation")


def autocorrelations(values: np.ndarray, lags: int) -> np.ndarray:
    """Of lags 1 ... lags."""
    centred = values - values.mean()
    total = np.sum(np.square(centred))
    return np.array([np.sum(centred[k:] * centred[:-k]) for k in range(1, lags + 1)]) / total
