"""Numbers and times out of cells of text; what cannot be read is named by its row."""

import re
from collections.abc import Sequence
from datetime import UTC, datetime

import numpy as np

from .calendar import compact_form
from .errors import quoted

MISSING = frozenset(["", "NA", "N/A", "NaN", "nan", "NAN", "null", "NULL", "None", "-"])
# What nanoseconds since 1970 can hold.
_EARLIEST, _LATEST = np.datetime64("1678-01-01", "us"), np.datetime64("2262-01-01", "us")
# Whole numbers from here on are rounded by floats.
_FIRST_ROUNDED = 2**53
_DECIMAL_COMMA = re.compile(r"[+-]?\d{1,15},\d+([eE][+-]?\d+)?")
_THOUSANDS = re.compile(r"[+-]?\d{1,3}(,\d{3})+")
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")
_OFFSET = re.compile(r"[Zz]|[+-]\d\d(:?\d\d)?$")


class CellError(ValueError):
    """A cell that cannot be read.

    Attributes:
        row: its number, from zero, among the rows of data.
    """

    def __init__(self, row: int, message: str):
        """Where, and what is wrong."""
        super().__init__(message)
        self.row = row


def is_number(cell: str, decimal: str = ".") -> bool:
    """Whether a cell is a number, written plainly."""
    text = cell.strip()
    return _NUMBER.fullmatch(text.replace(",", ".") if decimal == "," else text) is not None


def is_missing(cell: str) -> bool:
    """Whether a cell stands for a value that is missing."""
    return cell.strip() in MISSING


def numbers(cells: Sequence[str], decimal: str) -> np.ndarray:
    """Cells as floats, NaN where missing."""
    if decimal == ",":
        cells = [_with_point(row, cell) for row, cell in enumerate(cells)]
    try:
        values = np.fromiter(
            (float(c) if c not in MISSING else np.nan for c in cells), float, len(cells)
        )
    except ValueError:
        values = None
    # `float` also takes underscores and words for infinity.
    if values is None or np.isinf(values).any() or any("_" in cell for cell in cells):
        return np.asarray([_number(row, cell) for row, cell in enumerate(cells)])
    return values


def _with_point(row: int, cell: str) -> str:
    if "." in cell:
        message = f"{quoted(cell)} has a point, where commas are decimal: remove separators"
        raise CellError(row, f"{message} of thousands")
    return cell.replace(",", ".")


def _number(row: int, cell: str) -> float:
    text = cell.strip()
    if text in MISSING:
        return np.nan
    if _NUMBER.fullmatch(text) and np.isfinite(float(text)):
        return float(text)
    if _THOUSANDS.fullmatch(text):
        raise CellError(
            row,
            f"{quoted(cell)} has a comma: pass --decimal , if it is decimal, and remove it if it "
            "separates thousands",
        )
    if _DECIMAL_COMMA.fullmatch(text):
        raise CellError(row, f"{quoted(cell)} has a decimal comma: pass --decimal ,")
    if _NUMBER.fullmatch(text) or text.lower().lstrip("+-") in ("inf", "infinity"):
        raise CellError(row, f"{quoted(cell)} is infinite: leave the cell empty if it is missing")
    raise CellError(
        row, f"{quoted(cell)} is no number: leave the cell empty (or write NA) if it is missing"
    )


def times(
    cells: Sequence[str], form: str | None, decimal: str = "."
) -> tuple[np.ndarray, str | None]:
    """Cells as times and their zone: numbers, or dates as datetime64[ns], UTC if they have one.

    Args:
        cells: text, in ISO 8601 unless there is a format.
        form: as for `datetime.strptime`.
        decimal: "." or ",", in times that are numbers.
    """
    for row, cell in enumerate(cells):
        if is_missing(cell):
            raise CellError(row, "the time is missing: fill it in, or remove the row")
    if form is None and is_number(cells[0], decimal):
        found = _numeric_times(cells, decimal)
        written = compact_form(found)
        if written is not None:
            raise CellError(
                0,
                f"the times, {quoted(cells[0])} first, are dates written as numbers: pass "
                f"--time-format {written}",
            )
        return found, None
    if form is None and not any(_OFFSET.search(cell[10:]) for cell in cells):
        try:
            found = np.asarray([cell.strip() for cell in cells], dtype="datetime64[us]")
        except ValueError:
            pass
        else:
            return _nanoseconds(found), None
    return _parsed(cells, form)


def _numeric_times(cells: Sequence[str], decimal: str) -> np.ndarray:
    for row, cell in enumerate(cells):
        if not is_number(cell, decimal):
            raise CellError(row, f"the time {quoted(cell)} is no number, as the one before it is")
    if decimal == ",":
        cells = [_with_point(row, cell) for row, cell in enumerate(cells)]
    try:
        # Not by floats, which round nanoseconds since 1970.
        return np.asarray([_whole(cell) for cell in cells], dtype=np.int64)
    except (ValueError, OverflowError):
        return as_whole(np.asarray([float(cell) for cell in cells]))


def _whole(cell: str) -> int:
    head, _, tail = cell.strip().partition(".")
    if tail.strip("0"):
        raise ValueError(cell)
    return int(head)


def as_whole(values: np.ndarray) -> np.ndarray:
    """Floats as integers, if all of them are whole and none is rounded."""
    exact = np.all(values == np.round(values)) and np.all(np.abs(values) < _FIRST_ROUNDED)
    return values.astype(np.int64) if exact else values


def _parsed(cells: Sequence[str], form: str | None) -> tuple[np.ndarray, str | None]:
    moments: list[datetime] = []
    for row, cell in enumerate(cells):
        moments.append(_moment(row, cell.strip(), form))
        if (moments[0].tzinfo is None) != (moments[-1].tzinfo is None):
            has, had = ("a", "none") if moments[-1].tzinfo else ("no", "one")
            raise CellError(
                row, f"the time {quoted(cell)} has {has} time zone, and the first row has {had}"
            )
    if moments[0].tzinfo is None:
        return _nanoseconds(np.asarray(moments, dtype="datetime64[us]")), None
    plain = [moment.astimezone(UTC).replace(tzinfo=None) for moment in moments]
    return _nanoseconds(np.asarray(plain, dtype="datetime64[us]")), "UTC"


def _moment(row: int, cell: str, form: str | None) -> datetime:
    try:
        return datetime.fromisoformat(cell) if form is None else datetime.strptime(cell, form)
    except ValueError:
        wanted = (
            "a date such as 2024-01-31 or 2024-01-31T12:30: pass --time-format, for example "
            '"%d.%m.%Y"'
            if form is None
            else f"a date of the form {form}"
        )
        raise CellError(row, f"the time {quoted(cell)} is not {wanted}") from None


def _nanoseconds(found: np.ndarray) -> np.ndarray:
    outside = (found < _EARLIEST) | (found > _LATEST)
    if outside.any():
        row = int(np.flatnonzero(outside)[0])
        raise CellError(row, f"the time {found[row]} is not between the years 1678 and 2262")
    return found.astype("datetime64[ns]")
