"""Linear maps and linear observations of Gaussians in gain form: no covariance is inverted.

Only the innovation covariance H S H' + R is factored, so that S, R and the noise of a transition
may be singular, and an offset of the units costs no digits beyond those of the mean itself.
"""

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jax.scipy.linalg import cho_solve, solve_triangular
from jaxtyping import Array, Bool, Float

_LOG_2PI = float(np.log(2 * np.pi))


class LinearSensor(NamedTuple):
    """y = H x + d + N(0, R), with coordinates that were not seen taken out of it.

    A missing coordinate keeps its place: its row of H is zero, its residual will be zero, and it is
    independent with variance one, which leaves gains, quadratic forms and determinants alone.
    """

    H: Float[Array, "p d"]
    d: Float[Array, " p"]
    R: Float[Array, "p p"]
    seen: Bool[Array, " p"]

    @staticmethod
    def of(
        H: Float[Array, "p d"],
        d: Float[Array, " p"],
        R: Float[Array, "p p"],
        y: Float[Array, " p"],
    ) -> "LinearSensor":
        """The sensor for the coordinates of y that are not NaN."""
        seen = ~jnp.isnan(y)
        both = seen[:, None] & seen[None, :]
        return LinearSensor(
            jnp.where(seen[:, None], H, 0.0), d, jnp.where(both, R, jnp.eye(y.size)), seen
        )


class Gain(NamedTuple):
    """What one covariance makes of a sensor: shared by all Gaussians that have it."""

    gain: Float[Array, "d p"]  # K = S H' (H S H' + R)^{-1}
    chol: Float[Array, "p p"]  # of H S H' + R; NaN if that is singular
    covariance: Float[Array, "d d"]  # after the observation


def symmetric(matrix: Float[Array, "*b d d"]) -> Float[Array, "*b d d"]:
    """(S + S') / 2."""
    return 0.5 * (matrix + jnp.swapaxes(matrix, -1, -2))


def move_covariance(
    covariance: Float[Array, "d d"], F: Float[Array, "k d"], W: Float[Array, "k k"]
) -> Float[Array, "k k"]:
    """F S F' + W."""
    return symmetric(F @ covariance @ F.T + W)


def definite_cholesky(matrix: Float[Array, "p p"]) -> Float[Array, "p p"]:
    """R with R R' = S, and NaN unless S is positive definite beyond rounding."""
    if matrix.shape[0] == 1:  # as a bare root, four times faster than a call of LAPACK
        return jnp.where(matrix > 0, jnp.sqrt(jnp.where(matrix > 0, matrix, 1.0)), jnp.nan)
    chol = jnp.linalg.cholesky(matrix)
    floor = 4 * matrix.shape[0] * jnp.finfo(matrix.dtype).eps * jnp.diagonal(matrix)
    return jnp.where(jnp.all(jnp.square(jnp.diagonal(chol)) > floor), chol, jnp.nan)


def sensor_gain(covariance: Float[Array, "d d"], sensor: LinearSensor) -> Gain:
    """The gain, and (I - K H) S (I - K H)' + K R K' (Joseph), which stays positive semidefinite."""
    H, R = sensor.H, sensor.R
    cross = H @ covariance
    chol = definite_cholesky(symmetric(cross @ H.T + R))
    alone = chol.shape[0] == 1
    gain = (cross / jnp.square(chol) if alone else cho_solve((chol, True), cross)).T
    kept = jnp.eye(covariance.shape[0]) - gain @ H
    after = symmetric(kept @ covariance @ kept.T + gain @ R @ gain.T)
    return Gain(gain, chol, after)


def observe(
    means: Float[Array, "k d"], gain: Gain, sensor: LinearSensor, y: Float[Array, " p"]
) -> tuple[Float[Array, "k d"], Float[Array, " k"]]:
    """m + K (y - H m - d) and log N(y; H m + d, H S H' + R), for means of one covariance."""
    seen = sensor.seen
    expected = means @ sensor.H.T + sensor.d[None, :]
    residual = jnp.where(seen[None, :], jnp.where(seen, y, 0.0)[None, :] - expected, 0.0)
    if y.size == 1:
        white = residual / gain.chol
    else:
        white = solve_triangular(gain.chol, residual.T, lower=True).T
    log_det = jnp.sum(jnp.log(jnp.diagonal(gain.chol)))
    num_seen = jnp.sum(seen).astype(residual.dtype)
    logs = -0.5 * jnp.sum(jnp.square(white), axis=1) - log_det - 0.5 * num_seen * _LOG_2PI
    return means + residual @ gain.gain.T, logs
