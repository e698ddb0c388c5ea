"""Quantiles, draws and expectations from densities at Gauss-Legendre nodes, or graded ones.

Densities are smooth and the nodes resolve them, so a density is its interpolating polynomial: its
distribution function is that polynomial's integral, inverted by bisection. Graded nodes u(s) are
Gauss-Legendre nodes in s, with weights times du/ds: the density of s is interpolated instead, and
its quantiles are carried to u.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from .._gaussian.quadrature import legendre_rule
from .._gaussian.spectrum import legendre_transform


def _integrated_basis(x: Float[Array, " n"], num: int) -> Float[Array, "n k"]:
    """int_{-1}^x P_k for k < num: (P_{k+1} - P_{k-1}) / (2 k + 1), and x + 1 for k = 0."""

    def recur(carry, k):
        before, here = carry
        after = ((2 * k + 1) * x * here - k * before) / (k + 1)
        return (here, after), (after - before) / (2 * k + 1)

    degrees = jnp.arange(1.0, num)
    _, rest = jax.lax.scan(recur, (jnp.ones_like(x), x), degrees)
    return jnp.concatenate([(x + 1.0)[:, None], rest.T], axis=1)


def line_quantiles(
    values: Float[Array, "t n"], q: Float[Array, "t k"], num_halvings: int = 44
) -> Float[Array, "t k"]:
    """z with int_{-1}^z f = q int f for densities at n Gauss-Legendre nodes of (-1, 1)."""
    num = values.shape[1]
    coefficients = values @ jnp.asarray(legendre_transform(num)[1]).T

    def one(c: Float[Array, " n"], level: Float[Array, ""]) -> Float[Array, ""]:
        target = level * 2 * c[0]

        def halve(_, bracket):
            low, high = bracket
            middle = 0.5 * (low + high)
            below = (_integrated_basis(middle[None], num)[0] @ c) < target
            return jnp.where(below, middle, low), jnp.where(below, high, middle)

        low, high = jax.lax.fori_loop(0, num_halvings, halve, (-jnp.ones(()), jnp.ones(())))
        return 0.5 * (low + high)

    return jax.vmap(jax.vmap(one, (None, 0)))(coefficients, q)


def axis_marginal(
    values: Float[Array, "t n"], shape: tuple[int, ...], weights: tuple[Array, ...], axis: int
) -> Float[Array, "t k"]:
    """Values of the marginal of one axis at its nodes."""
    tensor = values.reshape(values.shape[0], *shape)
    for other in reversed(range(len(shape))):
        if other != axis:
            tensor = jnp.tensordot(tensor, weights[other], axes=(other + 1, 0))
    return tensor


def _interpolation(x: Float[Array, ""], num: int) -> Float[Array, " n"]:
    """Weights that evaluate at x the polynomial through values at n Gauss-Legendre nodes."""
    _, transform = legendre_transform(num)

    def recur(carry, k):
        before, here = carry
        after = ((2 * k + 1) * x * here - k * before) / (k + 1)
        return (here, after), here

    _, polynomials = jax.lax.scan(recur, (jnp.zeros(()), jnp.ones(())), jnp.arange(0.0, num))
    return polynomials @ jnp.asarray(transform)


def graded_quantiles(
    values: Float[Array, "t n"],
    q: Float[Array, "t k"],
    nodes: Float[Array, " n"],
    weights: Float[Array, " n"],
) -> Float[Array, "t k"]:
    """`line_quantiles` for densities at the nodes of any rule that is graded Gauss-Legendre."""
    num = values.shape[1]
    slope = weights / legendre_rule(num)[1]
    s = line_quantiles(values * slope[None, :], q)
    return jax.vmap(jax.vmap(lambda one: _interpolation(one, num) @ nodes))(s)


def graded_cdfs(
    values: Float[Array, "t n"],
    x: Float[Array, " t"],
    nodes: Float[Array, " n"],
    weights: Float[Array, " n"],
    num_halvings: int = 44,
) -> Float[Array, " t"]:
    """int_{-1}^x f / int f, for densities at the nodes of a graded Gauss-Legendre rule."""
    num = values.shape[1]
    slope = weights / legendre_rule(num)[1]
    coefficients = (values * slope[None, :]) @ jnp.asarray(legendre_transform(num)[1]).T

    def one(c: Float[Array, " n"], point: Float[Array, ""]) -> Float[Array, ""]:
        def halve(_, bracket):
            low, high = bracket
            middle = 0.5 * (low + high)
            below = _interpolation(middle, num) @ nodes < point
            return jnp.where(below, middle, low), jnp.where(below, high, middle)

        low, high = jax.lax.fori_loop(0, num_halvings, halve, (-jnp.ones(()), jnp.ones(())))
        s = jnp.where(point <= -1, -1.0, jnp.where(point >= 1, 1.0, 0.5 * (low + high)))
        return jnp.clip(_integrated_basis(s[None], num)[0] @ c / (2 * c[0]), 0.0, 1.0)

    return jax.vmap(one)(coefficients, x)


def draw(
    values: Float[Array, " n"],
    nodes: tuple[Array, ...],
    weights: tuple[Array, ...],
    key: PRNGKeyArray,
) -> Float[Array, " d"]:
    """One draw in unit coordinates: axis by axis, each given those before."""
    sizes = [z.shape[0] for z in nodes]
    levels = jax.random.uniform(key, (len(sizes),))
    point, rest = [], values
    for axis, (z, w) in enumerate(zip(nodes, weights, strict=True)):
        line = axis_marginal(rest[None], tuple(sizes), weights[axis:], 0)
        slope = w / legendre_rule(sizes[0])[1]
        level = levels[axis][None, None]
        s = line_quantiles(jnp.maximum(line, 0.0) * slope[None, :], level)[0, 0]
        at = _interpolation(s, sizes[0])
        point.append(at @ z)
        if len(sizes) > 1:
            rest = jnp.maximum(at @ rest.reshape(sizes[0], -1), 0.0)
            sizes = sizes[1:]
    return jnp.stack(point)
