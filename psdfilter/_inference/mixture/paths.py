"""Paths of a nonlinear model, drawn backwards through its filtered laws.

x_T from the last law, then x_t from pi_t(u) N(x_{t+1}; f(u), Q). For a Gaussian N(m, S) of pi_t the
new state is, by the linearisation on average over it, jointly Gaussian with u: that gives the
weights of the components and a first guess of u. With the component drawn, f is linearised once
more at the guess, since for small noise x_{t+1} fixes u far better than the component does.
"""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from ..._gaussian.conditioning import symmetric
from ..._gaussian.linalg import psd_root
from ..._gaussian.small import (
    backward_solve,
    forward_solve,
    log_volume,
    semidefinite_cholesky,
)
from ..._statespace.functions import Inputs
from ..gaussian.mixture import Mixture
from ..gaussian.paths import Drawn
from ..series import Series
from .functions import Functions
from .linearize import expand, push


class Joint(NamedTuple):
    """N(m, L L') and where it goes: x' ~ N(ahead, chol chol'), with covariance L `slope`'."""

    root: Float[Array, "d d"]
    ahead: Float[Array, " d"]
    chol: Float[Array, "d d"]
    slope: Float[Array, "d d"]


def _joint(
    mean: Array, covariance: Array, Q: Array, at: tuple[Array, Array, Inputs], functions: Functions
) -> Joint:
    """One component through as many transitions as there are before step t."""
    t, hops, row = at
    root = semidefinite_cholesky(covariance)

    def once(k: Array | int, now: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        m, S, cross = now
        L = semidefinite_cholesky(S)
        step = t - hops + 1 + k
        pushed = push(expand(functions.moving(step, row), m, L), functions.spread(Q, step, row))
        # cov(x', z) = F cov(x, z) with F L = slope
        return pushed.mean, pushed.covariance, pushed.slope @ forward_solve(L, cross)

    start = mean, covariance, root
    ahead, total, cross = jax.lax.fori_loop(0, hops, once, start)
    return Joint(root, ahead, semidefinite_cholesky(total), cross)


def _log_weight(joint: Joint, x: Float[Array, " d"]) -> Float[Array, ""]:
    white = forward_solve(joint.chol, x - joint.ahead)
    return -0.5 * jnp.sum(jnp.square(white)) - log_volume(joint.chol)


def _conditional(
    joint: Joint, mean: Array, x: Array, Q: Array, f: Callable[[Array], Array], single: Array
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


def _draw_last(law: Mixture, key: PRNGKeyArray, num: int) -> Drawn:
    which_key, inner = jax.random.split(key)
    which = jax.random.categorical(which_key, law.log_weights, shape=(num,))
    roots = jax.vmap(psd_root)(law.covariances)
    white = jax.random.normal(inner, (num, law.dim), dtype=jnp.float64)
    mean, covariance = law.means[which], law.covariances[which]
    return Drawn(which, mean, covariance, mean + jnp.einsum("nij,nj->ni", roots[which], white))


@partial(jax.jit, static_argnums=5)
def draw_backwards(
    laws: Mixture, Q: Array, series: Series, key: PRNGKeyArray, functions: Functions, num: int
) -> Drawn:
    """`num` paths, stacked over time and then paths."""
    steps, hops, rows = series.steps, series.hops, series.rows
    last_key, back_key = jax.random.split(key)
    last = _draw_last(jax.tree.map(lambda a: a[-1], laws), last_key, num)

    def step(
        points: Float[Array, "n d"], at: tuple[Mixture, Array, Array, Inputs, PRNGKeyArray]
    ) -> tuple[Float[Array, "n d"], Drawn]:
        law, t, hop, row, step_key = at
        joints = jax.vmap(lambda m, S: _joint(m, S, Q, (t, hop, row), functions))(
            law.means, law.covariances
        )
        f, noise = functions.moving(t, row), functions.spread(Q, t, row)

        def one(x: Array, draw_key: PRNGKeyArray) -> Drawn:
            which_key, inner = jax.random.split(draw_key)
            logs = law.log_weights + jax.vmap(lambda joint: _log_weight(joint, x))(joints)
            which = jax.random.categorical(which_key, logs)
            joint = jax.tree.map(lambda a: a[which], joints)
            mean, covariance = _conditional(joint, law.means[which], x, noise, f, hop == 1)
            white = jax.random.normal(inner, x.shape, dtype=jnp.float64)
            state = mean + semidefinite_cholesky(covariance) @ white
            # Several observations at one time are of one state.
            keep = hop == 0
            return Drawn(
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
