"""The functions of a model as pytrees: their code is static, the numbers in them are leaves.

Two models that differ in their numbers only then share every compiled program, and the numbers may
be traced.
"""

import inspect
from abc import abstractmethod
from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PyTree

from .._checks import Numbers
from .._density.psd import AbstractDensity
from .angles import Turns
from .noise import Noise, log_normal
from .sameness import Same

Inputs = PyTree  # any pytree of arrays, one row for each step
Time = Array | np.ndarray | int | None  # a step, where one is needed
Parts = dict[str, Any]  # what a model is made of, by the names of its arguments
KEYWORDS = ("t", "inputs", "dt", "last_y")
T = TypeVar("T")


class Row(NamedTuple):
    """What belongs to one step, where a model asks for more than inputs; travels in their place.

    Engines hand it on like any row of inputs, and `call` takes it apart.

    Attributes:
        inputs: the user's own, or None.
        time: the real time of the step, handed to functions as `t`; None for whole steps.
        dt: time since the row before, or since the prior.
        last_y: the observation before (p,), NaN where it is missing.
        y: the observation itself (p,), where the sensor is part of the transition: it takes `u`.
        u: the state before (d,), while such a sensor is asked.
    """

    inputs: Inputs = None
    time: Array | np.ndarray | None = None
    dt: Array | np.ndarray | None = None
    last_y: Array | np.ndarray | None = None
    y: Array | np.ndarray | None = None
    u: Array | np.ndarray | None = None


class Keywords(eqx.Module):
    """Which of the optional keywords a function takes, and which of these it insists on."""

    names: frozenset[str] = eqx.field(static=True)
    required: frozenset[str] = eqx.field(static=True)

    def __or__(self, other: "Keywords") -> "Keywords":
        return Keywords(self.names | other.names, self.required | other.required)

    def folded(self) -> "Keywords":
        """As those who hand on rows see them: dt and last_y are parts of a row of inputs."""
        own = frozenset(("t", "inputs"))
        names = self.names & own
        return Keywords(names | {"inputs"} if self.names - own else names, self.required & own)


_NONE = Keywords(frozenset(), frozenset())


class AbstractFunction(eqx.Module):
    """A function of a model."""

    @property
    @abstractmethod
    def keywords(self) -> Keywords:
        """What it takes beside its arguments."""

    @property
    def wants(self) -> frozenset[str]:
        """The keywords of the user's functions inside of it."""
        return self.keywords.names

    @property
    def takes_rows(self) -> bool:
        """Whether it wants a whole `Row` as `inputs`, to hand it on."""
        return True

    @abstractmethod
    def __call__(self, *args: Any, **keywords: Any) -> Any:
        """Its value."""


class Plain(AbstractFunction):
    """A Python function; the numbers it closes over are part of its code."""

    program: Same = eqx.field(static=True)

    @property
    def fn(self) -> Callable[..., Any]:
        """The function itself."""
        return self.program.fn

    @property
    def keywords(self) -> Keywords:
        """Read off its signature."""
        return signature_keywords(self.fn)

    @property
    def takes_rows(self) -> bool:
        """It gets what its signature names."""
        return False

    def __call__(self, *args: PyTree, **keywords: PyTree) -> Numbers:
        """fn(...)."""
        return self.fn(*args, **keywords)


class Split(AbstractFunction):
    """A callable Equinox module of the user's, or a method of one, in arrays and the rest."""

    arrays: PyTree
    rest: PyTree = eqx.field(static=True)

    @property
    def keywords(self) -> Keywords:
        """Read off its signature."""
        return signature_keywords(eqx.combine(self.arrays, self.rest))

    @property
    def takes_rows(self) -> bool:
        """It gets what its signature names."""
        return False

    def __call__(self, *args: PyTree, **keywords: PyTree) -> Numbers:
        """module(...)."""
        return eqx.combine(self.arrays, self.rest)(*args, **keywords)


def as_function(fn: Any, *, constant: bool = False) -> Any:
    """A callable as a pytree; anything else as it is, for whoever checks it."""
    if fn is None or isinstance(fn, AbstractFunction) or not callable(fn):
        return fn
    if isinstance(fn, eqx.Module):
        return Split(*eqx.partition(fn, eqx.is_array))
    return Plain(Same(fn, constant=constant))


def signature_keywords(fn: Callable[..., object]) -> Keywords:
    """The keywords of a function that is no `AbstractFunction`."""
    try:
        return _read_signature(fn)
    except TypeError:  # a callable that cannot be hashed
        return _read_signature.__wrapped__(fn)


@lru_cache(maxsize=1024)
def _read_signature(fn: Callable[..., object]) -> Keywords:
    try:
        parameters = inspect.signature(fn).parameters
    except (TypeError, ValueError):
        return _NONE
    if any(p.kind is inspect.Parameter.VAR_KEYWORD for p in parameters.values()):
        return Keywords(frozenset(KEYWORDS), frozenset())
    taken = [parameters[name] for name in KEYWORDS if name in parameters]
    _refuse_own_values(fn, taken)
    required = [p.name for p in taken if p.default is inspect.Parameter.empty]
    return Keywords(frozenset(p.name for p in taken), frozenset(required))


# Defaults that say "optional": what a function is given for a series without times is the same.
_OPTIONAL = {"t": 0, "dt": 1}


def _refuse_own_values(fn: Callable[..., object], taken: list[inspect.Parameter]) -> None:
    """A default such as dt=0.05 is the user's own constant, which ours would replace."""
    for parameter in taken:
        name, value = parameter.name, parameter.default
        if value is inspect.Parameter.empty or value is None:
            continue
        if name in _OPTIONAL and np.ndim(value) == 0 and value == _OPTIONAL[name]:
            continue
        called = getattr(fn, "__name__", "fn")
        called = called if called.isidentifier() else "fn"
        raise ValueError(
            f"{called} has a parameter {name}={value!r}, but functions of a model are given "
            f"{_MEANING[name]} under that name, and {value!r} would not be used: rename the "
            f"parameter, or hide it, lambda *args: {called}(*args, {name}={value!r}); without a "
            f"default, {name} is {_MEANING[name]}"
        )


_MEANING = {
    "t": "the time of the step",
    "inputs": "the row of inputs",
    "dt": "the time since the row before",
    "last_y": "the observation before",
}


def keywords_of(fn: Callable[..., object]) -> frozenset[str]:
    """Which of the keywords `t` and `inputs` a function takes, `dt` and `last_y` folded."""
    return _keywords(fn).folded().names


def wanted_by(fn: Callable[..., object] | None) -> frozenset[str]:
    """Which of all optional keywords the user's functions inside of a function take."""
    if fn is None:
        return frozenset()
    return fn.wants if isinstance(fn, AbstractFunction) else signature_keywords(fn).names


def _keywords(fn: Callable[..., object]) -> Keywords:
    return fn.keywords if isinstance(fn, AbstractFunction) else signature_keywords(fn)


def requires(fn: Callable[..., object], name: str) -> bool:
    """Whether a function cannot be called without the keyword."""
    return name in _keywords(fn).required


def call(fn: Callable[..., T], *args: PyTree, t: Time = None, inputs: Inputs = None) -> T:
    """fn(*args), with those of `t`, `inputs`, `dt` and `last_y` that it takes.

    The last two are in a `Row`; without one, as where typical steps are looked at, a step takes one
    unit of time after an observation of zero.
    """
    return fn(*args, **asked_of(fn, t, inputs))


def asked_of(fn: Callable[..., object], t: Time, inputs: Inputs) -> Parts:
    """The optional keywords that a function takes, with their values."""
    keywords = _keywords(fn)
    if isinstance(fn, AbstractFunction) and fn.takes_rows:
        given: Parts = {"t": t, "inputs": inputs}
    else:
        row = inputs if isinstance(inputs, Row) else Row(inputs)
        given = {
            "t": t if row.time is None else row.time,
            "inputs": row.inputs,
            "dt": 1.0 if row.dt is None else row.dt,
            "last_y": np.zeros(1) if row.last_y is None else row.last_y,
        }
    if given["inputs"] is None and "inputs" in keywords.required:
        raise ValueError("inputs must be given: a function of the model takes them")
    return {
        name: given[name]
        for name in keywords.names
        if given[name] is not None or name in keywords.required
    }


def as_vector(value: Numbers) -> Array:
    """What a user's map returned, as (d,)."""
    return jnp.atleast_1d(jnp.asarray(value, dtype=jnp.float64))


class Affine(AbstractFunction):
    """u -> F u + b."""

    matrix: Float[Array, "k d"]
    shift: Float[Array, " k"]

    @property
    def keywords(self) -> Keywords:
        """None."""
        return _NONE

    def __call__(self, u: Float[Array, " d"]) -> Float[Array, " k"]:
        """F u + b."""
        return self.matrix @ u + self.shift


class AbstractAround(AbstractFunction):
    """Gaussian noise around a map, which says what keywords there are."""

    center: eqx.AbstractVar[AbstractFunction]
    noise: eqx.AbstractVar[Noise]

    @property
    def keywords(self) -> Keywords:
        """Those of the map."""
        return self.center.keywords.folded()

    @property
    def wants(self) -> frozenset[str]:
        """Those of the map."""
        return self.center.wants

    def mean(self, x: Array, t: Time, inputs: Inputs) -> Array:
        """The map."""
        return as_vector(call(self.center, x, t=t, inputs=inputs))


class GaussianTransition(AbstractAround):
    """log N(x; f(u), Q)."""

    center: AbstractFunction
    noise: Noise

    def __call__(self, u: Array, x: Array, t: Time = None, inputs: Inputs = None) -> Array:
        """At one pair."""
        return self.noise.log_density(x - self.mean(u, t, inputs))


class GaussianTransitionAxis(AbstractAround):
    """log N(x_i; f_i(u), q_i), for noise that is independent from axis to axis."""

    center: AbstractFunction
    noise: Noise

    def __call__(
        self, i: int, u: Array, x_i: Array, t: Time = None, inputs: Inputs = None
    ) -> Array:
        """At one pair."""
        residual = x_i - self.mean(u, t, inputs)[i]
        turns, variance = self.noise.turns, self.noise.covariance[i]
        if turns is None or i not in turns.axes:
            return log_normal(residual, variance)
        single = Turns(turns.periods[i : i + 1], (0,), turns.count)
        return Noise(variance[None], single).log_density(residual[None])


class GaussianObservation(AbstractAround):
    """log N(y; h(x), R) of the coordinates of y that were seen."""

    center: AbstractFunction
    noise: Noise

    def __call__(self, x: Array, y: Array, t: Time = None, inputs: Inputs = None) -> Array:
        """At one pair."""
        return self.noise.log_density_observed(y, self.mean(x, t, inputs))


class GaussianSampler(AbstractAround):
    """Draws from N(h(x), R)."""

    center: AbstractFunction
    noise: Noise

    def __call__(self, key: Array, x: Array, t: Time = None, inputs: Inputs = None) -> Array:
        """One draw; angles within half a turn of zero."""
        drawn = self.mean(x, t, inputs) + self.noise.draw(key)
        return drawn if self.noise.turns is None else self.noise.turns.nearest(drawn)


class GaussianPrior(AbstractFunction):
    """log N(x; m, P)."""

    mean: Float[Array, " d"]
    noise: Noise

    @property
    def keywords(self) -> Keywords:
        """None."""
        return _NONE

    def __call__(self, x: Float[Array, " d"]) -> Float[Array, ""]:
        """At one point."""
        return self.noise.log_density(x - self.mean)


class GaussianStart(AbstractFunction):
    """Draws from N(m, P)."""

    mean: Float[Array, " d"]
    noise: Noise

    @property
    def keywords(self) -> Keywords:
        """None."""
        return _NONE

    def __call__(self, key: Array) -> Float[Array, " d"]:
        """One draw."""
        return self.mean + self.noise.draw(key)


class DensityPrior(AbstractFunction):
    """log f(x) of a density of this package."""

    f: AbstractDensity

    @property
    def keywords(self) -> Keywords:
        """None."""
        return _NONE

    def __call__(self, x: Float[Array, " d"]) -> Float[Array, ""]:
        """At one point."""
        return self.f.log_density(x)


def size_of(fn: Callable[..., Array], *args: Array | jax.ShapeDtypeStruct) -> tuple[int, ...]:
    """The shape of what a map returns at step 1."""
    return jax.eval_shape(lambda *a: call(fn, *a, t=1), *args).shape
