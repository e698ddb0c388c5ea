"""What commands leave on disk: whole files or none."""

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

import numpy as np

from .._frames.out import needed
from .._inference.model import AbstractModel
from .._inference.posterior import Forecast
from .._inference.result import AbstractResult
from ..io import save

if TYPE_CHECKING:
    import polars

# Numbers in a file of densities, above which they are left out.
_MOST_DENSITIES = 20_000_000
_GRID = 201


@contextmanager
def replaced_whole(target: Path) -> Iterator[Path]:
    """A path to write to, which takes the place of a file `target` when all has gone well."""
    if target.is_dir():
        raise ValueError(f"--out {target} is a folder: name a file")
    target.parent.mkdir(parents=True, exist_ok=True)
    partial = target.with_name(f".{target.name}.{uuid4().hex}.tmp")
    try:
        yield partial
        os.replace(partial, target)
    finally:
        partial.unlink(missing_ok=True)


class Folder:
    """A folder of results: what is in it is made whole beside it, or in it if it is there."""

    def __init__(self, place: Path):
        """`place` may exist: files of the same names are replaced, others stay."""
        if place.exists() and not place.is_dir():
            raise ValueError(f"--out {place} is a file: name a folder")
        self._place = place
        # The folder above may be one that cannot be written to, and "." has no name.
        above = place if place.is_dir() else place.parent
        self._partial = above / f".{place.name}.{uuid4().hex}.tmp"
        self.written: list[Path] = []
        self.notes: list[str] = []

    def __enter__(self) -> "Folder":
        self._partial.mkdir(parents=True)
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        del error, trace
        try:
            if kind is None:
                self._publish()
        finally:
            shutil.rmtree(self._partial, ignore_errors=True)

    def _publish(self) -> None:
        self._place.mkdir(parents=True, exist_ok=True)
        for made in sorted(self._partial.iterdir()):
            target = self._place / made.name
            if target.is_dir():
                shutil.rmtree(target)
            os.replace(made, target)
            self.written.append(target)

    def add(self, name: str, write: Callable[[Path], object]) -> None:
        """A file or folder, by a function that writes it to a path."""
        _ = write(self._partial / name)


def add_results(
    folder: Folder, result: AbstractResult, model: AbstractModel, form: tuple[str, str]
) -> None:
    """Summary table, densities on a grid and the model; `form` are the kinds of the first two."""
    table, arrays = form
    frame = summary_frame(result)
    if table == "parquet":
        folder.add("summary.parquet", frame.write_parquet)
    else:
        folder.add("summary.csv", frame.write_csv)
    num, dim = result.mean.shape
    grid: int | None = _GRID
    if num * dim * _GRID > _MOST_DENSITIES:
        grid = None
        folder.notes.append(f"densities of {num} rows would not fit: summaries only")
    data = result.to_xarray(grid=grid)
    if arrays == "zarr":
        _ = needed("zarr", "--arrays zarr", "cli")
        # Format 2: consolidated metadata, which readers look for first, are no standard in 3 yet.
        folder.add("densities.zarr", lambda path: data.to_zarr(path, zarr_format=2))
    else:
        _ = needed("h5netcdf", "--arrays netcdf", "cli")
        folder.add("densities.nc", lambda path: data.to_netcdf(path, engine="h5netcdf"))
    try:
        folder.add("model.psd", lambda path: save(path, model))
    except ValueError as error:
        folder.notes.append(f"the model is not saved: {error}")


def summary_frame(result: AbstractResult) -> "polars.DataFrame":
    """A table with times, what was observed, and the law of the state (and of a forecast's y)."""
    polars = needed("polars", "a summary table", "cli")
    frame = result.to_polars()
    seen = observed_columns(result)
    if seen:
        frame = frame.with_columns(**{name: polars.Series(v) for name, v in seen.items()})
        place = frame.columns.index("step") + 1
        rest = [c for c in frame.columns if c not in seen]
        frame = frame.select([*rest[:place], *seen, *rest[place:]])
    if isinstance(result, Forecast):
        frame = _with_observations(frame, result)
    name = frame.columns[0]
    if frame[name].dtype == polars.Datetime("ns"):
        days = frame[name].cast(polars.Date)
        if (days.cast(polars.Datetime("ns")) == frame[name]).all():
            frame = frame.with_columns(days)
    return frame


def _with_observations(frame: "polars.DataFrame", result: Forecast) -> "polars.DataFrame":
    try:
        ahead = result.observations
    except ValueError:  # the model does not know the law of y
        return frame
    later = ahead.to_polars()
    new = [c for c in later.columns if c not in frame.columns]
    return frame.with_columns(*(later[c] for c in new))


def observed_columns(result: AbstractResult) -> dict[str, np.ndarray]:
    """observed_<name> of every column, for results of data."""
    post = getattr(result, "filtered", result)
    series = getattr(post, "series", None)
    if series is None:
        return {}
    ys = np.asarray(series.ys)
    names = None if result.labels is None else result.labels.columns
    names = names or tuple(f"y{i}" for i in range(ys.shape[1]))
    return {f"observed_{name}": ys[:, i] for i, name in enumerate(names)}
