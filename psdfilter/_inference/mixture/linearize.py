"""One Gaussian through a smooth function: its linear part, and what that leaves out.

In coordinates x = m + L z, z ~ N(0, I), a function g is expanded in Hermite polynomials,

    g(m + L z) = a + A z + 1/2 (z' C z - tr C) + higher terms,

with coefficients a = E g, A = E g z', C = E g (z z' - 1), from a rule that is exact for polynomials
of degree five. The first two terms are the linearisation that is best on average (not at a point);
for a linear g it is g itself. The size of the third is what splitting goes by, and of the higher
ones as far as the points show them: where a function turns from one side to the other, as sin does
at zero, there is no third.
"""

from collections.abc import Callable
from functools import lru_cache
from itertools import combinations
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..._gaussian.conditioning import symmetric
from ..._gaussian.small import forward_solve, semidefinite_cholesky


class Rule(NamedTuple):
    """E g(z) = sum_i w_i g(z_i) for z ~ N(0, I), of degree five; z_0 = 0."""

    points: np.ndarray  # (n, d)
    weights: np.ndarray  # (n,)

    @property
    def linear(self) -> np.ndarray:
        """w_i z_i, (d, n): coefficients of z."""
        return (self.weights[:, None] * self.points).T

    @property
    def quadratic(self) -> np.ndarray:
        """w_i (z_i z_i' - 1), (d, d, n): coefficients of the second Hermite polynomials."""
        return self.weights * self.hermite

    @property
    def hermite(self) -> np.ndarray:
        """z_i z_i' - 1, (d, d, n)."""
        outer = np.einsum("ni,nj->nij", self.points, self.points) - np.eye(self.points.shape[1])
        return np.moveaxis(outer, 0, -1)

    @property
    def directions(self) -> np.ndarray:
        """|w_i| z_i z_i' / |z_i|^2, (d, d, n); the middle has none, or all."""
        dim = self.points.shape[1]
        length = np.linalg.norm(self.points, axis=1, keepdims=True)
        unit = self.points / np.maximum(length, 1e-300)
        outer = np.einsum("ni,nj->nij", unit, unit)
        outer[0] = np.eye(dim) / dim
        return np.moveaxis(np.abs(self.weights)[:, None, None] * outer, 0, -1)


@lru_cache(maxsize=8)
def fifth_degree_rule(dim: int) -> Rule:
    """McNamee and Stenger's rule of 2 d^2 + 1 points; Gauss-Hermite with five if d = 1."""
    if dim == 1:
        nodes, weights = np.polynomial.hermite_e.hermegauss(5)
        order = np.argsort(np.abs(nodes), kind="stable")
        nodes = np.where(np.abs(nodes) < 1e-12, 0.0, nodes)
        return Rule(nodes[order, None], weights[order] / weights.sum())
    far, near = np.sqrt(dim + 2.0), np.sqrt((dim + 2.0) / 2)
    points, weights = [np.zeros(dim)], [2.0 / (dim + 2)]
    for axis in range(dim):
        for sign in (1, -1):
            points.append(sign * far * np.eye(dim)[axis])
            weights.append((4 - dim) / (2.0 * (dim + 2) ** 2))
    for i, j in combinations(range(dim), 2):
        for first in (1, -1):
            for second in (1, -1):
                points.append(near * (first * np.eye(dim)[i] + second * np.eye(dim)[j]))
                weights.append(1.0 / (dim + 2) ** 2)
    return Rule(np.asarray(points), np.asarray(weights))


class Expansion(NamedTuple):
    """a, A and C of a function with k values, and the higher terms at the points of the rule."""

    mean: Float[Array, " k"]
    slope: Float[Array, "k d"]
    curvature: Float[Array, "k d d"]
    rest: Float[Array, "k n"]

    def bent(self) -> Float[Array, "k k"]:
        """Covariance of the quadratic part, 1/2 tr C_i C_j."""
        return 0.5 * jnp.einsum("iab,jab->ij", self.curvature, self.curvature)


def coefficients(rule: Rule, values: Float[Array, "n k"]) -> Expansion:
    """The expansion of a function with these values at the points of the rule."""
    # Relative to the value in the middle, so that an offset costs no digits.
    centre = values[0]
    delta = values - centre[None, :]
    mean = jnp.asarray(rule.weights) @ delta
    slope = (jnp.asarray(rule.linear) @ delta).T
    curvature = jnp.moveaxis(jnp.asarray(rule.quadratic) @ delta, -1, 0)
    hermite = jnp.asarray(rule.hermite)
    known = slope @ jnp.asarray(rule.points).T + 0.5 * jnp.einsum("kab,abn->kn", curvature, hermite)
    return Expansion(centre + mean, slope, curvature, delta.T - mean[:, None] - known)


def expand(
    fn: Callable[[Array], Array], mean: Float[Array, " d"], root: Float[Array, "d d"]
) -> Expansion:
    """The expansion of fn for N(m, L L')."""
    rule = fifth_degree_rule(mean.size)
    points = mean[None, :] + jnp.asarray(rule.points) @ root.T
    return coefficients(rule, jax.vmap(fn)(points))


class Pushed(NamedTuple):
    """N(m, S) through a function, with noise added: its moments, and how bent it is."""

    mean: Float[Array, " k"]
    covariance: Float[Array, "k k"]
    slope: Float[Array, "k d"]
    bend: Float[Array, ""]  # rms of what is not linear in units of the new covariance
    bend_by_axis: Float[Array, "d d"]  # its square, as a form of the direction in z


def push(expansion: Expansion, noise: Float[Array, "k k"]) -> Pushed:
    """Moments of g(x) + N(0, W), up to terms of third order in the spread.

    With e = 1/2 (z'Cz - tr C) whitened by the new covariance, the density of g(x) is off by
    div(p e), in total variation about 1.2 times the rms of e: see `tests`.
    """
    covariance = symmetric(expansion.slope @ expansion.slope.T + expansion.bent() + noise)
    chol = semidefinite_cholesky(covariance)
    white = forward_solve(chol, expansion.curvature)
    square = 0.5 * jnp.einsum("kab,kbc->ac", white, white)
    rest = jnp.sum(jnp.square(forward_solve(chol, expansion.rest)), axis=0)
    rule = fifth_degree_rule(expansion.slope.shape[1])
    square = square + jnp.asarray(rule.directions) @ rest
    return Pushed(expansion.mean, covariance, expansion.slope, jnp.sqrt(jnp.trace(square)), square)


def main_direction(form: Float[Array, "d d"]) -> Float[Array, " d"]:
    """The unit vector v of largest v'Mv, M positive semidefinite, by repeated squaring.

    64 steps of the power method in six products; where two directions tie, one between them.
    """
    dim = form.shape[0]
    if dim == 1:
        return jnp.ones(1)
    size = jnp.trace(form)
    power = jnp.where(size > 0, form / jnp.where(size > 0, size, 1.0), jnp.eye(dim) / dim)
    for _ in range(6):
        power = power @ power
        power = power / jnp.trace(power)
    column = power[:, jnp.argmax(jnp.diagonal(power))]
    return column / jnp.sqrt(jnp.sum(jnp.square(column)))
