"""Which coordinates of results wrap."""

from .._inference.numerics.circles import Circle
from .._inference.posterior import Forecast, Posterior, Smoothed
from .._inference.result import AbstractResult


def circle_of(result: AbstractResult, i: int) -> Circle | None:
    """The circle that a coordinate lives on; None for a line, or where nobody knows."""
    source = result.model.source if isinstance(result, Posterior | Smoothed | Forecast) else None
    if source is None or i not in source.state_box.periodic:
        return None
    return Circle(float(source.state_box.lower[i]), float(source.state_box.upper[i]))
