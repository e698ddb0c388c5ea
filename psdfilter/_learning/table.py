"""Reports as two columns, for print and for rich."""

from abc import abstractmethod

import equinox as eqx


class AbstractReport(eqx.Module):
    """Named results that print well; subclasses say which rows there are."""

    @abstractmethod
    def rows(self) -> list[tuple[str, str]]:
        """Names and values, in the order they are shown."""

    def __str__(self) -> str:
        rows = self.rows()
        width = max(len(name) for name, _ in rows)
        return "\n".join(f"{name:<{width}}  {value}" for name, value in rows)

    def __rich__(self):
        from rich.table import Table

        table = Table(show_header=False, box=None, padding=(0, 2, 0, 0))
        for name, value in self.rows():
            table.add_row(name, value)
        return table


class AbstractErrorReport(AbstractReport):
    """A report of held-out errors beside the tolerance that was asked for."""

    sup_error: eqx.AbstractVar[float]
    l1_error: eqx.AbstractVar[float]
    l2_error: eqx.AbstractVar[float]
    tol: eqx.AbstractVar[float | None]

    @property
    def met(self) -> bool | None:
        """Whether the measured sup error is within the tolerance; None if none was asked for."""
        return None if self.tol is None else self.sup_error <= self.tol

    def error_rows(self) -> list[tuple[str, str]]:
        """The errors, and whether the tolerance was met."""
        asked = ""
        if self.tol is not None:
            asked = f"  (asked {self.tol:g}{'' if self.met else ', MISSED'})"
        return [
            ("sup error / max f", f"{self.sup_error:.2e}{asked}"),
            ("L1 error", f"{self.l1_error:.2e}"),
            ("L2 error", f"{self.l2_error:.2e}"),
        ]
