"""What commands say on a terminal, or into a pipe."""

import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import numpy as np
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from .._frames.out import needed, settled
from .._inference.result import AbstractResult
from .._parameters.fit import Fit
from ._output import summary_frame

if TYPE_CHECKING:
    import polars

_Made = TypeVar("_Made")
# Rows and columns that a terminal has room for; files have all of them.
_LAST, _MOST_COLUMNS, _ENDS = 5, 6, ("_mean", "_q0.05", "_q0.95")


class Screen:
    """Results go to the standard output, all else to the standard error."""

    def __init__(self, quiet: bool):
        """`quiet`: nothing but errors and warnings."""
        self._quiet = quiet
        self._out = Console(highlight=False)
        self._err = Console(stderr=True, highlight=False)

    @property
    def is_live(self) -> bool:
        """Whether somebody sees bars move."""
        return sys.stderr.isatty() and not self._quiet

    def busy(self, what: str, work: Callable[[], _Made]) -> _Made:
        """The result of some work, under a bar that moves as long as it takes."""
        if not self.is_live:
            return work()
        columns = TextColumn("{task.description}"), BarColumn(pulse_style="cyan")
        with Progress(*columns, TimeElapsedColumn(), console=self._err, transient=True) as bar:
            _ = bar.add_task(what, total=None)
            return work()

    def text(self, text: str) -> None:
        """Plain lines."""
        if not self._quiet:
            self._out.print(Text(text))

    def warn(self, text: str) -> None:
        """A line on the standard error."""
        self._err.print(Text(f"warning: {text}"), soft_wrap=True)

    def result(self, result: AbstractResult) -> None:
        """Facts about a result, and its last rows."""
        if self._quiet:
            return
        self._out.print(Text(str(result)))
        frame = summary_frame(result)
        kept = [c for c in frame.columns[1:] if c.startswith("observed_") or c.endswith(_ENDS)]
        shown = [frame.columns[0], *kept[:_MOST_COLUMNS]]
        table = Table(title=f"last {min(_LAST, frame.height)} of {frame.height} rows")
        for column in shown:
            table.add_column(Text(_heading(column)), justify="right")
        for row in _settled(frame.tail(_LAST)).select(shown).iter_rows():
            table.add_row(*(Text(_cell(value)) for value in row))
        self._out.print(table)

    def fit(self, estimate: Fit) -> None:
        """The table of a fit."""
        self.text(estimate.summary())

    def table(self, title: str, head: Iterable[str], rows: Iterable[Iterable[str]]) -> None:
        """A table of words."""
        table = Table(title=title)
        for name in head:
            table.add_column(name, overflow="fold")
        for row in rows:
            table.add_row(*(Text(cell) for cell in row))
        self._out.print(table)

    def files(self, paths: Iterable[Path], notes: Iterable[str]) -> None:
        """What was written, one path a line, the report last: it is there to be opened."""
        for note in notes:
            self.warn(note)
        if not self._quiet:
            for path in sorted(paths, key=lambda p: (p.name == "report.html", p.name)):
                self._out.print(Text(f"wrote {path}"), soft_wrap=True)


def _settled(frame: "polars.DataFrame") -> "polars.DataFrame":
    """Means and quantiles that are rounding, next to their standard deviations, as zero."""
    polars, new = needed("polars", "a summary table", "cli"), []
    for column in frame.columns:
        sd = f"{column.rpartition('_')[0]}_sd"
        if column.endswith(_ENDS) and sd in frame.columns:
            values = settled(frame[column].to_numpy(), frame[sd].to_numpy())
            new.append(polars.Series(column, values))
    return frame.with_columns(new)


def _heading(column: str) -> str:
    """Of a column of the summary, with spaces where a narrow screen may break it."""
    if column.startswith("observed_"):
        return f"{column.removeprefix('observed_')} observed"
    for end, words in (("_mean", "mean"), ("_q0.05", "5%"), ("_q0.95", "95%")):
        if column.endswith(end):
            return f"{column.removesuffix(end)} {words}"
    return column


def _cell(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, float):
        return "" if np.isnan(value) else f"{value:.5g}"
    return str(value)
