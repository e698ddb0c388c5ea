"""A command line, understood and checked, before anything heavy is imported."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from .._frames.delimited import Wanted


@dataclass(frozen=True)
class Request:
    """A command line, in the words of the library."""

    data: str
    wanted: Wanted
    model: str
    functions: str | None = None
    values: Mapping[str, float] = field(default_factory=dict)
    tol: float | None = None
    engine: str = "auto"
    first: str | None = None
    out: Path | None = None
    form: tuple[str, str] = ("csv", "netcdf")
    title: str | None = None
    certificate: bool = False
    num_inputs: int = 0  # the last of the wanted columns are inputs
