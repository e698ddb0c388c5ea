"""Tensor Gauss-Legendre rules on a box."""

from collections.abc import Sequence

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float


def gauss_legendre(
    lower: Float[Array, " d"], upper: Float[Array, " d"], num_nodes: Sequence[int]
) -> tuple[Float[Array, "n d"], Float[Array, " n"]]:
    """Nodes and positive weights of the product rule, first axis slowest."""
    rules = [np.polynomial.legendre.leggauss(n) for n in num_nodes]
    mesh = np.meshgrid(*(nodes for nodes, _ in rules), indexing="ij")
    unit_nodes = np.stack([m.ravel() for m in mesh], axis=-1)
    unit_weights = np.ones(1)
    for _, axis_weights in rules:
        unit_weights = np.multiply.outer(unit_weights, axis_weights).ravel()
    half = 0.5 * (upper - lower)
    nodes = 0.5 * (lower + upper)[None, :] + half[None, :] * jnp.asarray(unit_nodes)
    return nodes, jnp.prod(half) * jnp.asarray(unit_weights)
