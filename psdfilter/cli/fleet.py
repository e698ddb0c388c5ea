"""`psdfilter fleet`: one model and a file of very many series.

Nothing heavy is imported before it is needed.
"""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ._errors import exits
from ._options import Options, check_place, check_tol, choice

if TYPE_CHECKING:
    from ..fleet._sources import AbstractSource


def fleet(
    model: Annotated[str, typer.Argument(help="path.py:name, or a saved model.")],
    data: Annotated[
        str,
        typer.Argument(help="Parquet or CSV in long form, or a Zarr array (series, time, value)."),
    ],
    out: Annotated[Path, typer.Option("--out", "-o", help="Zarr store for the results.")],
    scheduler: Annotated[
        str | None, typer.Option(help="Address of a Dask scheduler, tcp://host:port.")
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with a store.")] = False,
    what: Annotated[str, typer.Option(help="filter, smooth or forecast.")] = "filter",
    steps: Annotated[int | None, typer.Option("--steps", "-n", help="Of a forecast.")] = None,
    quantile: Annotated[
        list[float] | None, typer.Option("--quantile", "-q", help="A level; may be repeated.")
    ] = None,
    series: Annotated[str, typer.Option(help="Column that names the series.")] = "series",
    time: Annotated[str | None, typer.Option("--time", "-t", help="Column of times.")] = None,
    column: Annotated[
        list[str] | None, typer.Option("--column", "-c", help="Column of y; may be repeated.")
    ] = None,
    tol: Annotated[float, typer.Option(help="Total variation error.")] = 1e-3,
    engine: Annotated[str, typer.Option(help="As for learn.")] = "auto",
    quiet: Annotated[bool, typer.Option("--quiet", help="No progress bar.")] = False,
) -> None:
    """Filter, smooth or forecast many series, on this machine or on a cluster.

    psdfilter fleet model.py:ssm data.parquet --out store.zarr
    """
    _ = choice("--what", what, ("filter", "smooth", "forecast"))
    check_tol(tol)
    if (what == "forecast") != (steps is not None):
        raise typer.BadParameter(
            f"belongs to --what forecast, and to it alone, got --what {what}", param_hint="--steps"
        )
    for level in quantile or ():
        if not 0 < level < 1:
            raise typer.BadParameter(f"must lie in (0, 1), got {level}", param_hint="--quantile")
    check_place(out, is_file=False)
    if not resume and out.is_dir() and any(out.iterdir()):
        raise typer.BadParameter(
            f"{out} exists: pass --resume to go on with it, or another place", param_hint="--out"
        )
    columns: dict[str, str | list[str]] = {"series": series}
    columns |= {} if time is None else {"time": time}
    columns |= {} if column is None else {"values": column}
    options: Options = {"what": what, "steps": steps, "quantiles": quantile or ()}
    options |= {"progress": False if quiet else None}
    with exits(model, data):
        print(_run((model, tol, engine), (data, columns), (out, resume, scheduler), options))


def _run(
    model: tuple[str, float, str],
    data: tuple[str, dict[str, str | list[str]]],
    place: tuple[Path, bool, str | None],
    options: Options,
) -> str:
    """The summary."""
    import warnings

    from psdfilter._settings import enable_x64
    from psdfilter.cli._model import find_model
    from psdfilter.fleet import run_fleet

    enable_x64()
    source = _source(*data)
    text, tol, engine = model
    learned = find_model(text).learn({}, tol, engine)
    out, resume, address = place
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the summary says it
        if address is None:
            return run_fleet(learned, source, None, out, resume, **options).attrs["summary"]
        from distributed import Client

        with Client(address, timeout="10s") as client:
            print(f"dashboard: {client.dashboard_link}")
            return run_fleet(learned, source, client, out, resume, **options).attrs["summary"]


def _source(path: str, columns: dict[str, str | list[str]]) -> "AbstractSource":
    """The series of a file."""
    from psdfilter._frames.errors import DataError
    from psdfilter.fleet._sources import as_source

    if not Path(path).exists():
        raise DataError(path, "there is no such file")
    try:
        return as_source(path, columns=columns)
    except DataError:
        raise
    except (ValueError, TypeError, OSError) as error:
        raise DataError(path, str(error)) from None


if __name__ == "__main__":
    typer.run(fleet)
