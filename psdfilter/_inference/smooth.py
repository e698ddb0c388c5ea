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
from .lagged import lagged_smoother
from .model import LearnedModel
from .nodes import backward_nodes
from .paths import sample_paths
from .posterior import AbstractPosterior, checked_sample, moment_features, moments_from_features
from .refine import FineNodes, backward_squares, likelihood_on
from .run import filter_series, raise_failure, sized_model
from .series import as_series
from .smoothed import AbstractSmoothed


class SmootherPosterior(AbstractSmoothed, AbstractPosterior):
    """p(x_t | y_1 ... y_T) for every t, and the laws of neighbouring pairs.

    With a lag L, p(x_t | y_1 ... y_{t+L}) instead: every row has seen L rows more than itself.

    Attributes:
        filtered: the filter that came before.
        densities: smoothed densities at the nodes, (T, n).
        sinks: w G beta of the step after, before its last transition back, (T, n).
        lag: L, or None.
    """

    model: Any
    filtered: FilterPosterior
    mean: Float[Array, "t d"]
    covariance: Float[Array, "t d d"]
    densities: Float[Array, "t n"] | None
    sinks: Float[Array, "t n"] | None
    log_norms: Float[Array, " t"]  # log int pi_t beta_t, for the scaled beta
    lag: int | None = eqx.field(static=True, default=None)

    def _kept(self) -> tuple[Array, Array]:
        if self.densities is None or self.sinks is None:
            raise ValueError(
                'this needs the densities: call run_smoother(..., keep="densities") instead of '
                '"summaries"'
            )
        return self.densities, self.sinks

    def _values_on(self, fine: FineNodes) -> Float[Array, "t n"]:
        _, sinks = self._kept()
        forward = self.filtered._values_on(fine)
        backward = _information_on(self.model, self.filtered, sinks, fine)
        return forward * backward * jnp.exp(-self.log_norms)[:, None]

    @property
    def _times(self) -> Array:
        return self.filtered._times

    def _facts(self) -> dict[str, float]:
        lag = {} if self.lag is None else {"lag": self.lag}
        return {**self.filtered._facts(), **lag}

    def sample(self, *, key: PRNGKeyArray, num: int) -> Float[Array, "k t d"]:
        """Paths x_1 ... x_T from their joint law, (num, T, d), by backward sampling.

        x_T from the last filtered density, then x_t from pi_t(u) Q(u, x_{t+1}), on fine nodes. With
        a lag there is no joint law: see `sample_marginals`.
        """
        if self.lag is not None:
            raise ValueError(
                "sample draws whole paths, which a smoother with a lag has no law of: see "
                "sample_marginals, or smooth without a lag"
            )
        hops = self.filtered.series.hops
        most = int(np.max(np.asarray(hops))) if is_concrete(hops) else 2
        return sample_paths(self.filtered, as_key("key", key), as_count("num", num), most > 1)

    def sample_marginals(self, *, key: PRNGKeyArray, num: int) -> Float[Array, "k t d"]:
        """Independent draws from every marginal, (num, T, d)."""
        return checked_sample(self, key, num)

    def density(self, t: int):
        """The smoothed density at index t, a function of x (..., d) in user units."""
        from .product import SmoothedDensity

        return SmoothedDensity.make(self, t)

    def pair_law(self, t: int) -> Float[Array, "n n"]:
        """p(x_t, x_{t+1} | all y) at the nodes of the recursion, unit coordinates, mass one.

        With a lag L, given y_1 ... y_{t+L}.
        """
        num = self._kept()[0].shape[0]
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
        earliest = t - jnp.maximum(hop, 1) + 1
        squares = fixed
        if squares is None:
            squares = backward_squares(model, fine.nodes, earliest, row)
        moved = backward_nodes(model.plan, squares, sink, fine.shape)
        likelihood = jnp.where(used, likelihood_on(model, c, fine.nodes), 1.0)
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
def _smooth(post: FilterPosterior, single_hop: bool) -> SmootherPosterior:
    model, series = post.model, post.series
    weights = model.plan.node_weights()
    densities, _ = post._kept()
    coefficients, peaks = observation_fits(model, series)
    scales = jnp.where(post.seen, peaks, 0.0) - post.log_norms
    nodes = model.plan.nodes

    def step(after, xs):
        hop, t, row, c, scale, used = xs
        likelihood = jnp.where(used, likelihood_on(model, c, nodes), 1.0)
        still = after * likelihood * jnp.exp(scale)

        def back(k, beta):
            tables = model.tables_at(t - k, row)
            return backward_nodes(model.plan, tables.squares, weights * beta)

        source = still
        if not single_hop:
            source = jax.lax.fori_loop(0, hop - 1, back, still)
        beta = jnp.where(hop > 0, back(hop - 1, source), still)
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
    lag: int | None = None,
    keep: str = "densities",
    throw: bool = True,
) -> SmootherPosterior:
    """p(x_t | y_1 ... y_T) for every t, or p(x_t | y_1 ... y_{t+lag}).

    Args:
        model: as for `run_filter`, like all that is not explained here.
        ys: observations.
        first: as for `run_filter`.
        inputs: as for `run_filter`.
        times: as for `run_filter`; with a lag, one row for each time.
        lag: how many rows of `ys` beyond its own each state is given; None for all. Takes `lag`
            transitions back for every row.
        keep: with a lag, "summaries" keeps means and covariances only, in memory that does not grow
            with the nodes.
        throw: as for `run_filter`.
    """
    from .blocks.model import AbstractBankModel, AbstractBlocksModel
    from .closed import ClosedModel

    if keep not in ("densities", "summaries"):
        raise ValueError(f'keep must be "densities" or "summaries", got {keep!r}')
    other: Any = model
    if keep == "summaries" and isinstance(model, AbstractBlocksModel):
        raise ValueError('keep must be "densities" for this engine, whose densities take no room')
    if isinstance(model, AbstractBankModel):
        return other.smooth(ys, first=first, inputs=inputs, times=times, throw=throw, lag=lag)
    if isinstance(model, AbstractBlocksModel):
        if lag is not None:
            raise ValueError(
                f'lag must be None for engine="generalized", got {lag}: use engine="nodes", or '
                "smooth windows of the series"
            )
        return other.smooth(ys, first=first, inputs=inputs, times=times, throw=throw)
    if isinstance(model, ClosedModel):
        model = model.on_nodes()
    model = sized_model(model, ys, inputs)
    series, single_hop = as_series(model, ys, first, inputs, times)
    if lag is None and keep == "summaries":
        raise ValueError(
            'keep must be "densities" for a smoother without lag, which goes back over them'
        )
    post = filter_series(model, series, single_hop, keep == "densities")
    if throw and is_concrete(post.codes):
        raise_failure(np.asarray(post.codes))
    if lag is None:
        return _smooth(post, single_hop)
    lag = as_count("lag", lag)
    if is_concrete(series.hops) and np.any(np.asarray(series.hops)[1:] == 0):
        raise ValueError(
            "lag needs one row for each time: join the observations of several sensors at one time "
            "into one row"
        )
    out = lagged_smoother(post, lag, single_hop, keep == "densities")
    return SmootherPosterior(
        model=model,
        filtered=post,
        mean=out.mean,
        covariance=out.covariance,
        densities=out.densities,
        sinks=out.sinks,
        log_norms=out.log_norms,
        lag=lag,
    )


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
    joint = densities[t][:, None] * kernel * (post._kept()[1][t] / weights)[None, :]
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
