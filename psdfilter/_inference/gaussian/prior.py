"""Priors as sums of Gaussians."""

import jax.numpy as jnp

from ..._density.block_conversions import as_blocks
from ..._density.blocks import GaussianBlocks
from ..._statespace.model import LinearGaussian


def prior_blocks(structure: LinearGaussian) -> GaussianBlocks | None:
    """The prior as a sum of blocks; None if it is only known as a function."""
    if structure.prior is not None:
        return as_blocks("prior", structure.prior)
    if structure.m0 is None or structure.P0 is None or structure.prior_is_function:
        return None
    return GaussianBlocks.of_mixture(jnp.zeros(1), structure.m0[None], structure.P0[None])
