"""Many series at once: a few stacks under `vmap`, and one by one what those get wrong."""

import warnings
from collections.abc import Callable, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PyTree

from .. import _results
from .buckets import Stack, axes_of, member, stack, stack_lengths
from .model import AbstractModel
from .series import Series
from .trace import Trace, held_to

# Steps that a single run can do better, or that a finer plan may resolve.
_TO_REDO = (_results.UNRESOLVED, _results.NO_MASS, _results.IMPRECISE, _results.SINGULAR)
_LOST_DIGITS = (_results.IMPRECISE, _results.SINGULAR)
# Errors are those of single steps, and add up over as many as a filter remembers: of a volatility
# with rate .998 and an estimate of .75 tol the means were off by five times tol.
_SHARE = 1 / 8


class Part(NamedTuple):
    """Some series, filtered: side by side, or a single one.

    Attributes:
        model: that filtered them.
        members: which of all series they are; None in the place of one that was done elsewhere.
        lengths: rows that each of them has.
        series: stacked, or that of a single one.
        trace: likewise.
        stacked: whether there is an axis of series.
    """

    model: AbstractModel
    members: tuple[int | None, ...]
    lengths: tuple[int, ...]
    series: Series
    trace: Trace
    stacked: bool

    def one(self, place: int) -> tuple[Series, Trace]:
        """A single series and its trace, of laws that have been kept."""
        if not self.stacked:
            return self.series, self.trace
        num = self.lengths[place]
        series = member(Stack((), self.lengths, self.series), place)
        trace = jax.tree.map(lambda a: a[place], self.trace)
        return series, self.model.cut(trace, num)

    def over_all(self, fn: Callable[[Series, Trace], PyTree]) -> PyTree:
        """fn of all of them, with a leading axis."""
        if self.stacked:
            return jax.vmap(fn, (axes_of(self.series), 0))(self.series, self.trace)
        return jax.tree.map(lambda a: jnp.asarray(a)[None], fn(self.series, self.trace))


class Judged(NamedTuple):
    """What a stack says about its series, S rows each."""

    codes: np.ndarray  # of the first step that was not fine
    errors: np.ndarray  # the largest estimated error of a step


def run_stack(model: AbstractModel, stacked: Series, keep: bool) -> Trace:
    """The filter of stacked series, with estimates of the errors of their steps."""
    return jax.vmap(lambda one: model.watched(one, keep), (axes_of(stacked),))(stacked)


def judge(trace: Trace, lengths: Sequence[int], tol: float) -> Judged:
    """The outcome of every series of a stack; an error above the tolerance is one of its own."""
    codes = np.asarray(trace.codes)[: len(lengths)]
    inside = np.arange(codes.shape[1])[None, :] < np.asarray(lengths)[:, None]
    codes = np.where(inside, codes, _results.OK)
    errors = np.zeros(codes.shape)
    if trace.errors is not None:
        steps = np.asarray(trace.errors)[: len(lengths)]
        errors = np.where(inside, np.where(np.isnan(steps), np.inf, steps), 0.0)
    # A plan has a tolerance of its own: what counts is the one that was asked for.
    codes = np.asarray(held_to(jnp.asarray(codes), jnp.asarray(errors), tol))
    at = np.argmax(codes != _results.OK, axis=1)
    return Judged(codes[np.arange(len(codes)), at], np.max(errors, axis=1, initial=0.0))


def to_redo(model: AbstractModel, plan: AbstractModel, judged: Judged) -> np.ndarray:
    """Which series of a stack a single run of `model` does better."""
    if plan is model:
        return np.isin(judged.codes, _LOST_DIGITS)
    return np.isin(judged.codes, _TO_REDO) | (judged.errors > _SHARE * model.tol)


def sized_for(model: AbstractModel, series: Sequence[Series]) -> AbstractModel:
    """The model sized by the longest of the series, if data have something to decide."""
    return model.sized(max(series, key=lambda one: one.num))


def run_batch(model: AbstractModel, series: Sequence[Series], keep: bool) -> list[Part]:
    """All series filtered: the typical ones side by side, the rest finer, or one by one."""
    plan = model.batched()
    if plan is None or len(series) == 1:
        return [_alone(model, series, i, keep) for i in range(len(series))]
    plan = sized_for(plan, series)
    own = plan if model.batched() is model else model
    parts, left = _side_by_side(own, plan, series, range(len(series)), keep)
    finer = own.finer() if left else None
    if finer is not None:
        more, left = _side_by_side(own, finer, series, left, keep)
        parts += more
    return parts + [_alone(own, series, i, keep) for i in left]


def _side_by_side(
    model: AbstractModel,
    plan: AbstractModel,
    series: Sequence[Series],
    which: Sequence[int],
    keep: bool,
) -> tuple[list[Part], list[int]]:
    """Stacks of series, and which of them have to be done again."""
    lengths = np.asarray([series[i].num for i in which])
    parts, again = [], []
    last = 0
    for length in stack_lengths(lengths):
        chosen = [i for i, n in zip(which, lengths, strict=True) if last < n <= length]
        last = length
        stacked = stack(series, chosen, int(length))
        trace = run_stack(plan, stacked.series, keep)
        judged = judge(trace, stacked.lengths, model.tol)
        redo = to_redo(model, plan, judged)
        again += [i for i, bad in zip(chosen, redo, strict=True) if bad]
        members = tuple(None if bad else i for i, bad in zip(chosen, redo, strict=True))
        if not redo.all():
            parts.append(Part(plan, members, stacked.lengths, stacked.series, trace, True))
    return parts, again


def _alone(model: AbstractModel, series: Sequence[Series], i: int, keep: bool) -> Part:
    with warnings.catch_warnings():
        # Codes say it, and the whole batch is told once.
        warnings.simplefilter("ignore")
        sized, one, trace = model.settle(series[i], keep)
    return Part(sized, (i,), (one.num,), one, trace, False)


def in_rows(parts: Sequence[Part], values: Sequence[Array], num: int, fill: float) -> np.ndarray:
    """Values (S, T, ...) of all parts in the order of the series, filled up past their ends."""
    arrays = [np.asarray(value) for value in values]
    longest = max(max(part.lengths) for part in parts)
    out = np.full((num, longest, *arrays[0].shape[2:]), fill, dtype=arrays[0].dtype)
    for part, array in zip(parts, arrays, strict=True):
        for row, (i, length) in enumerate(zip(part.members, part.lengths, strict=True)):
            if i is not None:
                out[i, :length] = array[row, :length]
    return out
