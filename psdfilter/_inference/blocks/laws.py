"""Laws at many times as stacked banks: what filter, smoother and forecast have in common."""

from abc import abstractmethod
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from ..._checks import Numbers, as_count, as_key
from ..._density.block_sampling import sample_blocks
from ..._density.blocks import GaussianBlocks
from ..._gaussian.linalg import psd_root
from ..summaries import check_level
from .bank import Bank, Layout, bank_line, bank_moments, density_of, shares_of

# Gauss-Hermite nodes per axis for expectations, at most about 4000 in all.
_NODES = {1: 48, 2: 32, 3: 14, 4: 8, 5: 5, 6: 4}


class AbstractLaws(eqx.Module):
    """Laws of T times on R^d. `mean` (T, d) and `covariance` (T, d, d) are at hand."""

    mean: eqx.AbstractVar[Array]
    covariance: eqx.AbstractVar[Array]

    @abstractmethod
    def _banks(self) -> tuple[Bank, Layout]:
        """The laws, stacked, and what their components stand for."""

    def quantile(self, q: Numbers) -> Float[Array, "t d"]:
        """The q-quantile of every coordinate at every time; a leading axis for several q."""
        levels = jnp.asarray(q, dtype=jnp.float64)
        check_level(np.asarray(q, dtype=float))
        values = _quantiles(*self._banks(), levels.ravel())
        return values[0] if levels.ndim == 0 else values.reshape(*levels.shape, *values.shape[1:])

    def interval(self, mass: float = 0.9) -> tuple[Float[Array, "t d"], Float[Array, "t d"]]:
        """Lower and upper end of the central interval of the given mass."""
        if not 0 < mass < 1:
            raise ValueError(f"mass must lie in (0, 1), got {mass}")
        ends = self.quantile([0.5 * (1 - mass), 0.5 * (1 + mass)])
        return ends[0], ends[1]

    def cdf(self, x: Numbers) -> Float[Array, "t d"]:
        """P(x_t,l <= x_l) of every coordinate l at every time, for one x (d,) or x (T, d)."""
        points = jnp.asarray(x, dtype=jnp.float64)
        points = points if points.ndim == 2 else points[None, :]
        return _cdfs(*self._banks(), jnp.broadcast_to(points, self.mean.shape))

    def expect(self, fn: Callable[[Array], Any]) -> Array:
        """E[fn(x_t)] for every t; fn takes one state (d,).

        Gauss-Hermite quadrature for every component, exact for polynomials of low degree.
        """
        return _expectations(*self._banks(), fn)

    def density(self, t: int) -> GaussianBlocks:
        """The law at index t as a density: evaluate it, sample it, take marginals of it."""
        bank, layout = self._banks()
        num = bank.log_sizes.shape[0]
        if not -num <= t < num:
            raise ValueError(f"t must lie in 0..{num - 1}, got {t}")
        return density_of(jax.tree.map(lambda a: a[t], bank), layout)

    def to_xarray(self) -> Any:
        """Mean, standard deviation, 5, 50 and 95 per cent quantiles as an xarray Dataset."""
        try:
            import xarray
        except ImportError as error:
            raise ImportError("to_xarray needs xarray: pip install 'psdfilter[frames]'") from error
        levels = [0.05, 0.5, 0.95]
        deviation = jnp.sqrt(jnp.diagonal(self.covariance, axis1=1, axis2=2))
        return xarray.Dataset(
            {
                "mean": (("time", "state"), np.asarray(self.mean)),
                "sd": (("time", "state"), np.asarray(deviation)),
                "covariance": (("time", "state", "state_"), np.asarray(self.covariance)),
                "quantile": (("level", "time", "state"), np.asarray(self.quantile(levels))),
            },
            coords={"level": levels},
        )


class Laws(AbstractLaws):
    """Laws given by their banks alone, for example those of observations."""

    bank: Bank
    layout: Layout
    mean: Float[Array, "t d"]
    covariance: Float[Array, "t d d"]

    @staticmethod
    def of(bank: Bank, layout: Layout) -> "Laws":
        """With the moments computed."""
        mean, covariance = jax.vmap(lambda b: bank_moments(b, layout))(bank)
        return Laws(bank=bank, layout=layout, mean=mean, covariance=covariance)

    def _banks(self) -> tuple[Bank, Layout]:
        return self.bank, self.layout

    def sample(self, *, key: PRNGKeyArray, num: int) -> Float[Array, "k t d"]:
        """Independent draws from every law, (num, T, d)."""
        return sample_laws(self, key, num)


def sample_laws(laws: AbstractLaws, key: Any, num: int) -> Float[Array, "k t d"]:
    """Independent draws from the law of every time."""
    return _sample(*laws._banks(), as_key("key", key), as_count("num", num))


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
def _expectations(bank: Bank, layout: Layout, fn: Callable[[Array], Any]) -> Array:
    dim = bank.means.shape[-1]
    nodes, weights = np.polynomial.hermite_e.hermegauss(_NODES.get(dim, 3))
    mesh = np.meshgrid(*([nodes] * dim), indexing="ij")
    white = jnp.asarray(np.stack([m.ravel() for m in mesh], axis=-1))
    shares = np.ones(1)
    for _ in range(dim):
        shares = np.multiply.outer(shares, weights / weights.sum()).ravel()

    def one(at: Bank) -> Array:
        offsets = jax.vmap(lambda S: white @ psd_root(S).T)(at.covariances)

        def component(mean: Array, offset: Array) -> Array:
            values = jax.vmap(lambda x: jnp.asarray(fn(x), dtype=jnp.float64))(
                mean[None, :] + offset
            )
            return jnp.tensordot(jnp.asarray(shares), values, axes=1)

        each = jax.vmap(jax.vmap(component, (0, None)))(at.means, offsets)
        return jnp.tensordot(shares_of(at, layout), each, axes=2)

    return jax.lax.map(one, bank)
