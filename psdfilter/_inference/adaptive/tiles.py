"""Sums over old nodes at new points, in tiles: as many as there are nodes, whatever the room.

Compiled programs want arrays of few sizes, and nodes come in any number. Arrays are filled up to
one of a few sizes, and a loop goes over the tiles that hold something: what only fills up costs
nothing, and a tile stays in the cache. Every tile has a peak of its own; the host puts them on one
scale, for the part that is there.
"""

from functools import partial
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..._statespace.functions import Inputs
from .rules import PANEL
from .values import Parts

# Nodes of a tile: old ones in whole panels, and new ones. Tables of 115 kB.
OLD, NEW = 16 * PANEL, 4 * PANEL
# Tiles that arrays have room for, old and new; beyond the last of them in multiples of it.
_OLD_ROOM, _NEW_ROOM = (4, 16), (4, 16)
# New nodes of one call.
MOST_NEW = _NEW_ROOM[-1] * NEW


def room(num: int, sizes: tuple[int, ...]) -> int:
    """The least of some sizes that is enough, or a multiple of the last."""
    return next((size for size in sizes if size >= num), -(-num // sizes[-1]) * sizes[-1])


def filled(array: Float[np.ndarray, "... n"], size: int, value: float) -> np.ndarray:
    """An array with more entries along its last axis."""
    out = np.full((*array.shape[:-1], size), value)
    out[..., : array.shape[-1]] = array
    return out


class Tiled(NamedTuple):
    """Nodes in tiles, and how many tiles hold any."""

    arrays: tuple[Float[np.ndarray, "b ..."], ...]
    num: int

    @staticmethod
    def old(
        nodes: Float[np.ndarray, " n"],
        log_masses: Float[np.ndarray, " n"],
        rows: Float[np.ndarray, "l n"],
    ) -> "Tiled":
        """Old nodes, their masses, and what each counts in several sums."""
        num = -(-len(nodes) // OLD)
        tiles = room(num, _OLD_ROOM)
        size = tiles * OLD
        each = filled(rows, size, 0.0).reshape(len(rows), tiles, OLD)
        return Tiled(
            (
                filled(nodes, size, nodes[-1]).reshape(tiles, OLD),
                filled(log_masses, size, -np.inf).reshape(tiles, OLD),
                np.ascontiguousarray(np.moveaxis(each, 1, 0)),
            ),
            num,
        )

    @staticmethod
    def new(x: Float[np.ndarray, " m"], *others: Float[np.ndarray, " m"]) -> "Tiled":
        """New nodes, and numbers of theirs that are zero where arrays are filled up."""
        num = -(-len(x) // NEW)
        tiles = room(num, _NEW_ROOM)
        rest = (filled(other, tiles * NEW, 0.0).reshape(tiles, NEW) for other in others)
        return Tiled((filled(x, tiles * NEW, x[-1]).reshape(tiles, NEW), *rest), num)


def _logs(parts: Parts, u: Array, log_v: Array, x: Array, at: tuple[Array, Inputs]) -> Array:
    logs = parts.log_q(u, x, *at) + log_v[:, None]
    return jnp.where(jnp.isnan(logs), -jnp.inf, logs)


def _or_zero(peak: Array) -> Array:
    return jnp.where(jnp.isfinite(peak), peak, 0.0)


@partial(jax.jit, static_argnames="static")
def _push(dynamic, static, old, new, at):
    """Peaks of log v Q of all tiles (J, I, m), and sums by panels relative to them."""
    parts: Parts = eqx.combine(dynamic, static)
    (u, log_v, rows), num_old = old
    (x,), num_new = new
    shape = x.shape[0], u.shape[0]
    groups = rows.reshape(*rows.shape[:2], -1, PANEL)

    def tile(k, carry):
        peaks, sums = carry
        i, j = k // num_new, k % num_new
        logs = _logs(parts, u[i], log_v[i], x[j], at)
        peak = jnp.max(logs, axis=0)
        terms = jnp.exp(logs - _or_zero(peak)[None, :]).reshape(-1, PANEL, NEW)
        part = jnp.einsum("lkp,kpm->klm", groups[i], terms)
        return peaks.at[j, i].set(peak), sums.at[j, i].set(part)

    peaks = jnp.full((*shape, NEW), -jnp.inf)
    sums = jnp.zeros((*shape, groups.shape[2], rows.shape[1], NEW))
    return jax.lax.fori_loop(0, num_old * num_new, tile, (peaks, sums))


@partial(jax.jit, static_argnames="static")
def _pull(dynamic, static, old, new, at):
    """sum_j omega_j v_m Q(u_m, x_j) / p(x_j) of all old nodes."""
    parts: Parts = eqx.combine(dynamic, static)
    (u, log_v, _), num_old = old
    (x, omega), num_new = new

    def column(j, out):
        def add(i, carry):
            peak, total = carry
            logs = _logs(parts, u[i], log_v[i], x[j], at)
            higher = jnp.maximum(peak, jnp.max(logs, axis=0))
            safe = _or_zero(higher)
            terms = jnp.sum(jnp.exp(logs - safe[None, :]), axis=0)
            # exp(-inf) where nothing has been found so far, and not 0 inf.
            return higher, total * jnp.exp(jnp.where(higher > peak, peak - safe, 0.0)) + terms

        first = jnp.full(NEW, -jnp.inf), jnp.zeros(NEW)
        peak, total = jax.lax.fori_loop(0, num_old, add, first)
        weights = omega[j] / jnp.where(total > 0, total, 1.0)

        def give(i, out):
            logs = _logs(parts, u[i], log_v[i], x[j], at)
            return out.at[i].add(jnp.exp(logs - _or_zero(peak)[None, :]) @ weights)

        return jax.lax.fori_loop(0, num_old, give, out)

    return jax.lax.fori_loop(0, num_new, column, jnp.zeros(u.shape))


class Pushed(NamedTuple):
    """log p(x_j), and sums with every row over p: in all, and by panels if these are wanted."""

    log_p: Float[np.ndarray, " m"]
    totals: Float[np.ndarray, "l m"]
    shares: Float[np.ndarray, "l k m"]


def push(
    parts: tuple[Parts, Parts],
    old: Tiled,
    x: Float[np.ndarray, " m"],
    at: tuple[int, Inputs],
    panels: int,
) -> Pushed:
    """Sums over old nodes with each of their rows; the first of these counts every node once.

    `panels` is how many of them there are, zero if nobody asks for theirs.
    """
    rows = old.arrays[2].shape[1]
    out = Pushed(np.zeros(len(x)), np.zeros((rows, len(x))), np.zeros((rows, panels, len(x))))
    for k in range(0, len(x), MOST_NEW):
        some = slice(k, k + MOST_NEW)
        _fill(Pushed(out.log_p[some], out.totals[:, some], out.shares[:, :, some]),
              parts, old, x[some], at)  # fmt: skip
    return out


def _fill(
    out: Pushed, parts: tuple[Parts, Parts], old: Tiled, x: Float[np.ndarray, " m"], at
) -> None:
    new = Tiled.new(x)
    found = _push(*parts, old, new, at)
    peaks, sums = (np.asarray(part)[: new.num, : old.num] for part in found)
    peak = np.max(peaks, axis=1)
    safe = np.where(np.isfinite(peak), peak, 0.0)
    scales = np.exp(peaks - safe[:, None])
    by_tile = np.sum(sums, axis=2)
    total = np.sum(by_tile[:, :, 0] * scales, axis=1)
    scales /= np.where(total > 0, total, 1.0)[:, None]
    with np.errstate(divide="ignore"):
        out.log_p[:] = (safe + np.log(total)).reshape(-1)[: len(x)]
    totals = np.einsum("jilm,jim->ljm", by_tile, scales)
    out.totals[:] = totals.reshape(len(totals), -1)[:, : len(x)]
    num, each = out.shares.shape[1], sums.shape[2]
    for i in range(-(-num // each)):
        some = slice(i * each, min((i + 1) * each, num))
        count = some.stop - some.start
        # (J, k, l, m) -> (l, k, J m)
        part = (sums[:, i, :count] * scales[:, i, None, None]).transpose(2, 1, 0, 3)
        out.shares[:, some] = part.reshape(*part.shape[:2], -1)[:, :, : len(x)]


def pull(
    parts: tuple[Parts, Parts],
    old: Tiled,
    x: Float[np.ndarray, " m"],
    omega: Float[np.ndarray, " m"],
    at: tuple[int, Inputs],
) -> Float[np.ndarray, " n"]:
    """What old nodes give to new ones with masses omega, as far as arrays reach."""
    total = np.zeros(old.arrays[0].size)
    for k in range(0, len(x), MOST_NEW):
        some = slice(k, k + MOST_NEW)
        total += np.asarray(_pull(*parts, old, Tiled.new(x[some], omega[some]), at)).reshape(-1)
    return total


# Pairs of a tile, and tiles that arrays have room for.
_PAIRS, _PAIR_ROOM = 2**10, (4, 32)


@partial(jax.jit, static_argnames="static")
def _log_q_pairs(dynamic, static, u, x, num, at):
    parts: Parts = eqx.combine(dynamic, static)

    def tile(k, out):
        each = jax.vmap(lambda a, b: parts.log_q(a[None], b[None], *at)[0, 0])(u[k], x[k])
        return out.at[k].set(each)

    return jax.lax.fori_loop(0, num, tile, jnp.zeros(u.shape))


def log_q_pairs(
    parts: tuple[Parts, Parts],
    u: Float[np.ndarray, " n"],
    x: Float[np.ndarray, " n"],
    at: tuple[int, Inputs],
) -> Float[np.ndarray, " n"]:
    """log Q(u_i, x_i)."""
    most, outs = _PAIRS * _PAIR_ROOM[-1], []
    for k in range(0, len(u), most):
        old, new = u[k : k + most], x[k : k + most]
        num = -(-len(old) // _PAIRS)
        tiles = room(num, _PAIR_ROOM)
        both = (filled(a, tiles * _PAIRS, a[-1]).reshape(tiles, _PAIRS) for a in (old, new))
        found = np.asarray(_log_q_pairs(*parts, *both, num, at))
        outs.append(found.reshape(-1)[: len(old)])
    return np.concatenate(outs)
