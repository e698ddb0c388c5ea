"""Gaussian mixtures as a scan carries them: a fixed number of places, some of them empty."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.scipy.special import logsumexp
from jaxtyping import Array, Float

from ..._density.blocks import GaussianBlocks
from ..._gaussian.conditioning import move_covariance, symmetric


class Mixture(NamedTuple):
    """sum_k exp(w_k) N(x; m_k, S_k). A place with w = -inf is empty, its other numbers are finite.

    The number of places is static; whatever changes how many are used changes weights only.
    """

    log_weights: Float[Array, " r"]
    means: Float[Array, "r d"]
    covariances: Float[Array, "r d d"]

    @property
    def size(self) -> int:
        """Number of places."""
        return self.means.shape[0]

    @property
    def dim(self) -> int:
        """Number of coordinates."""
        return self.means.shape[1]

    def density(self) -> GaussianBlocks:
        """The law as a density."""
        return GaussianBlocks.of_mixture(self.log_weights, self.means, self.covariances)


def padded(mixture: Mixture, size: int) -> Mixture:
    """The same law on `size` places; new ones are empty copies of the first."""
    extra = size - mixture.size
    if extra <= 0:
        return mixture

    def repeat(values: Array) -> Array:
        first = jnp.broadcast_to(values[:1], (extra, *values.shape[1:]))
        return jnp.concatenate([values, first])

    empty = jnp.full((extra,), -jnp.inf)
    return Mixture(
        jnp.concatenate([mixture.log_weights, empty]),
        repeat(mixture.means),
        repeat(mixture.covariances),
    )


def joined(first: Mixture, second: Mixture) -> Mixture:
    """The sum of two mixtures."""
    return Mixture(*(jnp.concatenate(parts) for parts in zip(first, second, strict=True)))


def taken(mixture: Mixture, index: Array) -> Mixture:
    """The components of these places, in that order."""
    return Mixture(*(values[index] for values in mixture))


def largest(mixture: Mixture, size: int) -> Mixture:
    """The `size` components of largest weight, largest first."""
    _, index = jax.lax.top_k(mixture.log_weights, size)
    return taken(mixture, index)


def normalized(mixture: Mixture) -> tuple[Mixture, Float[Array, ""]]:
    """Weights of sum one, and the log of what their sum was; left alone if that is zero."""
    total = logsumexp(mixture.log_weights)
    usable = jnp.isfinite(total)
    shift = jnp.where(usable, total, 0.0)
    return mixture._replace(log_weights=mixture.log_weights - shift), total


def moments(mixture: Mixture) -> tuple[Float[Array, " d"], Float[Array, "d d"]]:
    """Mean and covariance of the normalised mixture."""
    weights = jax.nn.softmax(mixture.log_weights)
    origin = mixture.means[jnp.argmax(mixture.log_weights)]
    shifted = mixture.means - origin[None, :]
    mean = weights @ shifted
    delta = shifted - mean[None, :]
    covariance = jnp.einsum("k,kde->de", weights, mixture.covariances)
    covariance = covariance + jnp.einsum("k,kd,ke->de", weights, delta, delta)
    return origin + mean, symmetric(covariance)


def moved(
    mixture: Mixture,
    F: Float[Array, "d d"],
    b: Float[Array, " d"],
    W: Float[Array, "d d"],
) -> Mixture:
    """The law of F x + b + N(0, W)."""
    return Mixture(
        mixture.log_weights,
        mixture.means @ F.T + b[None, :],
        jax.vmap(lambda S: move_covariance(S, F, W))(mixture.covariances),
    )
