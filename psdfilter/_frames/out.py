"""Columns with names as data frames of the libraries that people use."""

from collections.abc import Mapping, Sequence
from types import ModuleType
from typing import TYPE_CHECKING

import numpy as np

from .labels import Labels

if TYPE_CHECKING:
    import pandas
    import polars


def state_names(names: Sequence[str] | None, num: int) -> list[str]:
    """Names of coordinates, x0, x1, ... unless others are given."""
    if names is None:
        return [f"x{i}" for i in range(num)]
    if len(names) != num or len(set(names)) != num:
        raise ValueError(
            f"names must be {num} different ones, one for each coordinate, got {names}"
        )
    return [str(name) for name in names]


def needed(package: str, method: str, extra: str) -> ModuleType:
    """A package, or an error that says how to get it."""
    from importlib import import_module

    try:
        return import_module(package)
    except ImportError as error:
        raise ImportError(f"{method} needs {package}: pip install 'psdfilter[{extra}]'") from error


def columns_of(
    summary: tuple[np.ndarray, np.ndarray, np.ndarray],
    levels: Sequence[float],
    names: Sequence[str],
    facts: Mapping[str, np.ndarray],
) -> dict[str, np.ndarray]:
    """The one schema: <name>_mean, <name>_sd, <name>_q<level> of every coordinate, then facts.

    `summary` are means (T, d), standard deviations (T, d) and quantiles (k, T, d).
    """
    mean, deviation, quantiles = summary
    columns = {}
    for i, name in enumerate(names):
        columns[f"{name}_mean"] = mean[:, i]
        columns[f"{name}_sd"] = deviation[:, i]
        for level, values in zip(levels, quantiles, strict=True):
            columns[f"{name}_q{level:g}"] = values[:, i]
    return {**columns, **facts}


def to_pandas(
    columns: Mapping[str, np.ndarray], steps: np.ndarray, labels: Labels | None
) -> "pandas.DataFrame":
    """A pandas DataFrame, by the index that the observations came with."""
    pandas = needed("pandas", "to_pandas", "frames")
    if labels is None or labels.values is None:
        index = pandas.Index(steps, name=_own_name(steps))
    else:
        index = pandas.Index(labels.values, name=labels.name)
        if labels.zone is not None:
            index = index.tz_localize("UTC").tz_convert(labels.zone)
        columns = {"step": steps, **columns}
    return pandas.DataFrame(dict(columns), index=index)


def to_polars(
    columns: Mapping[str, np.ndarray], steps: np.ndarray, labels: Labels | None
) -> "polars.DataFrame":
    """A polars DataFrame, with the times in its first column."""
    polars = needed("polars", "to_polars", "frames")
    if labels is None or labels.values is None:
        return polars.DataFrame({_own_name(steps): steps, **columns})
    name = _time_name(labels, columns)
    frame = polars.DataFrame({name: labels.values, "step": steps, **columns})
    if labels.zone is None:
        return frame
    time = polars.col(name).dt.replace_time_zone("UTC").dt.convert_time_zone(labels.zone)
    return frame.with_columns(time)


def _own_name(steps: np.ndarray) -> str:
    """Numbers of transitions, or times as models with real ones have them."""
    return "step" if steps.dtype.kind in "iu" else "time"


def _time_name(labels: Labels, columns: Mapping[str, np.ndarray]) -> str:
    name = labels.name or "time"
    return f"{name}_" if name in columns or name == "step" else name


def time_coordinates(
    steps: np.ndarray, labels: Labels | None
) -> tuple[dict[str, object], dict[str, str]]:
    """The coordinates `time` and `step` of an xarray Dataset, and attributes that go with them.

    xarray has no time zones: times are in UTC, and the attribute says of which zone they are.
    """
    times = steps if labels is None or labels.values is None else labels.values
    facts = {}
    if labels is not None and labels.zone is not None:
        facts["time_zone"] = labels.zone
    return {"time": times, "step": ("time", steps)}, facts


# Of a standard deviation: what is smaller is rounding, and is shown as zero.
_ROUNDING = 1e-9


def settled(values: np.ndarray, deviation: np.ndarray) -> np.ndarray:
    """Values to be shown: zero where they are rounding, next to their standard deviation."""
    return np.where(np.abs(values) < _ROUNDING * deviation, 0.0, values)
