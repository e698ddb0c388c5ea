"""The smoother on lattices: what the future says, carried back from law to law."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import logsumexp
from jaxtyping import Array, Float, PRNGKeyArray

from ..._statespace.model import StateSpaceModel
from .density import Sink, log_future
from .laws import points_of_cells
from .run import Law
from .space import Space, grid_of
from .step import Lattice
from .values import log_transitions, parts_of, switch_matrices


@eqx.filter_jit
def go_back(ssm: StateSpaceModel, space: Space, laws: Law, num: int) -> tuple[Lattice, Sink]:
    """Smoothed lattices of times with one transition between any two, and their futures.

    p(x, k | all y) = pi_k(x) sum_k' P_kk'(x) int Q_k'(x, x') p(x', k' | all y) / p_k'(x') dx'
    """
    last = jax.tree.map(lambda a: a[-1], laws)

    def step(after: tuple[Lattice, Array, Array], law: Law):
        lattice, t, row = after
        some = jnp.isfinite(lattice.log_masses) & jnp.isfinite(lattice.log_predicted)
        weights = jnp.where(
            some, lattice.log_masses - jnp.where(some, lattice.log_predicted, 0.0), -jnp.inf
        )
        sink = Sink(lattice.lower, lattice.upper, weights, t, row)
        nodes = grid_of(space, law.now.window, num).nodes
        logs = law.now.log_masses + log_future(ssm, space, sink, nodes, num)
        new = law.now._replace(log_masses=logs - logsumexp(logs))
        return (new, law.before.t, law.before.row), (new, sink)

    start = last.now, last.before.t, last.before.row
    earlier = jax.tree.map(lambda a: a[:-1], laws)
    _, (lattices, sinks) = jax.lax.scan(step, start, earlier, reverse=True)
    whole = jax.tree.map(lambda a, b: jnp.concatenate([a, b[None]]), lattices, last.now)
    # The last time has no future; any other's fills its place.
    blank = Sink(last.now.lower, last.now.upper, last.now.log_masses, *start[1:])
    sinks = jax.tree.map(lambda a, b: jnp.concatenate([a, b[None]]), sinks, blank)
    return whole, sinks


@eqx.filter_jit
def draw_back(
    ssm: StateSpaceModel, space: Space, laws: Law, num: int, key: PRNGKeyArray, count: int
) -> Float[Array, "t n d"]:
    """Paths of the state, and of the regime with it, from the last time to the first."""
    first_key, inner, rest = jax.random.split(key, 3)
    last = jax.tree.map(lambda a: a[-1], laws).now
    size = last.log_masses.shape[1]
    flat = jax.random.categorical(first_key, last.log_masses.ravel(), shape=(count,))
    regime = flat // size
    state = points_of_cells(space, last.window, num, flat % size, inner)

    def step(after, at):
        state, regime, t, row = after
        law, own = at
        nodes = space.wrapped(grid_of(space, law.now.window, num).nodes)
        log_switch = jnp.log(switch_matrices(ssm, nodes, t, row))  # (m, k, k')

        def logits(x: Array, k: Array) -> Array:
            point = space.wrapped(x[None, :])
            tables = [log_transitions(m, nodes, point, t, row)[:, 0] for m in parts_of(ssm)]
            return law.now.log_masses + jnp.stack(tables)[k][None, :] + log_switch[:, :, k].T

        which, inner = jax.random.split(own)
        keys = jax.random.split(which, count)
        drawn = jax.lax.map(
            lambda a: jax.random.categorical(a[2], logits(a[0], a[1]).ravel()),
            (state, regime, keys),
            batch_size=64,
        )
        new = points_of_cells(space, law.now.window, num, drawn % size, inner)
        return (new, drawn // size, law.before.t, law.before.row), new

    final = jax.tree.map(lambda a: a[-1], laws.before)
    earlier = jax.tree.map(lambda a: a[:-1], laws)
    keys = jax.random.split(rest, laws.log_norm.shape[0] - 1)
    start = state, regime, final.t, final.row
    _, states = jax.lax.scan(step, start, (earlier, keys), reverse=True)
    whole = jnp.concatenate([states, state[None]])
    return space.wrapped(whole.reshape(-1, space.dim)).reshape(whole.shape)


def last_of_times(moves: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The last row of every time, and for every row the number of its time."""
    starts = moves.astype(bool).copy()
    starts[0] = True
    number = np.cumsum(starts) - 1
    last = np.flatnonzero(np.append(starts[1:], True))
    return last, number
