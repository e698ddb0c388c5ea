"""Where the series of a fleet come from: a mapping, a list, a data frame, Parquet or Zarr.

A source knows the labels and lengths of all series, and reads blocks of them when they are asked
for: neither Parquet nor Zarr data are in memory as a whole.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np
from jaxtyping import ArrayLike

from .._frames.delimited import Wanted, cells_of
from .._frames.errors import DataError, quoted
from .._frames.table import Frame, Times
from .._inference.series import are_several
from .._statespace.functions import Inputs

if TYPE_CHECKING:
    import pyarrow.dataset


class Raw(NamedTuple):
    """One series as it came: observations, times and inputs."""

    ys: Frame
    times: Times = None
    inputs: Inputs = None


class AbstractSource(ABC):
    """Series in a fixed order."""

    labels: np.ndarray
    lengths: np.ndarray
    is_stored: ClassVar[bool] = False  # read from files, wherever it is needed

    @abstractmethod
    def read(self, start: int, stop: int) -> list[Raw]:
        """Some of the series."""

    def __len__(self) -> int:
        return len(self.labels)


class Listed(AbstractSource):
    """Series in memory."""

    def __init__(self, labels: Sequence[object], raws: Sequence[Raw]):
        """Keep them as they are; a bad one is found when it is its turn."""
        self.labels, self.raws = as_labels(labels), list(raws)
        self.lengths = np.asarray([_length(raw.ys) for raw in raws], dtype=int)

    def read(self, start: int, stop: int) -> list[Raw]:
        """A slice."""
        return self.raws[start:stop]


# Columns by what they hold, as users write them: {"series": ..., "values": [...]}.
Named = Mapping[str, Any]


class Columns(NamedTuple):
    """Which columns of a table hold what."""

    series: str = "series"
    time: str | None = None
    values: tuple[str, ...] | None = None
    inputs: tuple[str, ...] = ()

    @staticmethod
    def of(given: Named | None, names: Sequence[str]) -> "Columns":
        """Checked against the names that a table has; the defaults are "series" and "time"."""
        known = {"series", "time", "values", "inputs"}
        given = {} if given is None else dict(given)
        if set(given) - known:
            raise ValueError(f"columns may name {sorted(known)}, got {sorted(given)}")
        series = given.get("series", "series")
        time = given.get("time", "time" if "time" in names else None)
        inputs = _several(given.get("inputs", ()))
        used = {series, time, *inputs}
        values = _several(given.get("values") or [n for n in names if n not in used])
        missing = [n for n in (series, time, *values, *inputs) if n is not None and n not in names]
        if missing or not values:
            raise ValueError(
                f"series is a table with the columns {list(names)}, which lacks {missing}: say "
                'columns={"series": ..., "time": ..., "values": [...]} (--series, --time, --column)'
            )
        return Columns(series, time, values, inputs)

    @property
    def all(self) -> list[str]:
        """Those that are read."""
        first = [self.series] if self.time is None else [self.series, self.time]
        return [*first, *self.values, *self.inputs] if self.values else first


def _several(names: str | Sequence[str]) -> tuple[str, ...]:
    return (names,) if isinstance(names, str) else tuple(names)


class Table(AbstractSource):
    """A long table, one row for each observation, in memory; sorted by series and time."""

    def __init__(self, arrays: Mapping[str, np.ndarray], columns: Columns):
        """From one array for each column."""
        self.labels, self.lengths, groups = grouped(arrays, columns)
        self._raws = groups

    def read(self, start: int, stop: int) -> list[Raw]:
        """A slice."""
        return self._raws[start:stop]


def grouped(
    arrays: Mapping[str, np.ndarray], columns: Columns
) -> tuple[np.ndarray, np.ndarray, list[Raw]]:
    """Labels in the order of their first rows, lengths, and series sorted by time."""
    owner = arrays[columns.series]
    labels, first, codes = np.unique(owner, return_index=True, return_inverse=True)
    rank = np.empty(len(labels), int)
    rank[np.argsort(first, kind="stable")] = np.arange(len(labels))
    codes = rank[codes]
    labels = labels[np.argsort(first, kind="stable")]
    keys = (codes,) if columns.time is None else (arrays[columns.time], codes)
    order = np.lexsort(keys)
    lengths = np.bincount(codes, minlength=len(labels))
    ends = np.cumsum(lengths)
    assert columns.values is not None
    ys = np.stack([arrays[name] for name in columns.values], axis=1)[order]
    times = None if columns.time is None else _whole(arrays[columns.time][order])
    inputs = None
    if columns.inputs:
        inputs = np.stack([arrays[name] for name in columns.inputs], axis=1)[order]
    raws = [
        Raw(
            ys[end - n : end],
            None if times is None else times[end - n : end],
            None if inputs is None else inputs[end - n : end],
        )
        for n, end in zip(lengths, ends, strict=True)
    ]
    return as_labels(labels), lengths, raws


def _whole(times: np.ndarray) -> np.ndarray:
    if times.dtype.kind not in "iuf":
        raise ValueError(
            f"the time column must hold whole numbers of transitions, got {times.dtype}: count "
            "them from the first observation, or drop the column for observations at every step"
        )
    return times


class Parquet(AbstractSource):
    """A Parquet file or data set in long form, read a block of series at a time.

    Row groups that hold none of a block's series are skipped by their statistics, which makes files
    that are sorted by series quick to read.
    """

    is_stored: ClassVar[bool] = True

    def __init__(self, path: str, columns: Named | None):
        """Read the column of labels alone."""
        self.path = str(path)
        dataset = self._dataset()
        self.columns = Columns.of(columns, dataset.schema.names)
        counts: dict[Any, int] = {}
        for batch in dataset.to_batches(columns=[self.columns.series]):
            found, times = np.unique(
                batch.column(0).to_numpy(zero_copy_only=False), return_counts=True
            )
            for label, num in zip(found.tolist(), times.tolist(), strict=True):
                counts[label] = counts.get(label, 0) + num
        ordered = sorted(counts)
        self.labels = as_labels(ordered)
        self.lengths = np.asarray([counts[label] for label in ordered], dtype=int)

    def _dataset(self) -> "pyarrow.dataset.Dataset":
        import pyarrow.dataset

        return pyarrow.dataset.dataset(self.path)

    def read(self, start: int, stop: int) -> list[Raw]:
        """The rows of some series."""
        import pyarrow.dataset as ds

        wanted = self.labels[start:stop]
        if not len(wanted):
            return []
        keep = ds.field(self.columns.series).isin(wanted.tolist())
        table = self._dataset().to_table(columns=self.columns.all, filter=keep)
        arrays = {name: np.asarray(table[name].to_numpy()) for name in self.columns.all}
        labels, _, raws = grouped(arrays, self.columns)
        place = {label: i for i, label in enumerate(labels.tolist())}
        return [raws[place[label]] for label in wanted.tolist()]


class Zarred(AbstractSource):
    """A Zarr array (S, T) or (S, T, p): a series ends with its last number."""

    is_stored: ClassVar[bool] = True

    def __init__(self, array: Any, path: str | None = None):
        """Look for the ends, some series at a time."""
        if array.ndim not in (2, 3):
            raise ValueError(
                f"series is a Zarr array of shape {array.shape}: (S, T) or (S, T, p) is expected"
            )
        self._array, self._path = array, path
        self.labels = np.arange(array.shape[0])
        step = max(1, 2**22 // max(1, int(np.prod(array.shape[1:]))))
        ends = [self._ends(i, min(i + step, len(self))) for i in range(0, len(self), step)]
        self.lengths = np.concatenate(ends) if ends else np.zeros(0, int)

    def __getstate__(self) -> dict[str, Any]:
        # Workers open the array again, if it is in a place.
        return {**self.__dict__, "_array": None if self._path else self._array}

    def _values(self, start: int, stop: int) -> np.ndarray:
        if self._array is None:
            import zarr

            self._array = zarr.open_array(self._path, mode="r")
        values = np.asarray(self._array[start:stop], dtype=float)
        return values[..., None] if values.ndim == 2 else values

    def _ends(self, start: int, stop: int) -> np.ndarray:
        seen: np.ndarray = np.logical_not(np.isnan(self._values(start, stop)).all(axis=2))
        return np.where(seen.any(axis=1), seen.shape[1] - np.argmax(seen[:, ::-1], axis=1), 0)

    def read(self, start: int, stop: int) -> list[Raw]:
        """A slice, without what follows the ends."""
        values = self._values(start, stop)
        return [Raw(row[:n]) for row, n in zip(values, self.lengths[start:stop], strict=True)]


def as_source(
    series: Frame, times: Times = None, inputs: Inputs = None, columns: Named | None = None
) -> AbstractSource:
    """Whatever holds several series; `times` and `inputs` are laid out as they are."""
    if isinstance(series, AbstractSource):
        return series
    if isinstance(series, Mapping):
        labels = list(series)
        raws = [Raw(series[k], _of(times, k), _of(inputs, k)) for k in labels]
        return Listed(labels, raws)
    if isinstance(series, str | Path):
        return _stored(str(series), columns)
    if hasattr(series, "columns") and hasattr(series, "__getitem__"):
        chosen = Columns.of(columns, list(series.columns))
        return Table({name: np.asarray(series[name].to_numpy()) for name in chosen.all}, chosen)
    if type(series).__module__.startswith("zarr."):
        return Zarred(series, _place_of(series))
    if isinstance(series, list | tuple):
        if len(series) and not _is_listed(series):
            raise ValueError(
                "series must be several: a list of arrays (T_i, p); a single one is for run_filter"
            )
        raws = [Raw(y, _of(times, i), _of(inputs, i)) for i, y in enumerate(series)]
        return Listed(range(len(series)), raws)
    if np.ndim(series) == 3:
        return as_source(list(np.asarray(series)), times, inputs)
    raise ValueError(
        "series must be a mapping, a list of arrays (T_i, p), an array (S, T, p), a data frame in "
        f"long form, or the path of Parquet or Zarr data, got {type(series).__name__}"
    )


def _is_listed(series: Sequence[ArrayLike]) -> bool:
    """As for `run_filter`; empty series, and ones that are no arrays at all, are series too."""
    try:
        shapes = [np.shape(y) for y in series]
    except ValueError:
        return True
    axes = {len(s) for s in shapes}
    if axes <= {1} and len(set(shapes)) > 1:
        return True
    return are_several(series) if axes <= {0, 1} else True


def _stored(path: str, columns: Named | None) -> AbstractSource:
    if not Path(path).exists():
        raise ValueError(f"series is the path {path}, where there is nothing")
    if path.rstrip("/").endswith(".zarr"):
        import zarr

        return Zarred(zarr.open_array(path, mode="r"), path)
    if path.endswith(".csv"):
        return _from_text(path, columns)
    return Parquet(path, columns)


def _from_text(path: str, columns: Named | None) -> AbstractSource:
    """CSV in long form; what is wrong in it is said with line and column."""
    cells = cells_of(Path(path).read_bytes(), path, Wanted(header=True))
    chosen = Columns.of(columns, cells.names)
    if twice := [name for name in chosen.all if cells.names.count(name) > 1]:
        raise DataError(path, f"there are several columns {quoted(twice[0])}", line=1)
    assert chosen.values is not None
    arrays = {name: cells.numbers(name) for name in (*chosen.values, *chosen.inputs)}
    arrays[chosen.series] = cells.words(chosen.series)
    if chosen.time is not None:
        arrays[chosen.time] = cells.times(chosen.time)[0]
    return Table(arrays, chosen)


def _place_of(array: object) -> str | None:
    """Where a Zarr array is on disk, if it is: a whole store of its own."""
    root = getattr(getattr(array, "store", None), "root", None)
    return None if root is None or getattr(array, "path", "") else str(root)


def _of(parts: Any, key: Any) -> Any:
    return None if parts is None else parts[key]


def _length(ys: Frame) -> int:
    try:
        return len(ys)
    except TypeError:
        return 0


def as_labels(labels: Sequence[object] | np.ndarray) -> np.ndarray:
    """Numbers or strings, as an array that any store takes."""
    array = np.asarray(list(labels) if not isinstance(labels, np.ndarray) else labels)
    if array.dtype.kind in "iu":
        return array.astype(np.int64)
    return np.asarray([str(label) for label in array.tolist()], dtype=str)
