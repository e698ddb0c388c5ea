"""State-space models: a prior, a transition and an observation density on a box."""

from collections.abc import Callable
from enum import StrEnum
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .._checks import Numbers, counted
from .._density.box import Box, as_box
from .._modules import PlainModule
from .coordinates import AbstractAxis, Coordinates, Real, as_support
from .distributions import Distribution
from .from_laws import Given, parts_of
from .functions import (
    AbstractFunction,
    Row,
    Time,
    as_function,
    call,
    keywords_of,
    size_of,
    wanted_by,
)
from .functions import Inputs as Inputs
from .state_before import as_sensor_function
from .structure import AdditiveGaussian as AdditiveGaussian
from .structure import LinearGaussian as LinearGaussian
from .varying import VaryingLinear


class Trait(StrEnum):
    """What a model may have that not every engine can serve, in the words of a refusal."""

    REGIMES = "regimes"
    PERIODIC = "a state_box with periodic axes"
    STATE_BEFORE = "a sensor that takes u, the state before"
    VARYING_NOISE = "a Q that changes in time"


class Regimes(eqx.Module):
    """k_0 ~ initial,  k_t | k_{t-1}, x_{t-1} = u ~ row k_{t-1} of P(u); a model for each k.

    The regime moves first, then the state by the dynamics of the new regime, and the observation
    comes from the sensor of the new regime.
    """

    models: "tuple[StateSpaceModel, ...]"
    P: AbstractFunction  # u -> (K, K), rows of sum one
    initial: Float[Array, " k"]

    @property
    def num(self) -> int:
        """Their number, K."""
        return len(self.models)


class StateSpaceModel(PlainModule):
    """x_0 ~ prior,  x_t | x_{t-1} = u ~ Q(u, x),  y_t | x_t ~ G(x, y).

    All functions are unbatched and return the logarithm of a density; -inf means zero. They may
    also take the keywords `t` (the step, 1 for the first transition, or the real time), `inputs`
    (the row of `inputs` that belongs to it), `dt` (the time since the observation before) and
    `last_y` (that observation). A sensor may take `u` too, the state before: log G(x, y, u) is then
    that of y given both states. Nothing needs to be normalised on the box except G in y, if the
    likelihood is to be one.

    Attributes:
        log_prior: x (d,) -> log p(x); normalised on the box by us.
        log_transition: u, x (d,), (d,) -> log Q(u, x), the new state x given the old state u.
        log_observation: x, y (d,), (p,) -> log G(x, y), or x, y, u -> log G(x, y, u).
        state_box: where the state lives.
        observation_box: where y lives; needed only for laws of y (predictive, residuals).
        log_transition_axis: i, u, x_i -> log Q_i(u, x_i), if Q(u, x) = prod_i Q_i(u, x_i): noise
            that is independent from axis to axis. Learning is then (d + 1)- instead of
            2d-dimensional.
        sample_observation: key, x -> y, for sizing by simulated data and for posterior checks.
        vectorized: the functions are NumPy functions of points (n, d) instead; `log_transition`
            then takes u (n, d) and x (n, d) row by row, `log_transition_axis` i, u and x_i (n,).
        marginalizes_missing: `log_observation` takes y with some coordinates NaN and gives the
            density of the others; otherwise that takes a quadrature over `observation_box`.
        structure: the matrices of a linear-Gaussian model, or f, h, Q and R of one with additive
            Gaussian noise, for engines that use them.
        support: where each coordinate of the state lives, if that is not the whole line:
            "positive", "unit" for (0, 1), a pair (lower, upper) with None for no wall, or a
            bijection with `forward` and `inverse`; one for all, or a list with one for each. The
            state is then filtered in coordinates without walls, log x and logit x, and reported in
            yours.
        boxed: whether `state_box` confines the state; if not, it says where it usually is.
        sample_prior: key -> x, and
        sample_transition: key, u -> x, for simulation.
        first_y: what `last_y` is before the first observation (p,), for functions that take it.
        counts: whether y is made of whole numbers, so that its laws are sums.
        varying: the matrices of a linear-Gaussian model that change from step to step.
        step: the longest time of one transition; longer ones are composed of several.
        seen_axis: coordinates without walls of a scalar y that is confined.
        reach_box: if not `boxed`, where the tails of simulated states end; in coordinates without
            walls, as engines see them, how far these go.
        regimes: models between which a hidden Markov chain switches (`switching`); the functions
            above then cannot be called.
    """

    log_prior: AbstractFunction = eqx.field(converter=as_function)
    log_transition: AbstractFunction = eqx.field(converter=as_function)
    log_observation: AbstractFunction = eqx.field(converter=as_sensor_function)
    state_box: Box
    observation_box: Box | None = None
    log_transition_axis: AbstractFunction | None = eqx.field(default=None, converter=as_function)
    sample_observation: AbstractFunction | None = eqx.field(
        default=None, converter=as_sensor_function
    )
    vectorized: bool = eqx.field(static=True, default=False)
    marginalizes_missing: bool = eqx.field(static=True, default=False)
    structure: LinearGaussian | AdditiveGaussian | None = None
    support: Coordinates | None = eqx.field(default=None, converter=as_support)
    boxed: bool = eqx.field(static=True, default=True)
    sample_prior: AbstractFunction | None = eqx.field(default=None, converter=as_function)
    sample_transition: AbstractFunction | None = eqx.field(default=None, converter=as_function)
    first_y: Float[Array, " p"] | None = None
    counts: bool = eqx.field(static=True, default=False)
    reach_box: Box | None = None
    varying: VaryingLinear | None = None
    seen_axis: AbstractAxis | None = None
    step: float | None = eqx.field(static=True, default=None)
    regimes: Regimes | None = None

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
        if self.support is not None:
            _ = self.support.of_dim(self.dim)
            if self.vectorized:
                raise ValueError("support is for models written in JAX, not for vectorized=True")
        if Trait.STATE_BEFORE in self.traits and self.step is not None:
            raise ValueError(
                "log_observation must not take u here: transitions are composed of several, and "
                "the state before the last of them is not that of the observation before"
            )

    def __str__(self) -> str:
        box = self.state_box
        lines = [
            f"StateSpaceModel of {counted(self.dim, 'coordinate')}",
            f"  state        {'confined to' if self.boxed else 'usually in'} {box}",
        ]
        if self.support is not None:
            lines.append(f"  support      {self.coordinates.words}")
        if self.num_observed is not None:
            kind = "count" if self.counts else "number"
            lines.append(f"  observation  {counted(self.num_observed, kind)}")
        form = self.structure if self.varying is None else self.varying
        if form is not None:
            lines.append(f"  structure    {type(form).__name__}")
        if self.wants:
            lines.append(f"  takes        {', '.join(sorted(self.wants))}")
        return "\n".join(lines)

    @property
    def coordinates(self) -> Coordinates:
        """What the state is filtered in: x = b(z), the identity if nothing is said."""
        support = Coordinates((Real(),)) if self.support is None else self.support
        return support.of_dim(self.dim)

    @property
    def wants(self) -> frozenset[str]:
        """Which of `t`, `inputs`, `dt`, `last_y` and, of a sensor, `u` the functions take."""
        each = (self.log_transition, self.log_transition_axis, self.log_observation)
        return frozenset().union(*(wanted_by(fn) for fn in each))

    @staticmethod
    def from_distributions(
        prior: Distribution,
        transition: Callable[..., Distribution],
        observation: Callable[..., Distribution],
        *,
        state_box: Box | tuple[Numbers, Numbers] | None = None,
        observation_box: Box | tuple[Numbers, Numbers] | None = None,
        support: object = None,
        inputs: Inputs = None,
        dt: float = 1.0,
        first_y: Numbers | None = None,
    ) -> "StateSpaceModel":
        """x_0 ~ prior,  x_t ~ transition(x_{t-1}),  y_t ~ observation(x_t).

        Distributions are anything with `log_prob` and `sample`, such as those of NumPyro; a list of
        distributions of single numbers, a batch of them and `Independent` are products. Supports
        are read off them: positive and bounded states are filtered in coordinates without walls.
        Coordinates of y that are NaN are left out exactly where y is a product.

        Args:
            prior: the law of x_0.
            transition: u (d,) -> the law of the next state; may take the keywords `t`, `inputs`,
                `dt` and `last_y`.
            observation: x (d,) -> the law of y, likewise.
            state_box: walls that confine the state; by default there are none.
            observation_box: where y lives; by default found out where it is needed.
            support: as for `StateSpaceModel`, where the distributions do not say.
            inputs: one typical row of inputs, for functions that take them.
            dt: a typical time between two observations, for functions that take it.
            first_y: what `last_y` is before the first observation.
        """
        before = None if first_y is None else jnp.atleast_1d(jnp.asarray(first_y, jnp.float64))
        given = Given(prior, transition, observation, Row(inputs, None, np.asarray(dt), before))
        made = parts_of(given, support)
        box, boxed = made.box, state_box is not None
        if state_box is not None:
            box = as_box("state_box", state_box, made.dim)
        seen_box = None
        if observation_box is not None:
            seen_box = as_box("observation_box", observation_box, made.num_observed)
        form = None
        if made.gaussian is not None:
            form = AdditiveGaussian(*made.gaussian, boxed=boxed)
        return StateSpaceModel(
            structure=form,
            state_box=box,
            observation_box=seen_box,
            support=made.coordinates,
            boxed=boxed,
            first_y=before,
            reach_box=made.reach,
            **made.functions,
        )

    @property
    def dim(self) -> int:
        """Number of coordinates of the state."""
        return self.state_box.dim

    @property
    def num_observed(self) -> int | None:
        """How many coordinates y has; None if neither a box nor a sampler tells."""
        if self.observation_box is not None:
            return self.observation_box.dim
        if self.sample_observation is None or self.vectorized:
            return None
        if "inputs" in keywords_of(self.sample_observation):
            return None
        x = jax.ShapeDtypeStruct((self.dim,), jnp.float64)
        shape = size_of(self.sample_observation, jax.random.key(0), x)
        return shape[0] if len(shape) == 1 else 1

    @property
    def has_seen_laws(self) -> bool:
        """Whether laws of y can be had: by a box, or by a sampler that shows where y is."""
        return self.observation_box is not None or (
            self.sample_observation is not None and not self.vectorized
        )

    @property
    def traits(self) -> frozenset[Trait]:
        """What an engine has to know of to serve the model."""
        found = {Trait.REGIMES} if self.regimes is not None else set()
        found |= {Trait.PERIODIC} if self.state_box.periodic else set()
        found |= {Trait.STATE_BEFORE} if "u" in wanted_by(self.log_observation) else set()
        noisy = isinstance(self.structure, AdditiveGaussian) and self.structure.noise is not None
        return frozenset(found | ({Trait.VARYING_NOISE} if noisy else set()))

    @property
    def is_time_varying(self) -> bool:
        """Whether the transition takes `t` or `inputs`."""
        names = keywords_of(self.log_transition)
        if self.log_transition_axis is not None:
            names = names | keywords_of(self.log_transition_axis)
        return bool(names)


# In the support of real, positive and confined observations, where formulas of counts are smooth.
_ANY_Y = 0.5


def log_transition_table(
    ssm: StateSpaceModel,
    group: tuple[int, ...],
    u: Float[Array, "n d"],
    x: Float[Array, "k g"],
    t: Time = None,
    inputs: Inputs = None,
) -> Float[Array, "n k"]:
    """log Q at every pair (u_i, x_j): of one axis if `group` has one of several, else of all."""
    whole = len(group) == ssm.dim
    if ssm.vectorized:
        rows = np.repeat(np.asarray(u), x.shape[0], axis=0)
        columns = np.tile(np.asarray(x), (u.shape[0], 1))
        values = log_transition_rows(ssm, group, rows, columns, t)
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


def log_transition_rows(
    ssm: StateSpaceModel, group: tuple[int, ...], u: np.ndarray, x: np.ndarray, t: Time
) -> Any:
    """log Q_g(u_i, x_i) of a NumPy model, row by row."""
    if len(group) == ssm.dim:
        return call(ssm.log_transition, u, x, t=t)
    assert ssm.log_transition_axis is not None
    return call(ssm.log_transition_axis, group[0], u, x[:, 0], t=t)


def log_observation_table(
    ssm: StateSpaceModel,
    x: Float[Array, "n d"],
    y: Float[Array, " p"],
    t: Time = None,
    inputs: Inputs = None,
) -> Float[Array, " n"]:
    """log G(x_i, y) at all points, for a JAX model.

    NaN for a y that is wholly missing, unless the model knows what to do with it. The function is
    asked about a number instead: derivatives of NaN are NaN even where they count for nothing.
    """
    missing = jnp.all(jnp.isnan(y)) & (not ssm.marginalizes_missing)
    seen = jnp.where(missing, _ANY_Y, y)

    def one(point: Array) -> Array:
        value = call(ssm.log_observation, point, seen, t=t, inputs=inputs)
        return _scalar("log_observation", value)

    return jnp.where(missing, jnp.nan, jax.vmap(one)(x))


def observation_box(ssm: StateSpaceModel, what: str) -> Box:
    """The box of y, or an error that asks for it by name."""
    if ssm.observation_box is None:
        raise ValueError(
            f"{what} needs observation_box: say where y lives, "
            "StateSpaceModel(..., observation_box=psdfilter.Box(lower, upper))"
        )
    if ssm.observation_box.dim > 3:
        raise ValueError(
            f"{what} is a quadrature in at most 3 observed coordinates, got "
            f"{ssm.observation_box.dim}"
        )
    return ssm.observation_box


def log_observation_grid(
    ssm: StateSpaceModel, x: Float[Array, "n d"], y: Float[Array, "k p"], t, row
) -> Float[Array, "n k"]:
    """log G(x_i, y_j)."""
    if ssm.vectorized:
        points = np.repeat(np.asarray(x), len(y), axis=0)
        seen = np.tile(np.asarray(y), (len(x), 1))
        values = call(ssm.log_observation, points, seen, t=None if t is None else int(t))
        return jnp.asarray(np.asarray(values, dtype=float).reshape(len(x), len(y)))
    return jax.vmap(lambda seen: log_observation_table(ssm, x, seen, t, row), out_axes=1)(y)


def log_prior_table(ssm: StateSpaceModel, x: Float[Array, "n d"]) -> Float[Array, " n"]:
    """log p(x_i) at all points."""
    if ssm.vectorized:
        values = np.asarray(ssm.log_prior(np.asarray(x)), dtype=float)
        return jnp.asarray(values.reshape(x.shape[0]))
    return jax.vmap(lambda point: _scalar("log_prior", ssm.log_prior(point)))(x)


def _scalar(name: str, value: Numbers) -> Array:
    """One number; a size-one array is taken for one."""
    array = jnp.asarray(value, dtype=jnp.float64)
    if array.size != 1:
        raise ValueError(
            f"{name} must return one number for one point, got shape {array.shape}: write it for a "
            "single state x of shape (d,), not for a batch"
        )
    return array.reshape(())
