"""Where components with free shapes start: on the ridge of a conditional density, or by k-means.

A component at c gets the precision P = -1/2 Hess log g(c) of the local Gaussian (for a
linear-Gaussian conditional N(x | F u + b, Sigma) that is D'Sigma^{-1}D / 4, D = (F, -I)), cut to
its positive part, plus the width of its tile in the directions that are tiled:

    conditional f(u, x)    c = (u_j, argmax_x f(u_j, x)), u_j in the middle of its tile, and
                           tau / h^2 on the axes of u, h the width of a tile
    density f(x)           c_j and C_j the means and covariances of weighted k-means clusters, and
                           tau / 12 C_j^{-1}: a tile of width h has variance h^2 / 12
"""

import jax
import numpy as np
from jaxtyping import Float

from .components import Shapes
from .evaluate import RootFunction
from .generalized_points import stretched_points
from .probe import kronecker_points, survey

# tau: neighbours at distance h meet at exp(-tau / 4) of their height.
_OVERLAP = 0.5
# Points per axis on which argmax_x f(u, x) is looked for, by the dimension of x; each zoom keeps
# one spacing on both sides of the best.
_SEARCH = {1: 129, 2: 33, 3: 13}
_ZOOMS = 4
_NUM_CLUSTERED = 8192
_LLOYD_STEPS = 30
# Least precision on any axis: a component wider than this is flat on the unit cube.
_FLAT = 0.05


class Starter:
    """Starts for one function on the unit cube; making one sets the peak of `root_fn`."""

    def __init__(self, root_fn: RootFunction, order: int, given: tuple[int, ...]):
        """`given`: the axes of u; none for a plain density."""
        self._root_fn = root_fn
        # Steps of differences: well inside the narrowest peak, far above rounding.
        self._steps = np.clip(0.1 * survey(root_fn).widths, 1e-4, 0.1)
        if given:
            centers, tiles = self._on_ridge(order, given)
        else:
            centers, tiles = self._by_clusters(order)
        self.shapes = self._shapes(centers, tiles)

    def perturbed(self, key: jax.Array) -> Shapes:
        """Centres moved by about half a width, widths changed by about a fifth."""
        centers, roots = self.shapes
        move_key, scale_key = jax.random.split(key)
        order, dim = centers.shape
        move = 0.5 * np.asarray(jax.random.normal(move_key, (order, dim)))
        scale = np.exp(0.2 * np.asarray(jax.random.normal(scale_key, (order, dim))))
        moved = centers + np.linalg.solve(roots, move[..., None])[..., 0]
        return Shapes(np.clip(moved, -1.0, 1.0), scale[..., None] * roots)

    def _on_ridge(
        self, order: int, given: tuple[int, ...]
    ) -> tuple[Float[np.ndarray, "m d"], Float[np.ndarray, "m d d"]]:
        dim = self._root_fn.dim
        free = tuple(a for a in range(dim) if a not in given)
        if len(given) == 1:
            tiled = (-1.0 + (2.0 * np.arange(order) + 1.0) / order)[:, None]
        else:
            cloud = kronecker_points(_NUM_CLUSTERED, len(given))
            tiled, _ = _clusters(cloud, np.ones(len(cloud)), order)
        width = 2.0 * order ** (-1.0 / len(given))
        precision = np.zeros((dim, dim))
        precision[given, given] = _OVERLAP / width**2
        centers = self._argmax(tiled, given, free)
        return centers, np.broadcast_to(precision, (order, dim, dim))

    def _argmax(
        self, tiled: Float[np.ndarray, "m k"], given: tuple[int, ...], free: tuple[int, ...]
    ) -> Float[np.ndarray, "m d"]:
        """(u_j, argmax_x f(u_j, x)), on grids of x that zoom in."""
        order, dim = len(tiled), self._root_fn.dim
        unit = np.linspace(-1.0, 1.0, _SEARCH.get(len(free), 9))
        mesh = np.meshgrid(*([unit] * len(free)), indexing="ij")
        grid = np.stack([m.ravel() for m in mesh], axis=-1)
        best, reach = np.zeros((order, len(free))), 1.0
        for _ in range(_ZOOMS):
            points = np.empty((order, len(grid), dim))
            points[:, :, given] = tiled[:, None, :]
            points[:, :, free] = np.clip(best[:, None, :] + reach * grid[None], -1.0, 1.0)
            values = self._root_fn(points.reshape(-1, dim)).reshape(order, -1)
            winner = np.argmax(values, axis=1)
            best = points[np.arange(order), winner][:, free]
            reach *= unit[1] - unit[0]
        centers = np.empty((order, dim))
        centers[:, given], centers[:, free] = tiled, best
        return centers

    def _by_clusters(
        self, order: int
    ) -> tuple[Float[np.ndarray, "m d"], Float[np.ndarray, "m d d"]]:
        cloud = stretched_points(max(_NUM_CLUSTERED, 64 * order), self._root_fn.dim)
        weights = self._root_fn(cloud)[:, 0]
        # Points where f is negligible would only slow Lloyd's steps down.
        kept = weights > 1e-3 * weights.max()
        if kept.sum() < 4 * order:
            kept = np.argsort(-weights)[: 4 * order]
        centers, spreads = _clusters(cloud[kept], weights[kept], order)
        return centers, _OVERLAP / 12.0 * np.linalg.inv(spreads)

    def _shapes(
        self, centers: Float[np.ndarray, "m d"], tiles: Float[np.ndarray, "m d d"]
    ) -> Shapes:
        dim = centers.shape[1]
        precision = self._curvature(centers) + tiles + _FLAT * np.eye(dim)
        return Shapes(centers, np.swapaxes(np.linalg.cholesky(precision), 1, 2))

    def _curvature(self, centers: Float[np.ndarray, "m d"]) -> Float[np.ndarray, "m d d"]:
        """Positive part of -1/2 Hess log g, by differences on points that stay in the box."""
        order, dim = centers.shape
        steps = self._steps
        middle = np.clip(centers, -1.0 + steps, 1.0 - steps)
        signs = [(0.0, 0.0), (1.0, 1.0), (1.0, -1.0), (-1.0, 1.0), (-1.0, -1.0)]
        hessian = np.zeros((order, dim, dim))
        for i in range(dim):
            for j in range(i + 1):
                e_i, e_j = np.eye(dim)[i] * steps[i], np.eye(dim)[j] * steps[j]
                if i == j:
                    offsets = np.stack([0 * e_i, e_i, -e_i])
                    stencil = np.array([-2.0, 1.0, 1.0]) / steps[i] ** 2
                else:
                    offsets = np.stack([s * e_i + t * e_j for s, t in signs[1:]])
                    stencil = np.array([1.0, -1.0, -1.0, 1.0]) / (4 * steps[i] * steps[j])
                points = middle[:, None, :] + offsets[None]
                roots = self._root_fn(points.reshape(-1, dim))[:, 0].reshape(order, -1)
                logs = np.log(np.maximum(roots, np.finfo(float).tiny))
                hessian[:, i, j] = hessian[:, j, i] = logs @ stencil
        values, vectors = np.linalg.eigh(-0.5 * hessian)
        values = np.clip(values, 0.0, 1.0 / steps.min() ** 2)
        return np.einsum("mik,mk,mjk->mij", vectors, values, vectors)


def _clusters(
    points: Float[np.ndarray, "n d"], weights: Float[np.ndarray, " n"], num: int
) -> tuple[Float[np.ndarray, "m d"], Float[np.ndarray, "m d d"]]:
    """Means and covariances of weighted k-means clusters, from points spread by weight."""
    share = np.cumsum(weights) / np.sum(weights)
    centers = points[np.searchsorted(share, (np.arange(num) + 0.5) / num)].copy()
    label, mass = np.zeros(len(points), int), np.zeros(num)
    for _ in range(_LLOYD_STEPS):
        label = np.argmin(np.sum(centers**2, axis=1)[None] - 2.0 * points @ centers.T, axis=1)
        mass = np.bincount(label, weights, minlength=num)
        sums = np.stack([np.bincount(label, weights * c, minlength=num) for c in points.T], axis=-1)
        filled = mass > 0
        centers[filled] = sums[filled] / mass[filled, None]
    delta = points - centers[label]
    outer = weights[:, None, None] * delta[:, :, None] * delta[:, None, :]
    spreads = np.zeros((num, *outer.shape[1:]))
    np.add.at(spreads, label, outer)
    spreads /= np.maximum(mass, np.finfo(float).tiny)[:, None, None]
    floor = (0.02 * np.maximum(points.std(axis=0), 1e-6)) ** 2
    return centers, spreads + np.diag(floor)
