"""Curves of coordinates that wrap: they leave a picture at one side and come in at the other."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float

from ..._statespace.functions import AbstractAround
from ..._statespace.model import StateSpaceModel


class Circle(NamedTuple):
    """The ends of a coordinate that wraps, which are one point."""

    lower: float
    upper: float

    @property
    def period(self) -> float:
        """The length of a turn."""
        return self.upper - self.lower


def pieces_of(
    intervals: Float[np.ndarray, "r 2"], circle: Circle | None
) -> Float[np.ndarray, "q 2"]:
    """Intervals cut where a circle closes, between its ends."""
    if circle is None or not len(intervals):
        return intervals
    turns = circle.period * np.floor((intervals[:, :1] - circle.lower) / circle.period)
    first = intervals - turns
    both = np.concatenate([first, first - circle.period])
    cut = np.clip(both, circle.lower, circle.upper)
    return cut[cut[:, 1] > cut[:, 0]]


def placed(points: Float[np.ndarray, " n"], circle: Circle | None) -> Float[np.ndarray, " n"]:
    """Points by whole turns between the ends of a circle."""
    if circle is None:
        return points
    return circle.lower + np.mod(points - circle.lower, circle.period)


def are_outside(
    points: Float[np.ndarray, " t"],
    ends: tuple[Float[np.ndarray, " t"], Float[np.ndarray, " t"]],
    circle: Circle | None,
) -> Bool[np.ndarray, " t"]:
    """Which points are not between two ends, by whole turns on a circle; NaN is not."""
    low, high = ends
    if circle is not None:
        points = low + np.mod(points - low, circle.period)
    with np.errstate(invalid="ignore"):
        return (points < low) | (points > high)


def sensor_circle(
    ssm: StateSpaceModel | None, ys: Float[np.ndarray, "t p"], i: int
) -> Circle | None:
    """The circle of an observed coordinate that wraps: from zero on where its numbers say so."""
    models = () if ssm is None else (ssm,) if ssm.regimes is None else ssm.regimes.models
    sensors = [model.log_observation for model in models]
    turns = sensors[0].noise.turns if sensors and isinstance(sensors[0], AbstractAround) else None
    if turns is None or i not in turns.axes:
        return None
    period = float(turns.periods[i])
    half, seen = 0.5 * period, ys[np.isfinite(ys[:, i]), i]
    from_zero = seen.size > 0 and seen.min() >= 0 and seen.max() > half
    return Circle(0.0, period) if from_zero else Circle(-half, half)


def copies_of(
    curves: Sequence[Float[np.ndarray, " t"]], circle: Circle | None
) -> list[list[Float[np.ndarray, " t"]]]:
    """Curves without jumps, as often as they show between the ends of a circle.

    The first curve goes the shortest way from time to time, and the others stay beside it.
    """
    if circle is None:
        return [list(curves)]
    period = circle.period
    moved = np.unwrap(curves[0], period=period) - curves[0]
    steady = [curve + moved for curve in curves]
    first = np.ceil((circle.lower - np.nanmax(steady)) / period)
    last = np.floor((circle.upper - np.nanmin(steady)) / period)
    return [[curve + k * period for curve in steady] for k in np.arange(first, last + 1)]
