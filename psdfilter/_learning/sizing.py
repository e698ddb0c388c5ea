"""From a tolerance to a design: kernel spread, padding, anchors per axis, ridge.

A rank-one fit on a tensor grid errs by about the sum of what each axis errs alone, so every axis is
sized by itself on lines through the box, and the whole is then measured on held-out points. The
spread eta h^2 and the padding depend on the tolerance only: over smooth functions the smallest
number of anchors is flat in both (measured on Gaussian, sine-ridge and Runge families), while the
floor of a grid, 2 exp(-pi^2 / (eta h^2)), and the size of its coefficients are not.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod

import numpy as np
from jaxtyping import Float
from scipy.linalg import cho_factor, cho_solve

from .axes import Axis, factor_axis, features, least_num, nodes_for
from .evaluate import RootFunction
from .probe import Landscape, LineBundle, line_positions
from .tensor_ridge import solve_factored

# The factors of an axis cost the cube of its anchors: 0.3 s for 500, 2 s for 1000.
MAX_PER_AXIS = 1000


class Unreachable(ValueError):
    """The tolerance needs more than the budget."""


@dataclass(frozen=True)
class Budget:
    """Limits on the size of a fit."""

    max_anchors: int
    max_bytes: float

    def check(self, axes: Sequence[Axis], num_roots: int, tol: float) -> None:
        """Raise, with the size needed and what to change, if the design is too large."""
        order = prod(len(axis.anchors) for axis in axes)
        needed = fit_bytes(axes, num_roots)
        if order <= self.max_anchors and needed <= self.max_bytes:
            return
        shape = " x ".join(str(len(axis.anchors)) for axis in axes)
        raise Unreachable(
            f"tol = {tol:g} needs about {order} anchors ({shape}) and {needed / 2**30:.2f} GiB, "
            f"above the budget of {self.max_anchors} anchors and {self.max_bytes / 2**30:.2f} GiB. "
            "Raise max_anchors or max_memory, raise tol, or shrink the box to where f matters"
        )


def fit_bytes(axes: Sequence[Axis], num_roots: int) -> float:
    """Peak memory of a fit: two arrays of values, two of coefficients."""
    points = prod(float(axis.num_nodes) for axis in axes)
    return 16.0 * num_roots * (points + prod(float(len(axis.anchors)) for axis in axes))


def spread_for(tol: float) -> float:
    """eta h^2 for a tolerance: as small as coefficients of moderate size allow."""
    return float(np.pi**2 / (8.2 + 1.96 * np.log(1.0 / tol)))


def pad_for(target: float, spread: float) -> float:
    """Padding in kernel lengths for an error at the ends of the box.

    A grid that stops p kernel lengths past an end errs there by about
    exp(-(1.6 + 0.85 / c) - (3.3 + 0.25 / c) p - p^2), c = eta h^2 (fitted to constants); p solves
    this for a third of the target.
    """
    linear = 3.3 + 0.25 / spread
    missing = max(np.log(3.0 / target) - 1.6 - 0.85 / spread, 0.0)
    return float(0.5 * (np.sqrt(linear**2 + 4 * missing) - linear))


def images_for(tol: float, spread: float) -> int:
    """Copies of a periodised kernel that reach the box with more than 1e-3 tol."""
    return int(np.ceil(np.sqrt(np.log(1e3 / tol) / spread)))


def ridge_for(tol: float) -> float:
    """lambda whose bias sqrt(lambda) |g|_K / 2 is far below the tolerance."""
    return max((1e-3 * tol) ** 2, np.finfo(float).eps ** 2)


def oversampling_for(dim: int) -> float:
    """Training nodes per anchor and axis."""
    return 1.25 if dim <= 4 else 1.1


def line_error(bundle: LineBundle, axis: Axis, ridge: float) -> float:
    """Sup error of f on the lines: fitted on every other node, measured on all."""
    trained = bundle.nodes[::2]
    num_nodes, num_lines, num_roots = bundle.values.shape
    data = bundle.values[::2].reshape(len(trained), -1)
    coefficients = _solve_lines(trained, data, axis, ridge)
    fitted = features(bundle.nodes, axis.anchors, axis.precision) @ coefficients
    squares = np.sum(np.square(fitted.reshape(num_nodes, num_lines, num_roots)), axis=2)
    return float(np.max(np.abs(squares - np.sum(np.square(bundle.values), axis=2))))


def _solve_lines(
    nodes: Float[np.ndarray, " n"], data: Float[np.ndarray, "n l"], axis: Axis, ridge: float
) -> Float[np.ndarray, "m l"]:
    """Ridge coefficients along one axis: normal equations where they hold, else the SVD."""
    eps, fold = np.finfo(float).eps, axis.fold
    # (Phi'Phi + n lambda K) has smallest eigenvalue about n exp(-pi^2 / (2 c)), the square of the
    # kernel's spectrum at the grid's Nyquist frequency; anchors past the box are weaker still.
    if fold is None and np.exp(-(np.pi**2) / (2 * axis.spread)) > np.sqrt(eps):
        phi = features(nodes, axis.anchors, axis.precision)
        gram = features(axis.anchors, axis.anchors, axis.precision)
        normal = phi.T @ phi + len(nodes) * ridge * gram
        try:
            chol = cho_factor(normal, overwrite_a=True, check_finite=False)
            return cho_solve(chol, phi.T @ data, check_finite=False)
        except np.linalg.LinAlgError:
            pass
    factor = factor_axis(nodes, axis.anchors, axis.precision, fold)
    return solve_factored(data, [factor.left], [factor.singular], [factor.lift], ridge)


class AxisSizer:
    """The fewest anchors of one axis for a target error on its lines."""

    def __init__(
        self,
        root_fn: RootFunction,
        land: Landscape,
        axis: int,
        tol: float,
        periodic: bool,
        limit: int,
    ):
        """Lay lines through the box, on nodes fine enough for the narrowest width seen."""
        self.axis, self.tol, self.periodic, self.limit = axis, tol, periodic, limit
        self.spread, self._single = spread_for(tol), root_fn.dim == 1
        self._oversampling = oversampling_for(root_fn.dim)
        guess = (0.35 * np.log10(1.0 / tol) + 0.8) * 2.0 / land.widths[axis]
        self._guess = float(np.clip(guess, 3.0, limit))
        num_lines = {1: 1, 2: 49}.get(root_fn.dim, 256)
        positions = line_positions(land, axis, num_lines, root_fn.dim)
        num_nodes = 2 ** int(np.ceil(np.log2(2.6 * max(self._guess, 12.0))))
        self._bundle = LineBundle(
            root_fn, axis, positions, num_nodes + (0 if periodic else 1), periodic
        )
        self._errors: dict[Axis, float] = {}

    def add_lines(self, points: Float[np.ndarray, "k d"]) -> None:
        """Measure on the lines through these points as well."""
        self._bundle.add(points)
        self._errors.clear()

    def _design(self, num: int, pad: float) -> Axis:
        if self.periodic:
            images = images_for(self.tol, self.spread)
            return Axis.circular(num, self.spread, images, self._oversampling)
        return Axis.padded(num, self.spread, pad, self._oversampling)

    def error(self, axis: Axis) -> float:
        """Sup error on the lines."""
        while len(self._bundle.nodes) < 2.5 * axis.num:
            self._bundle.refine()
            self._errors.clear()
        if axis not in self._errors:
            self._errors[axis] = line_error(self._bundle, axis, ridge_for(self.tol))
        return self._errors[axis]

    def smallest(self, target: float) -> Axis:
        """Fewest anchors with error at most `target`: bracket, bisect, then less padding."""
        pad = pad_for(target, self.spread)
        least = 3 if self.periodic else max(3, least_num(self.spread, pad))
        low, high = least - 1, None
        num = int(np.clip(round(self._guess), least, self.limit))
        while high is None or high - low > 1:
            error = self.error(self._design(num, pad))
            if error <= target:
                high = num
                num = max(low + 1, (low + high) // 2 if low >= least else int(num / 1.3))
            else:
                if num >= self.limit:
                    half = self.error(self._design(max(least, num // 2), pad))
                    raise Unreachable(self._message(num, error, half, target))
                low = num
                grown = int(np.ceil(1.3 * num)) + 1
                num = min(grown, self.limit) if high is None else (low + high) // 2
        self._guess = high
        found = self.shave(self._design(high, pad), target)
        return self._scan(found, pad, target) if self._single and found.num <= 32 else found

    def _scan(self, found: Axis, pad: float, target: float) -> Axis:
        """Any smaller design: on few anchors the error is not monotone in their number."""
        for num in range(3, found.num):
            for share in (0.0, 0.5, 1.0):
                if self.periodic or num >= least_num(self.spread, share * pad):
                    axis = self._design(num, share * pad)
                    if self.error(axis) <= target:
                        return axis
        return found

    def shave(self, axis: Axis, target: float) -> Axis:
        """Drop padding while the error allows: f may vanish at the ends."""
        while not self.periodic and axis.num > 2:
            fewer = axis.shaved(self._oversampling)
            if self.error(fewer) > target:
                break
            axis = fewer
        return axis

    def fewer(self, axis: Axis, step: int, target: float) -> Axis | None:
        """`step` anchors less, by wider spacing or less padding; None if the lines forbid both."""
        num = axis.num - step
        if num < 3:
            return None
        if self.periodic:
            options = [self._design(num, 0.0)]
        else:
            stretch = (axis.num - 1) / (num - 1)
            less = replace(axis, num=num, num_nodes=nodes_for(num, self._oversampling))
            factors = (1.0, 0.93 * stretch, stretch, 1.07 * stretch)
            options = [replace(less, spacing=axis.spacing * k) for k in factors]
        best = min(options, key=self.error)
        return best if self.error(best) <= target else None

    def _message(self, num: int, error: float, half: float, target: float) -> str:
        rate = max(np.log2(max(half, 1e-300) / max(error, 1e-300)), 0.05)
        needed = num * (error / target) ** (1.0 / rate)
        size = f"about {needed:.0f}" if needed < 1e9 else "more than 1e9"
        cause = (
            f"halving the spacing gains a factor of {2**rate:.1f} only, as if the root of f were "
            "not smooth (a kink of sqrt(f) inside the box). Give several smooth roots to "
            "learn_roots, use learn_full_rank, or raise tol"
            if rate < 6 and half < 0.1
            else "f is very narrow along this axis, or its root jumps. Shrink the box to where f "
            "matters or to one side of the jump, raise tol, or raise max_anchors"
        )
        return (
            f"tol = {self.tol:g} is out of reach on axis {self.axis}: {num} anchors leave an error "
            f"of {error:.2g} of max f and {size} would be needed; {cause}"
        )
