"""Paths from the joint law of all states: backwards, each state given the one after it."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray

from ..numerics.quadrature import draw
from .run import push
from .table import Table
from .triple import pair_values


@eqx.filter_jit
def draw_paths(
    table: Table,
    densities: Float[Array, "t n"],
    hops: Int[Array, " t"],
    key: PRNGKeyArray,
    num: int,
) -> Float[Array, "n t d"]:
    """x_T from the last law, then x_k from pi_k(u) Q^(u, x_{k+1}) / mass.

    Over several transitions the law of x_{k+1} given x_k = u is Q^ pushed through the table.
    """
    num_times = densities.shape[0]
    keys = jax.random.split(key, (num_times, num))

    def place(line: Float[Array, " n"], draw_key: PRNGKeyArray) -> Float[Array, " d"]:
        return table.box._place(draw(line, table.nodes, table.weights, draw_key))

    last = jax.vmap(lambda k: place(densities[-1], k))(keys[-1])

    def step(after: Float[Array, "n d"], at: tuple[Array, Array, Array]):
        density, hop, draw_keys = at

        def one(x: Float[Array, " d"], draw_key: PRNGKeyArray) -> Float[Array, " d"]:
            row = pair_values(table.triple.transition, table.points, x[None])[:, 0]

            def further(_: int, beta: Float[Array, " n"]) -> Float[Array, " n"]:
                return table.kernel @ (table.flat_weights * beta)

            row = jax.lax.fori_loop(0, hop - 1, further, row)
            return place(density * row / jnp.max(row), draw_key)

        moved = jax.vmap(one)(after, draw_keys)
        points = jnp.where(hop > 0, moved, after)
        return points, points

    xs = densities[:-1], hops[1:], keys[:-1]
    _, earlier = jax.lax.scan(step, last, xs, reverse=True)
    return jnp.swapaxes(jnp.concatenate([earlier, last[None]]), 0, 1)


@eqx.filter_jit
def advance_values(
    table: Table, values: Float[Array, " n"], num: int
) -> tuple[Float[Array, "k n"], Float[Array, "k n"], Float[Array, " k"]]:
    """Laws after 1 ... num transitions, those before each, and log of the mass each keeps."""

    def step(law: Float[Array, " n"], _: None):
        moved = push(table, law)
        kept = table.flat_weights @ moved
        return moved / kept, (moved / kept, law, jnp.log(kept))

    return jax.lax.scan(step, values, None, length=num)[1]
