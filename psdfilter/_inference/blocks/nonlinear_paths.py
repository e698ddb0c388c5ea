"""Paths of a nonlinear model, drawn backwards through its filtered laws, and the smoother by them.

x_T from the last law, then x_t from pi_t(u) N(x_{t+1}; f(u), Q). For a Gaussian N(m, S) of pi_t the
new state is, by the linearisation on average over it, jointly Gaussian with u: that gives the
weights of the components and a first guess of u. With the component drawn, f is linearised once
more at the guess, since for small noise x_{t+1} fixes u far better than the component does.
"""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray

from ..._gaussian.conditioning import symmetric
from ..._gaussian.linalg import psd_root
from ..._gaussian.small import (
    backward_solve,
    forward_solve,
    log_volume,
    semidefinite_cholesky,
)
from .bank import Bank, Layout, bank_moments
from .linearize import expand, push
from .mixture import Mixture


class Joint(NamedTuple):
    """N(m, L L') and where it goes: x' ~ N(ahead, chol chol'), with covariance L `slope`'."""

    root: Float[Array, "d d"]
    ahead: Float[Array, " d"]
    chol: Float[Array, "d d"]
    slope: Float[Array, "d d"]


def _joint(
    mean: Array, covariance: Array, Q: Array, t: Array, hops: Array, row: Any, functions: Any
) -> Joint:
    """One component through `hops` transitions that end at step t."""
    root = semidefinite_cholesky(covariance)

    def once(k: Any, at: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        m, S, cross = at
        L = semidefinite_cholesky(S)
        pushed = push(expand(functions.moving(t - hops + 1 + k, row), m, L), Q)
        # cov(x', z) = F cov(x, z) with F L = slope
        return pushed.mean, pushed.covariance, pushed.slope @ forward_solve(L, cross)

    start = mean, covariance, root
    ahead, total, cross = jax.lax.fori_loop(0, hops, once, start)
    return Joint(root, ahead, semidefinite_cholesky(total), cross)


def _log_weight(joint: Joint, x: Float[Array, " d"]) -> Float[Array, ""]:
    white = forward_solve(joint.chol, x - joint.ahead)
    return -0.5 * jnp.sum(jnp.square(white)) - log_volume(joint.chol)


def _conditional(
    joint: Joint, mean: Array, x: Array, Q: Array, f: Any, single: Array
) -> tuple[Float[Array, " d"], Float[Array, "d d"]]:
    """Mean and covariance of u given x', in user units."""
    dim = mean.size
    gain = backward_solve(joint.chol, forward_solve(joint.chol, joint.slope)).T
    guess = gain @ (x - joint.ahead)

    def g(z: Array) -> Array:
        return f(mean + joint.root @ z)

    value, tangent = jax.linearize(g, guess)
    J = jax.vmap(tangent, out_axes=1)(jnp.eye(dim))
    chol = semidefinite_cholesky(symmetric(J @ J.T + Q))
    fresh = backward_solve(chol, forward_solve(chol, J)).T
    again = fresh @ (x - value + J @ guess)
    K = jnp.where(single, fresh, gain)
    z = jnp.where(single, again, guess)
    # Joseph's form needs the noise; without it, C = I - K slope.
    kept = jnp.eye(dim) - fresh @ J
    joseph = symmetric(kept @ kept.T + K @ Q @ K.T)
    plain = symmetric(jnp.eye(dim) - gain @ joint.slope)
    C = jnp.where(single, joseph, plain)
    return mean + joint.root @ z, symmetric(joint.root @ C @ joint.root.T)


class Backward(NamedTuple):
    """What a path drew at one time: the component, the law given x_{t+1}, the state."""

    which: Int[Array, "*n"]
    mean: Float[Array, "*n d"]
    covariance: Float[Array, "*n d d"]
    state: Float[Array, "*n d"]


def _draw_last(law: Mixture, key: PRNGKeyArray, num: int) -> Backward:
    which_key, inner = jax.random.split(key)
    which = jax.random.categorical(which_key, law.log_weights, shape=(num,))
    roots = jax.vmap(psd_root)(law.covariances)
    white = jax.random.normal(inner, (num, law.dim), dtype=jnp.float64)
    mean, covariance = law.means[which], law.covariances[which]
    return Backward(which, mean, covariance, mean + jnp.einsum("nij,nj->ni", roots[which], white))


@partial(jax.jit, static_argnums=(6, 7))
def draw_backwards(
    laws: Mixture, Q: Array, steps: Array, hops: Array, rows: Any, key: PRNGKeyArray,
    functions: Any, num: int,
) -> Backward:  # fmt: skip
    """`num` paths, stacked over time and then paths."""
    last_key, back_key = jax.random.split(key)
    last = _draw_last(jax.tree.map(lambda a: a[-1], laws), last_key, num)

    def step(points: Float[Array, "n d"], at: Any):
        law, t, hop, row, step_key = at
        joints = jax.vmap(lambda m, S: _joint(m, S, Q, t, hop, row, functions))(
            law.means, law.covariances
        )
        f = functions.moving(t, row)

        def one(x: Array, draw_key: PRNGKeyArray) -> Backward:
            which_key, inner = jax.random.split(draw_key)
            logs = law.log_weights + jax.vmap(lambda joint: _log_weight(joint, x))(joints)
            which = jax.random.categorical(which_key, logs)
            joint = jax.tree.map(lambda a: a[which], joints)
            mean, covariance = _conditional(joint, law.means[which], x, Q, f, hop == 1)
            white = jax.random.normal(inner, x.shape, dtype=jnp.float64)
            state = mean + semidefinite_cholesky(covariance) @ white
            # Several observations at one time are of one state.
            keep = hop == 0
            return Backward(
                which,
                jnp.where(keep, x, mean),
                jnp.where(keep, 0.0, covariance),
                jnp.where(keep, x, state),
            )

        keys = jax.random.split(step_key, num)
        drawn = jax.lax.map(lambda a: one(*a), (points, keys), batch_size=256)
        return drawn.state, drawn

    num_steps = laws.log_weights.shape[0]
    if num_steps == 1:
        return jax.tree.map(lambda a: a[None], last)
    keys = jax.random.split(back_key, num_steps - 1)
    earlier = jax.tree.map(lambda a: a[:-1], laws)
    later_rows = jax.tree.map(lambda a: a[1:], rows)
    _, drawn = jax.lax.scan(
        step, last.state, (earlier, steps[1:], hops[1:], later_rows, keys), reverse=True
    )
    return jax.tree.map(lambda a, b: jnp.concatenate([a, b[None]]), drawn, last)


@partial(jax.jit, static_argnums=1)
def smoothed_laws(drawn: Backward, size: int) -> tuple[Bank, Array, Array]:
    """The Gaussian of all paths that went through a component, for every component and time.

    Averages are of conditional means and covariances, not of the states that were drawn.
    """

    def one(at: Backward) -> Bank:
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
