"""Sums over old nodes at new points, compiled once for a few sizes, or on the host.

All sums are in logs, shifted by their maximum at each point: a point fifty standard deviations out
has a value like any other.
"""

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, Protocol

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..._statespace.functions import Inputs, call
from ..._statespace.model import StateSpaceModel
from . import tiles
from .rules import PANEL, embedded_error, end_rows, margin_errors, no_nan, patterson
from .values import Parts, parts_of

if TYPE_CHECKING:
    from .pairs import Smooth

# Sizes that arrays are filled up to, in nodes: few, so that few programs are compiled.
_OLD_SIZES = tuple(PANEL * k for k in (16, 64, 256))
_NEW_SIZES = tuple(PANEL * k for k in (4, 16, 64))


class Idle(NamedTuple):
    """Nodes that a law has dropped, and their masses by a coarse rule: see `dropped`."""

    nodes: Float[np.ndarray, " n"]
    log_masses: Float[np.ndarray, " n"]


class Source(NamedTuple):
    """A measure sum_m v_m delta(u_m), the transition out of it, and its coarser companions.

    `ratios` are, relative to v, the masses of the two coarser rules, those of the error carried so
    far, and those that may lie beyond the ends.
    """

    nodes: Float[np.ndarray, " n"]
    log_masses: Float[np.ndarray, " n"]
    ratios: Float[np.ndarray, "4 n"]
    smooth: "Smooth | None"  # panels as polynomials; None for nodes without panels
    t: int
    row: Inputs
    idle: Idle | None = None


class Sums(NamedTuple):
    """Sums over old nodes at new points."""

    log_p: Float[np.ndarray, " m"]
    companions: Float[np.ndarray, "4 m"]  # sums with `ratios`, over p
    shares: Float[np.ndarray, "3 k m"]  # of old panels in p, by the three rules
    errors: Float[np.ndarray, "k m"]  # of old panels, over p


class Seen(NamedTuple):
    """One observation and what belongs to it."""

    y: Float[np.ndarray, " p"]
    t: int
    row: Inputs


class Values(Protocol):
    """Where values come from: a compiled model or a NumPy one."""

    def push(self, source: Source, x: np.ndarray) -> Sums:
        """p(x_j) = sum_m v_m Q(u_m, x_j) and what comes with it."""
        ...

    def log_p(self, source: Source, x: np.ndarray) -> np.ndarray:
        """log p(x_j) alone."""
        ...

    def pull(self, source: Source, x: np.ndarray, omega: np.ndarray) -> np.ndarray:
        """v_m sum_j Q(u_m, x_j) omega_j / p(x_j): masses of old nodes, given new ones (n,)."""
        ...

    def log_q_pairs(self, u: np.ndarray, x: np.ndarray, t: int, row: Inputs) -> np.ndarray:
        """log Q(u_i, x_i)."""
        ...

    def log_prior(self, x: np.ndarray) -> np.ndarray:
        """log p_0(x_j)."""
        ...

    def log_likelihood(self, x: np.ndarray, seen: Seen) -> np.ndarray:
        """log G(x_j, y)."""
        ...

    def log_q(self, u: np.ndarray, x: np.ndarray, t: int, row: Inputs) -> np.ndarray:
        """log Q(u_i, x_j)."""
        ...

    def means(self, source: Source) -> np.ndarray | None:
        """f(u_m), where the noise is additive and Gaussian."""
        ...


def _combine(dynamic: Parts, static: Parts) -> Parts:
    return eqx.combine(dynamic, static)


def shares_of(
    log_q: Float[Array, "n m"], log_v: Float[Array, " n"]
) -> tuple[Float[Array, "n m"], Float[Array, " m"]]:
    """v_m Q(u_m, x_j) / p(x_j), and log p(x_j)."""
    logs = log_q + log_v[:, None]
    logs = jnp.where(jnp.isnan(logs), -jnp.inf, logs)
    peak = jnp.max(logs, axis=0)
    safe = jnp.where(jnp.isfinite(peak), peak, 0.0)
    terms = jnp.exp(logs - safe[None, :])
    total = jnp.sum(terms, axis=0)
    return terms / jnp.where(total > 0, total, 1.0)[None, :], safe + jnp.log(total)


@partial(jax.jit, static_argnames="static")
def _log_prior(dynamic, static, x):
    return _combine(dynamic, static).log_p0(x)


@partial(jax.jit, static_argnames="static")
def _log_likelihood(dynamic, static, x, y, t, row):
    return _combine(dynamic, static).log_g(x, y, t, row)


@partial(jax.jit, static_argnames="static")
def _log_q(dynamic, static, u, x, t, row):
    return _combine(dynamic, static).log_q(u, x, t, row)


@partial(jax.jit, static_argnames="static")
def _means(dynamic, static, u, t, row):
    return _combine(dynamic, static).means(u, t, row)


class CompiledValues:
    """Values of a JAX model."""

    def __init__(self, ssm: StateSpaceModel):
        self.parts = parts_of(ssm)
        self.dynamic, self.static = eqx.partition(self.parts, eqx.is_array)

    @property
    def _both(self) -> tuple[Parts, Parts]:
        return self.dynamic, self.static

    def push(self, source: Source, x: np.ndarray) -> Sums:
        num = 0 if source.smooth is None else len(source.nodes) // PANEL
        found = tiles.push(self._both, _tiled(source), x, (source.t, source.row), num)
        shares = found.shares
        errors = _panel_errors(source, shares)
        return Sums(found.log_p, found.totals[[1, 2, 5, 6]], shares[:3], errors)

    def log_p(self, source: Source, x: np.ndarray) -> np.ndarray:
        return tiles.push(self._both, _tiled(source), x, (source.t, source.row), 0).log_p

    def pull(self, source: Source, x: np.ndarray, omega: np.ndarray) -> np.ndarray:
        out = tiles.pull(self._both, _tiled(source), x, omega, (source.t, source.row))
        return out[: len(source.nodes)]

    def log_q_pairs(self, u: np.ndarray, x: np.ndarray, t: int, row: Inputs) -> np.ndarray:
        return no_nan(tiles.log_q_pairs(self._both, u, x, (t, row)))

    def log_prior(self, x: np.ndarray) -> np.ndarray:
        return self._each(lambda block: _log_prior(self.dynamic, self.static, block), x)

    def log_likelihood(self, x: np.ndarray, seen: Seen) -> np.ndarray:
        y, t, row = seen
        return self._each(
            lambda block: _log_likelihood(self.dynamic, self.static, block, y, t, row), x
        )

    def log_q(self, u: np.ndarray, x: np.ndarray, t: int, row: Inputs) -> np.ndarray:
        old = tiles.filled(u, tiles.room(len(u), _OLD_SIZES), u[-1])
        outs = [
            np.asarray(_log_q(self.dynamic, self.static, old, block, t, row))
            for block in self._blocks(x)
        ]
        return no_nan(np.concatenate(outs, axis=1)[: len(u), : len(x)])

    def means(self, source: Source) -> np.ndarray | None:
        if self.dynamic.moved is None:
            return None
        nodes = source.nodes
        u = tiles.filled(nodes, tiles.room(len(nodes), _OLD_SIZES), nodes[-1])
        out = _means(self.dynamic, self.static, u, source.t, source.row)
        return np.asarray(out)[: len(source.nodes)]

    def _each(self, fn: Callable[[np.ndarray], Array], x: np.ndarray) -> np.ndarray:
        outs = [np.asarray(fn(block)) for block in self._blocks(x)]
        return no_nan(np.concatenate(outs)[: len(x)])

    def _blocks(self, x: np.ndarray) -> list[np.ndarray]:
        size = _NEW_SIZES[-1]
        blocks = [x[k : k + size] for k in range(0, len(x), size)]
        return [tiles.filled(b, tiles.room(len(b), _NEW_SIZES), b[-1]) for b in blocks]


def _tiled(source: Source) -> tiles.Tiled:
    """Every node once, by the two coarser rules, at both ends, and by what else it carries."""
    ones = np.ones((1, len(source.nodes)))
    rows = np.concatenate([ones, source.ratios[:2], _end_rows(source), source.ratios[2:]])
    return tiles.Tiled.old(source.nodes, source.log_masses, rows)


class HostValues:
    """Values of a NumPy model, `vectorized=True`: functions of points (n, 1)."""

    def __init__(self, ssm: StateSpaceModel):
        self.ssm = ssm

    def push(self, source: Source, x: np.ndarray) -> Sums:
        terms, log_p = self._shares(source, x)
        shares = np.zeros((5, 0, len(x)))
        if source.smooth is not None:
            ones, ends = np.ones((1, len(source.nodes))), _end_rows(source)
            levels = np.concatenate([ones, source.ratios[:2], ends])
            groups = terms.reshape(-1, PANEL, len(x))
            shares = np.einsum("lkp,kpm->lkm", levels.reshape(5, -1, PANEL), groups)
        return Sums(log_p, source.ratios @ terms, shares[:3], _panel_errors(source, shares))

    def log_p(self, source: Source, x: np.ndarray) -> np.ndarray:
        return self._shares(source, x)[1]

    def pull(self, source: Source, x: np.ndarray, omega: np.ndarray) -> np.ndarray:
        return self._shares(source, x)[0] @ omega

    def log_q_pairs(self, u: np.ndarray, x: np.ndarray, t: int, row: Inputs) -> np.ndarray:
        with np.errstate(all="ignore"):
            value = call(self.ssm.log_transition, u[:, None], x[:, None], t=t, inputs=row)
        return self._logs(value, len(u))

    def log_prior(self, x: np.ndarray) -> np.ndarray:
        return self._logs(call(self.ssm.log_prior, x[:, None]), len(x))

    def log_likelihood(self, x: np.ndarray, seen: Seen) -> np.ndarray:
        ys = np.broadcast_to(seen.y, (len(x), len(seen.y)))
        with np.errstate(all="ignore"):
            value = call(self.ssm.log_observation, x[:, None], ys, t=seen.t, inputs=seen.row)
        return self._logs(value, len(x))

    def log_q(self, u: np.ndarray, x: np.ndarray, t: int, row: Inputs) -> np.ndarray:
        old = np.repeat(u, len(x))[:, None]
        new = np.tile(x, len(u))[:, None]
        with np.errstate(all="ignore"):
            value = call(self.ssm.log_transition, old, new, t=t, inputs=row)
        return self._logs(value, len(old)).reshape(len(u), len(x))

    def means(self, source: Source) -> np.ndarray | None:
        del source
        return None

    def _shares(self, source: Source, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        logs = self.log_q(source.nodes, x, source.t, source.row) + source.log_masses[:, None]
        peak = logs.max(axis=0)
        safe = np.where(np.isfinite(peak), peak, 0.0)
        terms = np.exp(logs - safe[None, :])
        total = terms.sum(axis=0)
        with np.errstate(divide="ignore"):
            return terms / np.where(total > 0, total, 1.0)[None, :], safe + np.log(total)

    @staticmethod
    def _logs(value: Array | np.ndarray, num: int) -> np.ndarray:
        return no_nan(np.asarray(value, dtype=float).reshape(num))


def _end_rows(source: Source) -> Float[np.ndarray, "2 n"]:
    """From masses of nodes to the density at the left and the right end of their panel."""
    smooth = source.smooth
    if smooth is None:
        return np.zeros((2, len(source.nodes)))
    weights = (0.5 * (smooth.upper - smooth.lower))[:, None] * patterson().weights[0]
    return (end_rows()[:, None, :] / weights).reshape(2, -1)


def _panel_errors(source: Source, shares: Float[np.ndarray, "5 k m"]) -> np.ndarray:
    errors = embedded_error(shares[0] - shares[1], shares[1] - shares[2])
    if source.smooth is None:
        return errors
    ends = margin_errors(source.smooth.lower, source.smooth.upper, shares[3], shares[4])
    return np.maximum(errors, ends)


def values_of(ssm: StateSpaceModel) -> Values:
    """Where the values of a model come from."""
    return HostValues(ssm) if ssm.vectorized else CompiledValues(ssm)
