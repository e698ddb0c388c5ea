"""Series of unequal lengths as a few stacks of equal ones, filled up with missing rows."""

from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Int

from .series import Series

# Each length is a program of its own.
MOST_LENGTHS = 8
# Rows that one more program has to save: compiling it takes as long as filtering them.
_PROGRAM = 3 * 10**5
# Lengths among which those of the stacks are chosen.
_CANDIDATES = 96


class Stack(NamedTuple):
    """Series side by side, (S, T, ...); regular ones share their times.

    Attributes:
        members: which of all series they are.
        lengths: rows that each of them has.
        series: the rows.
    """

    members: tuple[int, ...]
    lengths: tuple[int, ...]
    series: Series


def stack_lengths(
    lengths: Int[np.ndarray, " s"], most: int = MOST_LENGTHS
) -> Int[np.ndarray, " k"]:
    """At most `most` lengths, ascending; more of them if that saves enough missing rows."""
    values, counts = np.unique(lengths[lengths > 0], return_counts=True)
    if len(values) > _CANDIDATES:
        # Even shares of all rows; the longest is always among them.
        share = np.cumsum(counts * values) / np.sum(counts * values)
        at = np.unique(np.searchsorted(share, np.linspace(0, 1, _CANDIDATES + 1)[1:] - 1e-12))
        ends = np.unique(np.append(np.minimum(at, len(values) - 1), len(values) - 1))
        counts = np.diff(np.cumsum(counts)[ends], prepend=0)
        values = values[ends]
    below = np.concatenate([[0], np.cumsum(counts)])
    num = len(values)
    # cost[j]: least number of rows for the first j candidates in k stacks.
    cost, back = np.full(num + 1, np.inf), np.zeros((most, num + 1), int)
    cost[0], best, used = 0.0, np.inf, 0
    for k in range(most):
        new = np.full(num + 1, np.inf)
        new[0] = 0.0
        for j in range(1, num + 1):
            each = cost[:j] + values[j - 1] * (below[j] - below[:j])
            back[k, j] = int(np.argmin(each))
            new[j] = each[back[k, j]]
        cost = new
        if cost[num] + _PROGRAM * (k + 1) < best:
            best, used = cost[num] + _PROGRAM * (k + 1), k + 1
    chosen, j = [], num
    for k in reversed(range(used)):
        if j == 0:
            break
        chosen.append(values[j - 1])
        j = back[k, j]
    return np.asarray(sorted(chosen))


def stack(
    series: Sequence[Series],
    members: Sequence[int],
    length: int,
    width: int = 0,
    ends: bool = False,
) -> Stack:
    """Series with at most `length` rows, filled up with missing ones; the last repeated to `width`.

    `ends`: nothing happens past the end of a series, no transition either, for what looks at its
    last law: smoothers and forecasts. Otherwise regular series share their times.
    """
    parts = [series[i] for i in members]
    regular = all(part.regular for part in parts) and not ends
    lengths = [part.num for part in parts]
    num = max(len(parts), width)
    ys = np.full((num, length, parts[0].ys.shape[1]), np.nan)
    for row, part in zip(ys, parts, strict=False):
        row[: part.num] = np.asarray(part.ys)
    if regular:
        start = int(np.asarray(parts[0].steps)[0])
        steps = jnp.asarray(np.arange(start, start + length))
        hops = jnp.asarray(np.where(np.arange(length) == 0, start, 1))
    else:
        steps = jnp.asarray(_filled([np.asarray(p.steps) for p in parts], num, length, "last"))
        hops = jnp.asarray(_filled([np.asarray(p.hops) for p in parts], num, length, "zero"))
    rows = jax.tree.map(
        lambda *leaves: jnp.asarray(_filled([np.asarray(a) for a in leaves], num, length, "last")),
        *[part.rows for part in parts],
    )
    partly = any(part.partly for part in parts)
    stacked = Series(ys, steps, hops, rows, regular, partly)
    return Stack(tuple(members), tuple(lengths), stacked)


def _filled(parts: list[np.ndarray], num: int, length: int, how: str) -> np.ndarray:
    """(num, length, ...), each filled up with its last row or with zeros."""
    out = np.zeros((num, length, *parts[0].shape[1:]), dtype=parts[0].dtype)
    for i in range(num):
        part = parts[min(i, len(parts) - 1)]
        out[i, : len(part)] = part
        if how == "last" and len(part):
            out[i, len(part) :] = part[-1]
    return out


def axes_of(series: Series) -> Series:
    """Which axis `vmap` goes over, for a stacked series."""
    shared = None if series.regular else 0
    rows = None if series.rows is None else 0
    return Series(0, shared, shared, rows, series.regular, series.partly)  # pyright: ignore


def member(stacked: Stack, place: int) -> Series:
    """One of the series again, without what it was filled up with."""
    num, series = stacked.lengths[place], stacked.series
    at = (slice(num),) if series.regular else (place, slice(num))
    return Series(
        series.ys[place, :num],
        series.steps[at],
        series.hops[at],
        jax.tree.map(lambda a: a[place, :num], series.rows),
        series.regular,
        series.partly,
    )
