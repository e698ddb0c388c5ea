"""What is wrong with a file of data, and where."""

from unicodedata import category


class DataError(ValueError):
    """A file that cannot be read as a series: `path:line:column: what, and what to do`."""

    def __init__(
        self, path: object, message: str, *, line: int | None = None, column: int | None = None
    ):
        """`line` and `column` (characters) count from one."""
        place = ":".join(str(part) for part in (path, line, column) if part is not None)
        super().__init__(f"{place}: {message}")
        self.path, self.line, self.column = path, line, column


def printable(text: str) -> str:
    """Text without characters that control how others are shown, such as U+202E."""
    # Unusual spaces are none of them.
    spaced = ("\N{SPACE}" if category(c) == "Zs" else c for c in text)
    return "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in spaced)


def quoted(text: str, length: int = 40) -> str:
    """A piece of a file in quotes, not too long and without control characters."""
    clean = printable(text)
    return f'"{clean[: length - 1]}…"' if len(clean) > length else f'"{clean}"'
