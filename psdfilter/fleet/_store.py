"""Where results go: arrays in memory, or a Zarr store that is written a block at a time.

A block is some consecutive series, and one chunk of every variable. Its chunks are written first,
each of them whole or not at all, and its fingerprint last: a block counts if its fingerprint is
that of the model, the data and the options it is asked for, and nothing else does.
"""

import contextlib
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ._kernel import Rows, Work

if TYPE_CHECKING:
    import xarray

Facts = Mapping[str, object]  # attributes of a dataset

_FORMAT = 1
_DONE = "fingerprint"


class Shape(NamedTuple):
    """The sizes of a fleet's results."""

    labels: np.ndarray
    longest: int
    dim: int
    block: int  # series of a block
    work: Work

    @property
    def num_blocks(self) -> int:
        """Number of blocks."""
        return -(-len(self.labels) // self.block)

    def bounds(self, index: int) -> tuple[int, int]:
        """First series of a block, and the one after its last."""
        return index * self.block, min((index + 1) * self.block, len(self.labels))

    def coordinates(self) -> dict[str, object]:
        """Of the data set."""
        work = self.work
        start = 1 if work.first == "predict" or work.what == "forecast" else 0
        rows = work.rows_of(self.longest)
        out: dict[str, object] = {
            "series": self.labels,
            "time": np.arange(start, start + rows),
            "state": np.arange(self.dim),
        }
        if work.levels:
            out["quantile"] = np.asarray(work.levels)
        return out


def dims_of(name: str, work: Work) -> tuple[str, ...]:
    """The axes of a variable."""
    if name in ("mean", "sd"):
        return "series", "time", "state"
    if name == "quantiles":
        return "series", "time", "state", "quantile"
    if name == "log_likelihoods":
        return "series", "row" if work.what == "forecast" else "time"
    return ("series", *(("parameter",) if name in ("estimate", "standard_error") else ()))


class Memory:
    """Results in memory."""

    def __init__(self, shape: Shape, template: Rows):
        """Arrays for all series, of the kinds that the results of none have."""
        num = len(shape.labels)
        self.shape = shape
        self.rows = {
            name: np.empty((num, *array.shape[1:]), array.dtype) for name, array in template.items()
        }

    def write(self, index: int, rows: Rows) -> None:
        """A block."""
        start, stop = self.shape.bounds(index)
        for name, values in rows.items():
            self.rows[name][start:stop] = values

    def dataset(self, attributes: Facts, extra: Facts) -> "xarray.Dataset":
        """All of it."""
        import xarray

        fields = {
            name: (dims_of(name, self.shape.work), values) for name, values in self.rows.items()
        }
        coordinates = {**self.shape.coordinates(), **extra}
        return xarray.Dataset(fields, coords=coordinates, attrs=dict(attributes))


class Store:
    """A Zarr store on disk; small and picklable, so that workers write to it themselves."""

    def __init__(self, path: str, shape: Shape):
        """Neither created nor opened yet."""
        self.path, self.shape = str(path), shape

    def prepare(
        self,
        template: Rows,
        attributes: Facts,
        resume: bool,
        extra: Facts,
    ) -> None:
        """Create the store, or check that the one there is of this fleet."""
        import zarr

        target = Path(self.path)
        if target.exists() and any(target.iterdir()):
            if not resume:
                raise ValueError(
                    f"out = {self.path} exists: pass resume=True to go on with it, or another path"
                )
            self._check(zarr.open_group(self.path, mode="r"), attributes)
            for rest in target.rglob("*.partial"):
                rest.unlink(missing_ok=True)
            return
        with clear_errors(self.path):
            # Made beside its place and moved there, so that no store without its metadata appears.
            beside = target.with_name(f".{target.name}.new")
            shutil.rmtree(beside, ignore_errors=True)
            try:
                self._create(beside, template, attributes, extra)
                if target.exists():
                    target.rmdir()
                _ = beside.replace(target)
            finally:
                shutil.rmtree(beside, ignore_errors=True)

    def _create(
        self,
        path: Path,
        template: Rows,
        attributes: Facts,
        extra: Facts,
    ) -> None:
        import xarray
        import zarr

        shape = self.shape
        coordinates = {**shape.coordinates(), **extra}
        head = xarray.Dataset(coords=coordinates, attrs=dict(attributes))
        _ = head.to_zarr(path, mode="w", zarr_format=2, consolidated=False)
        group = zarr.open_group(path, mode="r+")
        for name, array in template.items():
            made = group.create_array(
                name,
                shape=(len(shape.labels), *array.shape[1:]),
                chunks=(shape.block, *(max(n, 1) for n in array.shape[1:])),
                dtype=array.dtype,
                # xarray takes a fill value for missing: codes and words have none.
                fill_value=np.nan if array.dtype.kind == "f" else None,
            )
            made.attrs["_ARRAY_DIMENSIONS"] = list(dims_of(name, shape.work))
        done = group.create_array(
            _DONE, shape=(shape.num_blocks, 32), chunks=(1, 32), dtype="u1", fill_value=0
        )
        done.attrs["_ARRAY_DIMENSIONS"] = ["block", "byte"]
        with _quietly():
            _ = zarr.consolidate_metadata(path, zarr_format=2)

    def _check(self, group: Any, attributes: Facts) -> None:
        wrong = [k for k, v in attributes.items() if group.attrs.get(k) != v]
        labels = np.asarray(group["series"][:])
        if wrong or not np.array_equal(labels, self.shape.labels):
            what = ", ".join(wrong) or "the series"
            raise ValueError(
                f"out = {self.path} holds the results of another fleet ({what} differ): choose "
                "another path, or remove it"
            )

    def is_done(self, index: int, digest: str) -> bool:
        """Whether a block holds what is asked for."""
        import zarr

        found = zarr.open_group(self.path, mode="r")[_DONE][index]  # pyright: ignore
        return bytes(np.asarray(found, dtype=np.uint8)).hex() == digest

    def write(self, index: int, rows: Rows, digest: str) -> None:
        """All chunks of a block, then its fingerprint."""
        import zarr

        start, stop = self.shape.bounds(index)
        with clear_errors(self.path):
            group = zarr.open_group(self.path, mode="r+")
            for name, values in rows.items():
                group[name][start:stop] = values  # pyright: ignore
            mark = np.frombuffer(bytes.fromhex(digest), dtype=np.uint8)
            group[_DONE][index] = mark  # pyright: ignore

    def codes(self) -> Rows:
        """What the summary needs of all series."""
        import zarr

        group = zarr.open_group(self.path, mode="r")
        names = ("code", "error_estimate", "method", "message", "length")
        return {name: np.asarray(group[name][:]) for name in names}  # pyright: ignore

    def dataset(self) -> "xarray.Dataset":
        """Opened lazily."""
        import xarray

        return xarray.open_zarr(
            self.path, chunks=None, consolidated=True, drop_variables=[_DONE], zarr_format=2
        )


@contextlib.contextmanager
def _quietly() -> Iterator[None]:
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


@contextlib.contextmanager
def clear_errors(path: str) -> Iterator[None]:
    """A full disk or an unwritable place, in words that say what is left."""
    try:
        yield
    except OSError as error:
        reason = error.strerror or str(error)
        raise OSError(
            error.errno,
            f"out = {path} cannot be written ({reason}). Blocks that were written before are "
            "whole; make room, or choose a place that can be written, and go on with resume=True "
            "(--resume)",
        ) from error


VERSION = _FORMAT
