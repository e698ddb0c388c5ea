"""`psdfilter fleet`: one model and a file of very many series.

Nothing heavy is imported before it is needed.
"""

import sys
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Annotated

import typer

from ._options import Options

if TYPE_CHECKING:
    from .._inference.model import AbstractModel

_MODULE = "psdfilter_model_"


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
    import jax

    jax.config.update("jax_enable_x64", True)
    columns: dict[str, str | list[str]] = {"series": series}
    columns |= {} if time is None else {"time": time}
    columns |= {} if column is None else {"values": column}
    options: Options = {"what": what, "steps": steps, "quantiles": quantile or ()}
    options |= {"columns": columns, "progress": False if quiet else None}
    try:
        print(_run((model, tol, engine), data, (out, resume, scheduler), options))
    except (ValueError, OSError, ImportError) as error:
        _ = sys.stderr.write(f"error: {error}\n")
        raise typer.Exit(5) from None


def _run(
    model: tuple[str, float, str],
    data: str,
    place: tuple[Path, bool, str | None],
    options: Options,
) -> str:
    """The summary."""
    import warnings

    from psdfilter.fleet import run_fleet

    learned = learned_model(*model)
    out, resume, address = place
    client = None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the summary says it
        if address is None:
            return run_fleet(learned, data, None, out, resume, **options).attrs["summary"]
        from distributed import Client

        with Client(address, timeout="10s") as client:
            print(f"dashboard: {client.dashboard_link}")
            return run_fleet(learned, data, client, out, resume, **options).attrs["summary"]


def learned_model(text: str, tol: float, engine: str) -> "AbstractModel":
    """What `path.py:name` or a saved file stands for, learned."""
    from psdfilter._inference.learn import learn
    from psdfilter._inference.model import AbstractModel
    from psdfilter._statespace.model import StateSpaceModel
    from psdfilter.io import load

    path, colon, name = text.rpartition(":")
    found = getattr(_imported(Path(path)), name, None) if colon else load(text)
    if callable(found) and not isinstance(found, AbstractModel | StateSpaceModel):
        found = found()
    if isinstance(found, AbstractModel):
        return found
    if isinstance(found, StateSpaceModel):
        return learn(found, tol, engine=engine)
    raise ValueError(
        f"MODEL = {text} must be a StateSpaceModel, a learned model or a function that returns one "
        f"without arguments, got {type(found).__name__}"
    )


def _imported(path: Path) -> ModuleType:
    """A user's file as a module, whose functions go to workers by value."""
    from importlib.util import module_from_spec, spec_from_file_location

    if not path.is_file():
        raise ValueError(f"MODEL: there is no file {path}")
    spec = spec_from_file_location(f"{_MODULE}{path.stem}", path)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


if __name__ == "__main__":
    typer.run(fleet)
