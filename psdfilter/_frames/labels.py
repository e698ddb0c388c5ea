"""What a data frame says of its rows and columns, for results to say it again."""

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from .calendar import Rule, calendar_rule, compact_form, first_irregular, rule_of
from .words import plain_times, shown_span

# The shortest days of a time zone; clocks need not be looked up for what comes more often.
_SHORT_DAY = np.timedelta64(23, "h")


@dataclass(frozen=True, eq=False)
class Labels:
    """Names of T rows and p columns.

    Attributes:
        values: times of the rows, (T,): datetime64[ns] (in UTC if there is a zone),
            timedelta64[ns], numbers or strings; None if the rows have no names.
        name: of the index or column that they come from.
        zone: time zone, such as "Europe/Paris".
        columns: names of the observed quantities; None if they have none.
    """

    values: np.ndarray | None = None
    name: str | None = None
    zone: str | None = None
    columns: tuple[str, ...] | None = None

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Labels) and self._key == other._key

    def __hash__(self) -> int:
        return hash(self._key)

    @cached_property
    def _key(self) -> tuple[object, ...]:
        numbers = None
        if self.values is not None:
            numbers = self.values.dtype.str, self.values.tobytes()
        return numbers, self.name, self.zone, self.columns

    @cached_property
    def local(self) -> np.ndarray:
        """The times as a clock on the wall shows them."""
        values = self.values
        assert values is not None
        return values if self.zone is None else _wall_clock(values, self.zone)

    @cached_property
    def _rule(self) -> tuple[Rule, np.ndarray] | None:
        """The rule of the index, and the times that it is one of: in UTC, or on the wall."""
        if self.values is None:
            return None
        if self.zone is not None and np.all(np.diff(self.values) >= _SHORT_DAY):
            # Weekdays and months are those of the place: Monday in Tokyo begins on UTC's Sunday.
            rule = calendar_rule(self.local)
            if rule is not None:
                return rule, self.local
        for values in (self.values, self.local) if self.zone else (self.values,):
            rule = rule_of(values)
            if rule is not None:
                return rule, values
        return None

    @property
    def is_ordered(self) -> bool:
        """Whether the rows are named by numbers, dates or times since something."""
        return self.values is not None and self.values.dtype.kind in "iufMm"

    @property
    def has_axis(self) -> bool:
        """Whether pictures can show the times: they know no times since something."""
        return self.values is not None and self.values.dtype.kind in "iufM"

    @property
    def heading(self) -> str:
        """What stands at an axis of these times."""
        zone = f" ({self.zone})" if self.zone else ""
        return f"{self.name or 'time'}{zone}"

    def check(self, name: str) -> None:
        """Stop if times are missing, not in order, or twice the same."""
        values = self.values
        if values is None or not self.is_ordered:
            return
        what = f"the index of {name}" if self.name is None else f"the times {self.name!r} of {name}"
        missing = np.isnat(values) if values.dtype.kind in "mM" else np.isnan(values.astype(float))
        if missing.any():
            raise ValueError(f"{what} must not be missing, got none in row {_first(missing)}")
        written = compact_form(values)
        if written is not None:
            raise ValueError(
                f"{what} must be dates or a count, got dates written as numbers, {values[0]} "
                f'first: pandas.to_datetime(..., format="{written}")'
            )
        gaps = np.diff(values)
        late = gaps < np.zeros((), gaps.dtype)
        if late.any():
            row = _first(late)
            raise ValueError(
                f"{what} must increase, got {values[row]} in row {row} and {values[row + 1]} in "
                "the next: sort the rows by time first"
            )
        twice = gaps == np.zeros((), gaps.dtype)
        if twice.any():
            row = _first(twice)
            raise ValueError(
                f"{what} must be distinct, got {values[row]} in rows {row} and {row + 1}: drop or "
                "average such rows, or pass times= if they are several sensors at one time"
            )

    def steps(self, name: str, start: int) -> np.ndarray | None:
        """Transitions before each row, the first of them at `start`; None if one for each row."""
        if self.values is None or not self.is_ordered or len(self.values) < 2:
            return None
        found = self._rule
        if found is None:
            gaps = np.diff(self.values)
            raise ValueError(
                f"the index of {name} must have a step that its gaps are whole numbers of, got "
                f"distances from {shown_span(gaps.min())} to {shown_span(gaps.max())}: pass "
                "times=, in transitions of the model, or the bare numbers (.to_numpy()) to take "
                "the rows as consecutive"
            )
        rule, values = found
        counts = rule.counts(values)
        if counts[-1] == len(counts) - 1:
            return None
        return counts + start

    def irregularity(self) -> tuple[int, str] | None:
        """A row that is no whole number of steps after the one before, and why; None if all are."""
        if self.values is None or not self.is_ordered or len(self.values) < 2 or self._rule:
            return None
        values = self.values
        row, gaps = first_irregular(values), np.diff(values)
        now, before = plain_times(values[row - 1 : row + 1])[::-1]
        return row, (
            f"the times have no step that all gaps are whole numbers of: {now} comes "
            f"{shown_span(gaps[row - 1])} after {before}, and the least distance is "
            f"{shown_span(gaps.min())}"
        )

    def ahead(self, num: int) -> "Labels":
        """Those of the next `num` rows, if the index has a rule."""
        found = self._rule
        if found is None or num == 0:
            return replace(self, values=None if num else self._last())
        rule, values = found
        later = rule.ahead(values, num)
        if self.zone is not None and values is not self.values:
            later = _utc(later, self.zone)
        return replace(self, values=later)

    def _last(self) -> np.ndarray | None:
        return None if self.values is None else self.values[-1:]


def _first(where: np.ndarray) -> int:
    return int(np.flatnonzero(where)[0])


def _offsets(moments: np.ndarray, zone: str, fold: bool) -> np.ndarray:
    """UTC offsets of moments in a zone, one look-up for each hour that occurs."""
    from datetime import UTC, datetime
    from zoneinfo import ZoneInfo

    place = ZoneInfo(zone)
    hours, owner = np.unique(moments.astype("datetime64[h]"), return_inverse=True)
    found = []
    for hour in hours:
        at = datetime.fromtimestamp(int(hour.astype(np.int64)) * 3600, UTC)
        there = at.replace(tzinfo=place) if fold else at.astimezone(place)
        offset = there.utcoffset()
        assert offset is not None
        found.append(np.timedelta64(int(offset.total_seconds()), "s"))
    return np.asarray(found).astype("timedelta64[ns]")[owner]


def _wall_clock(utc: np.ndarray, zone: str) -> np.ndarray:
    return utc + _offsets(utc, zone, fold=False)


def _utc(local: np.ndarray, zone: str) -> np.ndarray:
    return local - _offsets(local, zone, fold=True)
