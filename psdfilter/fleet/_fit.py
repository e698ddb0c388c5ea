"""Fits of every series of a fleet by itself, each started where others have ended."""

import warnings
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from .. import _results
from .._inference.buckets import stack_lengths
from .._inference.model import AbstractModel
from .._parameters.core import Build
from .._parameters.fit import Fit, fit
from .._parameters.theta import Bounds, Coordinates, Theta, as_theta
from ._kernel import Rows
from ._sources import AbstractSource, Raw


class Fitting(NamedTuple):
    """What is fitted, and how.

    Attributes:
        build: theta -> StateSpaceModel.
        theta0: where the first fit of a block starts.
        bounds: of parameters.
        names: of parameters.
        lengths: to which series are filled up with missing rows, which change no likelihood: fits
            of one length share their programs.
        first: as for `run_filter`.
    """

    build: Build
    theta0: Theta
    bounds: Bounds | None
    names: tuple[str, ...]
    lengths: tuple[int, ...]
    first: str
    tol: float = 1e-5

    @staticmethod
    def of(
        build: Build | AbstractModel,
        theta0: Theta | None,
        bounds: Bounds | None,
        source: AbstractSource,
        first: str,
    ) -> "Fitting":
        """Checked."""
        if isinstance(build, AbstractModel) or not callable(build):
            raise ValueError(
                'model must be a function theta -> StateSpaceModel for what="fit", got '
                f"{type(build).__name__}"
            )
        if theta0 is None:
            raise ValueError('theta0 must be given for what="fit": where the searches start')
        theta = as_theta("theta0", theta0)
        limits = None if bounds is None else dict(bounds)
        names = Coordinates.of(theta, limits).names
        lengths = tuple(int(n) for n in stack_lengths(source.lengths))
        return Fitting(build, theta, limits, names, lengths, first)


def fit_rows(num: int, fitting: Fitting) -> Rows:
    """Results of `num` series, before anything is known."""
    size = len(fitting.names)
    return {
        "estimate": np.full((num, size), np.nan),
        "standard_error": np.full((num, size), np.nan),
        "log_likelihood": np.full(num, np.nan),
        "code": np.zeros(num, dtype=np.int64),
        "error_estimate": np.full(num, np.nan),
        "length": np.zeros(num, dtype=np.int64),
        "method": np.full(num, "", dtype="<U16"),
        "message": np.full(num, "", dtype="<U160"),
    }


def fit_block(fitting: Fitting, raws: Sequence[Raw]) -> Rows:
    """One after the other, each from the estimate before it that came out well."""
    rows = fit_rows(len(raws), fitting)
    start = fitting.theta0
    for i, raw in enumerate(raws):
        try:
            found = _fit_one(fitting, raw, start)
        except (ValueError, TypeError, FloatingPointError) as error:
            rows["code"][i], rows["error_estimate"][i] = _results.BAD_SERIES, np.inf
            rows["message"][i] = str(error)
            continue
        rows["length"][i] = len(raw.ys)
        rows["estimate"][i] = np.asarray(found.estimates)
        rows["standard_error"][i] = np.asarray(found.standard_errors)
        rows["log_likelihood"][i] = float(found.log_likelihood)
        rows["method"][i] = "fit"
        # What the last Newton step would still change, as a share of a standard error.
        rows["error_estimate"][i] = 1e-4 if found.converged else np.inf
        if found.converged:
            start = found.theta
        else:
            rows["code"][i] = _results.UNRESOLVED
            rows["message"][i] = "the search has not converged: bounds, a prior or more data"
    return rows


def _fit_one(fitting: Fitting, raw: Raw, start: Theta) -> Fit:
    ys = np.asarray(raw.ys, dtype=float)
    ys = ys[:, None] if ys.ndim == 1 else ys
    if len(ys) == 0 or raw.inputs is not None or raw.times is not None:
        raise ValueError(
            "a fit of every series takes observations at every step, without inputs, and at least "
            "one of them"
        )
    length = next((n for n in fitting.lengths if n >= len(ys)), len(ys))
    filled = np.full((length, ys.shape[1]), np.nan)
    filled[: len(ys)] = ys
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # codes say it
        try:
            return _search(fitting, filled, start)
        except ValueError:
            # Where another series has ended may be of no use for this one.
            return _search(fitting, filled, fitting.theta0)


def _search(fitting: Fitting, ys: np.ndarray, start: Theta) -> Fit:
    return fit(fitting.build, start, ys, bounds=fitting.bounds, first=fitting.first, progress=False)
