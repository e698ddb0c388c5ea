"""Least squares over positive semidefinite matrices, by Newton's method on the dual.

    min_{B >= 0}  1/2 |R(B) - b|^2 + lambda/2 |B|_F^2,      R(B)_k = <R_k, B>,  k = 1..p

The dual variable beta has one entry for each row of R, not one for each entry of B:

    min_beta  theta(beta) = 1/2 |[R* beta]_+|_F^2 + lambda/2 |beta|^2 - b' beta,  B = [R* beta]_+

theta is convex and once differentiable with a semismooth gradient F = R(B) + lambda beta - b
(Qi & Sun 2006 for correlation matrices), and for this pair (B, beta) the duality gap of the
program is exactly |F|^2 / 2: with <R(B), beta> = <B, R* beta> = |B|_F^2,

    primal - dual = 1/2 |R(B) - b|^2 + lambda/2 |B|^2 + lambda theta(beta) = 1/2 |F|^2.
"""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

# Sufficient decrease of the line search, and its last trial step 2^-_HALVINGS.
_ARMIJO = 1e-4
_HALVINGS = 30


class PsdSolution(NamedTuple):
    """B as its eigenvectors and non-negative eigenvalues, and how well it solves the program."""

    eigenvectors: Float[Array, "r r"]
    eigenvalues: Float[Array, " r"]
    dual: Float[Array, " p"]
    residual: Float[Array, ""]  # |F| / |b|; the duality gap is |F|^2 / 2
    primal: Float[Array, ""]
    iterations: Int[Array, ""]


class _State(NamedTuple):
    beta: Float[Array, " p"]
    values: Float[Array, " r"]
    vectors: Float[Array, "r r"]
    gradient: Float[Array, " p"]
    theta: Float[Array, ""]
    iteration: Int[Array, ""]
    stalled: Bool[Array, ""]


@eqx.filter_jit
def psd_least_squares(
    rows: Float[Array, "p r r"],
    target: Float[Array, " p"],
    ridge: Float[Array, ""],
    start: Float[Array, " p"] | None = None,
    *,
    tol: float = 1e-12,
    max_iterations: int = 100,
) -> PsdSolution:
    """argmin over B >= 0 of 1/2 |R(B) - b|^2 + ridge/2 |B|_F^2, to |F| <= tol |b|.

    `start` is a dual variable to begin from, such as the one of a neighbouring ridge.
    """
    scale = jnp.linalg.norm(target)
    scale = jnp.where(scale > 0, scale, 1.0)

    def going(state: _State) -> Bool[Array, ""]:
        far = jnp.linalg.norm(state.gradient) > tol * scale
        return far & ~state.stalled & (state.iteration < max_iterations)

    def step(state: _State) -> _State:
        return _newton_step(rows, target, ridge, state)

    state = (
        _origin(rows, target)
        if start is None
        else _evaluate(rows, target, ridge, start, jnp.asarray(0))
    )
    state = jax.lax.while_loop(going, step, state)
    clipped = jnp.clip(state.values, 0.0)
    misfit = state.gradient - ridge * state.beta
    primal = 0.5 * jnp.sum(jnp.square(misfit)) + 0.5 * ridge * jnp.sum(jnp.square(clipped))
    residual = jnp.linalg.norm(state.gradient) / scale
    return PsdSolution(state.vectors, clipped, state.beta, residual, primal, state.iteration)


def _adjoint(rows: Float[Array, "p r r"], beta: Float[Array, " p"]) -> Float[Array, "r r"]:
    return jnp.tensordot(beta, rows, axes=1)


def _origin(rows: Float[Array, "p r r"], target: Float[Array, " p"]) -> _State:
    """beta = 0, with eigenvalues of one in place of zero: the first step ignores the constraint."""
    identity = jnp.eye(rows.shape[1])
    nothing = jnp.asarray(0.0)
    ones = jnp.ones(rows.shape[1])
    return _State(
        jnp.zeros_like(target), ones, identity, -target, nothing, jnp.asarray(0), jnp.asarray(False)
    )


def _evaluate(rows, target, ridge, beta, iteration) -> _State:
    values, vectors = jnp.linalg.eigh(_adjoint(rows, beta))
    clipped = jnp.clip(values, 0.0)
    matrix = (vectors * clipped[None, :]) @ vectors.T
    gradient = jnp.tensordot(rows, matrix, axes=2) + ridge * beta - target
    theta = 0.5 * (jnp.sum(jnp.square(clipped)) + ridge * beta @ beta) - target @ beta
    return _State(beta, values, vectors, gradient, theta, iteration, jnp.asarray(False))


def _newton_matrix(rows, ridge, values, vectors) -> Float[Array, "p p"]:
    """lambda I + R P'(Y) R*, P'(Y)[S] = V (Omega * (V' S V)) V' for Y = V diag(values) V'.

    Omega_ij is 1 for two positive eigenvalues, 0 for two others, v_i / (v_i - v_j) for
    v_i > 0 >= v_j.
    """
    positive = values > 0
    clipped = jnp.clip(values, 0.0)
    both = positive[:, None] & positive[None, :]
    mixed = positive[:, None] ^ positive[None, :]
    above = jnp.maximum(clipped[:, None], clipped[None, :])
    spread = jnp.abs(values[:, None] - values[None, :])
    omega = jnp.where(both, 1.0, jnp.where(mixed, above / jnp.where(mixed, spread, 1.0), 0.0))
    rotated = jnp.einsum("ia,kab,bj->kij", vectors.T, rows, vectors)
    flat = (jnp.sqrt(omega)[None] * rotated).reshape(rows.shape[0], -1)
    return flat @ flat.T + ridge * jnp.eye(rows.shape[0])


def _newton_step(rows, target, ridge, state: _State) -> _State:
    matrix = _newton_matrix(rows, ridge, state.values, state.vectors)
    factor = jax.scipy.linalg.cho_factor(matrix, lower=True)
    direction = -jax.scipy.linalg.cho_solve(factor, state.gradient)
    slope = state.gradient @ direction
    size = jnp.linalg.norm(state.gradient)

    def trial(length: Float[Array, ""]) -> _State:
        return _evaluate(rows, target, ridge, state.beta + length * direction, state.iteration + 1)

    def accepted(length: Float[Array, ""], new: _State) -> Bool[Array, ""]:
        # Close to the solution theta is flat to rounding and only the gradient can tell.
        decrease = new.theta <= state.theta + _ARMIJO * length * slope
        return decrease | (jnp.linalg.norm(new.gradient) <= 0.5 * size)

    def searching(carry) -> Bool[Array, ""]:
        length, new = carry
        return ~accepted(length, new) & (length > 2.0**-_HALVINGS)

    def halve(carry):
        length, _ = carry
        return 0.5 * length, trial(0.5 * length)

    # The first trial is the full step: the carry before it is a step of two that nothing accepts.
    unacceptable = state._replace(theta=jnp.asarray(jnp.inf), gradient=state.gradient * jnp.inf)
    length, new = jax.lax.while_loop(searching, halve, (jnp.asarray(2.0), unacceptable))
    smaller = jnp.linalg.norm(new.gradient) < size
    no_gain = ~accepted(length, new) | (~smaller & (new.theta >= state.theta))
    kept = jax.tree.map(lambda old, now: jnp.where(no_gain, old, now), state, new)
    return kept._replace(iteration=new.iteration, stalled=no_gain)
