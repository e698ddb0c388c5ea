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
