"""Laws of counts with a given log-mean: Poisson and negative binomial."""

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import gammaln
from jaxtyping import Array, Float

COUNTS = ("poisson", "negative_binomial")


def log_count(kind: str, log_mean: Array, y: Array, size: Array | float | None) -> Array:
    """log P(y) for a mean of exp(log_mean); -inf for what is no count."""
    whole = (y >= 0) & (y == jnp.round(y))
    safe = jnp.where(whole, y, 0.0)
    if kind == "poisson":
        value = safe * log_mean - jnp.exp(log_mean) - gammaln(safe + 1)
    else:
        assert size is not None
        share = jnp.logaddexp(log_mean, jnp.log(size))
        value = gammaln(safe + size) - gammaln(size) - gammaln(safe + 1)
        value = value + size * (jnp.log(size) - share) + safe * (log_mean - share)
    return jnp.where(whole, value, -jnp.inf)


def sample_count(
    kind: str, key: Array, log_mean: Float[Array, " 1"], size: Array | float | None
) -> Float[Array, " 1"]:
    """One draw; a Poisson count of a gamma mean if it is negative binomial."""
    rate, draw = jnp.exp(log_mean), key
    if kind == "negative_binomial":
        assert size is not None
        draw, other = jax.random.split(key)
        rate = rate * jax.random.gamma(other, size, (1,), dtype=jnp.float64) / size
    return jax.random.poisson(draw, rate, (1,)).astype(jnp.float64)


def check_counts(y: np.ndarray) -> None:
    """Stop at data that are no counts."""
    seen = y[~np.isnan(y)]
    if seen.size and (np.any(seen < 0) or np.any(seen != np.round(seen))):
        bad = seen[(seen < 0) | (seen != np.round(seen))][0]
        raise ValueError(f"y must hold counts, whole numbers from 0 on, got {bad:g}")
