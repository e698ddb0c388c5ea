"""The filter of whole series."""

import warnings
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, overload

import numpy as np
from jaxtyping import Array, ArrayLike, Int

from .. import _results
from .._checks import Numbers, is_concrete, is_traced, is_transformed
from .._frames.labels import Labels
from .._frames.table import Frame, Times, as_table, labels_of
from .._statespace.doubtful import as_if_degrees, no_number, why_impossible
from .._statespace.model import Inputs
from .ability import Ability
from .batch import run_batch
from .laws import with_tails
from .many import PosteriorBatch, batch_of
from .model import AbstractModel
from .notices import heavy_tails, unresolved_batch, unresolved_series
from .numerics.compiled import remembered
from .posterior import Posterior
from .registry import as_model, require
from .series import Series, are_several, as_series, each_of, refuse_beyond_list
from .times import origin_of
from .trace import Trace

_FATAL = (_results.NO_MASS, _results.BAD_OBSERVATION, _results.SINGULAR)


@overload
def run_filter(
    model: AbstractModel,
    ys: list[Frame] | tuple[Frame, ...],
    *,
    first: str = "predict",
    inputs: Inputs = None,
    times: Times = None,
    keep: str = "densities",
    throw: bool = True,
) -> Any: ...
@overload
def run_filter(
    model: AbstractModel,
    ys: ArrayLike | Frame,
    *,
    first: str = "predict",
    inputs: Inputs = None,
    times: Times = None,
    keep: str = "densities",
    throw: bool = True,
) -> Posterior: ...
def run_filter(
    model: AbstractModel,
    ys: Numbers | Frame,
    *,
    first: str = "predict",
    inputs: Inputs = None,
    times: Times = None,
    keep: str = "densities",
    throw: bool = True,
) -> Posterior | PosteriorBatch:
    """p(x_t | y_1 ... y_t) for every t, with the likelihood of the series.

    Args:
        model: from `learn`.
        ys: one series of observations, (T, p), or (T,) if p = 1, as an array or a list of its rows;
            a row of NaN is missing. Or a data frame of pandas, polars or xarray, whose index and
            columns results keep; gaps of an index of dates or numbers are missing rows. Or several
            series: a list of arrays (T_i, p), or of arrays of one axis and unequal lengths. They
            are filtered side by side, as a `PosteriorBatch`.
        first: "predict": the first observation comes after one transition from the prior;
            "observe": the first observation is of the prior's state itself.
        inputs: arrays with T rows, for models that take them; a list of them for several series,
            and likewise of `times`.
        times: whole, non-decreasing times of the observations, counted in transitions, the prior
            being at time 0; equal times are several sensors. By default 1, 2, ... (or 0, 1, ...).
            For models whose functions take `dt`, real numbers, or dates (NumPy, pandas): these
            count in days from the first of them, which is that of the prior.
        keep: "densities" keeps the filtered density of every step; "summaries" only means,
            covariances and likelihoods, in memory that does not grow with the nodes.
        throw: raise at the first step that failed, naming it; otherwise look at `post.codes`.
    """
    if isinstance(ys, list | tuple) and are_several(ys):
        each = each_of(ys, inputs, times)
        several = [series_for(model, y, first, rows, at) for y, rows, at in each]
        return filter_several(model, several, checked_keep(keep), throw)
    table = as_table("ys", ys)
    series = series_for(model, table, first, inputs, times)
    return filter_series(model, series, checked_keep(keep), throw, named(model, table, times))


def series_for(
    model: AbstractModel, ys: Numbers | Frame, first: str, inputs: Inputs, times: Times
) -> Series:
    """The series, checked, if the model can take it."""
    known = as_model(model)
    series = as_series(
        ys, known.num_observed, first=first, inputs=inputs, times=times, asked=known.asked
    )
    if inputs is not None or known.asked.names:
        require(known, Ability.INPUTS)
    if series.partly:
        require(known, Ability.PARTLY_MISSING)
    refuse_beyond_list(known.num_listed, series.steps)
    if is_concrete(series.ys) and (question := as_if_degrees(known.source, series.ys)) is not None:
        warnings.warn(question, UserWarning, stacklevel=3)
    if is_concrete(series.ys) and not is_transformed():
        # Asked once: it takes longer than many steps.
        doubt = remembered(known, no_number, lambda: no_number(known.source, series.ys))
        if doubt is not None:
            warnings.warn(doubt, UserWarning, stacklevel=3)
    return series


def checked_keep(keep: str) -> bool:
    """Whether laws are kept."""
    if keep not in ("densities", "summaries"):
        raise ValueError(f'keep must be "densities" or "summaries", got {keep!r}')
    return keep == "densities"


class Named(NamedTuple):
    """What the data of a series were called: labels of a data frame, and the first of dates."""

    labels: Labels | None = None
    origin: str | None = None


NAMELESS = Named()


def named(model: AbstractModel, ys: Frame, times: Times) -> Named:
    """What the data are called; real times may be those of a data frame."""
    labels = labels_of(ys)
    if times is None and labels is not None and "dt" in as_model(model).asked.names:
        times = labels.values
    return Named(labels, origin_of(times))


def filter_series(
    model: AbstractModel, series: Series, keep: bool, throw: bool, called: Named = NAMELESS
) -> Posterior:
    """The filter of a series that has been checked."""
    sized, series, trace = model.settle(series, keep)
    if throw:
        raise_failure(trace.codes, reason=lambda k: why_impossible(sized.source, series.ys[k]))
    trace = _with_tails(sized, series, trace)
    warn_unresolved(sized, trace)
    return Posterior(sized, series, trace, called.labels, called.origin)


def filter_several(
    model: AbstractModel, series: Sequence[Series], keep: bool, throw: bool
) -> PosteriorBatch:
    """The filters of series that have been checked."""
    widths = sorted({one.ys.shape[1] for one in series})
    if len(widths) > 1:
        raise ValueError(f"ys must all have the same number of columns, got {widths}")
    batch = batch_of(model, run_batch(model, series, keep), [one.num for one in series])
    codes = np.asarray(batch.codes)
    if throw:
        for i, row in enumerate(codes):
            raise_failure(
                row, f"ys[{i}]", lambda k, i=i: why_impossible(model.source, series[i].ys[k])
            )
    bad = np.flatnonzero(np.asarray(batch.code) == _results.UNRESOLVED)
    if bad.size:
        worst = float(np.max(np.asarray(batch.error_estimate)[bad]))
        message = unresolved_batch(model.engine, model.tol, (bad.size, len(batch)), worst)
        warnings.warn(f"{message}, first ys[{bad[0]}]", ResolutionWarning, stacklevel=3)
    return batch


def _with_tails(model: AbstractModel, series: Series, trace: Trace) -> Trace:
    """Codes where nothing was seen that would make tails light."""
    if trace.laws is None or is_traced((trace.codes, trace.seen)):
        return trace
    gaps = np.flatnonzero(~np.asarray(trace.seen))
    if gaps.size == 0:
        return trace
    return trace._replace(codes=with_tails(trace.codes, model.filtered(series, trace), gaps))


class ResolutionWarning(UserWarning):
    """Some step of a filter is not right to the tolerance that was asked for."""


def warn_unresolved(model: AbstractModel, trace: Trace) -> None:
    """Name the first step that misses the tolerance, by how much, and what to do."""
    if not is_concrete(trace.codes):
        return
    bad = np.flatnonzero(np.asarray(trace.codes) == _results.UNRESOLVED)
    if bad.size == 0:
        heavy = np.flatnonzero(np.asarray(trace.codes) == _results.HEAVY_TAILS)
        if heavy.size:
            message = heavy_tails(int(heavy[0]), heavy.size)
            warnings.warn(message, ResolutionWarning, stacklevel=4)
        return
    first, size = int(bad[0]), ""
    if trace.errors is not None and is_concrete(trace.errors):
        size = f", there by about {float(np.asarray(trace.errors)[first]):.1e}"
    counts = int(bad.size), len(trace.codes), first
    message = unresolved_series(model.engine, model.tol, counts, size)
    warnings.warn(message, ResolutionWarning, stacklevel=4)


def raise_failure(
    codes: Int[Array | np.ndarray, " t"],
    name: str = "ys",
    reason: Callable[[int], str | None] = lambda k: None,
) -> None:
    """An error that names the first failed step, if there is one and it can be seen."""
    if not is_concrete(codes):
        return
    values = np.asarray(codes)
    failure = _results.first_failure(values, _FATAL) if values.any() else None
    if failure is not None:
        index, code = failure
        cause = reason(index) or _results.MESSAGES[code]
        raise ValueError(f"the filter failed at {name}[{index}]: {cause}")
