"""Which step an index of times has, how many steps its gaps are, and how it goes on."""

from dataclasses import dataclass
from datetime import datetime

import numpy as np

_DAY = np.timedelta64(1, "D").astype("timedelta64[ns]").astype(np.int64)
# A gap of more steps than this is refused: somebody has mixed up units.
_MAX_GAP = 100_000
# What floats may differ by from a whole number of steps.
_WHOLE = 1e-6
# Dates as whole numbers, and the range of years in which somebody may have meant some.
_COMPACT = {"%Y%m%d": (1800_01_01, 2200_12_31), "%Y%m": (1800_01, 2200_12)}
# The usual distance of two rows, in smallest distances, above which an index has no step at all.
_MAX_MEDIAN = 10.0


@dataclass(frozen=True)
class Rule:
    """How one row follows the other.

    Attributes:
        kind: "fixed" distances, "months", or "weekdays", which have no weekends.
        size: of a step: in units of the index (nanoseconds for dates), in months, or one.
    """

    kind: str
    size: float

    def counts(self, values: np.ndarray) -> np.ndarray:
        """Number of steps from the first row to each, (T,)."""
        if self.kind == "weekdays":
            days = values.astype("datetime64[D]")
            return np.busday_count(days[0], days)
        if self.kind == "months":
            months = _months(values)
            return ((months - months[0]) // int(self.size)).astype(int)
        return np.round(_since_first(values) / self.size).astype(int)

    def ahead(self, values: np.ndarray, num: int) -> np.ndarray:
        """The next `num` times after the last."""
        last, later = values[-1], np.arange(1, num + 1)
        if self.kind == "weekdays":
            day = last.astype("datetime64[D]")
            days = np.busday_offset(day, later, roll="forward")
            return days.astype(values.dtype) + (last - day.astype(values.dtype))
        if self.kind == "months":
            return _months_later(values, (later * int(self.size)).astype(int))
        size = self.size
        if values.dtype.kind in "mM":
            return last + (later * int(size)).astype("timedelta64[ns]")
        return last + (later * size).astype(values.dtype)


def rule_of(values: np.ndarray) -> Rule | None:
    """The rule of increasing numbers, or dates or spans in nanoseconds; None if there is none."""
    if len(values) < 2 or values.dtype.kind not in "iufMm":
        return None
    found = calendar_rule(values)
    if found is not None:
        return found
    gaps = np.diff(_since_first(values))
    smallest = gaps.min()
    counts = gaps / smallest
    whole = np.abs(counts - np.round(counts)) <= (_WHOLE if values.dtype.kind == "f" else 0)
    if not whole.all() or np.median(counts) > _MAX_MEDIAN or counts.max() > _MAX_GAP:
        return None
    return Rule("fixed", smallest if values.dtype.kind == "f" else int(smallest))


def calendar_rule(values: np.ndarray) -> Rule | None:
    """The rule of dates that go by months or weekdays; None for others."""
    if len(values) < 2 or values.dtype.kind != "M":
        return None
    gaps = np.diff(_since_first(values))
    return _months_rule(values, gaps) or _weekdays_rule(values, gaps)


def compact_form(values: np.ndarray) -> str | None:
    """The format of dates that were written as whole numbers, 20240131 or 202401; None for others.

    Consecutive numbers are a count as well, and need no calendar.
    """
    if values.dtype.kind not in "iu" or np.all(np.diff(np.sort(values)) == 1):
        return None
    for form, (low, high) in _COMPACT.items():
        if values.min() >= low and values.max() <= high and _are_dates(values, form):
            return form
    return None


def _are_dates(values: np.ndarray, form: str) -> bool:
    try:
        return all(datetime.strptime(str(value), form) for value in values)
    except ValueError:
        return False


def first_irregular(values: np.ndarray) -> int:
    """The row that shows why there is no rule: after a gap that is no multiple, or an odd one."""
    gaps = np.diff(_since_first(values))
    counts = gaps / gaps.min()
    broken = np.flatnonzero(np.abs(counts - np.round(counts)) > _WHOLE)
    if broken.size:
        return int(broken[0]) + 1
    # All are multiples of a distance that is too small to be the step.
    return int(np.argmax(gaps)) + 1


def _since_first(values: np.ndarray) -> np.ndarray:
    away = values - values[0]
    return away.astype("timedelta64[ns]").astype(np.int64) if away.dtype.kind == "m" else away


def _months(values: np.ndarray) -> np.ndarray:
    return values.astype("datetime64[M]").astype(np.int64)


def _month_ends(values: np.ndarray) -> bool:
    days = values.astype("datetime64[D]")
    return bool(np.all((days + 1).astype("datetime64[M]") > days.astype("datetime64[M]")))


def _months_rule(values: np.ndarray, gaps: np.ndarray) -> Rule | None:
    """Every so many months, on one day of the month or at its end."""
    if gaps.min() < 28 * _DAY:
        return None
    days = values.astype("datetime64[D]")
    day_of_month = days - days.astype("datetime64[M]").astype("datetime64[D]")
    time_of_day = values - days.astype(values.dtype)
    same_day = np.all(day_of_month == day_of_month[0]) or _month_ends(values)
    if not same_day or np.any(time_of_day != time_of_day[0]):
        return None
    months = np.diff(_months(values))
    smallest = int(months.min())
    if np.any(months % smallest) or np.median(months / smallest) > _MAX_MEDIAN:
        return None
    return Rule("months", smallest)


def _months_later(values: np.ndarray, later: np.ndarray) -> np.ndarray:
    last = values[-1]
    month, day = last.astype("datetime64[M]"), last.astype("datetime64[D]")
    target = month + later.astype("timedelta64[M]")
    if _month_ends(values):
        days = (target + 1).astype("datetime64[D]") - 1
    else:
        days = target.astype("datetime64[D]") + (day - month.astype("datetime64[D]"))
        # A 30th of February is the end of it.
        days = np.minimum(days, (target + 1).astype("datetime64[D]") - 1)
    return days.astype(last.dtype) + (last - day.astype(last.dtype))


def _weekdays_rule(values: np.ndarray, gaps: np.ndarray) -> Rule | None:
    """Days without Saturdays and Sundays, over at least one weekend; others left out are gaps."""
    if gaps.min() != _DAY or np.any(gaps % _DAY):
        return None
    days = values.astype("datetime64[D]")
    if not np.is_busday(days).all():
        return None
    passed = (days[-1] - days[0]).astype(int) + 1 > np.busday_count(days[0], days[-1]) + 1
    return Rule("weekdays", 1) if passed else None
