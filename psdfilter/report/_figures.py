"""The figures of a report, made by Plotly."""

# Traces are added for their effect on the figure.
# pyright: reportUnusedCallResult=false

import html
import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.special import ndtri

from .._frames.out import needed
from .._frames.words import Moments
from .._inference.numerics.circles import Circle, are_outside, copies_of, placed
from ._content import Content, Laws
from ._regions import (
    DATA,
    FILTER,
    FORECAST,
    ON_HEAT,
    OUTSIDE,
    SMOOTHER,
    add_edges,
    add_modes,
    add_regions,
    faint,
)

if TYPE_CHECKING:
    import plotly.graph_objects as go

# The legend is above the data, the tool bar below them (see page.css).
_MARGIN = {"l": 56, "r": 12, "t": 12, "b": 48}
_BINS = 20


def escaped(text: str) -> str:
    """Text that Plotly shows as it is: it would read tags in it."""
    return html.escape(str(text), quote=False)


def figures(content: Content) -> dict[str, list[dict[str, object]]]:
    """Name -> a figure for every coordinate (or column of y), or a single one, as JSON trees."""
    states, columns = range(len(content.names)), range(len(content.observed_names))
    made: dict[str, list[go.Figure]] = {
        "density": [_density(content, i) for i in states],
        "moment": [_moment(content, i) for i in states],
        "states": [_states(content, i) for i in states],
        "observations": [_observations(content, j) for j in columns],
        "likelihoods": [_likelihoods(content)],
    }
    if content.joint is not None:
        made["joint"] = [_joint(content)]
    pit, residuals = content.seen.pit, content.seen.residuals
    if pit is not None and residuals is not None and np.isfinite(pit).any():
        own = range(pit.shape[1])
        made["pit"] = [_pit(pit[:, j]) for j in own]
        made["residuals"] = [_residuals(content, residuals[:, j]) for j in own]
        made["normal"] = [_normal(residuals[:, j]) for j in own]
    if content.errors is not None and content.errors.any():
        made["errors"] = [_errors(content)]
    return {
        name: [json.loads(str(figure.to_json())) for figure in each] for name, each in made.items()
    }


def _figure(x: str, y: str, **layout: Any) -> "go.Figure":
    go = needed("plotly.graph_objects", "a report", "cli")
    figure = go.Figure()
    legend = {"orientation": "h", "x": 0, "y": 1.02, "yanchor": "bottom", "traceorder": "normal"}
    return figure.update_layout(
        xaxis_title=escaped(x),
        yaxis_title=escaped(y),
        margin=_MARGIN,
        legend=legend,
        template="none",
        **{"hovermode": "x unified", **layout},
    )


def _band(figure: "go.Figure", at: Moments, ends: Sequence[np.ndarray], **style: Any) -> None:
    """An area between two lines, as two traces."""
    colour, share, name = style["colour"], style["share"], style["name"]
    line = {"width": 0, "color": colour}
    figure.add_scatter(x=at, y=ends[0], mode="lines", line=line, showlegend=False, hoverinfo="skip")
    figure.add_scatter(
        x=at,
        y=ends[1],
        mode="lines",
        line=line,
        fill="tonexty",
        fillcolor=faint(colour, share),
        name=name,
        showlegend=style["showlegend"],
        hoverinfo="skip",
    )


def _density(content: Content, i: int) -> "go.Figure":
    figure = _figure(content.time_name, content.names[i])
    at = [content.times[k] for k in content.columns]
    laws = content.filtered
    assert laws.densities is not None
    assert laws.points is not None
    figure.add_heatmap(
        x=at,
        y=laws.points[i],
        z=np.sqrt(laws.densities[:, i].T).astype(np.float32),
        showscale=False,
        hoverinfo="skip",
        colorscale="Blues",
    )
    low, high = _window(content, i)
    period = laws.period(i)
    circle = None if period is None else Circle(low, low + period)
    if laws.is_split(i):
        add_edges(figure, at, laws.regions(0.9, i), circle)
    else:
        curves = [laws.level(level, i) for level in (0.5, 0.05, 0.95)]
        for k, (_, *ends) in enumerate(copies_of(curves, circle)):
            for end, shown in zip(ends, (k == 0, False), strict=True):
                figure.add_scatter(
                    x=content.times,
                    y=end,
                    mode="lines",
                    line={"width": 1.5, "color": ON_HEAT},
                    name="90% interval",
                    showlegend=shown,
                )
    figure.update_yaxes(range=[low, high])
    cursor = {"type": "line", "yref": "paper", "y0": 0, "y1": 1, "line": {"color": OUTSIDE}}
    return figure.update_layout(shapes=[{**cursor, "x0": at[0], "x1": at[0]}])


def _moment(content: Content, i: int) -> "go.Figure":
    figure = _figure("density", content.names[i], hovermode="y unified")
    for name, laws, colour in (
        ("filter", content.filtered, FILTER),
        ("smoother", content.smoothed, SMOOTHER),
    ):
        if laws is not None:
            assert laws.densities is not None
            assert laws.points is not None
            figure.add_scatter(
                x=laws.densities[0, i],
                y=laws.points[i],
                mode="lines",
                line={"color": colour, "width": 2},
                fill="tozerox",
                fillcolor=faint(colour, 0.2),
                name=name,
            )
    figure.update_yaxes(range=_window(content, i))
    # The page scales the axis of densities to each moment: one sharp law would flatten all others.
    return figure.update_xaxes(rangemode="tozero", automargin=False, nticks=5)


def _joint(content: Content) -> "go.Figure":
    assert content.joint is not None
    axes, densities = content.joint
    figure = _figure(content.names[0], content.names[1], hovermode="closest")
    shown = np.sqrt(densities[0].T).astype(np.float32)
    return figure.add_heatmap(x=axes[0], y=axes[1], z=shown, showscale=False, hoverinfo="skip")


def _window(content: Content, i: int) -> list[float]:
    """One axis for the densities of filter and smoother, over time and at a moment."""
    points = [
        laws.points[i]
        for laws in (content.filtered, content.smoothed)
        if laws is not None and laws.points is not None
    ]
    return [float(min(p[0] for p in points)), float(max(p[-1] for p in points))]


def _states(content: Content, i: int) -> "go.Figure":
    figure = _figure(content.time_name, content.names[i])
    circle = content.filtered.circles.get(i)
    if circle is not None:
        figure.update_yaxes(range=list(circle))
    if content.is_split(i):
        return _split_states(figure, content, i)
    at = content.times
    for name, laws, colour in (
        ("filter", content.filtered, FILTER),
        ("smoother", content.smoothed, SMOOTHER),
    ):
        if laws is not None:
            _add_band(figure, at, laws, (i, circle), (f"{name}, 90%", name, colour))
    if content.ahead is not None:
        _fan(figure, content, content.ahead, (i, circle), _last(content.filtered))
    return figure


def _add_band(
    figure: "go.Figure",
    at: Moments,
    laws: Laws,
    shown: tuple[int, Circle | None],
    style: tuple[str, str, str],
) -> None:
    """Median and 90% interval of a coordinate, as often as they show on a circle."""
    (i, circle), (band, name, colour) = shown, style
    curves = [laws.level(level, i) for level in (0.5, 0.05, 0.95)]
    for k, (middle, *ends) in enumerate(copies_of(curves, circle)):
        first = k == 0
        _band(figure, at, ends, colour=colour, share=0.2, name=band, showlegend=first)
        line = {"color": colour}
        figure.add_scatter(x=at, y=middle, mode="lines", line=line, name=name, showlegend=first)


def _split_states(figure: "go.Figure", content: Content, i: int) -> "go.Figure":
    """Regions of highest density and modes: medians would lie between modes."""
    past = [content.times[k] for k in content.columns]
    future = [content.ahead_times[k] for k in content.ahead_columns]
    for name, laws, colour, at in (
        ("filter", content.filtered, FILTER, past),
        ("smoother", content.smoothed, SMOOTHER, past),
        ("forecast", content.ahead, FORECAST, future),
    ):
        if laws is not None:
            shown, circle = len(past) + len(future), laws.circles.get(i)
            add_regions(figure, at, laws.regions(0.9, i), (f"{name}, 90%", colour, shown), circle)
            add_modes(figure, at, laws.modes(i), (f"{name}, modes", colour), circle)
    return figure


def _last(laws: Laws) -> Laws:
    return Laws(laws.mean[-1:], laws.sd[-1:], laws.quantiles[:, -1:])


def _fan(
    figure: "go.Figure",
    content: Content,
    laws: Laws,
    shown: tuple[int, Circle | None],
    start: Laws | None,
) -> None:
    """Nested intervals of a forecast, from the end of the history on."""
    (i, circle), later = shown, content.ahead_times
    at = later if start is None else [content.times[-1], *later]

    def attached(level: float) -> np.ndarray:
        ahead = laws.level(level, i)
        return ahead if start is None else np.concatenate([start.level(level, i), ahead])

    curves = [attached(level) for level in (0.5, 0.025, 0.975, 0.25, 0.75)]
    for k, (middle, *ends) in enumerate(copies_of(curves, circle)):
        own = {"showlegend": k == 0}
        for pair, share, name in ((ends[:2], 0.15, "95%"), (ends[2:], 0.3, "50%")):
            _band(figure, at, pair, colour=FORECAST, share=share, name=f"forecast, {name}", **own)
        line = {"color": FORECAST}
        figure.add_scatter(x=at, y=middle, mode="lines", line=line, name="forecast", **own)


def _observations(content: Content, j: int) -> "go.Figure":
    figure = _figure(content.time_name, content.observed_names[j])
    circle = content.seen.circles.get(j)
    at, seen = content.times, placed(content.seen.values[:, j], circle)
    outside = np.zeros(len(seen), bool)
    laws = content.seen.predicted
    if laws is not None:
        _add_band(figure, at, laws, (j, circle), ("predicted, 90%", "predicted", FILTER))
        outside = are_outside(seen, (laws.level(0.05, j), laws.level(0.95, j)), circle)
    for name, chosen, colour, symbol in (
        ("observed", ~outside, DATA, "circle"),
        ("observed, outside", outside, OUTSIDE, "x"),
    ):
        if chosen.any():
            figure.add_scatter(
                x=at,
                y=np.where(chosen, seen, np.nan),
                mode="markers",
                marker={"color": colour, "size": 5, "symbol": symbol},
                name=name,
            )
    if content.ahead_observed is not None:
        _fan(figure, content, content.ahead_observed, (j, circle), None)
    window = _observed_window(content, j) if circle is None else list(circle)
    return figure if window is None else figure.update_yaxes(range=window)


def _observed_window(content: Content, j: int) -> list[float] | None:
    """What was seen and nearly all of what was predicted: the first, of a vague prior, is wide."""
    shown = [content.seen.values[:, j]]
    if content.seen.predicted is not None:
        for level in (0.05, 0.95):
            ends = content.seen.predicted.level(level, j)
            ends = ends[np.isfinite(ends)]
            shown.append(np.quantile(ends, [0.05, 0.95]) if len(ends) else ends)
    if content.ahead_observed is not None:
        shown += [content.ahead_observed.level(level, j) for level in (0.025, 0.975)]
    values = np.concatenate(shown)
    values = values[np.isfinite(values)]
    if not len(values) or values.min() == values.max():
        return None
    room = 0.05 * (values.max() - values.min())
    return [float(values.min() - room), float(values.max() + room)]


def _likelihoods(content: Content) -> "go.Figure":
    figure = _figure(content.time_name, "log p(y | y before)")
    marker = {"color": FILTER}
    return figure.add_bar(x=content.times, y=content.log_likelihoods, marker=marker, name="log p")


def _pit(values: np.ndarray) -> "go.Figure":
    """A histogram, and what 95% of the bars should stay within if values are uniform."""
    kept = values[np.isfinite(values)]
    bins = min(_BINS, max(4, len(kept) // 5))
    counts, edges = np.histogram(kept, bins=bins, range=(0.0, 1.0))
    figure = _figure("P(Y ≤ y | y before)", "relative frequency")
    height = counts * bins / max(1, len(kept))
    middle = 0.5 * (edges[1:] + edges[:-1])
    figure.add_bar(x=middle, y=height, width=1 / bins, marker={"color": FILTER}, name="PIT")
    spread = 1.96 * np.sqrt(bins * (1 - 1 / bins) / max(1, len(kept)))
    for level, dash in ((1.0, "solid"), (1 - spread, "dot"), (1 + spread, "dot")):
        figure.add_hline(y=max(level, 0.0), line={"color": OUTSIDE, "dash": dash, "width": 1})
    return figure


def _residuals(content: Content, values: np.ndarray) -> "go.Figure":
    figure = _figure(content.time_name, "residual, in standard deviations")
    marker = {"color": FILTER, "size": 5}
    figure.add_scatter(x=content.times, y=values, mode="markers", marker=marker, name="residual")
    for level in (-1.96, 1.96):
        figure.add_hline(y=level, line={"color": OUTSIDE, "dash": "dot", "width": 1})
    reach = float(np.nanmax(np.abs(values), initial=2.2))
    return figure.update_yaxes(range=[-1.1 * reach, 1.1 * reach])


def _normal(values: np.ndarray) -> "go.Figure":
    kept = np.sort(values[np.isfinite(values)])
    wanted = ndtri((np.arange(len(kept)) + 0.5) / max(1, len(kept)))
    figure = _figure("normal quantile", "residual", hovermode="closest", showlegend=False)
    marker = {"color": FILTER, "size": 5}
    figure.add_scatter(x=wanted, y=kept, mode="markers", marker=marker, name="residuals")
    ends = np.array([-3.0, 3.0])
    line = {"color": OUTSIDE, "dash": "dot", "width": 1}
    return figure.add_scatter(x=ends, y=ends, mode="lines", line=line, name="normal")


def _errors(content: Content) -> "go.Figure":
    assert content.errors is not None
    figure = _figure(content.time_name, "estimated total variation error")
    # Zero has no place on a logarithmic axis: what is below rounding is shown at rounding.
    shown = np.maximum(content.errors, np.finfo(float).eps)
    line = {"color": FILTER}
    figure.add_scatter(x=content.times, y=shown, mode="lines", line=line, name="error")
    figure.add_hline(y=content.tol, line={"color": OUTSIDE, "dash": "dot", "width": 1})
    return figure.update_yaxes(type="log", exponentformat="power")
