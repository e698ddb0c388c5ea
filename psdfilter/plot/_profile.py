"""Profile likelihoods."""

# Drawing is done for its effect on the axes.
# pyright: reportUnusedCallResult=false

from typing import TYPE_CHECKING

import numpy as np
import scipy.stats

from .._parameters.profile import Profile
from ._axes import DATA, LINE, axes_for, finish

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def profile(profile: Profile, *, level: float = 0.95, ax: "Axes | None" = None) -> "Axes":
    """log L less its maximum against one parameter, with the interval of the given level.

    Args:
        profile: from `fit.profile(name)`.
        level: of the interval, by the chi-squared law of twice the gap.
        ax: Matplotlib axes to draw on; by default a new figure.
    """
    ax = axes_for(ax, (5.0, 3.2))
    ax.plot(profile.values, profile.log_likelihoods - profile.best, color=LINE, marker="o", ms=3)
    ax.axhline(-0.5 * float(scipy.stats.chi2.ppf(level, 1)), color=DATA, lw=0.8, ls="--")
    for end in profile.interval(level):
        if np.isfinite(end):
            ax.axvline(end, color=DATA, lw=0.8, ls=":")
    return finish(ax, profile.name.replace("$", r"\$"), "profile log-likelihood")
