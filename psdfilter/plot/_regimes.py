"""Probabilities of regimes over time."""

# Drawing is done for its effect on the axes.
# pyright: reportUnusedCallResult=false

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

import numpy as np

from .._checks import Numbers
from ._axes import DATA, OTHERS, axes_for, finish, name_of_times, names_of, own_times

if TYPE_CHECKING:
    from matplotlib.axes import Axes


class HasRegimes(Protocol):
    """A result of a model with regimes."""

    @property
    def regimes(self) -> Numbers:
        """Probabilities (T, K)."""
        ...

    @property
    def times(self) -> Numbers:
        """When, (T,)."""
        ...


def regimes(
    result: HasRegimes,
    *,
    truth: Numbers | None = None,
    names: Sequence[str] | None = None,
    ax: "Axes | None" = None,
) -> "Axes":
    """The probabilities of all regimes, one upon the other, so that they fill up to one.

    Args:
        result: of a model made by `switching`.
        truth: the true regimes, numbers 0 ... K - 1 (T,), drawn as a strip on top.
        names: of the regimes.
        ax: Matplotlib axes to draw on; by default a new figure.
    """
    found = getattr(result, "regimes", None)
    if found is None:
        raise ValueError(
            f"result must come from inference in a model of regimes, got {type(result).__name__}"
        )
    shares = np.asarray(found)
    at = own_times(getattr(result, "labels", None), result.times)
    count, kinds = shares.shape
    labels = names_of([f"regime {k}" for k in range(kinds)] if names is None else names, kinds)
    colours = [OTHERS[k % len(OTHERS)] for k in range(kinds)]
    ax = axes_for(ax, (7.0, 2.4))
    ax.stackplot(at, shares.T, labels=labels, colors=colours, alpha=0.75, lw=0)
    if truth is not None:
        numbers = np.asarray(truth, dtype=int)
        if numbers.shape != (count,):
            raise ValueError(f"truth must have shape ({count},), got {numbers.shape}")
        ax.scatter(at, np.full(count, 1.04), c=[colours[k] for k in numbers], s=8, marker="s")
        ax.axhline(1.0, color=DATA, lw=0.6)
    ax.set_ylim(0, 1.08 if truth is not None else 1)
    ax.margins(x=0)
    return finish(ax, name_of_times(result), "probability")
