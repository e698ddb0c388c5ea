"""Laws of observations on a quadrature grid over the box of y."""

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from ..._checks import Numbers
from ..._density.box import Box
from ..._density.psd import AbstractDensity
from ..._gaussian.quadrature import legendre_rule
from ..ability import Ability, NotOffered
from ..laws import AbstractLaws
from .grids import flat_weights, mesh_points
from .quadrature import axis_marginal, draw, graded_cdfs, line_quantiles

# Nodes for each coordinate of y, by their number: about 10^4 in all at most.
NUM_NODES = {1: 256, 2: 48, 3: 20}


class AbstractObservedLaws(AbstractLaws):
    """Laws of y, with what is at hand of them."""

    mean: eqx.AbstractVar[Float[Array, "k p"]]
    covariance: eqx.AbstractVar[Float[Array, "k p p"]]
    leak: eqx.AbstractVar[Float[Array, " k"]]  # mass outside of where y is said to live


class GridLaws(AbstractObservedLaws):
    """Densities of y at K times, on a Gauss-Legendre grid over `observation_box`."""

    box: Box
    values: Float[Array, "k n"]
    mean: Float[Array, "k p"]
    covariance: Float[Array, "k p p"]
    leak: Float[Array, " k"]

    @staticmethod
    def of(box: Box, values: Float[Array, "k n"]) -> "GridLaws":
        """From densities at the nodes of `observation_grid`, not normalised on the box."""
        nodes, weights = observation_grid(box)
        mass = values @ weights
        shares = weights[None, :] * values / mass[:, None]
        mean = shares @ nodes
        delta = nodes[None] - mean[:, None, :]
        covariance = jnp.einsum("kn,kni,knj->kij", shares, delta, delta)
        return GridLaws(box=box, values=values, mean=mean, covariance=covariance, leak=1.0 - mass)

    @property
    def _rule(self) -> tuple[tuple[int, ...], tuple[Array, ...], tuple[Array, ...]]:
        """Shape, nodes and weights of the axes in unit coordinates."""
        num = NUM_NODES[self.box.dim]
        nodes, weights = (jnp.asarray(part) for part in legendre_rule(num))
        each = range(self.box.dim)
        return (num,) * self.box.dim, tuple(nodes for _ in each), tuple(weights for _ in each)

    def _lines(self) -> list[Float[Array, "k n"]]:
        shape, _, weights = self._rule
        return [axis_marginal(self.values, shape, weights, a) for a in range(self.box.dim)]

    def quantiles(self, levels: Float[Array, " k"]) -> Float[Array, "k t p"]:
        """By the integral of the interpolating polynomial, inverted."""
        wanted = jnp.broadcast_to(levels[None, :], (self.values.shape[0], levels.size))
        z = jnp.stack([line_quantiles(line, wanted).T for line in self._lines()], axis=-1)
        return self.box.center[None, None, :] + self.box.half_width[None, None, :] * z

    def cdfs(self, x: Float[Array, "t p"]) -> Float[Array, "t p"]:
        """By the integral of the interpolating polynomial."""
        unit = (x - self.box.center[None, :]) / self.box.half_width[None, :]
        _, nodes, weights = self._rule
        columns = [
            graded_cdfs(line, unit[:, a], nodes[a], weights[a])
            for a, line in enumerate(self._lines())
        ]
        return jnp.stack(columns, axis=-1)

    def expectations(self, fn: Callable[[Array], Numbers]) -> Array:
        """By the rule of the grid."""
        nodes, weights = observation_grid(self.box)
        shares = self.values * weights[None, :]
        shares = shares / jnp.sum(shares, axis=1, keepdims=True)
        image = jax.vmap(lambda y: jnp.asarray(fn(y), dtype=jnp.float64))(nodes)
        return jnp.tensordot(shares, image, axes=1)

    def draws(self, key: PRNGKeyArray, num: int) -> Float[Array, "n t p"]:
        """Axis by axis, each given those before."""
        _, nodes, weights = self._rule
        keys = jax.random.split(key, (num, self.values.shape[0]))
        each = jax.vmap(lambda line, k: draw(line, nodes, weights, k))
        z = jax.lax.map(lambda ks: each(self.values, ks), keys)
        return self.box.center[None, None, :] + self.box.half_width[None, None, :] * z

    def density(self, t: int) -> AbstractDensity:
        """No closed form on a grid."""
        del t
        raise NotOffered("a quadrature grid", Ability.JOINT, "; see observation_density")


def observation_grid(box: Box) -> tuple[Float[Array, "n p"], Float[Array, " n"]]:
    """Nodes in user units and weights of a Gauss-Legendre grid, one rule for each axis.

    One rule, not panels: quantiles go through the polynomial of its nodes.
    """
    nodes, weights = legendre_rule(NUM_NODES[box.dim])
    unit = mesh_points([jnp.asarray(nodes)] * box.dim)
    flat = flat_weights([weights] * box.dim)
    return box._place(unit), jnp.prod(box.half_width) * flat
