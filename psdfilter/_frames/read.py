"""A series of observations out of a file: text, Parquet, NetCDF or Zarr."""

import sys
from dataclasses import replace
from pathlib import Path

import numpy as np

from .cells import CellError, as_whole
from .delimited import Wanted, checked_order, parse_delimited, pick
from .errors import DataError, quoted
from .labels import Labels
from .out import needed
from .table import Frame, Table, as_table

_TEXT = (".csv", ".tsv", ".txt", ".dat", "")
_PARQUET = (".parquet", ".pq")
_NETCDF = (".nc", ".nc4", ".cdf", ".netcdf")


def read_table(path: str, wanted: Wanted) -> Table:
    """Times and columns of a file; `-` is CSV from the standard input.

    Whatever is wrong is a `DataError` that names the file and, in text, line and column.
    """

    def refused(row: int, name: str, message: str) -> DataError:
        return DataError(path, f"row {row + 1}: column {quoted(name)}: {message}")

    table = _read(path, wanted)
    return table if table.refused is not None else replace(table, refused=refused)


def _read(path: str, wanted: Wanted) -> Table:
    if path == "-":
        return parse_delimited(sys.stdin.buffer.read(), "stdin", wanted)
    place = Path(path)
    suffix = place.suffix.lower()
    is_zarr = suffix == ".zarr"
    if not place.exists():
        raise DataError(path, "there is no such file")
    if place.is_dir() and not is_zarr:
        raise DataError(path, "this is a directory")
    if suffix in _TEXT:
        return parse_delimited(place.read_bytes(), path, wanted)
    if suffix in _PARQUET:
        return _from_parquet(place, wanted)
    if suffix in _NETCDF or is_zarr:
        return _from_xarray(place, wanted, "zarr" if is_zarr else None)
    known = ", ".join((*_TEXT[:-1], *_PARQUET, *_NETCDF[:2], ".zarr"))
    raise DataError(path, f"files of type {quoted(suffix)} are not known: {known} are")


def _from_parquet(place: Path, wanted: Wanted) -> Table:
    polars = needed("polars", "reading Parquet", "cli")
    try:
        names = list(polars.read_parquet_schema(place))
        chosen = pick(names, wanted, str(place))
        times = [] if wanted.time is None else [wanted.time]
        frame = polars.read_parquet(place, columns=[*times, *chosen])
    except (polars.exceptions.PolarsError, OSError) as error:
        raise DataError(place, f"this is no Parquet file that can be read ({error})") from None
    dated = [c for c in chosen if frame[c].dtype in (polars.Date, polars.Datetime)]
    if dated:
        raise DataError(place, f"column {quoted(dated[0])} holds dates: pass it as --time")
    numeric = wanted.time is not None and frame[wanted.time].dtype.is_numeric()
    table = _checked(place, frame.drop(wanted.time) if numeric else frame)
    if numeric:
        assert wanted.time is not None
        # Whole numbers stay so: floats would round nanoseconds since 1970. A missing one is NaN.
        at = frame[wanted.time].to_numpy()
        at = at.astype(np.int64) if at.dtype.kind in "iu" else as_whole(at.astype(float))
        table = Table(table.values, replace(table.labels, values=at, name=wanted.time))
    return _ordered(place, table, wanted)


def _from_xarray(place: Path, wanted: Wanted, engine: str | None) -> Table:
    xarray = needed("xarray", "reading NetCDF and Zarr", "cli")
    try:
        with xarray.open_dataset(place, engine=engine) as opened:
            names = [str(name) for name in opened.data_vars]
            free = wanted.time is None or wanted.time in names
            chosen = pick(names, wanted if free else replace(wanted, time=None), str(place))
            if wanted.time is not None and wanted.time in names:
                (axis,) = opened[wanted.time].dims
                opened = opened.assign_coords({axis: (axis, opened[wanted.time].to_numpy())})
            data = opened[list(chosen)].load()
    except (OSError, ValueError) as error:
        if isinstance(error, DataError):
            raise
        kind = "Zarr store" if engine else "NetCDF file"
        raise DataError(place, f"this is no {kind} that can be read ({error})") from None
    if wanted.time is not None and wanted.time not in (*names, *map(str, data.dims)):
        raise DataError(
            place, f"there is no time {quoted(wanted.time)}: {', '.join(map(str, data.dims))} are"
        )
    table = _checked(place, data)
    if wanted.time is None:
        table = Table(table.values, Labels(columns=table.labels.columns))
    return _ordered(place, table, wanted)


def _checked(place: Path, frame: Frame) -> Table:
    try:
        return as_table("the file", frame)
    except ValueError as error:
        raise DataError(place, str(error)) from None


def _ordered(place: Path, table: Table, wanted: Wanted) -> Table:
    """Rows in the order of their times, if they have some."""
    if not len(table):
        raise DataError(place, "the file has no rows of data")
    if np.isinf(table.values).any():
        row = int(np.argwhere(np.isinf(table.values))[0, 0])
        raise DataError(place, f"row {row + 1} holds an infinite number", line=None)
    at = table.labels.values
    if at is None or wanted.time is None or not table.labels.is_ordered:
        return Table(table.values, replace(table.labels, values=None, name=None))
    missing = np.isnat(at) if at.dtype.kind == "M" else np.isnan(at.astype(float))
    if missing.any():
        row = int(np.flatnonzero(missing)[0])
        raise DataError(place, f"row {row + 1}: the time is missing")
    try:
        order = checked_order(at, wanted.sort, None)
    except CellError as error:
        raise DataError(place, f"row {error.row + 1}: {error}") from None
    return Table(table.values[order], replace(table.labels, values=at[order]))
