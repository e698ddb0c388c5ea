"""Rank-one fits on a design that the user gives, or on random anchors (the paper's Algorithm 1)."""

from dataclasses import dataclass, replace
from time import perf_counter

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Float, PRNGKeyArray
from scipy.spatial.distance import cdist

from .._checks import Numbers, as_count, as_key
from .._density.anchors import TensorGrid, as_anchors, dimension, expand, num_points
from .._density.box import Box
from .._density.psd import GaussianPSD, as_precision
from .axes import nodes_for, stretched_nodes
from .evaluate import RootFunction
from .nystrom import nystrom_ridge
from .points import choose_points
from .probe import kronecker_points, survey
from .report import FitReport
from .ridge import DenseRidge
from .sizing import Budget, Unreachable, pad_for, ridge_for, spread_for
from .tensor_ridge import TensorRidge
from .validation import around, evaluate_model

# eta times the squared mean spacing (2^d / m)^(2/d), tried for scattered anchors in this order.
_SCATTERED_SPREADS = (0.32, 0.16, 0.08, 0.04, 0.02, 0.01)
_POINTS_PER_ANCHOR = 4
_NUM_VALIDATION = 4096
_MAX_DENSE, _MAX_NYSTROM = 1600, 6400


@dataclass(frozen=True)
class Design:
    """What the user fixed, in unit coordinates; None where the choice is ours."""

    anchors: Array | TensorGrid | str | None
    points: Array | TensorGrid | str | None
    precision: Float[Array, " d"] | None
    ridge: float | None
    tol: float | None
    key: PRNGKeyArray | None
    num_anchors: int | None = None
    num_points: int | None = None
    solver: str = "dense"

    @property
    def design_tol(self) -> float:
        """The tolerance that free choices aim at."""
        return 1e-6 if self.tol is None else self.tol


def fit_given(
    root_fn: RootFunction, box: Box, design: Design, budget: Budget
) -> tuple[GaussianPSD, FitReport, Array | TensorGrid]:
    """Model, report and training points for the user's own design, measured on held-out points."""
    start = perf_counter()
    land = survey(root_fn)
    spread_out = kronecker_points(_NUM_VALIDATION, box.dim)
    near = around(land.peaks[:8], 0.5 * np.minimum(land.widths, 0.5), 32)
    check = _Check(root_fn, spread_out, np.concatenate([near, land.peaks, land.others]))
    if isinstance(design.anchors, str):
        solver, coefficients = _random_anchors(root_fn, box, design, budget, check)
    else:
        solver, coefficients = _own_anchors(root_fn, design, budget, check)
    sup, l1, l2 = check.measure(solver, coefficients)
    half = np.asarray(box.half_width)
    anchors, points = _to_user(solver.anchors, box), _to_user(solver.points, box)
    precision = np.asarray(solver.precision) / half**2
    model = GaussianPSD(anchors, coefficients, precision, root_fn.log_peak)
    size = np.abs(coefficients)
    report = FitReport(
        sup_error=sup,
        l1_error=l1,
        l2_error=l2,
        tol=design.tol,
        shape=anchors.shape if isinstance(anchors, TensorGrid) else (len(anchors),),
        precision=tuple(precision.tolist()),
        spread=None,
        ridge=float(solver.ridge),
        coefficient_l1=float(size.sum()),
        coefficient_l2=float(np.linalg.norm(size)),
        coefficient_max=float(size.max()),
        condition=solver.condition,
        num_points=num_points(points),
        num_validation=check.num_points,
        num_evaluations=root_fn.num_calls,
        log_peak=root_fn.log_peak,
        seconds=perf_counter() - start,
    )
    return model, report, points


class _Check:
    """Held-out values of f, and the error of a solution on them."""

    def __init__(self, root_fn: RootFunction, filling, high):
        self._filling, self._points = len(filling), np.concatenate([filling, high])
        self._values = np.sum(root_fn.set_peak(self._points) ** 2, axis=1)
        self.num_points = len(self._points)

    def measure(self, solver, coefficients) -> tuple[float, float, float]:
        """Sup, L1 and L2 error; the integrals by the mean over the space-filling points."""
        error = np.abs(_root_at(solver, coefficients, self._points) ** 2 - self._values)
        filling, values = error[: self._filling], self._values[: self._filling]
        tiny = np.finfo(float).tiny
        l1 = np.mean(filling) / max(np.mean(values), tiny)
        l2 = np.sqrt(np.mean(filling**2) / max(np.mean(values**2), tiny))
        return float(np.max(error)), float(l1), float(l2)


def _root_at(solver, coefficients, points) -> Float[np.ndarray, " n"]:
    """The fitted root in NumPy, in blocks for scattered anchors."""
    eta = np.asarray(solver.precision)
    if isinstance(solver.anchors, TensorGrid):
        axes = [np.asarray(axis) for axis in solver.anchors.axes]
        return evaluate_model(coefficients[:, None], axes, eta, points)[:, 0]
    scale, anchors = np.sqrt(eta), np.asarray(solver.anchors)
    out = np.empty(len(points))
    for start in range(0, len(points), 512):
        part = points[start : start + 512] * scale
        out[start : start + 512] = (
            np.exp(-cdist(part, anchors * scale, "sqeuclidean")) @ coefficients
        )
    return out


def _own_anchors(root_fn, design: Design, budget: Budget, check: _Check):
    assert not isinstance(design.anchors, str)
    anchors = _grid_for(design) if design.anchors is None else design.anchors
    if dimension(anchors) != root_fn.dim:
        raise ValueError(
            f"anchors must have {root_fn.dim} coordinates, as the box does, "
            f"got {dimension(anchors)}"
        )
    points = design.points
    if points is None:
        points = _points_for(anchors, root_fn.dim)
    elif isinstance(points, str):
        num = design.num_points or _POINTS_PER_ANCHOR * num_points(anchors)
        points = _random_points("points", points, root_fn.dim, num, design.key)
    nystrom = design.solver == "nystrom"
    tensor = isinstance(anchors, TensorGrid) and isinstance(points, TensorGrid) and not nystrom
    _check_budget(anchors, points, tensor, budget, nystrom)
    values = root_fn(np.asarray(expand(points)))[:, 0]
    ridge = ridge_for(design.design_tol) if design.ridge is None else design.ridge
    best = None
    for precision in _precisions(anchors, design):
        if nystrom:
            solver = _NystromSolver(expand(anchors), expand(points), precision, ridge)
        elif isinstance(anchors, TensorGrid) and isinstance(points, TensorGrid):
            solver = TensorRidge(anchors, points, precision, ridge)
        else:
            solver = DenseRidge(expand(anchors), expand(points), precision, ridge)
        coefficients = np.asarray(solver.solve(values))
        error = check.measure(solver, coefficients)[0]
        if best is None or error < best[0]:
            best = (error, solver, coefficients)
    assert best is not None
    return best[1:]


class _NystromSolver:
    """The ridge problem of `DenseRidge` by conjugate gradients, without its table of points."""

    def __init__(self, anchors: Array, points: Array, precision: ArrayLike, ridge: float):
        self.anchors, self.points, self.ridge = anchors, points, ridge
        self.precision = as_precision("precision", precision, dimension(anchors))
        centers = np.asarray(anchors) * np.sqrt(np.asarray(self.precision))
        values = np.linalg.eigvalsh(np.exp(-cdist(centers, centers, "sqeuclidean")))
        kept = values[values > np.finfo(float).eps * values.size * values[-1]]
        self.condition = float(kept[-1] / kept[0])

    def solve(self, values: ArrayLike) -> Float[Array, " m"]:
        """Coefficients for the values at all points."""
        fit = nystrom_ridge(
            np.asarray(self.points),
            np.asarray(values),
            self.anchors,
            self.precision,
            ridge=self.ridge,
            progress=False,
        )
        return fit.coefficients


def _random_anchors(root_fn, box: Box, design: Design, budget: Budget, check: _Check):
    """As many random anchors as asked for, or doubled in number until the tolerance is met."""
    unit = Box(-np.ones(box.dim), np.ones(box.dim))
    if design.num_anchors is not None:
        num, choice = design.num_anchors, str(design.anchors)
        anchors = choose_points("anchors", choice, unit, num, design.key)
        points = choice if design.points is None else design.points
        return _own_anchors(root_fn, replace(design, anchors=anchors, points=points), budget, check)
    tol = 1e-3 if design.tol is None else design.tol
    most = _MAX_NYSTROM if design.solver == "nystrom" else _MAX_DENSE
    limit, num = min(most, budget.max_anchors), 25 * 2 ** (box.dim - 1)
    while True:
        num = min(num, limit)
        anchors = choose_points("anchors", str(design.anchors), unit, num, design.key)
        one = replace(design, anchors=anchors, tol=tol)
        solver, coefficients = _own_anchors(root_fn, one, budget, check)
        error = check.measure(solver, coefficients)[0]
        if error <= tol:
            return solver, coefficients
        if num == limit:
            raise Unreachable(
                f"tol = {tol:g} was not met with random anchors: {num} of them leave a sup error "
                f"of {error:.2g} of max f. Leave anchors out for a grid, which needs far fewer, "
                "or raise tol or max_anchors"
            )
        num *= 2


def _random_points(name, choice, dim, num, key):
    unit = Box(-np.ones(dim), np.ones(dim))
    if key is not None:
        # Points must not repeat the anchors that the same key may have drawn.
        key = jax.random.fold_in(as_key("key", key), 1)
    return choose_points(name, choice, unit, num, key)


def _grid_for(design: Design) -> TensorGrid:
    """The padded grid that belongs to a precision."""
    if design.precision is None:
        raise ValueError("points without anchors: give anchors as well, or leave both out")
    spread = spread_for(design.design_tol)
    axes = []
    for eta in np.asarray(design.precision):
        spacing = np.sqrt(spread / eta)
        reach = 1.0 + pad_for(design.design_tol, spread) / np.sqrt(eta)
        count = int(np.ceil(2 * reach / spacing)) + 1
        axes.append(spacing * (np.arange(count) - 0.5 * (count - 1)))
    return TensorGrid(axes)


def _points_for(anchors: Array | TensorGrid, dim: int) -> Array | TensorGrid:
    if isinstance(anchors, TensorGrid):
        counts = [nodes_for(n, 1.25) for n in anchors.shape]
        return TensorGrid([stretched_nodes(np.linspace(np.pi, 0.0, n)) for n in counts])
    return jnp.asarray(kronecker_points(_POINTS_PER_ANCHOR * len(anchors), dim))


def _precisions(anchors: Array | TensorGrid, design: Design) -> list[ArrayLike]:
    if design.precision is not None:
        return [design.precision]
    if isinstance(anchors, TensorGrid):
        gaps = [
            np.median(np.diff(np.sort(np.asarray(a)))) if a.size > 1 else 2.0 for a in anchors.axes
        ]
        return [spread_for(design.design_tol) / np.square(gaps)]
    dim = dimension(anchors)
    spacing = 2.0 / len(anchors) ** (1.0 / dim)
    return [np.full(dim, c / spacing**2) for c in _SCATTERED_SPREADS]


def _check_budget(anchors, points, tensor: bool, budget: Budget, nystrom: bool) -> None:
    order, count = num_points(anchors), num_points(points)
    needed = 16.0 * (order + count) if tensor else 24.0 * order * (order + count)
    if nystrom:
        needed = 48.0 * order**2 + 16.0 * count * (1 + dimension(anchors))
    if order > budget.max_anchors or needed > budget.max_bytes:
        remedy = "" if tensor else " Tensor grids of anchors and points need far less;"
        if not (tensor or nystrom):
            remedy += ' solver="nystrom" needs memory for the anchors only;'
        raise Unreachable(
            f"{order} anchors and {count} points need {needed / 2**30:.2f} GiB, above the budget "
            f"of {budget.max_anchors} anchors and {budget.max_bytes / 2**30:.2f} GiB.{remedy} "
            "raise max_anchors or max_memory, or give fewer"
        )


def _to_user(points: Array | TensorGrid, box: Box) -> Array | TensorGrid:
    center, half = np.asarray(box.center), np.asarray(box.half_width)
    if isinstance(points, TensorGrid):
        axes = zip(center, half, points.axes, strict=True)
        return TensorGrid([c + h * np.asarray(a) for c, h, a in axes])
    return jnp.asarray(center + half * np.asarray(points))


def to_unit(
    name: str, points: Numbers | TensorGrid | None, box: Box
) -> Array | TensorGrid | str | None:
    """The user's points in unit coordinates; names and None pass through."""
    if points is None or isinstance(points, str):
        return points
    array = as_anchors(name, points)
    if dimension(array) != box.dim:
        raise ValueError(f"{name} must have {box.dim} coordinates, got {dimension(array)}")
    center, half = np.asarray(box.center), np.asarray(box.half_width)
    if isinstance(array, TensorGrid):
        axes = zip(center, half, array.axes, strict=True)
        return TensorGrid([(np.asarray(a) - c) / h for c, h, a in axes])
    return jnp.asarray((np.asarray(array) - center) / half)


def as_design(
    box: Box,
    anchors,
    points,
    precision,
    ridge,
    tol,
    key,
    num_anchors: int | None = None,
    num_points: int | None = None,
    solver: str | None = None,
) -> Design:
    """Check what the user fixed and bring it to unit coordinates."""
    solver = "dense" if solver is None else solver
    if solver not in ("dense", "nystrom"):
        raise ValueError(f'solver must be "dense" or "nystrom", got {solver!r}')
    if num_anchors is not None:
        _ = as_count("num_anchors", num_anchors)
        if not isinstance(anchors, str):
            raise ValueError(
                'num_anchors says how many random anchors to draw: pass anchors="uniform" or '
                '"sobol" with it'
            )
    if num_points is not None:
        _ = as_count("num_points", num_points)
        drawn = isinstance(points, str) or (points is None and num_anchors is not None)
        if not drawn:
            raise ValueError(
                "num_points says how many random training points to draw: pass num_anchors, or "
                'points="uniform" or "sobol", with it'
            )
    if ridge is not None and not ridge >= 0:
        raise ValueError(f"ridge must be >= 0, got {ridge!r}")
    for name, choice in (("anchors", anchors), ("points", points)):
        if isinstance(choice, str):
            _ = choose_points(name, choice, box, 1, key)
    eta = None
    if precision is not None:
        eta = as_precision("precision", precision, box.dim) * jnp.square(box.half_width)
    unit = (to_unit("anchors", anchors, box), to_unit("points", points, box))
    return Design(*unit, eta, ridge, tol, key, num_anchors, num_points, solver)
