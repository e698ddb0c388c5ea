"""Independent draws from a PSD model on a box, by two methods that share nothing but box masses."""

import math
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from .._checks import as_count, as_key, check_values, is_concrete, is_traced, verified
from .._gaussian.integrals import scaled_interval_mass
from .anchors import expand
from .block_sampling import sample_blocks
from .blocks import GaussianBlocks
from .box import Box
from .generalized import GeneralizedGaussianPSD, PairwiseGaussianPSD
from .mass import (
    BoxLike,
    as_model,
    closed_integral,
    num_pairs,
    optional_box,
    positive_mass,
    scaled_integral,
)
from .moments import quantile
from .operations import Model
from .psd import GaussianPSD
from .rounding import COSTLY, LIMIT, require_digits
from .signed_terms import draw_terms, signed_terms
from .support import effective_box

_WHAT = "the distribution function of f, which draws go by,"
# Draws handled together: each holds a few m x m tables.
_ENTRIES_PER_BLOCK = 2**21


def sample(
    f: Model,
    box: BoxLike | None = None,
    *,
    key: PRNGKeyArray,
    num: int,
    method: str = "cdf",
    resolution: float = 2.0**-40,
) -> Float[Array, "n d"]:
    """`num` independent draws from f / int f on the box.

    Args:
        f: the model, not necessarily normalised.
        box: where; a pair (lower, upper) will do. Infinite bounds are cut where f has no mass left.
            None for all of R^d, where generalised models and sums of blocks are drawn from.
        key: a JAX random key.
        num: how many.
        method: "cdf" draws one coordinate after the other by inverting its closed-form conditional
            distribution function, and draws have derivatives in f; "bisection" halves the box axis
            by axis, going left with the probability of the left half, and is uniform in the last
            cell: no derivatives.
        resolution: "cdf": where the inversion stops; "bisection": the width of the last cell; both
            as a share of the part of the box where f has mass. The total variation error of
            bisection is at most half the cell diameter times int |grad f| / int f.
    """
    f = as_model("f", f)
    domain = optional_box(box, f.dim)
    _ = as_key("key", key)
    count = as_count("num", num)
    if method not in ("cdf", "bisection"):
        raise ValueError(f'method must be "cdf" or "bisection", got {method!r}')
    if not isinstance(resolution, float) or not 0 < resolution < 1:
        raise ValueError(f"resolution must be a number in (0, 1), got {resolution!r}")
    if not isinstance(f, GaussianPSD):
        return _sample_everywhere(f, domain, key, count, method)
    if domain is None:
        domain = Box(jnp.full(f.dim, -jnp.inf), jnp.full(f.dim, jnp.inf))
    model, domain = verified(f=f, box=domain)
    return _sample_box(model, domain, key, count, method, math.ceil(-math.log2(resolution)))


def _sample_box(
    f: GaussianPSD, domain: Box, key: PRNGKeyArray, num: int, method: str, num_halvings: int
) -> Float[Array, "n d"]:
    mass, _ = scaled_integral(f, domain)
    lower = check_values(
        domain.lower, mass > 0, "f must have positive mass on the box, got zero: nothing to draw"
    )
    dear = not is_traced((f, key)) and num_pairs(f) * num > COSTLY
    if f.dim == 1 and dear and method == "cdf":
        # Draws go by signed sums of all pairs; many quantiles by a series.
        return quantile(f, 0, jax.random.uniform(key, (num, 1)), domain)
    _, error = closed_integral(f, domain)
    if f.dim == 1 and is_concrete(error) and float(error) > LIMIT:
        # A quantile knows the nodes that do not cancel.
        return quantile(f, 0, jax.random.uniform(key, (num, 1)), domain)
    lower = require_digits(lower, error, _WHAT)
    room = effective_box(f, eqx.tree_at(lambda b: b.lower, domain, lower))
    draw = _draw_by_cdf if method == "cdf" else _draw_by_bisection
    return draw(f, room, key, num, num_halvings)


def _sample_everywhere(
    f: GeneralizedGaussianPSD | PairwiseGaussianPSD | GaussianBlocks,
    domain: Box | None,
    key: PRNGKeyArray,
    num: int,
    method: str,
) -> Float[Array, "n d"]:
    if domain is not None:
        raise ValueError(
            "box must be None for a generalised model or a sum of blocks: draws are from all of "
            "R^d. Draw more and keep those in the box"
        )
    if method != "cdf":
        raise ValueError(f'method must be "cdf" for a {type(f).__name__}, got {method!r}')
    f = verified(f=f)
    log_mass = positive_mass(f, None)
    if isinstance(f, GaussianBlocks):
        weights = check_values(f.log_weights, jnp.isfinite(log_mass), "f must have a finite mass")
        return sample_blocks(eqx.tree_at(lambda m: m.log_weights, f, weights), key, num)
    _, error = closed_integral(f, None)
    scale = require_digits(f.log_scale, error, _WHAT)
    return draw_terms(signed_terms(eqx.tree_at(lambda m: m.log_scale, f, scale)), key, num)


class _Pairs(NamedTuple):
    """Unordered pairs i <= j of anchors: weights 2 A_ij, exponents per axis, midpoints.

    Masses are kept as a number times the exponential of an exponent until they are added up, so
    that a box far out in the tail is sampled as well as any other.
    """

    i: np.ndarray
    j: np.ndarray
    weights: Float[Array, " k"]
    exponents: Float[Array, "k d"]
    middles: Float[Array, "k d"]


def _unordered_pairs(f: GaussianPSD) -> _Pairs:
    x = expand(f.anchors)
    i, j = np.triu_indices(f.order)
    twice = jnp.asarray(np.where(i == j, 1.0, 2.0))
    weights = twice * jnp.sum(f.factor[i] * f.factor[j], axis=-1)
    exponents = -0.5 * f.precision[None, :] * jnp.square(x[i] - x[j])
    return _Pairs(i, j, weights, exponents, 0.5 * (x[i] + x[j]))


def _block(num_pairs: int) -> int:
    return max(1, _ENTRIES_PER_BLOCK // num_pairs)


# Both samplers run through the axes in a loop of the compiled program, with the axis as a traced
# index: the program, and the time to compile it, does not grow with the dimension.


@eqx.filter_jit
def _draw_by_bisection(
    f: GaussianPSD, box: Box, key: PRNGKeyArray, num: int, num_halvings: int
) -> Float[Array, "n d"]:
    pairs = _unordered_pairs(f)
    kappa = 2 * f.precision
    own = jnp.sum(pairs.exponents, axis=1)
    wholes, tails = jax.vmap(scaled_interval_mass)(box.lower, box.upper, pairs.middles.T, kappa)
    numbers = jnp.arange(f.dim)[:, None]

    def halve(carry, step):
        lower, upper, masses, tails = carry
        axis, step_key = step
        low, high, middles = lower[axis], upper[axis], pairs.middles[:, axis]
        middle = 0.5 * (low + high)
        others = pairs.weights * jnp.prod(jnp.where(numbers == axis, 1.0, masses), axis=0)
        exponent = own - jnp.sum(jnp.where(numbers == axis, 0.0, tails), axis=0)
        bounds = jnp.stack([low, middle]), jnp.stack([middle, high])
        halves, half_tails = jax.vmap(scaled_interval_mass, (0, 0, None, None))(
            *bounds, middles, kappa[axis]
        )
        exponents = exponent[None, :] - half_tails
        terms = others[None, :] * halves * jnp.exp(exponents - jnp.max(exponents))
        mass_left, mass_right = jnp.maximum(jnp.sum(terms, axis=1), 0.0)
        total = mass_left + mass_right
        # A cell whose two masses both round to zero is entered with probability zero; should
        # rounding lead there, either half is as good.
        share = jnp.where(total > 0, mass_left / jnp.where(total > 0, total, 1.0), 0.5)
        side = jnp.where(jax.random.uniform(step_key) < share, 0, 1)
        # Only ratios matter: rescaled, the masses of ever smaller cells stay of size one.
        chosen, largest = halves[side], jnp.max(halves[side])
        masses = masses.at[axis].set(chosen / jnp.where(largest > 0, largest, 1.0))
        tails = tails.at[axis].set(half_tails[side])
        lower, upper = (
            old.at[axis].set(b[side]) for old, b in zip((lower, upper), bounds, strict=True)
        )
        return (lower, upper, masses, tails), None

    def one(draw_key: PRNGKeyArray) -> Float[Array, " d"]:
        walk, last = jax.random.split(draw_key)
        num_steps = f.dim * num_halvings
        steps = jnp.arange(num_steps) % f.dim, jax.random.split(walk, num_steps)
        start = (box.lower, box.upper, wholes, tails)
        (lower, upper, _, _), _ = jax.lax.scan(halve, start, steps)
        # A draw jumps where a choice flips: it has no derivative, rather than a wrong one.
        corner, width = jax.lax.stop_gradient((lower, upper - lower))
        return corner + width * jax.random.uniform(last, (f.dim,))

    keys = jax.random.split(key, num)
    return jax.lax.map(one, keys, batch_size=min(num, _block(pairs.weights.size)))


class _Line(NamedTuple):
    """F(t) = sum_k w_k exp(e_k) int_lower^t exp(-kappa (s - m_k)^2) ds."""

    weights: Float[Array, " k"]
    exponents: Float[Array, " k"]
    middles: Float[Array, " k"]
    kappa: Float[Array, ""]
    lower: Float[Array, ""]

    def mass_below(self, t: Float[Array, ""]) -> Float[Array, ""]:
        mass, tail = scaled_interval_mass(self.lower, t, self.middles, self.kappa)
        return jnp.sum(self.weights * mass * jnp.exp(self.exponents - tail))

    def density(self, t: Float[Array, ""]) -> Float[Array, ""]:
        power = self.exponents - self.kappa * jnp.square(t - self.middles)
        return jnp.sum(self.weights * jnp.exp(power))


def _invert(
    line: _Line, target: Float[Array, ""], upper: Float[Array, ""], num_halvings: int
) -> Float[Array, ""]:
    """The t with F(t) = target, differentiable in all of them: dt = (dtarget - dF) / F'."""
    still, level = jax.lax.stop_gradient((line, target))

    def halve(_, bracket):
        low, high = bracket
        middle = 0.5 * (low + high)
        left = still.mass_below(middle) < level
        return jnp.where(left, middle, low), jnp.where(left, high, middle)

    ends = jax.lax.stop_gradient((line.lower, upper))
    low, high = jax.lax.fori_loop(0, num_halvings, halve, ends)
    root = 0.5 * (low + high)
    # A step of Newton's method whose value is zero and whose derivative is that of the root.
    gap, slope = target - line.mass_below(root), still.density(root)
    gap = gap - jax.lax.stop_gradient(gap)
    return root + gap / jnp.where(slope > 0, slope, jnp.inf)


@eqx.filter_jit
def _draw_by_cdf(
    f: GaussianPSD, box: Box, key: PRNGKeyArray, num: int, num_halvings: int
) -> Float[Array, "n d"]:
    pairs = _unordered_pairs(f)
    x = expand(f.anchors)
    kappa = 2 * f.precision
    wholes, tails = jax.vmap(scaled_interval_mass)(box.lower, box.upper, pairs.middles.T, kappa)
    # Row l: weights and exponents with the axes after l integrated out over the box.
    after = np.triu(np.ones((f.dim, f.dim), dtype=bool), 1)[:, :, None]
    weights = pairs.weights[None, :] * jnp.prod(jnp.where(after, wholes[None], 1.0), axis=1)
    exponents = jnp.sum(jnp.where(after, pairs.exponents.T[None] - tails[None], 0.0), axis=1)

    def coordinate(log_kernel: Float[Array, " m"], step):
        axis, level = step
        known = log_kernel[pairs.i] + log_kernel[pairs.j]
        # A part of the interval has no smaller tail than the whole: no exponential overflows.
        exponent = exponents[axis] + known + pairs.exponents[:, axis]
        exponent = exponent - jax.lax.stop_gradient(jnp.max(exponent - tails[axis]))
        target = level * jnp.sum(weights[axis] * wholes[axis] * jnp.exp(exponent - tails[axis]))
        line = _Line(weights[axis], exponent, pairs.middles[:, axis], kappa[axis], box.lower[axis])
        value = _invert(line, target, box.upper[axis], num_halvings)
        return log_kernel - f.precision[axis] * jnp.square(value - x[:, axis]), value

    def one(draw_key: PRNGKeyArray) -> Float[Array, " d"]:
        steps = jnp.arange(f.dim), jax.random.uniform(draw_key, (f.dim,))
        return jax.lax.scan(coordinate, jnp.zeros(f.order), steps)[1]

    keys = jax.random.split(key, num)
    return jax.lax.map(one, keys, batch_size=min(num, _block(pairs.weights.size)))
