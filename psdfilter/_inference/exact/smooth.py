"""Smoothing of a linear-Gaussian model, component by component, without inverse covariances.

The backward recursion of Bryson and Frazier carries the gradient and the curvature of
log p(y_{t+1} ... y_T | x_t), which is one quadratic for all components of a block:

    Lambda~ = H' I^{-1} H + C' Lambda C,    lambda~ = -H' I^{-1} e + C' lambda,    C = 1 - K H
    Lambda  = F' Lambda~ F (one step back), lambda  = F' lambda~
    m_smooth = m - S lambda,                S_smooth = S - S Lambda S,

with e and I the innovation and its covariance. Only I is inverted, so that F, Q and S may be
singular; otherwise the result is that of Rauch, Tung and Striebel. Every component keeps its weight
at the end of the series.

With a lag L the recursion starts at zero after y_{t+L} for every t; all times go back together, one
row at a time, and weights are those at t + L.

Where the smoothed variance is far below the filtered one, as after a diffuse prior, the last line
loses its digits. The result says so, and `root_smooth.py` serves.
"""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.linalg import cho_solve
from jaxtyping import Array, Bool, Float

from ..._gaussian.conditioning import LinearSensor, sensor_gain, symmetric
from ..gaussian.bank import Bank, Layout, bank_moments
from ..gaussian.linear import Dynamics, Sensor, predict_all
from ..series import Series

# S - S Lambda S is a difference of numbers of the size of S, and Lambda is known to eps of S^{-1}'s
# own scale: its relative error is at most about eps (S / S_smooth)^2, 2e-8 at this ratio. Measured
# on a trend and in the plane, errors were 1e-9 at a ratio of 1e4, 1e-4 at 1e7, and 1 at 1e9.
_MAX_SHRINKAGE = 1e4


class SmoothedBank(NamedTuple):
    """Laws of all times with their moments."""

    bank: Bank
    mean: Float[Array, "t d"]
    covariance: Float[Array, "t d d"]


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


class _Rows(NamedTuple):
    """What the recursion needs of each row; of one time, or stacked."""

    ahead: Bank  # predicted laws
    y: Float[Array, "*t p"]  # NaN where nothing was used
    hops: Array


def _rows(start: Bank, laws: Bank, dynamics: Dynamics, series: Series) -> _Rows:
    before = jax.tree.map(lambda a, b: jnp.concatenate([a[None], b[:-1]]), start, laws)
    ahead = predict_all(before, dynamics, series.hops, series.regular)
    return _Rows(ahead, jnp.asarray(series.ys), series.hops)


def _back(
    row: _Rows, slope: Array, curvature: Array, F: Array, sensor: Sensor, single_hop: bool
) -> tuple[Float[Array, "b k d"], Float[Array, "b d d"]]:
    """lambda and Lambda before a row: through its observation, then its transitions."""

    def transitions(slope: Array, curvature: Array) -> tuple[Array, Array]:
        def once(_: Array | int, at: tuple[Array, Array]) -> tuple[Array, Array]:
            return at[0] @ F, symmetric(F.T @ at[1] @ F)

        if not single_hop:
            return jax.lax.fori_loop(0, row.hops, once, (slope, curvature))
        moved = once(0, (slope, curvature))
        return jax.tree.map(lambda a, b: jnp.where(row.hops > 0, a, b), moved, (slope, curvature))

    def block(S: Array, means: Array, slope: Array, curvature: Array) -> tuple[Array, Array]:
        return transitions(*_before_observation(S, means, sensor, row.y, slope, curvature))

    return jax.vmap(block)(row.ahead.covariances, row.ahead.means, slope, curvature)


def _smoothed(law: Bank, log_sizes: Array, slope: Array, curvature: Array) -> Bank:
    """m - S lambda and S - S Lambda S for every component, with the weights of a later time."""
    spread = jnp.einsum("bde,bef->bdf", law.covariances, curvature)
    means = law.means - jnp.einsum("bde,bke->bkd", law.covariances, slope)
    covariances = law.covariances - jnp.einsum("bde,bef->bdf", spread, law.covariances)
    return Bank(log_sizes, means, jax.vmap(symmetric)(covariances))


@partial(jax.jit, static_argnums=5)
def smooth_exact(
    start: Bank,
    laws: Bank,
    layout: Layout,
    system: tuple[Dynamics, Sensor],
    series: Series,
    lag: int | None,
) -> tuple[SmoothedBank, Bool[Array, ""]]:
    """Smoothed laws, and whether they keep their digits; rows that were not used are NaN.

    With a `lag`, given y_1 ... y_{t+lag} only.
    """
    dynamics, sensor = system
    rows = _rows(start, laws, dynamics, series)
    back = partial(_back, F=dynamics.F, sensor=sensor, single_hop=series.regular)
    smoothed = _to_the_end(laws, rows, back) if lag is None else _ahead(laws, rows, back, lag)
    mean, covariance = jax.vmap(lambda bank: bank_moments(bank, layout))(smoothed)
    return SmoothedBank(smoothed, mean, covariance), _is_precise(laws, smoothed)


def _is_precise(laws: Bank, smoothed: Bank) -> Bool[Array, ""]:
    before, after = (
        jnp.diagonal(bank.covariances, axis1=-2, axis2=-1) for bank in (laws, smoothed)
    )
    return jnp.all(before <= _MAX_SHRINKAGE * after)


def _to_the_end(laws: Bank, rows: _Rows, back: Callable[..., tuple[Array, Array]]) -> Bank:
    def step(carry: tuple[Array, Array], at: tuple[Bank, _Rows]):
        law, row = at
        return back(row, *carry), _smoothed(law, laws.log_sizes[-1], *carry)

    nothing = jnp.zeros_like(laws.means[0]), jnp.zeros_like(laws.covariances[0])
    return jax.lax.scan(step, nothing, (laws, rows), reverse=True)[1]


def _ahead(laws: Bank, rows: _Rows, back: Callable[..., tuple[Array, Array]], lag: int) -> Bank:
    num = rows.y.shape[0]
    # Rows past the end say nothing and take no time.
    padded = _Rows(
        jax.tree.map(lambda a: jnp.concatenate([a, jnp.repeat(a[-1:], lag, 0)]), rows.ahead),
        jnp.concatenate([rows.y, jnp.full((lag, rows.y.shape[1]), jnp.nan)]),
        jnp.concatenate([rows.hops, jnp.zeros((lag,), dtype=rows.hops.dtype)]),
    )

    def one_row(k: Array, carry: tuple[Array, Array]) -> tuple[Array, Array]:
        def window(a: Array) -> Array:
            return jax.lax.dynamic_slice_in_dim(a, lag - k, num, axis=0)

        return jax.vmap(back)(jax.tree.map(window, padded), *carry)

    nothing = jnp.zeros_like(laws.means), jnp.zeros_like(laws.covariances)
    slope, curvature = jax.lax.fori_loop(0, lag, one_row, nothing)
    last = np.minimum(np.arange(num) + lag, num - 1)
    return jax.vmap(_smoothed)(laws, laws.log_sizes[last], slope, curvature)
