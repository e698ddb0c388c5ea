"""Independent draws from a PSD model on a box, by two methods that share nothing but box masses."""

import math

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from .._checks import as_count, as_key
from .._gaussian.integrals import scaled_interval_mass
from .anchors import expand
from .box import Box, as_box
from .operations import BoxLike, positive_mass
from .psd import GaussianPSD

# Draws handled together: each holds a few m x m tables.
_ENTRIES_PER_BLOCK = 2**21


def sample(
    f: GaussianPSD,
    box: BoxLike,
    *,
    key: PRNGKeyArray,
    num: int,
    method: str = "cdf",
    resolution: float = 2.0**-40,
) -> Float[Array, "n d"]:
    """`num` independent draws from f / int f on the box.

    Args:
        f: the model, not necessarily normalised.
        box: a bounded box; a pair (lower, upper) will do.
        key: a JAX random key.
        num: how many.
        method: "cdf" draws one coordinate after the other by inverting its closed-form conditional
            distribution function; "bisection" halves the box axis by axis, going left with the
            probability of the left half, and is uniform in the last cell.
        resolution: "cdf": where the inversion stops; "bisection": the width of the last cell; both
            as a share of the box. Bisection's total variation error is at most half the cell
            diameter times int |grad f| / int f.
    """
    if not isinstance(f, GaussianPSD):
        raise ValueError(f"f must be a GaussianPSD, got {type(f).__name__}")
    domain = as_box("box", box, f.dim)
    as_key("key", key)
    count = as_count("num", num)
    if method not in ("cdf", "bisection"):
        raise ValueError(f'method must be "cdf" or "bisection", got {method!r}')
    if not 0 < resolution < 1:
        raise ValueError(f"resolution must lie in (0, 1), got {resolution}")
    positive_mass(f, domain)
    draw = _draw_by_cdf if method == "cdf" else _draw_by_bisection
    return draw(f, domain, key, count, math.ceil(-math.log2(resolution)))


def _unordered_pairs(f: GaussianPSD):
    """Weights 2 A_ij k_{eta/2}(X_i, X_j) per axis exponent, and midpoints, of pairs i <= j."""
    x = expand(f.anchors)
    i, j = np.triu_indices(f.order)
    twice = jnp.asarray(np.where(i == j, 1.0, 2.0))
    weights = twice * jnp.sum(f.factor[i] * f.factor[j], axis=-1)
    exponents = -0.5 * f.precision[None, :] * jnp.square(x[i] - x[j])
    return i, j, weights, exponents, 0.5 * (x[i] + x[j])


def _block(num_pairs: int) -> int:
    return max(1, _ENTRIES_PER_BLOCK // num_pairs)


@eqx.filter_jit
def _draw_by_bisection(
    f: GaussianPSD, box: Box, key: PRNGKeyArray, num: int, num_halvings: int
) -> Float[Array, "n d"]:
    _, _, weights, exponents, middles = _unordered_pairs(f)
    weights = weights * jnp.exp(jnp.sum(exponents, axis=1))
    kappa = 2 * f.precision
    wholes = []
    for axis in range(f.dim):
        mass, tail = scaled_interval_mass(
            box.lower[axis], box.upper[axis], middles[:, axis], kappa[axis]
        )
        wholes.append(mass * jnp.exp(-tail))

    def axis_mass(low: Array, high: Array, axis: int) -> Array:
        mass, tail = scaled_interval_mass(low, high, middles[:, axis], kappa[axis])
        return mass * jnp.exp(-tail)

    def halve(carry, step_key):
        lower, upper, masses = carry
        keys = jax.random.split(step_key, f.dim)
        for axis in range(f.dim):
            middle = 0.5 * (lower[axis] + upper[axis])
            others = weights
            for k in range(f.dim):
                others = others * masses[k] if k != axis else others
            left = axis_mass(lower[axis], middle, axis)
            right = axis_mass(middle, upper[axis], axis)
            mass_left = jnp.maximum(jnp.sum(others * left), 0.0)
            mass_right = jnp.maximum(jnp.sum(others * right), 0.0)
            total = mass_left + mass_right
            # A cell whose two masses both round to zero is entered with probability zero; should
            # rounding lead there, either half is as good.
            share = jnp.where(total > 0, mass_left / jnp.where(total > 0, total, 1.0), 0.5)
            go_left = jax.random.uniform(keys[axis]) < share
            lower = lower.at[axis].set(jnp.where(go_left, lower[axis], middle))
            upper = upper.at[axis].set(jnp.where(go_left, middle, upper[axis]))
            chosen = jnp.where(go_left, left, right)
            # Only ratios matter: rescaled, the masses of ever smaller cells stay of size one.
            peak = jnp.max(chosen)
            chosen = chosen / jnp.where(peak > 0, peak, 1.0)
            masses = tuple(chosen if k == axis else m for k, m in enumerate(masses))
        return (lower, upper, masses), None

    def one(draw_key: PRNGKeyArray) -> Float[Array, " d"]:
        walk, last = jax.random.split(draw_key)
        start = (box.lower, box.upper, tuple(wholes))
        (lower, upper, _), _ = jax.lax.scan(halve, start, jax.random.split(walk, num_halvings))
        return lower + (upper - lower) * jax.random.uniform(last, (f.dim,))

    keys = jax.random.split(key, num)
    return jax.lax.map(one, keys, batch_size=min(num, _block(weights.size)))


@eqx.filter_jit
def _draw_by_cdf(
    f: GaussianPSD, box: Box, key: PRNGKeyArray, num: int, num_halvings: int
) -> Float[Array, "n d"]:
    i, j, weights, exponents, middles = _unordered_pairs(f)
    x = expand(f.anchors)
    kappa = 2 * f.precision
    # later[l]: weights with the axes after l integrated out over the box.
    later = [weights]
    for axis in reversed(range(1, f.dim)):
        mass, tail = scaled_interval_mass(
            box.lower[axis], box.upper[axis], middles[:, axis], kappa[axis]
        )
        later.insert(0, later[0] * mass * jnp.exp(exponents[:, axis] - tail))

    def invert(weight: Array, axis: int, level: Array) -> Array:
        weight = weight * jnp.exp(exponents[:, axis])

        def below(t: Array) -> Array:
            mass, tail = scaled_interval_mass(box.lower[axis], t, middles[:, axis], kappa[axis])
            return jnp.sum(weight * mass * jnp.exp(-tail))

        target = level * below(box.upper[axis])

        def halve(_, bracket):
            low, high = bracket
            middle = 0.5 * (low + high)
            left = below(middle) < target
            return jnp.where(left, middle, low), jnp.where(left, high, middle)

        ends = (box.lower[axis], box.upper[axis])
        low, high = jax.lax.fori_loop(0, num_halvings, halve, ends)
        return 0.5 * (low + high)

    def one(draw_key: PRNGKeyArray) -> Float[Array, " d"]:
        levels = jax.random.uniform(draw_key, (f.dim,))
        log_kernel = jnp.zeros(f.order)
        point = []
        for axis in range(f.dim):
            known = jnp.exp(log_kernel - jnp.max(log_kernel))
            point.append(invert(later[axis] * known[i] * known[j], axis, levels[axis]))
            log_kernel = log_kernel - f.precision[axis] * jnp.square(point[-1] - x[:, axis])
        return jnp.stack(point)

    keys = jax.random.split(key, num)
    return jax.lax.map(one, keys, batch_size=min(num, _block(weights.size)))
