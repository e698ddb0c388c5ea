"""Squares and products of Gaussian sums on a regular grid, where all centres are grid points.

On anchors x_p = x_0 + h p products of kernels have their centres half way between anchors, so a
quadratic form collapses to one sum over the half grid s, and a product of two of those to one over
the quarter grid t (per axis; several axes are tensor products):

    sum_pq A_pq k_eta(x, x_p) k_eta(x, x_q)  =  sum_s c_s k_{2 eta}(x, x_0 + h s / 2),
    c_s = sum_{p+q=s} A_pq k_{eta/2}(x_p, x_q),
    rho_t = sum_{s+s'=t} sigma_s gamma_s' k_eta(s, s'),  precision 4 eta, centre x_0 + h t / 4.

Kernel means V_s = int k_{2 eta}(u, s) pi(u) du over (-1, 1), all that a transition needs to know of
pi, are then fixed matrices of error functions:

    pi on the half grid:     J_ss' = k_eta(s, s') I_{4 eta}((s + s') / 2),
    pi on the quarter grid:  J_st  = k_{4 eta / 3}(s, t) I_{6 eta}((2 s + 4 t) / 6).
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..._gaussian.integrals import scaled_interval_moments
from ..numerics.grids import apply_axes


def _gauss(
    a: Float[Array, " m"], b: Float[Array, " k"], eta: Float[Array, ""]
) -> Float[Array, "m k"]:
    return jnp.exp(-eta * jnp.square(a[:, None] - b[None, :]))


def _unit_moments(
    parts: tuple[tuple[Float[Array, "..."], Float[Array, ""]], ...],
) -> list[Float[Array, "3 ..."]]:
    """Integrals of 1, z, z^2 against k_kappa(z, center) over (-1, 1), for (centers, kappa) each.

    One call for all: error functions take long to compile.
    """
    centers = jnp.concatenate([c.ravel() for c, _ in parts])
    kappas = jnp.concatenate([jnp.broadcast_to(kappa, c.size) for c, kappa in parts])
    one = jnp.ones(())
    mass, first, second, tail = scaled_interval_moments(-one, one, centers, kappas)
    raw = [mass, centers * mass + first, jnp.square(centers) * mass + 2 * centers * first + second]
    table = jnp.stack(raw) * jnp.exp(-tail)[None, :]
    cuts = np.cumsum([c.size for c, _ in parts])[:-1]
    pieces = jnp.split(table, cuts, axis=1)
    return [piece.reshape(3, *c.shape) for piece, (c, _) in zip(pieces, parts, strict=True)]


class MidpointAxis(eqx.Module):
    """The tables of one axis with m anchors: n = 2 m - 1 half points, 2 n - 1 quarter points."""

    anchors: Float[Array, " m"]
    half: Float[Array, " n"]
    precision: Float[Array, ""]  # eta
    anchor_pairs: Float[Array, "m m"]  # k_{eta/2}
    half_pairs: Float[Array, "n n"]  # k_eta
    half_means: Float[Array, "n n"]  # J from the half grid
    quarter_means: Float[Array, "n q"]  # J from the quarter grid
    half_moments: Float[Array, "3 n"]
    quarter_moments: Float[Array, "3 q"]

    @staticmethod
    @eqx.filter_jit
    def make(anchors: Float[Array, " m"], eta: Float[Array, ""]) -> "MidpointAxis":
        """For a regular grid of anchors."""
        num = anchors.shape[0]
        half = jnp.linspace(anchors[0], anchors[-1], 2 * num - 1)
        quarter = jnp.linspace(anchors[0], anchors[-1], 4 * num - 3)
        middle = 0.5 * (half[:, None] + half[None, :])
        third = (half[:, None] + 2 * quarter[None, :]) / 3
        at_middle, at_third, at_half, at_quarter = _unit_moments(
            ((middle, 4 * eta), (third, 6 * eta), (half, 2 * eta), (quarter, 4 * eta))
        )
        return MidpointAxis(
            anchors,
            half,
            eta,
            _gauss(anchors, anchors, 0.5 * eta),
            _gauss(half, half, eta),
            _gauss(half, half, eta) * at_middle[0],
            _gauss(half, quarter, 4 * eta / 3) * at_third[0],
            at_half,
            at_quarter,
        )


def fold_pairs(
    tensor: Float[Array, "..."], kernels: tuple[Float[Array, "_ _"], ...]
) -> Float[Array, "..."]:
    """c_s = sum_{p+q=s} A[p, q] prod_l k_l[p_l, q_l] for A of axes (p_1 ... p_d, q_1 ... q_d)."""
    for done, kernel in enumerate(kernels):
        rows, columns = kernel.shape
        block = jnp.moveaxis(tensor, len(kernels) - done, 1)
        rest = block.shape[2:]
        block = block * kernel.reshape(rows, columns, *(1,) * len(rest))
        # Row p moves p places to the right when rows of length rows + columns are read as rows of
        # one entry less: anti-diagonals become columns.
        block = jnp.pad(block, [(0, 0), (0, rows), *((0, 0),) * len(rest)])
        flat = block.reshape(-1, *rest)[: rows * (rows + columns - 1)]
        skewed = flat.reshape(rows, rows + columns - 1, *rest)
        tensor = jnp.moveaxis(jnp.sum(skewed, axis=0), 0, -1)
    return tensor


def _outer(a: Float[Array, "..."], b: Float[Array, "..."]) -> Float[Array, "..."]:
    return a.reshape(*a.shape, *(1,) * b.ndim) * b.reshape(*(1,) * a.ndim, *b.shape)


class Midpoints(eqx.Module):
    """The algebra on a tensor grid; arrays have one axis for each coordinate."""

    axes: tuple[MidpointAxis, ...]

    @property
    def shape(self) -> tuple[int, ...]:
        """Anchors on each axis."""
        return tuple(a.anchors.shape[0] for a in self.axes)

    @property
    def half_shape(self) -> tuple[int, ...]:
        """Half points on each axis."""
        return tuple(a.half.shape[0] for a in self.axes)

    def multiply_roots(self, a: Float[Array, "..."], b: Float[Array, "..."]) -> Float[Array, "..."]:
        """(a . k)(b . k) on the half grid; with a = b a square."""
        return fold_pairs(_outer(a, b), tuple(x.anchor_pairs for x in self.axes))

    def multiply(self, a: Float[Array, "..."], b: Float[Array, "..."]) -> Float[Array, "..."]:
        """The product of two sums on the half grid, on the quarter grid."""
        return fold_pairs(_outer(a, b), tuple(x.half_pairs for x in self.axes))

    def collapse(self, weights: Float[Array, "m m"]) -> Float[Array, "..."]:
        """k(x)' A k(x) on the half grid."""
        tensor = weights.reshape(*self.shape, *self.shape)
        return fold_pairs(tensor, tuple(x.anchor_pairs for x in self.axes))

    def means(self, sums: Float[Array, "..."], *, quarter: bool) -> Float[Array, "..."]:
        """V_s = int k_{2 eta}(u, s) pi(u) du for pi on the half or the quarter grid."""
        tables = tuple(a.quarter_means if quarter else a.half_means for a in self.axes)
        return apply_axes(sums, tables)

    def gram(self, means: Float[Array, "..."]) -> Float[Array, "m m"]:
        """W_pp' = int k_p k_p' pi = k_{eta/2}(x_p, x_p') V_{p+p'}, of all anchors."""
        dim = len(self.axes)
        tensor = means
        for axis in self.axes:
            num = axis.anchors.shape[0]
            index = jnp.arange(num)[:, None] + jnp.arange(num)[None, :]
            pairs = axis.anchor_pairs.reshape(num, num, *(1,) * (tensor.ndim - 1))
            # The axis consumed is the first; its pair goes to the back.
            tensor = jnp.moveaxis(tensor[index] * pairs, (0, 1), (-2, -1))
        order = (*range(0, 2 * dim, 2), *range(1, 2 * dim, 2))
        size = tensor.size
        return tensor.transpose(order).reshape(round(size**0.5), -1)

    def mass(self, sums: Float[Array, "..."], *, quarter: bool) -> Float[Array, ""]:
        """The integral over (-1, 1)^d."""
        return self._contract(sums, quarter, {})

    def moments(self, sums: Float[Array, "..."], *, quarter: bool) -> tuple[Array, Array]:
        """Integrals of z (d,) and z z' (d, d)."""
        dim = len(self.axes)
        first = jnp.stack([self._contract(sums, quarter, {i: 1}) for i in range(dim)])
        second = [
            self._contract(sums, quarter, {i: 2} if i == j else {i: 1, j: 1})
            for i in range(dim)
            for j in range(dim)
        ]
        return first, jnp.stack(second).reshape(dim, dim)

    def _contract(self, sums: Array, quarter: bool, powers: dict[int, int]) -> Float[Array, ""]:
        for i, axis in enumerate(self.axes):
            table = axis.quarter_moments if quarter else axis.half_moments
            sums = jnp.tensordot(table[powers.get(i, 0)], sums, axes=1)
        return sums

    def values(
        self, sums: Float[Array, "..."], nodes: tuple[Float[Array, " _"], ...]
    ) -> Float[Array, "..."]:
        """A sum on the half grid, on a tensor grid of points."""
        kernels = tuple(
            _gauss(z, a.half, 2 * a.precision) for a, z in zip(self.axes, nodes, strict=True)
        )
        return apply_axes(sums, kernels)


def transition_table(axis: MidpointAxis, root: Float[Array, "m m"]) -> Float[Array, "n n"]:
    """C_rs: (k(u)' a k(x))^2 = sum_rs C_rs k_{2 eta}(x, r) k_{2 eta}(u, s), of one coordinate.

    C_rs = sum_{p+p'=s, q+q'=r} a_pq a_p'q' k_{eta/2}(x_p, x_p') k_{eta/2}(x_q, x_q').
    """
    pairs = (axis.anchor_pairs,)

    def from_anchor(row: Float[Array, " m"]) -> Float[Array, "m n"]:
        return jax.vmap(lambda other: fold_pairs(_outer(row, other), pairs))(root)

    tensor = jax.lax.map(from_anchor, root)  # p, p', r
    return jax.vmap(lambda matrix: fold_pairs(matrix, pairs), in_axes=2)(tensor)
