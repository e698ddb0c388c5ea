"""Laws at many times as stacked banks: what filter, smoother and forecast have in common."""

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from ..._checks import Numbers
from ..._density.block_sampling import sample_blocks
from ..._density.blocks import GaussianBlocks
from ..._density.generalized import PairwiseGaussianPSD
from ..._density.sampling import sample
from ..._gaussian.linalg import psd_root
from ..numerics.observed import AbstractObservedLaws
from .bank import Bank, Layout, bank_line, bank_moments, density_of, shares_of
from .pairs import pairs_of

# Gauss-Hermite nodes per axis for expectations, at most about 4000 in all.
_NODES = {1: 48, 2: 32, 3: 14, 4: 8, 5: 5, 6: 4}


class BankLaws(AbstractObservedLaws):
    """Laws of T times on R^d, of states or of observations."""

    bank: Bank
    layout: Layout
    mean: Float[Array, "t d"]
    covariance: Float[Array, "t d d"]
    leak: Float[Array, " t"]

    @staticmethod
    def of(bank: Bank, layout: Layout) -> "BankLaws":
        """With the moments computed."""
        moments = jax.vmap(lambda b: bank_moments(b, layout))(bank)
        return BankLaws.with_moments(bank, layout, *moments)

    @staticmethod
    def with_moments(
        bank: Bank, layout: Layout, mean: Float[Array, "t d"], covariance: Float[Array, "t d d"]
    ) -> "BankLaws":
        """With moments that are known; nothing leaks from R^d."""
        leak = jnp.zeros(mean.shape[0])
        return BankLaws(bank=bank, layout=layout, mean=mean, covariance=covariance, leak=leak)

    def quantiles(self, levels: Float[Array, " k"]) -> Float[Array, "k t d"]:
        """By bisection; infinite at levels 0 and 1."""
        return _quantiles(self.bank, self.layout, levels)

    def cdfs(self, x: Float[Array, "t d"]) -> Float[Array, "t d"]:
        """In error functions."""
        return _cdfs(self.bank, self.layout, x)

    def expectations(self, fn: Callable[[Array], Numbers]) -> Array:
        """Gauss-Hermite quadrature for every component, exact for polynomials of low degree."""
        return _expectations(self.bank, self.layout, fn)

    def draws(self, key: PRNGKeyArray, num: int) -> Float[Array, "n t d"]:
        """A component, then a Gaussian; or coordinate by coordinate."""
        if self.layout.factor is None:
            return _sample(self.bank, self.layout, key, num)
        keys = jax.random.split(key, self.mean.shape[0])
        each = [sample(self.density(t), key=k, num=num) for t, k in enumerate(keys)]
        return jnp.stack(each, axis=1)

    def density(self, t: int) -> GaussianBlocks | PairwiseGaussianPSD:
        """The law at index t."""
        return law_of(jax.tree.map(lambda a: a[t], self.bank), self.layout)


def law_of(bank: Bank, layout: Layout) -> GaussianBlocks | PairwiseGaussianPSD:
    """The bank of one time as a density."""
    if layout.factor is None:
        return density_of(bank, layout)
    return pairs_of(bank, layout.factor)


@eqx.filter_jit
def _sample(bank: Bank, layout: Layout, key: PRNGKeyArray, num: int) -> Float[Array, "k t d"]:
    keys = jax.random.split(key, bank.log_sizes.shape[0])

    def one(at: tuple[Bank, Array]) -> Array:
        return sample_blocks(density_of(at[0], layout), at[1], num)

    return jnp.moveaxis(jax.lax.map(one, (bank, keys)), 0, 1)


@eqx.filter_jit
def _quantiles(bank: Bank, layout: Layout, levels: Float[Array, " k"]) -> Float[Array, "k t d"]:
    dim = bank.means.shape[-1]

    def one(at: Bank) -> Array:
        lines = [bank_line(at, layout, axis) for axis in range(dim)]
        inner = jnp.stack([jax.vmap(line.quantile)(levels) for line in lines], axis=-1)
        ends = jnp.where(levels == 0, -jnp.inf, jnp.inf)[:, None]
        return jnp.where(((levels > 0) & (levels < 1))[:, None], inner, ends)

    return jnp.moveaxis(jax.lax.map(one, bank), 0, 1)


@eqx.filter_jit
def _cdfs(bank: Bank, layout: Layout, x: Float[Array, "t d"]) -> Float[Array, "t d"]:
    def one(at: tuple[Bank, Array]) -> Array:
        law, point = at
        lines = [bank_line(law, layout, axis) for axis in range(point.size)]
        values = [line.below(value) for line, value in zip(lines, point, strict=True)]
        return jnp.clip(jnp.stack(values), 0.0, 1.0)

    return jax.lax.map(one, (bank, x))


@eqx.filter_jit
def _expectations(bank: Bank, layout: Layout, fn: Callable[[Array], Numbers]) -> Array:
    dim = bank.means.shape[-1]
    nodes, weights = np.polynomial.hermite_e.hermegauss(_NODES.get(dim, 3))
    mesh = np.meshgrid(*([nodes] * dim), indexing="ij")
    white = jnp.asarray(np.stack([m.ravel() for m in mesh], axis=-1))
    shares = np.ones(1)
    for _ in range(dim):
        shares = np.multiply.outer(shares, weights / weights.sum()).ravel()

    def one(at: Bank) -> Array:
        if at.rows is None:
            offsets = jax.vmap(lambda S: white @ psd_root(S).T)(at.covariances)
        else:
            offsets = jax.vmap(lambda rows: white @ rows)(at.rows)

        def component(mean: Array, offset: Array) -> Array:
            values = jax.vmap(lambda x: jnp.asarray(fn(x), dtype=jnp.float64))(
                mean[None, :] + offset
            )
            return jnp.tensordot(jnp.asarray(shares), values, axes=1)

        each = jax.vmap(jax.vmap(component, (0, None)))(at.means, offsets)
        return jnp.tensordot(shares_of(at, layout), each, axes=2)

    return jax.lax.map(one, bank)
