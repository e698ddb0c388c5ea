"""Boxes for models that come without one: where the state goes, simulated or computed."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .._checks import is_concrete
from .._density.box import Box
from .._learning.domains import box_from_samples
from .functions import AbstractFunction, GaussianStart, Inputs, call

# Five standard deviations leave 6e-7 of a Gaussian outside: below the tolerances people ask for.
SPREAD = 5.0
_CHAINS, _STEPS = 512, 64
_LEAK, _MARGIN = 1e-4, 0.15


@eqx.filter_jit
def _paths(
    start: AbstractFunction, step: AbstractFunction, steps: Array, rows: Inputs
) -> Float[Array, "t n d"]:
    """Simulated states with these inputs; compiled once for all models of the same code."""
    keys = jax.random.split(jax.random.key(20_240_101), (len(steps) + 1, _CHAINS))

    def advance(states: Array, at: tuple[Array, Array, Inputs]) -> tuple[Array, Array]:
        some, t, row = at
        new = jax.vmap(lambda key, u: call(step, key, u, t=t, inputs=row))(some, states)
        return new, new

    first = jax.vmap(start)(keys[0])
    _, rest = jax.lax.scan(advance, first, (keys[1:], steps, rows))
    return jax.lax.stop_gradient(jnp.concatenate([first[None], rest]))


def simulated_box(start: GaussianStart, step: AbstractFunction, inputs: Inputs) -> Box:
    """Quantiles of simulated states plus a margin, and five standard deviations of the prior.

    Works on traced models too: the bounds are then traced, and constants for differentiation.

    Args:
        start: key -> x_0 (d,).
        step: key, u (d,) -> x (d,); may take `t` and `inputs`.
        inputs: a row of them.
    """
    rows = jax.tree.map(lambda a: jnp.broadcast_to(a, (_STEPS, *jnp.shape(a))), inputs)
    paths = _paths(start, step, jnp.arange(1, _STEPS + 1), rows)
    mean, sd = start.mean, jnp.sqrt(start.noise.variances)
    low, high = jax.lax.stop_gradient((mean - SPREAD * sd, mean + SPREAD * sd))
    if not is_concrete(paths):
        points = paths.reshape(-1, paths.shape[-1])
        tail = 0.5 * _LEAK / points.shape[1]
        a, b = jnp.quantile(points, jnp.asarray([tail, 1 - tail]), axis=0)
        a, b = a - _MARGIN * (b - a), b + _MARGIN * (b - a)
        return Box(jnp.minimum(a, low), jnp.maximum(b, high))
    chosen = box_of_paths(np.asarray(paths))
    return Box(jnp.minimum(chosen.lower, low), jnp.maximum(chosen.upper, high))


def box_along(
    box: Box, start: GaussianStart, step: AbstractFunction, steps: Array, rows: Inputs
) -> Box:
    """A box that also holds states simulated with the inputs of a series.

    One typical row of inputs tells where states are if these hardly change, and no more.
    """
    paths = np.asarray(_paths(start, step, steps, rows))
    if not np.isfinite(paths).all():
        return box
    found = box_of_paths(paths)
    lower, upper = jnp.minimum(box.lower, found.lower), jnp.maximum(box.upper, found.upper)
    return Box(lower, upper, box.periodic)


def simulated_or_prior_box(
    start: GaussianStart, step: AbstractFunction, inputs: Inputs
) -> tuple[Box, bool]:
    """The simulated box; if states run away, the prior's alone, and False."""
    try:
        return simulated_box(start, step, inputs), True
    except ValueError:
        sd = jnp.sqrt(start.noise.variances)
        width = jnp.where(sd > 0, SPREAD * sd, 1.0)
        return Box(*jax.lax.stop_gradient((start.mean - width, start.mean + width))), False


def box_of_paths(paths: Float[np.ndarray, "t n d"]) -> Box:
    """The box of simulated states; refuses those that ran away."""
    if not np.isfinite(paths).all():
        raise ValueError(
            "state_box must be given: simulated states became infinite or NaN, so no box can be "
            "chosen from them"
        )
    return box_from_samples(paths, leak=_LEAK, margin=_MARGIN).box


def gaussian_box(
    F: Float[Array, "d d"],
    b: Float[Array, " d"],
    Q: Float[Array, "d d"],
    m0: Float[Array, " d"],
    P0: Float[Array, "d d"],
    num_steps: int,
) -> Box:
    """The smallest box around m_t +- 5 sd_t, t = 0 ... num_steps, of a linear recursion."""

    def step(
        carry: tuple[Array, Array], _: None
    ) -> tuple[tuple[Array, Array], tuple[Array, Array]]:
        mean, covariance = carry
        new = F @ mean + b, F @ covariance @ F.T + Q
        return new, (new[0], jnp.diagonal(new[1]))

    _, (means, variances) = jax.lax.scan(step, (m0, P0), None, length=num_steps)
    means = jnp.concatenate([m0[None], means])
    deviations = SPREAD * jnp.sqrt(jnp.concatenate([jnp.diagonal(P0)[None], variances]))
    low, high = jnp.min(means - deviations, axis=0), jnp.max(means + deviations, axis=0)
    if is_concrete(low) and not (np.isfinite(low).all() and np.isfinite(high).all()):
        raise ValueError("state_box must be given: F makes the state grow without bound")
    # A coordinate that is known exactly and stays where it is still needs an interval.
    low, high = jnp.where(high > low, low, low - 1.0), jnp.where(high > low, high, high + 1.0)
    return Box(*jax.lax.stop_gradient((low, high)))
