"""Smaller models: fewer columns of the factor (exact loss), or fewer anchors (projection)."""

from collections.abc import Callable
from typing import NamedTuple, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from .._checks import as_count, check_values
from .anchors import expand
from .blocks import GaussianBlocks
from .box import Box
from .canonical import Generalized, log_box_integrals, log_pair_integrals
from .generalized import GeneralizedGaussianPSD, PairwiseGaussianPSD
from .mass import BoxLike, as_model, uncoupled, verified_model
from .pairs import apply_kronecker, joint_matrices, pair_integrals
from .psd import GaussianPSD
from .rounding import UNIT, relative_error, require_digits


class Compression(NamedTuple):
    """A compressed model and its error.

    `lost_mass` is in the units of int f. For a rank truncation it is int |f - model|, exactly, and
    at most twice its share of int f is lost in total variation after normalising. For a projection
    it is sum_r int |g_r - P g_r|^2 of the columns g = L'k, for which int |f - model| is at most
    2 sqrt(lost_mass int f). After both it is their sum, and that bound holds. What rounding may
    have hidden is part of it, and more than a millionth of int f of that is refused.
    """

    model: GaussianPSD | GeneralizedGaussianPSD | PairwiseGaussianPSD
    lost_mass: Float[Array, ""]


SamePSD = TypeVar("SamePSD", bound=GaussianPSD | GeneralizedGaussianPSD | PairwiseGaussianPSD)


def compress(
    f: SamePSD,
    order: int | None = None,
    rank: int | None = None,
    *,
    box: BoxLike | None = None,
) -> SamePSD:
    """f with at most `order` anchors and at most `rank` columns; see `compress_with_loss`."""
    return compress_with_loss(f, order, rank, box=box).model  # pyright: ignore[reportReturnType]


def compress_with_loss(
    f: GaussianPSD | GeneralizedGaussianPSD | PairwiseGaussianPSD,
    order: int | None = None,
    rank: int | None = None,
    *,
    box: BoxLike | None = None,
) -> Compression:
    """f with fewer anchors, then fewer columns, and what was lost in L1 on the box (R^d if None).

    Anchors are chosen by pivoted Cholesky of the Gram matrix weighted by what each carries, and
    the columns of L'k projected onto their span in L2: a congruence, so the result is PSD. The rank
    is cut in the basis that diagonalises L'GL, where columns carry disjoint masses.

    Generalised models keep some of their components, by the same projection over R^d (over a box
    if their precisions are diagonal). Pairs B_ij are inner products of components in what was
    integrated out, and project likewise.
    """
    if isinstance(f, GaussianBlocks):
        raise ValueError("f must be a PSD model, got GaussianBlocks: compress generalize(f)")
    _ = as_model("f", f)
    if order is None and rank is None:
        raise ValueError("order or rank must be given")
    f, domain = verified_model(f, box)  # pyright: ignore[reportAssignmentType]
    if not isinstance(f, GaussianPSD):
        domain = uncoupled(f, domain)
    lost, error = jnp.zeros(()), jnp.zeros(())
    if order is not None and as_count("order", order) < f.order:
        project = _project if isinstance(f, GaussianPSD) else _project_components
        f, dropped = project(f, order, domain)  # pyright: ignore[reportArgumentType]
        lost, error = lost + dropped.lost, jnp.maximum(error, dropped.error)
    if rank is not None and as_count("rank", rank) < f.rank:
        truncate = _truncate if isinstance(f, GaussianPSD) else _truncate_components
        f, dropped = truncate(f, rank, domain)  # pyright: ignore[reportArgumentType]
        lost, error = lost + dropped.lost, jnp.maximum(error, dropped.error)
    lost = check_values(
        lost, jnp.isfinite(lost), "f must have a finite mass: a precision is not positive definite"
    )
    return Compression(f, require_digits(lost, error, "the compression of f"))


class _Dropped(NamedTuple):
    """What was lost, rounding included, and that rounding over int f."""

    lost: Float[Array, ""]
    error: Float[Array, ""]

    @staticmethod
    def of(lost: Array, gram_of: Callable[[Array], Array], factor: Array) -> "_Dropped":
        """With the Gram matrix as a map: lost mass is a difference of sums of signed terms."""
        whole = jnp.sum(factor * gram_of(factor))
        size = jnp.abs(factor)
        terms = jnp.sum(size * gram_of(size))
        return _Dropped(lost + UNIT * terms, relative_error(whole, terms))

    def scaled(self, log_scale: Array) -> "_Dropped":
        """In the units of int f."""
        return self._replace(lost=self.lost * jnp.exp(log_scale))


class _Normed(NamedTuple):
    """f of components of norm one: their Gram matrix, their factor, and what that left over."""

    gram: Float[Array, "m m"]
    factor: Float[Array, "m r"]
    log_norms: Float[Array, " m"]  # component = exp(log_norm) times one of norm one
    log_scale: Float[Array, ""]


def _normed(f: Generalized, box: Box | None) -> _Normed:
    logs = log_pair_integrals(f) if box is None else log_box_integrals(f, box)
    log_norms = 0.5 * jnp.diagonal(logs)
    gram = jnp.exp(logs - log_norms[:, None] - log_norms[None, :])
    peak = jax.lax.stop_gradient(jnp.max(log_norms))
    factor = jnp.exp(log_norms - peak)[:, None] * f.factor
    return _Normed(gram, factor, log_norms - peak, f.log_scale + 2 * peak)


@eqx.filter_jit
def _truncate_components(
    f: Generalized, rank: int, box: Box | None
) -> tuple[Generalized, _Dropped]:
    normed = _normed(f, box)
    values, vectors = jnp.linalg.eigh(normed.factor.T @ normed.gram @ normed.factor)
    kept = vectors[:, ::-1][:, :rank]
    lost = jnp.sum(jnp.clip(values[: f.rank - rank], 0.0))
    dropped = _Dropped.of(lost, lambda a: normed.gram @ a, normed.factor)
    model = eqx.tree_at(lambda m: m.factor, f, f.factor @ kept)
    return model, dropped.scaled(normed.log_scale)


@eqx.filter_jit
def _project_components(
    f: Generalized, order: int, box: Box | None
) -> tuple[Generalized, _Dropped]:
    normed = _normed(f, box)
    carried = jnp.sqrt(jnp.sum(jnp.square(normed.factor), axis=1))
    chosen = _pivots(normed.gram * jnp.outer(carried, carried), order)
    factor, lost = _on_pivots(normed.gram, normed.factor, chosen)
    factor = jnp.exp(-normed.log_norms[chosen])[:, None] * factor
    if isinstance(f, GeneralizedGaussianPSD):
        matrix = f.precision if f.is_shared else f.precision[chosen]
        model: Generalized = GeneralizedGaussianPSD(
            factor, matrix, f.linear[chosen], f.offset[chosen], f.log_scale, f.origin
        )
    else:
        i, j = chosen[:, None], chosen[None, :]
        model = PairwiseGaussianPSD(
            factor, f.precision[i, j], f.linear[i, j], f.offset[i, j], f.log_scale, f.origin
        )
    dropped = _Dropped.of(lost, lambda a: normed.gram @ a, normed.factor)
    return model, dropped.scaled(normed.log_scale)


@eqx.filter_jit
def _truncate(f: GaussianPSD, rank: int, box: Box | None) -> tuple[GaussianPSD, _Dropped]:
    """L'GL = V diag(s) V', L <- L V: dropping columns loses exactly the sum of their s."""
    pairs = pair_integrals(f.anchors, f.precision, box)
    matrices = joint_matrices(pairs, pairs.masses)
    gram = f.factor.T @ apply_kronecker(matrices, f.factor)
    values, vectors = jnp.linalg.eigh(gram)
    kept = vectors[:, ::-1][:, :rank]
    lost = jnp.sum(jnp.clip(values[: f.rank - rank], 0.0))
    dropped = _Dropped.of(lost, lambda a: apply_kronecker(matrices, a), f.factor)
    model = GaussianPSD(f.anchors, f.factor @ kept, f.precision, f.log_scale)
    return model, dropped.scaled(pairs.log_scale + f.log_scale)


@eqx.filter_jit
def _project(f: GaussianPSD, order: int, box: Box | None) -> tuple[GaussianPSD, _Dropped]:
    """L' = R^{-T} R^{-1} G_sm L on chosen anchors s, with G_ss = R R'."""
    anchors = expand(f.anchors)
    pairs = pair_integrals(anchors, f.precision, box)
    (gram,) = joint_matrices(pairs, pairs.masses)
    carried = jnp.sqrt(jnp.sum(jnp.square(f.factor), axis=1))
    chosen = _pivots(gram * jnp.outer(carried, carried), order)
    factor, lost = _on_pivots(gram, f.factor, chosen)
    model = GaussianPSD(anchors[chosen], factor, f.precision, f.log_scale)
    dropped = _Dropped.of(lost, lambda a: gram @ a, f.factor)
    return model, dropped.scaled(pairs.log_scale + f.log_scale)


def _on_pivots(
    gram: Float[Array, "m m"], columns: Float[Array, "m r"], chosen: Array
) -> tuple[Float[Array, "k r"], Float[Array, ""]]:
    """The projected factor, and the sum of the squared lengths of what is lost."""
    inner, cross = gram[jnp.ix_(chosen, chosen)], gram[chosen] @ columns
    # Pivots of a numerically low-rank Gram matrix can be dependent: solve in its eigenbasis, cut
    # where eigenvalues are rounding.
    values, vectors = jnp.linalg.eigh(inner)
    keep = values > values.size * jnp.finfo(values.dtype).eps * values[-1]
    inverse = jnp.where(keep, 1 / jnp.where(keep, values, 1.0), 0.0)
    factor = vectors @ (inverse[:, None] * (vectors.T @ cross))
    whole = jnp.sum(columns * (gram @ columns))
    return factor, jnp.maximum(whole - jnp.sum(factor * cross), 0.0)


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
