"""A progress bar that appears only for long work, and never where nobody sees it."""

import sys
from types import TracebackType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID


class Bar:
    """Shown from the first `advance` on, if wanted; by default only on a terminal."""

    def __init__(self, description: str, wanted: bool | None):
        """`wanted`: True, False, or None for "if the standard error is a terminal"."""
        self._description = description
        self._wanted = sys.stderr.isatty() if wanted is None else wanted
        self._shown: tuple[Progress, TaskID] | None = None

    def advance(self, fraction: float) -> None:
        """Move on by a share of the present pass; a full bar starts again."""
        if not self._wanted:
            return
        if self._shown is None:
            from rich.console import Console
            from rich.progress import Progress

            progress = Progress(console=Console(stderr=True), transient=True)
            progress.start()
            self._shown = progress, progress.add_task(self._description, total=1.0)
        progress, task = self._shown
        if progress.tasks[0].finished:
            progress.reset(task)
        progress.update(task, advance=fraction)

    def describe(self, text: str) -> None:
        """Write something else beside the bar, once it is shown."""
        self._description = text
        if self._shown is not None:
            progress, task = self._shown
            progress.update(task, description=text)

    def __enter__(self) -> "Bar":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        del kind, error, trace
        if self._shown is not None:
            self._shown[0].stop()
