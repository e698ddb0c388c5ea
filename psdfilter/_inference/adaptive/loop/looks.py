"""Likelihoods that are given by their values: at the nodes of a lattice, and looks between them."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from ...._statespace.model import Inputs, StateSpaceModel, log_observation_table
from ...numerics.compiled import call_compiled
from ..rules import no_nan
from ..spikes import BUMP, bends
from .roughness import between

# Rows whose likelihoods are evaluated at once on a line; in the plane, where looks are many, one.
ROWS = 64
# Points of a look from a node to the next along an axis: what nodes resolve has second differences
# of up to `BUMP` where there are eight of them, and of more where there are fewer.
LOOKS = 8
# Nodes of a line, and points in the plane, that are evaluated at once: one size, one program.
_LINE, _PLANE = 2**7, 2**14


class Rows(NamedTuple):
    """Observations, times and inputs of some rows of a series."""

    ys: Float[np.ndarray, "t p"]
    steps: Int[np.ndarray, " t"]
    rows: Inputs

    def some(self, first: int, stop: int) -> "Rows":
        """From one row on, until before another."""
        part = slice(first, stop)
        inputs = jax.tree.map(lambda a: a[part], self.rows)
        return Rows(self.ys[part], self.steps[part], inputs)

    def at(self, k: int) -> "Rows":
        """One row."""
        return self.some(k, k + 1)

    def filled(self, size: int) -> "Rows":
        """As many rows as a program is made for: the last one again and again."""
        index = np.minimum(np.arange(size), len(self.ys) - 1)
        inputs = jax.tree.map(lambda a: a[index], self.rows)
        return Rows(self.ys[index], self.steps[index], inputs)


class Likelihoods(NamedTuple):
    """log G at nodes and between them: `Tables.logs`, `between`, `bent`."""

    logs: Float[np.ndarray, "t r"]
    between: Float[np.ndarray, "t r"]
    bent: Float[np.ndarray, "t r"]

    @staticmethod
    def none() -> "Likelihoods":
        """Those of a sensor whose noise is Gaussian, which needs no tables."""
        empty = np.zeros((0, 0))
        return Likelihoods(empty, empty, empty)

    @staticmethod
    def zero(shape: tuple[int, ...]) -> "Likelihoods":
        """Those of one row that is seen nowhere on a lattice."""
        num = int(np.prod(shape))
        gone = np.full((1, num), -np.inf)
        return Likelihoods(gone, gone.copy(), np.zeros((1, num)))


def log_likelihoods(ssm: StateSpaceModel, x: Array, ys: Array, ts: Array, rows: Inputs) -> Array:
    """log G of several rows at points (n, d), (t, n)."""

    def one(y: Array, t: Array, row: Inputs) -> Array:
        return log_observation_table(ssm, x, y, t, row)

    return jax.vmap(one)(ys, ts, rows)


def filled(x: np.ndarray, size: int) -> np.ndarray:
    """Points filled up to a size."""
    return np.concatenate([x, np.repeat(x[-1:], size - len(x), axis=0)]) if len(x) < size else x


def line_likelihoods(
    ssm: StateSpaceModel, line: Float[np.ndarray, " n"], scale: float, rows: Rows
) -> Likelihoods:
    """Those of equispaced nodes on a line, x = scale z, with `LOOKS` looks from each to the next.

    Args:
        ssm: the model.
        line: nodes, in z.
        scale: x over z.
        rows: what was seen.
    """
    num, data = len(rows.ys), rows.filled(ROWS)
    first, step = scale * line[0], scale * (line[1] - line[0]) / LOOKS
    out = Likelihoods(*(np.empty((num, len(line))) for _ in range(3)))
    for k in range(0, len(line), _LINE):
        # Second differences are those of inner points of the whole line.
        inner = np.array([1.0, LOOKS * len(line) - 2.0]) - LOOKS * k
        found = call_compiled(_line_looks, ssm, first + LOOKS * k * step, step, inner, *data)
        for whole, part in zip(out, found, strict=True):
            some = whole[:, k : k + _LINE]
            some[:] = np.asarray(part)[:num, : some.shape[1]]
    return out


def _line_looks(
    ssm: StateSpaceModel,
    first: Array,
    step: Array,
    inner: Array,
    ys: Array,
    ts: Array,
    rows: Inputs,
) -> tuple[Array, Array, Array]:
    """log G at `_LINE` nodes, and the largest log G and bend from each to the next."""
    # One more point at each end, for second differences.
    place = np.arange(-1.0, LOOKS * _LINE + 1)
    logs = log_likelihoods(ssm, (first + step * place)[:, None], ys, ts, rows)
    logs = jnp.where(jnp.isnan(logs) | jnp.isposinf(logs), -jnp.inf, logs)
    bent = jnp.abs(logs[:, :-2] - 2 * logs[:, 1:-1] + logs[:, 2:])
    zero = jnp.isneginf(logs)
    none = zero[:, :-2] & zero[:, 1:-1] & zero[:, 2:]
    none |= ((place[1:-1] < inner[0]) | (place[1:-1] > inner[1]))[None, :]
    bent = jnp.where(none, 0.0, jnp.where(jnp.isnan(bent), jnp.inf, bent)) / BUMP
    each, bent = (a.reshape(a.shape[0], _LINE, LOOKS) for a in (logs[:, 1:-1], bent))
    return each[:, :, 0], jnp.max(each, axis=2), jnp.max(bent, axis=2)


def plane_likelihoods(
    ssm: StateSpaceModel,
    lines: list[Float[np.ndarray, " n"]],
    frame: Float[np.ndarray, "d d"],
    rows: Rows,
    looks: int = LOOKS,
) -> Likelihoods:
    """Those of one row at equispaced nodes, with several looks from each to the next.

    Args:
        ssm: the model.
        lines: nodes along the axes of z.
        frame: x = frame z.
        rows: what was seen.
        looks: points from a node to the next along an axis.
    """
    dim, num = len(lines), len(rows.ys)
    fine = [between(line, looks) for line in lines]
    mesh = np.stack(np.meshgrid(*fine, indexing="ij"), axis=-1).reshape(-1, dim) @ frame.T
    data = rows.filled(1)
    parts = []
    for k in range(0, len(mesh), _PLANE):
        part = mesh[k : k + _PLANE]
        out = np.asarray(call_compiled(log_likelihoods, ssm, filled(part, _PLANE), *data))
        parts.append(out[:num, : len(part)])
    logs = no_nan(np.concatenate(parts, axis=1)).reshape(num, *(len(line) for line in fine))
    bent = np.zeros(logs.shape)
    for axis in range(1, dim + 1):
        bent = np.maximum(bent, _bends(logs, axis))
    bent /= BUMP * (LOOKS / looks) ** 2
    cells = (num, *(part for line in lines for part in (len(line), looks)))
    inside, each = tuple(range(2, 2 * dim + 1, 2)), logs.reshape(cells)
    nodes = each[(slice(None), *(slice(None), 0) * dim)]
    return Likelihoods(
        np.ascontiguousarray(nodes.reshape(num, -1)),
        np.max(each, axis=inside).reshape(num, -1),
        np.max(bent.reshape(cells), axis=inside).reshape(num, -1),
    )


def _bends(logs: np.ndarray, axis: int) -> np.ndarray:
    """|second differences| along an axis, zero at its ends."""
    moved = np.moveaxis(logs, axis, -1)
    out = np.zeros(moved.shape)
    flat = moved.reshape(-1, moved.shape[-1])
    out[..., 1:-1] = bends(flat).reshape(*moved.shape[:-1], -1)
    return np.moveaxis(out, -1, axis)
