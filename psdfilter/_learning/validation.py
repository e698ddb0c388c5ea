"""Held-out error of a tensor-grid fit: a fixed validation grid plus scattered points.

The grid fills the box, faces and corners included. The scattered points sit where f is large, where
earlier fits were worst, and around both.
"""

from collections.abc import Sequence
from math import prod

import numpy as np
from jaxtyping import Float

from .axes import Axis, features, stretched_nodes, stretched_slope
from .evaluate import RootFunction
from .probe import kronecker_points
from .tensor_ridge import apply_along_axes

# Points of the validation grid: 3 MB of values for each root.
_GRID_LIMIT = 400_000
# What the largest product on the way may take.
_BLOCK_BYTES = 2e8


def tensor_points(
    axes: Sequence[Float[np.ndarray, " _"]], start: int, stop: int
) -> Float[np.ndarray, "n d"]:
    """Points start..stop of the tensor grid, first axis slowest."""
    index = np.unravel_index(np.arange(start, stop), [len(a) for a in axes])
    return np.stack([a[i] for a, i in zip(axes, index, strict=True)], axis=-1)


def evaluate_grid(
    root_fn: RootFunction, axes: Sequence[Float[np.ndarray, " _"]], advance=None
) -> Float[np.ndarray, "n r"]:
    """Roots on a tensor grid, a block of points at a time."""
    total, block = prod(len(a) for a in axes), 1 << 19
    if total <= block:
        return root_fn(tensor_points(axes, 0, total))
    values = np.empty((total, root_fn.num_roots))
    for start in range(0, total, block):
        stop = min(start + block, total)
        values[start:stop] = root_fn(tensor_points(axes, start, stop))
        if advance is not None:
            advance((stop - start) / total)
    return values


def evaluate_model(
    coefficients: Float[np.ndarray, "m r"],
    anchors: Sequence[Float[np.ndarray, " _"]],
    precision: Sequence[float] | Float[np.ndarray, " d"],
    points: Float[np.ndarray, "n d"],
) -> Float[np.ndarray, "n r"]:
    """The fitted roots at scattered points, by contraction axis by axis, in NumPy.

    Every trial of a search has other shapes, so that compiling would cost more than it saves.
    """
    total, num_roots = coefficients.shape
    first = len(anchors[0])
    block = max(1, int(_BLOCK_BYTES / (8 * total * num_roots / first)))
    tensor = coefficients.reshape(first, -1)
    out = np.empty((len(points), num_roots))
    for start in range(0, len(points), block):
        part = points[start : start + block]
        values = features(part[:, 0], anchors[0], precision[0]) @ tensor
        for i in range(1, len(anchors)):
            phi = features(part[:, i], anchors[i], precision[i])
            values = values.reshape(len(part), len(anchors[i]), -1)
            values = np.matmul(phi[:, None, :], values)[:, 0]
        out[start : start + block] = values.reshape(len(part), num_roots)
    return out


class Validation:
    """Points and values of f that no fit is trained on."""

    def __init__(
        self, root_fn: RootFunction, axes: Sequence[Axis], scattered: Float[np.ndarray, "n d"]
    ):
        """Choose the grid from the first design: about 1.4 nodes per training node."""
        self._root_fn = root_fn
        counts = np.array([int(1.4 * axis.num_nodes) + 3 for axis in axes])
        shrink = min(1.0, (_GRID_LIMIT / prod(map(float, counts))) ** (1.0 / len(counts)))
        thetas = [
            np.pi * (np.arange(n) + 0.5) / n for n in np.maximum(5, (shrink * counts).astype(int))
        ]
        self.nodes = [np.concatenate([stretched_nodes(t), [-1.0, 1.0]]) for t in thetas]
        self._weights = [
            np.concatenate([stretched_slope(t) * np.pi / len(t), [0.0, 0.0]]) for t in thetas
        ]
        self._grid_roots = evaluate_grid(root_fn, self.nodes)
        self._grid_values = _squares(self._grid_roots)
        self.scattered = np.zeros((0, root_fn.dim))
        self._scattered_values = np.zeros(0)
        self.add(scattered)

    @property
    def num_points(self) -> int:
        """Validation points in all."""
        return len(self._grid_values) + len(self.scattered)

    @property
    def highest(self) -> float:
        """Largest value of f at the validation points, relative to the peak."""
        return max(self._grid_values.max(), self._scattered_values.max(initial=0.0))

    def highest_points(self, num: int) -> Float[np.ndarray, "k d"]:
        """Grid points of the largest values."""
        return self._grid_point(np.argsort(-self._grid_values)[:num])

    def _grid_point(self, index: np.ndarray) -> Float[np.ndarray, "k d"]:
        where = np.unravel_index(index, [len(a) for a in self.nodes])
        return np.stack([a[i] for a, i in zip(self.nodes, where, strict=True)], axis=-1)

    def add(self, points: Float[np.ndarray, "n d"]) -> None:
        """More scattered points."""
        if len(points):
            self.scattered = np.concatenate([self.scattered, points])
            values = _squares(self._root_fn(points))
            self._scattered_values = np.concatenate([self._scattered_values, values])

    def errors(
        self, coefficients: Float[np.ndarray, "m r"], axes: Sequence[Axis]
    ) -> tuple[Float[np.ndarray, " n"], Float[np.ndarray, " k"]]:
        """|f_hat - f| / peak on the grid and at the scattered points."""
        matrices = [
            features(nodes, axis.anchors, axis.precision)
            for nodes, axis in zip(self.nodes, axes, strict=True)
        ]
        grid = np.abs(_squares(apply_along_axes(coefficients, matrices)) - self._grid_values)
        fitted = evaluate_model(
            coefficients, [a.anchors for a in axes], [a.precision for a in axes], self.scattered
        )
        return grid, np.abs(_squares(fitted) - self._scattered_values)

    def worst(
        self, grid: Float[np.ndarray, " n"], scattered: Float[np.ndarray, " k"], num: int
    ) -> Float[np.ndarray, "j d"]:
        """The points of the largest errors."""
        errors = np.concatenate([grid, scattered])
        order = np.argpartition(-errors, min(num, len(errors) - 1))[:num]
        on_grid = order[order < len(grid)]
        return np.concatenate(
            [self._grid_point(on_grid), self.scattered[order[order >= len(grid)] - len(grid)]]
        )

    def norms(self, grid: Float[np.ndarray, " n"]) -> tuple[float, float]:
        """Integrals of |f_hat - f| and |f_hat - f|^2, over those of f and f^2, by quadrature."""
        weights = np.ones(1)
        for axis_weights in self._weights:
            weights = np.multiply.outer(weights, axis_weights).ravel()
        f = self._grid_values
        l1 = np.dot(weights, grid) / max(np.dot(weights, f), np.finfo(float).tiny)
        l2 = np.dot(weights, grid**2) / max(np.dot(weights, f**2), np.finfo(float).tiny)
        return float(l1), float(np.sqrt(l2))


def around(
    points: Float[np.ndarray, "k d"], scale: Float[np.ndarray, " d"], copies: int
) -> Float[np.ndarray, "n d"]:
    """`copies` points about each of the given ones, within `scale` per axis, inside the box."""
    offsets = kronecker_points(copies * len(points), points.shape[1])
    moved = np.repeat(points, copies, axis=0) + scale * offsets
    return np.clip(moved, -1.0, 1.0)


def _squares(roots: Float[np.ndarray, "n r"]) -> Float[np.ndarray, " n"]:
    return np.sum(np.square(roots), axis=1)
