"""Errors of a filter: as estimated at every step, and as proved."""

# Drawing is done for its effect on the axes.
# pyright: reportUnusedCallResult=false

from typing import TYPE_CHECKING

import numpy as np

from .._inference.certificate.certificate import Certificate
from .._inference.posterior import Posterior
from ._axes import DATA, LINE, OTHERS, TRUTH, as_result, axes_for, finish, name_of_times, times_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Errors below are rounding and would only stretch the axis.
_FLOOR = 1e-16


def errors(post: Posterior, *, ax: "Axes | None" = None) -> "Axes":
    """Estimated total variation error of every filtered density, beside the tolerance.

    Args:
        post: from `run_filter`, of an engine that estimates its errors.
        ax: Matplotlib axes to draw on; by default a new figure.
    """
    post = as_result("post", post, Posterior)
    values, at = np.maximum(np.asarray(post.error_estimates), _FLOOR), times_of(post)
    ax = axes_for(ax, (7.0, 2.6))
    ax.semilogy(at, values, color=LINE, lw=1, marker=".", ms=4, label="estimate")
    ax.axhline(post.model.tol, color=DATA, lw=0.9, ls="--", label="tolerance")
    bad = np.asarray(post.codes) != 0
    if bad.any():
        ax.plot(at[bad], values[bad], "x", color=TRUTH, ms=6, label="code other than 0")
    ax.margins(x=0.01)
    return finish(ax, name_of_times(post), "total variation")


def certificate(certificate: Certificate, *, ax: "Axes | None" = None) -> "Axes":
    """Bounds and estimates of a certificate over time, on a logarithmic scale.

    Args:
        certificate: `post.certificate`.
        ax: Matplotlib axes to draw on; by default a new figure.
    """
    ax = axes_for(ax, (7.0, 3.0))
    curves = {
        "bound of the theorem": (certificate.theorem.total, OTHERS[3], "-"),
        "bound, sharp constant": (certificate.sharp.total, TRUTH, "-"),
        "estimate": (certificate.estimate, LINE, "-"),
        "one step": (certificate.one_step, DATA, ":"),
    }
    for name, (values, colour, style) in curves.items():
        shown = np.asarray(values, dtype=float)
        if np.isfinite(shown).any():
            at = np.arange(1, len(shown) + 1)
            ax.semilogy(at, np.maximum(shown, _FLOOR), style, color=colour, lw=1.2, label=name)
    ax.margins(x=0.01)
    return finish(ax, "time", "total variation")
