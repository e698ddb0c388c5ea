"""Linear-Gaussian systems in 1, 2 and 4 dimensions, with a Kalman filter in NumPy."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from .._statespace.adapters import linear_gaussian
from .._statespace.model import StateSpaceModel
from ._reference import Densities
from ._reference import log_normal as np_log_normal
from ._system import Sampler, System

# Stationary standard deviations to each side of the box: 4e-8 of the mass is outside.
_SPREAD = 5.5


class Matrices(NamedTuple):
    """x' = F u + N(0, diag q),  y = H x + N(0, diag r),  x_0 ~ N(0, P0), stationary."""

    F: np.ndarray
    q: np.ndarray
    H: np.ndarray
    r: np.ndarray
    P0: np.ndarray


def _stationary(F: np.ndarray, q: np.ndarray) -> np.ndarray:
    size = len(q)
    lifted = np.eye(size * size) - np.kron(F, F)
    return np.linalg.solve(lifted, np.diag(q).ravel()).reshape(size, size)


def matrices(dim: int, q: float = 0.3, r: float = 0.5) -> Matrices:
    """The matrices of the system in `dim` dimensions: rotations that shrink, one sensor for two."""
    if dim == 1:
        F = np.array([[0.8]])
        H = np.array([[1.0]])
    else:
        turn = 0.8 * np.array([[np.cos(0.6), -np.sin(0.6)], [np.sin(0.6), np.cos(0.6)]])
        F = np.kron(np.eye(dim // 2), turn)
        # The planes are coupled one way, so that the problem is no product of smaller ones.
        F = F + 0.1 * np.eye(dim, k=2)
        H = np.eye(dim)[::2] + 0.3 * np.eye(dim, k=1)[::2]
    variances = np.full(dim, q)
    return Matrices(F, variances, H, np.full(len(H), r), _stationary(F, variances))


def kalman(
    ys: np.ndarray, system: Matrices, *, first: str = "predict"
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Filtered means (T, d), covariances (T, d, d) and log-likelihoods (T,)."""
    F, q, H, r, P = system
    mean, means, covariances, logs = np.zeros(len(F)), [], [], []
    for index, y in enumerate(np.asarray(ys, dtype=float)):
        if index > 0 or first == "predict":
            mean, P = F @ mean, F @ P @ F.T + np.diag(q)
        seen = ~np.isnan(y)
        log_z = 0.0
        if seen.any():
            sensor, noise = H[seen], np.diag(r[seen])
            residual, S = y[seen] - sensor @ mean, sensor @ P @ sensor.T + noise
            gain = np.linalg.solve(S, sensor @ P).T
            log_det = np.linalg.slogdet(2 * np.pi * S)[1]
            log_z = -0.5 * (residual @ np.linalg.solve(S, residual) + log_det)
            mean, P = mean + gain @ residual, P - gain @ S @ gain.T
        means.append(mean)
        covariances.append(P)
        logs.append(log_z)
    return np.stack(means), np.stack(covariances), np.asarray(logs)


def _make(dim: int, num_nodes: int | None) -> System:
    fixed = matrices(dim)
    reach = _SPREAD * np.sqrt(np.diag(fixed.P0))

    def model(q=0.3, r=0.5) -> StateSpaceModel:
        seen = _SPREAD * np.sqrt(np.diag(fixed.H @ fixed.P0 @ fixed.H.T) + fixed.r)
        return linear_gaussian(
            fixed.F,
            jnp.full((dim,), q),
            fixed.H,
            jnp.full((len(fixed.H),), r),
            np.zeros(dim),
            fixed.P0,
            state_box=(-reach, reach),
            observation_box=(-seen, seen),
        )

    def sampler(q=0.3, r=0.5) -> Sampler:
        F, H, chol_P0 = (jnp.asarray(a) for a in (fixed.F, fixed.H, np.linalg.cholesky(fixed.P0)))
        return Sampler(
            lambda key: chol_P0 @ jax.random.normal(key, (dim,)),
            lambda key, u, t: F @ u + jnp.sqrt(jnp.asarray(q)) * jax.random.normal(key, (dim,)),
            lambda key, x, t: (
                H @ x + jnp.sqrt(jnp.asarray(r)) * jax.random.normal(key, (H.shape[0],))
            ),
        )

    def densities(q=0.3, r=0.5) -> Densities:
        precision = np.linalg.inv(fixed.P0)
        return Densities(
            tuple(-reach),
            tuple(reach),
            lambda x: -0.5 * np.einsum("ni,ij,nj->n", x, precision, x),
            lambda i, u, x, t: np_log_normal(x[None, :] - (u @ fixed.F[i])[:, None], np.sqrt(q)),
            lambda x, y, t: np.nansum(np_log_normal(y - x @ fixed.H.T, np.sqrt(r)), axis=1),
        )

    return System(
        f"linear_{dim}d",
        f"linear-Gaussian, {dim} coordinate{'s' * (dim > 1)}, with a Kalman filter to compare with",
        dim,
        model,
        sampler,
        None if num_nodes is None else densities,
        num_nodes,
    )


linear_1d = _make(1, 120)
linear_2d = _make(2, 50)
linear_4d = _make(4, None)
