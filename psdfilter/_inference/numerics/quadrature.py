"""Quantiles, draws and expectations from densities at Gauss-Legendre nodes, or graded ones.

Densities are smooth and the nodes resolve them, so a density is its interpolating polynomial: its
distribution function is that polynomial's integral, inverted by Newton's method. Graded nodes u(s)
are Gauss-Legendre nodes in s, with weights times du/ds: the density of s is interpolated instead,
and its quantiles are carried to u.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from ..._gaussian.quadrature import legendre_rule
from ..._gaussian.spectrum import legendre_transform


def _integrated_basis(x: Float[Array, " n"], num: int) -> Float[Array, "n k"]:
    """int_{-1}^x P_k for k < num: (P_{k+1} - P_{k-1}) / (2 k + 1), and x + 1 for k = 0."""

    def recur(carry, k):
        before, here = carry
        after = ((2 * k + 1) * x * here - k * before) / (k + 1)
        return (here, after), (after - before) / (2 * k + 1)

    degrees = jnp.arange(1.0, num)
    _, rest = jax.lax.scan(recur, (jnp.ones_like(x), x), degrees)
    return jnp.concatenate([(x + 1.0)[:, None], rest.T], axis=1)


# Most steps of Newton's method after a start between two nodes. Three or four are enough where
# there is mass; in a valley between two modes the bracket is halved instead.
_NEWTON = 40
# Share of the whole mass that a level may be off by: what rounding leaves of the sums.
_LEVEL = 1e-13
# Nodes of a local polynomial, of degree seven with their slopes, and steps of Newton's method on
# it: where nodes resolve a density it is right to about 1e-8, and one step on the whole remains.
_LOCAL, _LOCAL_STEPS = 4, 3


def line_quantiles(values: Float[Array, "t n"], q: Float[Array, "t k"]) -> Float[Array, "t k"]:
    """z with int_{-1}^z f = q int f for densities at n Gauss-Legendre nodes of (-1, 1).

    The distribution function at the nodes is one matrix product. Between two of them Newton's
    method starts from the quantile of a local polynomial through four nodes, and halves the bracket
    wherever a step would leave it.
    """
    num = values.shape[1]
    transform = jnp.asarray(legendre_transform(num)[1])
    nodes = jnp.asarray(legendre_rule(num)[0])
    coefficients = values @ transform.T
    at_nodes = coefficients @ _integrated_basis(nodes, num).T
    ends = jnp.concatenate([-jnp.ones(1), nodes, jnp.ones(1)])

    def one(c: Array, inside: Array, line: Array, level: Array) -> Float[Array, ""]:
        target = level * 2 * c[0]
        known = jnp.concatenate([jnp.zeros(1), inside, 2 * c[:1]])
        # The first crossing: where there is next to no mass the polynomial may fall a little.
        place = jnp.clip(jnp.argmax(known >= target) - 1, 0, num)
        low, high = ends[place], ends[place + 1]
        below, above = known[place], known[place + 1]
        share = (target - below) / jnp.where(above > below, above - below, 1.0)
        start = low + jnp.clip(share, 0.0, 1.0) * (high - low)
        width, total = high - low, jnp.abs(2 * c[0])
        if num >= _LOCAL:
            at = jnp.clip(place - _LOCAL // 2, 0, num - _LOCAL)
            near = [jax.lax.dynamic_slice(a, (at,), (_LOCAL,)) for a in (nodes, inside, line)]
            start = _local_quantile((start, low, high), target, near)

        def going(state):
            count, _, _, _, done = state
            return (count < _NEWTON) & ~done

        def step(state):
            count, low, high, z, _ = state
            mass, density = _mass_and_density(z, c)
            low, high = jnp.where(mass < target, z, low), jnp.where(mass < target, high, z)
            new = z - (mass - target) / jnp.where(density > 0, density, 1.0)
            good = (density > 0) & (new >= low) & (new <= high)
            # A step leaves r^2 f' / (2 f^2) of a residual r, and f' is at most about f / width.
            left = jnp.square(mass - target) <= 2 * _LEVEL * total * density * width
            here = jnp.abs(mass - target) <= _LEVEL * total
            new = jnp.where(good, new, jnp.where(here, z, 0.5 * (low + high)))
            return count + 1, low, high, new, here | (good & left)

        first = (jnp.asarray(0), low, high, start, jnp.asarray(False))
        return jax.lax.while_loop(going, step, first)[3]

    return jax.vmap(jax.vmap(one, (None, None, None, 0)))(coefficients, at_nodes, values, q)


def _local_quantile(
    bracket: tuple[Array, Array, Array], target: Array, near: list[Float[Array, " k"]]
) -> Float[Array, ""]:
    """Where the polynomial through F and its slopes f at nearby nodes reaches the target."""
    start, low, high = bracket
    nodes, masses, slopes = near
    scale = nodes[-1] - nodes[0]
    x = jnp.repeat((nodes - nodes[0]) / scale, 2)
    # Divided differences of F over nodes that are all taken twice (Hermite).
    column = jnp.repeat(masses - target, 2)
    coefficients = [column[0]]
    for order in range(1, 2 * len(nodes)):
        gaps = x[order:] - x[:-order]
        twice = jnp.arange(gaps.shape[0]) % 2 == 0 if order == 1 else jnp.zeros(gaps.shape, bool)
        change = (column[1:] - column[:-1]) / jnp.where(twice, 1.0, gaps)
        if order == 1:
            change = jnp.where(twice, jnp.repeat(slopes * scale, 2)[:-1], change)
        column = change
        coefficients.append(column[0])
    z = (start - nodes[0]) / scale
    ends = (low - nodes[0]) / scale, (high - nodes[0]) / scale
    for _ in range(_LOCAL_STEPS):
        value, slope = coefficients[-1], jnp.zeros(())
        for k in reversed(range(len(coefficients) - 1)):
            slope = slope * (z - x[k]) + value
            value = value * (z - x[k]) + coefficients[k]
        z = jnp.clip(z - value / jnp.where(slope > 0, slope, jnp.inf), *ends)
    return nodes[0] + scale * z


def _mass_and_density(x: Float[Array, ""], c: Float[Array, " n"]) -> tuple[Array, Array]:
    """int_{-1}^x f and f(x) for f = sum_k c_k P_k, in one recurrence."""

    def recur(carry, at):
        before, here, mass, density = carry
        k, coefficient = at
        after = ((2 * k + 1) * x * here - k * before) / (k + 1)
        mass = mass + coefficient * (after - before) / (2 * k + 1)
        return (here, after, mass, density + coefficient * here), None

    start = jnp.ones_like(x), x, c[0] * (x + 1.0), c[0]
    degrees = jnp.arange(1.0, c.shape[0])
    # Unrolled, so that the carry stays in registers.
    (_, _, mass, density), _ = jax.lax.scan(recur, start, (degrees, c[1:]), unroll=16)
    return mass, density


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
    # The grading u(s) is a series of the same polynomials: no interpolation for each quantile.
    grading = jnp.asarray(legendre_transform(num)[1]) @ nodes
    return jax.vmap(jax.vmap(lambda one: _mass_and_density(one, grading)[1]))(s)


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
