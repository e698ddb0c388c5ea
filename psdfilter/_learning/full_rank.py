"""Full-rank learning: the convex problem over all positive semidefinite weight matrices.

    min_{A >= 0}  (1/n) sum_i (f(x_i) - k_i' A k_i)^2 + lambda |K^{1/2} A K^{1/2}|_F^2

Whitened, A = T B T' with T' K T = I, the penalty is lambda |B|_F^2 and the data enter through
q_i = w_i w_i', w_i = T' k_i. The q_i span far fewer directions than the entries of B (at most
(2m - 1)^d on a grid of m^d anchors, for products of kernels are kernels at midpoints): with
<q_i, q_j> / n = (w_i' w_j)^2 / n = U diag(sigma^2) U' the problem has one row
R_k = sum_i U_ik q_i / sqrt(n) for each kept eigenvalue, and Newton's method on its dual works in
that many unknowns.
"""

import time
from collections.abc import Callable
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Float

from .._checks import as_count, require_x64
from .._density.anchors import TensorGrid, as_anchors, dimension, expand, num_points
from .._density.box import Box, as_finite_box
from .._density.psd import GaussianPSD, as_precision
from .axes import Axis, least_num, stretched_nodes
from .evaluate import RootFunction
from .nystrom import host_features, whiten
from .probe import kronecker_points
from .psd_newton import PsdSolution, psd_least_squares
from .table import AbstractReport

# Default grid: eta h^2, reach past the box in kernel lengths, anchors per axis by dimension.
_SPREAD, _PAD = 0.35, 1.0
_ANCHORS_PER_AXIS = {1: 24, 2: 10, 3: 6}
_MAX_POINTS = 6000
_MAX_BYTES = 4 * 2**30
_NUM_VALIDATION = 4096


class FullRankReport(AbstractReport):
    """What a full-rank fit did; errors are those of f at points the fit did not see."""

    num_anchors: int
    num_points: int
    num_rows: int  # p, unknowns of the dual
    rank: int  # of A
    ridge: float
    sup_error: float  # relative to the largest value of f
    rms_error: float
    residual: float  # |F| / |b| of the dual: zero at the exact solution
    duality_gap: float  # relative to |b|^2 / 2: how far the objective can be above its minimum
    weight_norm: float  # sum_ij |A_ij| / max f
    iterations: int
    seconds: float

    def rows(self) -> list[tuple[str, str]]:
        """Names and values, in the order they are shown."""
        return [
            ("sup error / max f", f"{self.sup_error:.2e}"),
            ("rms error / max f", f"{self.rms_error:.2e}"),
            ("anchors", f"{self.num_anchors}"),
            ("rank", f"{self.rank}"),
            ("ridge", f"{self.ridge:.1e}"),
            ("sum |A_ij| / max f", f"{self.weight_norm:.3g}"),
            ("training points", f"{self.num_points} ({self.num_rows} directions)"),
            ("validation points", f"{_NUM_VALIDATION}"),
            ("KKT residual", f"{self.residual:.1e}"),
            ("duality gap", f"{self.duality_gap:.1e} after {self.iterations} Newton steps"),
            ("time", f"{self.seconds:.3g} s"),
        ]


class FullRankFit(eqx.Module):
    """f(x) = k(x)' A k(x) with the best A >= 0, and how it was found."""

    model: GaussianPSD
    report: FullRankReport = eqx.field(static=True)


class _Program(NamedTuple):
    whitener: Float[np.ndarray, "m r"]  # T
    rows: Float[Array, "p r r"]  # R_k
    left: Float[np.ndarray, "n p"]  # U


def learn_full_rank(
    f: Callable,
    box: Box | tuple[ArrayLike, ArrayLike],
    *,
    anchors: ArrayLike | TensorGrid | None = None,
    points: ArrayLike | TensorGrid | None = None,
    precision: ArrayLike | None = None,
    num_anchors: int | None = None,
    ridge: float = 1e-10,
    vectorized: bool = False,
    log: bool = False,
    solver_tol: float = 1e-11,
    max_iterations: int = 100,
) -> FullRankFit:
    """min over A >= 0 of (1/n) sum_i (f(x_i) - k_i' A k_i)^2 + ridge |K^{1/2} A K^{1/2}|_F^2.

    For functions whose root is not smooth, such as x_1^2 + x_2^2, where a model of rank one cannot
    be good. Costs grow with the cube of the number of anchors: a few hundred at most.

    Args:
        f: non-negative function of a point (d,); with `vectorized`, of points (n, d).
        box: where f is to be learned.
        anchors: (m, d) array or grid, in the units of the box; by default a padded regular grid.
        points: where f is evaluated, (n, d) array or grid; by default finer than the anchors.
        precision: eta, needed with scattered `anchors`.
        num_anchors: anchors per axis of the default grid.
        ridge: lambda > 0, for kernel values of size one; the scale of f does not matter.
        vectorized: whether f takes many points at once.
        log: whether f returns log-densities.
        solver_tol: residual of the optimality conditions at which to stop.
        max_iterations: Newton steps before giving up.
    """
    require_x64()
    start = time.perf_counter()
    box = as_finite_box("box", box)
    if not (np.isfinite(ridge) and ridge > 0):
        raise ValueError(f"ridge must be positive and finite, got {ridge!r}")
    _ = as_count("max_iterations", max_iterations)
    anchors, points, eta = _design(box, anchors, points, precision, num_anchors)
    function = RootFunction([f], box, kind="log" if log else "value", vectorized=vectorized)
    values = np.square(function.set_peak(np.asarray(box.to_unit(points)))[:, 0])
    if not np.max(values) > 0:
        raise ValueError(f"f must be positive somewhere, got zero at all {len(values)} points")
    program = _program(np.asarray(points), np.asarray(expand(anchors)), np.asarray(eta))
    target = jnp.asarray(program.left.T @ values / np.sqrt(len(values)))
    solution = psd_least_squares(
        program.rows,
        target,
        jnp.asarray(float(ridge)),
        tol=float(solver_tol),
        max_iterations=max_iterations,
    )
    if not bool(jnp.isfinite(solution.residual)):
        raise ValueError(
            "ridge must be above the rounding of the normal equations, about "
            f"{len(values) * np.finfo(float).eps:.1e}, got {ridge!r}"
        )
    model = GaussianPSD(anchors, _factor(program.whitener, solution), eta, function.log_peak)
    sizes = (program.whitener.shape[0], len(values), len(target))
    report = _report(model, function, box, solution, sizes, float(ridge), start)
    return FullRankFit(model, report)


def _design(box, anchors, points, precision, num_anchors):
    """Anchors, training points and precision in the user's units, checked."""
    dim = box.dim
    if anchors is None:
        anchors, spacing_precision, per_axis = _default_grid(box, num_anchors)
        precision = spacing_precision if precision is None else precision
    else:
        anchors = as_anchors("anchors", anchors)
        per_axis = int((4 * num_points(anchors)) ** (1 / dim)) + 4
    if dimension(anchors) != dim:
        raise ValueError(
            f"anchors must have {dim} coordinates, as box does, got {dimension(anchors)}"
        )
    if precision is None:
        raise ValueError("precision must be given with anchors, got None")
    eta = as_precision("precision", precision, dim)
    if points is None:
        per_axis = min(per_axis, int(_MAX_POINTS ** (1 / dim)))
        nodes = stretched_nodes(np.linspace(np.pi, 0.0, per_axis))
        points = TensorGrid([_to_user(box, l, nodes) for l in range(dim)])
    points = expand(as_anchors("points", points))
    if points.shape[1] != dim:
        raise ValueError(f"points must have {dim} coordinates, as box does, got {points.shape[1]}")
    inside = np.asarray(box.contains(points))
    if not inside.all():
        i = int(np.argmin(inside))
        raise ValueError(f"points must lie in the box, got {np.asarray(points[i])} in row {i}")
    if len(points) > _MAX_POINTS:
        raise ValueError(
            f"points must number at most {_MAX_POINTS} for the full-rank problem, "
            f"got {len(points)}; thin them, or use fewer anchors per axis"
        )
    return anchors, points, eta


def _default_grid(box: Box, num_anchors: int | None) -> tuple[TensorGrid, np.ndarray, int]:
    """A padded grid, its precision, and training nodes per axis: 1.5 (1.2 in 3-d) per midpoint."""
    dim = box.dim
    if num_anchors is None and dim not in _ANCHORS_PER_AXIS:
        raise ValueError(f"num_anchors or anchors must be given in {dim} dimensions, got None")
    num = _ANCHORS_PER_AXIS[dim] if num_anchors is None else num_anchors
    num = as_count("num_anchors", num, least=least_num(_SPREAD, _PAD))
    axis = Axis.padded(num, _SPREAD, _PAD, 1.0)
    grid = TensorGrid([_to_user(box, l, axis.anchors) for l in range(dim)])
    per_axis = int(np.ceil((1.5 if dim < 3 else 1.2) * (2 * num - 1)))
    return grid, axis.precision / np.asarray(box.half_width) ** 2, per_axis


def _to_user(box: Box, axis: int, unit: np.ndarray) -> np.ndarray:
    # The ends of the unit interval must not leave the box by rounding.
    x = float(box.center[axis]) + float(box.half_width[axis]) * unit
    low, high = float(box.lower[axis]), float(box.upper[axis])
    return np.where(np.abs(unit) <= 1, np.clip(x, low, high), x)


def _program(points: np.ndarray, anchors: np.ndarray, eta: np.ndarray) -> _Program:
    root_eta = np.sqrt(eta)
    x, z = points * root_eta, anchors * root_eta
    whitener = whiten(host_features(z, z))
    white = host_features(x, z) @ whitener
    n, rank = white.shape
    values, vectors = np.linalg.eigh(np.square(white @ white.T) / n)
    left = vectors[:, values > n * np.finfo(float).eps * values[-1]]
    # Rows, their rotated copy and the weighted copy of a Newton step.
    needed = 3 * 8 * left.shape[1] * rank**2
    if needed > _MAX_BYTES:
        raise ValueError(
            f"anchors must be fewer for the full-rank problem: {len(anchors)} anchors need "
            f"{needed / 2**30:.1f} GiB, the limit is {_MAX_BYTES / 2**30:.0f} GiB"
        )
    rows = _rows(jnp.asarray(left / np.sqrt(n)), jnp.asarray(white))
    return _Program(whitener, rows, left)


@jax.jit
def _rows(left: Float[Array, "n p"], white: Float[Array, "n r"]) -> Float[Array, "p r r"]:
    return jax.lax.map(lambda u: white.T @ (u[:, None] * white), left.T)


def _factor(whitener: np.ndarray, solution: PsdSolution) -> np.ndarray:
    """L = T V diag(s)^{1/2}, without the columns that rounding left."""
    values = np.asarray(solution.eigenvalues)
    kept = values > len(values) * np.finfo(float).eps * max(values.max(), np.finfo(float).tiny)
    if not kept.any():
        kept[-1] = True
    return whitener @ (np.asarray(solution.eigenvectors)[:, kept] * np.sqrt(values[kept]))


def _report(
    model: GaussianPSD,
    function: RootFunction,
    box: Box,
    solution: PsdSolution,
    sizes: tuple[int, int, int],
    ridge: float,
    start: float,
) -> FullRankReport:
    unit = kronecker_points(_NUM_VALIDATION, box.dim)
    truth = np.square(function(unit)[:, 0])
    error = np.asarray(model(box.from_unit(unit))) * np.exp(-function.log_peak) - truth
    weights = np.abs(np.asarray(model.factor) @ np.asarray(model.factor).T)
    residual = float(solution.residual)
    return FullRankReport(
        num_anchors=sizes[0],
        num_points=sizes[1],
        num_rows=sizes[2],
        rank=model.rank,
        ridge=ridge,
        sup_error=float(np.abs(error).max()),
        rms_error=float(np.sqrt(np.mean(error**2))),
        residual=residual,
        duality_gap=residual**2,
        weight_norm=float(weights.sum()),
        iterations=int(solution.iterations),
        seconds=time.perf_counter() - start,
    )
