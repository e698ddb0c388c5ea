"""Models of the `particles` library, unchanged: PX0(), PX(t, xp), PY(t, xp, x) as NumPy functions.

Their distributions have `logpdf` and `rvs`; states are (N,) in one dimension, (N, d) in more.
"""

from collections.abc import Callable
from contextlib import contextmanager
from typing import Any

import jax
import numpy as np
from jaxtyping import Array, Float

from .._density.box import Box, as_box
from .boxes import box_of_paths
from .distributions import Distribution
from .matrices import BoxLike
from .model import StateSpaceModel

# A `particles.state_space_models.StateSpaceModel`, or what has its methods.
ParticlesModel = Any

# States at which laws are compared, to see what they depend on: exact equality is asked for.
_PROBES = 64
# The paths that a box is made of, as for `additive_gaussian`.
_CHAINS, _STEPS = 512, 64
# Any fixed number: the same model has the same box.
_SEED = 20_240_101


def from_particles(
    model: ParticlesModel,
    state_box: BoxLike | None = None,
    observation_box: BoxLike | None = None,
    *,
    time_varying: bool | None = None,
) -> StateSpaceModel:
    """X_0 ~ PX0(),  X_t | X_{t-1} = xp ~ PX(t, xp),  Y_t | X_t = x ~ PY(t, xp, x).

    `particles` observes the first state itself: filter with `first="observe"` for the same
    likelihood. A transition with independent coordinates, `IndepProd`, is learned axis by axis;
    others are learned whole, so that their states have one or two coordinates. NumPy functions have
    no gradients: for `fit` write the model in JAX, or take a family of `psdfilter.models`.

    Args:
        model: a `particles.state_space_models.StateSpaceModel`, or its class, which then has its
            default parameters.
        state_box: where the state lives; by default chosen from 512 simulated paths of 64 steps.
        observation_box: where y lives; needed for laws of y only.
        time_varying: whether PX depends on t. By default found out by comparing PX at t = 1, 2, 7
            on simulated states.
    """
    if isinstance(model, type):
        model = _with_defaults(model)
    for name in ("PX0", "PX", "PY"):
        if not callable(getattr(model, name, None)):
            raise ValueError(
                f"model must be a particles StateSpaceModel with a method {name}, got "
                f"{type(model).__name__}"
            )
    try:
        return _made(_Wrapped(model), state_box, observation_box, time_varying)
    except (jax.errors.ConcretizationTypeError, jax.errors.TracerArrayConversionError) as error:
        raise ValueError(
            "from_particles must be called with numbers, not within jax.jit, likelihood or fit: "
            "NumPy functions have no gradients. For fits write log_transition and log_observation "
            "in jax.numpy, or take a family of psdfilter.models"
        ) from error


def _made(
    wrapped: "_Wrapped",
    state_box: BoxLike | None,
    observation_box: BoxLike | None,
    time_varying: bool | None,
) -> StateSpaceModel:
    states = wrapped.simulate(_PROBES, 8)
    wrapped.refuse_lagged_observations(states)
    varying = wrapped.varies_in_time(states) if time_varying is None else bool(time_varying)
    if state_box is None:
        box = box_of_paths(wrapped.simulate(_CHAINS, _STEPS))
    else:
        box = as_box("state_box", state_box, wrapped.dim)
    seen_box = observation_box
    if seen_box is not None and not isinstance(seen_box, Box):
        seen_box = Box(*seen_box)
    return StateSpaceModel(
        log_prior=wrapped.log_prior,
        log_transition=wrapped.log_transition_at if varying else wrapped.log_transition,
        log_observation=wrapped.log_observation,
        log_transition_axis=wrapped.axis_function(varying),
        state_box=box,
        observation_box=seen_box,
        sample_observation=wrapped.sample_observation,
        vectorized=True,
    )


def _with_defaults(kind: type) -> ParticlesModel:
    """An instance of a class of models."""
    try:
        return kind()
    except TypeError as error:
        raise ValueError(
            f"model must be an instance of {kind.__name__}, with its parameters: {error}"
        ) from error


class _Wrapped:
    """The functions of a model on points (n, d)."""

    def __init__(self, model: ParticlesModel):
        self.model = model
        with _seeded(_SEED):
            draws = np.asarray(model.PX0().rvs(size=2))
        if draws.dtype.names is not None or draws.ndim not in (1, 2):
            raise ValueError(
                "model must have states that are arrays (N,) or (N, d), but PX0().rvs(size=2) has "
                f"shape {draws.shape} and dtype {draws.dtype}"
            )
        self.flat = draws.ndim == 1
        self.dim = 1 if self.flat else draws.shape[1]
        with _seeded(_SEED):
            seen = np.asarray(model.PY(1, draws, draws).rvs(size=2))
        self.flat_seen = seen.ndim == 1

    def _out(self, points: np.ndarray) -> np.ndarray:
        return points[:, 0] if self.flat else points

    def _in(self, states: Array | np.ndarray) -> np.ndarray:
        return np.asarray(states, dtype=float).reshape(-1, self.dim)

    def log_prior(self, x: Float[np.ndarray, "n d"]) -> Float[np.ndarray, " n"]:
        return _logs(self.model.PX0(), self._out(x))

    def log_transition_at(self, u: np.ndarray, x: np.ndarray, *, t: int) -> np.ndarray:
        return _logs(self.model.PX(t, self._out(u)), self._out(x))

    def log_transition(self, u: np.ndarray, x: np.ndarray) -> np.ndarray:
        return self.log_transition_at(u, x, t=1)

    def axis_function(self, varying: bool) -> Callable[..., np.ndarray] | None:
        """log Q_i(u, x_i) if PX is a product of laws of single coordinates."""
        if self.dim == 1 or not self.is_product():
            return None
        return self.log_transition_axis_at if varying else self.log_transition_axis

    def is_product(self) -> bool:
        """Whether PX(t, xp) is an `IndepProd` of as many laws as the state has coordinates."""
        with _seeded(_SEED):
            old = np.asarray(self.model.PX0().rvs(size=2), dtype=float)
        laws = getattr(self.model.PX(1, old), "dists", None)
        if laws is None or len(laws) != self.dim:
            return False
        return all(getattr(law, "dim", None) == 1 and hasattr(law, "logpdf") for law in laws)

    def log_transition_axis_at(
        self, i: int, u: np.ndarray, x_i: Float[np.ndarray, " n"], *, t: int
    ) -> np.ndarray:
        return _logs(self.model.PX(t, self._out(u)).dists[i], x_i)

    def log_transition_axis(self, i: int, u: np.ndarray, x_i: np.ndarray) -> np.ndarray:
        return self.log_transition_axis_at(i, u, x_i, t=1)

    def log_observation(self, x: np.ndarray, y: np.ndarray, *, t: int) -> np.ndarray:
        states = self._out(x)
        seen = y[:, 0] if self.flat_seen else y
        return _logs(self.model.PY(t, states, states), seen)

    def sample_observation(self, rng: np.random.Generator, x: np.ndarray, *, t: int) -> np.ndarray:
        state = self._out(np.asarray(x, dtype=float)[None, :])
        with _seeded(int(rng.integers(2**31))):
            return np.asarray(self.model.PY(t, state, state).rvs(size=1), dtype=float)[0]

    def simulate(self, num: int, steps: int) -> Float[np.ndarray, "t n d"]:
        """States of `num` chains from the prior on, seeded."""
        with _seeded(_SEED):
            states = [np.asarray(self.model.PX0().rvs(size=num), dtype=float)]
            for t in range(1, steps):
                states.append(np.asarray(self.model.PX(t, states[-1]).rvs(size=num), dtype=float))
        return np.stack([self._in(s) for s in states])

    def varies_in_time(self, states: np.ndarray) -> bool:
        old = states[:-1].reshape(-1, self.dim)
        new = states[1:].reshape(-1, self.dim)
        values = [self.log_transition_at(old, new, t=t) for t in (1, 2, 7)]
        return not all(np.array_equal(values[0], v, equal_nan=True) for v in values[1:])

    def refuse_lagged_observations(self, states: np.ndarray) -> None:
        x = self._out(states[-1])
        others = self._out(states[-2]), self._out(states[-2][::-1])
        with _seeded(_SEED):
            y = np.asarray(self.model.PY(2, others[0], x).rvs(size=len(x)))
        first, second = (_logs(self.model.PY(2, xp, x), y) for xp in others)
        if not np.array_equal(first, second, equal_nan=True):
            raise ValueError(
                "model.PY must not depend on xp: write a sensor of two states in JAX, with "
                "log_observation=lambda x, y, u: ..., u the state before. For leverage take "
                "psdfilter.models.StochasticVolatility(leverage=True), or a transition with the "
                "keyword last_y"
            )


def _logs(law: Distribution, points: np.ndarray) -> np.ndarray:
    with np.errstate(divide="ignore"):
        return np.asarray(law.logpdf(points), dtype=float)


@contextmanager
def _seeded(seed: int):
    """`particles` draws from NumPy's global generator: seeded here, and put back as it was."""
    before = np.random.get_state()  # noqa: NPY002
    np.random.seed(seed)  # noqa: NPY002
    try:
        yield
    finally:
        np.random.set_state(before)  # noqa: NPY002
