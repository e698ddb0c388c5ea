"""Steps of a linear-Gaussian model on roots of its covariances.

Where a predicted observation is known a million times less well than its sensor is, as under a
diffuse prior, F S F' + Q and S - K H S are differences of large numbers: with P0 = 1e16 and
R = 1e-12 nothing of them is left in float64. Here a bank also carries rows A with S = A'A, and
every step is a triangularisation of stacked rows (`reflected`); S is only what users read:

    predict   [A F'; W]       ->  U,            U'U = F S F' + Q,  W'W = Q
    update    [V 0; A H'  A]  ->  [U K; 0 A'],  U'U = H S H' + R,  V'V = R,  gain K' U^{-T}

This takes several times as long as the formulas for S, and serves where those would lose digits.
"""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from ..._gaussian.conditioning import LinearSensor
from ..._gaussian.reflections import covariance_rows, pivots, reflected, triangular
from .bank import Bank

_LOG_2PI = float(np.log(2 * np.pi))


def rooted(bank: Bank) -> Bank:
    """A bank of one time with rows of its covariances."""
    if bank.rows is not None:
        return bank
    return bank._replace(rows=jax.vmap(covariance_rows)(bank.covariances))


def bank_of_rows(
    log_sizes: Float[Array, "*t b k"],
    means: Float[Array, "*t b k d"],
    rows: Float[Array, "*t b r d"],
) -> Bank:
    """A bank from rows A, of one time or stacked."""
    covariances = jnp.einsum("...nd,...ne->...de", rows, rows)
    return Bank(log_sizes, means, covariances, rows)


def move_rows(
    rows: Float[Array, "b d d"], F: Float[Array, "k d"], noise: Float[Array, "k k"]
) -> Float[Array, "b k k"]:
    """Rows of F S F' + W'W."""
    return jax.vmap(lambda A: triangular(jnp.concatenate([A @ F.T, noise])))(rows)


def seen_rows(noise: Float[Array, "p p"], seen: Bool[Array, " p"]) -> Float[Array, "q p"]:
    """Rows of R for the coordinates that were seen; the others have variance one, apart."""
    kept = seen.astype(noise.dtype)
    return jnp.concatenate([noise * kept[None, :], jnp.diag(1.0 - kept)])


def observe_rows(
    bank: Bank, part: LinearSensor, noise: Float[Array, "p p"], y: Float[Array, " p"]
) -> Bank:
    """Laws given y, with weights times likelihoods, which are NaN where H S H' + R is singular."""
    num, dim = y.size, bank.means.shape[-1]
    sensor_rows = seen_rows(noise, part.seen)
    above = jnp.concatenate([sensor_rows, jnp.zeros((sensor_rows.shape[0], dim))], axis=1)
    num_seen = jnp.sum(part.seen).astype(noise.dtype)

    def block(log_sizes: Array, means: Array, rows: Array) -> tuple[Array, Array, Array]:
        below = jnp.concatenate([rows @ part.H.T, rows], axis=1)
        top, rest = reflected(jnp.concatenate([above, below]), num)
        sizes = pivots(top[:, :num])
        sizes = jnp.where(sizes > 0, sizes, jnp.nan)
        expected = means @ part.H.T + part.d[None, :]
        values = jnp.where(part.seen, y, 0.0)[None, :]
        residual = jnp.where(part.seen[None, :], values - expected, 0.0)
        upper = jnp.triu(top[:, :num], 1) + jnp.diag(sizes)
        white = jax.scipy.linalg.solve_triangular(upper, residual.T, trans=1, lower=False).T
        logs = -0.5 * jnp.sum(jnp.square(white), axis=1) - jnp.sum(jnp.log(sizes))
        logs = logs - 0.5 * num_seen * _LOG_2PI
        return log_sizes + logs, means + white @ top[:, num:], triangular(rest)

    assert bank.rows is not None
    return bank_of_rows(*jax.vmap(block)(bank.log_sizes, bank.means, bank.rows))
