"""Laws that are squares of Gaussians with free shapes, on the box."""

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from ..._checks import Numbers, is_concrete
from ..._density.box import Box
from ..._density.generalized import GeneralizedGaussianPSD
from ..laws import AbstractLaws
from ..numerics.quadrature import axis_marginal, draw, graded_cdfs, line_quantiles
from .atoms import Atoms, log_heights
from .compress import SquareSum
from .rules import axes_between, mesh
from .step import StepSizes, region_of, rule_for

# Orders of densities are multiples of this.
_ROUNDED = 16


def as_density(law: SquareSum, box: Box) -> GeneralizedGaussianPSD:
    """The law in user units. Its mass is one on the box; what it is outside means nothing."""
    atoms, factor = law
    if is_concrete(factor):
        # Atoms in use come first. Orders are rounded up, so that few are ever compiled for.
        used = int(np.any(np.asarray(factor) != 0, axis=1).sum())
        order = min(-(-used // _ROUNDED) * _ROUNDED, factor.shape[0])
        atoms, factor = Atoms(*(part[:order] for part in atoms)), factor[:order]
    half = box.half_width
    height = jnp.exp(log_heights(atoms)) / jnp.sqrt(jnp.prod(half))
    return GeneralizedGaussianPSD.from_centers(
        box.center[None, :] + half[None, :] * atoms.centers,
        height[:, None] * factor,
        atoms.precision / (half[:, None] * half[None, :])[None],
    )


class FreeLaws(AbstractLaws):
    """Laws of T times, of mass one on the box; outside of it they mean nothing."""

    laws: SquareSum
    box: Box
    sizes: StepSizes = eqx.field(static=True)

    def quantiles(self, levels: Float[Array, " k"]) -> Float[Array, "k t d"]:
        """By the integral of the interpolating polynomial, inverted."""
        return self.box.from_unit(_quantiles(self.laws, levels, self.sizes))

    def cdfs(self, x: Float[Array, "t d"]) -> Float[Array, "t d"]:
        """By the integral of the interpolating polynomial."""
        unit = (x - self.box.center[None, :]) / self.box.half_width[None, :]
        return _cdfs(self.laws, unit, self.sizes)

    def expectations(self, fn: Callable[[Array], Numbers]) -> Array:
        """By quadrature where the law is."""
        return _expectations(self.laws, fn, self.box, self.sizes)

    def draws(self, key: PRNGKeyArray, num: int) -> Float[Array, "n t d"]:
        """Axis by axis, each given those before."""
        return self.box.from_unit(_sample(self.laws, key, num, self.sizes))

    def density(self, t: int) -> GeneralizedGaussianPSD:
        """The law at index t, of mass one on the state box; outside of it, it means nothing."""
        return as_density(jax.tree.map(lambda a: a[t], self.laws), self.box)


class _Table(eqx.Module):
    """A law at the nodes of the part of the box where it is."""

    values: Float[Array, " n"]
    nodes: tuple[Array, ...]
    weights: tuple[Array, ...]
    middle: Float[Array, " d"]
    half: Float[Array, " d"]


def _tabulate(law: SquareSum, sizes: StepSizes) -> _Table:
    region = region_of(law, sizes)
    low, high = region.low, region.high
    axes, weights = axes_between(low, high, sizes.table_nodes)
    return _Table(law(mesh(axes)), axes, weights, 0.5 * (low + high), 0.5 * (high - low))


@eqx.filter_jit
def _quantiles(
    laws: SquareSum, levels: Float[Array, " k"], sizes: StepSizes
) -> Float[Array, "k t d"]:
    def one(law: SquareSum) -> Array:
        table, shape = _tabulate(law, sizes), (sizes.table_nodes,) * law.atoms.dim
        lines = [
            axis_marginal(table.values[None], shape, table.weights, axis)
            for axis in range(law.atoms.dim)
        ]
        inner = jnp.concatenate([line_quantiles(line, levels[None]) for line in lines])
        return (table.middle[:, None] + table.half[:, None] * inner).T

    return jnp.moveaxis(jax.lax.map(one, laws), 0, 1)


@eqx.filter_jit
def _cdfs(laws: SquareSum, unit: Float[Array, "t d"], sizes: StepSizes) -> Float[Array, "t d"]:
    def one(at: tuple[SquareSum, Array]) -> Array:
        law, point = at
        table, dim = _tabulate(law, sizes), law.atoms.dim
        inner, columns = (point - table.middle) / table.half, []
        for axis in range(dim):
            line = axis_marginal(
                table.values[None], (sizes.table_nodes,) * dim, table.weights, axis
            )
            nodes = (table.nodes[axis] - table.middle[axis]) / table.half[axis]
            weights = table.weights[axis] / table.half[axis]
            columns.append(graded_cdfs(line, inner[axis][None], nodes, weights)[0])
        return jnp.stack(columns)

    return jax.lax.map(one, (laws, unit))


@eqx.filter_jit
def _expectations(
    laws: SquareSum, fn: Callable[[Array], Numbers], box: Box, sizes: StepSizes
) -> Array:
    def one(law: SquareSum) -> Array:
        rule = rule_for(law, sizes)
        shares = rule.weights * law(rule.nodes)
        points = box._place(rule.nodes)
        image = jax.vmap(lambda x: jnp.asarray(fn(x), dtype=jnp.float64))(points)
        return jnp.tensordot(shares / jnp.sum(shares), image, axes=1)

    return jax.lax.map(one, laws)


@eqx.filter_jit
def _sample(
    laws: SquareSum, key: PRNGKeyArray, num: int, sizes: StepSizes
) -> Float[Array, "k t d"]:
    keys = jax.random.split(key, laws.factor.shape[0])

    def one(at: tuple[SquareSum, Array]) -> Array:
        table = _tabulate(at[0], sizes)
        each = jax.random.split(at[1], num)
        return jax.vmap(lambda k: draw(table.values, table.nodes, table.weights, k))(each)

    return jnp.moveaxis(jax.lax.map(one, (laws, keys)), 0, 1)
