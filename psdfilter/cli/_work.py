"""What the commands do, once the command line is understood and JAX may be loaded."""

import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from .. import report
from .._frames.delimited import Wanted
from .._frames.errors import DataError
from .._frames.table import Table
from .._inference.forecast import forecast
from .._inference.model import AbstractModel
from .._inference.posterior import Forecast, Posterior, Smoothed
from .._inference.run import run_filter
from .._inference.smooth import run_smoother
from .._parameters.fit import Fit, fit
from .._parameters.theta import Bounds
from .._settings import enable_cache, enable_x64
from ..io import save
from ..systems import ALL
from ._errors import ModelError
from ._inputs import NO_FUTURE, require_steps, split
from ._model import Build, Named, find_model
from ._options import page_in
from ._output import Folder, add_results, replaced_whole
from ._request import Request
from ._show import Screen

# Total variation error, unless --tol says otherwise.
_TOL = 1e-3


def start() -> None:
    """Float64, and compiled programs kept from one command to the next."""
    enable_x64()
    try:
        _ = enable_cache()
    except OSError:  # a home that cannot be written to: slower, and no worse
        return


@dataclass
class Results:
    """What there is to be written."""

    post: Posterior
    smooth: Smoothed | None = None
    ahead: Forecast | None = None
    estimate: Fit | None = None

    @property
    def main(self) -> Posterior | Smoothed | Forecast:
        """What a table of results is about."""
        return next(r for r in (self.ahead, self.smooth, self.post) if r is not None)


def run(request: Request, table: Table, screen: Screen, kind: str, steps: int = 0) -> None:
    """Filter, smooth, forecast or report a file of data."""
    start()
    seen, rows = split(request, table)
    if kind == "forecast" and rows is not None:
        raise DataError(request.data, NO_FUTURE)
    with _noted(screen):
        _warn_of_nothing(seen)
        named = find_model(request.model, request.functions, seen.values)
        learned = screen.busy("learning", lambda: _learned(named, request, rows))
        if rows is not None and kind == "report" and steps:
            warnings.warn(f"no forecast on this page: {NO_FUTURE}", stacklevel=1)
            steps = 0
        results = _computed((request, named), screen, kind, learned, (seen, rows), steps)
    if kind == "report":
        _write_report_only(request, screen, results, named)
        return
    screen.result(results.main)
    if request.out is not None:
        _write_all(request, screen, results, named)


def _warn_of_nothing(seen: Table) -> None:
    """A column without a single number is more often a wrong one than a wish."""
    empty = np.flatnonzero(np.isnan(seen.values).all(axis=0))
    for place in empty:
        assert seen.labels.columns is not None
        name = seen.labels.columns[place]
        warnings.warn(f"column {name!r} has no numbers: every row is missing", stacklevel=1)


def _learned(named: Named, request: Request, inputs: np.ndarray | None = None) -> AbstractModel:
    return named.learn(request.values, request.tol or _TOL, request.engine, inputs)


def _computed(
    asked: tuple[Request, Named],
    screen: Screen,
    kind: str,
    model: AbstractModel,
    data: tuple[Table, np.ndarray | None],
    steps: int,
) -> Results:
    request, named = asked
    table, inputs = data
    if "dt" not in model.asked.names:
        require_steps(table)
    rows = f"{len(table)} rows"
    first = request.first or named.first or "predict"
    post = screen.busy(
        f"filtering {rows}", lambda: run_filter(model, table, first=first, inputs=inputs)
    )
    results = Results(post)
    if kind in ("smooth", "report"):
        results.smooth = screen.busy(
            f"smoothing {rows}", lambda: run_smoother(model, table, first=first, inputs=inputs)
        )
    if kind == "forecast" or (kind == "report" and steps):
        results.ahead = screen.busy("forecasting", lambda: forecast(post.model, post, steps))
    return results


def run_fit(
    request: Request,
    table: Table,
    screen: Screen,
    free: tuple[str, ...],
    limits: Bounds,
) -> None:
    """Estimate parameters, and filter with them."""
    start()
    seen, rows = split(request, table)
    with _noted(screen):
        named = find_model(request.model, request.functions, seen.values)
        if named.build is None or not named.start:
            raise ModelError(
                f"{request.model} has no parameters to fit: write a function of keywords, such as "
                "def model(q=0.1, r=1.0), that returns the StateSpaceModel"
            )
        if "dt" not in named.state_space(request.values).wants:
            require_steps(seen)
        named.check_names(limits)
        theta0, build = _free_parameters(named, request.values, free)
        if fixed := sorted(set(limits) - set(theta0)):
            raise ModelError(
                f"--bound {fixed[0]} would do nothing: {fixed[0]} is not fitted, as --free says"
            )
        bounds = {k: v for k, v in {**named.bounds, **limits}.items() if k in theta0}
        estimate = fit(
            build,
            theta0,
            seen,
            inputs=rows,
            bounds=bounds or None,
            tol=request.tol,
            first=request.first or named.first or "predict",
            log_prior=named.log_prior,
            engine=request.engine,
            progress=screen.is_live,
        )
        post = estimate.posterior()
        assert isinstance(post, Posterior)
    screen.fit(estimate)
    if request.out is not None:
        _write_all(request, screen, Results(post, estimate=estimate), named)


def _free_parameters(
    named: Named, values: Mapping[str, float], free: tuple[str, ...]
) -> tuple[dict[str, float], Build]:
    """Where to start, and the model as a function of what may move."""
    start_at = {**named.start, **values}
    named.check_names(free)
    moving = free or tuple(start_at)
    fixed = {name: value for name, value in start_at.items() if name not in moving}
    theta0 = {name: float(start_at[name]) for name in moving}
    build = named.build
    assert build is not None
    return theta0, lambda theta: build({**fixed, **theta})


def run_learn(request: Request, screen: Screen, target: Path) -> None:
    """Learn a model and save it."""
    start()
    with _noted(screen):
        named = find_model(request.model, request.functions)
        model = screen.busy("learning", lambda: _learned(named, request))
    screen.text(str(model.report))
    with replaced_whole(target) as path:
        save(path, model)
    screen.files([target], [])


def run_demo(name: str, num: int, seed: int, out: Path, screen: Screen) -> None:
    """Simulate a ready-made system, filter it, and write a report."""
    start()
    if name not in ALL:
        raise ModelError(f"there is no system {name!r}: `psdfilter systems` lists them")
    system = ALL[name]
    ys = np.asarray(system.simulate(seed, num)[1])
    with _noted(screen):
        named = find_model(name)
        model = screen.busy("learning", lambda: named.learn({}, _TOL, "auto"))
        post = screen.busy(f"filtering {num} steps", lambda: run_filter(model, ys))
        results = Results(post)
        results.smooth = screen.busy("smoothing", lambda: run_smoother(model, ys))
        results.ahead = screen.busy("forecasting", lambda: forecast(post.model, post, 10))
    screen.result(post)
    request = Request("", Wanted(), name, out=out, title=f"{name}: {system.summary}")
    _write_report_only(request, screen, results, named)


def _write_all(request: Request, screen: Screen, results: Results, named: Named) -> None:
    assert request.out is not None
    with Folder(request.out) as folder:
        screen.busy(
            "writing",
            lambda: _fill(folder, request, results, named),
        )
    screen.files(folder.written, folder.notes)


def _fill(folder: Folder, request: Request, results: Results, named: Named) -> None:
    add_results(folder, results.main, results.post.model, request.form)
    if results.estimate is not None:
        text = parameter_table(results.estimate)
        folder.add("parameters.csv", lambda path: path.write_text(text, "utf-8"))
    folder.add("report.html", lambda path: _report(path, request, results, named))


def parameter_table(estimate: Fit) -> str:
    """Parameters as CSV: name, estimate, standard error and 95% interval."""
    lower, upper = (np.asarray(end) for end in estimate.interval())
    lines = ["parameter,estimate,standard_error,lower,upper"]
    columns = np.asarray(estimate.estimates), np.asarray(estimate.standard_errors), lower, upper
    for name, *numbers in zip(estimate.names, *columns, strict=True):
        quoted = '"' + name.replace('"', '""') + '"' if set(name) & set(',"\n') else name
        lines.append(",".join([quoted, *(repr(float(value)) for value in numbers)]))
    return "\n".join(lines) + "\n"


def _write_report_only(request: Request, screen: Screen, results: Results, named: Named) -> None:
    """--out is the page itself, or a folder to put it in."""
    target = page_in(request.out or Path("report.html"))
    with replaced_whole(target) as path:
        screen.busy("writing", lambda: _report(path, request, results, named))
    screen.files([target], [])


def _report(path: Path, request: Request, results: Results, named: Named) -> None:
    _ = report.write(
        path,
        results.post,
        smooth=results.smooth,
        ahead=results.ahead,
        fit=results.estimate,
        certificate=request.certificate,
        title=request.title or Path(request.data).name or named.name,
        source=named.text,
    )


@contextmanager
def _noted(screen: Screen) -> Iterator[None]:
    """Warnings of the library as lines of the screen, each once."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("default")
        try:
            yield
        finally:
            for message in dict.fromkeys(str(w.message) for w in caught):
                screen.warn(message)
