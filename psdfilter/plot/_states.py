"""States over time with a band."""

from typing import Any

import numpy as np

from .._checks import Numbers
from ._axes import BAND, LINE, TRUTH, pyplot, quiet


def states(
    post: Any,
    *,
    truth: Numbers | None = None,
    times: Numbers | None = None,
    mass: float = 0.9,
    names: tuple[str, ...] | None = None,
    axes: Any = None,
) -> Any:
    """Median and central interval of every coordinate of the state, one below the other.

    Args:
        post: from `run_filter`, `run_smoother` or `forecast`.
        truth: true states (T, d), to be drawn too.
        times: what to write on the axis of time; by default 1, 2, ...
        mass: of the interval.
        names: of the coordinates.
        axes: d Matplotlib axes to draw on; by default a new figure.
    """
    lower, upper = (np.asarray(end) for end in post.interval(mass))
    middle = np.asarray(post.quantile(0.5))
    count, dim = middle.shape
    at = np.arange(1, count + 1) if times is None else np.asarray(times)
    plt = pyplot()
    if axes is None:
        _, axes = plt.subplots(dim, 1, figsize=(8, 2.4 * dim), sharex=True, squeeze=False)
    drawn = np.atleast_1d(np.asarray(axes, dtype=object)).ravel()
    for i, ax in enumerate(drawn):
        ax.fill_between(at, lower[:, i], upper[:, i], color=BAND, lw=0, label=f"{mass:.0%} band")
        ax.plot(at, middle[:, i], color=LINE, lw=1.2, label="median")
        if truth is not None:
            ax.plot(
                at, np.asarray(truth).reshape(count, dim)[:, i], color=TRUTH, lw=1, label="truth"
            )
        ax.set_ylabel(f"$x_{i + 1}$" if names is None else names[i])
        ax.margins(x=0)
        quiet(ax)
    drawn[0].legend(frameon=False, ncols=3, loc="upper right", fontsize="small")
    drawn[-1].set_xlabel("t")
    return drawn[0].figure
