"""Laws known by their values at the nodes of a table."""

from abc import abstractmethod
from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from ..._checks import Numbers
from ..laws import AbstractLaws
from ..numerics.mass import legendre_rules, log_mass
from ..numerics.quadrature import axis_marginal, draw, graded_cdfs, graded_quantiles
from ..series import Series
from .density import StepDensity
from .run import GivenLaw, Kept
from .table import Table


class AbstractTableLaws(AbstractLaws):
    """The nodes resolve every integral of the filter: its densities are interpolated."""

    table: eqx.AbstractVar[Table]
    values: eqx.AbstractVar[Float[Array, "t n"]]

    def quantiles(self, levels: Float[Array, " k"]) -> Float[Array, "k t d"]:
        """By the integral of the interpolating polynomial, inverted."""
        return _quantiles(self.table, self.values, levels)

    def cdfs(self, x: Float[Array, "t d"]) -> Float[Array, "t d"]:
        """By the integral of the interpolating polynomial."""
        return _cdfs(self.table, self.values, x)

    def expectations(self, fn: Callable[[Array], Numbers]) -> Array:
        """By the rule of the nodes."""
        return _expectations(self.table, self.values, fn)

    def draws(self, key: PRNGKeyArray, num: int) -> Float[Array, "n t d"]:
        """Axis by axis, each given those before."""
        return _draws(self.table, self.values, key, num)

    @abstractmethod
    def unscaled(self, t: int) -> StepDensity:
        """The density at index t, normalised as the recursion at the nodes did."""

    def log_mass(self, t: int) -> Float[Array, ""]:
        """log of the mass of that, to rounding."""
        return log_mass(self.unscaled(t), self.table.box, legendre_rules(self.table.shape))

    def density(self, t: int) -> StepDensity:
        """The density at index t in user units, of mass one to rounding."""
        return of_mass_one(self.unscaled(t), self.table)


def of_mass_one(f: StepDensity, table: Table) -> StepDensity:
    """f over its mass on the box."""
    found = log_mass(f, table.box, legendre_rules(table.shape))
    return eqx.tree_at(lambda d: d.log_scale, f, f.log_scale - found)


def step_density(
    table: Table,
    source: Float[Array, " n"] | None,
    seen: Float[Array, "k p"],
    log_scale: Float[Array, ""],
) -> StepDensity:
    """From values before the last transition; None if there was none."""
    if source is None:
        log_scale = log_scale - table.log_start
    else:
        source = table.flat_weights * source
    return StepDensity(table.triple, table.box, table.points, source, seen, None, log_scale)


class FilteredLaws(AbstractTableLaws):
    """p(x_t | y_1 ... y_t), or with `observed` false p(x_t | y before t)."""

    table: Table
    series: Series
    kept: Kept
    seen: Bool[Array, " t"]
    values: Float[Array, "t n"]
    log_kept: Float[Array, " t"]
    observed: bool = eqx.field(static=True, default=True)

    def unscaled(self, t: int) -> StepDensity:
        """Observations at one time multiply: back to the last transition."""
        hops, seen, ys = (np.asarray(a) for a in (self.series.hops, self.seen, self.series.ys))
        used, first = [], t
        while True:
            if seen[first] and (self.observed or first != t):
                used.append(first)
            if hops[first] > 0 or first == 0:
                break
            first -= 1
        log_scale = -jnp.sum(self.kept.log_norms[first : t + (1 if self.observed else 0)])
        if not self.observed:
            log_scale = log_scale - self.log_kept[t]
        source = None if hops[first] == 0 else self.kept.sources[first]
        rows = jnp.asarray(ys[np.asarray(used, dtype=int)])
        return step_density(self.table, source, rows, log_scale)


class SmoothedLaws(AbstractTableLaws):
    """p(x_t | y_1 ... y_T)."""

    table: Table
    forward: FilteredLaws
    values: Float[Array, "t n"]
    sinks: Float[Array, "t n"]
    log_norms: Float[Array, " t"]

    def unscaled(self, t: int) -> StepDensity:
        """The filtered density times what was seen later."""
        series = self.forward.series
        if t == series.num - 1:
            return self.forward.unscaled(t)
        if int(series.hops[t + 1]) == 0:
            # Several sensors at one time share their smoothed density.
            return self.unscaled(t + 1)
        f = self.forward.unscaled(t)
        # Sinks have weights of unit coordinates, Q^ is a density in user units.
        sink = self.sinks[t] * jnp.prod(self.table.box.half_width)
        log_scale = f.log_scale - self.log_norms[t]
        return StepDensity(f.triple, f.box, f.nodes, f.source, f.seen, sink, log_scale)


class AheadLaws(AbstractTableLaws):
    """p(x_{T+k} | y_1 ... y_T), renormalised on the box at each step."""

    table: Table
    values: Float[Array, "k n"]
    sources: Float[Array, "k n"]
    log_kept: Float[Array, " k"]

    def unscaled(self, t: int) -> StepDensity:
        """The prediction."""
        nothing = jnp.zeros((0, self.table.triple.num_observed))
        return step_density(self.table, self.sources[t], nothing, -self.log_kept[t])


def density_between(table: Table, law: GivenLaw) -> StepDensity:
    """The law of an online filter."""
    num = int(law.num_seen)
    if num > law.seen.shape[0]:
        raise ValueError(
            f"density of a law after {num} observations at one time is not kept, at most "
            f"{law.seen.shape[0]} are: join the sensors into one observation, or see moments"
        )
    source = law.source if bool(law.moved) else None
    return of_mass_one(step_density(table, source, law.seen[:num], -law.log_norm), table)


def _lines(table: Table, values: Float[Array, "t n"]) -> list[Float[Array, "t k"]]:
    axes = range(len(table.shape))
    return [axis_marginal(values, table.shape, table.weights, axis) for axis in axes]


@eqx.filter_jit
def _quantiles(table: Table, values: Array, levels: Float[Array, " k"]) -> Float[Array, "k t d"]:
    box, columns = table.box, []
    for axis, line in enumerate(_lines(table, values)):
        q = jnp.broadcast_to(levels[None, :], (line.shape[0], levels.size))
        z = graded_quantiles(line, q, table.nodes[axis], table.weights[axis])
        columns.append(box.center[axis] + box.half_width[axis] * z.T)
    return jnp.stack(columns, axis=-1)


@eqx.filter_jit
def _cdfs(table: Table, values: Array, x: Float[Array, "t d"]) -> Float[Array, "t d"]:
    box = table.box
    unit = (x - box.center[None, :]) / box.half_width[None, :]
    columns = [
        graded_cdfs(line, unit[:, axis], table.nodes[axis], table.weights[axis])
        for axis, line in enumerate(_lines(table, values))
    ]
    return jnp.stack(columns, axis=-1)


@eqx.filter_jit
def _expectations(table: Table, values: Array, fn: Callable[[Array], Numbers]) -> Array:
    masses = values * table.flat_weights[None, :]
    shares = masses / jnp.sum(masses, axis=1, keepdims=True)
    image = jax.vmap(lambda x: jnp.asarray(fn(x), dtype=jnp.float64))(table.points)
    return jnp.tensordot(shares, image, axes=1)


@eqx.filter_jit
def _draws(table: Table, values: Array, key: PRNGKeyArray, num: int) -> Float[Array, "n t d"]:
    keys = jax.random.split(key, (num, values.shape[0]))

    def one(line: Float[Array, " n"], draw_key: PRNGKeyArray) -> Float[Array, " d"]:
        return table.box._place(draw(line, table.nodes, table.weights, draw_key))

    return jax.lax.map(lambda ks: jax.vmap(one)(values, ks), keys)
