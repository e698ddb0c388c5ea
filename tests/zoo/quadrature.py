"""Panels with Gauss-Legendre nodes: what both references are made of."""

from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise

import numpy as np


@lru_cache(maxsize=16)
def rule(order):
    """Nodes and weights on [-1, 1], barycentric weights, and values -> Legendre coefficients."""
    z, w = np.polynomial.legendre.leggauss(order)
    bary = (-1.0) ** np.arange(order) * np.sqrt((1 - z**2) * w)
    vander = np.polynomial.legendre.legvander(z, order - 1)
    coefficients = (vander * w[:, None]).T * (np.arange(order) + 0.5)[:, None]
    return z, w, bary, coefficients


def nodes(edges, order):
    """Nodes and weights (k, order) of panels (k, 2)."""
    z, w, _, _ = rule(order)
    half = 0.5 * (edges[:, 1] - edges[:, 0])
    mid = 0.5 * (edges[:, 1] + edges[:, 0])
    return mid[:, None] + half[:, None] * z, half[:, None] * w


def lagrange(z, order):
    """Rows of the interpolation matrix from the nodes to the points z in [-1, 1]."""
    x, _, bary, _ = rule(order)
    gap = z[..., None] - x
    exact = gap == 0
    terms = bary / np.where(exact, 1.0, gap)
    hit = exact.any(axis=-1, keepdims=True)
    terms = np.where(hit, exact.astype(float), terms)
    return terms / terms.sum(axis=-1, keepdims=True)


def split_edges(low, high, width, breaks=()):
    """Panels (k, 2) of [low, high], none wider than `width`, with edges at the breaks."""
    marks = sorted({low, high, *(b for b in breaks if low < b < high)})
    out = []
    for a, b in pairwise(marks):
        count = min(max(1, int(np.ceil((b - a) / width))), 4000)
        grid = np.linspace(a, b, count + 1)
        out.append(np.stack([grid[:-1], grid[1:]], axis=1))
    return np.concatenate(out)


def bisect(edges):
    mid = 0.5 * (edges[:, 0] + edges[:, 1])
    return np.concatenate(
        [np.stack([edges[:, 0], mid], axis=1), np.stack([mid, edges[:, 1]], axis=1)]
    )


def merge(intervals):
    """The union of intervals (k, 2), as disjoint intervals."""
    order = intervals[np.argsort(intervals[:, 0])]
    out = [list(order[0])]
    for low, high in order[1:]:
        if low <= out[-1][1]:
            out[-1][1] = max(out[-1][1], high)
        else:
            out.append([low, high])
    return out


@dataclass(frozen=True)
class Pieces:
    """A function on the line by the logs of its values at the nodes of sorted panels; else zero."""

    edges: np.ndarray  # (k, 2)
    logs: np.ndarray  # (k, order)

    @property
    def order(self):
        return self.logs.shape[1]

    @property
    def in_logs(self):
        """Which panels are interpolated in logs."""
        return log_tails(self.logs) < 1e-8

    def __call__(self, x):
        shape = np.shape(x)
        x = np.ravel(x)
        index = np.clip(np.searchsorted(self.edges[:, 0], x, side="right") - 1, 0, None)
        low, high = self.edges[index, 0], self.edges[index, 1]
        inside = (x >= low) & (x <= high)
        z = np.clip((2 * x - low - high) / (high - low), -1, 1)
        out = interpolate(lagrange(z, self.order), self.logs[index], self.in_logs[index])
        return np.where(inside, out, -np.inf).reshape(shape)


def log_tails(logs):
    """Size of the last Legendre coefficients of the logs of panels; inf where there are zeros."""
    finite = np.isfinite(logs).all(axis=1)
    coefficients = rule(logs.shape[1])[3]
    tail = np.abs(np.where(finite[:, None], logs, 0.0) @ coefficients.T)[:, -3:].sum(axis=1)
    return np.where(finite, tail, np.inf)


def interpolate(matrix, logs, in_logs):
    """Log of the interpolant, row by row: of logs where their own series ends, else of values.

    A density with zeros has no log to interpolate; one that falls by e^20 in a panel has values
    whose interpolant is wrong, relatively, at the lower end, where an outlier may ask for it.
    """
    top = logs.max(axis=1)
    with np.errstate(invalid="ignore", divide="ignore"):
        shift = np.where(np.isfinite(top), top, 0.0)
        values = np.exp(logs - shift[:, None])
        linear = np.log(np.maximum(np.sum(matrix * values, axis=1), 0.0)) + shift
        finite = np.where(np.isfinite(logs), logs, 0.0)
        return np.where(in_logs, np.sum(matrix * finite, axis=1), linear)
