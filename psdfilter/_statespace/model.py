"""State-space models: a prior, a transition and an observation density on a box."""

import inspect
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .._density.box import Box

Inputs = Any


class LinearGaussian(eqx.Module):
    """x' = F u + b + N(0, Q),  y = H x + d + N(0, R),  x_0 ~ N(m0, P0): what is known of it.

    The sensor is None for another observation density, the prior's moments if they are not known.
    """

    F: Float[Array, "d d"]
    b: Float[Array, " d"]
    Q: Float[Array, "d d"]
    H: Float[Array, "p d"] | None
    d: Float[Array, " p"] | None
    R: Float[Array, "p p"] | None
    m0: Float[Array, " d"] | None
    P0: Float[Array, "d d"] | None


class StateSpaceModel(eqx.Module):
    """x_0 ~ prior,  x_t | x_{t-1} = u ~ Q(u, x),  y_t | x_t ~ G(x, y).

    All functions are unbatched and return the logarithm of a density; -inf means zero. They may
    also take the keywords `t` (the step, 1 for the first transition) and `inputs` (the row of
    `inputs` that belongs to it). Nothing needs to be normalised on the box except G in y, if the
    likelihood is to be one.

    Args:
        log_prior: x (d,) -> log p(x); normalised on the box by us.
        log_transition: u, x (d,), (d,) -> log Q(u, x), the new state x given the old state u.
        log_observation: x, y (d,), (p,) -> log G(x, y).
        state_box: where the state lives.
        observation_box: where y lives; needed only for laws of y (predictive, residuals).
        log_transition_axis: i, u, x_i -> log Q_i(u, x_i), if Q(u, x) = prod_i Q_i(u, x_i): noise
            that is independent from axis to axis. Learning is then (d + 1)- instead of
            2d-dimensional.
        sample_observation: key, x -> y, for sizing by simulated data and for posterior checks.
        vectorized: the functions are NumPy functions of points (n, d) instead; `log_transition`
            then takes u (n, d) and x (n, d) row by row.
        marginalizes_missing: `log_observation` takes y with some coordinates NaN and gives the
            density of the others; otherwise that takes a quadrature over `observation_box`.
        structure: the matrices of a linear-Gaussian model, for engines that use them.
    """

    log_prior: Callable[..., Any] = eqx.field(static=True)
    log_transition: Callable[..., Any] = eqx.field(static=True)
    log_observation: Callable[..., Any] = eqx.field(static=True)
    state_box: Box
    observation_box: Box | None = None
    log_transition_axis: Callable[..., Any] | None = eqx.field(static=True, default=None)
    sample_observation: Callable[..., Any] | None = eqx.field(static=True, default=None)
    vectorized: bool = eqx.field(static=True, default=False)
    marginalizes_missing: bool = eqx.field(static=True, default=False)
    structure: LinearGaussian | None = None

    def __check_init__(self):
        for name in ("log_prior", "log_transition", "log_observation"):
            if not callable(getattr(self, name)):
                raise ValueError(
                    f"{name} must be a function, got {type(getattr(self, name)).__name__}"
                )
        if not isinstance(self.state_box, Box):
            raise ValueError(
                f"state_box must be a psdfilter.Box, got {type(self.state_box).__name__}"
            )
        if self.observation_box is not None and not isinstance(self.observation_box, Box):
            raise ValueError(
                "observation_box must be a psdfilter.Box or None, got "
                f"{type(self.observation_box).__name__}"
            )

    @property
    def dim(self) -> int:
        """Number of coordinates of the state."""
        return self.state_box.dim

    @property
    def is_time_varying(self) -> bool:
        """Whether the transition takes `t` or `inputs`."""
        names = keywords_of(self.log_transition)
        if self.log_transition_axis is not None:
            names = names | keywords_of(self.log_transition_axis)
        return bool(names)


def keywords_of(fn: Callable[..., Any]) -> frozenset[str]:
    """Which of the optional keywords `t` and `inputs` a function takes."""
    try:
        parameters = inspect.signature(fn).parameters.values()
    except (TypeError, ValueError):
        return frozenset()
    if any(p.kind is inspect.Parameter.VAR_KEYWORD for p in parameters):
        return frozenset(("t", "inputs"))
    return frozenset(p.name for p in parameters if p.name in ("t", "inputs"))


def call(fn: Callable[..., Any], *args: Any, t: Any = None, inputs: Inputs = None) -> Any:
    """fn(*args), with `t` and `inputs` if it takes them."""
    given = {"t": t, "inputs": inputs}
    names = keywords_of(fn)
    if "inputs" in names and inputs is None and _is_required(fn, "inputs"):
        raise ValueError("inputs must be given: a function of the model takes them")
    return fn(*args, **{name: given[name] for name in names if _wanted(fn, name, given[name])})


def _is_required(fn: Callable[..., Any], name: str) -> bool:
    parameter = inspect.signature(fn).parameters.get(name)
    return parameter is not None and parameter.default is inspect.Parameter.empty


def _wanted(fn: Callable[..., Any], name: str, value: Any) -> bool:
    return value is not None or _is_required(fn, name)


def log_transition_table(
    ssm: StateSpaceModel,
    group: tuple[int, ...],
    u: Float[Array, "n d"],
    x: Float[Array, "k g"],
    t: Any = None,
    inputs: Inputs = None,
) -> Float[Array, "n k"]:
    """log Q at every pair (u_i, x_j): of one axis if `group` has one of several, else of all."""
    whole = len(group) == ssm.dim
    if ssm.vectorized:
        rows = np.repeat(np.asarray(u), x.shape[0], axis=0)
        columns = np.tile(np.asarray(x), (u.shape[0], 1))
        values = call(ssm.log_transition, rows, columns, t=t, inputs=inputs)
        return jnp.asarray(np.asarray(values, dtype=float).reshape(u.shape[0], x.shape[0]))

    def one(old: Array, new: Array) -> Array:
        if whole:
            return _scalar("log_transition", call(ssm.log_transition, old, new, t=t, inputs=inputs))
        axis_fn = ssm.log_transition_axis
        assert axis_fn is not None
        return _scalar(
            "log_transition_axis", call(axis_fn, group[0], old, new[0], t=t, inputs=inputs)
        )

    return jax.vmap(lambda old: jax.vmap(lambda new: one(old, new))(x))(u)


def log_observation_table(
    ssm: StateSpaceModel,
    x: Float[Array, "n d"],
    y: Float[Array, " p"],
    t: Any = None,
    inputs: Inputs = None,
) -> Float[Array, " n"]:
    """log G(x_i, y) at all points, for a JAX model."""

    def one(point: Array) -> Array:
        value = call(ssm.log_observation, point, y, t=t, inputs=inputs)
        return _scalar("log_observation", value)

    return jax.vmap(one)(x)


def log_prior_table(ssm: StateSpaceModel, x: Float[Array, "n d"]) -> Float[Array, " n"]:
    """log p(x_i) at all points."""
    if ssm.vectorized:
        values = np.asarray(ssm.log_prior(np.asarray(x)), dtype=float)
        return jnp.asarray(values.reshape(x.shape[0]))
    return jax.vmap(lambda point: _scalar("log_prior", ssm.log_prior(point)))(x)


def _scalar(name: str, value: Any) -> Array:
    """One number; a size-one array is taken for one."""
    array = jnp.asarray(value, dtype=jnp.float64)
    if array.size != 1:
        raise ValueError(
            f"{name} must return one number for one point, got shape {array.shape}: write it for a "
            "single state x of shape (d,), not for a batch"
        )
    return array.reshape(())
