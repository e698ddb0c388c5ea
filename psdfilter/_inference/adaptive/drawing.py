"""NumPy's generators from JAX's keys: laws live on the host."""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PRNGKeyArray


def generator(key: PRNGKeyArray) -> np.random.Generator:
    """A generator that a key decides."""
    words = np.asarray(jax.random.key_data(key) if key.dtype != jnp.uint32 else key)
    return np.random.default_rng(words.ravel().tolist())
