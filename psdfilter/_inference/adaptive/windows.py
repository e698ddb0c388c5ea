"""Nodes and weights that a run has chosen, row by row, as constants for likelihoods.

A likelihood of parameters must be smooth in them, so its nodes may not move. Those of the adaptive
filter at one theta serve nearby ones: they are extended a little, and fade out on both sides.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float

from .panels import level_ratios, nodes_of
from .reach import Frame
from .rules import PANEL, patterson, scan_rule
from .state import BEYOND, OUTER, Law

# How far windows reach beyond the nodes of the run, as a share of their width: laws at nearby
# thetas are elsewhere, by a deviation or so of the twelve that a window holds.
_MARGIN = 0.12
# Fewest nodes on a lattice. A run takes as few as its noise allows, but then every second of them
# says nothing of their error, and a theta with less noise needs more.
_LEAST = 48
# Nodes further apart than this many spacings are runs of their own, each with its own margin.
_GAP = 8
# Width of a panel that replaces a piece of a lattice, in spacings: 15 nodes of Patterson's rule
# resolve what 10 equispaced ones do.
_PIECE = 10.0
# Two spacings are one if they differ by less: nodes are sums of rounded numbers.
_EQUAL = 1e-6


class Window(NamedTuple):
    """Where the law of one time is: either a lattice or panels.

    `lower` and `upper` are the ends of runs of a lattice of spacing `h`, or of panels (h = 0), or
    those of Clenshaw and Curtis' rule of -h nodes.
    """

    lower: Float[np.ndarray, " k"]
    upper: Float[np.ndarray, " k"]
    h: float


class Row(NamedTuple):
    """Nodes of one time, their weights, those of two coarser rules over them, and the rim."""

    nodes: Float[np.ndarray, " n"]
    log_weights: Float[np.ndarray, " n"]
    ratios: Float[np.ndarray, "2 n"]
    rim: Float[np.ndarray, " n"]  # mass beyond the ends over that of the node


def window_of(law: Law, frame: Frame) -> Window:
    """The window of a law that a run has left."""
    x = law.nodes
    if law.has_panels:
        return _panels_of(law, frame)
    if len(x) == 1:
        # A state that is known exactly has one node of weight one.
        return Window(x, x, 0.0)
    steps = np.diff(x)
    h = float(np.min(steps))
    if float(np.ptp(steps)) > _EQUAL * h:
        margin = _MARGIN * (x[-1] - x[0])
        low, high = max(x[0] - margin, frame.lower), min(x[-1] + margin, frame.upper)
        num = 4 * int(np.ceil((len(x) - 1) * (high - low) / (x[-1] - x[0]) / 4)) + 1
        return Window(np.array([low]), np.array([high]), -float(num))
    places = np.flatnonzero(np.isfinite(law.log_masses))
    first, last = _runs(places)
    margin = np.ceil(_MARGIN * (last - first)) + 4
    low, high = x[0] + h * (first - margin), x[0] + h * (last + margin)
    h = h / 2 ** max(int(np.ceil(np.log2(_LEAST / np.sum(last - first + 1)))), 0)
    return _joined(Window(_inside(low, h, frame), _inside(high, h, frame), h))


def _inside(ends: np.ndarray, h: float, frame: Frame) -> np.ndarray:
    """Ends of runs moved by whole spacings into the support."""
    if np.isfinite(frame.lower):
        ends = ends + h * np.ceil(np.maximum(frame.lower - ends, 0.0) / h - 1e-9)
    if np.isfinite(frame.upper):
        ends = ends - h * np.ceil(np.maximum(ends - frame.upper, 0.0) / h - 1e-9)
    return ends


def _runs(places: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    cuts = np.flatnonzero(np.diff(places) > _GAP)
    return places[np.concatenate([[0], cuts + 1])], places[np.concatenate([cuts, [-1]])]


def _joined(window: Window) -> Window:
    """Runs that overlap, or nearly so, as one."""
    order = np.argsort(window.lower)
    low, high = window.lower[order], np.maximum.accumulate(window.upper[order])
    cuts = np.flatnonzero(low[1:] > high[:-1] + 1.5 * window.h)
    first = np.concatenate([[0], cuts + 1])
    last = np.concatenate([cuts, [len(low) - 1]])
    return Window(low[first], high[last], window.h)


def _panels_of(law: Law, frame: Frame) -> Window:
    """Panels that hold mass, and one of the same width beside each end that is open."""
    held = np.isfinite(law.log_masses).reshape(-1, PANEL).any(axis=1)
    low, high = law.lower[held], law.upper[held]
    tiny = 1e-9 * (high[-1] - low[0])
    gaps = low[1:] > high[:-1] + tiny
    left = np.concatenate([[True], gaps])
    right = np.concatenate([gaps, [True]])
    width = high - low
    before = np.stack([low - width, low])[:, left]
    after = np.stack([high, high + width])[:, right]
    # A panel beside a gap must not reach into what lies beyond it.
    before[0, 1:] = np.maximum(before[0, 1:], high[:-1][gaps])
    after[1, :-1] = np.minimum(after[1, :-1], before[0, 1:])
    lower = np.concatenate([low, before[0], after[0]])
    upper = np.concatenate([high, before[1], after[1]])
    lower, upper = np.maximum(lower, frame.lower), np.minimum(upper, frame.upper)
    keep = upper > lower + tiny * 1e-3
    order = np.argsort(lower[keep])
    return Window(lower[keep][order], upper[keep][order], 0.0)


def united(windows: Sequence[Window]) -> Window:
    """A window that serves wherever one of several does."""
    if len(windows) == 1:
        return windows[0]
    if all(w.h > 0 for w in windows):
        finest = min(windows, key=lambda w: w.h)
        h, origin = finest.h, finest.lower[0]
        low = np.concatenate([w.lower for w in windows])
        high = np.concatenate([w.upper for w in windows])
        low = origin + h * np.floor((low - origin) / h + _EQUAL)
        high = origin + h * np.ceil((high - origin) / h - _EQUAL)
        return _joined(Window(low, high, h))
    panels = [_as_panels(w) for w in windows]
    edges = np.unique(np.concatenate([np.concatenate([w.lower, w.upper]) for w in panels]))
    low, high = edges[:-1], edges[1:]
    middle, tiny = 0.5 * (low + high), 1e-9 * (edges[-1] - edges[0])
    held = np.zeros(len(low), bool)
    for w in panels:
        held |= ((middle[:, None] > w.lower) & (middle[:, None] < w.upper)).any(axis=1)
    held &= high > low + tiny
    return Window(low[held], high[held], 0.0)


def halved(window: Window) -> Window:
    """Panels of half the width."""
    middle = 0.5 * (window.lower + window.upper)
    low = np.stack([window.lower, middle], axis=1).reshape(-1)
    return Window(low, np.stack([middle, window.upper], axis=1).reshape(-1), 0.0)


def _as_panels(window: Window) -> Window:
    if window.h == 0:
        return window
    width = window.upper - window.lower
    if window.h > 0:
        counts = np.maximum(np.ceil(width / (_PIECE * window.h)), 1).astype(int)
    else:
        counts = np.array([max(int(np.ceil(-window.h / PANEL)), 1)])
    edges = [
        np.linspace(a, b, n + 1) for a, b, n in zip(window.lower, window.upper, counts, strict=True)
    ]
    low, high = (np.concatenate([e[s] for e in edges]) for s in (slice(-1), slice(1, None)))
    return Window(low, high, 0.0)


def row_of(window: Window, frame: Frame) -> Row:
    """Nodes and weights of a window."""
    lower, upper, h = window
    if h == 0 and len(lower) == 1 and lower[0] == upper[0]:
        return Row(lower, np.zeros(1), np.ones((2, 1)), np.zeros(1))
    if h > 0:
        return _lattice_row(window, frame)
    if h < 0:
        rule = scan_rule(round(-h), True)
        width = upper[0] - lower[0]
        nodes, ratios = lower[0] + width * rule.nodes, rule.weights[1:] / rule.weights[:1]
        logs = np.log(width * rule.weights[0])
    else:
        nodes, ratios = nodes_of(lower, upper).reshape(-1), level_ratios(len(lower))
        half = 0.5 * (upper - lower)
        logs = np.log(half[:, None] * patterson().weights[0][None, :]).reshape(-1)
    tiny = 1e-9 * (upper[-1] - lower[0])
    gaps = lower[1:] > upper[:-1] + tiny
    each = len(nodes) // len(lower)
    rim = np.zeros((len(lower), each))
    rim[np.concatenate([[lower[0] > frame.lower + tiny], gaps]), :OUTER] = BEYOND
    rim[np.concatenate([gaps, [upper[-1] < frame.upper - tiny]]), -OUTER:] = BEYOND
    return Row(nodes, logs, ratios, rim.reshape(-1))


def _lattice_row(window: Window, frame: Frame) -> Row:
    lower, upper, h = window
    origin, places, rims = lower[0], [], []
    for low, high in zip(lower, upper, strict=True):
        first, last = round((low - origin) / h), round((high - origin) / h)
        places.append(np.arange(first, last + 1))
        rims.append(_rim(last - first + 1, low <= frame.lower + h, high >= frame.upper - h))
    k = np.concatenate(places)
    ratios = np.stack([np.where(k % 2 == 0, 2.0, 0.0), np.where(k % 4 == 0, 4.0, 0.0)])
    return Row(origin + h * k, np.full(len(k), np.log(h)), ratios, np.concatenate(rims))


def _rim(num: int, at_lower: bool, at_upper: bool) -> np.ndarray:
    """Beside a wall a lattice is cut: what is there is an error, and not only what is beyond."""
    rim: Float[np.ndarray, " n"] = np.zeros(num)
    cut: Bool[np.ndarray, " 2"] = np.array([at_lower, at_upper])
    rim[:OUTER] = 1.0 if cut[0] else BEYOND
    rim[-OUTER:] = 1.0 if cut[1] else BEYOND
    return rim
