"""The operations on generalised models, on checked arguments: Cholesky and Schur complements.

With x the axes that stay and y the others, per component (or per pair),

    partial    P_xx,   h_x - P_xy y,   c + 2 h_y'y - y'P_yy y
    marginal   P_xx - P_xy P_yy^{-1} P_yx,   h_x - P_xy P_yy^{-1} h_y,
               c + h_y' P_yy^{-1} h_y + log C(P_yy),     C(P) = pi^{d/2} |P|^{-1/2}
    product    P, h and c add up.

Every model is measured from an origin of its own: see `generalized`. A partial evaluation moves it
to a value that is far from it, and a product moves both models to one, each along its ridge.
"""

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.linalg import solve_triangular
from jaxtyping import Array, Float

from .._gaussian.integrals import scaled_interval_mass
from .box import Box
from .diagonal import AxisMap, schur_factor
from .generalized import (
    Canonical,
    GeneralizedGaussianPSD,
    PairwiseGaussianPSD,
    about,
    is_far,
    pairwise,
)

Generalized = GeneralizedGaussianPSD | PairwiseGaussianPSD
# Rounding of a logarithm is a relative error of what it is the logarithm of: u for each unit of its
# terms, where errors of sums are counted in 4 u (`rounding.UNIT`).
_OF_LOGS = 0.25


def definite_cholesky(matrix: Float[Array, "d d"]) -> Float[Array, "d d"]:
    """R with R R' = P, and NaN unless P is positive definite beyond rounding.

    Rounding alone leaves pivots of about d eps P_ii in a singular P, which LAPACK would accept.
    """
    chol = jnp.linalg.cholesky(matrix)
    floor = 4 * matrix.shape[0] * jnp.finfo(matrix.dtype).eps * jnp.diagonal(matrix)
    return jnp.where(jnp.all(jnp.square(jnp.diagonal(chol)) > floor), chol, jnp.nan)


def _log_mass(chol: Float[Array, "d d"]) -> Float[Array, ""]:
    """log C(P) for P = R R'."""
    return 0.5 * chol.shape[0] * jnp.log(jnp.pi) - jnp.sum(jnp.log(jnp.diagonal(chol)))


def _gaussian_integral(
    precision: Float[Array, "d d"], linear: Float[Array, " d"], offset: Float[Array, ""]
) -> tuple[Float[Array, ""], Float[Array, ""]]:
    """log int exp(c + 2 h'x - x'Px) dx = c + |R^{-1} h|^2 + log C(P), and |c| + |R^{-1} h|^2.

    NaN unless P > 0.
    """
    chol = definite_cholesky(precision)
    white = solve_triangular(chol, linear, lower=True)
    square = white @ white
    return offset + square + _log_mass(chol), jnp.abs(offset) + square


def _pair_integrals(f: Generalized) -> tuple[Float[Array, "m m"], Float[Array, "m m"]]:
    """log of the integral over R^d of every pair, and how large the terms of that log are."""
    pairs = pairwise(f)
    every = jax.vmap(jax.vmap(_gaussian_integral))
    return every(pairs.precision, pairs.linear, pairs.offset)


def log_pair_integrals(f: Generalized) -> Float[Array, "m m"]:
    """log of the integral over R^d of every pair."""
    return _pair_integrals(f)[0]


def scaled_integral(f: Generalized, box: Box | None) -> tuple[Float[Array, ""], Float[Array, ""]]:
    """z and s with int f = z exp(s), over R^d or, for diagonal precisions, over a box."""
    return integral_and_bound(f, box)[:2]


def integral_and_bound(
    f: Generalized, box: Box | None
) -> tuple[Float[Array, ""], Float[Array, ""], Float[Array, ""]]:
    """The same, and the sum of the absolute values of the terms of z."""
    log_terms, sizes = _pair_integrals(f) if box is None else _box_integrals(f, box)
    peak = jax.lax.stop_gradient(jnp.max(log_terms))
    terms, factor = jnp.exp(log_terms - peak), jnp.abs(f.factor)
    mass = jnp.sum(f.factor * (terms @ f.factor))
    bound = jnp.sum(factor * (terms * (1 + _OF_LOGS * sizes) @ factor))
    return mass, peak + f.log_scale, jax.lax.stop_gradient(bound)


def log_box_integrals(f: Generalized, box: Box) -> Float[Array, "m m"]:
    """log of the integral over a box of every pair, for diagonal precisions."""
    return _box_integrals(f, box)[0]


def _box_integrals(f: Generalized, box: Box) -> tuple[Float[Array, "m m"], Float[Array, "m m"]]:
    """The same, and how large the terms of the log are."""
    pairs = pairwise(f)
    kappa = jnp.diagonal(pairs.precision, axis1=-2, axis2=-1)
    center = pairs.linear / kappa
    ends = box.lower - f.origin, box.upper - f.origin
    lower, upper = (jnp.broadcast_to(b, center.shape) for b in ends)
    mass, tail = scaled_interval_mass(lower, upper, center, kappa)
    squares = jnp.sum(pairs.linear * center, axis=-1)
    exponent = squares + jnp.sum(jnp.log(mass) - tail, axis=-1)
    return pairs.offset + exponent, jnp.abs(pairs.offset) + squares


def off_diagonal(f: Generalized) -> Float[Array, ""]:
    """The largest off-diagonal entry of any precision, in absolute value."""
    mask = 1.0 - jnp.eye(f.dim)
    return jnp.max(jnp.abs(f.precision) * mask.reshape((1,) * (f.precision.ndim - 2) + mask.shape))


def along(
    f: Canonical, axes: tuple[int, ...], values: Float[Array, " k"], only_far: bool
) -> Canonical:
    """f about an origin that has these values on some axes, and lies on its ridge on the others.

    On the other axes x the exponent is largest at P_xx s_x = -P_xy s_y, for a shift s_y of the
    axes y: an origin that is moved along one axis of a conditional density alone would be as far
    from its mass as one that is not moved at all. The mean of all P tells; they may be singular.
    `only_far`: leave the origin where it is unless the values are far from it.
    """
    rest = tuple(a for a in range(f.dim) if a not in axes)
    y = np.asarray(axes, dtype=int)
    shift = jnp.zeros(f.dim).at[y].set(values - f.origin[y])
    shift = jax.lax.stop_gradient(shift)
    matrix = jax.lax.stop_gradient(jnp.mean(f.precision.reshape(-1, f.dim, f.dim), axis=0))
    if only_far:
        shift = jnp.where(is_far(shift, matrix), shift, 0.0)
    if rest:
        x = np.asarray(rest)
        pulled = (matrix @ shift)[x]
        inner = matrix[np.ix_(x, x)]
        follow = jnp.linalg.pinv(inner, rtol=1e-10, hermitian=True) @ pulled
        shift = shift.at[x].set(-follow)
    return about(f, f.origin + shift)


def _partial_component(
    precision: Array, linear: Array, offset: Array, x: np.ndarray, y: np.ndarray, values: Array
) -> tuple[Array, Array, Array]:
    inner = linear[y] - precision[np.ix_(y, y)] @ values
    return (
        precision[np.ix_(x, x)],
        linear[x] - precision[np.ix_(x, y)] @ values,
        offset + (linear[y] + inner) @ values,
    )


def _marginal_component(
    precision: Array, linear: Array, offset: Array, x: np.ndarray, y: np.ndarray
) -> tuple[Array, Array, Array]:
    chol = definite_cholesky(precision[np.ix_(y, y)])
    half = solve_triangular(chol, precision[np.ix_(y, x)], lower=True)
    white = solve_triangular(chol, linear[y], lower=True)
    return (
        precision[np.ix_(x, x)] - half.T @ half,
        linear[x] - half.T @ white,
        offset + white @ white + _log_mass(chol),
    )


def partial(
    f: Generalized, axes: tuple[int, ...], rest: tuple[int, ...], values: Float[Array, " k"]
) -> Generalized:
    """f(x, y0)."""
    x, y = np.asarray(rest), np.asarray(axes)
    f = along(f, axes, values, True)
    z, origin = values - f.origin[y], f.origin[x]
    if isinstance(f, PairwiseGaussianPSD):
        every = jax.vmap(jax.vmap(lambda p, h, c: _partial_component(p, h, c, x, y, z)))
        parts = every(f.precision, f.linear, f.offset)
        return PairwiseGaussianPSD(f.factor, *parts, f.log_scale, origin)
    in_axes = (None if f.is_shared else 0, 0, 0)
    out_axes = (None if f.is_shared else 0, 0, 0)
    every = jax.vmap(lambda p, h, c: _partial_component(p, h, c, x, y, z), in_axes, out_axes)
    parts = every(f.precision, f.linear, f.offset)
    return GeneralizedGaussianPSD(f.factor, *parts, f.log_scale, origin)


def marginal(f: Generalized, keep: tuple[int, ...], drop: tuple[int, ...]) -> Generalized:
    """int f(x, y) dy over all y: per pair, unless one precision is shared."""
    x, y = np.asarray(keep), np.asarray(drop, dtype=int)
    if isinstance(f, GeneralizedGaussianPSD) and f.is_shared:
        return _shared_marginal(f, x, y)
    pairs = pairwise(f)
    every = jax.vmap(jax.vmap(lambda p, h, c: _marginal_component(p, h, c, x, y)))
    parts = every(pairs.precision, pairs.linear, pairs.offset)
    return PairwiseGaussianPSD(f.factor, *parts, f.log_scale, f.origin[x])


def _shared_marginal(
    f: GeneralizedGaussianPSD, x: np.ndarray, y: np.ndarray
) -> GeneralizedGaussianPSD:
    """Marginal of a model with one P, whose pair terms split.

    With w_i = R^{-1} h_yi and R R' = P_yy,

        (h_i + h_j)' (2 P_yy)^{-1} (h_i + h_j) = |w_i|^2 + |w_j|^2 - |w_i - w_j|^2 / 2,

    so the cross term is a Gaussian kernel that goes into A by a Schur product.
    """
    matrix = f.precision
    chol = definite_cholesky(matrix[np.ix_(y, y)])
    half = solve_triangular(chol, matrix[np.ix_(y, x)], lower=True)
    white = solve_triangular(chol, f.linear[:, y].T, lower=True).T
    distance = jnp.sum(jnp.square(white[:, None] - white[None, :]), axis=-1)
    log_volume = _log_mass(jnp.sqrt(2.0) * chol)
    return GeneralizedGaussianPSD(
        schur_factor(f.factor, jnp.exp(-0.5 * distance)),
        matrix[np.ix_(x, x)] - half.T @ half,
        f.linear[:, x] - white @ half,
        f.offset + jnp.sum(jnp.square(white), axis=1),
        f.log_scale + log_volume,
        f.origin[x],
    )


def _embed(axes: AxisMap, which: tuple[int, ...], matrix: Array, linear: Array):
    index = np.asarray(which)
    n = axes.num_axes
    big = jnp.zeros((*matrix.shape[:-2], n, n)).at[..., index[:, None], index[None, :]].set(matrix)
    return big, jnp.zeros((*linear.shape[:-1], n)).at[..., index].set(linear)


def _about_one_origin(
    f: Generalized, g: Generalized, axes: AxisMap
) -> tuple[Generalized, Generalized, Float[Array, " n"]]:
    """Both factors about one origin on the axes that they share, and that of the product.

    The origin of f, or of g where that of f is zero, as in conditional densities that nobody has
    placed yet.
    """
    both = [a for a in axes.f_axes if a in axes.g_axes]
    if both:
        in_f = tuple(axes.f_axes.index(a) for a in both)
        in_g = tuple(axes.g_axes.index(a) for a in both)
        of_f, of_g = f.origin[np.asarray(in_f)], g.origin[np.asarray(in_g)]
        target = jnp.where(of_f == 0, of_g, of_f)
        f, g = along(f, in_f, target, False), along(g, in_g, target, False)
    origin = jnp.zeros(axes.num_axes).at[np.asarray(axes.f_axes)].set(f.origin)
    return f, g, origin.at[np.asarray(axes.g_axes)].set(g.origin)


def product(f: Generalized, g: Generalized, axes: AxisMap) -> Generalized:
    """f g: all pairs of components, canonical parameters added up, A_f x A_g."""
    f, g, origin = _about_one_origin(f, g, axes)
    if isinstance(f, PairwiseGaussianPSD) or isinstance(g, PairwiseGaussianPSD):
        return _pairwise_product(pairwise(f), pairwise(g), axes, origin)
    shared = f.is_shared and g.is_shared
    order = f.order * g.order
    f_matrix, f_linear = _embed(axes, axes.f_axes, f.precision, f.linear)
    g_matrix, g_linear = _embed(axes, axes.g_axes, g.precision, g.linear)
    if shared:
        matrix = f_matrix + g_matrix
    else:
        size = (axes.num_axes,) * 2
        f_all = jnp.broadcast_to(
            f_matrix if f_matrix.ndim == 3 else f_matrix[None], (f.order, *size)
        )
        g_all = jnp.broadcast_to(
            g_matrix if g_matrix.ndim == 3 else g_matrix[None], (g.order, *size)
        )
        matrix = (f_all[:, None] + g_all[None, :]).reshape(order, *size)
    return GeneralizedGaussianPSD(
        jnp.kron(f.factor, g.factor),
        matrix,
        (f_linear[:, None] + g_linear[None, :]).reshape(order, -1),
        (f.offset[:, None] + g.offset[None, :]).ravel(),
        f.log_scale + g.log_scale,
        origin,
    )


def _pairwise_product(
    f: PairwiseGaussianPSD, g: PairwiseGaussianPSD, axes: AxisMap, origin: Float[Array, " n"]
) -> PairwiseGaussianPSD:
    order = f.order * g.order

    def add(a: Array, b: Array) -> Array:
        total = a[:, None, :, None] + b[None, :, None, :]
        return total.reshape(order, order, *total.shape[4:])

    f_matrix, f_linear = _embed(axes, axes.f_axes, f.precision, f.linear)
    g_matrix, g_linear = _embed(axes, axes.g_axes, g.precision, g.linear)
    return PairwiseGaussianPSD(
        jnp.kron(f.factor, g.factor),
        add(f_matrix, g_matrix),
        add(f_linear, g_linear),
        add(f.offset, g.offset),
        f.log_scale + g.log_scale,
        origin,
    )


def moments(f: Generalized) -> tuple[Array, Array, Float[Array, ""], Float[Array, ""]]:
    """Mean sum w m, covariance sum w (P^{-1}/2 + (m - mean)(m - mean)'), z and its absolute terms.

    w_ij = A_ij int B_ij / z are signed weights that sum to one, m_ij = P_ij^{-1} h_ij.
    """
    pairs = pairwise(f)

    def solve(precision: Array, linear: Array) -> tuple[Array, Array]:
        chol = definite_cholesky(precision)
        root = solve_triangular(chol, jnp.eye(f.dim), lower=True)
        return root.T @ (root @ linear), 0.5 * root.T @ root

    centers, spreads = jax.vmap(jax.vmap(solve))(pairs.precision, pairs.linear)
    log_terms = log_pair_integrals(pairs)
    peak = jax.lax.stop_gradient(jnp.max(log_terms))
    terms = (f.factor @ f.factor.T) * jnp.exp(log_terms - peak)
    total = jnp.sum(terms)
    shares = terms / total
    mean = jnp.einsum("ij,ijd->d", shares, centers)
    delta = centers - mean[None, None, :]
    covariance = jnp.einsum("ij,ijde->de", shares, spreads)
    covariance = covariance + jnp.einsum("ij,ijd,ije->de", shares, delta, delta)
    sizes = jnp.abs(f.factor) @ jnp.abs(f.factor).T * jnp.exp(log_terms - peak)
    return f.origin + mean, covariance, total, jax.lax.stop_gradient(jnp.sum(sizes))
