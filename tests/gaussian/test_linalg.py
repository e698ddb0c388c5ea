"""Roots of singular matrices, and derivatives of what is built from them."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import slow
from hypothesis import given
from hypothesis import strategies as st

from psdfilter._gaussian.linalg import psd_root, shrink_factor

seeds = st.integers(0, 2**31 - 1)
root_fn = jax.jit(psd_root)
shrink_fn = jax.jit(shrink_factor)
PROBE = np.random.default_rng(7).normal(size=(6, 6))


def low_rank(seed, rank, columns=6):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(6, rank)) @ rng.normal(size=(rank, columns))


@given(seed=seeds, rank=st.integers(0, 6))
def test_root_squares_to_the_matrix_at_every_rank(seed, rank):
    B = low_rank(seed, rank) if rank else np.zeros((6, 6))
    A = B @ B.T
    L = np.asarray(root_fn(A))
    np.testing.assert_allclose(L @ L.T, A, atol=1e-13 * max(1.0, np.abs(A).max()))


def test_slightly_negative_eigenvalues_are_clipped():
    A = np.diag([1.0, 0.5, 0.0, -1e-17, 0.0, 0.0])
    L = np.asarray(root_fn(A))
    assert np.all(np.isfinite(L))
    np.testing.assert_allclose(L @ L.T, np.clip(A, 0, None), atol=1e-15)


@given(seed=seeds, rank=st.integers(1, 6))
def test_shrinking_keeps_the_product(seed, rank):
    B = low_rank(seed, rank, columns=15)
    L = np.asarray(shrink_fn(B))
    assert L.shape == (6, 6)
    np.testing.assert_allclose(L @ L.T, B @ B.T, atol=1e-13 * np.abs(B @ B.T).max())


def test_a_factor_that_is_narrow_already_is_left_alone():
    B = low_rank(0, 3, columns=4)
    np.testing.assert_array_equal(shrink_fn(B), B)


def functions_of_the_product(L):
    """Numbers that depend on L L' alone: the choice of L must not show in them."""
    A = L @ L.T
    point = jnp.log(jnp.sum(jnp.square(PROBE[0] @ L)))
    return jnp.stack([jnp.sum(PROBE * A), jnp.sum(jnp.square(PROBE @ A)), point])


def derivatives(factor, direction, root_fn):
    """Numeric, forward, backward, and their size, along B + t D: (B + t D)(B + t D)' stays PSD."""

    def of_root(t):
        return functions_of_the_product(root_fn(factor + t * direction))

    def exact(t):
        return np.asarray(functions_of_the_product(jnp.asarray(factor + t * direction)))

    step = 1e-5
    numeric = (exact(step) - exact(-step)) / (2 * step)
    size = np.max(np.abs(exact(0.0))) + np.max(np.abs(numeric))
    return numeric, jax.jit(jax.jacfwd(of_root))(0.0), jax.jit(jax.jacrev(of_root))(0.0), size


@pytest.mark.long
@pytest.mark.parametrize("rank", [slow(1), 3, slow(6)])
def test_derivatives_at_singular_matrices_match_finite_differences(rank):
    B, D = low_rank(3, rank, columns=rank), low_rank(4, rank, columns=rank)
    numeric, forward, backward, size = derivatives(B, D, lambda X: psd_root(X @ X.T))
    np.testing.assert_allclose(forward, numeric, rtol=1e-6, atol=1e-9 * size)
    np.testing.assert_allclose(backward, forward, rtol=1e-10, atol=1e-12 * size)


@pytest.mark.long
@pytest.mark.parametrize("rank", [2, slow(6)])
def test_derivatives_of_shrunken_factors_match_finite_differences(rank):
    B, rng = low_rank(5, rank, columns=9), np.random.default_rng(6)
    # At full rank any direction; at a lower one a direction that keeps the range.
    D = rng.normal(size=(6, 9)) if rank == 6 else B @ rng.normal(size=(9, 9))
    numeric, forward, backward, size = derivatives(B, D, shrink_factor)
    np.testing.assert_allclose(forward, numeric, rtol=1e-6, atol=1e-9 * size)
    np.testing.assert_allclose(backward, forward, rtol=1e-10, atol=1e-12 * size)


def test_repeated_and_zero_eigenvalues_give_finite_derivatives():
    gradient_fn = jax.jit(jax.grad(lambda a: jnp.sum(PROBE * (psd_root(a) @ psd_root(a).T))))
    for A in (np.eye(6), np.zeros((6, 6)), np.diag([1.0, 1, 0, 0, 0, 0])):
        gradient = gradient_fn(jnp.asarray(A))
        assert np.all(np.isfinite(gradient))
