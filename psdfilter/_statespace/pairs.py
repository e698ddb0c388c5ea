"""The densities of a model at lists of points, on the host, in blocks of one size.

Sizing looks at many differently shaped sets of points. Padding them to blocks of a fixed size means
that each density of a model is compiled once.
"""

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .._checks import Numbers
from .functions import Inputs, call
from .model import StateSpaceModel, log_transition_rows

# One size for all, so that a density is compiled once; what fills up the last block is thrown away.
_BLOCK = 8192


def _scalar_of(value: Numbers) -> jax.Array:
    return jnp.asarray(value, dtype=jnp.float64).reshape(())


@eqx.filter_jit
def _transition_block(ssm, group, u, x, t, rows):
    def one(old, new, step, row):
        if len(group) == ssm.dim:
            return _scalar_of(call(ssm.log_transition, old, new, t=step, inputs=row))
        return _scalar_of(call(ssm.log_transition_axis, group[0], old, new[0], t=step, inputs=row))

    return jax.vmap(one)(u, x, t, rows)


@eqx.filter_jit
def _observation_block(ssm, x, y, t, rows):
    def one(point, seen, step, row):
        return _scalar_of(call(ssm.log_observation, point, seen, t=step, inputs=row))

    return jax.vmap(one)(x, y, t, rows)


@eqx.filter_jit
def _prior_block(ssm, x, rows):
    del rows
    return jax.vmap(lambda point: _scalar_of(ssm.log_prior(point)))(x)


def _in_blocks(
    fn: Callable[..., Array], arrays: tuple[np.ndarray, ...], rows: Inputs
) -> np.ndarray:
    num = len(arrays[0])
    out = np.empty(num)
    for start in range(0, num, _BLOCK):
        stop = min(start + _BLOCK, num)
        # The last block is filled up with copies of its first point.
        index = np.arange(start, start + _BLOCK)
        index[stop - start :] = start
        block = tuple(a[index] for a in arrays)
        part = None if rows is None else jax.tree.map(lambda a, i=index: a[i], rows)
        out[start:stop] = np.asarray(fn(*block, part))[: stop - start]
    return out


def inputs_at(inputs: Inputs, t: np.ndarray) -> Inputs:
    """The rows of `inputs` that belong to steps t = 1, 2, ..., repeated past the end."""
    if inputs is None:
        return None
    return jax.tree.map(lambda a: np.asarray(a)[(np.maximum(t, 1) - 1) % len(a)], inputs)


def log_transition_pairs(
    ssm: StateSpaceModel,
    group: tuple[int, ...],
    u: Float[np.ndarray, "n d"],
    x: Float[np.ndarray, "n g"],
    t: np.ndarray,
    inputs: Inputs = None,
) -> Float[np.ndarray, " n"]:
    """log Q_g(u_i, x_i) at steps t_i."""
    if ssm.vectorized:
        return _host(lambda i, s: log_transition_rows(ssm, group, u[i], x[i], s), t, len(u))
    rows = inputs_at(inputs, t)
    fn = lambda *args: _transition_block(ssm, group, *args)  # noqa: E731
    return _in_blocks(fn, (u, x, t), rows)


def log_prior_points(ssm: StateSpaceModel, x: Float[np.ndarray, "n d"]) -> Float[np.ndarray, " n"]:
    """log p(x_i)."""
    if ssm.vectorized:
        return np.asarray(ssm.log_prior(x), dtype=float).reshape(len(x))
    return _in_blocks(lambda *args: _prior_block(ssm, *args), (x,), None)


def log_observation_pairs(
    ssm: StateSpaceModel,
    x: Float[np.ndarray, "n d"],
    y: Float[np.ndarray, "n p"],
    t: np.ndarray,
    inputs: Inputs = None,
) -> Float[np.ndarray, " n"]:
    """log G(x_i, y_i) at steps t_i."""
    if ssm.vectorized:
        return _host(lambda i, s: call(ssm.log_observation, x[i], y[i], t=s), t, len(x))
    fn = lambda *args: _observation_block(ssm, *args)  # noqa: E731
    return _in_blocks(fn, (x, y, t), inputs_at(inputs, t))


def _host(fn: Callable[..., Numbers], t: np.ndarray, num: int) -> np.ndarray:
    """A NumPy model: one call for each distinct step."""
    out = np.empty(num)
    for step in np.unique(t):
        index = np.flatnonzero(t == step)
        out[index] = np.asarray(fn(index, int(step)), dtype=float).reshape(len(index))
    return out
