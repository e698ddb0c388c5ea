"""The command line: options and their help. What is done is in `_work`, imported late."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ._errors import exits
from ._options import (
    ArrayKind,
    Certificate,
    Columns,
    Data,
    Decimal,
    Delimiter,
    Encoding,
    Engine,
    First,
    Functions,
    Header,
    Inputs,
    Model,
    Options,
    Out,
    OutFile,
    OutPage,
    Quiet,
    Set,
    Sort,
    TableKind,
    Time,
    TimeFormat,
    Title,
    Tol,
    bounds_of,
    check_place,
    number,
    page_in,
    pairs,
    request_of,
)
from .fleet import fleet

if TYPE_CHECKING:
    from psdfilter._frames.table import Table

    from ._request import Request

_EPILOG = "Documentation and examples: see the guide 'The command line'."
app = typer.Typer(
    name="psdfilter",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    epilog=_EPILOG,
    help=(
        "Nonlinear Bayesian filtering: posterior densities from a model and a file of data.\n\n"
        "The data file comes first, then the options, which are the same for all commands:\n\n"
        "  psdfilter filter data.csv --model model.py:ssm --column y --time date --out results/\n\n"
        "  psdfilter fit data.csv --model model.py:build --column y --out results/\n\n"
        "Exit codes: 0 success, 2 invalid options, 3 bad data, 4 bad model, 5 failed computation."
    ),
)

_DATA = "Data"
_MODEL = "Model"
_OUTPUT = "Output"


def _run(kind: str, options: Options, steps: int = 0) -> None:
    request = request_of(options)
    if request.out is not None:
        is_page = kind == "report"
        check_place(page_in(request.out) if is_page else request.out, is_file=is_page)
    with exits(request.model, request.data):
        table = _table(request)
        from psdfilter.cli._show import Screen
        from psdfilter.cli._work import run

        run(request, table, Screen(options["quiet"]), kind, steps)


def _table(request: "Request") -> "Table":
    """The data, before anything heavy is imported: what is wrong with them is said at once."""
    from psdfilter._frames.read import read_table

    return read_table(request.data, request.wanted)


@app.command("filter", rich_help_panel=_DATA)
def filter_(
    data: Data,
    model: Model,
    column: Columns = None,
    inputs: Inputs = None,
    time: Time = None,
    out: Out = None,
    set_: Set = None,
    tol: Tol = None,
    engine: Engine = "auto",
    first: First = None,
    functions: Functions = None,
    time_format: TimeFormat = None,
    header: Header = None,
    delimiter: Delimiter = None,
    decimal: Decimal = ".",
    encoding: Encoding = "utf-8",
    sort: Sort = False,
    table: TableKind = "csv",
    arrays: ArrayKind = "netcdf",
    title: Title = None,
    certificate: Certificate = False,
    quiet: Quiet = False,
) -> None:
    """The posterior of each state given the data up to its time.

    psdfilter filter data.csv -m model.py:ssm -c y -t date -o results/
    """
    _run("filter", locals())


@app.command(rich_help_panel=_DATA)
def smooth(
    data: Data,
    model: Model,
    column: Columns = None,
    inputs: Inputs = None,
    time: Time = None,
    out: Out = None,
    set_: Set = None,
    tol: Tol = None,
    engine: Engine = "auto",
    first: First = None,
    functions: Functions = None,
    time_format: TimeFormat = None,
    header: Header = None,
    delimiter: Delimiter = None,
    decimal: Decimal = ".",
    encoding: Encoding = "utf-8",
    sort: Sort = False,
    table: TableKind = "csv",
    arrays: ArrayKind = "netcdf",
    title: Title = None,
    certificate: Certificate = False,
    quiet: Quiet = False,
) -> None:
    """The posterior of each state given all data.

    psdfilter smooth data.csv -m model.py:ssm -c y -t date -o results/
    """
    _run("smooth", locals())


@app.command(rich_help_panel=_DATA)
def forecast(
    data: Data,
    model: Model,
    steps: Annotated[int, typer.Option("--steps", "-n", min=1, help="How far to look ahead.")],
    column: Columns = None,
    inputs: Inputs = None,
    time: Time = None,
    out: Out = None,
    set_: Set = None,
    tol: Tol = None,
    engine: Engine = "auto",
    first: First = None,
    functions: Functions = None,
    time_format: TimeFormat = None,
    header: Header = None,
    delimiter: Delimiter = None,
    decimal: Decimal = ".",
    encoding: Encoding = "utf-8",
    sort: Sort = False,
    table: TableKind = "csv",
    arrays: ArrayKind = "netcdf",
    title: Title = None,
    certificate: Certificate = False,
    quiet: Quiet = False,
) -> None:
    """Predictive distributions of future states and observations.

    psdfilter forecast data.csv -m model.py:ssm -c y -t date --steps 12 -o results/
    """
    _run("forecast", locals(), steps)


@app.command(rich_help_panel=_DATA)
def report(
    data: Data,
    model: Model,
    column: Columns = None,
    inputs: Inputs = None,
    time: Time = None,
    out: OutPage = Path("report.html"),
    steps: Annotated[int, typer.Option("--steps", "-n", min=0, help="Of the forecast.")] = 10,
    set_: Set = None,
    tol: Tol = None,
    engine: Engine = "auto",
    first: First = None,
    functions: Functions = None,
    time_format: TimeFormat = None,
    header: Header = None,
    delimiter: Delimiter = None,
    decimal: Decimal = ".",
    encoding: Encoding = "utf-8",
    sort: Sort = False,
    title: Title = None,
    certificate: Certificate = False,
    quiet: Quiet = False,
) -> None:
    """Filter, smoother and forecast on one page for the browser.

    psdfilter report data.csv -m model.py:ssm -c y -t date -o report.html
    """
    _run("report", locals(), steps)


@app.command(rich_help_panel=_DATA)
def fit(
    data: Data,
    model: Model,
    column: Columns = None,
    inputs: Inputs = None,
    time: Time = None,
    out: Out = None,
    free: Annotated[
        list[str] | None, typer.Option("--free", help="A parameter to fit; by default all.")
    ] = None,
    bound: Annotated[
        list[str] | None,
        typer.Option("--bound", help="NAME=LOWER:UPPER, either may be left out."),
    ] = None,
    set_: Set = None,
    tol: Tol = None,
    engine: Engine = "auto",
    first: First = None,
    functions: Functions = None,
    time_format: TimeFormat = None,
    header: Header = None,
    delimiter: Delimiter = None,
    decimal: Decimal = ".",
    encoding: Encoding = "utf-8",
    sort: Sort = False,
    table: TableKind = "csv",
    arrays: ArrayKind = "netcdf",
    title: Title = None,
    certificate: Certificate = False,
    quiet: Quiet = False,
) -> None:
    """Maximum likelihood estimates of parameters, with standard errors.

    psdfilter fit data.csv -m model.py:build -c y --bound q=0: -o results/
    """
    options = dict(locals())
    request, limits = request_of(options), bounds_of(bound)
    if out is not None:
        check_place(out, is_file=False)
    with exits(request.model, request.data):
        read = _table(request)
        from psdfilter.cli._show import Screen
        from psdfilter.cli._work import run_fit

        run_fit(request, read, Screen(quiet), tuple(free or ()), limits)


_ = app.command(rich_help_panel=_DATA)(fleet)


@app.command(rich_help_panel=_MODEL)
def learn(
    model: Annotated[str, typer.Argument(help="path.py:name, or a name that `models` lists.")],
    out: OutFile,
    set_: Set = None,
    tol: Tol = None,
    engine: Engine = "auto",
    quiet: Quiet = False,
) -> None:
    """Learn a model once, for other commands to use.

    psdfilter learn model.py:ssm -o model.psd
    """
    values = {k: number("--set", v) for k, v in pairs("--set", set_).items()}
    check_place(out, is_file=True)
    from psdfilter._frames.delimited import Wanted
    from psdfilter.cli._request import Request
    from psdfilter.cli._show import Screen
    from psdfilter.cli._work import run_learn

    with exits(model):
        asked = Request("", Wanted(), model, values=values, tol=tol, engine=engine)
        run_learn(asked, Screen(quiet), out)


@app.command(rich_help_panel=_MODEL)
def demo(
    system: Annotated[str, typer.Argument(help="One of those that `systems` lists.")] = "sine_map",
    steps: Annotated[int, typer.Option("--steps", "-n", min=2, help="How many.")] = 100,
    seed: Annotated[int, typer.Option(help="Of the simulation.")] = 4,
    out: OutPage = Path("output/report.html"),
    quiet: Quiet = False,
) -> None:
    """Simulate a ready-made system, filter it, and write a report.

    psdfilter demo stochastic_volatility
    """
    check_place(page_in(out), is_file=True)
    from psdfilter.cli._show import Screen
    from psdfilter.cli._work import run_demo

    with exits():
        run_demo(system, steps, seed, out, Screen(quiet))


@app.command(rich_help_panel=_MODEL)
def systems() -> None:
    """List ready-made systems, which can be simulated.

    psdfilter systems
    """
    from psdfilter.cli._show import Screen
    from psdfilter.systems import ALL

    rows = [[name, str(system.dim), system.summary] for name, system in ALL.items()]
    Screen(False).table("ready-made systems", ["name", "d", "what it is"], rows)


@app.command(rich_help_panel=_MODEL)
def models() -> None:
    """List the names that --model takes, with their parameters.

    psdfilter models
    """
    from psdfilter.cli._model import families, find_model
    from psdfilter.cli._show import Screen
    from psdfilter.systems import System

    rows = []
    for name, (summary, family) in families().items():
        words = "start from the data"
        if isinstance(family, System):
            words = ", ".join(f"{k}={v:g}" for k, v in find_model(name).start.items())
        rows.append([name, words, summary])
    Screen(False).table("ready-made models", ["name", "parameters", "what it is"], rows)


@app.callback(invoke_without_command=True)
def _main(
    version: Annotated[bool, typer.Option("--version", help="Show the version.")] = False,
) -> None:
    if version:
        from psdfilter import __version__

        typer.echo(f"psdfilter {__version__}")
        raise typer.Exit
