"""Tensor Gauss-Legendre rules on a box."""

from collections.abc import Sequence
from functools import lru_cache

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from scipy.special import roots_legendre


@lru_cache(maxsize=256)
def legendre_rule(num: int) -> tuple[Float[np.ndarray, " n"], Float[np.ndarray, " n"]]:
    """Nodes and weights of the Gauss-Legendre rule on (-1, 1)."""
    nodes, weights = roots_legendre(num)
    nodes.flags.writeable = weights.flags.writeable = False
    return nodes, weights


# Nodes of one panel. NumPy finds nodes as eigenvalues, at a cubic cost that is felt from a few
# hundred on; a rule of many nodes is therefore made of panels.
_PANEL = 64


def num_panels(num: int) -> int:
    """Panels of the rule of one axis."""
    return -(-num // _PANEL)


@lru_cache(maxsize=64)
def _unit_rule(num: int) -> tuple[np.ndarray, np.ndarray]:
    """At least `num` nodes on (-1, 1) and their weights, in panels of at most 64 nodes."""
    panels = num_panels(num)
    nodes, weights = np.polynomial.legendre.leggauss(-(-num // panels))
    centers = (2 * np.arange(panels) + 1) / panels - 1
    return (centers[:, None] + nodes[None, :] / panels).ravel(), np.tile(weights / panels, panels)


def gauss_legendre(
    lower: Float[Array, " d"], upper: Float[Array, " d"], num_nodes: Sequence[int]
) -> tuple[Float[Array, "n d"], Float[Array, " n"]]:
    """Nodes and positive weights of the product rule, first axis slowest.

    An axis of more than 64 nodes is cut into equal panels, and may get a few nodes more than asked.
    """
    rules = [_unit_rule(n) for n in num_nodes]
    mesh = np.meshgrid(*(nodes for nodes, _ in rules), indexing="ij")
    unit_nodes = np.stack([m.ravel() for m in mesh], axis=-1)
    unit_weights = np.ones(1)
    for _, axis_weights in rules:
        unit_weights = np.multiply.outer(unit_weights, axis_weights).ravel()
    half = 0.5 * (upper - lower)
    nodes = 0.5 * (lower + upper)[None, :] + half[None, :] * jnp.asarray(unit_nodes)
    return nodes, jnp.prod(half) * jnp.asarray(unit_weights)
