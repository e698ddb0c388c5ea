"""One Gaussian through a smooth function: its linear part, and what that leaves out.

In coordinates x = m + L z, z ~ N(0, I), a function g is expanded in Hermite polynomials,

    g(m + L z) = a + A z + 1/2 (z' C z - tr C) + higher terms,

with coefficients a = E g, A = E g z', C = E g (z z' - 1), from a rule that is exact for polynomials
of degree five. The first two terms are the linearisation that is best on average (not at a point);
for a linear g it is g itself. The size of the third is what splitting goes by.
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
        outer = np.einsum("ni,nj->nij", self.points, self.points) - np.eye(self.points.shape[1])
        return np.moveaxis(self.weights[:, None, None] * outer, 0, -1)


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
    """a, A and C of a function with k values."""

    mean: Float[Array, " k"]
    slope: Float[Array, "k d"]
    curvature: Float[Array, "k d d"]

    def bent(self) -> Float[Array, "k k"]:
        """Covariance of the quadratic part, 1/2 tr C_i C_j."""
        return 0.5 * jnp.einsum("iab,jab->ij", self.curvature, self.curvature)


def coefficients(rule: Rule, values: Float[Array, "n k"]) -> Expansion:
    """The expansion of a function with these values at the points of the rule."""
    # Relative to the value in the middle, so that an offset costs no digits.
    centre = values[0]
    delta = values - centre[None, :]
    quadratic = jnp.asarray(rule.quadratic)
    return Expansion(
        centre + jnp.asarray(rule.weights) @ delta,
        (jnp.asarray(rule.linear) @ delta).T,
        jnp.moveaxis(quadratic @ delta, -1, 0),
    )


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
    bend: Float[Array, ""]  # rms of the quadratic part in units of the new covariance
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
