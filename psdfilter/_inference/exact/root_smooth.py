"""Smoothing and paths of a linear-Gaussian model on roots of its covariances.

The recursion of Rauch, Tung and Striebel. One triangularisation gives the law of the next state and
of this one given it, from the rows A of the filtered law and W of the noise between the two:

    [A F'  A; W  0]  ->  [U  G; 0  C],      J' = U^{-1} G,
    x_t | x_{t+1}, y_1 ... y_t  ~  N(m + J (x_{t+1} - F m - b), C'C)
    m_s = m + J (m_s' - F m - b),           rows of S_s: [A_s' J'; C]

Nothing is subtracted from a covariance. With a lag the recursion starts at the filtered law of
t + lag for every t.
"""

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..._density.blocks import Roots
from ..._gaussian.reflections import (
    covariance_rows,
    pivots,
    product,
    reflected,
    triangular,
    upper_solve,
)
from ..gaussian.bank import Bank, Layout, bank_moments
from ..gaussian.linear import Dynamics
from ..gaussian.paths import Backward, Reverse
from ..gaussian.roots import bank_of_rows
from ..series import Series
from .smooth import SmoothedBank


class _Back(NamedTuple):
    """How blocks move back by one row; of one time, or stacked."""

    ahead: Float[Array, "*t b k d"]  # predicted means
    upper: Float[Array, "*t b d d"]  # U
    gain: Float[Array, "*t b d d"]  # J'
    rest: Float[Array, "*t b d d"]  # C


def _compound(dynamics: Dynamics, hops: Array, single_hop: bool) -> tuple[Array, Array, Array]:
    """F, b and rows of the noise of all transitions before a row."""
    F, b, Q = dynamics
    once = F, b, covariance_rows(Q)
    nothing = jnp.eye(b.size), jnp.zeros_like(b), jnp.zeros_like(Q)
    if single_hop:
        return jax.tree.map(lambda a, c: jnp.where(hops > 0, a, c), once, nothing)

    def again(_: Array | int, at: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        return F @ at[0], F @ at[1] + b, triangular(jnp.concatenate([at[2] @ F.T, once[2]]))

    return jax.lax.fori_loop(0, hops, again, nothing)


def _back(law: Bank, dynamics: Dynamics, hops: Array, single_hop: bool) -> _Back:
    assert law.rows is not None
    F, b, W = _compound(dynamics, hops, single_hop)
    dim = b.size

    def block(A: Float[Array, "d d"]) -> tuple[Array, Array, Array]:
        joint = jnp.concatenate(
            [
                jnp.concatenate([A @ F.T, A], axis=1),
                jnp.concatenate([W, jnp.zeros((dim, dim))], axis=1),
            ]
        )
        top, rest = reflected(joint, dim)
        upper, gain = top[:, :dim], upper_solve(top[:, :dim], top[:, dim:])
        # Several observations at one time are of one state.
        same = hops == 0
        return (
            upper,
            jnp.where(same, jnp.eye(dim), gain),
            jnp.where(same, 0.0, triangular(rest)),
        )

    return _Back(law.means @ F.T + b[None, None, :], *jax.vmap(block)(law.rows))


def _step_back(law: Bank, back: _Back, means: Array, rows: Array) -> tuple[Array, Array]:
    """Means and rows of a row, from those of the next."""
    before = law.means + jnp.einsum("bke,bed->bkd", means - back.ahead, back.gain)

    def block(A: Array, gain: Array, rest: Array) -> Array:
        return triangular(jnp.concatenate([A @ gain, rest]))

    return before, jax.vmap(block)(rows, back.gain, back.rest)


def _backs(laws: Bank, dynamics: Dynamics, series: Series) -> _Back:
    """Of all rows but the last."""
    earlier = jax.tree.map(lambda a: a[:-1], laws)
    one = partial(_back, single_hop=series.regular)
    return jax.vmap(one, (0, None, 0))(earlier, dynamics, series.hops[1:])


@partial(jax.jit, static_argnums=4)
def smooth_roots(
    laws: Bank, layout: Layout, dynamics: Dynamics, series: Series, lag: int | None
) -> SmoothedBank:
    """Smoothed laws, from filtered laws with rows."""
    backs = _backs(laws, dynamics, series)
    smoothed = _to_the_end(laws, backs) if lag is None else _ahead(laws, backs, lag)
    mean, covariance = jax.vmap(lambda bank: bank_moments(bank, layout))(smoothed)
    return SmoothedBank(smoothed, mean, covariance)


def _to_the_end(laws: Bank, backs: _Back) -> Bank:
    def step(carry: tuple[Array, Array], at: tuple[Bank, _Back]):
        new = _step_back(at[0], at[1], *carry)
        return new, new

    assert laws.rows is not None
    last = laws.means[-1], laws.rows[-1]
    earlier = jax.tree.map(lambda a: a[:-1], laws)
    _, before = jax.lax.scan(step, last, (earlier, backs), reverse=True)
    means, rows = (jnp.concatenate([a, b[None]]) for a, b in zip(before, last, strict=True))
    log_sizes = jnp.broadcast_to(laws.log_sizes[-1], laws.log_sizes.shape)
    return bank_of_rows(log_sizes, means, rows)


def _ahead(laws: Bank, backs: _Back, lag: int) -> Bank:
    num = laws.means.shape[0]
    last = np.minimum(np.arange(num) + lag, num - 1)
    if num == 1:
        return laws
    assert laws.rows is not None
    start = laws.means[last], laws.rows[last]

    def one_row(k: Array, carry: tuple[Array, Array]) -> tuple[Array, Array]:
        at = jnp.arange(num) + lag - 1 - k  # the row that each goes back to, if there is one
        inside = jnp.minimum(at, num - 2)
        law, back = (jax.tree.map(lambda a: a[inside], tree) for tree in (laws, backs))
        moved = jax.vmap(_step_back)(law, back, *carry)
        return jax.tree.map(
            lambda new, old: jnp.where((at < num - 1)[:, None, None, None], new, old), moved, carry
        )

    means, rows = jax.lax.fori_loop(0, lag, one_row, start)
    return bank_of_rows(laws.log_sizes[last], means, rows)


@jax.jit
def backward_roots(laws: Bank, dynamics: Dynamics, series: Series) -> Backward:
    """What draws of paths need of every row."""
    assert laws.rows is not None

    def block(upper: Array, gain: Array, rest: Array) -> Reverse:
        sizes = pivots(upper)
        inverse = upper_solve(upper, jnp.eye(upper.shape[0]))
        log_height = -jnp.sum(jnp.log(jnp.where(sizes > 0, sizes, 1.0)))
        scale = jnp.sqrt(jnp.sum(jnp.square(upper), axis=0))
        scale = jnp.where(scale > 0, scale, 1.0)
        roots = Roots(upper.T, inverse)
        return Reverse(gain.T, rest.T, product(rest), roots, log_height, scale)

    backs = _backs(laws, dynamics, series)
    each = jax.vmap(jax.vmap(block))(backs.upper, backs.gain, backs.rest)
    return Backward(each, jnp.swapaxes(laws.rows[-1], -1, -2))
