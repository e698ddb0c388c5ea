"""The filter of models of blocks, one observation at a time."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from ... import _results
from ..._checks import Numbers
from ..._density.blocks import GaussianBlocks
from .bank import Bank, bank_moments, density_of
from .linear import predict_bank, update_bank


class BlocksState(eqx.Module):
    """The filter between two calls: the law of the state, and what has been summed up."""

    bank: Bank
    layout: Any
    log_likelihood: Float[Array, ""]
    step: Int[Array, ""]
    code: Int[Array, ""]

    @property
    def mean(self) -> Float[Array, " d"]:
        """Mean of the state."""
        return bank_moments(self.bank, self.layout)[0]

    @property
    def covariance(self) -> Float[Array, "d d"]:
        """Covariance of the state."""
        return bank_moments(self.bank, self.layout)[1]

    @property
    def law(self) -> GaussianBlocks:
        """The law of the state as a density."""
        return density_of(self.bank, self.layout)


def init_blocks(model: Any) -> BlocksState:
    """`init` for models of blocks."""
    zero = jnp.zeros((), int)
    return BlocksState(model.start(), model.layout, jnp.zeros(()), zero, zero)


@jax.jit
def _predict(bank: Bank, dynamics: Any, step: Array):
    return predict_bank(bank, dynamics), step + 1


def predict_blocks(model: Any, state: BlocksState) -> BlocksState:
    """`predict` for models of blocks."""
    bank, step = _predict(state.bank, model.dynamics, state.step)
    return BlocksState(bank, state.layout, state.log_likelihood, step, state.code)


@jax.jit
def _update(bank: Bank, layout: Any, sensor: Any, y: Array, log_likelihood: Array, code: Array):
    bank, record = update_bank(bank, layout, sensor, y)
    code = jnp.where(code == _results.OK, record.code, code)
    return bank, log_likelihood + record.log_mass, code


def update_exact(model: Any, state: BlocksState, y: Numbers) -> BlocksState:
    """`update` for an exact model."""
    seen = jnp.atleast_1d(jnp.asarray(y, dtype=jnp.float64))
    if seen.shape != (model.sensor.H.shape[0],):
        raise ValueError(f"y must have shape ({model.sensor.H.shape[0]},), got {seen.shape}")
    bank, total, code = _update(
        state.bank, state.layout, model.sensor, seen, state.log_likelihood, state.code
    )
    return BlocksState(bank, state.layout, total, state.step, code)
