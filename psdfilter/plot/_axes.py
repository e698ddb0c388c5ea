"""Axes to draw on, colours that go together, and what is written on them."""

# Drawing is done for its effect on the axes.
# pyright: reportUnusedCallResult=false

from collections.abc import Sequence
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from .._frames.errors import printable
from .._frames.labels import Labels
from .._inference.posterior import Forecast, Posterior, Smoothed
from .._inference.result import AbstractResult

if TYPE_CHECKING:
    from types import ModuleType

    from matplotlib.axes import Axes

# Blue, vermilion, green and purple of Okabe and Ito: colour-blind eyes tell them apart too.
BAND, LINE, TRUTH, DATA = "#9ecae1", "#0072b2", "#d55e00", "#525252"
OTHERS = (LINE, "#009e73", "#cc79a7", "#e69f00", "#56b4e9", DATA)
HEAT, ON_HEAT = "Blues", "#e69f00"
T = TypeVar("T")
# Who makes the results that are drawn.
_MAKERS: dict[type[AbstractResult], str] = {
    Posterior: "run_filter",
    Smoothed: "run_smoother",
    Forecast: "forecast",
}


def pyplot() -> "ModuleType":
    """Matplotlib's pyplot, or an error that says how to get it."""
    try:
        from matplotlib import pyplot as plt
    except ImportError as error:
        raise ImportError("pictures need matplotlib: pip install 'psdfilter[plot]'") from error
    return plt


def axes_for(ax: "Axes | None", size: tuple[float, float] = (7.0, 3.2)) -> "Axes":
    """The given axes, or those of a new figure of this size in inches."""
    if ax is not None:
        return _as_axes("ax", ax)
    return pyplot().subplots(figsize=size, layout="constrained")[1]


def _as_axes(name: str, ax: object) -> "Axes":
    """Axes of Matplotlib, and nothing else."""
    from matplotlib.axes import Axes

    if not isinstance(ax, Axes):
        raise ValueError(
            f"{name} must be Matplotlib axes, as matplotlib.pyplot.subplots()[1] is, got "
            f"{type(ax).__name__}"
        )
    return ax


def panels_for(axes: object, rows: int, columns: int, size: tuple[float, float]) -> np.ndarray:
    """rows x columns axes, flat: the given ones, or those of a new figure with panels of a size."""
    if axes is None:
        shape = {"nrows": rows, "ncols": columns, "squeeze": False, "layout": "constrained"}
        figsize = (columns * size[0], rows * size[1])
        axes = pyplot().subplots(figsize=figsize, sharex=columns == 1, **shape)[1]
    flat = np.atleast_1d(np.asarray(axes, dtype=object)).ravel()
    if flat.size < rows * columns:
        raise ValueError(f"axes must hold at least {rows * columns} axes, got {flat.size}")
    for ax in flat[: rows * columns]:
        _as_axes("axes", ax)
    return flat


def as_result(name: str, result: T, *kinds: type[AbstractResult]) -> T:
    """What a function of inference returned, of these kinds or of any, and nothing else."""
    if not isinstance(result, kinds or AbstractResult):
        makers = " or ".join(_MAKERS[kind] for kind in kinds or _MAKERS)
        raise ValueError(f"{name} must come from {makers}, got {type(result).__name__}")
    return result


def finish(ax: "Axes", xlabel: str | None, ylabel: str | None, legend: bool = True) -> "Axes":
    """Labels, no frame where nothing is read off, and a legend above the data, never on them."""
    ax.spines[["top", "right"]].set_visible(False)
    _shorten_dates(ax)
    if xlabel is not None:
        ax.set_xlabel(xlabel)
    if ylabel is not None:
        ax.set_ylabel(ylabel)
    if legend and ax.get_legend_handles_labels()[1]:
        place = {"loc": "lower left", "bbox_to_anchor": (0.0, 1.01), "borderaxespad": 0.0}
        ax.legend(frameon=False, ncols=5, fontsize="small", **place)
    return ax


def _shorten_dates(ax: "Axes") -> None:
    """Dates in few letters, where there are any: in full they run into one another."""
    from matplotlib.dates import AutoDateLocator, ConciseDateFormatter

    locator = ax.xaxis.get_major_locator()
    if isinstance(locator, AutoDateLocator):
        ax.xaxis.set_major_formatter(ConciseDateFormatter(locator))


def times_of(result: AbstractResult, times: object = None) -> np.ndarray:
    """What stands on the axis of time: the times of the result unless others are given."""
    count = result.mean.shape[0]
    at = own_times(result.labels, result.times) if times is None else np.asarray(times)
    if at.shape != (count,):
        raise ValueError(f"times must have shape ({count},), as the result has, got {at.shape}")
    return at


def shared_times(*results: AbstractResult) -> list[np.ndarray]:
    """Times of several results on one axis: dates if all have them, else transitions."""
    named = [own_times(result.labels, result.times) for result in results]
    if len({at.dtype.kind for at in named}) == 1 and all(_are_named(r.labels) for r in results):
        return named
    return [np.asarray(result.times) for result in results]


def _are_named(labels: Labels | None) -> bool:
    return labels is not None and labels.has_axis


def own_times(labels: Labels | None, times: object) -> np.ndarray:
    """Dates or numbers of the data frame that the observations came in, else transitions."""
    return labels.local if labels is not None and _are_named(labels) else np.asarray(times)


def name_of_times(result: object, times: object = None) -> str:
    """What the data frame called its index; "time" for transitions, and for other times."""
    labels: Labels | None = getattr(result, "labels", None)
    if times is not None or labels is None or not _are_named(labels):
        return "time"
    return _written(labels.heading)


def once(k: int, label: str) -> str | None:
    """A label for the first of several copies."""
    return label if k == 0 else None


def rows_of(name: str, values: object, shape: tuple[int, ...]) -> np.ndarray:
    """Values of every time, (T, d), or (T,) if d = 1."""
    array = np.asarray(values, dtype=float)
    if array.shape == shape[:1] and shape[1] == 1:
        array = array[:, None]
    if array.shape != shape:
        raise ValueError(f"{name} must have shape {shape}, as the result has, got {array.shape}")
    return array


def names_of(names: Sequence[str] | None, dim: int, letter: str = "x") -> list[str]:
    """Names of d coordinates, x_1 ... x_d unless others are given."""
    if names is None:
        return [f"${letter}$"] if dim == 1 else [f"${letter}_{i + 1}$" for i in range(dim)]
    if len(names) != dim:
        raise ValueError(f"names must be {dim}, one for each coordinate, got {len(names)}")
    return [_written(name) for name in names]


def _written(name: object) -> str:
    """A name as it is: a dollar sign would be taken for the start of a formula."""
    return printable(str(name)).replace("$", r"\$")


def observed_names(
    names: Sequence[str] | None, result: AbstractResult, dim: int
) -> Sequence[str] | None:
    """The given names, or those of the columns that were observed."""
    columns = None if result.labels is None else result.labels.columns
    return columns if names is None and columns is not None and len(columns) == dim else names


def coordinate_of(coordinate: int, dim: int) -> int:
    """An index of one of d coordinates."""
    if not 0 <= coordinate < dim:
        raise ValueError(f"coordinate must lie in 0..{dim - 1}, got {coordinate}")
    return coordinate
