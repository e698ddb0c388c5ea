"""One block of a fleet: stacks of series in compiled programs, finer or one by one where needed."""

import contextlib
import threading
import warnings
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from .. import _results
from .._frames.table import Times
from .._inference.ability import Ability
from .._inference.batch import Judged, to_redo
from .._inference.buckets import axes_of, stack
from .._inference.forecast import forecast
from .._inference.model import AbstractModel
from .._inference.numerics.compiled import call_compiled
from .._inference.posterior import Posterior
from .._inference.run import series_for
from .._inference.series import Series
from .._inference.smooth import smooth_posterior
from .._inference.trace import held_to
from ._sources import Raw

Rows = dict[str, np.ndarray]

# Bytes of the arrays that one compiled call works on: two calls at a time stay far below a GiB.
CALL_BYTES = 2**27
# Wider stacks gain nothing, and their working arrays fall out of the cache.
MOST_WIDTH = 512
# Python's share of the work gains nothing from threads.
_ONE_BY_ONE = threading.Lock()
_COMPILING = threading.Lock()
_COMPILED: set[tuple[int, int, int]] = set()


@contextlib.contextmanager
def _first_time(plan: AbstractModel, size: tuple[int, int]) -> Iterator[None]:
    """Threads that want one program wait for the first of them to compile it."""
    key = id(plan), *size
    if key in _COMPILED:
        yield
        return
    with _COMPILING:
        yield
        _COMPILED.add(key)


class Work(NamedTuple):
    """What is wanted of every series.

    Attributes:
        what: "filter", "smooth" or "forecast".
        levels: of quantiles.
        steps: of a forecast.
        first: as for `run_filter`.
    """

    what: str
    levels: tuple[float, ...] = ()
    steps: int = 0
    first: str = "predict"

    @property
    def keeps(self) -> bool:
        """Whether laws are needed, beside their summaries."""
        return bool(self.levels) or self.what != "filter"

    def rows_of(self, length: int) -> int:
        """Rows of the result for a series."""
        return self.steps if self.what == "forecast" else length


class Kit(NamedTuple):
    """The models of a fleet, and the sizes of its programs.

    Attributes:
        model: as it was learned.
        plan: filters stacks of series; None if no model does.
        sizes: lengths and widths of the stacks of `plan`, the shortest first.
        finer_sizes: of the stacks of the finer model, fewer and narrower.
    """

    model: AbstractModel
    plan: AbstractModel | None
    sizes: tuple["Size", ...]
    finer_sizes: tuple["Size", ...]

    @property
    def tol(self) -> float:
        """The tolerance that was asked for."""
        return self.model.tol


Size = tuple[int, int]


def sizes_for(
    plan: AbstractModel, work: Work, lengths: Sequence[int], most: int = MOST_WIDTH
) -> tuple[Size, ...]:
    """Lengths of stacks and numbers of their series, so that a call stays within its memory."""
    nodes = int(np.prod(plan.report.nodes or (16,)))
    dim = plan.dim
    # Laws are kept at the nodes, and looked at on twice as many; else only summaries stay.
    row = 8 * (12 * nodes if work.keeps else 8 + 2 * dim * dim + 4 * dim)
    return tuple((int(t), int(np.clip(CALL_BYTES // (row * t), 1, most))) for t in lengths)


def _stacked(
    model: AbstractModel, series: Series, counts: Array, levels: Array, work: Work, tol: float
) -> dict[str, Array]:
    """All results of stacked series: one program."""

    def one(single: Series, count: Array) -> dict[str, Array]:
        trace = model.watched(single, work.keeps)
        inside = jnp.arange(single.num) < count
        errors = jnp.zeros(single.num) if trace.errors is None else trace.errors
        errors = jnp.where(inside, jnp.where(jnp.isnan(errors), jnp.inf, errors), 0.0)
        codes = held_to(jnp.where(inside, trace.codes, _results.OK), errors, tol)
        out = {
            "log_likelihoods": trace.log_likelihoods,
            "log_likelihood": jnp.sum(jnp.where(inside, trace.log_likelihoods, 0.0)),
            "code": codes[jnp.argmax(codes != _results.OK)],
            "error_estimate": jnp.max(errors),
        }
        post = Posterior(model, single, trace)
        result: Any = post
        if work.what == "smooth":
            result = smooth_posterior(post, None, True)
        elif work.what == "forecast":
            at = jnp.take(single.steps, count - 1) + 1 + jnp.arange(work.steps)
            result = model.ahead(trace.last, at, None)
        out["mean"], out["sd"] = result.mean, _deviations(result.covariance)
        if work.levels:
            # The axis of levels comes last, as in the store.
            out["quantiles"] = jnp.moveaxis(result.laws.quantiles(levels), 0, -1)
        return out

    return jax.vmap(one, (axes_of(series), 0))(series, counts)


def _deviations(covariance: Array) -> Array:
    return jnp.sqrt(jnp.maximum(jnp.diagonal(covariance, axis1=-2, axis2=-1), 0.0))


def empty_rows(num: int, longest: int, dim: int, work: Work) -> Rows:
    """The results of `num` series, before anything is known."""
    rows = work.rows_of(longest)
    out = {
        "mean": np.full((num, rows, dim), np.nan),
        "sd": np.full((num, rows, dim), np.nan),
        "log_likelihoods": np.full((num, longest), np.nan),
        "log_likelihood": np.full(num, np.nan),
        "code": np.zeros(num, dtype=np.int64),
        "error_estimate": np.full(num, np.nan),
        "length": np.zeros(num, dtype=np.int64),
        "method": np.full(num, "", dtype="<U16"),
        "message": np.full(num, "", dtype="<U160"),
    }
    if work.levels:
        out["quantiles"] = np.full((num, rows, dim, len(work.levels)), np.nan)
    return out


class _Block:
    """The series of a block on their way."""

    def __init__(self, kit: Kit, work: Work, raws: Sequence[Raw], longest: int):
        self.kit, self.work = kit, work
        self.rows = empty_rows(len(raws), longest, kit.model.dim, work)
        self.series: list[Series | None] = [self._checked(i, raw) for i, raw in enumerate(raws)]

    def _checked(self, i: int, raw: Raw) -> Series | None:
        """One series as the filters see it; None if it is empty or cannot be used."""
        rows, first = self.rows, self.work.first
        try:
            if np.size(np.asarray(raw.ys, dtype=float)) == 0:
                rows["log_likelihood"][i], rows["error_estimate"][i] = 0.0, 0.0
                rows["message"][i] = "empty: nothing was seen"
                return None
            times = None if _is_counted(raw.times, first) else raw.times
            series = series_for(self.kit.model, np.asarray(raw.ys, float), first, raw.inputs, times)
        except (ValueError, TypeError) as error:
            self._fail(i, error)
            return None
        rows["length"][i] = series.num
        return series

    def _fail(self, i: int, error: Exception) -> None:
        self.rows["code"][i], self.rows["error_estimate"][i] = _results.BAD_SERIES, np.inf
        self.rows["message"][i] = str(error)

    def _write(self, i: int, found: dict[str, Any], method: str) -> None:
        length = int(self.rows["length"][i])
        limits = {"log_likelihoods": length}
        for name, value in found.items():
            target = self.rows[name]
            if target.ndim == 1:
                target[i] = value
            else:
                num = limits.get(name, self.work.rows_of(length))
                target[i, :num] = np.asarray(value)[:num]
        self.rows["method"][i] = method
        code = int(found["code"])
        if code != _results.OK:
            self.rows["message"][i] = _short(code)

    def run_stacks(
        self, plan: AbstractModel, sizes: Sequence[Size], which: Sequence[int], method: str
    ) -> list[int]:
        """All of them side by side; returns those that have to be done again."""
        lengths, left = self.rows["length"], []
        waiting = sorted(which, key=lambda i: -lengths[i])
        for k in reversed(range(len(sizes))):
            length, width = sizes[k]
            shorter = sizes[k - 1][0] if k else 0
            while waiting and lengths[waiting[0]] > shorter:
                # Free places go to shorter series: fewer calls, each of a size that is compiled.
                chosen, waiting = waiting[:width], waiting[width:]
                left += self._run_stack(plan, chosen, (length, width), method)
        return left

    def _run_stack(
        self, plan: AbstractModel, chosen: list[int], size: tuple[int, int], method: str
    ) -> list[int]:
        known = [one for one in self.series if one is not None]
        everyone = [known[0] if one is None else one for one in self.series]
        stacked = stack(everyone, chosen, *size, ends=self.work.what != "filter")
        counts = np.full(size[1], 1)
        counts[: len(chosen)] = stacked.lengths
        levels = jnp.asarray(self.work.levels)
        args, options = (stacked.series, jnp.asarray(counts), levels), (self.work, self.kit.tol)
        with _first_time(plan, size):
            out = call_compiled(_stacked, plan, *args, options=options)
        found = {name: np.asarray(value)[: len(chosen)] for name, value in out.items()}
        judged = Judged(found["code"], found["error_estimate"])
        redo = to_redo(self.kit.model, plan, judged)
        for row, i in enumerate(chosen):
            self._write(i, {name: value[row] for name, value in found.items()}, method)
        return [i for i, bad in zip(chosen, redo, strict=True) if bad]

    def run_alone(self, i: int) -> None:
        """One series by the model itself."""
        series, work = self.series[i], self.work
        assert series is not None
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # codes say it
                self._write(i, alone(self.kit.model, series, work), self.kit.model.engine)
        except (ValueError, FloatingPointError) as error:
            self._fail(i, error)


def alone(model: AbstractModel, series: Series, work: Work) -> dict[str, Any]:
    """The results of one series, by the model itself."""
    sized, series, trace = model.settle(series, True)
    post = Posterior(sized, series, trace)
    codes = np.asarray(post.codes)
    worst = np.nan  # of an engine that has no estimate
    if Ability.ERRORS in sized.abilities:
        errors = np.asarray(post.error_estimates)
        worst = float(np.max(np.where(np.isnan(errors), np.inf, errors)))
    code = int(codes[np.argmax(codes != _results.OK)])
    code = _results.UNRESOLVED if code == _results.OK and worst > model.tol else code
    result: Any = post
    if work.what == "smooth":
        result = smooth_posterior(post, None, True)
    elif work.what == "forecast":
        result = forecast(sized, post, work.steps)
    out = {
        "log_likelihoods": post.log_likelihoods,
        "log_likelihood": float(post.log_likelihood),
        "code": code,
        "error_estimate": worst,
        "mean": result.mean,
        "sd": _deviations(jnp.asarray(result.covariance)),
    }
    if work.levels:
        out["quantiles"] = jnp.moveaxis(result.quantile(list(work.levels)), 0, -1)
    return out


def run_block(kit: Kit, work: Work, raws: Sequence[Raw], longest: int) -> Rows:
    """The results of some series; one that fails has a code and a message, and stops no other."""
    block = _Block(kit, work, raws, longest)
    left = [i for i, one in enumerate(block.series) if one is not None]
    if kit.plan is not None:
        left = block.run_stacks(kit.plan, kit.sizes, left, "side by side")
    if left and kit.plan is not None:
        with _ONE_BY_ONE:
            finer = kit.model.finer()
        if finer is not None:
            left = block.run_stacks(finer, kit.finer_sizes, left, "finer")
    for i in left:
        with _ONE_BY_ONE:
            block.run_alone(i)
    return block.rows


def _is_counted(times: Times, first: str) -> bool:
    """Whether times are what they are without being told."""
    if times is None:
        return True
    values = np.asarray(times)
    start = 1 if first == "predict" else 0
    return bool(np.array_equal(values, np.arange(start, start + len(values))))


def _short(code: int) -> str:
    return _results.MESSAGES[code].split(". ")[0]
