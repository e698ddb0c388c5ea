"""Options that commands share, and how they are read."""

import math
from pathlib import Path
from tempfile import TemporaryFile
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from ._request import Request

# What was written on the command line, by the names of the functions' arguments.
Options = dict[str, Any]

Data = Annotated[
    str,
    typer.Argument(help="CSV, Parquet, NetCDF or Zarr; - for CSV from the standard input."),
]
Model = Annotated[
    str,
    typer.Option(
        "--model", "-m", help="path.py:name, a saved model, or a name that `models` lists."
    ),
]
Columns = Annotated[
    list[str] | None,
    typer.Option("--column", "-c", help="An observed column; repeat it for several."),
]
Inputs = Annotated[
    list[str] | None,
    typer.Option("--inputs", "-i", help="A column of inputs; repeat it for several."),
]
Time = Annotated[
    str | None,
    typer.Option("--time", "-t", help="The column of dates or numbers; gaps are missing steps."),
]
TimeFormat = Annotated[
    str | None, typer.Option(help='Format of dates that are not ISO 8601, for example "%d.%m.%Y".')
]
Header = Annotated[
    bool | None,
    typer.Option("--header/--no-header", help="Whether CSV has a header; detected."),
]
Delimiter = Annotated[str | None, typer.Option(help="Between cells of CSV; detected.")]
Decimal = Annotated[str, typer.Option(help='"." or "," in numbers of CSV.')]
Encoding = Annotated[str, typer.Option(help="Encoding of the CSV.")]
Sort = Annotated[bool, typer.Option("--sort", help="Sort rows by time instead of refusing them.")]
Set = Annotated[
    list[str] | None, typer.Option("--set", "-s", help="NAME=VALUE: a parameter of the model.")
]
Functions = Annotated[
    str | None, typer.Option(help="path.py:name of a saved model that needs its functions.")
]
Tol = Annotated[float | None, typer.Option(help="Total variation error to aim at.")]
Engine = Annotated[str, typer.Option(help="As learn takes it: auto, adaptive, nodes, exact ...")]
First = Annotated[
    str | None, typer.Option(help="predict: a transition before the first row; observe: none.")
]


def _place(text: str) -> Path:
    if not str(text).strip():
        raise typer.BadParameter("must name a place, got an empty text")
    return Path(text)


Out = Annotated[
    Path | None,
    typer.Option("--out", "-o", parser=_place, help="A folder for tables, densities and a report."),
]
OutFile = Annotated[Path, typer.Option("--out", "-o", parser=_place, help="The file to write.")]
OutPage = Annotated[
    Path, typer.Option("--out", "-o", parser=_place, help="The page, or a folder for it.")
]
TableKind = Annotated[str, typer.Option("--table", help="csv or parquet.")]
ArrayKind = Annotated[str, typer.Option("--arrays", help="netcdf or zarr.")]
Title = Annotated[str | None, typer.Option(help="Title of the report.")]
Certificate = Annotated[bool, typer.Option("--certificate", help="Add error bounds to the report.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print warnings and errors only.")]


def choice(name: str, value: str, allowed: tuple[str, ...]) -> str:
    """One of several words."""
    if value not in allowed:
        raise typer.BadParameter(f"must be {' or '.join(allowed)}, got {value!r}", param_hint=name)
    return value


def check_place(place: Path, is_file: bool) -> None:
    """Stop where nothing could be written, before anything is computed.

    Args:
        place: of a file or a folder, which may exist.
        is_file: which of the two.
    """
    if is_file and place.is_dir():
        raise typer.BadParameter(f"{place} is a folder: name a file", param_hint="--out")
    above = place.absolute()
    if not is_file and place.exists() and not place.is_dir():
        raise typer.BadParameter(f"{place} is a file: name a folder", param_hint="--out")
    above = above.parent if is_file else above
    while not above.exists():
        above = above.parent
    try:
        # Nothing short of writing tells whether one can write: root may do all, but not in /proc.
        with TemporaryFile(dir=above):
            pass
    except OSError as error:
        reason = error.strerror or str(error)
        raise typer.BadParameter(
            f"{place} cannot be written, as {above} says: {reason}", param_hint="--out"
        ) from None


def page_in(place: Path) -> Path:
    """The file of a report: the place itself, or one in the folder that it is."""
    return place if place.suffix.lower() in (".html", ".htm") else place / "report.html"


def pairs(name: str, given: list[str] | None) -> dict[str, str]:
    """NAME=VALUE, NAME=VALUE, ... as a dict."""
    found = {}
    for text in given or []:
        key, equals, value = text.partition("=")
        if not equals or not key.strip():
            raise typer.BadParameter(f"must be NAME=VALUE, got {text!r}", param_hint=name)
        found[key.strip()] = value.strip()
    return found


def number(name: str, text: str) -> float:
    """A number, or an error that names the option."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if math.isnan(value):
        raise typer.BadParameter(f"must be a number, got {text!r}", param_hint=name)
    return value


def check_tol(tol: float) -> None:
    """A total variation error."""
    if not 0 < tol < 2:
        raise typer.BadParameter(f"must lie in (0, 2), got {tol}", param_hint="--tol")


def request_of(options: Options) -> "Request":
    """The options that all commands share, as a `Request`."""
    decimal = choice("--decimal", options["decimal"], (".", ","))
    mark = options["delimiter"]
    if mark is not None and len(mark.encode().decode("unicode_escape")) != 1:
        raise typer.BadParameter(f"must be one character, got {mark!r}", param_hint="--delimiter")
    tol = options["tol"]
    if tol is not None:
        check_tol(tol)
    values = pairs("--set", options["set_"])
    columns, driving = tuple(options["column"] or ()), tuple(options["inputs"] or ())
    if driving and not columns:
        raise typer.BadParameter("needs --column, to tell both apart", param_hint="--inputs")
    if twice := sorted(set(columns) & set(driving)):
        raise typer.BadParameter(f"{twice[0]!r} is a --column already", param_hint="--inputs")
    from psdfilter._frames.delimited import Wanted
    from psdfilter.cli._request import Request

    parts = {
        "data": options["data"],
        "wanted": Wanted(
            columns=(*columns, *driving),
            time=options["time"],
            time_format=options["time_format"],
            header=options["header"],
            delimiter=None if mark is None else mark.encode().decode("unicode_escape"),
            decimal=decimal,
            encoding=options["encoding"],
            sort=options["sort"],
        ),
        "num_inputs": len(driving),
        "model": options["model"],
        "functions": options["functions"],
        "values": {key: number("--set", value) for key, value in values.items()},
        "tol": tol,
        "engine": options["engine"],
        "first": options["first"] and choice("--first", options["first"], ("predict", "observe")),
        "out": options["out"],
        "form": (
            choice("--table", options.get("table", "csv"), ("csv", "parquet")),
            choice("--arrays", options.get("arrays", "netcdf"), ("netcdf", "zarr")),
        ),
        "title": options["title"],
        "certificate": options.get("certificate", False),
    }
    return Request(**parts)


def bounds_of(given: list[str] | None) -> dict[str, tuple[float | None, float | None]]:
    """NAME=LOWER:UPPER as `fit` takes bounds."""
    limits = {}
    for name, text in pairs("--bound", given).items():
        low, colon, high = text.partition(":")
        if not colon:
            raise typer.BadParameter(f"must be LOWER:UPPER, got {text!r}", param_hint="--bound")
        ends = [number("--bound", end) if end.strip() else None for end in (low, high)]
        lower, upper = ends
        if lower is not None and upper is not None and not lower < upper:
            raise typer.BadParameter(
                f"must be LOWER:UPPER with LOWER < UPPER, got {text!r}", param_hint="--bound"
            )
        limits[name] = (lower, upper)
    return limits
