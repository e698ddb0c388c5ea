"""Times in words, for messages and tables."""

from typing import Any

import numpy as np

# Times to be shown: numbers, or dates and durations as text.
Moments = list[float | str]


def plain_times(values: np.ndarray) -> Moments:
    """Numbers as they are, and dates and durations as text, no longer than it has to be."""
    if values.dtype.kind == "m":
        return [shown_span(span) for span in values]
    if values.dtype.kind != "M":
        return values.tolist()
    fits = (
        unit for unit in ("D", "m", "s") if np.all(values == values.astype(f"datetime64[{unit}]"))
    )
    coarsest: Any = next(fits, "ms")
    shown = np.datetime_as_string(values, unit=coarsest).tolist()
    return [text.replace("T", " ") for text in shown]


def shown_span(span: np.generic) -> str:
    """A distance of two times, in a unit that suits it."""
    if not isinstance(span, np.timedelta64):
        return f"{span:g}"
    seconds = span / np.timedelta64(1, "s")
    for size, unit in ((86400.0, "days"), (3600.0, "hours"), (60.0, "minutes")):
        if abs(seconds) >= size:
            return f"{seconds / size:g} {unit}"
    return f"{seconds:g} seconds"
