"""Linear-Gaussian dynamics that change from step to step: by the time between, or by a list."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .._checks import as_floats
from .functions import (
    AbstractFunction,
    Inputs,
    Keywords,
    Time,
    as_function,
    as_vector,
    call,
    signature_keywords,
)
from .noise import Noise


class Listed(AbstractFunction):
    """The t-th of a list of arrays, t = 1, 2, ...

    Looks ahead of the data may take the last of them from then on; drivers refuse longer series.
    """

    arrays: Float[Array, "t ..."]

    @property
    def keywords(self) -> Keywords:
        """The step."""
        return Keywords(frozenset(("t",)), frozenset(("t",)))

    def __call__(self, *, t: Time) -> Array:
        """The array of step t."""
        place = jnp.clip(jnp.asarray(t) - 1, 0, len(self.arrays) - 1)
        return self.arrays[place.astype(int)]


class Fixed(AbstractFunction):
    """One array for all steps."""

    array: Array

    @property
    def keywords(self) -> Keywords:
        """None."""
        return Keywords(frozenset(), frozenset())

    def __call__(self) -> Array:
        """The array."""
        return self.array


class ByTime(AbstractFunction):
    """A function of the user's of dt, named or not."""

    fn: AbstractFunction
    shape: tuple[int, ...] = eqx.field(static=True)

    @property
    def keywords(self) -> Keywords:
        """Those of the function."""
        return self.fn.keywords.folded()

    @property
    def wants(self) -> frozenset[str]:
        """Those of the function."""
        return self.fn.wants

    def __call__(self, t: Time = None, inputs: Inputs = None) -> Array:
        """The array; variances become a diagonal matrix."""
        value = jnp.asarray(call(self.fn, t=t, inputs=inputs), dtype=jnp.float64)
        return shaped("a matrix that changes in time", value, self.shape)


def shaped(name: str, value: Array, shape: tuple[int, ...]) -> Array:
    """A number, a vector or a matrix in the shape that is asked for."""
    if value.shape == shape:
        return value
    dim = shape[0]
    if value.ndim == 0 and dim == 1:
        return value.reshape(shape)
    if len(shape) == 2 and value.shape in ((), (dim,)):
        return jnp.diag(jnp.broadcast_to(value, (dim,)))
    raise ValueError(f"{name} must have shape {shape}, got {value.shape}")


class VaryingLinear(eqx.Module):
    """x' = F_t u + b_t + N(0, Q_t),  y = H x + d + N(0, R),  x_0 ~ N(m0, P0)."""

    F: AbstractFunction
    b: AbstractFunction
    Q: AbstractFunction
    H: Float[Array, "p d"]
    d: Float[Array, " p"]
    R: Float[Array, "p p"]
    m0: Float[Array, " d"]
    P0: Float[Array, "d d"]

    def at(self, t: Time, row: Inputs) -> tuple[Array, Array, Array]:
        """F, b and Q of one step."""
        F, b, Q = (call(fn, t=t, inputs=row) for fn in (self.F, self.b, self.Q))
        return F, b, Q


class VaryingTransition(AbstractFunction):
    """log N(x; F_t u + b_t, Q_t)."""

    F: AbstractFunction
    b: AbstractFunction
    Q: AbstractFunction

    @property
    def keywords(self) -> Keywords:
        """Those of the three."""
        return (self.F.keywords | self.b.keywords | self.Q.keywords).folded()

    @property
    def wants(self) -> frozenset[str]:
        """Those of the three."""
        return self.F.wants | self.b.wants | self.Q.wants

    def __call__(self, u: Array, x: Array, t: Time = None, inputs: Inputs = None) -> Array:
        """At one pair."""
        F, b, Q = (call(fn, t=t, inputs=inputs) for fn in (self.F, self.b, self.Q))
        return Noise(Q).log_density(x - F @ u - b)


class VaryingSampler(VaryingTransition):
    """Draws from N(F_t u + b_t, Q_t)."""

    def __call__(self, key: Array, u: Array, t: Time = None, inputs: Inputs = None) -> Array:
        """One draw."""
        F, b, Q = (call(fn, t=t, inputs=inputs) for fn in (self.F, self.b, self.Q))
        return F @ u + b + Noise(Q).draw(key)


class NoisyTransition(AbstractFunction):
    """log N(x; f(u), Q_t)."""

    center: AbstractFunction
    Q: AbstractFunction

    @property
    def keywords(self) -> Keywords:
        """Those of both."""
        return (self.center.keywords | self.Q.keywords).folded()

    @property
    def wants(self) -> frozenset[str]:
        """Those of both."""
        return self.center.wants | self.Q.wants

    def parts(self, u: Array, t: Time, inputs: Inputs) -> tuple[Array, Noise]:
        """Mean and noise of one step."""
        mean = as_vector(call(self.center, u, t=t, inputs=inputs))
        return mean, Noise(call(self.Q, t=t, inputs=inputs))

    def __call__(self, u: Array, x: Array, t: Time = None, inputs: Inputs = None) -> Array:
        """At one pair."""
        mean, noise = self.parts(u, t, inputs)
        return noise.log_density(x - mean)


class NoisySampler(NoisyTransition):
    """Draws from N(f(u), Q_t)."""

    def __call__(self, key: Array, u: Array, t: Time = None, inputs: Inputs = None) -> Array:
        """One draw."""
        mean, noise = self.parts(u, t, inputs)
        return mean + noise.draw(key)


def refuse_unequal(**functions: AbstractFunction) -> None:
    """Lists of matrices must be of one length."""
    lengths = {name: len(fn.arrays) for name, fn in functions.items() if isinstance(fn, Listed)}
    if len(set(lengths.values())) > 1:
        told = ", ".join(f"{num} of {name}" for name, num in lengths.items())
        raise ValueError(f"{' and '.join(lengths)} must hold one matrix for each step, got {told}")


def listed_steps(transition: AbstractFunction | VaryingLinear) -> int | None:
    """For how many steps a transition has matrices; None if it has no list of them."""
    parts: tuple[AbstractFunction, ...] = ()
    if isinstance(transition, VaryingTransition | VaryingLinear):
        parts = (transition.F, transition.b, transition.Q)
    elif isinstance(transition, NoisyTransition):
        parts = (transition.Q,)
    return min((len(fn.arrays) for fn in parts if isinstance(fn, Listed)), default=None)


def wanted(form: VaryingLinear) -> frozenset[str]:
    """The keywords that its functions take."""
    return form.F.wants | form.b.wants | form.Q.wants


def is_varying(value: Any, fixed_axes: int) -> bool:
    """Whether a matrix is a function of time, or has an axis of steps in front."""
    return callable(value) or (value is not None and np.ndim(value) > fixed_axes)


def as_varying(name: str, value: Any, shape: tuple[int, ...]) -> AbstractFunction:
    """A matrix, one matrix for each step (T, ...), or a function of dt (or t, or inputs)."""
    if callable(value):
        return ByTime(_named(name, value), shape)
    array = as_floats(name, value)
    if array.ndim == len(shape) + 1:
        if array.shape[1:] != shape:
            raise ValueError(f"{name} must have shape (T, {shape}), got {array.shape}")
        return Listed(array)
    return Fixed(shaped(name, array, shape))


def _named(name: str, fn: Callable[..., object]) -> AbstractFunction:
    """A function of one unnamed argument is one of dt."""
    known = signature_keywords(fn).names
    if known:
        return as_function(fn)
    wrapped = _OfTime(fn)
    try:
        _ = jax.eval_shape(lambda: jnp.asarray(fn(jnp.ones(()))))
    except TypeError as error:
        raise ValueError(f"{name} must be a matrix or a function of dt: {error}") from error
    return as_function(wrapped)


class _OfTime:
    """dt as a keyword, for a function that calls it otherwise; equal to another of that one."""

    def __init__(self, fn: Callable[..., object]):
        self.fn = fn

    def __call__(self, *, dt: Array) -> object:
        return self.fn(dt)

    def __hash__(self) -> int:
        return hash((_OfTime, self.fn))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _OfTime) and other.fn == self.fn
