"""Laws in closed form, for questions that have none: values on nodes of the box."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..._density.psd import GaussianPSD
from ..nodes.filled import Filled
from ..nodes.laws import AbstractNodeLaws
from ..nodes.refine import FineNodes
from ..numerics.grids import AxisNodes, apply_axes
from ..series import Series
from .recursion import Grid, KeptSteps, expand


def values_at(grid: Grid, at: KeptSteps, nodes: AxisNodes) -> Float[Array, " n"]:
    """The density of one time on a tensor grid, in unit coordinates."""
    # A signed sum: rounding can leave it below zero where the density vanishes.
    values = jnp.maximum(grid.midpoints.values(at.predictions, nodes), 0.0)
    kernels = tuple(r.kernel(z) for r, z in zip(grid.plan.observation, nodes, strict=True))
    likelihood = jnp.where(at.used, jnp.square(apply_axes(at.coefficients, kernels)), 1.0)
    return (values * likelihood * jnp.exp(at.log_scales)).ravel()


class ClosedLaws(AbstractNodeLaws):
    """p(x_t | y_1 ... y_t); `model` is the same plan as the filter on nodes has it."""

    model: Filled
    grid: Grid
    series: Series
    kept: KeptSteps

    def values_on(self, fine: FineNodes) -> Float[Array, "t n"]:
        """Densities on other nodes."""
        return jax.lax.map(lambda at: values_at(self.grid, at, fine.nodes), self.kept)

    def unscaled(self, t: int) -> GaussianPSD:
        """The density itself: its normaliser is a closed form."""
        return self.density(t)

    def density(self, t: int) -> GaussianPSD:
        """The density at index t in user units: order 2 m - 1 per axis, exactly.

        The root of S times k . c is a sum on the half grid, column by column.
        """
        at: KeptSteps = jax.tree.map(lambda a: a[t], self.kept)
        step, root = self.series.steps[t], None
        if int(step) > 0:
            when = int(step) if self.grid.ssm.vectorized else step
            root = self.grid.root_at(when, self.series.row(t))
        c = at.coefficients if bool(at.used) else None
        return expand(self.grid, root, at.sources, c, at.log_scales)
