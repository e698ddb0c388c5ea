"""Axes to draw on, and colours that go together."""

from typing import Any

BAND, LINE, TRUTH, DATA = "#9ecae1", "#08519c", "#d94801", "#525252"


def pyplot() -> Any:
    """Matplotlib's pyplot, or an error that says how to get it."""
    try:
        from matplotlib import pyplot as plt
    except ImportError as error:
        raise ImportError("pictures need matplotlib: pip install 'psdfilter[plot]'") from error
    return plt


def quiet(ax: Any) -> None:
    """No frame where nothing is read off."""
    ax.spines[["top", "right"]].set_visible(False)
