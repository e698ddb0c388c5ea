"""Curves of coordinates that wrap: they leave a picture at one side and come in at the other."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from .._inference.posterior import Posterior, Smoothed
from .._inference.result import AbstractResult


class Circle(NamedTuple):
    """The ends of a coordinate that wraps, which are one point."""

    lower: float
    upper: float


def circle_of(result: AbstractResult, i: int) -> Circle | None:
    """The circle that a coordinate lives on; None for a line, or where nobody knows."""
    source = result.model.source if isinstance(result, Posterior | Smoothed) else None
    if source is None or i not in source.state_box.periodic:
        return None
    return Circle(float(source.state_box.lower[i]), float(source.state_box.upper[i]))


def copies_of(
    curves: Sequence[Float[np.ndarray, " t"]], circle: Circle | None
) -> list[list[Float[np.ndarray, " t"]]]:
    """Curves without jumps, as often as they show between the ends of a circle.

    The first curve goes the shortest way from time to time, and the others stay beside it.
    """
    if circle is None:
        return [list(curves)]
    period = circle.upper - circle.lower
    moved = np.unwrap(curves[0], period=period) - curves[0]
    steady = [curve + moved for curve in curves]
    first = np.ceil((circle.lower - np.nanmax(steady)) / period)
    last = np.floor((circle.upper - np.nanmin(steady)) / period)
    return [[curve + k * period for curve in steady] for k in np.arange(first, last + 1)]
