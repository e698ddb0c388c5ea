"""Sums over old nodes: p(x_j) = sum_m v_m Q(u_m, x_j), and what comes with them."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from ...._statespace.model import Inputs
from .values import PlaneValues, filled

# Rows of `Source.ratios`, and of the sums made with them: coarser lattices along both axes, the
# error carried so far, and nodes beside which others were left out.
HALF, QUARTER, CARRIED, EDGE = (0, 1), (2, 3), 4, 5
RATIOS = 6
# Single pairs of nodes are summed instead of whole matrices if fewer nodes than this share of the
# matrix are wanted: measured, a pair costs about fifty times an entry of a product.
SPARSE = 0.02
# Nodes above which a law is first looked for with a quarter of them.
_MANY = 1000


class Source(NamedTuple):
    """A measure sum_m v_m delta(u_m) and the transition out of it, into step t.

    `ratios` are, relative to v, the masses of coarser lattices, of the error carried so far, and of
    nodes at the edge. `means` are f(u_m) for Gaussian noise. `dropped` is the mass that was left
    out, wherever it is.
    """

    nodes: Float[np.ndarray, "n 2"]
    log_masses: Float[np.ndarray, " n"]
    ratios: Float[np.ndarray, "r n"]  # r = 6; none of a law that no more steps follow
    means: Float[np.ndarray, "n 2"] | None
    t: int
    row: Inputs
    dropped: float = 0.0

    def lacking(self, log_p: Float[np.ndarray, " a"], log_peak: float) -> Float[np.ndarray, " a"]:
        """What the mass that was left out may add to p at most, over p; `log_peak` of the kernels.

        No kernel exceeds its highest value, so this needs no knowledge of where that mass is: a map
        that is not monotone may lead from there to places that no node comes near.
        """
        if self.dropped == 0:
            return np.zeros(len(log_p))
        return np.exp(np.minimum(np.log(self.dropped) + log_peak - log_p, 0.0))


class Summed(NamedTuple):
    """log p at some points, its companions over p, and the highest value of log Q that was met."""

    log_p: Float[np.ndarray, " a"]
    ratios: Float[np.ndarray, "r a"]
    log_peak: float


def _axis_logs(values: PlaneValues, source: Source, axis: int, z: np.ndarray) -> np.ndarray:
    if source.means is not None:
        gap = z[None, :] - source.means[:, axis, None]
        return -0.5 * np.square(gap) - 0.5 * np.log(2 * np.pi)
    return values.axis_logs(axis, source.nodes, z, source.t, source.row)


def _groups(ratios: Float[np.ndarray, "6 n"]) -> list[Int[np.ndarray, " k"]]:
    """Nodes that are in the same of the coarser lattices."""
    kind = (ratios[:4] > 0).T @ np.array([1, 2, 4, 8])
    return [rows for rows in (np.flatnonzero(kind == k) for k in range(16)) if len(rows) > 0]


def _shifted(logs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    peak = np.max(logs, axis=0)
    safe = np.where(np.isfinite(peak), peak, 0.0)
    return np.exp(logs - safe[None, :]), safe


def on_lattice(
    values: PlaneValues,
    source: Source,
    axes: tuple[np.ndarray, np.ndarray],
    index: Int[np.ndarray, "a 2"],
) -> Summed:
    """Sums at nodes of a lattice, of a separable transition.

    The means of Gaussian noise are given in the coordinates of the lattice.
    """
    first = _axis_logs(values, source, 0, axes[0])
    second = _axis_logs(values, source, 1, axes[1])
    log_peak = float(np.max(np.max(first, axis=1) + np.max(second, axis=1)))
    left, up = _shifted(first + source.log_masses[:, None])
    right, over = _shifted(second)
    i, j = index[:, 0], index[:, 1]
    sparse = len(index) < SPARSE * len(axes[0]) * len(axes[1])
    total, ratios = np.zeros(len(index)), np.zeros((RATIOS, len(index)))

    def product(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        if sparse:
            return np.einsum("ma,ma->a", a[:, i], b[:, j])
        return (a.T @ b)[i, j]

    if len(source.ratios) == 0:
        with np.errstate(divide="ignore"):
            return Summed(np.log(product(left, right)) + up[i] + over[j], ratios[:0], log_peak)
    for rows in _groups(source.ratios):
        part = product(left[rows], right[rows])
        total += part
        ratios[:4] += source.ratios[:4, rows[0], None] * part[None, :]
    for row in (CARRIED, EDGE):
        rows = np.flatnonzero(source.ratios[row])
        if len(rows) > 0:
            weighted = source.ratios[row, rows, None] * right[rows]
            ratios[row] = product(left[rows], weighted)
    with np.errstate(divide="ignore"):
        log_p = np.log(total) + up[i] + over[j]
    return Summed(log_p, ratios / np.where(total > 0, total, 1.0)[None, :], log_peak)


def at_points(values: PlaneValues, source: Source, points: Float[np.ndarray, "a 2"]) -> Summed:
    """Sums anywhere."""
    log_p, ratios = np.zeros(len(points)), np.zeros((len(source.ratios), len(points)))
    log_peak = -np.log(2 * np.pi) if source.means is not None else -np.inf
    size = values.blocks(len(source.nodes), len(points))
    for k in range(0, len(points), size):
        some = slice(k, k + size)
        if source.means is None and not values.ssm.vectorized:
            old = source.nodes, source.log_masses, source.ratios
            found = values.sums(old, points[some], source.t, source.row)
            log_p[some], ratios[:, some] = found[:2]
            log_peak = max(log_peak, found[2])
            continue
        shares, log_p[some] = shares_of(values, source, points[some])
        ratios[:, some] = source.ratios @ shares
        if source.means is None:
            # Not known by itself: no more than a sum of all of them.
            log_peak = max(log_peak, float(np.max(log_p[some])))
    return Summed(log_p, ratios, log_peak)


@jax.jit
def _gaussian_logs(means: Array, log_masses: Array, points: Array) -> Array:
    """log sum_m v_m N(x_j; c_m, I)."""
    logs = means @ points.T - 0.5 * jnp.sum(means * means, axis=1)[:, None] + log_masses[:, None]
    peak = jnp.max(logs, axis=0)
    safe = jnp.where(jnp.isfinite(peak), peak, 0.0)
    sums = jnp.log(jnp.sum(jnp.exp(logs - safe[None, :]), axis=0)) + safe
    return sums - 0.5 * jnp.sum(points * points, axis=1) - jnp.log(2 * jnp.pi)


def log_sums(
    values: PlaneValues, source: Source, points: Float[np.ndarray, "a 2"]
) -> Float[np.ndarray, " a"]:
    """log p alone, anywhere."""
    if source.means is None:
        return at_points(values, source._replace(ratios=source.ratios[:0]), points).log_p
    out, size = np.zeros(len(points)), values.blocks(len(source.nodes), len(points))
    # Squares from the middle of the points: few digits are lost to their size.
    middle = points.mean(axis=0)
    means = filled(source.means - middle)
    more = len(means) - len(source.means)
    masses = np.concatenate([source.log_masses, np.full(more, -np.inf)])
    for k in range(0, len(points), size):
        some = points[k : k + size] - middle
        out[k : k + size] = np.asarray(_gaussian_logs(means, masses, filled(some)))[: len(some)]
    return out


def shares_of(
    values: PlaneValues, source: Source, points: Float[np.ndarray, "a 2"]
) -> tuple[Float[np.ndarray, "n a"], Float[np.ndarray, " a"]]:
    """v_m Q(u_m, x_j) / p(x_j) and log p(x_j)."""
    if source.means is not None:
        # Squares from the middle of the points: few digits are lost to their size.
        middle = points.mean(axis=0)
        a, b = source.means - middle, points - middle
        logs = a @ b.T - 0.5 * np.sum(a * a, axis=1)[:, None]
        logs -= 0.5 * np.sum(b * b, axis=1)[None, :] + np.log(2 * np.pi)
    else:
        logs = values.log_pairs(source.nodes, points, source.t, source.row)
    terms, safe = _shifted(logs + source.log_masses[:, None])
    total = terms.sum(axis=0)
    with np.errstate(divide="ignore"):
        return terms / np.where(total > 0, total, 1.0)[None, :], safe + np.log(total)


def pulled(
    values: PlaneValues,
    source: Source,
    points: Float[np.ndarray, "a 2"],
    omega: Float[np.ndarray, " a"],
) -> Float[np.ndarray, " n"]:
    """v_m sum_j Q(u_m, x_j) omega_j / p(x_j): masses of old nodes, given those of new ones."""
    out = np.zeros(len(source.nodes))
    size = values.blocks(len(source.nodes), len(points))
    for k in range(0, len(points), size):
        some = slice(k, k + size)
        out += shares_of(values, source, points[some])[0] @ omega[some]
    return out


def thinned(source: Source) -> Source | None:
    """Every other node along both axes, to find the place of a law by; None if nodes are few."""
    there = (source.ratios[HALF[0]] > 0) & (source.ratios[HALF[1]] > 0)
    if len(source.nodes) <= _MANY or np.count_nonzero(there) == 0:
        return None
    means = None if source.means is None else source.means[there]
    more = np.log(source.ratios[HALF[0], there]) + np.log(source.ratios[HALF[1], there])
    masses, ratios = source.log_masses[there] + more, source.ratios[:, there]
    return Source(source.nodes[there], masses, ratios, means, source.t, source.row, source.dropped)
