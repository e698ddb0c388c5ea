"""Text files of columns: what they hold, or line and column of what is wrong with them."""

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass
from difflib import get_close_matches

import numpy as np

from .cells import CellError, is_missing, is_number, numbers, times
from .errors import DataError, quoted
from .labels import Labels
from .table import Table
from .words import plain_times

# Names of columns that an error lists.
_MOST_NAMES = 12
# Longer marks first: that of UTF-32 begins with that of UTF-16.
_BYTE_ORDER_MARKS = {
    b"\xff\xfe\0\0": "utf-32",
    b"\0\0\xfe\xff": "utf-32",
    b"\xff\xfe": "utf-16",
    b"\xfe\xff": "utf-16",
}
# Encodings of several bytes a character, and which byte of each is not zero in plain English.
_WIDE = (("utf-32-le", 4, 0), ("utf-32-be", 4, 3), ("utf-16-le", 2, 0), ("utf-16-be", 2, 1))
# Bytes that tell the encoding.
_LOOKED_AT = 1000


@dataclass(frozen=True)
class Wanted:
    """Which columns of a file, and how it is written.

    Attributes:
        columns: names, or numbers from one in files without a header; none for the only one.
        time: the column of times, if there is one.
        time_format: of dates that are not ISO 8601, as for `datetime.strptime`.
        header: whether the first row has names; None to look.
        delimiter: None to look.
        decimal: "." or ",".
        encoding: of text.
        sort: put rows in the order of their times instead of refusing them.
    """

    columns: tuple[str, ...] = ()
    time: str | None = None
    time_format: str | None = None
    header: bool | None = None
    delimiter: str | None = None
    decimal: str = "."
    encoding: str = "utf-8"
    sort: bool = False


def parse_delimited(raw: bytes, path: str, wanted: Wanted) -> Table:
    """The table in the bytes of a text file."""
    cells = cells_of(raw, path, wanted)
    chosen = pick(cells.names, wanted, path)
    table = np.column_stack([cells.numbers(name) for name in chosen])
    if wanted.time is None:
        return Table(table, Labels(columns=tuple(chosen)), cells.refused)
    at, zone = cells.times(wanted.time)
    try:
        order = checked_order(at, wanted.sort, cells.where.named)
    except CellError as error:
        raise cells.refused(error.row, wanted.time, str(error)) from None
    labels = Labels(at[order], wanted.time, zone, tuple(chosen))
    return Table(table[order], labels, lambda row, *rest: cells.refused(int(order[row]), *rest))


def cells_of(raw: bytes, path: str, wanted: Wanted) -> "Cells":
    """The cells in the bytes of a text file with at least one row of data."""
    text = _decoded(raw, path, wanted.encoding)
    if not text.strip():
        raise DataError(path, "the file is empty")
    mark = wanted.delimiter or _delimiter(text)
    names, columns, lines = _Reader(text, path, mark, wanted).read()
    if not lines.size:
        raise DataError(path, "the file has a header and no rows of data", line=1)
    return Cells(names, columns, _Where(text, path, mark, lines), wanted)


@dataclass(frozen=True)
class Cells:
    """A text file, column by column.

    Attributes:
        names: of the columns.
        columns: their cells.
        where: they are in the file.
        wanted: how they are written.
    """

    names: list[str]
    columns: list[tuple[str, ...]]
    where: "_Where"
    wanted: Wanted

    def numbers(self, name: str) -> np.ndarray:
        """A column of numbers, NaN where they are missing."""
        try:
            return numbers(self.columns[self.names.index(name)], self.wanted.decimal)
        except CellError as error:
            raise self.refused(error.row, name, str(error)) from None

    def times(self, name: str) -> tuple[np.ndarray, str | None]:
        """A column of times, and their zone."""
        cells, wanted = self.columns[self.names.index(name)], self.wanted
        try:
            return times(cells, wanted.time_format, wanted.decimal)
        except CellError as error:
            raise self.refused(error.row, name, str(error)) from None

    def words(self, name: str) -> np.ndarray:
        """A column of names; those that are all written as whole numbers are numbers."""
        cells = [cell.strip() for cell in self.columns[self.names.index(name)]]
        for row, cell in enumerate(cells):
            if is_missing(cell):
                raise self.refused(row, name, "the name is missing: fill it in, or remove the row")
        # 007 is a name: as a number it would be that of another series.
        are_numbers = all(cell.isdecimal() and str(int(cell)) == cell for cell in cells)
        try:
            return np.asarray([int(cell) for cell in cells] if are_numbers else cells)
        except OverflowError:
            return np.asarray(cells)

    def refused(self, row: int, name: str, message: str) -> DataError:
        """An error about a cell."""
        place = self.names.index(name)
        return self.where.error(CellError(row, message), place, f"column {quoted(name)}: ")


def checked_order(at: np.ndarray, sort: bool, named: object) -> np.ndarray:
    """The order of rows; times that go back are refused unless they may be sorted."""
    order = np.argsort(at, kind="stable") if sort else np.arange(len(at))
    gaps = np.diff(at[order])
    nothing = np.zeros((), gaps.dtype)
    name = named if callable(named) else (lambda row: f"row {row + 1}")
    if (gaps < nothing).any():
        row = int(np.flatnonzero(gaps < nothing)[0])
        raise CellError(
            row + 1,
            f"the time {_shown(at, row + 1)} comes after {_shown(at, row)} ({name(row)}): sort the "
            "rows, or pass --sort",
        )
    if (gaps == nothing).any():
        row = int(np.flatnonzero(gaps == nothing)[0])
        first, second = sorted((int(order[row]), int(order[row + 1])))
        raise CellError(
            second,
            f"the time {_shown(at, second)} is also that of {name(first)}: keep one row for a time",
        )
    return order


def _shown(at: np.ndarray, row: int) -> object:
    """A time, written no longer than it has to be."""
    return plain_times(at[row : row + 1])[0]


def pick(names: Sequence[str], wanted: Wanted, path: str) -> tuple[str, ...]:
    """The columns of observations: those asked for, or the only one there is."""
    for name in (*wanted.columns, *(() if wanted.time is None else (wanted.time,))):
        if name not in names:
            near = get_close_matches(name, names, 1)
            hint = f" (did you mean {quoted(near[0])}?)" if near else ""
            raise DataError(path, f"there is no column {quoted(name)}{hint}: {_listed(names)}")
        if list(names).count(name) > 1:
            raise DataError(path, f"there are {list(names).count(name)} columns {quoted(name)}")
    if wanted.time in wanted.columns:
        raise DataError(
            path,
            f"column {quoted(wanted.time)} is the --time: name another as --column or --inputs",
        )
    if wanted.columns:
        return wanted.columns
    rest = tuple(name for name in names if name != wanted.time)
    if len(rest) != 1:
        raise DataError(path, f"say which column is observed, --column NAME: {_listed(names)}")
    return rest


def _listed(names: Sequence[str]) -> str:
    shown = ", ".join(quoted(name) for name in names[:_MOST_NAMES])
    have = f"the file has {shown}{' ...' * (len(names) > _MOST_NAMES)}"
    if list(names) == _counted(len(names)):
        return f"{have}, as its first row is no header; pass --header if it is one"
    return have


def _counted(num: int) -> list[str]:
    """What columns without names are called."""
    return [str(i + 1) for i in range(num)]


def _decoded(raw: bytes, path: str, encoding: str) -> str:
    mark = next((m for m in _BYTE_ORDER_MARKS if raw.startswith(m)), None)
    encoding = encoding if mark is None else _BYTE_ORDER_MARKS[mark]
    try:
        text = raw.decode(encoding)
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        column = error.start - (raw.rfind(b"\n", 0, error.start) + 1) + 1
        message = f"the text is not {encoding}: pass --encoding, for example latin-1"
        raise DataError(path, message, line=line, column=column) from None
    except LookupError:
        raise DataError(path, f"there is no encoding {quoted(encoding)}") from None
    if "\0" in text:
        wide = _wide_encoding(raw)
        remedy = f"--encoding {wide}" if wide else "text, this seems to be none"
        raise DataError(path, f"the text is not {encoding}, it holds zero bytes: pass {remedy}")
    return text.removeprefix("\N{ZERO WIDTH NO-BREAK SPACE}")


def _wide_encoding(raw: bytes) -> str | None:
    """The encoding with several bytes for each character that text without a mark may have."""
    head = raw[: _LOOKED_AT // 4 * 4]
    for form, width, low in _WIDE:
        first = np.frombuffer(head[: len(head) // width * width], np.uint8).reshape(-1, width)
        if first.size and first[:, low].all() and not np.delete(first, low, axis=1).any():
            return form
    return None


def _delimiter(text: str) -> str:
    """What separates the cells of the first two lines alike; a comma if nothing does."""
    head = [line for line in text[:100_000].splitlines()[:20] if line.strip()][:2]
    for mark in (";", "\t", "|"):
        counts = {line.count(mark) for line in head}
        if 0 not in counts and len(counts) == 1:
            return mark
    return ","


class _Reader:
    """Rows of cells, column by column."""

    def __init__(self, text: str, path: str, mark: str, wanted: Wanted):
        self._path, self._wanted, self._mark = path, wanted, mark
        self._rows = csv.reader(io.StringIO(text, newline=""), delimiter=mark, strict=True)

    def read(self) -> tuple[list[str], list[tuple[str, ...]], np.ndarray]:
        """Names, cells of each column, and the line of each row."""
        first = next(row for row in self._rows if row)
        if first[0].lstrip().startswith("#"):
            raise DataError(
                self._path,
                f"the line {quoted(self._mark.join(first))} seems to be a comment: remove it, so "
                "that names or numbers come first",
                line=self._rows.line_num,
            )
        names, rows, lines = [cell.strip() for cell in first], [], []
        if not self._has_header(first):
            names = _counted(len(first))
            rows.append(first)
            lines.append(self._rows.line_num)
        num = len(names)
        try:
            for row in self._rows:
                if len(row) == num:
                    rows.append(row)
                    lines.append(self._rows.line_num)
                elif row:
                    raise DataError(self._path, self._ragged(row, num), line=self._rows.line_num)
        except csv.Error as error:
            hint = " (is a quotation mark not closed?)" if "end of data" in str(error) else ""
            raise DataError(self._path, f"{error}{hint}", line=self._rows.line_num) from None
        columns = list(zip(*rows, strict=True)) if rows else [() for _ in names]
        return names, columns, np.asarray(lines, dtype=int)

    def _has_header(self, first: list[str]) -> bool:
        if self._wanted.header is not None:
            return self._wanted.header
        # A number that was asked for counts columns: a cell that equals it is no name.
        asked = {*self._wanted.columns, self._wanted.time} & {cell.strip() for cell in first}
        if not all(is_number(name) for name in asked if name is not None):
            return True
        return not any(is_number(cell, self._wanted.decimal) for cell in first) and not all(
            is_missing(cell) for cell in first
        )

    def _ragged(self, row: list[str], num: int) -> str:
        hint = ""
        if self._mark == "," and len(row) > num:
            hint = ": numbers with decimal commas have to be quoted, or separated by semicolons"
        many = "s" * (len(row) > 1)
        return f"the row has {len(row)} cell{many}, and the first one has {num}{hint}"


class _Where:
    """Lines and columns of cells, looked up when something is wrong with one."""

    def __init__(self, text: str, path: str, mark: str, lines: np.ndarray):
        self._text, self._path, self._mark, self._lines = text, path, mark, lines

    def named(self, row: int) -> str:
        return f"line {self._lines[row]}"

    def error(self, error: CellError, place: int, prefix: str) -> DataError:
        line = int(self._lines[error.row])
        column = self._column(line, place)
        return DataError(self._path, f"{prefix}{error}", line=line, column=column)

    def _column(self, line: int, place: int) -> int | None:
        """Characters before the cell in its line, plus one; not for cells of several lines."""
        lines = self._text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
        text = lines[line - 1]
        inside, seen = False, 0
        for position, character in enumerate(text):
            if seen == place:
                return position + 1
            if character == '"':
                inside = not inside
            elif character == self._mark and not inside:
                seen += 1
        return len(text) + 1 if seen == place else None
