"""The design of a whole tensor grid, against error measured on held-out points."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod

import numpy as np
from jaxtyping import Float

from .axes import Axis, AxisFactor, factor_axis
from .evaluate import RootFunction
from .probe import Landscape
from .sizing import MAX_PER_AXIS, AxisSizer, Budget, Unreachable, ridge_for
from .tensor_ridge import solve_factored
from .validation import Validation, around, evaluate_grid

_MARGIN = 0.9  # of the tolerance: what held-out points may use up
_NORM_LIMIT = 50.0  # of |a|, relative to sqrt(max f)
_MAX_TRIMS = 12
_SMALL = 250  # anchors


@dataclass
class GridFit:
    """A fit on a tensor grid in unit coordinates, relative to the peak."""

    axes: list[Axis]
    coefficients: Float[np.ndarray, "m r"]
    ridge: float
    condition: float
    sup_error: float
    l1_error: float
    l2_error: float
    validation: Validation


class GridSearch:
    """Sizes all axes together against measured error."""

    def __init__(
        self,
        root_fn: RootFunction,
        land: Landscape,
        tol: float,
        periodic: Sequence[bool],
        budget: Budget,
        ridge: float | None = None,
        advance: Callable[[float], None] | None = None,
    ):
        """Prepare the lines of every axis."""
        self.root_fn, self.land, self.tol, self.budget = root_fn, land, tol, budget
        self.ridge, self._advance = ridge, advance
        limit = min(MAX_PER_AXIS, budget.max_anchors)
        self._sizers = [
            AxisSizer(root_fn, land, i, tol, periodic[i], limit) for i in range(root_fn.dim)
        ]
        self._validation: Validation | None = None
        self._factors: dict[Axis, AxisFactor] = {}

    def run(self) -> GridFit:
        """The smallest design found whose held-out error is within the tolerance.

        On small grids the best spread depends on f, and trying others costs little.
        """
        best = self._search()
        if best.sup_error > self.tol or _order(best) > _SMALL:
            return best
        spreads = [sizer.spread for sizer in self._sizers]
        for scale in (0.7, 1.5):
            for sizer, spread in zip(self._sizers, spreads, strict=True):
                sizer.spread = scale * spread
            try:
                other = self._search()
            except Unreachable:
                continue
            if _order(other) < _order(best) and _size(other) <= 2 * _NORM_LIMIT:
                best = other
        return best

    def _search(self) -> GridFit:
        target, dim = _MARGIN * self.tol, self.root_fn.dim
        share = 1.0 / dim**0.7
        axes: list[Axis] = []
        widened, sup_error = 0, np.inf
        for _ in range(12):
            before, axes = axes, [sizer.smallest(share * target) for sizer in self._sizers]
            fit = self.fit(axes)
            sup_error = fit.sup_error
            if fit.validation.highest > 1.05:
                return fit  # the scale was wrong: the caller starts again
            if fit.sup_error <= target:
                fit = self._calm(fit, target)
                if self.ridge is not None or _size(fit) <= 2 * _NORM_LIMIT or widened == 3:
                    return self._trim(fit, target)
                # Large coefficients that no ridge within the tolerance tames: kernels too wide.
                widened += 1
                for sizer in self._sizers:
                    sizer.spread *= 1.2
                continue
            if axes == before or dim == 1:
                share *= float(np.clip(0.7 * target / fit.sup_error, 0.1, 0.7))
            worst = self._worst_points(fit)
            for sizer in self._sizers:
                sizer.add_lines(worst)
        shape = " x ".join(str(axis.num) for axis in axes)
        raise Unreachable(
            f"tol = {self.tol:g} was not met: the last of twelve designs, "
            f"{shape} anchors, leaves a sup error of {sup_error:.2g} of max f. "
            "If sqrt(f) has a kink inside the box, give several smooth roots to learn_roots "
            "or use learn_full_rank; else raise tol"
        )

    def fit(self, axes: list[Axis], ridge: float | None = None) -> GridFit:
        """Train on the design and measure it."""
        self.budget.check(axes, self.root_fn.num_roots, self.tol)
        ridge = ridge if ridge is not None else self.ridge
        ridge = ridge if ridge is not None else ridge_for(self.tol)
        values = evaluate_grid(self.root_fn, [a.nodes for a in axes], self._advance)
        factors = [self._factor(axis) for axis in axes]
        coefficients = solve_factored(
            values,
            [f.left for f in factors],
            [f.singular for f in factors],
            [f.lift for f in factors],
            ridge,
        )
        condition = prod(f.condition for f in factors)
        return self._measure(axes, coefficients, ridge, condition)

    def _factor(self, axis: Axis) -> AxisFactor:
        if axis not in self._factors:
            self._factors[axis] = factor_axis(axis.nodes, axis.anchors, axis.precision, axis.fold)
        return self._factors[axis]

    def _measure(self, axes, coefficients, ridge, condition) -> GridFit:
        if self._validation is None:
            self._validation = Validation(self.root_fn, axes, self._scattered(axes))
        check = self._validation
        grid, scattered = check.errors(coefficients, axes)
        sup = max(float(grid.max()), float(scattered.max()))
        # A second look where the error is largest: the grid need not hit its maxima.
        if sup <= self.tol:
            scale = np.array([0.5 * axis.spacing for axis in axes])
            check.add(around(check.worst(grid, scattered, 8), scale, 16))
            grid, scattered = check.errors(coefficients, axes)
            sup = max(float(grid.max()), float(scattered.max()))
        l1, l2 = check.norms(grid)
        return GridFit(list(axes), coefficients, ridge, condition, sup, l1, l2, check)

    def _scattered(self, axes: Sequence[Axis]) -> Float[np.ndarray, "n d"]:
        scale = np.array([axis.spacing for axis in axes])
        peaks, others = self.land.peaks[:8], self.land.others
        return np.concatenate(
            [peaks, around(peaks, scale, 16), others[:: max(1, len(others) // 256)]]
        )

    def _worst_points(self, fit: GridFit) -> Float[np.ndarray, "k d"]:
        grid, scattered = fit.validation.errors(fit.coefficients, fit.axes)
        return fit.validation.worst(grid, scattered, 4)

    def _trim(self, fit: GridFit, target: float) -> GridFit:
        """Fewer anchors, axis by axis, while the error allows and trying is cheap."""
        cheap = prod(axis.num_nodes for axis in fit.axes) < 50_000
        steps = {i: max(1, axis.num // 12) for i, axis in enumerate(fit.axes)} if cheap else {}
        for _ in range(_MAX_TRIMS):
            if not steps:
                break
            # The axis that can lose the largest share of its anchors comes first.
            i = max(steps, key=lambda j: steps[j] / fit.axes[j].num)
            fewer = self._sizers[i].fewer(fit.axes[i], steps[i], target)
            if fewer is not None:
                axes = [fewer if j == i else a for j, a in enumerate(fit.axes)]
                trial = self.fit(axes, fit.ridge)
                if trial.sup_error <= target and _size(trial) <= max(_NORM_LIMIT, _size(fit)):
                    fit = trial
                    continue
            steps[i] //= 2
            if steps[i] == 0:
                del steps[i]
        return fit

    def _calm(self, fit: GridFit, target: float) -> GridFit:
        """A larger ridge if the coefficients are large and the error allows it."""
        while self.ridge is None and _size(fit) > _NORM_LIMIT:
            trial = self.fit(fit.axes, ridge=10.0 * fit.ridge)
            if trial.sup_error > target:
                break
            fit = trial
        return fit


def _order(fit: GridFit) -> int:
    return prod(len(axis.anchors) for axis in fit.axes)


def _size(fit: GridFit) -> float:
    return float(np.max(np.linalg.norm(fit.coefficients, axis=0)))
