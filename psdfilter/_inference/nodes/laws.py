"""Laws known by their values on quadrature nodes of the box."""

from abc import abstractmethod
from collections.abc import Callable
from functools import partial
from typing import TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from ..._checks import Numbers
from ..._density.psd import AbstractDensity
from ..laws import AbstractLaws
from ..numerics.grids import AxisNodes
from ..numerics.mass import log_mass
from ..numerics.quadrature import axis_marginal, draw, graded_cdfs, graded_quantiles
from ..sizing.grading import finer_rule
from .densities import ProductDensity, SmoothedDensity
from .filled import Filled
from .refine import FineNodes, fine_nodes


class AbstractNodeLaws(AbstractLaws):
    """Laws on the box of a plan; questions are answered on finer nodes than the recursion used."""

    model: eqx.AbstractVar[Filled]

    @abstractmethod
    def values_on(self, fine: FineNodes) -> Float[Array, "t n"]:
        """Densities in unit coordinates on other nodes, for all times."""

    @abstractmethod
    def unscaled(self, t: int) -> AbstractDensity:
        """The density at index t, normalised as the recursion did."""

    def log_mass(self, t: int) -> Float[Array, ""]:
        """log of the mass of that, to rounding."""
        plan = self.model.plan
        return log_mass(self.unscaled(t), plan.box, partial(_finer, self.model))

    def quantiles(self, levels: Float[Array, " k"]) -> Float[Array, "k t d"]:
        """By the integral of the interpolating polynomial, inverted."""
        return _quantiles(self, levels)

    def cdfs(self, x: Float[Array, "t d"]) -> Float[Array, "t d"]:
        """By the integral of the interpolating polynomial."""
        return _cdfs(self, x)

    def expectations(self, fn: Callable[[Array], Numbers]) -> Array:
        """By the rule of the fine nodes."""
        return _expectations(self, fn)

    def draws(self, key: PRNGKeyArray, num: int) -> Float[Array, "n t d"]:
        """Axis by axis, each given those before."""
        return _draws(self, key, num)


Lazy = TypeVar("Lazy", bound=ProductDensity | SmoothedDensity)


def of_mass_one(f: Lazy, model: Filled) -> Lazy:
    """f over its mass on the box, which the rule of the recursion knows to the tolerance only."""
    found = log_mass(f, model.plan.box, partial(_finer, model))
    return eqx.tree_at(lambda d: d.log_scale, f, f.log_scale - found)


def _finer(model: Filled, factor: float) -> tuple[AxisNodes, AxisNodes]:
    """The rules of a plan, refined as they are graded."""
    plan = model.plan
    pairs = [
        finer_rule(z, w, int(np.ceil(factor * z.shape[0])))
        for z, w in zip(plan.nodes, plan.weights, strict=True)
    ]
    return tuple(jnp.asarray(z) for z, _ in pairs), tuple(jnp.asarray(w) for _, w in pairs)


def _lines(laws: AbstractNodeLaws) -> tuple[FineNodes, list[Float[Array, "t k"]]]:
    """Fine nodes, and the marginals of all coordinates there."""
    fine = fine_nodes(laws.model)
    values = laws.values_on(fine)
    axes = range(len(fine.shape))
    return fine, [axis_marginal(values, fine.shape, fine.weights, axis) for axis in axes]


@eqx.filter_jit
def _quantiles(laws: AbstractNodeLaws, levels: Float[Array, " k"]) -> Float[Array, "k t d"]:
    box, columns = laws.model.plan.box, []
    fine, lines = _lines(laws)
    for axis, line in enumerate(lines):
        q = jnp.broadcast_to(levels[None, :], (line.shape[0], levels.size))
        z = graded_quantiles(line, q, fine.nodes[axis], fine.weights[axis])
        columns.append(box.center[axis] + box.half_width[axis] * z.T)
    return jnp.stack(columns, axis=-1)


@eqx.filter_jit
def _cdfs(laws: AbstractNodeLaws, x: Float[Array, "t d"]) -> Float[Array, "t d"]:
    box = laws.model.plan.box
    unit = (x - box.center[None, :]) / box.half_width[None, :]
    fine, lines = _lines(laws)
    columns = [
        graded_cdfs(line, unit[:, axis], fine.nodes[axis], fine.weights[axis])
        for axis, line in enumerate(lines)
    ]
    return jnp.stack(columns, axis=-1)


@eqx.filter_jit
def _expectations(laws: AbstractNodeLaws, fn: Callable[[Array], Numbers]) -> Array:
    fine = fine_nodes(laws.model)
    values = laws.values_on(fine) * fine.flat_weights()[None, :]
    shares = values / jnp.sum(values, axis=1, keepdims=True)
    image = jax.vmap(lambda x: jnp.asarray(fn(x), dtype=jnp.float64))(fine.points(laws.model))
    return jnp.tensordot(shares, image, axes=1)


@eqx.filter_jit
def _draws(laws: AbstractNodeLaws, key: PRNGKeyArray, num: int) -> Float[Array, "n t d"]:
    fine = fine_nodes(laws.model)
    values = laws.values_on(fine)
    box = laws.model.plan.box
    keys = jax.random.split(key, (num, values.shape[0]))

    def one(line: Float[Array, " n"], draw_key: PRNGKeyArray) -> Float[Array, " d"]:
        z = draw(line, fine.nodes, fine.weights, draw_key)
        return box.center + box.half_width * z

    return jax.lax.map(lambda ks: jax.vmap(one)(values, ks), keys)


def moments_from_features(
    center: Float[Array, " d"], half_width: Float[Array, " d"], features: Float[Array, "t k"]
) -> tuple[Float[Array, "t d"], Float[Array, "t d d"]]:
    """Mean and covariance in user units, from means of z_i and z_i z_j."""
    dim = center.shape[0]
    unit_mean = features[:, :dim]
    rows, columns = np.triu_indices(dim)
    second = jnp.zeros((features.shape[0], dim, dim)).at[:, rows, columns].set(features[:, dim:])
    second = second.at[:, columns, rows].set(features[:, dim:])
    unit_covariance = second - unit_mean[:, :, None] * unit_mean[:, None, :]
    mean = center[None, :] + half_width[None, :] * unit_mean
    return mean, unit_covariance * jnp.outer(half_width, half_width)[None]
