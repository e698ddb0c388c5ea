"""Smoothing of a linear-Gaussian model, component by component, without inverse covariances.

The backward recursion of Bryson and Frazier carries the gradient and the curvature of
log p(y_{t+1} ... y_T | x_t), which is one quadratic for all components of a block:

    Lambda~ = H' I^{-1} H + C' Lambda C,    lambda~ = -H' I^{-1} e + C' lambda,    C = 1 - K H
    Lambda  = F' Lambda~ F (one step back), lambda  = F' lambda~
    m_smooth = m - S lambda,                S_smooth = S - S Lambda S,

with e and I the innovation and its covariance. Only I is inverted, so that F, Q and S may be
singular; otherwise the result is that of Rauch, Tung and Striebel. Every component keeps its weight
at the end of the series.
"""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax.scipy.linalg import cho_solve
from jaxtyping import Array, Float

from ..._gaussian.conditioning import LinearSensor, sensor_gain, symmetric
from .bank import Bank, Layout, bank_moments
from .linear import Dynamics, Sensor, predict_hops
from .posterior import BlocksPosterior, BlocksSmoother


def _before_observation(
    S: Float[Array, "d d"],
    means: Float[Array, "k d"],
    sensor: Sensor,
    y: Float[Array, " p"],
    slope: Float[Array, "k d"],
    curvature: Float[Array, "d d"],
) -> tuple[Float[Array, "k d"], Float[Array, "d d"]]:
    """lambda~ and Lambda~, from the predicted moments."""
    part = LinearSensor.of(sensor.H, sensor.d, sensor.R, y)
    gain = sensor_gain(S, part)
    kept = jnp.eye(S.shape[0]) - gain.gain @ part.H
    expected = means @ part.H.T + part.d[None, :]
    residual = jnp.where(part.seen[None, :], jnp.where(part.seen, y, 0.0)[None, :] - expected, 0.0)
    whitened = cho_solve((gain.chol, True), part.H)  # I^{-1} H
    new_slope = slope @ kept - residual @ whitened
    return new_slope, symmetric(part.H.T @ whitened + kept.T @ curvature @ kept)


@partial(jax.jit, static_argnums=7)
def smooth_exact(
    start: Bank,
    laws: Bank,
    layout: Layout,
    dynamics: Dynamics,
    sensor: Sensor,
    ys: Float[Array, "t p"],
    hops: Array,
    single_hop: bool,
) -> tuple[Bank, Float[Array, "t d"], Float[Array, "t d d"]]:
    """Smoothed laws, means and covariances; rows of `ys` that were not used are NaN."""
    before = jax.tree.map(lambda a, b: jnp.concatenate([a[None], b[:-1]]), start, laws)
    predicted = jax.vmap(lambda bank, hop: predict_hops(bank, dynamics, hop, single_hop))(
        before, hops
    )
    F = dynamics.F

    def back(hop: Array, slope: Array, curvature: Array) -> tuple[Array, Array]:
        def once(_: Any, at: tuple[Array, Array]) -> tuple[Array, Array]:
            return at[0] @ F, symmetric(F.T @ at[1] @ F)

        if not single_hop:
            return jax.lax.fori_loop(0, hop, once, (slope, curvature))
        moved = once(0, (slope, curvature))
        return jax.tree.map(lambda a, b: jnp.where(hop > 0, a, b), moved, (slope, curvature))

    def step(carry: tuple[Array, Array], at: tuple[Bank, Bank, Array, Array]):
        slope, curvature = carry
        law, ahead, y, hop = at
        spread = jnp.einsum("bde,bef->bdf", law.covariances, curvature)
        means = law.means - jnp.einsum("bde,bke->bkd", law.covariances, slope)
        covariances = law.covariances - jnp.einsum("bde,bef->bdf", spread, law.covariances)
        smoothed = Bank(laws.log_sizes[-1], means, jax.vmap(symmetric)(covariances))
        slope, curvature = jax.vmap(lambda S, m, s, c: _before_observation(S, m, sensor, y, s, c))(
            ahead.covariances, ahead.means, slope, curvature
        )
        carry = jax.vmap(lambda s, c: back(hop, s, c))(slope, curvature)
        return carry, (smoothed, bank_moments(smoothed, layout))

    nothing = jnp.zeros_like(start.means), jnp.zeros_like(start.covariances)
    _, (smoothed, (mean, covariance)) = jax.lax.scan(
        step, nothing, (laws, predicted, ys, hops), reverse=True
    )
    return smoothed, mean, covariance


def smooth_posterior(post: BlocksPosterior) -> BlocksSmoother:
    """The smoother of a series that has been filtered."""
    model, series = post.model, post.series
    laws, layout = post._banks()
    used = jnp.where(post.seen[:, None], series.ys, jnp.nan)
    smoothed, mean, covariance = smooth_exact(
        model.start(),
        laws,
        layout,
        model.dynamics,
        model.sensor,
        used,
        series.hops,
        series.single_hop,
    )
    return BlocksSmoother(
        filtered=post,
        laws=smoothed,
        layout=layout,
        mean=mean,
        covariance=covariance,
        method="exact",
    )
