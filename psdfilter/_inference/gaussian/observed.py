"""Laws of the observations of a linear sensor, and what was seen under them."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..._gaussian.conditioning import move_covariance, symmetric
from ..._gaussian.reflections import covariance_rows, reflected, triangular
from .bank import Bank, Layout, bank_line
from .linear import Sensor
from .roots import bank_of_rows, move_rows


@eqx.filter_jit
def linear_sensor_laws(bank: Bank, sensor: Sensor) -> Bank:
    """The laws of y = H x + d + N(0, R) for stacked laws of x."""
    H, d, R = sensor
    means = bank.means @ H.T + d.reshape(1, 1, 1, -1)
    if bank.rows is not None:
        noise = covariance_rows(R)
        rows = jax.vmap(lambda rows: move_rows(rows, H, noise))(bank.rows)
        return bank_of_rows(bank.log_sizes, means, rows)
    each = jax.vmap(jax.vmap(lambda S: move_covariance(S, H, R)))
    return Bank(bank.log_sizes, means, each(bank.covariances))


@eqx.filter_jit
def probability_transforms(
    laws: Bank, layout: Layout, ys: Float[Array, "t p"]
) -> Float[Array, "t p"]:
    """P(Y_l <= y_l | y_1 ... y_{l-1}, y before t), coordinate by coordinate; NaN stays NaN.

    To be given a coordinate is to observe it without noise.
    """

    def one(bank: Bank, y: Float[Array, " p"]) -> Float[Array, " p"]:
        values = []
        for axis in range(y.size):
            seen = ~jnp.isnan(y[axis])
            point = jnp.where(seen, y[axis], 0.0)
            below = jnp.clip(bank_line(bank, layout, axis).below(point), 0.0, 1.0)
            values.append(jnp.where(seen, below, jnp.nan))
            given = _given(bank, axis, point)
            bank = jax.tree.map(lambda new, old, seen=seen: jnp.where(seen, new, old), given, bank)
        return jnp.stack(values)

    return jax.vmap(one)(laws, ys)


def _given(bank: Bank, axis: int, value: Float[Array, ""]) -> Bank:
    """The law of all coordinates given one of them; weights not normalised."""

    def block(log_sizes: Array, means: Array, S: Array) -> Bank:
        free = S[axis, axis] > 0
        variance = jnp.where(free, S[axis, axis], 1.0)
        residual = value - means[:, axis]
        gain = jnp.where(free, S[:, axis] / variance, 0.0)
        logs = -0.5 * (jnp.square(residual) / variance + jnp.log(variance))
        return Bank(
            log_sizes + jnp.where(free, logs, 0.0),
            means + residual[:, None] * gain[None, :],
            symmetric(S - variance * jnp.outer(gain, gain)),
        )

    given = jax.vmap(block)(bank.log_sizes, bank.means, bank.covariances)
    if bank.rows is None:
        return given
    # The row that holds all of this coordinate goes; what is left is the law given it.
    others = np.delete(np.arange(bank.means.shape[-1]), axis)

    def without(rows: Array) -> Array:
        left = triangular(reflected(rows[:, np.append(axis, others)], 1).rest)
        full = jnp.zeros_like(rows)
        return full.at[: others.size, others].set(left)

    return bank_of_rows(given.log_sizes, given.means, jax.vmap(without)(bank.rows))
