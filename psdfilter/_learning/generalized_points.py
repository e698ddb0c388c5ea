"""Training and held-out points for components with free shapes, on the unit cube."""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from .._checks import Numbers, as_floats
from .._density.anchors import TensorGrid
from .._density.box import Box
from .axes import stretched_nodes
from .components import Shapes, evaluate_root
from .evaluate import RootFunction
from .probe import kronecker_points

# Training points per parameter, their least number by dimension, and their largest.
_POINTS_PER_PARAMETER, _MOST_POINTS = 10, 20_000
_LEAST_POINTS = {1: 500, 2: 2500}
_NUM_CANDIDATES = 65_536
_NUM_VALIDATION = {1: 4096, 2: 16_384}
_BLOCK = 4096


def stretched_points(num: int, dim: int, offset: float = 0.0) -> Float[np.ndarray, "n d"]:
    """Space-filling points, denser towards the faces; another `offset` gives other points."""
    unit = np.mod(0.5 * (kronecker_points(num, dim) + 1.0) + offset, 1.0)
    return stretched_nodes(np.pi * unit)


def num_training_points(size: int, dim: int) -> int:
    """Training points for `size` parameters, unless the user brings their own."""
    num = int(np.clip(_POINTS_PER_PARAMETER * size, _LEAST_POINTS.get(dim, 5000), _MOST_POINTS))
    if num < 2 * size:
        raise ValueError(
            f"order must be smaller, or points be given: {size} parameters need at least "
            f"{2 * size} training points, above the {_MOST_POINTS} that are taken by default"
        )
    return num


def training_points(root_fn: RootFunction, num: int) -> Float[np.ndarray, "n d"]:
    """Space-filling points; half of them spread in proportion to sqrt(f), with repetitions.

    Their number does not depend on f: another f compiles nothing anew.
    """
    cloud = stretched_points(_NUM_CANDIDATES, root_fn.dim, offset=0.21)
    half = num // 2
    share = np.cumsum(root_fn(cloud[half:])[:, 0])
    drawn = np.searchsorted(share, share[-1] * (np.arange(num - half) + 0.5) / (num - half))
    return np.concatenate([cloud[:half], cloud[half:][drawn]])


def as_unit_points(points: Numbers | TensorGrid, box: Box, size: int) -> Float[np.ndarray, "n d"]:
    """The user's training points on the unit cube, at least `size` of them."""
    array = points.points() if isinstance(points, TensorGrid) else as_floats("points", points)
    if array.ndim != 2 or array.shape[1] != box.dim:
        raise ValueError(f"points must have shape (n, {box.dim}), got {array.shape}")
    inside = np.asarray(box.contains(array))
    if not inside.all():
        i = int(np.argmin(inside))
        raise ValueError(f"points must lie in the box, got {np.asarray(array[i])} in row {i}")
    if len(array) < size:
        raise ValueError(
            f"points must number at least {size}, one for each parameter, got {len(array)}"
        )
    return np.asarray(box.to_unit(array))


class Validation:
    """Points and values of f that no fit is trained on: all over the box, and on its faces."""

    def __init__(self, root_fn: RootFunction):
        """Choose the points; the first ones are uniform, for integrals."""
        self._num_uniform = _NUM_VALIDATION.get(root_fn.dim, _NUM_CANDIDATES)
        uniform = kronecker_points(self._num_uniform, root_fn.dim)
        faces = stretched_points(self._num_uniform // 2, root_fn.dim, offset=0.37)
        # A fifth of the coordinates goes to a face: fits are worst there.
        faces = np.where(np.abs(faces) > 0.8, np.sign(faces), faces)
        self._points = np.concatenate([uniform, faces])
        self._values = np.square(root_fn(self._points)[:, 0])

    @property
    def num_points(self) -> int:
        """Validation points in all."""
        return len(self._points)

    def errors(self, shapes: Shapes, theta: Float[np.ndarray, "m q"]) -> tuple[float, float, float]:
        """Sup, L1 and L2 errors of f, relative to max f and to the norms of f."""
        fitted = np.square(_evaluate(shapes, theta, self._points))
        error, tiny = np.abs(fitted - self._values), np.finfo(float).tiny
        inside, f = error[: self._num_uniform], self._values[: self._num_uniform]
        l1 = inside.mean() / max(f.mean(), tiny)
        l2 = np.sqrt(np.mean(inside**2) / max(np.mean(f**2), tiny))
        return float(error.max() / max(1.0, self._values.max())), float(l1), float(l2)


def _evaluate(
    shapes: Shapes, theta: Float[np.ndarray, "m q"], points: Float[np.ndarray, "n d"]
) -> Float[np.ndarray, " n"]:
    """g at many points, a block at a time."""
    out = []
    for start in range(0, len(points), _BLOCK):
        part = points[start : start + _BLOCK]
        padded = np.concatenate([part, np.zeros((_BLOCK - len(part), points.shape[1]))])
        out.append(np.asarray(_root(jnp.asarray(theta), shapes.local(padded)))[: len(part)])
    return np.concatenate(out)


_root = jax.jit(evaluate_root)
