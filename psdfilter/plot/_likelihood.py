"""What every observation adds to the log-likelihood."""

# Drawing is done for its effect on the axes.
# pyright: reportUnusedCallResult=false

from typing import TYPE_CHECKING

import numpy as np

from .._inference.posterior import Posterior
from ._axes import DATA, LINE, TRUTH, as_result, axes_for, finish, name_of_times, times_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def log_likelihoods(post: Posterior, *, ax: "Axes | None" = None) -> "Axes":
    """log p(y_t | y before t) at every time: what the model did not expect hangs down.

    Steps with a code other than 0 are marked; see `explain`.

    Args:
        post: from `run_filter`.
        ax: Matplotlib axes to draw on; by default a new figure.
    """
    post = as_result("post", post, Posterior)
    values, at, seen = np.asarray(post.log_likelihoods), times_of(post), np.asarray(post.seen)
    ax = axes_for(ax, (7.0, 2.6))
    ax.axhline(float(np.mean(values[seen])) if seen.any() else 0.0, color=DATA, lw=0.8, ls="--")
    ax.plot(at[seen], values[seen], color=LINE, lw=0.8, marker=".", ms=4)
    bad = seen & (np.asarray(post.codes) != 0) & np.isfinite(values)
    if bad.any():
        ax.plot(at[bad], values[bad], "x", color=TRUTH, ms=6, label="code other than 0")
    ax.margins(x=0.01)
    return finish(ax, name_of_times(post), "log-likelihood")
