"""Profile likelihoods."""

from typing import Any

import numpy as np
import scipy.stats

from ._axes import DATA, LINE, pyplot, quiet


def profile(profile: Any, *, level: float = 0.95, ax: Any = None) -> Any:
    """log L less its maximum against one parameter, with the interval of the given level.

    Args:
        profile: from `fit.profile(name)`.
        level: of the interval, by the chi-squared law of twice the gap.
        ax: Matplotlib axes to draw on; by default a new figure.
    """
    plt = pyplot()
    if ax is None:
        _, ax = plt.subplots(figsize=(5, 3.2))
    ax.plot(profile.values, profile.log_likelihoods - profile.best, color=LINE, marker="o", ms=3)
    ax.axhline(-0.5 * scipy.stats.chi2.ppf(level, 1), color=DATA, lw=0.8, ls="--")
    for end in profile.interval(level):
        if np.isfinite(end):
            ax.axvline(end, color=DATA, lw=0.8, ls=":")
    ax.set_xlabel(profile.name)
    ax.set_ylabel("profile log-likelihood")
    quiet(ax)
    return ax.figure
