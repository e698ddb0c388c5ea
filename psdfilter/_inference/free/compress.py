"""Fewer atoms: an orthogonal projection onto those that catch most of a sum of squares.

A density f = sum_c g_c^2 is carried by few atoms k_i by projecting every g_c onto their span,
orthogonally in L2 of the box: A = T T' with T = Gamma_SS^{-1} <k_S, g>, a congruence, so that the
result is again a sum of squares. With e_c the parts that are lost,

    int |f - f'| <= sum_c |e_c| |g_c + g_c'| <= 2 sqrt(sum_c |e_c|^2 int f).

The atoms are found one by one, orthogonalised as they come (the Gram matrix of atoms that lie close
is too ill-conditioned for a factorisation of its own): each is the one whose part orthogonal to
those before it catches most of what is left of all g_c.
Inner products are sums over the nodes of a rule on the box: those of coupled Gaussians have no
closed form there, and over R^d the learned models would count where nobody has fitted them.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.linalg import solve_triangular
from jaxtyping import Array, Float

from .atoms import Atoms, evaluate
from .rules import Rule

# An atom of which less than this is orthogonal to the pivots (in squared norm, of one) is none:
# weights stay below 1 / sqrt of it, so that rounding stays below 1e-12.
_INDEPENDENT = 1e-7
# An atom with less than this of its squared norm on the box is none either.
_INSIDE = 1e-4
# Masses below this share of the largest one are none.
_NEGLIGIBLE = 1e-12


class SquareSum(NamedTuple):
    """f(x) = |L' k(x)|^2; places that are not used have zero rows of L."""

    atoms: Atoms
    factor: Float[Array, "r c"]

    def __call__(self, x: Float[Array, "k d"]) -> Float[Array, " k"]:
        """f at all points."""
        return jnp.sum(jnp.square(evaluate(self.atoms, x) @ self.factor), axis=1)


def spread_choice(atoms: Atoms, masses: Float[Array, " n"], num: int) -> Atoms:
    """`num` of the atoms, spread over all places where there is mass.

    In the order of their centres, at even steps of the sums of mass^(1/8): flanks get their share,
    and atoms that lie together are not all tried.
    """
    order = jnp.argsort(atoms.centers[:, 0])
    masses = masses[order]
    flat = jnp.where(masses > _NEGLIGIBLE * jnp.max(masses), masses, 0.0) ** 0.125
    sums = jnp.cumsum(flat)
    levels = jnp.asarray((np.arange(num) + 0.5) / num) * sums[-1]
    return atoms.take(order[jnp.minimum(jnp.searchsorted(sums, levels), order.size - 1)])


def project(
    tried: Atoms, roots: Float[Array, "n c"], rule: Rule, places: int, left_out: float = 0.0
) -> SquareSum:
    """sum_c g_c^2, given at the nodes, on at most `places` of the atoms `tried`.

    No more are taken once less than `left_out` of sum_c int g_c^2 is lost.
    """
    (num_tried, dim), num_roots = tried.centers.shape, roots.shape[1]
    weights = jnp.sqrt(rule.weights)[:, None]
    columns = weights * evaluate(tried, rule.nodes)
    norms = jnp.sum(jnp.square(columns), axis=0)
    inside = norms > _INSIDE
    scale = jnp.where(inside, jax.lax.rsqrt(jnp.where(inside, norms, 1.0)), 0.0)
    columns = columns * scale[None, :]
    values = weights * roots
    total = jnp.sum(jnp.square(values))

    def goes_on(at: tuple[Array, ...]) -> Array:
        return (at[0] < places) & (at[1] > left_out * total)

    def choose(at: tuple[Array, ...]) -> tuple[Array, ...]:
        k, left, inner, rest, basis, rows, heights, chosen = at
        open_ = rest > _INDEPENDENT
        gain = jnp.where(open_, jnp.sum(jnp.square(inner), axis=1), 0.0)
        gain = gain / jnp.where(open_, rest, 1.0)
        pivot = jnp.argmax(gain)
        good = gain[pivot] > 0
        column = columns[:, pivot]
        # Twice: what is left of an atom that nearly depends on the others is small.
        column = column - basis @ (column @ basis)
        column = column - basis @ (column @ basis)
        size = jnp.sqrt(jnp.sum(jnp.square(column)))
        column = jnp.where(good, column / jnp.where(good, size, 1.0), 0.0)
        row, height = column @ columns, column @ values
        inner = inner - row[:, None] * height[None, :]
        rest = (rest - jnp.square(row)).at[pivot].set(0.0)
        basis, rows = basis.at[:, k].set(column), rows.at[k].set(row)
        chosen = chosen.at[k].set(jnp.where(good, pivot, -1))
        left = jnp.where(good, left - jnp.sum(jnp.square(height)), -jnp.inf)
        return k + 1, left, inner, rest, basis, rows, heights.at[k].set(height), chosen

    start = (
        jnp.zeros((), int),
        total,
        columns.T @ values,
        inside.astype(columns.dtype),
        jnp.zeros((columns.shape[0], places)),
        jnp.zeros((places, num_tried)),
        jnp.zeros((places, num_roots)),
        jnp.full(places, -1),
    )
    *_, rows, heights, chosen = jax.lax.while_loop(goes_on, choose, start)
    used = chosen >= 0
    # Gamma_SS = C C' with C lower triangular; places that are not used get a one on its diagonal.
    lower = jnp.where(used[:, None] & used[None, :], jnp.tril(rows[:, chosen].T), 0.0)
    lower = lower + jnp.diag(jnp.where(used, 0.0, 1.0))
    factor = solve_triangular(lower.T, heights, lower=False) * scale[chosen][:, None]
    kept = tried.take(chosen)
    eye = jnp.broadcast_to(jnp.eye(dim), kept.precision.shape)
    return SquareSum(
        Atoms(
            jnp.where(used[:, None], kept.centers, 0.0),
            jnp.where(used[:, None, None], kept.precision, eye),
        ),
        jnp.where(used[:, None], factor, 0.0),
    )


def fewer_roots(factor: Float[Array, "n c"], num: int) -> Float[Array, "n q"]:
    """L with the same L L' and `num` columns, `num` being n or at least c."""
    if factor.shape[1] <= num:
        return jnp.pad(factor, ((0, 0), (0, num - factor.shape[1])))
    return jnp.linalg.qr(factor.T, mode="r").T
