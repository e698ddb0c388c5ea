"""Smaller models: fewer columns of the factor (exact loss), or fewer anchors (projection)."""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from .._checks import as_count
from .anchors import expand
from .box import Box
from .operations import BoxLike, verified_model
from .pairs import apply_kronecker, joint_matrices, pair_integrals
from .psd import GaussianPSD


class Compression(NamedTuple):
    """A compressed model and its error.

    `lost_mass` is in the units of int f. For a rank truncation it is int |f - model|, exactly, and
    at most twice its share of int f is lost in total variation after normalising. For a projection
    it is sum_r int |g_r - P g_r|^2 of the columns g = L'k, for which int |f - model| is at most
    2 sqrt(lost_mass int f). After both it is their sum, and that bound holds.
    """

    model: GaussianPSD
    lost_mass: Float[Array, ""]


def compress(
    f: GaussianPSD,
    order: int | None = None,
    rank: int | None = None,
    *,
    box: BoxLike | None = None,
) -> GaussianPSD:
    """f with at most `order` anchors and at most `rank` columns; see `compress_with_loss`."""
    return compress_with_loss(f, order, rank, box=box).model


def compress_with_loss(
    f: GaussianPSD,
    order: int | None = None,
    rank: int | None = None,
    *,
    box: BoxLike | None = None,
) -> Compression:
    """f with fewer anchors, then fewer columns, and what was lost in L1 on the box (R^d if None).

    Anchors are chosen by pivoted Cholesky of the Gram matrix weighted by what each carries, and
    the columns of L'k projected onto their span in L2: a congruence, so the result is PSD. The rank
    is cut in the basis that diagonalises L'GL, where columns carry disjoint masses.
    """
    if not isinstance(f, GaussianPSD):
        raise ValueError(f"f must be a GaussianPSD, got {type(f).__name__}")
    if order is None and rank is None:
        raise ValueError("order or rank must be given")
    f, domain = verified_model(f, box)  # pyright: ignore[reportAssignmentType]
    lost = jnp.zeros(())
    if order is not None and as_count("order", order) < f.order:
        f, dropped = _project(f, order, domain)
        lost = lost + dropped
    if rank is not None and as_count("rank", rank) < f.rank:
        f, dropped = _truncate(f, rank, domain)
        lost = lost + dropped
    return Compression(f, lost)


@eqx.filter_jit
def _truncate(f: GaussianPSD, rank: int, box: Box | None) -> tuple[GaussianPSD, Array]:
    """L'GL = V diag(s) V', L <- L V: dropping columns loses exactly the sum of their s."""
    pairs = pair_integrals(f.anchors, f.precision, box)
    gram = f.factor.T @ apply_kronecker(joint_matrices(pairs, pairs.masses), f.factor)
    values, vectors = jnp.linalg.eigh(gram)
    kept = vectors[:, ::-1][:, :rank]
    lost = jnp.sum(jnp.clip(values[: f.rank - rank], 0.0)) * jnp.exp(pairs.log_scale + f.log_scale)
    return eqx.tree_at(lambda m: m.factor, f, f.factor @ kept), lost


@eqx.filter_jit
def _project(f: GaussianPSD, order: int, box: Box | None) -> tuple[GaussianPSD, Array]:
    """L' = R^{-T} R^{-1} G_sm L on chosen anchors s, with G_ss = R R'."""
    anchors = expand(f.anchors)
    pairs = pair_integrals(anchors, f.precision, box)
    (gram,) = joint_matrices(pairs, pairs.masses)
    carried = jnp.sqrt(jnp.sum(jnp.square(f.factor), axis=1))
    chosen = _pivots(gram * jnp.outer(carried, carried), order)
    inner, cross = gram[jnp.ix_(chosen, chosen)], gram[chosen] @ f.factor
    # Pivots of a numerically low-rank Gram matrix can be dependent: solve in its eigenbasis, cut
    # where eigenvalues are rounding.
    values, vectors = jnp.linalg.eigh(inner)
    keep = values > order * jnp.finfo(values.dtype).eps * values[-1]
    inverse = jnp.where(keep, 1 / jnp.where(keep, values, 1.0), 0.0)
    factor = vectors @ (inverse[:, None] * (vectors.T @ cross))
    whole = jnp.sum(f.factor * (gram @ f.factor))
    lost = jnp.maximum(whole - jnp.sum(factor * cross), 0.0)
    model = GaussianPSD(anchors[chosen], factor, f.precision, f.log_scale)
    return model, lost * jnp.exp(pairs.log_scale + f.log_scale)


def _pivots(gram: Float[Array, "m m"], num: int) -> Array:
    """The first `num` pivots of the Cholesky factorisation with diagonal pivoting."""
    size = gram.shape[0]

    def step(k, carry):
        residual, columns, chosen = carry
        pivot = jnp.argmax(residual)
        scale = jnp.sqrt(jnp.where(residual[pivot] > 0, residual[pivot], 1.0))
        column = (gram[:, pivot] - columns @ columns[pivot]) / scale
        column = jnp.where(residual[pivot] > 0, column, 0.0)
        residual = residual - jnp.square(column)
        residual = residual.at[pivot].set(-jnp.inf)
        return residual, columns.at[:, k].set(column), chosen.at[k].set(pivot)

    start = (jnp.diagonal(gram), jnp.zeros((size, num)), jnp.zeros(num, dtype=int))
    return jax.lax.fori_loop(0, num, step, start)[2]
