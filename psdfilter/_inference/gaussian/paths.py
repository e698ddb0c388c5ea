"""Paths from the joint law of all states, drawn backwards through the filtered laws.

x_T from the last law, then x_t from pi_t(u) N(x_{t+1}; F u + b, Q): the filtered law, given x_{t+1}
as if it were a linear observation of x_t. With singular Q the covariance F S F' + Q may be singular
too; its pseudo-inverse then serves, and a component in whose range x_{t+1} does not lie has weight
zero.
"""

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray

from ..._density.block_sampling import draw_by_coordinates
from ..._density.blocks import Roots
from ..._gaussian.conditioning import move_covariance, symmetric
from ..._gaussian.linalg import psd_root
from .bank import Bank, Layout, bank_moments
from .linear import Dynamics

# Paths that smoothed laws are averages of.
NUM_PATHS = 1024
# Residuals outside of the range of a covariance, in units of its diagonal, that count as rounding.
_OFF_RANGE = 1e-6


class Drawn(NamedTuple):
    """What a path drew at one time: the component, the law given x_{t+1}, the state."""

    which: Int[Array, "*n"]
    mean: Float[Array, "*n d"]
    covariance: Float[Array, "*n d d"]
    state: Float[Array, "*n d"]


class Reverse(NamedTuple):
    """How a block moves back: gain, root of what stays uncertain, and how to weigh x_{t+1}."""

    gain: Float[Array, "d d"]
    root: Float[Array, "d d"]
    covariance: Float[Array, "d d"]
    ahead: Roots
    log_height: Float[Array, ""]
    scale: Float[Array, " d"]


class Backward(NamedTuple):
    """How all blocks move back, stacked over all rows but the last, and roots of the last laws."""

    reverse: Reverse
    last: Float[Array, "b d d"]


def reverse_of(S: Float[Array, "d d"], dynamics: Dynamics) -> Reverse:
    F, _, Q = dynamics
    ahead = move_covariance(S, F, Q)
    roots = Roots.of(ahead)
    gain = S @ F.T @ roots.inverse @ roots.inverse.T
    kept = jnp.eye(S.shape[0]) - gain @ F
    covariance = symmetric(kept @ S @ kept.T + gain @ Q @ gain.T)
    lengths = jnp.sum(jnp.square(roots.root), axis=0)
    log_height = -0.5 * jnp.sum(jnp.log(jnp.where(lengths > 0, lengths, 1.0)))
    scale = jnp.sqrt(jnp.diagonal(ahead))
    return Reverse(
        gain, psd_root(covariance), covariance, roots, log_height, jnp.where(scale > 0, scale, 1.0)
    )


def weigh(back: Reverse, residual: Float[Array, "k d"]) -> Float[Array, " k"]:
    """log N(residual; 0, F S F' + Q) up to a constant, -inf outside of the range."""
    z = residual @ back.ahead.inverse
    off = (residual - z @ back.ahead.root.T) / back.scale[None, :]
    logs = back.log_height - 0.5 * jnp.sum(jnp.square(z), axis=1)
    return jnp.where(jnp.max(jnp.abs(off), axis=1) < _OFF_RANGE, logs, -jnp.inf)


def _compound(dynamics: Dynamics, hops: Array) -> Dynamics:
    """`hops` transitions as one; none is the identity without noise."""
    F, b, Q = dynamics
    nothing = Dynamics(jnp.eye(b.size), jnp.zeros_like(b), jnp.zeros_like(Q))

    def once(_: Array | int, at: Dynamics) -> Dynamics:
        return Dynamics(F @ at.F, F @ at.b + b, move_covariance(at.Q, F, Q))

    return jax.lax.fori_loop(0, hops, once, nothing)


@partial(jax.jit, static_argnums=5)
def draw_linear(
    laws: Bank,
    layout: Layout,
    dynamics: Dynamics,
    hops: Array,
    key: PRNGKeyArray,
    num: int,
    backward: Backward | None = None,
) -> Drawn:
    """`num` paths, stacked over time and then paths, with the law each state was drawn from.

    `backward`, if it is known better than covariances tell.
    """
    last_key, back_key = jax.random.split(key)
    at_end = jax.tree.map(lambda a: a[-1], laws)
    roots = jax.vmap(psd_root)(at_end.covariances) if backward is None else backward.last
    last = _draw_last(at_end, roots, layout, last_key, num)

    def step(points: Float[Array, "n d"], at: tuple[Bank, Array, Array, Reverse | None]):
        bank, hop, step_key, reverse = at
        hop_dynamics = _compound(dynamics, hop)
        F, b, _ = hop_dynamics
        if reverse is None:
            reverse = jax.vmap(lambda S: reverse_of(S, hop_dynamics))(bank.covariances)
        ahead = bank.means @ F.T + b[None, None, :]

        def one(x: Float[Array, " d"], draw_key: PRNGKeyArray) -> Drawn:
            residual = x[None, None, :] - ahead
            logs = bank.log_sizes + jax.vmap(weigh)(reverse, residual)
            means = bank.means + jnp.einsum("bde,bke->bkd", reverse.gain, residual)
            drawn = _draw(logs, means, reverse.covariance, reverse.root, layout, draw_key)
            # Several observations at one time are of one state.
            same = Drawn(drawn.which, x, jnp.zeros_like(drawn.covariance), x)
            return jax.tree.map(lambda a, b: jnp.where(hop > 0, a, b), drawn, same)

        keys = jax.random.split(step_key, num)
        drawn = jax.lax.map(lambda a: one(*a), (points, keys), batch_size=256)
        return drawn.state, drawn

    num_steps = laws.log_sizes.shape[0]
    if num_steps == 1:
        return jax.tree.map(lambda a: a[None], last)
    keys = jax.random.split(back_key, num_steps - 1)
    earlier = jax.tree.map(lambda a: a[:-1], laws)
    reverse = None if backward is None else backward.reverse
    _, drawn = jax.lax.scan(step, last.state, (earlier, hops[1:], keys, reverse), reverse=True)
    return jax.tree.map(lambda a, b: jnp.concatenate([a, b[None]]), drawn, last)


def _draw_last(
    bank: Bank, roots: Float[Array, "b d d"], layout: Layout, key: PRNGKeyArray, num: int
) -> Drawn:
    def one(draw_key: PRNGKeyArray) -> Drawn:
        return _draw(bank.log_sizes, bank.means, bank.covariances, roots, layout, draw_key)

    return jax.lax.map(one, jax.random.split(key, num), batch_size=256)


def _draw(
    logs: Float[Array, "b k"],
    means: Float[Array, "b k d"],
    covariances: Float[Array, "b d d"],
    roots: Float[Array, "b d d"],
    layout: Layout,
    key: PRNGKeyArray,
) -> Drawn:
    """One state, and the Gaussian (or, with signs, the block) it was drawn from."""
    which_key, inner_key = jax.random.split(key)
    dim = means.shape[-1]
    if layout.signs is None:
        which = jax.random.categorical(which_key, logs.ravel())
        block = which // logs.shape[1]
        white = jax.random.normal(inner_key, (dim,), dtype=jnp.float64)
        mean = means.reshape(-1, dim)[which]
        return Drawn(which, mean, covariances[block], mean + roots[block] @ white)
    sizes = layout.signs * jnp.exp(logs - jnp.max(logs))
    masses = jnp.maximum(jnp.sum(sizes, axis=1), 0.0)
    block = jax.random.categorical(which_key, jnp.log(masses))
    levels = jax.random.uniform(inner_key, (dim,), dtype=jnp.float64)
    state = draw_by_coordinates(sizes[block], means[block], covariances[block], levels)
    return Drawn(block, state, jnp.zeros_like(covariances[block]), state)


def with_draws(errors: Float[Array, " t"]) -> Float[Array, " t"]:
    """Errors of filtered laws and what an average over paths adds: shares are right to that."""
    return errors + NUM_PATHS**-0.5


@partial(jax.jit, static_argnums=1)
def smoothed_laws(drawn: Drawn, size: int) -> tuple[Bank, Array, Array]:
    """The Gaussian of all paths that went through a component, for every component and time.

    Averages are of conditional means and covariances, not of the states that were drawn.
    """

    def one(at: Drawn) -> Bank:
        member = (at.which[None, :] == jnp.arange(size)[:, None]).astype(jnp.float64)
        count = jnp.sum(member, axis=1)
        shares = member / jnp.where(count > 0, count, 1.0)[:, None]
        means = shares @ at.mean
        delta = at.mean - means[at.which]
        spread = at.covariance + delta[:, :, None] * delta[:, None, :]
        covariances = jnp.einsum("kn,nde->kde", shares, spread)
        used = count > 0
        logs = jnp.where(used, jnp.log(jnp.where(used, count, 1.0) / at.which.size), -jnp.inf)
        filler = jnp.mean(at.mean, axis=0)[None, :]
        return Bank(
            logs[:, None],
            jnp.where(used[:, None], means, filler)[:, None, :],
            jnp.where(used[:, None, None], symmetric(covariances), jnp.eye(means.shape[1])[None]),
        )

    bank = jax.vmap(one)(drawn)
    mean, covariance = jax.vmap(lambda b: bank_moments(b, Layout()))(bank)
    return bank, mean, covariance
