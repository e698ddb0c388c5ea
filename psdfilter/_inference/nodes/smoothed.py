"""Smoothing: the backward information recursion beside the filter.

    beta_T = 1,   beta_k(u) = int Q(u, x) G(x, y_{k+1}) beta_{k+1}(x) dx,
    p(x_k | y_1 ... y_T) = pi_k beta_k / int pi_k beta_k.

With weights b_j = w_j G_j beta_j at the nodes,
beta_k(u) = sum_j b_j prod_g (phi(u)'a_g psi_g(z_j))^2 is a PSD model in u. It is rescaled at every
step.
"""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..._statespace.functions import Inputs
from ..sizing.tables import backward_nodes
from .densities import ProductDensity, SmoothedDensity
from .filled import Filled
from .filtered import FilteredLaws
from .laws import AbstractNodeLaws, moments_from_features, of_mass_one
from .refine import FineNodes, Fits, backward_squares, likelihood_on
from .workspace import moment_features


class SmoothedLaws(AbstractNodeLaws):
    """p(x_t | y_1 ... y_T), or with a lag L p(x_t | y_1 ... y_{t+L})."""

    model: Filled
    forward: FilteredLaws
    sinks: Float[Array, "t n"]  # w G beta of the step after, before its last transition back
    log_norms: Float[Array, " t"]  # log int pi_t beta_t, for the scaled beta

    def values_on(self, fine: FineNodes) -> Float[Array, "t n"]:
        """Densities on other nodes."""
        forward = self.forward.values_on(fine)
        backward = _information_on(self.model, self.forward, self.sinks, fine)
        return forward * backward * jnp.exp(-self.log_norms)[:, None]

    def density(self, t: int) -> ProductDensity | SmoothedDensity:
        """The density at index t, a function of x (..., d) in user units."""
        return of_mass_one(self.unscaled(t), self.model)

    def unscaled(self, t: int) -> ProductDensity | SmoothedDensity:
        """The same, normalised as the recursion did."""
        series, model = self.forward.series, self.model
        if t == series.num - 1:
            return self.forward.unscaled(t)
        if int(series.hops[t + 1]) == 0:
            # Several sensors at one time share their smoothed density.
            return self.unscaled(t + 1)
        if model.renormalize:
            raise ValueError(
                "density of a smoother of a renormalised transition is no PSD model; use quantile, "
                "expect or sample"
            )
        earliest = series.steps[t + 1] - series.hops[t + 1] + 1
        transition = earliest, series.row(t + 1)
        filtered = self.forward.unscaled(t)
        return SmoothedDensity.make(filtered, model, transition, self.sinks[t], -self.log_norms[t])


class Backward(NamedTuple):
    """A smoothed series at the nodes, T rows each."""

    mean: Float[Array, "t d"]
    covariance: Float[Array, "t d d"]
    sinks: Float[Array, "t n"] | None
    log_norms: Float[Array, " t"]


def _information_on(
    model: Filled, laws: FilteredLaws, sinks: Float[Array, "t n"], fine: FineNodes
) -> Float[Array, "t n"]:
    """beta_t on other nodes, from what each step back started with."""
    series = laws.series
    fixed = None if model.tables is None else backward_squares(model, fine.nodes)

    def step(after: Array, xs: tuple[Array, Array, Array, Inputs, Fits]) -> tuple[Array, Array]:
        sink, hop, t, row, fit = xs
        earliest = t - jnp.maximum(hop, 1) + 1
        squares = fixed
        if squares is None:
            squares = backward_squares(model, fine.nodes, earliest, row)
        moved = backward_nodes(model.plan, squares, sink, fine.shape)
        likelihood = jnp.where(fit.seen, likelihood_on(model, fit.coefficients, fine.nodes), 1.0)
        still = after * likelihood * jnp.exp(fit.log_scales)
        beta = jnp.where(hop > 0, moved, still)
        return beta, beta

    last = jnp.ones(int(np.prod(fine.shape)))
    later = jax.tree.map(lambda a: a[1:], (series.hops, series.steps, series.rows, laws.fits))
    _, betas = jax.lax.scan(step, last, (sinks[:-1], *later), reverse=True)
    return jnp.concatenate([betas, last[None]])


@eqx.filter_jit
def smooth_to_the_end(laws: FilteredLaws) -> Backward:
    """Every law given all data."""
    model, series = laws.model, laws.series
    plan, weights = model.plan, model.plan.node_weights()

    def step(
        after: Array, xs: tuple[Array, Array, Inputs, Fits]
    ) -> tuple[Array, tuple[Array, Array]]:
        hop, t, row, fit = xs
        likelihood = jnp.where(fit.seen, likelihood_on(model, fit.coefficients, plan.nodes), 1.0)
        still = after * likelihood * jnp.exp(fit.log_scales)

        def back(k: Array | int, beta: Array) -> Array:
            return backward_nodes(plan, model.tables_at(t - k, row).squares, weights * beta)

        source = still
        if not series.regular:
            source = jax.lax.fori_loop(0, hop - 1, back, still)
        beta = jnp.where(hop > 0, back(hop - 1, source), still)
        return beta, (weights * source, beta)

    last = jnp.ones(plan.num_nodes)
    later = jax.tree.map(lambda a: a[1:], (series.hops, series.steps, series.rows, laws.fits))
    _, (sinks, betas) = jax.lax.scan(step, last, later, reverse=True)
    betas = jnp.concatenate([betas, last[None]])
    sinks = jnp.concatenate([sinks, weights[None]])
    joint = laws.kept.densities * betas
    norms = joint @ weights
    shares = joint / norms[:, None] * weights[None, :]
    box = plan.box
    moments = moments_from_features(box.center, box.half_width, shares @ moment_features(plan))
    return Backward(*moments, sinks, jnp.log(norms))


@eqx.filter_jit
def pair_law(laws: SmoothedLaws, t: int) -> Float[Array, "n n"]:
    """p(x_t, x_{t+1} | all y) at the nodes of the recursion, unit coordinates, mass one."""
    model, series = laws.model, laws.forward.series
    tables = model.tables_at(series.steps[t + 1], series.row(t + 1))
    weights = model.plan.node_weights()
    kernel = _full_table(model, tables.squares)
    joint = laws.forward.kept.densities[t][:, None] * kernel * (laws.sinks[t] / weights)[None, :]
    return joint / (weights @ joint @ weights)


def _full_table(model: Filled, squares: tuple[Array, ...]) -> Float[Array, "n n"]:
    """Q^(z_m, z_j) for all pairs of nodes."""
    plan, dim = model.plan, model.dim
    table = jnp.ones((1,) * (2 * dim))
    for (given, group), factor in zip(plan.structure, squares, strict=True):
        shape = [1] * (2 * dim)
        for axis in given:
            shape[axis] = plan.shape[axis]
        for axis in group:
            shape[dim + axis] = plan.shape[axis]
        order = np.argsort([*given, *(dim + a for a in group)])
        table = table * factor.transpose(tuple(int(i) for i in order)).reshape(shape)
    return jnp.broadcast_to(table, plan.shape * 2).reshape(plan.num_nodes, plan.num_nodes)
