"""Laws of several modes in figures: regions of highest density, and the modes in them."""

# Traces are added for their effect on the figure.
# pyright: reportUnusedCallResult=false

from typing import TYPE_CHECKING

import numpy as np

from .._frames.words import Moments
from .._inference.numerics.circles import Circle, pieces_of, placed

if TYPE_CHECKING:
    import plotly.graph_objects as go

# Okabe and Ito: colour-blind eyes tell them apart too, on white and on black.
FILTER, SMOOTHER, FORECAST, DATA, OUTSIDE = "#0072b2", "#009e73", "#cc79a7", "#7f7f7f", "#d55e00"
ON_HEAT = "#e69f00"
# Pixels that bars of all times share, and the most that one of them gets.
_ROOM, _WIDEST = 600, 8.0


def faint(colour: str, share: float) -> str:
    """A colour that lets others shine through."""
    red, green, blue = (int(colour[i : i + 2], 16) for i in (1, 3, 5))
    return f"rgba({red},{green},{blue},{share})"


def add_regions(
    figure: "go.Figure",
    at: Moments,
    regions: list[np.ndarray],
    style: tuple[str, str, int],
    circle: Circle | None = None,
) -> None:
    """A bar for every interval of every time; `style` is name, colour and number of times."""
    name, colour, num = style
    x: list[float | str | None] = []
    y: list[float | None] = []
    for time, each in zip(at, regions, strict=True):
        for low, high in pieces_of(each, circle):
            x += [time, time, None]
            y += [float(low), float(high), None]
    line = {"color": faint(colour, 0.35), "width": max(1.0, min(_WIDEST, _ROOM / num))}
    figure.add_scatter(x=x, y=y, mode="lines", line=line, name=name, hoverinfo="skip")


def add_modes(
    figure: "go.Figure",
    at: Moments,
    modes: list[np.ndarray],
    style: tuple[str, str],
    circle: Circle | None = None,
) -> None:
    """A point for every mode; `style` is name and colour."""
    name, colour = style
    shown = [placed(each, circle) for each in modes]
    pairs = [(time, float(mode)) for time, each in zip(at, shown, strict=True) for mode in each]
    marker = {"color": colour, "size": 4}
    figure.add_scatter(
        x=[p[0] for p in pairs],
        y=[p[1] for p in pairs],
        mode="markers",
        marker=marker,
        name=name,
    )


def add_edges(
    figure: "go.Figure", at: Moments, regions: list[np.ndarray], circle: Circle | None = None
) -> None:
    """Ends of all regions on a heat map."""
    shown = [placed(each.ravel(), circle) for each in regions]
    ends = [(time, float(end)) for time, each in zip(at, shown, strict=True) for end in each]
    figure.add_scatter(
        x=[e[0] for e in ends],
        y=[e[1] for e in ends],
        mode="markers",
        marker={"color": ON_HEAT, "size": 3},
        name="90% region",
        hoverinfo="skip",
        showlegend=True,
    )
