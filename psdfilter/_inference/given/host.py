"""Values of PSD models on the host: sizes are tried one by one, and nothing is compiled."""

import numpy as np
from jaxtyping import Float

from ..._density.anchors import TensorGrid, expand
from ..._density.conversions import PSDModel
from ..._density.diagonal import keep_axes
from ..._density.generalized import PairwiseGaussianPSD
from ..._density.psd import GaussianPSD

Points = Float[np.ndarray, "n d"]
Table = Float[np.ndarray, "n k"]
# Numbers in a block of points by components (64 MiB).
_BLOCK = 2**23


def host_pairs(f: PSDModel, u: Points, x: Points) -> Table:
    """f(u_i, x_j) for all pairs, the first coordinates being those of u."""
    if isinstance(f, GaussianPSD):
        return _product_pairs(f, u, x)
    points = np.concatenate(
        [np.repeat(u, len(x), axis=0), np.tile(x, (len(u), 1))], axis=1, dtype=float
    )
    return host_values(f, points).reshape(len(u), len(x))


def _product_pairs(f: GaussianPSD, u: Points, x: Points) -> Table:
    """sum_r (sum_i L_ir k(u, i) k(x, i))^2: a matrix product for each column of the factor."""
    split, eta = u.shape[1], np.asarray(f.precision)
    left = _kernels(u, keep_axes(f.anchors, tuple(range(split))), eta[:split])
    right = _kernels(x, keep_axes(f.anchors, tuple(range(split, f.dim))), eta[split:])
    total = np.zeros((len(u), len(x)))
    for column in np.asarray(f.factor).T:
        if isinstance(f.anchors, TensorGrid):
            roots = left @ column.reshape(left.shape[1], right.shape[1]) @ right.T
        else:
            roots = (left * column) @ right.T
        total += np.square(roots)
    return np.exp(float(f.log_scale)) * total


def _kernels(x: Points, anchors: object, eta: np.ndarray) -> np.ndarray:
    points = np.asarray(expand(anchors))  # pyright: ignore[reportArgumentType]
    exponent = np.zeros((len(x), len(points)))
    for axis, precision in enumerate(eta):
        exponent -= precision * np.square(x[:, axis][:, None] - points[:, axis][None, :])
    return np.exp(exponent)


def host_values(f: PSDModel, points: Points) -> Float[np.ndarray, " n"]:
    """f at points."""
    if isinstance(f, GaussianPSD):
        features = _kernels(points, f.anchors, np.asarray(f.precision))
        values = np.square(features @ np.asarray(f.factor)).sum(axis=1)
        return np.exp(float(f.log_scale)) * values
    pairs = isinstance(f, PairwiseGaussianPSD)
    precision = f.precision if isinstance(f, PairwiseGaussianPSD) else f.precisions()
    matrices = np.asarray(precision).reshape(-1, f.dim, f.dim)
    linear, offset = np.asarray(f.linear).reshape(-1, f.dim), np.asarray(f.offset).ravel()
    factor, log_scale = np.asarray(f.factor), float(f.log_scale)
    weights = (factor @ factor.T).ravel()
    out, size = np.empty(len(points)), max(1, _BLOCK // len(offset))
    for start in range(0, len(points), size):
        x = points[start : start + size] - np.asarray(f.origin)
        exponent = offset + 2 * x @ linear.T - np.einsum("nd,mde,ne->nm", x, matrices, x)
        if pairs:
            # Pairs are positive as a whole only: rounding may leave them below zero.
            out[start : start + size] = np.maximum(np.exp(exponent + log_scale) @ weights, 0.0)
        else:
            roots = np.exp(exponent + 0.5 * log_scale) @ factor
            out[start : start + size] = np.square(roots).sum(axis=1)
    return out
