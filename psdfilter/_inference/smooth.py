"""The smoother of whole series."""

import warnings

import numpy as np

from .. import _results
from .._checks import Numbers, as_count, is_concrete
from .._frames.table import Frame, Times, as_table
from .._statespace.model import Inputs
from .ability import Ability
from .model import AbstractModel
from .notices import unresolved_smoother
from .posterior import Posterior, Smoothed
from .registry import require
from .run import ResolutionWarning, checked_keep, filter_series, named, series_for
from .trace import Moments, Smoothing


def run_smoother(
    model: AbstractModel,
    ys: Numbers | Frame,
    *,
    first: str = "predict",
    inputs: Inputs = None,
    times: Times = None,
    lag: int | None = None,
    keep: str = "densities",
    throw: bool = True,
) -> Smoothed:
    """p(x_t | y_1 ... y_T) for every t, or p(x_t | y_1 ... y_{t+lag}).

    Args:
        model: as for `run_filter`, like all that is not explained here.
        ys: observations.
        first: as for `run_filter`.
        inputs: as for `run_filter`.
        times: as for `run_filter`; with a lag, one row for each time, but for engine "exact".
        lag: how many rows of `ys` beyond its own each state is given; None for all. Takes `lag`
            transitions back for every row.
        keep: with a lag, "summaries" keeps means and covariances only, in memory that does not grow
            with the nodes.
        throw: as for `run_filter`.
    """
    laws = checked_keep(keep)
    table = as_table("ys", ys)
    series = series_for(model, table, first, inputs, times)
    require(model, Ability.SMOOTHER)
    if not laws:
        require(model, Ability.SMOOTHED_SUMMARIES)
        if lag is None:
            raise ValueError(
                'keep must be "densities" for a smoother without lag, which goes back over them'
            )
    if lag is not None:
        require(model, Ability.LAG)
        lag = as_count("lag", lag)
        if is_concrete(series.hops) and np.any(np.asarray(series.hops)[1:] == 0):
            require(model, Ability.LAG_OF_SENSORS)
    post = filter_series(model, series, laws, throw, named(model, table, times))
    return smooth_posterior(post, lag, laws)


def smooth_posterior(post: Posterior, lag: int | None, laws: bool) -> Smoothed:
    """The smoother after a filter that has been run."""
    out = post.model.smooth(post.series, post.trace, lag, laws)
    _warn_unresolved(post, out)
    return Smoothed(post, Moments(out.mean, out.covariance), out.laws, out.method, lag, out.errors)


def _warn_unresolved(post: Posterior, out: Smoothing) -> None:
    """Name the first smoothed law that misses the tolerance, unless the filter has warned."""
    if out.errors is None or not is_concrete(out.errors):
        return
    errors, tol = np.asarray(out.errors), post.model.tol
    missed = ~(errors <= tol)
    if missed.any() and not np.any(np.asarray(post.codes) == _results.UNRESOLVED):
        message = unresolved_smoother((post.model.engine, out.method), tol, errors, missed)
        warnings.warn(message, ResolutionWarning, stacklevel=3)
