"""Gaussian noise: covariances as users write them, and log-densities with missing coordinates."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .._checks import Numbers, as_floats, is_concrete
from .._gaussian.linalg import psd_root
from .angles import Turns

_LOG_2PI = float(np.log(2 * np.pi))


class Noise(eqx.Module):
    """N(0, covariance): a vector of variances if the coordinates are independent, else a matrix.

    With `turns`, coordinates that wrap are known up to whole turns, and densities are sums over
    them.
    """

    covariance: Float[Array, " d"] | Float[Array, "d d"]
    turns: Turns | None = None

    @property
    def is_diagonal(self) -> bool:
        """Whether the coordinates are independent."""
        return self.covariance.ndim == 1

    @property
    def variances(self) -> Float[Array, " d"]:
        """Variance of each coordinate."""
        return self.covariance if self.is_diagonal else jnp.diagonal(self.covariance)

    def matrix(self) -> Float[Array, "d d"]:
        """The covariance as a matrix."""
        return jnp.diag(self.covariance) if self.is_diagonal else self.covariance

    def log_density(self, residual: Float[Array, " d"]) -> Float[Array, ""]:
        """log N(residual; 0, covariance)."""
        if self.turns is not None:
            return self.turns.log_sum(Noise(self.covariance).log_density, residual)
        if self.is_diagonal:
            return jnp.sum(log_normal(residual, self.covariance))
        chol = jnp.linalg.cholesky(self.covariance)
        white = jax.scipy.linalg.solve_triangular(chol, residual, lower=True)
        log_det = 2 * jnp.sum(jnp.log(jnp.diagonal(chol)))
        return -0.5 * (jnp.sum(jnp.square(white)) + log_det + residual.size * _LOG_2PI)

    def log_density_observed(
        self, y: Float[Array, " d"], mean: Float[Array, " d"]
    ) -> Float[Array, ""]:
        """log N(y; mean, covariance) of the coordinates of y that are not NaN; 0 if there are none.

        Missing coordinates become independent with unit variance and residual zero, which leaves
        the quadratic form and the determinant of the observed block; only their share of log 2 pi
        has to be given back. NaN is replaced before it meets anything differentiable.
        """
        seen = ~jnp.isnan(y)
        residual = jnp.where(seen, jnp.where(seen, y, 0.0) - mean, 0.0)
        if self.is_diagonal:
            masked = Noise(jnp.where(seen, self.covariance, 1.0), self.turns)
        else:
            both = seen[:, None] & seen[None, :]
            masked = Noise(jnp.where(both, self.covariance, jnp.eye(y.size)), self.turns)
        missing = y.size - jnp.sum(seen).astype(residual.dtype)
        if self.turns is not None:
            # Turns of what is missing are none: its density is one, with its own share given back.
            fixed = self.turns.log_sum(masked._flat, residual, seen)
            return fixed + 0.5 * missing * _LOG_2PI
        return masked.log_density(residual) + 0.5 * missing * _LOG_2PI

    def _flat(self, residual: Float[Array, " d"]) -> Float[Array, ""]:
        """`log_density` on the line."""
        return Noise(self.covariance).log_density(residual)

    def draw(self, key: Array, num: int | None = None) -> Float[Array, "*n d"]:
        """Samples, (d,) or (num, d)."""
        dim = self.covariance.shape[-1]
        white = jax.random.normal(key, (num or 1, dim), dtype=jnp.float64)
        if self.is_diagonal:
            out = white * jnp.sqrt(self.covariance)[None, :]
        else:
            chol = jnp.linalg.cholesky(self.covariance)
            root = jnp.where(jnp.all(jnp.isfinite(chol)), chol, psd_root(self.covariance))
            out = white @ root.T
        return out if num is not None else out[0]


def log_normal(residual: Array, variance: Array) -> Array:
    """log N(residual; 0, variance), entry by entry."""
    return -0.5 * (jnp.square(residual) / variance + jnp.log(variance) + _LOG_2PI)


def as_noise(name: str, value: Numbers, dim: int, *, singular: bool = False) -> Noise:
    """A number (variance of every coordinate), `dim` variances, or a covariance matrix.

    Only where `singular` is said, variances may be zero: the noise then has no density. A concrete
    matrix without correlations is kept as its diagonal; a traced one cannot be looked at
    and stays a matrix.
    """
    array = as_floats(name, value)
    if array.ndim == 0:
        array = jnp.full((dim,), array)
    if array.shape not in ((dim,), (dim, dim)):
        raise ValueError(
            f"{name} must be a variance, {dim} variances or a ({dim}, {dim}) covariance matrix, "
            f"got shape {array.shape}"
        )
    if not is_concrete(array):
        return Noise(array)
    values = np.asarray(array)
    if values.ndim == 1:
        if not ((values >= 0) if singular else (values > 0)).all():
            kind = "non-negative" if singular else "positive"
            raise ValueError(f"{name} must hold {kind} variances, got {values}")
        return Noise(array)
    if np.abs(values - values.T).max() > 1e-10 * np.abs(values).max():
        raise ValueError(f"{name} must be symmetric; pass ({name} + {name}.T) / 2")
    lowest = np.linalg.eigvalsh(values)[0]
    if singular and not lowest >= -1e-12 * np.abs(values).max():
        raise ValueError(
            f"{name} must be positive semidefinite, but its smallest eigenvalue is {lowest:.6g}"
        )
    if not singular and not lowest > 1e-14 * np.abs(values).max():
        raise ValueError(
            f"{name} must be positive definite, so that the noise has a density, but its smallest "
            f"eigenvalue is {lowest:.6g}"
        )
    if np.count_nonzero(values - np.diag(np.diag(values))) == 0:
        return Noise(jnp.diagonal(array))
    return Noise(array)
