"""The command line: options and their help. What is done is in `_work`, imported late."""

from pathlib import Path
from typing import Annotated, Any

import typer

from ._errors import exits

_EPILOG = "Documentation and examples: see the guide 'The command line'."
app = typer.Typer(
    name="psdfilter",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    epilog=_EPILOG,
    help=(
        "Nonlinear Bayesian filtering: posterior densities from a model and a file of data.\n\n"
        "Data come first, options after them, the same for all commands:\n\n"
        "  psdfilter filter data.csv --model model.py:ssm --column y --time date --out results/\n\n"
        "  psdfilter fit data.csv --model model.py:build --column y --out results/\n\n"
        "Exit codes: 0 done, 2 wrong options, 3 bad data, 4 bad model, 5 the computation failed."
    ),
)

_DATA = "Data"
_MODEL = "Model"
_OUTPUT = "Output"

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
Time = Annotated[
    str | None,
    typer.Option("--time", "-t", help="The column of dates or numbers; gaps are missing steps."),
]
TimeFormat = Annotated[
    str | None, typer.Option(help='Of dates that are not ISO 8601, for example "%d.%m.%Y".')
]
Header = Annotated[
    bool | None, typer.Option("--header/--no-header", help="Whether CSV has names on top.")
]
Delimiter = Annotated[str | None, typer.Option(help="Between cells of CSV; found by itself.")]
Decimal = Annotated[str, typer.Option(help='"." or "," in numbers of CSV.')]
Encoding = Annotated[str, typer.Option(help="Of CSV.")]
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
    str, typer.Option(help="predict: a transition before the first row; observe: none.")
]
Out = Annotated[
    Path | None, typer.Option("--out", "-o", help="A folder for tables, densities and a report.")
]
TableKind = Annotated[str, typer.Option("--table", help="csv or parquet.")]
ArrayKind = Annotated[str, typer.Option("--arrays", help="netcdf or zarr.")]
Title = Annotated[str | None, typer.Option(help="Of the report.")]
Certificate = Annotated[bool, typer.Option("--certificate", help="Also what can be proved.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Say nothing but errors.")]


def _choice(name: str, value: str, allowed: tuple[str, ...]) -> str:
    if value not in allowed:
        raise typer.BadParameter(f"must be {' or '.join(allowed)}, got {value!r}", param_hint=name)
    return value


def _pairs(name: str, given: list[str] | None) -> dict[str, str]:
    """NAME=VALUE, NAME=VALUE, ... as a dict."""
    pairs = {}
    for text in given or []:
        key, equals, value = text.partition("=")
        if not equals or not key.strip():
            raise typer.BadParameter(f"must be NAME=VALUE, got {text!r}", param_hint=name)
        pairs[key.strip()] = value.strip()
    return pairs


def _number(name: str, text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise typer.BadParameter(f"must be a number, got {text!r}", param_hint=name) from None


def _request(options: dict[str, Any]) -> Any:
    """The options that all commands share, as a `Request`."""
    decimal = _choice("--decimal", options["decimal"], (".", ","))
    mark = options["delimiter"]
    if mark is not None and len(mark.encode().decode("unicode_escape")) != 1:
        raise typer.BadParameter(f"must be one character, got {mark!r}", param_hint="--delimiter")
    tol = options["tol"]
    if tol is not None and not 0 < tol < 2:
        raise typer.BadParameter(f"must lie in (0, 2), got {tol}", param_hint="--tol")
    values = _pairs("--set", options["set_"])
    from psdfilter._frames.delimited import Wanted
    from psdfilter.cli._request import Request

    parts = {
        "data": options["data"],
        "wanted": Wanted(
            columns=tuple(options["column"] or ()),
            time=options["time"],
            time_format=options["time_format"],
            header=options["header"],
            delimiter=None if mark is None else mark.encode().decode("unicode_escape"),
            decimal=decimal,
            encoding=options["encoding"],
            sort=options["sort"],
        ),
        "model": options["model"],
        "functions": options["functions"],
        "values": {key: _number("--set", value) for key, value in values.items()},
        "tol": tol,
        "engine": options["engine"],
        "first": _choice("--first", options["first"], ("predict", "observe")),
        "out": options["out"],
        "form": (
            _choice("--table", options.get("table", "csv"), ("csv", "parquet")),
            _choice("--arrays", options.get("arrays", "netcdf"), ("netcdf", "zarr")),
        ),
        "title": options["title"],
        "certificate": options.get("certificate", False),
    }
    return Request(**parts)


def _run(kind: str, options: dict[str, Any], steps: int = 0) -> None:
    request = _request(options)
    with exits():
        table = _table(request)
        from psdfilter.cli._show import Screen
        from psdfilter.cli._work import run

        run(request, table, Screen(options["quiet"]), kind, steps)


def _table(request: Any) -> Any:
    """The data, before anything heavy is imported: what is wrong with them is said at once."""
    from psdfilter._frames.read import read_table

    return read_table(request.data, request.wanted)


@app.command("filter", rich_help_panel=_DATA)
def filter_(
    data: Data,
    model: Model,
    column: Columns = None,
    time: Time = None,
    out: Out = None,
    set_: Set = None,
    tol: Tol = None,
    engine: Engine = "auto",
    first: First = "predict",
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
    """The law of every state given the data up to its time.

    psdfilter filter data.csv -m model.py:ssm -c y -t date -o results/
    """
    _run("filter", locals())


@app.command(rich_help_panel=_DATA)
def smooth(
    data: Data,
    model: Model,
    column: Columns = None,
    time: Time = None,
    out: Out = None,
    set_: Set = None,
    tol: Tol = None,
    engine: Engine = "auto",
    first: First = "predict",
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
    """The law of every state given all data.

    psdfilter smooth data.csv -m model.py:ssm -c y -t date -o results/
    """
    _run("smooth", locals())


@app.command(rich_help_panel=_DATA)
def forecast(
    data: Data,
    model: Model,
    steps: Annotated[int, typer.Option("--steps", "-n", min=1, help="How far to look ahead.")],
    column: Columns = None,
    time: Time = None,
    out: Out = None,
    set_: Set = None,
    tol: Tol = None,
    engine: Engine = "auto",
    first: First = "predict",
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
    """The laws of states and observations after the data.

    psdfilter forecast data.csv -m model.py:ssm -c y -t date --steps 12 -o results/
    """
    _run("forecast", locals(), steps)


@app.command(rich_help_panel=_DATA)
def report(
    data: Data,
    model: Model,
    column: Columns = None,
    time: Time = None,
    out: Annotated[Path, typer.Option("--out", "-o", help="The page, or a folder for it.")] = Path(
        "report.html"
    ),
    steps: Annotated[int, typer.Option("--steps", "-n", min=0, help="Of the forecast.")] = 10,
    set_: Set = None,
    tol: Tol = None,
    engine: Engine = "auto",
    first: First = "predict",
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
    first: First = "predict",
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
    """Parameters of a model by maximum likelihood, with standard errors.

    psdfilter fit data.csv -m model.py:build -c y --bound q=0: -o results/
    """
    options = dict(locals())
    request, limits = _request(options), _bounds(bound)
    with exits():
        table = _table(request)
        from psdfilter.cli._show import Screen
        from psdfilter.cli._work import run_fit

        run_fit(request, table, Screen(quiet), tuple(free or ()), limits)


def _bounds(given: list[str] | None) -> dict[str, tuple[float | None, float | None]]:
    limits = {}
    for name, text in _pairs("--bound", given).items():
        low, colon, high = text.partition(":")
        if not colon:
            raise typer.BadParameter(f"must be LOWER:UPPER, got {text!r}", param_hint="--bound")
        ends = [_number("--bound", end) if end.strip() else None for end in (low, high)]
        limits[name] = (ends[0], ends[1])
    return limits


@app.command(rich_help_panel=_MODEL)
def learn(
    model: Annotated[str, typer.Argument(help="path.py:name, or a name that `models` lists.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="The file to write.")],
    set_: Set = None,
    tol: Tol = None,
    engine: Engine = "auto",
    quiet: Quiet = False,
) -> None:
    """Learn a model once, for other commands to use.

    psdfilter learn model.py:ssm -o model.psd
    """
    values = {k: _number("--set", v) for k, v in _pairs("--set", set_).items()}
    from psdfilter._frames.delimited import Wanted
    from psdfilter.cli._request import Request
    from psdfilter.cli._show import Screen
    from psdfilter.cli._work import run_learn

    with exits():
        asked = Request("", Wanted(), model, values=values, tol=tol, engine=engine)
        run_learn(asked, Screen(quiet), out)


@app.command(rich_help_panel=_MODEL)
def demo(
    system: Annotated[str, typer.Argument(help="One of those that `systems` lists.")] = "sine_map",
    steps: Annotated[int, typer.Option("--steps", "-n", min=2, help="How many.")] = 100,
    seed: Annotated[int, typer.Option(help="Of the simulation.")] = 4,
    out: Annotated[Path, typer.Option("--out", "-o", help="Where the report goes.")] = Path(
        "output/report.html"
    ),
    quiet: Quiet = False,
) -> None:
    """Simulate a ready-made system, filter it, and write a report.

    psdfilter demo stochastic_volatility
    """
    from psdfilter.cli._show import Screen
    from psdfilter.cli._work import run_demo

    with exits():
        run_demo(system, steps, seed, out, Screen(quiet))


@app.command(rich_help_panel=_MODEL)
def systems() -> None:
    """List ready-made systems, which can be simulated."""
    from psdfilter.cli._show import Screen
    from psdfilter.systems import ALL

    rows = [[name, str(system.dim), system.summary] for name, system in ALL.items()]
    Screen(False).table("ready-made systems", ["name", "d", "what it is"], rows)


@app.command(rich_help_panel=_MODEL)
def models() -> None:
    """List the names that --model takes, with their parameters."""
    from psdfilter.cli._model import families, find_model
    from psdfilter.cli._show import Screen

    rows = []
    for name, (summary, _) in families().items():
        start = find_model(name).start
        rows.append([name, ", ".join(f"{k}={v:g}" for k, v in start.items()), summary])
    Screen(False).table("ready-made models", ["name", "parameters", "what it is"], rows)


@app.callback(invoke_without_command=True)
def _main(
    version: Annotated[bool, typer.Option("--version", help="Show the version.")] = False,
) -> None:
    if version:
        from psdfilter import __version__

        typer.echo(f"psdfilter {__version__}")
        raise typer.Exit


def main() -> None:
    """The entry point of the command."""
    app()
