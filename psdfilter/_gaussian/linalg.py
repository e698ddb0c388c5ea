"""Roots of positive semidefinite matrices that stay differentiable when they are singular."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

# Derivative of a root. Any L with L L' = A serves; for a perturbation dA that keeps A positive
# semidefinite to first order, (I - P) dA (I - P) = 0 with P the projector on range(A), and
#
#   1. dL = (I - P/2) dA L^{+T}
#   2. dL L' = (I - P/2) dA P
#   3. dL L' + L dL' = dA P + P dA - P dA P = dA.
#
# Unlike the derivative of an eigendecomposition this has no 1 / (s_i - s_j), so repeated and zero
# eigenvalues do no harm.


def _root_tangent(
    vectors: Float[Array, "m k"], roots: Float[Array, " k"], d_matrix: Float[Array, "m m"]
) -> Float[Array, "m k"]:
    cut = roots > jnp.sqrt(jnp.finfo(roots.dtype).eps * roots.size) * jnp.max(roots)
    inverse_roots = jnp.where(cut, 1.0 / jnp.where(cut, roots, 1.0), 0.0)
    image = d_matrix @ (vectors * inverse_roots[None, :])
    kept = vectors * cut[None, :].astype(vectors.dtype)
    return image - 0.5 * kept @ (kept.T @ image)


@jax.custom_jvp
def psd_root(matrix: Float[Array, "m m"]) -> Float[Array, "m m"]:
    """L with L L' = A for a symmetric positive semidefinite A, by eigenvalues clipped at zero."""
    values, vectors = jnp.linalg.eigh(0.5 * (matrix + matrix.T))
    return vectors * jnp.sqrt(jnp.clip(values, 0.0))[None, :]


@psd_root.defjvp
def _psd_root_jvp(primals, tangents):
    (matrix,), (d_matrix,) = primals, tangents
    values, vectors = jnp.linalg.eigh(0.5 * (matrix + matrix.T))
    roots = jnp.sqrt(jnp.clip(values, 0.0))
    return vectors * roots[None, :], _root_tangent(vectors, roots, 0.5 * (d_matrix + d_matrix.T))


def graded_root(matrix: Float[Array, "m m"]) -> Float[Array, "m m"]:
    """The same for a matrix whose coordinates have very different sizes: scaled to diagonal one.

    Eigenvalues are known to rounding of the largest only, which a coordinate of variance 1e-12
    beside one of 1e16 does not survive.
    """
    # Any scale gives a root of A, so that it is a constant for derivatives.
    scale = jax.lax.stop_gradient(jnp.sqrt(jnp.clip(jnp.diagonal(matrix), 0.0)))
    scale = jnp.where(scale > 0, scale, 1.0)
    return scale[:, None] * psd_root(matrix / scale[:, None] / scale[None, :])


@jax.custom_jvp
def _left_root(factor: Float[Array, "m r"]) -> Float[Array, "m m"]:
    vectors, values, _ = jnp.linalg.svd(factor, full_matrices=False)
    return vectors * values[None, :]


@_left_root.defjvp
def _left_root_jvp(primals, tangents):
    (factor,), (d_factor,) = primals, tangents
    vectors, values, _ = jnp.linalg.svd(factor, full_matrices=False)
    half = d_factor @ factor.T
    return vectors * values[None, :], _root_tangent(vectors, values, half + half.T)


def shrink_factor(factor: Float[Array, "m r"]) -> Float[Array, "m k"]:
    """A factor of the same L L' with at most m columns; the product is never formed."""
    return factor if factor.shape[1] <= factor.shape[0] else _left_root(factor)
