"""Laws after the data, with linear dynamics."""

from functools import partial

import jax
import jax.numpy as jnp
from jaxtyping import Array

from ..trace import Ahead
from .bank import Bank, Layout, bank_moments
from .laws import BankLaws
from .linear import Dynamics, predict_bank


@partial(jax.jit, static_argnums=3)
def _advance(
    bank: Bank, layout: Layout, dynamics: Dynamics, num: int
) -> tuple[Bank, tuple[Array, Array]]:
    def step(bank: Bank, _: None) -> tuple[Bank, tuple[Bank, tuple[Array, Array]]]:
        bank = predict_bank(bank, dynamics)
        return bank, (bank, bank_moments(bank, layout))

    return jax.lax.scan(step, bank, None, length=num)[1]


def ahead_linear(last: Bank, layout: Layout, dynamics: Dynamics, num: int) -> Ahead:
    """`num` transitions, one after the other."""
    bank, (mean, covariance) = _advance(last, layout, dynamics, num)
    laws = BankLaws.with_moments(bank, layout, mean, covariance)
    return Ahead(mean, covariance, laws, jnp.zeros(num), jnp.zeros(num, int))
