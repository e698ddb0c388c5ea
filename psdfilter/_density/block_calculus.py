"""The operations on sums of blocks, on checked arguments: gains, no inverse of a covariance.

To fix coordinates, or to multiply two laws, is an observation without noise. With H the rows of the
coordinates that are fixed, or for f(x, y) g(y', z) the difference y - y' seen to be zero,

    m <- m + K (v - H m),   S <- S - K H S,   phi <- phi N(v; H m, H S H')^{1/2}.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .._gaussian.conditioning import LinearSensor, observe, sensor_gain
from .blocks import GaussianBlocks, pair_terms, push_forward
from .diagonal import AxisMap


def integral_and_bound(f: GaussianBlocks) -> tuple[Array, Array, Array]:
    """z and s with int f = z exp(s), and the sum of the absolute values of the terms of z."""
    terms = pair_terms(f)
    sizes = pair_terms(eqx.tree_at(lambda m: m.factor, f, jnp.abs(f.factor))).shares
    return jnp.sum(terms.shares), terms.log_scale, jax.lax.stop_gradient(jnp.sum(sizes))


def scaled(f: GaussianBlocks, log_factor: Float[Array, ""]) -> GaussianBlocks:
    """exp(log_factor) f."""
    return eqx.tree_at(lambda m: m.log_weights, f, f.log_weights + log_factor)


def marginal(f: GaussianBlocks, keep: tuple[int, ...]) -> GaussianBlocks:
    """int f over the other coordinates."""
    return push_forward(f, jnp.eye(f.dim)[np.asarray(keep)])


def in_units(f: GaussianBlocks, c: Float[Array, " d"], s: Float[Array, " d"]) -> GaussianBlocks:
    """The law of c + s x."""
    means = c[None, None, :] + s[None, None, :] * f.means
    return GaussianBlocks(f.log_weights, means, f.covariance * jnp.outer(s, s)[None], f.factor)


def used_covariances(f: GaussianBlocks) -> Float[Array, "b d d"]:
    """Covariances, with the identity for blocks that are no part of f."""
    used = (f.log_weights > -jnp.inf)[:, None, None]
    return jnp.where(used, f.covariance, jnp.eye(f.dim)[None])


def _observed(
    f: GaussianBlocks, H: Float[Array, "k d"], v: Float[Array, " k"], kept: np.ndarray
) -> GaussianBlocks:
    """f(x) delta(H x - v), as a function of the coordinates `kept`; NaN if H S H' is singular."""
    num = H.shape[0]
    sensor = LinearSensor(H, jnp.zeros(num), jnp.zeros((num, num)), jnp.ones(num, dtype=bool))
    used = f.log_weights > -jnp.inf

    def one(S: Array, m: Array, L: Array) -> tuple[Array, Array, Array, Array]:
        gain = sensor_gain(S, sensor)
        means, logs = observe(m, gain, sensor, v)
        peak = jax.lax.stop_gradient(jnp.max(logs))
        peak = jnp.where(jnp.isneginf(peak), 0.0, peak)
        return means[:, kept], gain.covariance[np.ix_(kept, kept)], peak, (
            jnp.exp(0.5 * (logs - peak))[:, None] * L
        )  # fmt: skip

    means = jnp.where(used[:, None, None], f.means, 0.0)
    means, covariance, logs, factor = jax.vmap(one)(used_covariances(f), means, f.factor)
    return GaussianBlocks(f.log_weights + jnp.where(used, logs, 0.0), means, covariance, factor)


def partial(
    f: GaussianBlocks, axes: tuple[int, ...], rest: tuple[int, ...], values: Float[Array, " k"]
) -> GaussianBlocks:
    """f(x, y0)."""
    return _observed(f, jnp.eye(f.dim)[np.asarray(axes)], values, np.asarray(rest))


def product(f: GaussianBlocks, g: GaussianBlocks, axes: AxisMap) -> GaussianBlocks:
    """f g: all pairs of blocks, in each all pairs of components."""
    both = _independent(f, g)
    of_f = {variable: axis for axis, variable in enumerate(axes.f_axes)}
    of_g = {variable: f.dim + axis for axis, variable in enumerate(axes.g_axes)}
    kept = np.asarray([of_f.get(v, of_g.get(v)) for v in range(axes.num_axes)])
    shared = [v for v in range(axes.num_axes) if v in of_f and v in of_g]
    if not shared:
        index = np.ix_(kept, kept)
        covariance = both.covariance[:, index[0], index[1]]
        return GaussianBlocks(both.log_weights, both.means[..., kept], covariance, both.factor)
    rows = np.zeros((len(shared), both.dim))
    for row, v in enumerate(shared):
        rows[row, of_f[v]], rows[row, of_g[v]] = 1.0, -1.0
    return _observed(both, jnp.asarray(rows), jnp.zeros(len(shared)), kept)


def _independent(f: GaussianBlocks, g: GaussianBlocks) -> GaussianBlocks:
    """f(x) g(z) of the pair (x, z)."""
    a, b = f.log_weights.shape[0], g.log_weights.shape[0]
    n, k, dim = f.means.shape[1], g.means.shape[1], f.dim + g.dim
    weights = (f.log_weights[:, None] + g.log_weights[None, :]).ravel()
    left = jnp.broadcast_to(f.means[:, None, :, None, :], (a, b, n, k, f.dim))
    right = jnp.broadcast_to(g.means[None, :, None, :, :], (a, b, n, k, g.dim))
    means = jnp.concatenate([left, right], axis=-1).reshape(a * b, n * k, dim)
    covariance = jnp.zeros((a, b, dim, dim))
    covariance = covariance.at[..., : f.dim, : f.dim].set(f.covariance[:, None])
    covariance = covariance.at[..., f.dim :, f.dim :].set(g.covariance[None, :])
    factor = jnp.einsum("anr,bks->abnkrs", f.factor, g.factor).reshape(a * b, n * k, -1)
    return GaussianBlocks(weights, means, covariance.reshape(a * b, dim, dim), factor)
