"""Exact values of the densities of all regimes, in logs, and where Gaussian noise may lead."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from ..._statespace.functions import Inputs, Row, as_vector, call
from ..._statespace.model import (
    LinearGaussian,
    StateSpaceModel,
    Trait,
    log_observation_table,
    log_prior_table,
    log_transition_table,
)
from .space import Space, Window

# Standard deviations of the noise beyond which nothing is looked for: exp(-c^2 / 2) = 1e-350.
_REACH = 40.0
# Asked about where y is missing: in the support of real, positive and confined observations.
_ANY_Y = 0.5


def parts_of(ssm: StateSpaceModel) -> tuple[StateSpaceModel, ...]:
    """The models of all regimes; a model without any is one."""
    return (ssm,) if ssm.regimes is None else ssm.regimes.models


def _no_nan(logs: Array) -> Array:
    return jnp.where(jnp.isnan(logs), -jnp.inf, logs)


def log_priors(ssm: StateSpaceModel, space: Space, x: Float[Array, "n d"]) -> Float[Array, "k n"]:
    """log p_k(x_i) of every regime, not weighted by its probability."""
    at = space.wrapped(x)
    return jnp.stack([_no_nan(log_prior_table(model, at)) for model in parts_of(ssm)])


def log_transitions(
    model: StateSpaceModel,
    u: Float[Array, "m d"],
    x: Float[Array, "n d"],
    t: Int[Array, ""],
    row: Inputs,
) -> Float[Array, "m n"]:
    """log Q(u_i, x_j) of one regime, at points inside of the box.

    With a sensor that takes u, log Q(u_i, x_j) + log G(x_j, y, u_i) for the y of the row.
    """
    table = _no_nan(log_transition_table(model, tuple(range(model.dim)), u, x, t, row))
    if not takes_u(model) or not isinstance(row, Row) or row.y is None:
        return table
    y, fn = jnp.asarray(row.y), model.log_observation
    missing = jnp.all(jnp.isnan(y))
    usable = jnp.where(missing, _ANY_Y, y)

    def one(old: Array, new: Array) -> Array:
        value = call(fn, new, usable, t=t, inputs=row._replace(u=old))
        return jnp.asarray(value, dtype=jnp.float64).reshape(())

    seen = _no_nan(jax.vmap(lambda old: jax.vmap(lambda new: one(old, new))(x))(u))
    return table + jnp.where(missing, 0.0, seen)


def takes_u(ssm: StateSpaceModel) -> bool:
    """Whether the sensor takes the state before: it is then part of every transition."""
    return Trait.STATE_BEFORE in ssm.traits


def unseen(row: Inputs, where: Bool[Array, ""] | bool = True) -> Inputs:
    """A row without its observation, as that of a transition alone."""
    if not isinstance(row, Row) or row.y is None:
        return row
    return row._replace(y=jnp.where(where, jnp.nan, row.y))


def log_likelihoods(
    ssm: StateSpaceModel,
    x: Float[Array, "n d"],
    y: Float[Array, " p"],
    t: Int[Array, ""],
    row: Inputs,
) -> Float[Array, "k n"]:
    """log G_k(x_i, y) of every regime; zero if all of y is missing."""
    if takes_u(ssm):
        return jnp.zeros((1, x.shape[0]))  # counted with the transition
    missing = jnp.all(jnp.isnan(y))
    # What is not used must be a number too: derivatives go through both sides.
    usable = jnp.where(missing, 0.0, y)
    tables = [_no_nan(log_observation_table(m, x, usable, t, row)) for m in parts_of(ssm)]
    return jnp.where(missing, 0.0, jnp.stack(tables))


def switch_matrices(
    ssm: StateSpaceModel, u: Float[Array, "m d"], t: Int[Array, ""], row: Inputs
) -> Float[Array, "m k k"]:
    """P(u_i); the number one for a model without regimes."""
    if ssm.regimes is None:
        return jnp.ones((u.shape[0], 1, 1))
    fn = ssm.regimes.P
    return jax.vmap(lambda old: jnp.asarray(call(fn, old, t=t, inputs=row), dtype=jnp.float64))(u)


def prior_reach(ssm: StateSpaceModel, space: Space) -> Window:
    """Where the priors of all regimes may be."""
    centres, spreads = [], []
    for model in parts_of(ssm):
        form = model.structure
        if form is not None and form.m0 is not None and form.P0 is not None:
            centres.append(form.m0)
            spreads.append(jnp.sqrt(jnp.diagonal(form.P0)))
    return _reach(space, centres, spreads)


def reach_of(
    ssm: StateSpaceModel, space: Space, u: Float[Array, "m d"], t: Int[Array, ""], row: Inputs
) -> Window:
    """Where the state may be after a transition from u: all of the box, or means and noise."""
    if "line" not in space.kinds:
        return Window(space.lower, space.upper)
    centres, spreads = [], []
    for model in parts_of(ssm):
        form = model.structure
        assert form is not None
        if isinstance(form, LinearGaussian):
            means = u @ form.F.T + form.b[None, :]
        else:
            fn = form.f
            means = jax.vmap(lambda old, fn=fn: as_vector(call(fn, old, t=t, inputs=row)))(u)
        noise = jnp.sqrt(jnp.diagonal(form.Q))
        finite = jnp.isfinite(means)
        centres += [
            jnp.min(jnp.where(finite, means, jnp.inf), axis=0),
            jnp.max(jnp.where(finite, means, -jnp.inf), axis=0),
        ]
        spreads += [noise, noise]
    return _reach(space, centres, spreads)


def _reach(space: Space, centres: list[Array], spreads: list[Array]) -> Window:
    line = jnp.asarray(space.is_kind("line"))
    if not centres:
        return Window(space.lower, space.upper)
    middle, noise = jnp.stack(centres), _REACH * jnp.stack(spreads)
    return Window(
        jnp.where(line, jnp.min(middle - noise, axis=0), space.lower),
        jnp.where(line, jnp.max(middle + noise, axis=0), space.upper),
    )
