"""Sums of Gaussians that share covariances block by block: the laws that recursions carry.

    sum_b sum_k s_bk exp(w_bk) N(x; m_bk, S_b)

A Gaussian mixture has blocks of one component each, or one block if its covariances agree. A PSD
model of order n with one shared precision is one block with n (n + 1) / 2 components, one for each
pair (i, j) with its mean half-way, and signs. Transitions and linear observations act on every
component by itself, so that none of them needs an inverse or a root of S; the weight matrix comes
back from the pairs when the density is asked for.
"""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import logsumexp
from jaxtyping import Array, Float

from ..._checks import is_concrete
from ..._density.blocks import GaussianBlocks, Line, log_gram, pair_terms
from ..._gaussian.conditioning import symmetric
from ..._gaussian.linalg import psd_root


class Bank(NamedTuple):
    """w (log of absolute weights), m and S; of one time, or stacked over times.

    Where covariances alone would lose digits there are also `rows` A with S = A'A (`roots.py`).
    """

    log_sizes: Float[Array, "*t b k"]
    means: Float[Array, "*t b k d"]
    covariances: Float[Array, "*t b d d"]
    rows: Float[Array, "*t b d d"] | None = None


class Layout(eqx.Module):
    """What the components of a bank stand for, which no recursion changes.

    Attributes:
        signs: of the components; None if all are positive.
        order: n if the components of each block are the pairs (i, j), i <= j, of n; else None.
        factor: L if the blocks themselves are the pairs of a model |L'k|^2; else None.
    """

    signs: Float[Array, "b k"] | None = None
    order: int | None = eqx.field(static=True, default=None)
    factor: Float[Array, "m r"] | None = None


def bank_of(f: GaussianBlocks) -> tuple[Bank, Layout]:
    """f / int f as a bank; a mixture whose concrete covariances agree becomes one block."""
    shared = False
    if f.is_mixture and is_concrete(f.covariance):
        matrices = np.asarray(f.covariance)
        shared = bool((matrices == matrices[:1]).all())
    return _bank_of(f, shared)


@eqx.filter_jit
def _bank_of(f: GaussianBlocks, shared: bool) -> tuple[Bank, Layout]:
    terms = pair_terms(f)
    total = jnp.sum(terms.shares)
    if f.is_mixture:
        log_sizes = jnp.log(terms.shares[:, :, 0] / total)
        if shared:
            means = f.means[:, 0, :][None]
            return Bank(log_sizes[:, 0][None], means, f.covariance[:1]), Layout()
        return Bank(log_sizes, f.means, f.covariance), Layout()
    i, j = np.triu_indices(f.means.shape[1])
    twice = jnp.asarray(np.where(i == j, 1.0, 2.0))
    shares = twice[None, :] * terms.shares[:, i, j] / total
    bank = Bank(jnp.log(jnp.abs(shares)), terms.middles[:, i, j], f.covariance)
    return bank, Layout(jnp.sign(shares), f.means.shape[1])


@eqx.filter_jit
def density_of(bank: Bank, layout: Layout) -> GaussianBlocks:
    """The bank of one time as a density: components, or the weight matrix of its pairs."""
    num_blocks, num, dim = bank.means.shape
    if layout.order is None or layout.signs is None:
        covariances = jnp.broadcast_to(bank.covariances[:, None], (num_blocks, num, dim, dim))
        return GaussianBlocks.of_mixture(
            bank.log_sizes.ravel(), bank.means.reshape(-1, dim), covariances.reshape(-1, dim, dim)
        )
    order = layout.order
    i, j = np.triu_indices(order)
    own = np.flatnonzero(i == j)

    def block(log_sizes: Array, signs: Array, means: Array, covariance: Array):
        points = means[own]
        # A_ij = share_ij / int phi_i phi_j, for unordered pairs half of it on either side.
        logs = log_sizes - log_gram(covariance, points)[i, j]
        logs = logs - jnp.asarray(np.where(i == j, 0.0, np.log(2.0)))
        heights = jax.lax.stop_gradient(jnp.max(jnp.where(jnp.isfinite(logs), logs, -jnp.inf)))
        values = signs * jnp.exp(logs - heights)
        weights = jnp.zeros((order, order)).at[i, j].set(values).at[j, i].set(values)
        return heights, points, psd_root(weights)

    heights, points, factor = jax.vmap(block)(
        bank.log_sizes, layout.signs, bank.means, bank.covariances
    )
    return GaussianBlocks(heights, points, bank.covariances, factor)


def log_total(log_sizes: Float[Array, "b k"], layout: Layout) -> Float[Array, ""]:
    """log of the sum of all weights; NaN if rounding has made it negative."""
    if layout.signs is None:
        return logsumexp(log_sizes)
    peak = jax.lax.stop_gradient(jnp.max(log_sizes))
    peak = jnp.where(jnp.isfinite(peak), peak, 0.0)
    return peak + jnp.log(jnp.sum(layout.signs * jnp.exp(log_sizes - peak)))


def shares_of(bank: Bank, layout: Layout) -> Float[Array, "b k"]:
    """Weights of sum one, signed."""
    shares = jnp.exp(bank.log_sizes - log_total(bank.log_sizes, layout))
    return shares if layout.signs is None else shares * layout.signs


def bank_moments(bank: Bank, layout: Layout) -> tuple[Float[Array, " d"], Float[Array, "d d"]]:
    """Mean and covariance."""
    num_blocks, num, _ = bank.means.shape
    if num_blocks == num == 1:
        return bank.means[0, 0], bank.covariances[0]
    shares = shares_of(bank, layout)
    # About one of the means, so that an offset of the units costs no digits.
    flat = bank.means.reshape(num_blocks * num, -1)
    origin = flat[jnp.argmax(bank.log_sizes.ravel())]
    shifted, weights = flat - origin[None, :], shares.ravel()
    mean = weights @ shifted
    delta = shifted - mean[None, :]
    own = jnp.tensordot(jnp.sum(shares, axis=1), bank.covariances, axes=1)
    return origin + mean, symmetric(own + (delta * weights[:, None]).T @ delta)


def bank_line(bank: Bank, layout: Layout, axis: int) -> Line:
    """The marginal of one coordinate."""
    shares = shares_of(bank, layout)
    sd = jnp.sqrt(jnp.maximum(bank.covariances[:, axis, axis], 0.0))
    deviations = jnp.broadcast_to(sd[:, None], shares.shape)
    return Line(shares.ravel(), bank.means[..., axis].ravel(), deviations.ravel())
