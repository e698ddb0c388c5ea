"""Series of observations out of data frames: pandas, polars, xarray; none of them is imported."""

import sys
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import DTypeLike

from .errors import DataError
from .labels import Labels

if TYPE_CHECKING:
    import pandas
    import xarray

# What pandas calls the contents of an index of numbers, and of a column of objects that are some.
_NUMBERS = ("integer", "floating", "mixed-integer-float", "integer-na")
_OBJECTS_OF_NUMBERS = (*_NUMBERS, "boolean", "decimal", "empty")
# A frame of pandas, polars or xarray, or a `Table`: nothing is imported for the sake of types.
Frame = Any
# Numbers, dates, or an index of pandas or polars, one for each row; None where rows are counted.
Times = Any


@dataclass(frozen=True)
class Table:
    """T rows of p numbers and what they are called; an array to all who ask for one.

    Attributes:
        values: (T, p), NaN where missing.
        labels: names of rows and columns.
        refused: for tables of a file, an error about the cell of a row and column.
    """

    values: np.ndarray
    labels: Labels
    refused: Callable[[int, str, str], DataError] | None = None

    def __len__(self) -> int:
        return len(self.values)

    def __array__(self, dtype: DTypeLike | None = None, copy: bool | None = None) -> np.ndarray:
        array = self.values if dtype is None else self.values.astype(dtype, copy=False)
        return array.copy() if copy else array


def as_table(name: str, ys: Frame) -> Frame:
    """A `Table` of a data frame, and anything else as it is."""
    kind = type(ys).__module__.split(".", 1)[0]
    if kind == "pandas" and "pandas" in sys.modules:
        return _from_pandas(name, ys)
    if kind == "polars" and "polars" in sys.modules:
        return _from_polars(name, ys)
    if kind == "xarray" and "xarray" in sys.modules:
        return _from_xarray(name, ys)
    return ys


def as_tables(name: str, ys: Frame) -> Frame:
    """Data frames as tables, also those in a list of several series."""
    if not isinstance(ys, list | tuple):
        return as_table(name, ys)
    return [as_table(f"{name}[{i}]", y) for i, y in enumerate(ys)] if _has_frames(ys) else ys


def labels_of(ys: object) -> Labels | None:
    """The names of a table; None for an array."""
    return ys.labels if isinstance(ys, Table) else None


def bare(
    name: str, ys: Frame, times: Times, start: int, *, is_real: bool = False
) -> tuple[Frame, Times]:
    """Numbers and times of a series: an index that has a step says how long its gaps are.

    Args:
        name: of the argument.
        ys: a frame, or anything else.
        times: as they were given; they have the last word.
        start: the time of the first row in transitions.
        is_real: whether the model takes times as they are, so that an index needs no step.
    """
    table = as_table(name, ys)
    if not isinstance(table, Table):
        return ys, times
    if times is None:
        table.labels.check(name)
        if is_real and table.labels.is_ordered:
            return table.values, table.labels.values
        times = table.labels.steps(name, start)
    return table.values, times


def bare_inputs(inputs: Frame, ys: Frame) -> Frame:
    """Inputs without names, which have to be those of the observations where both have them."""
    table = as_table("inputs", inputs)
    if not isinstance(table, Table):
        return inputs
    mine, theirs = table.labels.values, getattr(labels_of(as_table("ys", ys)), "values", None)
    if mine is not None and theirs is not None and not np.array_equal(mine, theirs):
        raise ValueError(
            "inputs must have the index of ys, row by row: align the two frames first, for example "
            "inputs.reindex(ys.index)"
        )
    return table.values


def _has_frames(ys: Sequence[object]) -> bool:
    frames = ("pandas", "polars", "xarray")
    return any(type(y).__module__.split(".", 1)[0] in frames for y in ys)


def _from_pandas(name: str, frame: Frame) -> Frame:
    import pandas

    if isinstance(frame, pandas.Series):
        columns, names = [frame], None if frame.name is None else (str(frame.name),)
    elif isinstance(frame, pandas.DataFrame):
        columns = [frame.iloc[:, i] for i in range(frame.shape[1])]
        names = tuple(str(column) for column in frame.columns)
    else:
        return frame
    _require_distinct(name, names)
    values = [_pandas_numbers(name, column) for column in columns]
    index, zone = _pandas_index(name, frame.index)
    title = None if frame.index.name is None else str(frame.index.name)
    return _table(values, len(frame), Labels(index, title, zone, names))


def _pandas_numbers(name: str, column: "pandas.Series") -> np.ndarray:
    from pandas.api import types

    if types.is_datetime64_any_dtype(column.dtype):
        remedy = (
            "they belong into its index"
            if column.name is None
            else f"make them the index, .set_index({column.name!r})"
        )
        raise ValueError(f"{_column_of(column.name, name)} holds dates: {remedy}")
    if types.is_object_dtype(column.dtype):
        are_numbers = types.infer_dtype(column) in _OBJECTS_OF_NUMBERS
    else:
        are_numbers = types.is_numeric_dtype(column.dtype) or types.is_bool_dtype(column.dtype)
    # Complex numbers are numeric to pandas, and lose a part as floats.
    if not are_numbers or types.is_complex_dtype(column.dtype):
        raise ValueError(_not_numbers(name, column.name, column.dtype))
    return column.to_numpy(dtype=np.float64, na_value=np.nan)


def _pandas_index(name: str, index: "pandas.Index") -> tuple[np.ndarray, str | None]:
    """Times, and their zone; strings name rows, and what is neither is refused."""
    import pandas
    from pandas.api import types

    if isinstance(index, pandas.MultiIndex):
        raise ValueError(
            f"{name} must be one series, got a MultiIndex of {index.nlevels} levels: filter the "
            "groups one by one"
        )
    if isinstance(index, pandas.CategoricalIndex):
        index = index.astype(index.categories.dtype)
    kind = types.infer_dtype(index)
    # Objects of the standard library, and dates of pyarrow, that pandas has an index for.
    index = pandas.to_datetime(index) if kind == "date" else index.infer_objects()
    if isinstance(index, pandas.PeriodIndex):
        index = index.to_timestamp()
    if types.is_datetime64_any_dtype(index.dtype):
        index = pandas.DatetimeIndex(index)
        zone = None if index.tz is None else str(index.tz)
        plain = index if zone is None else index.tz_convert("UTC").tz_localize(None)
        return plain.to_numpy().astype("datetime64[ns]"), zone
    if types.is_timedelta64_dtype(index.dtype):
        return pandas.TimedeltaIndex(index).to_numpy().astype("timedelta64[ns]"), None
    if types.is_integer_dtype(index.dtype) and not index.hasnans:
        return index.to_numpy(dtype=np.int64), None
    if types.is_numeric_dtype(index.dtype) and kind in _NUMBERS:
        return index.to_numpy(dtype=np.float64, na_value=np.nan), None
    if kind in ("string", "empty"):
        return np.asarray([str(value) for value in index]), None
    kinds = {type(value).__name__ for value in index}
    if kind == "datetime":
        raise ValueError(
            f"the index of {name} must hold dates of one time zone, got objects of {sorted(kinds)}:"
            " index = pandas.to_datetime(index, utc=True)"
        )
    raise ValueError(
        f"the index of {name} must hold dates, numbers or strings, got objects of {sorted(kinds)}: "
        "convert it, or take the rows as consecutive, .reset_index(drop=True)"
    )


def _from_polars(name: str, frame: Frame) -> Frame:
    import polars

    if isinstance(frame, polars.LazyFrame):
        raise ValueError(f"{name} must be collected first, got a LazyFrame: .collect()")
    if isinstance(frame, polars.Series):
        frame = frame.to_frame()
    if not isinstance(frame, polars.DataFrame):
        return frame
    dates = [c for c in frame.columns if frame[c].dtype in (polars.Date, polars.Datetime)]
    if len(dates) > 1:
        raise ValueError(
            f"{name} must have one column of dates at most, got {dates}: select the one that counts"
        )
    names = tuple(column for column in frame.columns if column not in dates)
    values = []
    for column in names:
        data = frame[column]
        if not (data.dtype.is_numeric() or data.dtype == polars.Boolean):
            raise ValueError(_not_numbers(name, column, data.dtype))
        values.append(data.cast(polars.Float64).to_numpy().astype(np.float64))
    index = zone = None
    if dates:
        kind = frame[dates[0]].dtype
        zone = getattr(kind, "time_zone", None)
        moments = (
            frame[dates[0]].cast(polars.Datetime("ns"))
            if kind == polars.Date
            else (
                frame[dates[0]].dt.replace_time_zone(None)
                if zone is None
                else frame[dates[0]].dt.convert_time_zone("UTC").dt.replace_time_zone(None)
            )
        )
        index = moments.dt.cast_time_unit("ns").to_numpy().astype("datetime64[ns]")
    title = dates[0] if dates else None
    return _table(values, frame.height, Labels(index, title, zone, names))


def _from_xarray(name: str, data: Frame) -> Frame:
    import xarray

    if isinstance(data, xarray.Dataset):
        axes = {variable.dims for variable in data.data_vars.values()}
        if len(axes) != 1 or len(next(iter(axes))) != 1:
            raise ValueError(
                f"{name} must be a Dataset of variables that all have one and the same dimension, "
                f"got {sorted(map(str, axes))}"
            )
        (axis,) = next(iter(axes))
        names = tuple(str(variable) for variable in data.data_vars)
        columns = [data[variable] for variable in data.data_vars]
    elif isinstance(data, xarray.DataArray):
        axis = _time_axis(name, data)
        rest = [d for d in data.dims if d != axis]
        if not rest:
            columns, names = [data], None if data.name is None else (str(data.name),)
        else:
            (other,) = rest
            columns = [data.isel({other: i}) for i in range(data.sizes[other])]
            names = None
            if other in data.coords:
                names = tuple(str(value) for value in data.coords[other].to_numpy())
    else:
        return data
    _require_distinct(name, names)
    for column, title in zip(columns, names or [data.name] * len(columns), strict=True):
        if column.dtype.kind not in "biuf":
            raise ValueError(_not_numbers(name, title, column.dtype))
    values = [np.asarray(column.to_numpy(), dtype=np.float64) for column in columns]
    index = zone = None
    if axis in data.indexes:
        index, zone = _pandas_index(name, data.indexes[axis])
    return _table(values, data.sizes[axis], Labels(index, str(axis), zone, names))


def _time_axis(name: str, data: "xarray.DataArray") -> Hashable:
    """The dimension of time: the one with dates, else the one called so, else the first."""
    if not 1 <= data.ndim <= 2:
        raise ValueError(f"{name} must have one or two dimensions, got {data.dims}")
    dated = [d for d in data.dims if d in data.coords and data.coords[d].dtype.kind == "M"]
    named = [d for d in data.dims if str(d).lower() == "time"]
    return (dated or named or list(data.dims))[0]


def _table(columns: Iterable[np.ndarray], num: int, labels: Labels) -> Table:
    columns = list(columns)
    return Table(np.column_stack(columns) if columns else np.empty((num, 0)), labels)


def _not_numbers(name: str, column: object, dtype: object) -> str:
    return (
        f"{_column_of(column, name)} must hold real numbers, got {dtype}: select the columns that "
        "the model observes"
    )


def _column_of(column: object, name: str) -> str:
    return name if column is None else f"column {column!r} of {name}"


def _require_distinct(name: str, names: tuple[str, ...] | None) -> None:
    if names is not None and len(set(names)) < len(names):
        twice = sorted({column for column in names if names.count(column) > 1})
        raise ValueError(f"the columns of {name} must be distinct, got {twice} more than once")
