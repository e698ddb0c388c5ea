"""Smoothing: the backward information recursion beside the filter.

    beta_T = 1,   beta_k(u) = int Q(u, x) G(x, y_{k+1}) beta_{k+1}(x) dx,
    p(x_k | y_1 ... y_T) = pi_k beta_k / int pi_k beta_k.

With weights b_j = w_j G_j beta_j at the nodes,
beta_k(u) = sum_j b_j prod_g (phi(u)'a_g psi_g(z_j))^2 is a PSD model in u. It is rescaled at every
step.
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from .._checks import Numbers, as_count, as_key, is_concrete
from .._statespace.model import Inputs
from .filtered import FilterPosterior, observation_fits
from .model import LearnedModel
from .nodes import apply_axes, backward_nodes, learn_coefficients
from .posterior import AbstractPosterior, checked_sample, moment_features, moments_from_features
from .refine import FineNodes, backward_squares, fine_nodes, roots_at, row_masses_on
from .run import filter_series, raise_failure, sized_model
from .series import as_series
from .summaries import draw


class SmootherPosterior(AbstractPosterior):
    """p(x_t | y_1 ... y_T) for every t, and the laws of neighbouring pairs.

    Attributes:
        filtered: the filter that came before.
        densities: smoothed densities at the nodes, (T, n).
        sinks: w G beta of the step after, before its last transition back, (T, n).
    """

    model: Any
    filtered: FilterPosterior
    mean: Float[Array, "t d"]
    covariance: Float[Array, "t d d"]
    densities: Float[Array, "t n"]
    sinks: Float[Array, "t n"]
    log_norms: Float[Array, " t"]  # log int pi_t beta_t, for the scaled beta

    @property
    def log_likelihood(self) -> Float[Array, ""]:
        """That of the filter."""
        return self.filtered.log_likelihood

    @property
    def log_likelihoods(self) -> Float[Array, " t"]:
        """Those of the filter."""
        return self.filtered.log_likelihoods

    def _values_on(self, fine: FineNodes) -> Float[Array, "t n"]:
        forward = self.filtered._values_on(fine)
        backward = _information_on(self.model, self.filtered, self.sinks, fine)
        return forward * backward * jnp.exp(-self.log_norms)[:, None]

    def sample(self, *, key: PRNGKeyArray, num: int) -> Float[Array, "k t d"]:
        """Paths x_1 ... x_T from their joint law, (num, T, d), by backward sampling.

        x_T from the last filtered density, then x_t from pi_t(u) Q(u, x_{t+1}), on fine nodes.
        """
        return _sample_paths(self, as_key("key", key), as_count("num", num))

    def sample_marginals(self, *, key: PRNGKeyArray, num: int) -> Float[Array, "k t d"]:
        """Independent draws from every marginal, (num, T, d)."""
        return checked_sample(self, key, num)

    def density(self, t: int):
        """The smoothed density at index t, a function of x (..., d) in user units."""
        from .product import SmoothedDensity

        return SmoothedDensity.make(self, t)

    def pair_law(self, t: int) -> Float[Array, "n n"]:
        """p(x_t, x_{t+1} | all y) at the nodes of the recursion, unit coordinates, mass one."""
        num = self.densities.shape[0]
        if not 0 <= t < num - 1:
            raise ValueError(f"t must lie in 0..{num - 2}, got {t}")
        if int(self.filtered.series.hops[t + 1]) != 1:
            raise ValueError(f"t must have exactly one transition after it, got t = {t}")
        return _pair_law(self, t)


def _information_on(model, post: FilterPosterior, sinks, fine: FineNodes) -> Float[Array, "t n"]:
    """beta_t on other nodes, from what each step back started with."""
    series = post.series
    coefficients, peaks = observation_fits(model, series)
    scales = jnp.where(post.seen, peaks, 0.0) - post.log_norms
    fixed = None if model.tables is None else backward_squares(model, fine.nodes)

    def step(after, xs):
        sink, hop, t, row, c, scale, used = xs
        squares = fixed if fixed is not None else backward_squares(model, fine.nodes, t, row)
        moved = backward_nodes(model.plan, squares, sink, fine.shape)
        likelihood = jnp.where(used, jnp.square(roots_at(model, c, fine.nodes)), 1.0)
        still = after * likelihood * jnp.exp(scale)
        beta = jnp.where(hop > 0, moved, still)
        return beta, beta

    last = jnp.ones(int(np.prod(fine.shape)))
    shifted = jax.tree.map(
        lambda a: a[1:],
        (series.hops, series.steps, series.rows, coefficients, scales, post.seen),
    )
    _, betas = jax.lax.scan(step, last, (sinks[:-1], *shifted), reverse=True)
    return jnp.concatenate([betas, last[None]])


@eqx.filter_jit
def _smooth(post: FilterPosterior) -> SmootherPosterior:
    model, series = post.model, post.series
    weights = model.plan.node_weights()
    densities, _ = post._kept()
    coefficients, peaks = observation_fits(model, series)
    scales = jnp.where(post.seen, peaks, 0.0) - post.log_norms
    nodes = model.plan.nodes

    def step(after, xs):
        hop, t, row, c, scale, used = xs
        tables = model.tables_at(t, row)
        likelihood = jnp.where(used, jnp.square(roots_at(model, c, nodes)), 1.0)
        still = after * likelihood * jnp.exp(scale)

        def back(_, beta):
            return backward_nodes(model.plan, tables.squares, weights * beta)

        source = jax.lax.fori_loop(0, hop - 1, back, still)
        beta = jnp.where(hop > 0, back(0, source), still)
        return beta, (weights * source, beta)

    last = jnp.ones(model.plan.num_nodes)
    shifted = jax.tree.map(
        lambda a: a[1:],
        (series.hops, series.steps, series.rows, coefficients, scales, post.seen),
    )
    _, (sinks, betas) = jax.lax.scan(step, last, shifted, reverse=True)
    betas = jnp.concatenate([betas, last[None]])
    sinks = jnp.concatenate([sinks, weights[None]])
    joint = densities * betas
    norms = joint @ weights
    smoothed = joint / norms[:, None]
    moments = (smoothed * weights[None, :]) @ moment_features(model.plan)
    mean, covariance = moments_from_features(model.plan, moments)
    return SmootherPosterior(
        model=model,
        filtered=post,
        mean=mean,
        covariance=covariance,
        densities=smoothed,
        sinks=sinks,
        log_norms=jnp.log(norms),
    )


def run_smoother(
    model: LearnedModel,
    ys: Numbers,
    *,
    first: str = "predict",
    inputs: Inputs = None,
    times: Numbers | None = None,
    throw: bool = True,
) -> SmootherPosterior:
    """p(x_t | y_1 ... y_T) for every t; arguments as for `run_filter`."""
    model = sized_model(model, ys, inputs)
    series, single_hop = as_series(model, ys, first, inputs, times)
    post = filter_series(model, series, single_hop, True)
    if throw and is_concrete(post.codes):
        raise_failure(np.asarray(post.codes))
    return _smooth(post)


@eqx.filter_jit
def _pair_law(post: SmootherPosterior, t: int) -> Float[Array, "n n"]:
    model, filtered = post.model, post.filtered
    row = None
    if filtered.series.rows is not None:
        row = jax.tree.map(lambda a: a[t + 1], filtered.series.rows)
    tables = model.tables_at(filtered.series.steps[t + 1], row)
    weights = model.plan.node_weights()
    densities, _ = filtered._kept()
    kernel = _full_table(model, tables.squares)
    joint = densities[t][:, None] * kernel * (post.sinks[t] / weights)[None, :]
    return joint / (weights @ joint @ weights)


def _full_table(model, squares: tuple[Array, ...]) -> Float[Array, "n n"]:
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


@eqx.filter_jit
def _sample_paths(post: SmootherPosterior, key: PRNGKeyArray, num: int) -> Float[Array, "k t d"]:
    model, filtered = post.model, post.filtered
    fine = fine_nodes(model)
    values = filtered._values_on(fine)
    series = filtered.series
    box = model.plan.box
    last_key, back_key = jax.random.split(key)

    def from_values(line, draw_key):
        return draw(line, fine.shape, fine.weights, draw_key)

    last = jax.vmap(lambda k: from_values(values[-1], k))(jax.random.split(last_key, num))

    masses = None
    if model.renormalize and model.tables is not None:
        masses = row_masses_on(model, fine.nodes)

    def step(points, xs):
        line, hop, t, row, step_key = xs
        if model.renormalize:
            line = line / (row_masses_on(model, fine.nodes, t, row) if masses is None else masses)
        keys = jax.random.split(step_key, num)

        def one(z, draw_key):
            rows = _rows_from(model, fine, z, t, row)
            moved = from_values(line * rows, draw_key)
            # No transition in between: the same state.
            return jnp.where(hop > 0, moved, z)

        new = jax.vmap(one)(points, keys)
        return new, new

    num_steps = values.shape[0]
    keys = jax.random.split(back_key, num_steps - 1) if num_steps > 1 else jnp.zeros((0,))
    shifted = jax.tree.map(lambda a: a[1:], (series.hops, series.steps, series.rows))
    if num_steps > 1:
        _, earlier = jax.lax.scan(step, last, (values[:-1], *shifted, keys), reverse=True)
        path = jnp.concatenate([earlier, last[None]])
    else:
        path = last[None]
    user = box.center[None, None, :] + box.half_width[None, None, :] * path
    return jnp.moveaxis(user, 0, 1)


def _rows_from(model, fine: FineNodes, z: Float[Array, " d"], t, row) -> Float[Array, " n"]:
    """Q^(u, z) for u on fine nodes and one z, up to a constant."""
    varying = model.tables is None
    total = jnp.ones((1,) * model.dim)
    for part in model.plan.transitions:
        coefficients, _ = learn_coefficients(
            model.plan, part, model.ssm, t if varying else None, row if varying else None
        )
        at_u = tuple(
            r.kernel(fine.nodes[a]) for r, a in zip(part.given_regressions, part.given, strict=True)
        )
        at_x = tuple(
            r.kernel(z[a][None]) for r, a in zip(part.group_regressions, part.group, strict=True)
        )
        values = jnp.square(apply_axes(coefficients, (*at_u, *at_x)))
        shape = tuple(fine.shape[a] if a in part.given else 1 for a in range(model.dim))
        order = tuple(int(i) for i in np.argsort(part.given))
        lead = values.reshape(values.shape[: len(part.given)])
        total = total * lead.transpose(order).reshape(shape)
    return jnp.broadcast_to(total, fine.shape).ravel()
