"""Where a density may be: first panels, wide enough for outliers, fine enough to look."""

from typing import NamedTuple

import numpy as np

from ..._statespace.model import AdditiveGaussian, LinearGaussian, StateSpaceModel
from .spikes import cut_at, spike_edges
from .tables import Seen, Source, Values

# First panels of the part that a prediction fills, or of a box: 16 of 15 nodes see what is wider
# than 1/250 of it, logs show what is narrower.
_FIRST = 16
# Doublings of the window to each side, for likelihoods far outside of it: 2^12 windows.
_LADDER = 12
# A likelihood is looked at on so many times the nodes: it costs far less than a prediction.
_DENSE = 16
# Nats by which a dense look must exceed the nodes for a panel to be cut.
_HIDDEN = 3.0


class Frame(NamedTuple):
    """The support that was given, and the Gaussians that are known."""

    lower: float
    upper: float
    start: tuple[float, float] | None  # mean and sd of the prior
    noise: float | None  # sd of additive Gaussian noise


def frame_of(ssm: StateSpaceModel) -> Frame:
    """A box that was given is honoured; one that was only simulated cuts nothing."""
    lower, upper = float(ssm.state_box.lower[0]), float(ssm.state_box.upper[0])
    form = ssm.structure
    if form is None:
        return Frame(lower, upper, None, None)
    if not form.boxed:
        lower, upper = -np.inf, np.inf
    start = None
    gaussian = isinstance(form, AdditiveGaussian) or (
        form.prior is None and not form.prior_is_function
    )
    if form.m0 is not None and form.P0 is not None and (gaussian or not form.boxed):
        start = (float(form.m0[0]), float(np.sqrt(form.P0[0, 0])))
    assert isinstance(form, AdditiveGaussian | LinearGaussian)
    return Frame(lower, upper, start, float(np.sqrt(form.Q[0, 0])))


def first_panels(
    values: Values, frame: Frame, source: Source | None, tol: float
) -> tuple[np.ndarray, np.ndarray]:
    """Panels that cover whatever the law can be after a transition, or of the prior."""
    reach = 3.0 + np.sqrt(2 * np.log(10 / tol))
    if source is None:
        if frame.start is None or frame.start[1] == 0:
            return _of_box(frame, np.zeros(0))
        mean, sd = frame.start
        return _clipped(frame, *_with_ladder(*_cut([mean - reach * sd], [mean + reach * sd])))
    means = values.means(source)
    if means is None or frame.noise is None:
        return _of_box(frame, source.nodes)
    lows, highs = _clusters(means[np.isfinite(means)], reach * frame.noise)
    return _clipped(frame, *_with_ladder(*_cut(lows, highs)))


def _clusters(means: np.ndarray, reach: float) -> tuple[list[float], list[float]]:
    """Intervals mean +- reach, those that touch made one."""
    points = np.sort(means)
    cuts = np.flatnonzero(np.diff(points) > 2 * reach)
    # The widest gaps only: many far apart means are a support of their own.
    cuts = np.sort(cuts[np.argsort(-np.diff(points)[cuts])][: 2 * _FIRST])
    lows = [points[0], *points[cuts + 1]]
    highs = [*points[cuts], points[-1]]
    return [float(a) - reach for a in lows], [float(b) + reach for b in highs]


def _cut(lows: list[float], highs: list[float]) -> tuple[np.ndarray, np.ndarray]:
    """Panels in each interval, and one in each gap."""
    each = max(3, -(-_FIRST // len(lows)))
    edges = [np.linspace(a, b, each + 1) for a, b in zip(lows, highs, strict=True)]
    points = np.concatenate(edges)
    return points[:-1], points[1:]


def _with_ladder(lower: np.ndarray, upper: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    width = upper[-1] - lower[0]
    steps = width * np.concatenate([[0.0], 2.0 ** np.arange(_LADDER)])
    left = (lower[0] - steps)[::-1]
    right = upper[-1] + steps
    points = np.concatenate([left[:-1], lower, right])
    return points[:-1], points[1:]


def _clipped(frame: Frame, lower: np.ndarray, upper: np.ndarray):
    if np.isfinite(frame.lower) and (upper[-1] < frame.lower or lower[0] > frame.upper):
        return _of_box(frame, np.zeros(0))
    low, high = np.maximum(lower, frame.lower), np.minimum(upper, frame.upper)
    keep = high > low
    return low[keep], high[keep]


def _of_box(frame: Frame, hints: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The box in equal panels, cut where old nodes begin, end, and have their quartiles."""
    if not np.isfinite(frame.upper - frame.lower):
        raise ValueError("state_box must be given, and finite, for a model of this kind")
    points = np.linspace(frame.lower, frame.upper, _FIRST + 1)
    if len(hints) > 0:
        extra = np.quantile(hints, [0.0, 0.25, 0.5, 0.75, 1.0])
        points = np.unique(np.clip(np.concatenate([points, extra]), frame.lower, frame.upper))
    least = 1e-13 * (frame.upper - frame.lower)
    keep = np.diff(points) > least
    return points[:-1][keep], points[1:][keep]


def looked_at(
    values: Values,
    panels: tuple[np.ndarray, np.ndarray],
    source: Source | None,
    seen: tuple[Seen, ...],
    per: int,
) -> tuple[np.ndarray, np.ndarray]:
    """Panels cut where a dense look at the law shows what their own nodes do not.

    Gaussian noise makes a prediction as smooth as it is; other transitions may have peaks of any
    width, and are looked at with the likelihood.
    """
    lower, upper = panels
    free = source is not None and values.means(source) is None
    if not seen and not free:
        return lower, upper

    def log_law(x: np.ndarray) -> np.ndarray:
        logs = sum((values.log_likelihood(x, one) for one in seen), np.zeros(len(x)))
        return logs + values.log_p(source, x) if free and source is not None else logs

    num = per * _DENSE
    grid = (np.arange(num) + 0.5) / num
    points = lower[:, None] + (upper - lower)[:, None] * grid[None, :]
    logs = log_law(points.reshape(-1)).reshape(points.shape)
    sparse = np.max(logs[:, _DENSE // 2 :: _DENSE], axis=1)
    with np.errstate(invalid="ignore"):
        hidden = np.max(logs, axis=1) - sparse > _HIDDEN
    hidden &= np.isfinite(np.max(logs, axis=1))
    ends = [
        np.linspace(a, b, _DENSE + 1) for a, b in zip(lower[hidden], upper[hidden], strict=True)
    ]
    low = np.concatenate([lower[~hidden], *(e[:-1] for e in ends)])
    high = np.concatenate([upper[~hidden], *(e[1:] for e in ends)])
    order = np.argsort(low)
    return cut_at(low[order], high[order], spike_edges(log_law, points, logs))
