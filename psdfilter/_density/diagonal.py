"""The operations on `GaussianPSD`, as pure functions on checked arguments.

Orders: partial evaluation and marginals keep the anchors (on a grid only the axes that remain), a
product has all pairs of anchors, a Markov transition has the order of its kernel.
"""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .._gaussian.integrals import scaled_interval_mass
from .._gaussian.kernel import log_total_mass, squared_distances
from .._gaussian.linalg import psd_root, shrink_factor
from .anchors import TensorGrid, expand, nearest_distance
from .box import Box
from .pairs import joint_matrices, pair_integrals, quadratic_form
from .psd import GaussianPSD

# Entries of the pair-times-pair table of a generic transition held at once: 2^19 doubles are
# 4 MiB, a handful of which are alive at a time. Larger blocks are no faster.
_ENTRIES_PER_BLOCK = 2**19


def scaled_integral(f: GaussianPSD, box: Box | None) -> tuple[Float[Array, ""], Float[Array, ""]]:
    """z and s with int f = z exp(s): z = tr(L' G L) over all pairs."""
    return integral_and_bound(f, box)[:2]


def integral_and_bound(
    f: GaussianPSD, box: Box | None
) -> tuple[Float[Array, ""], Float[Array, ""], Float[Array, ""]]:
    """z and s with int f = z exp(s), and the sum b of the absolute values of the terms of z."""
    pairs = pair_integrals(f.anchors, f.precision, box)
    matrices = joint_matrices(pairs, pairs.masses)
    mass = quadratic_form(matrices, f.factor)
    bound = quadratic_form(matrices, jnp.abs(f.factor))
    return mass, pairs.log_scale + f.log_scale, jax.lax.stop_gradient(bound)


def split_grid(
    f: GaussianPSD, first: tuple[int, ...], second: tuple[int, ...]
) -> Float[Array, "a b r"]:
    """The factor of a grid model as (anchors of `first`, anchors of `second`, columns)."""
    assert isinstance(f.anchors, TensorGrid)
    shape = f.anchors.shape
    tensor = f.factor.reshape(*shape, f.rank).transpose(*first, *second, len(shape))
    return tensor.reshape(_size(shape, first), _size(shape, second), f.rank)


def _size(shape: tuple[int, ...], axes: tuple[int, ...]) -> int:
    return int(np.prod([shape[a] for a in axes], dtype=int))


def keep_axes(anchors: Array | TensorGrid, axes: tuple[int, ...]) -> Array | TensorGrid:
    """The coordinates `axes` of the anchors; on a grid only those axes."""
    if isinstance(anchors, TensorGrid):
        return TensorGrid(tuple(anchors.axes[a] for a in axes))
    return anchors[:, np.asarray(axes)]


def partial(
    f: GaussianPSD, axes: tuple[int, ...], rest: tuple[int, ...], values: Float[Array, " k"]
) -> GaussianPSD:
    """f(x, y0): A' = diag(v) A diag(v) with v_i = k(y0, Y_i), so L' = diag(v) L.

    On a grid the rows that share an x anchor are added up: order m_x.
    """
    index = np.asarray(axes)
    eta = f.precision[index]
    if isinstance(f.anchors, TensorGrid):
        factor, exponent = split_grid(f, axes, rest), jnp.zeros(())
        factor = factor.reshape(*(f.anchors.shape[a] for a in axes), -1)
        for a, value, eta_a in zip(axes, values, eta, strict=True):
            distance = eta_a * jnp.square(value - f.anchors.axes[a])
            nearest = nearest_distance(distance)
            factor = jnp.tensordot(jnp.exp(nearest - distance), factor, axes=1)
            exponent = exponent + nearest
        factor = factor.reshape(-1, f.rank)
    else:
        distance = squared_distances(values[None], f.anchors[:, index], eta)[0]
        exponent = nearest_distance(distance)
        factor = jnp.exp(exponent - distance)[:, None] * f.factor
    keep = keep_axes(f.anchors, rest)
    return GaussianPSD(keep, factor, f.precision[np.asarray(rest)], f.log_scale - 2 * exponent)


def reorder(f: GaussianPSD, keep: tuple[int, ...]) -> GaussianPSD:
    """f with its coordinates in another order."""
    factor = f.factor
    if isinstance(f.anchors, TensorGrid):
        sizes = tuple(axis.shape[0] for axis in f.anchors.axes)
        factor = factor.reshape(*sizes, -1).transpose(*keep, len(sizes)).reshape(factor.shape)
    anchors = keep_axes(f.anchors, keep)
    return GaussianPSD(anchors, factor, f.precision[np.asarray(keep)], f.log_scale)


def marginal(
    f: GaussianPSD, keep: tuple[int, ...], drop: tuple[int, ...], box: Box | None
) -> GaussianPSD:
    """int f(x, y) dy: A' = A o G_y; on a grid L' = L (I x root G_y), shrunk to m_x columns."""
    dropped = keep_axes(f.anchors, drop)
    pairs = pair_integrals(
        dropped, f.precision[np.asarray(drop, dtype=int)], None if box is None else box.keep(drop)
    )
    matrices = joint_matrices(pairs, pairs.masses)
    if isinstance(f.anchors, TensorGrid):
        tensor = split_grid(f, keep, drop)
        tensor = tensor.reshape(tensor.shape[0], *dropped.shape, f.rank)
        for axis, matrix in enumerate(matrices, start=1):
            rotated = jnp.tensordot(psd_root(matrix).T, tensor, axes=(1, axis))
            tensor = jnp.moveaxis(rotated, 0, axis)
        factor = shrink_factor(tensor.reshape(tensor.shape[0], -1))
    else:
        factor = schur_factor(f.factor, matrices[0])
    anchors = keep_axes(f.anchors, keep)
    scale = f.log_scale + pairs.log_scale
    return GaussianPSD(anchors, factor, f.precision[np.asarray(keep)], scale)


def marginal_bound(
    f: GaussianPSD, drop: tuple[int, ...], box: Box | None
) -> tuple[Float[Array, ""], Float[Array, ""]]:
    """Terms of the mass of a marginal over all x, with their signs and without.

    A root adds an error of u |G| |L|^2 in the norm to the rounding of the terms.
    """
    wide = None
    if box is not None:
        dropped = np.isin(np.arange(f.dim), drop)
        lower = jnp.where(dropped, box.lower, -jnp.inf)
        upper = jnp.where(dropped, box.upper, jnp.inf)
        wide = eqx.tree_at(lambda b: (b.lower, b.upper), box, (lower, upper))
    still, wide = jax.lax.stop_gradient((f, wide))
    pairs = pair_integrals(still.anchors, still.precision, wide)
    matrices = joint_matrices(pairs, pairs.masses)
    mass = quadratic_form(matrices, still.factor)
    bound = quadratic_form(matrices, jnp.abs(still.factor))
    largest = jnp.prod(jnp.stack([jnp.max(jnp.diagonal(g)) for g in matrices]))
    return mass, bound + f.order * largest * jnp.sum(jnp.square(still.factor))


def schur_factor(factor: Float[Array, "m r"], gram: Float[Array, "m m"]) -> Float[Array, "m k"]:
    """A factor of (L L') o G for a positive semidefinite G."""
    if factor.shape[1] == 1:
        return factor * psd_root(gram)
    return psd_root((factor @ factor.T) * gram)


class AxisMap(NamedTuple):
    """Where the variables of a product come from: axes of f, of g, or of both."""

    num_axes: int
    f_axes: tuple[int, ...]
    g_axes: tuple[int, ...]


def product(f: GaussianPSD, g: GaussianPSD, axes: AxisMap) -> GaussianPSD:
    """f g: anchor (i, k) has per shared axis the centre (alpha a + beta b) / (alpha + beta).

    A' = diag(v) (A_f x A_g) diag(v), v_ik = prod over shared axes of
    k_{alpha beta / (alpha + beta)}(a_i, b_k).
    """
    of_f = {variable: axis for axis, variable in enumerate(axes.f_axes)}
    of_g = {variable: axis for axis, variable in enumerate(axes.g_axes)}
    precision = jnp.stack(
        [
            (f.precision[of_f[v]] if v in of_f else jnp.zeros(()))
            + (g.precision[of_g[v]] if v in of_g else jnp.zeros(()))
            for v in range(axes.num_axes)
        ]
    )
    scale = f.log_scale + g.log_scale
    if isinstance(f.anchors, TensorGrid) and isinstance(g.anchors, TensorGrid):
        anchors, factor = _grid_product(f, g, axes.num_axes, of_f, of_g)
    else:
        anchors, factor = _scattered_product(f, g, axes.num_axes, of_f, of_g)
    return GaussianPSD(anchors, factor, precision, scale)


def _fuse(
    a: Float[Array, " m"], b: Float[Array, " k"], alpha: Float[Array, ""], beta: Float[Array, ""]
) -> tuple[Float[Array, "m k"], Float[Array, "m k"]]:
    """Centres of the pair products on one axis, and the exponents they leave behind."""
    total = alpha + beta
    centers = (alpha * a[:, None] + beta * b[None, :]) / total
    return centers, -(alpha * beta / total) * jnp.square(a[:, None] - b[None, :])


def _scattered_product(f, g, num_axes, of_f, of_g):
    x, z = expand(f.anchors), expand(g.anchors)
    columns, exponent = [], jnp.zeros((f.order, g.order))
    for v in range(num_axes):
        if v in of_f and v in of_g:
            i, j = of_f[v], of_g[v]
            center, share = _fuse(x[:, i], z[:, j], f.precision[i], g.precision[j])
            exponent = exponent + share
        elif v in of_f:
            center = jnp.broadcast_to(x[:, of_f[v]][:, None], exponent.shape)
        else:
            center = jnp.broadcast_to(z[:, of_g[v]][None, :], exponent.shape)
        columns.append(center.ravel())
    factor = f.factor[:, None, :, None] * g.factor[None, :, None, :]
    factor = jnp.exp(exponent)[:, :, None, None] * factor
    return jnp.stack(columns, axis=-1), factor.reshape(f.order * g.order, f.rank * g.rank)


def _grid_product(f, g, num_axes, of_f, of_g):
    # One einsum letter per axis of f, of g, and for the two ranks; a shared variable becomes the
    # flattened pair of its two letters.
    letters = iter("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ")
    f_letters = [next(letters) for _ in f.anchors.axes]
    g_letters = [next(letters) for _ in g.anchors.axes]
    f_rank, g_rank = next(letters), next(letters)
    axes, out, operands = [], "", []
    for v in range(num_axes):
        if v in of_f and v in of_g:
            i, j = of_f[v], of_g[v]
            eta, rho = f.precision[i], g.precision[j]
            center, share = _fuse(f.anchors.axes[i], g.anchors.axes[j], eta, rho)
            operands.append((f_letters[i] + g_letters[j], jnp.exp(share)))
            axes.append(center.ravel())
            out += f_letters[i] + g_letters[j]
        elif v in of_f:
            axes.append(f.anchors.axes[of_f[v]])
            out += f_letters[of_f[v]]
        else:
            axes.append(g.anchors.axes[of_g[v]])
            out += g_letters[of_g[v]]
    terms = ["".join(f_letters) + f_rank, "".join(g_letters) + g_rank, *(o[0] for o in operands)]
    tensor = jnp.einsum(
        ",".join(terms) + "->" + out + f_rank + g_rank,
        f.factor.reshape(*f.anchors.shape, f.rank),
        g.factor.reshape(*g.anchors.shape, g.rank),
        *(o[1] for o in operands),
    )
    return TensorGrid(axes), tensor.reshape(-1, f.rank * g.rank)


def transition(q: GaussianPSD, f: GaussianPSD, box: Box | None) -> GaussianPSD:
    """int Q(u, x) f(u) du = k(x)' (A_Q o W) k(x),  W_ij = int k_i(u) k_j(u) f(u) du."""
    return transition_and_bound(q, f, box)[0]


def transition_and_bound(
    q: GaussianPSD, f: GaussianPSD, box: Box | None
) -> tuple[GaussianPSD, Float[Array, ""], Float[Array, ""]]:
    """int Q(u, x) f(u) du = k(x)' (A_Q o W) k(x),  W_ij = int k_i(u) k_j(u) f(u) du.

    The order is that of Q whatever the order of f. If Q lives on a grid, A' = sum_r a_r' W a_r with
    the r-th column of its factor as a matrix a_r (u anchors by x anchors), and the order is the
    number of x anchors. Also the terms of its mass over all x, with their signs and without, as in
    `marginal_bound`.
    """
    u_axes, x_axes = tuple(range(f.dim)), tuple(range(f.dim, q.dim))
    u_anchors = expand(keep_axes(q.anchors, u_axes))
    gram, absolute, log_scale = weighted_grams(u_anchors, q.precision[: f.dim], f, box)
    anchors, eta = keep_axes(q.anchors, x_axes), q.precision[f.dim :]
    if isinstance(q.anchors, TensorGrid):
        by_u = split_grid(q, u_axes, x_axes)
        image = jnp.einsum("ts,txr->xsr", psd_root(gram), by_u)
        factor = shrink_factor(image.reshape(image.shape[0], -1))
        sizes = jnp.einsum("uxr,uv,vzr->xz", jnp.abs(by_u), absolute, jnp.abs(by_u))
    else:
        factor = schur_factor(q.factor, gram)
        sizes = (jnp.abs(q.factor) @ jnp.abs(q.factor).T) * absolute
    model = GaussianPSD(anchors, factor, eta, q.log_scale + log_scale)
    # The Gram matrix of the x anchors over all x, of unit diagonal.
    points = expand(anchors)
    cross = jnp.exp(-squared_distances(points, points, 0.5 * eta))
    mass = quadratic_form((cross,), factor)
    rooted = u_anchors.shape[0] * jnp.max(jnp.diagonal(absolute)) * jnp.sum(jnp.square(q.factor))
    bound = jnp.sum(sizes * cross) + rooted
    return model, *jax.lax.stop_gradient((mass, bound))


def weighted_gram(
    anchors: Float[Array, "n d"],
    precision: Float[Array, " d"],
    f: GaussianPSD,
    box: Box | None,
) -> tuple[Float[Array, "n n"], Float[Array, ""]]:
    """W and s with int k_i k_j f = W_ij exp(s), for kernels on `anchors`."""
    gram, _, log_scale = weighted_grams(anchors, precision, f, box)
    return gram, log_scale


def weighted_grams(
    anchors: Float[Array, "n d"],
    precision: Float[Array, " d"],
    f: GaussianPSD,
    box: Box | None,
) -> tuple[Float[Array, "n n"], Float[Array, "n n"], Float[Array, ""]]:
    """W and s with int k_i k_j f = W_ij exp(s), and W summed over absolute values of its terms.

    Pairs (i, j) against pairs (k, l) of f, each unordered; processed in blocks, with one exponent
    for each (i, j), so that memory is bounded and outlying anchors do not underflow.
    """
    i, j = np.triu_indices(anchors.shape[0])
    k, l = np.triu_indices(f.order)
    v = expand(f.anchors)
    alpha, beta = 2 * precision, 2 * f.precision
    centers = 0.5 * (v[k] + v[l])
    twice = jnp.asarray(np.where(k == l, 1.0, 2.0))
    products = f.factor[k] * f.factor[l]
    amplitudes = twice * jnp.sum(products, axis=-1)
    sizes = twice * jax.lax.stop_gradient(jnp.sum(jnp.abs(products), axis=-1))
    own = -0.5 * jnp.sum(f.precision[None, :] * jnp.square(v[k] - v[l]), axis=-1)
    total = alpha + beta
    zeta = alpha * beta / total

    def one_pair(pair: Float[Array, "2 d"]) -> tuple[Array, Array, Array]:
        middle = 0.5 * (pair[0] + pair[1])
        exponent = own - 0.5 * jnp.sum(precision * jnp.square(pair[0] - pair[1]))
        exponent = exponent - squared_distances(middle[None], centers, zeta)[0]
        mass = jnp.ones_like(amplitudes)
        for axis in range(f.dim):
            if box is None:
                break
            center = (alpha[axis] * middle[axis] + beta[axis] * centers[:, axis]) / total[axis]
            share, tail = scaled_interval_mass(
                box.lower[axis], box.upper[axis], center, total[axis]
            )
            mass, exponent = mass * share, exponent - tail
        peak = jax.lax.stop_gradient(jnp.max(exponent))
        terms = mass * jnp.exp(exponent - peak)
        return amplitudes @ terms, sizes @ jax.lax.stop_gradient(terms), peak

    block = max(1, _ENTRIES_PER_BLOCK // (k.size * f.dim))
    pairs = jnp.stack([anchors[i], anchors[j]], axis=1)
    # Recomputed in the backward pass, which would else keep every block.
    every = jax.checkpoint(one_pair)
    sums, bounds, peaks = jax.lax.map(every, pairs, batch_size=min(block, i.size))
    top = jax.lax.stop_gradient(jnp.max(peaks))
    lift = jnp.exp(peaks - top)
    square = jnp.zeros((anchors.shape[0],) * 2)
    gram, absolute = (
        square.at[i, j].set(entries).at[j, i].set(entries)
        for entries in (sums * lift, bounds * jax.lax.stop_gradient(lift))
    )
    whole = jnp.zeros(()) if box is not None else log_total_mass(total)
    return gram, absolute, top + f.log_scale + whole
