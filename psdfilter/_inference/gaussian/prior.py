"""Priors as sums of Gaussians."""

import jax.numpy as jnp

from ..._density.block_conversions import as_blocks
from ..._density.blocks import GaussianBlocks
from ..._density.generalized import GeneralizedGaussianPSD
from ..._statespace.model import LinearGaussian
from .bank import Bank, Layout, bank_of
from .pairs import interferes, pair_bank


def prior_blocks(structure: LinearGaussian) -> GaussianBlocks | None:
    """The prior as a sum of blocks; None if it is only known as a function."""
    if structure.prior is not None:
        return as_blocks("prior", structure.prior)
    if structure.m0 is None or structure.P0 is None or structure.prior_is_function:
        return None
    return GaussianBlocks.of_mixture(jnp.zeros(1), structure.m0[None], structure.P0[None])


def prior_bank(structure: LinearGaussian) -> tuple[Bank, Layout] | None:
    """The prior as a bank, by pairs if its components interfere; None if it is a function."""
    if interferes(structure.prior):
        assert isinstance(structure.prior, GeneralizedGaussianPSD)
        return pair_bank(structure.prior)
    blocks = prior_blocks(structure)
    return None if blocks is None else bank_of(blocks)


def prior_order(structure: LinearGaussian) -> int | None:
    """Number of components of the prior; None if it is a function."""
    if interferes(structure.prior):
        assert isinstance(structure.prior, GeneralizedGaussianPSD)
        return structure.prior.order
    blocks = prior_blocks(structure)
    return None if blocks is None else blocks.order
