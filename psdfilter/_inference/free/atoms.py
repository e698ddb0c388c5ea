"""Gaussian root functions with precisions of their own, in one or two coordinates.

An atom has unit norm in L2(R^d),

    k(x) = (|2P| / pi^d)^{1/4} exp(-(x - m)' P (x - m)).

Matrices of one or two rows are written out entry by entry: one loop over all of them.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

_LOG_2 = float(np.log(2.0))
_LOG_PI = float(np.log(np.pi))


class Atoms(NamedTuple):
    """m and P of n atoms."""

    centers: Float[Array, "n d"]
    precision: Float[Array, "n d d"]

    @property
    def dim(self) -> int:
        """Number of coordinates, 1 or 2."""
        return self.centers.shape[-1]

    def take(self, index: Array) -> "Atoms":
        """Some of them."""
        return Atoms(self.centers[index], self.precision[index])


def determinant(matrix: Float[Array, "*n d d"]) -> Float[Array, "*n"]:
    """|P| of 1 x 1 or 2 x 2 matrices."""
    if matrix.shape[-1] == 1:
        return matrix[..., 0, 0]
    return matrix[..., 0, 0] * matrix[..., 1, 1] - matrix[..., 0, 1] * matrix[..., 1, 0]


def inverse(matrix: Float[Array, "*n d d"]) -> Float[Array, "*n d d"]:
    """P^{-1}; these are well conditioned, being widths of a learned model."""
    if matrix.shape[-1] == 1:
        return 1.0 / matrix
    a, b, c = matrix[..., 0, 0], matrix[..., 0, 1], matrix[..., 1, 1]
    rows = [jnp.stack([c, -b], axis=-1), jnp.stack([-b, a], axis=-1)]
    return jnp.stack(rows, axis=-2) / determinant(matrix)[..., None, None]


def log_heights(atoms: Atoms) -> Float[Array, " n"]:
    """log k_i(m_i)."""
    return 0.25 * (jnp.log(determinant(atoms.precision)) + atoms.dim * (_LOG_2 - _LOG_PI))


def evaluate(atoms: Atoms, x: Float[Array, "k d"]) -> Float[Array, "k n"]:
    """k_i(x) at all points."""
    first = x[:, 0][:, None] - atoms.centers[:, 0][None, :]
    form = atoms.precision[:, 0, 0][None, :] * jnp.square(first)
    if atoms.dim == 2:
        second = x[:, 1][:, None] - atoms.centers[:, 1][None, :]
        form = form + 2.0 * atoms.precision[:, 0, 1][None, :] * first * second
        form = form + atoms.precision[:, 1, 1][None, :] * jnp.square(second)
    return jnp.exp(log_heights(atoms)[None, :] - form)


def products(left: Atoms, right: Atoms) -> tuple[Atoms, Float[Array, "n k"]]:
    """Atoms of k_i k_j, left index first, and the factors in front of them.

    P = P_i + P_j,   m = P^{-1}(P_i m_i + P_j m_j),
    k_i k_j = h_i h_j / h exp(-(m_i - m_j)' P_i P^{-1} P_j (m_i - m_j)) k
    """
    dim = left.dim
    precision = left.precision[:, None] + right.precision[None, :]
    delta = left.centers[:, None, :] - right.centers[None, :, :]
    # m = m_j + P^{-1} P_i (m_i - m_j): no sum of large numbers far from the origin.
    pulled = jnp.einsum("nde,nke->nkd", left.precision, delta)
    step = jnp.einsum("nkde,nke->nkd", inverse(precision), pulled)
    centers = right.centers[None, :, :] + step
    form = jnp.einsum("nkd,kde,nke->nk", step, right.precision, delta)
    atoms = Atoms(centers.reshape(-1, dim), precision.reshape(-1, dim, dim))
    logs = log_heights(left)[:, None] + log_heights(right)[None, :] - form
    return atoms, jnp.exp(logs - log_heights(atoms).reshape(form.shape))


class TermKernel(NamedTuple):
    """g(a, b) = sum_j alpha_j exp(-(w - mu_j)' P_j (w - mu_j)), w = (a, b), ready to fix a.

    exp(...) = exp(-(a - mu_a)' T (a - mu_a)) exp(-(b - m(a))' P_bb (b - m(a))) with
    T = P_aa - P_ab P_bb^{-1} P_ba and m(a) = mu_b - P_bb^{-1} P_ba (a - mu_a).
    """

    amplitudes: Float[Array, " m"]
    given: Float[Array, "m k"]  # mu_a
    tightness: Float[Array, "m k k"]  # T
    slope: Float[Array, "m d k"]  # -P_bb^{-1} P_ba
    centers: Float[Array, "m d"]  # mu_b
    precision: Float[Array, "m d d"]  # P_bb

    @property
    def order(self) -> int:
        """Number of terms."""
        return self.amplitudes.shape[0]


class Slices(NamedTuple):
    """g(a, .) for several a: atoms and their amplitudes."""

    amplitudes: Float[Array, "n j"]
    centers: Float[Array, "n j d"]
    precision: Float[Array, "n j d d"]

    def flat(self) -> Atoms:
        """All atoms in one row."""
        dim = self.centers.shape[-1]
        return Atoms(self.centers.reshape(-1, dim), self.precision.reshape(-1, dim, dim))


def kernel_of(
    factor: np.ndarray,
    precision: np.ndarray,
    linear: np.ndarray,
    offset: np.ndarray,
    log_scale: float,
    fixed: tuple[int, ...],
) -> TermKernel:
    """From the canonical form of a learned square, `fixed` being the axes of a; on the host."""
    a = np.asarray(fixed, dtype=int)
    b = np.asarray([axis for axis in range(linear.shape[1]) if axis not in fixed])
    centers = np.linalg.solve(precision, linear[..., None])[..., 0]
    logs = offset + np.einsum("md,md->m", linear, centers) + 0.5 * log_scale
    P_aa = precision[:, a[:, None], a[None, :]]
    P_ba = precision[:, b[:, None], a[None, :]]
    P_bb = precision[:, b[:, None], b[None, :]]
    slope = -np.linalg.solve(P_bb, P_ba)
    tightness = P_aa + np.einsum("mdk,mdl->mkl", P_ba, slope)
    tightness = 0.5 * (tightness + np.swapaxes(tightness, 1, 2))
    parts = (factor[:, 0] * np.exp(logs), centers[:, a], tightness, slope, centers[:, b], P_bb)
    return TermKernel(*(jnp.asarray(part) for part in parts))


def log_sizes(kernel: TermKernel, at: Float[Array, "n k"]) -> Float[Array, "n m"]:
    """log of |alpha_j| exp(-(a - mu_a)' T (a - mu_a)), the peaks of the terms of g(a, .)."""
    delta = at[:, None, :] - kernel.given[None, :, :]
    form = jnp.einsum("nmk,mkl,nml->nm", delta, kernel.tightness, delta)
    return jnp.log(jnp.abs(kernel.amplitudes))[None, :] - form


def slices(kernel: TermKernel, at: Float[Array, "n k"], num_terms: int) -> Slices:
    """The largest `num_terms` terms of g(a, .) for each a, in that order, by atoms."""
    logs, which = jax.lax.top_k(log_sizes(kernel, at), num_terms)
    delta = at[:, None, :] - kernel.given[which]
    centers = kernel.centers[which] + jnp.einsum("njdk,njk->njd", kernel.slope[which], delta)
    heights = log_heights(Atoms(kernel.centers, kernel.precision))[which]
    amplitudes = jnp.sign(kernel.amplitudes)[which] * jnp.exp(logs - heights)
    return Slices(amplitudes, centers, kernel.precision[which])
