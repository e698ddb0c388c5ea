"""Times as users have them: transitions that are counted, real numbers, or dates."""

from datetime import timedelta
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from .._checks import Numbers, is_concrete
from .._frames.table import Times
from .._statespace.functions import Inputs, Row

# Dates are kept to the microsecond: float64 counts those of 285 years exactly.
_DAY = np.timedelta64(86_400_000_000, "us")
# A first time beyond this, and beyond the span of the others, is a date or a year.
_LATE = 100


class Clock(NamedTuple):
    """When the rows of a series are.

    Attributes:
        steps: transitions before each row, counted from the prior.
        hops: transitions before it since the row before.
        time: real times from the prior on; None where steps are the times.
        dt: time since the row before, or since the prior.
    """

    steps: Int[Array, " t"]
    hops: Int[Array, " t"]
    time: Float[Array, " t"] | None
    dt: Float[Array, " t"]


def is_dates(times: Times) -> bool:
    """Whether times are dates of NumPy, pandas, polars or the standard library."""
    if times is None or isinstance(times, jax.Array):
        return False
    kind = getattr(times, "dtype", None)
    if kind is not None and str(kind) != "object":
        return str(kind).startswith(("datetime64", "period", "Date"))
    if kind is None and not isinstance(times, list | tuple):
        return False
    first = next(iter(times), None)
    return isinstance(first, np.datetime64) or hasattr(first, "year")


def _zone_of(times: Times) -> object:
    """The first time zone that any of the dates has; None if none has."""
    kind = getattr(times, "dtype", None)
    if kind is not None and str(kind) != "object":
        return getattr(kind, "tz", None) or getattr(kind, "time_zone", None)
    zones = (getattr(entry, "tzinfo", None) for entry in times)
    return next((zone for zone in zones if zone is not None), None)


def _as_dates(times: Times) -> np.ndarray:
    """datetime64 in microseconds, checked."""
    zone = _zone_of(times)
    if zone is not None:
        raise ValueError(
            f"times must be dates without a time zone, got {zone}: convert them to one zone and "
            'drop it, with pandas times.tz_convert("UTC").tz_localize(None)'
        )
    if str(getattr(times, "dtype", "")).startswith("period"):
        times = getattr(times, "dt", times).to_timestamp()
    try:
        dates = np.asarray(times).astype("datetime64[us]")
    except (TypeError, ValueError) as error:
        raise ValueError(f"times must all be dates: {error}") from error
    if np.isnat(dates).any():
        raise ValueError(f"times must be dates, got NaT at {int(np.argmax(np.isnat(dates)))}")
    gaps = np.diff(dates)
    if np.any(gaps < np.timedelta64(0, "us")):
        k = int(np.argmax(gaps < np.timedelta64(0, "us")))
        raise ValueError(
            f"times must be in order, but times[{k + 1}] = {dates[k + 1]} comes after times[{k}] = "
            f"{dates[k]}: sort times and ys together"
        )
    if np.any(gaps == np.timedelta64(0, "us")):
        k = int(np.argmax(gaps == np.timedelta64(0, "us")))
        raise ValueError(
            f"times must not repeat, but times[{k}] and times[{k + 1}] are both {dates[k]}: join "
            "the observations of one time into one row of several columns"
        )
    return dates


def origin_of(times: Times) -> str | None:
    """The first date, from which days are counted; None for numbers."""
    return str(_as_dates(times)[0]) if is_dates(times) else None


def days_since(origin: str, times: Times) -> Float[np.ndarray, " t"]:
    """Dates in days after another date."""
    return (_as_dates(times) - np.datetime64(origin, "us")) / _DAY


def as_days(dt: Numbers) -> Numbers:
    """A time between two observations; differences of dates count in days, as dates do."""
    if isinstance(dt, timedelta | np.timedelta64):
        return float(np.timedelta64(dt) / _DAY)
    return dt


def dates_of(origin: str, days: Numbers) -> np.ndarray:
    """Days after a date as dates."""
    ticks = np.round(np.asarray(days, dtype=float) * (_DAY / np.timedelta64(1, "us")))
    return np.datetime64(origin, "us") + ticks.astype("timedelta64[us]")


def shown_times(steps: Int[Array, " t"], rows: Inputs, origin: str | None) -> Array | np.ndarray:
    """Steps, real times or dates, whichever the data had."""
    if not isinstance(rows, Row) or rows.time is None:
        return steps
    return jnp.asarray(rows.time) if origin is None else dates_of(origin, rows.time)


def counted_clock(num: int, times: Numbers) -> tuple[Int[Array, " t"], Int[Array, " t"]]:
    """Steps and hops of a model whose transitions are counted."""
    if is_dates(times):
        raise ValueError(
            "times are dates, but no function of the model takes the time between two of them: "
            "write the transition with the keyword dt (in days), or pass whole numbers of "
            "transitions, such as (dates - dates[0]).days"
        )
    steps = _shaped(num, times)
    if is_concrete(steps):
        values = np.asarray(steps)
        if not np.all(values == np.round(values)) or np.any(np.diff(values, prepend=0) < 0):
            raise ValueError(
                "times must be whole, non-negative and non-decreasing numbers of transitions, got "
                f"{values[:8]}; for real times write the transition with the keyword dt"
            )
        _refuse_years(values)
    steps = steps.astype(int)
    return steps, jnp.diff(steps, prepend=jnp.zeros(1, int))


def real_clock(num: int, times: Times) -> Clock:
    """Real times of a model whose transitions take the time between them."""
    if is_dates(times):
        dates = _as_dates(times)
        time = jnp.asarray((dates - dates[0]) / _DAY)
    else:
        time = _shaped(num, times).astype(jnp.float64)
    if time.shape != (num,):
        raise ValueError(f"times must have shape ({num},), as ys has rows, got {time.shape}")
    dt = jnp.diff(time, prepend=jnp.zeros(1))
    if not is_concrete(dt):
        raise ValueError("times must be concrete numbers for a model that takes dt")
    values = np.asarray(time)
    if not np.isfinite(values).all() or np.any(np.asarray(dt) < 0):
        raise ValueError(
            f"times must be finite, in order, and not before that of the prior, 0, got {values[:8]}"
        )
    _refuse_years(values)
    hops = (np.asarray(dt) > 0).astype(int)
    return Clock(jnp.asarray(np.cumsum(hops)), jnp.asarray(hops), time, dt)


def _shaped(num: int, times: Times) -> Array:
    if np.ma.is_masked(times):
        raise ValueError("times must all be known, got a masked array: leave out these rows")
    try:
        array = times if isinstance(times, jax.Array) else jnp.asarray(_numbers(times))
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"times must be numbers or dates, got {type(times).__name__} of "
            f"{getattr(times, 'dtype', type(next(iter(times), None)).__name__)}: text becomes "
            'dates by np.asarray(times, dtype="datetime64[s]"), and differences of dates become '
            'numbers by times / np.timedelta64(1, "D")'
        ) from error
    if array.shape != (num,):
        raise ValueError(f"times must have shape ({num},), as ys has rows, got {array.shape}")
    return array


def _numbers(times: Times) -> np.ndarray:
    array = np.asarray(times)
    if array.dtype.kind not in "iufb":
        raise TypeError("no numbers")
    return array


def _refuse_years(values: np.ndarray) -> None:
    """The prior is at time zero: 1971 would be that many transitions after it."""
    if len(values) < 2:
        return
    span = values[-1] - values[0]
    if values[0] >= _LATE and values[0] > span:
        raise ValueError(
            f"times count from the prior, at 0, so that the first row would come {values[0]:g} "
            f"after it, though all {len(values)} rows span {span:g}: are these years, or seconds "
            "since 1970? Pass times - times[0] (the first row is of the prior's state) or times - "
            "times[0] + 1; if the gap is meant, put a row of NaN at time 0"
        )
