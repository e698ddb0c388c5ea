"""Learn f as the square of one Gaussian expansion: f_hat(x) = (a' k(x))^2, a fitted to sqrt(f)."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import prod
from time import perf_counter

import numpy as np
from jaxtyping import Array, ArrayLike, Float, PRNGKeyArray

from .._checks import as_axes
from .._density.anchors import TensorGrid
from .._density.box import Box, as_finite_box
from .._density.psd import GaussianPSD
from .evaluate import RootFunction
from .given import as_design, fit_given
from .grid_search import GridFit, GridSearch
from .probe import survey
from .progress import Bar
from .report import FitReport
from .sizing import Budget, Unreachable
from .tensor_ridge import TensorRidge

# Coefficients of up to fifty (`grid_search`) round at 50 eps = 1e-14 of the peak, twice that in f.
_LEAST_TOL = 1e-12


@dataclass(frozen=True)
class RankOneFit:
    """A learned model, its report, and the training points it came from.

    `solver()` is the factored regression behind it: new values of the root at `points` give new
    coefficients by a few matrix products.
    """

    model: GaussianPSD
    report: FitReport
    points: TensorGrid | Float[Array, "n d"]
    folds: tuple[np.ndarray | None, ...] | None = None

    def solver(self) -> TensorRidge:
        """The tensor-grid regression of this fit, for relearning from other values."""
        if not isinstance(self.points, TensorGrid) or not isinstance(
            self.model.anchors, TensorGrid
        ):
            raise ValueError(
                "solver needs a fit on tensor grids; use DenseRidge for scattered points"
            )
        return TensorRidge(
            self.model.anchors,
            self.points,
            self.model.precision,
            self.report.ridge,
            folds=self.folds,
        )

    def __str__(self) -> str:
        return f"rank-one fit\n{self.report}"


def learn_rank_one(
    f: Callable,
    box: Box | tuple[ArrayLike, ArrayLike],
    *,
    tol: float | None = None,
    log: bool = False,
    vectorized: bool = False,
    anchors: ArrayLike | TensorGrid | str | None = None,
    points: ArrayLike | TensorGrid | str | None = None,
    precision: ArrayLike | None = None,
    ridge: float | None = None,
    key: PRNGKeyArray | None = None,
    num_anchors: int | None = None,
    num_points: int | None = None,
    solver: str | None = None,
    periodic: int | Sequence[int] = (),
    max_anchors: int | None = None,
    max_memory: float = 4 * 2**30,
    progress: bool | None = None,
) -> RankOneFit:
    """f_hat(x) = (a' k(x))^2 with sup |f_hat - f| <= tol max f on the box.

    By default anchors form a padded regular grid, and its kernel width, spacing per axis and size
    follow from `tol` by measured error on points that were not trained on.

    The paper's Algorithm 1 to the letter, M uniform anchors and N uniform training points drawn
    once, with a kernel and a ridge that are given:

        learn_rank_one(f, box, anchors="uniform", num_anchors=M, num_points=N, precision=eta,
                       ridge=lam, key=key)

    Args:
        f: non-negative function of one point, `(d,) -> scalar`, in JAX or NumPy.
        box: where f is learned, in the user's units.
        tol: sup error relative to max f; 1e-3 unless the design is given.
        log: f is the logarithm of the function; -inf means zero.
        vectorized: f maps `(n, d) -> (n,)`.
        anchors: None for the grid; an array `(m, d)` or a `TensorGrid` for your own; "uniform" or
            "sobol" for random anchors (needs `key`): `num_anchors` of them, or doubled in number
            until `tol` is met.
        points: training points for given anchors: as for `anchors`; with `num_anchors` random ones
            of the same kind.
        precision: eta in the user's units, instead of a choice by measured error.
        ridge: lambda, instead of one that follows from `tol`.
        key: random key for "uniform" and "sobol".
        num_anchors: how many random anchors, M; the report says how good they are.
        num_points: how many random training points, N; four for each anchor if None.
        solver: for scattered anchors, "dense" (direct; the default) or "nystrom" (conjugate
            gradients, memory for the anchors only): `nystrom_ridge` on the same problem.
        periodic: axes along which f is periodic with the box as its period.
        max_anchors: largest order allowed.
        max_memory: bytes that values and coefficients may take.
        progress: show a progress bar; by default only for long work on a terminal.

    Returns:
        A fit with `.model` and `.report`.

    Raises:
        ValueError: bad input, or a tolerance out of reach: the message says what it would take.
    """
    box = as_finite_box("box", box)
    root_fn = RootFunction([f], box, kind="log" if log else "value", vectorized=vectorized)
    budget = as_budget(max_anchors, max_memory)
    if any(o is not None for o in (anchors, points, precision, num_anchors, num_points, solver)):
        if as_axes("periodic", periodic, box.dim):
            raise ValueError(
                "periodic axes need the automatic grid: leave anchors, points and precision out"
            )
        tol = None if tol is None else as_tolerance(tol)
        design = as_design(
            box, anchors, points, precision, ridge, tol, key, num_anchors, num_points, solver
        )
        return RankOneFit(*fit_given(root_fn, box, design, budget))
    return RankOneFit(*fit_tolerance(root_fn, box, tol, periodic, ridge, budget, progress))


def fit_tolerance(
    root_fn: RootFunction,
    box: Box,
    tol: float | None,
    periodic: int | Sequence[int],
    ridge: float | None,
    budget: Budget,
    progress: bool | None,
) -> tuple[GaussianPSD, FitReport, TensorGrid, tuple[np.ndarray | None, ...]]:
    """Model, report, training grid and folds of the smallest grid found for the tolerance."""
    start = perf_counter()
    tol = as_tolerance(1e-3 if tol is None else tol)
    circular = np.isin(np.arange(box.dim), as_axes("periodic", periodic, box.dim)).tolist()
    land = survey(root_fn)
    with Bar("learning", progress) as bar:
        for _ in range(4):
            search = GridSearch(root_fn, land, tol, circular, budget, ridge, bar.advance)
            fit = search.run()
            if fit.validation.highest <= 1.05:
                result = _in_user_units(fit, root_fn, box, tol, perf_counter() - start)
                return *result, tuple(axis.fold for axis in fit.axes)
            # A higher peak than the survey's: start again from it.
            root_fn.log_peak += float(np.log(fit.validation.highest))
            land = replace(
                land, peaks=np.concatenate([fit.validation.highest_points(8), land.peaks])
            )
    raise Unreachable(
        "f has peaks too narrow to be found: each pass over the box met one higher than before. "
        "Shrink the box to where f matters, or pass log f with log=True"
    )


def _in_user_units(
    fit: GridFit, root_fn: RootFunction, box: Box, tol: float, seconds: float
) -> tuple[GaussianPSD, FitReport, TensorGrid]:
    center, half = np.asarray(box.center), np.asarray(box.half_width)
    precision = np.array([axis.precision for axis in fit.axes]) / half**2
    grid = TensorGrid([c + h * a.anchors for c, h, a in zip(center, half, fit.axes, strict=True)])
    nodes = TensorGrid([c + h * a.nodes for c, h, a in zip(center, half, fit.axes, strict=True)])
    model = GaussianPSD(grid, fit.coefficients, precision, root_fn.log_peak)
    size = np.abs(fit.coefficients)
    report = FitReport(
        sup_error=fit.sup_error,
        l1_error=fit.l1_error,
        l2_error=fit.l2_error,
        tol=tol,
        shape=grid.shape,
        precision=tuple(precision.tolist()),
        spread=tuple(axis.spread for axis in fit.axes),
        ridge=fit.ridge,
        coefficient_l1=float(size.sum(axis=0).max()),
        coefficient_l2=float(np.linalg.norm(size, axis=0).max()),
        coefficient_max=float(size.max()),
        condition=fit.condition,
        num_points=prod(axis.num_nodes for axis in fit.axes),
        num_validation=fit.validation.num_points,
        num_evaluations=root_fn.num_calls,
        log_peak=root_fn.log_peak,
        seconds=seconds,
    )
    return model, report, nodes


def as_tolerance(tol: float) -> float:
    """`tol` as a number that float64 can honour."""
    if not isinstance(tol, int | float | np.floating | np.integer) or isinstance(tol, bool):
        raise ValueError(f"tol must be a positive number, got {tol!r}")
    if not tol > 0 or not np.isfinite(tol):
        raise ValueError(f"tol must be a positive number, got {tol!r}")
    if tol < _LEAST_TOL:
        raise ValueError(f"tol must be at least {_LEAST_TOL:g}, the reach of float64, got {tol!r}")
    return float(min(tol, 0.5))


def as_budget(max_anchors: int | None, max_memory: float) -> Budget:
    """The limits as a Budget."""
    if max_anchors is not None and not max_anchors >= 1:
        raise ValueError(f"max_anchors must be at least 1, got {max_anchors!r}")
    if not max_memory > 0:
        raise ValueError(f"max_memory must be a positive number of bytes, got {max_memory!r}")
    return Budget(2**62 if max_anchors is None else int(max_anchors), float(max_memory))
