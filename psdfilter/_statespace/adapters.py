"""Models in the form that other libraries take them: f, h, Q, R or matrices."""

from collections.abc import Callable, Sequence
from typing import cast

import jax
import jax.numpy as jnp
from jaxtyping import Array

from .._checks import Numbers, required
from .._density.blocks import GaussianBlocks
from .._density.box import Box, as_box
from .._density.moments import moments
from .._density.psd import AbstractDensity
from .angles import as_turns, turns_of
from .boxes import gaussian_box, simulated_or_prior_box
from .functions import (
    AbstractFunction,
    Affine,
    DensityPrior,
    GaussianPrior,
    GaussianSampler,
    GaussianStart,
    GaussianTransition,
    GaussianTransitionAxis,
    Inputs,
    Parts,
    as_function,
    as_vector,
    call,
    requires,
)
from .hoisting import hoisted_function
from .matrices import (
    BoxLike,
    as_matrix,
    as_mean,
    as_observation_box,
    as_offset,
    as_sensor,
    no_sensor,
    observation_parts,
)
from .model import AdditiveGaussian, LinearGaussian, StateSpaceModel
from .noise import Noise, as_noise
from .state_before import refuse_state_before
from .varying import NoisySampler, NoisyTransition, as_varying, is_varying
from .varying_adapter import VaryingParts, refuse_others, varying_linear


def additive_gaussian(
    f: Callable[..., Numbers],
    h: Callable[..., Numbers] | None = None,
    Q: Numbers | Callable[..., Numbers] | None = None,
    R: Numbers | None = None,
    m0: Numbers | None = None,
    P0: Numbers | None = None,
    state_box: BoxLike | None = None,
    observation_box: BoxLike | None = None,
    *,
    log_observation: Callable[..., Numbers] | None = None,
    sample_observation: Callable[..., Numbers] | None = None,
    inputs: Inputs = None,
    first_y: Numbers | None = None,
    wrap: Sequence[bool | float | None] | None = None,
) -> StateSpaceModel:
    """x' = f(u) + N(0, Q),  y = h(x) + N(0, R),  x_0 ~ N(m0, P0).

    NaN coordinates of y are marginalised exactly. Everything may be traced, so that models can be
    built inside `jax.grad`. `learn` works on a grid if the noise is wide enough for one; noise that
    is small or singular, and states of more than four coordinates, are followed on all of R^d by
    Gaussians, each with its own linearisation.

    Args:
        f: u (d,) -> mean of the new state (d,), a JAX function; may take `t` and `inputs`.
        h: x (d,) -> mean of the observation (p,), likewise; left out with `log_observation`.
        Q: a variance, d variances, or a covariance matrix. On a grid, independent noise lets every
            axis be learned apart, and correlated noise is taken for d <= 2. Or a function of `dt`
            (or `t`, `inputs`), which engine "mixture" serves.
        R: a variance, p variances, or a covariance matrix; left out with `log_observation`.
        m0: mean of the first state.
        P0: its covariance, as for Q.
        state_box: where the state lives. By default quantiles of 512 simulated paths of 64 steps
            plus a margin, and five standard deviations of the prior; `learn` reports the leak.
        observation_box: where y lives; needed for laws of y only.
        log_observation: x, y -> log G(x, y), instead of h and R; may take `u`, the state before.
        sample_observation: key, x -> y, for one that can be simulated; likewise.
        inputs: one typical row of inputs, for choosing the box of a model that takes them.
        first_y: what `last_y` is before the first observation, for functions that take it.
        wrap: for each coordinate of y, True if it is an angle in radians, its period (360.0) if it
            is one in other units, else False. Residuals then go the shortest way round, and it
            does not matter by how many turns y and h(x) differ.
    """
    mean = as_mean("m0", required("m0", m0))
    dim = mean.shape[0]
    _check_dynamics(f, mean, state_box, inputs)
    noise, changing = _noise_of(required("Q", Q), dim, state_box, inputs)
    prior = as_noise("P0", required("P0", P0), dim, singular=True)
    move = as_function(f)
    if log_observation is None:
        see, seen_noise, parts = _additive_sensor(h, R, mean, inputs, wrap)
    else:
        see, seen_noise = no_sensor("h, R and wrap", h, R if wrap is None else wrap), None
        parts = {"log_observation": log_observation, "sample_observation": sample_observation}
    box, bounded = _box_for(state_box, GaussianPrior(mean, prior), move, noise, inputs)
    if state_box is not None:
        noise, prior = _on_circles(box, noise), _on_circles(box, prior)
    width = None if seen_noise is None else seen_noise.covariance.shape[0]
    return StateSpaceModel(
        log_prior=GaussianPrior(mean, prior),
        state_box=box,
        observation_box=as_observation_box(observation_box, width),
        boxed=state_box is not None,
        sample_prior=GaussianStart(mean, prior),
        first_y=None if first_y is None else as_mean("first_y", first_y),
        structure=AdditiveGaussian(
            move,
            see,
            noise.matrix(),
            None if seen_noise is None else seen_noise.matrix(),
            mean,
            prior.matrix(),
            boxed=state_box is not None,
            bounded=bounded,
            turns=None if seen_noise is None else seen_noise.turns,
            noise=changing,
        ),
        **_transition_parts(move, noise, changing),
        **parts,
    )


def _noise_of(
    Q: Numbers | Callable[..., Numbers], dim: int, state_box: BoxLike | None, inputs: Inputs
) -> tuple[Noise, AbstractFunction | None]:
    """The noise of a step of one unit, and that of every step if it changes."""
    if not callable(Q):
        return as_noise("Q", cast(Numbers, Q), dim, singular=True), None
    if state_box is not None:
        raise ValueError("state_box must be None where Q changes in time: no grid serves that")
    changing = as_varying("Q", Q, (dim, dim))
    if inputs is None and requires(changing, "inputs"):
        raise ValueError("inputs must be given, one typical row: Q takes them")
    typical = call(changing, t=1, inputs=inputs)
    return as_noise("Q", typical, dim, singular=True), changing


def _check_dynamics(
    f: Callable[..., Numbers], mean: Array, state_box: BoxLike | None, inputs: Inputs
) -> None:
    if not callable(f):
        raise ValueError(f"f must be a function, got {type(f).__name__}")
    if state_box is None and inputs is None and requires(f, "inputs"):
        raise ValueError(
            "state_box must be given for an f that takes inputs, or one typical row of them as "
            "inputs=, so that a box can be simulated"
        )
    _ = _check_map("f", f, mean, mean.shape[0], inputs)


def _box_for(
    given: BoxLike | None,
    prior: GaussianPrior,
    move: AbstractFunction,
    noise: Noise,
    inputs: Inputs,
) -> tuple[Box, bool]:
    """The box that was given, or one that holds simulated states; whether these stay finite."""
    if given is not None:
        return as_box("state_box", given, prior.mean.shape[0]), True
    start = GaussianStart(prior.mean, prior.noise)
    shared = hoisted_function(move, prior.mean, t=1, inputs=inputs)
    return simulated_or_prior_box(start, GaussianSampler(shared, noise), inputs)


def _additive_sensor(
    h: Callable[..., Numbers] | None,
    R: Numbers | None,
    mean: Array,
    inputs: Inputs,
    wrap: Sequence[bool | float | None] | None,
) -> tuple[AbstractFunction, Noise, Parts]:
    """h, R, and what a `StateSpaceModel` takes of them."""
    if h is None or R is None:
        raise ValueError("h and R must be given, or log_observation instead of both")
    if not callable(h):
        raise ValueError(f"h must be a function, got {type(h).__name__}")
    refuse_state_before("h", h)
    num = _check_map("h", h, mean, None, inputs)
    noise = as_noise("R", R, num)
    if wrap is not None:
        noise = Noise(noise.covariance, as_turns("wrap", wrap, num, noise.variances))
    see = as_function(h)
    return see, noise, observation_parts(see, noise)


def _on_circles(box: Box, noise: Noise) -> Noise:
    """Noise of a state whose periodic coordinates wrap."""
    if not box.periodic:
        return noise
    return Noise(noise.covariance, turns_of(box.upper - box.lower, box.periodic, noise.variances))


def linear_gaussian(
    F: Numbers | Callable[..., Numbers],
    Q: Numbers | Callable[..., Numbers],
    H: Numbers | None = None,
    R: Numbers | None = None,
    m0: Numbers | None = None,
    P0: Numbers | None = None,
    *,
    b: Numbers | Callable[..., Numbers] | None = None,
    d: Numbers | None = None,
    prior: AbstractDensity | Callable[..., Numbers] | None = None,
    log_observation: Callable[..., Numbers] | None = None,
    state_box: BoxLike | None = None,
    observation_box: BoxLike | None = None,
    horizon: int = 100,
) -> StateSpaceModel:
    """x' = F u + b + N(0, Q),  y = H x + d + N(0, R),  x_0 ~ N(m0, P0).

    The matrices stay with the model, as `ssm.structure`, and `learn` filters with them on all of
    R^d: exactly if the sensor is linear, whatever the dimension. Q, R and P0 may be singular, as
    long as H S H' + R is not for the covariances S that occur. With a `state_box` in at most two
    dimensions the state lives on that box instead.

    Args:
        F: transition matrix (d, d); a number if d = 1. F, Q and b may also be functions of `dt`,
            the time between two observations, or arrays with one matrix for each step, (T, d, d).
        Q: a variance, d variances, or a covariance matrix.
        H: observation matrix (p, d); None with `log_observation`.
        R: a variance, p variances, or a covariance matrix; None with `log_observation`.
        m0: mean of the first state.
        P0: its covariance. Both may be None for a `prior` that is a PSD model.
        b: offset of the transition (d,).
        d: offset of the observation (p,).
        prior: instead of a Gaussian, a PSD model, a mixture (`GaussianBlocks.mixture`), or a
            function x -> log p(x).
        log_observation: x, y -> log G(x, y), instead of H, d and R.
        state_box: where the state lives. By default five standard deviations around the mean at
            every step up to `horizon`.
        observation_box: where y lives; needed for laws of y only.
        horizon: number of steps that the default box has to hold; matters for random walks.
    """
    if is_varying(F, 2) or is_varying(Q, 2) or is_varying(b, 1):
        refuse_others(prior, log_observation, state_box)
        return varying_linear(VaryingParts(F, b, Q, H, R, d, m0, P0), observation_box)
    F, Q, b = cast(Numbers, F), cast(Numbers, Q), cast(Numbers | None, b)
    matrix = as_matrix("F", F, None, None)
    dim = matrix.shape[0]
    if matrix.shape != (dim, dim):
        raise ValueError(f"F must be a square matrix, got shape {matrix.shape}")
    noise = as_noise("Q", Q, dim, singular=True)
    shift = jnp.zeros(dim) if b is None else as_offset("b", b, dim)
    mean, start, log_prior = _as_prior(prior, m0, P0, dim, state_box)
    box = _linear_box(state_box, (matrix, shift, noise), mean, start, horizon)
    sensor = as_sensor(H, R, d, log_observation, dim)
    structure = LinearGaussian(
        matrix,
        shift,
        noise.matrix(),
        sensor.matrix,
        sensor.shift,
        None if sensor.noise is None else sensor.noise.matrix(),
        mean,
        None if start is None else start.matrix(),
        prior if isinstance(prior, AbstractDensity) else None,
        prior is not None and not isinstance(prior, AbstractDensity),
        state_box is not None,
    )
    return StateSpaceModel(
        log_prior=log_prior,
        state_box=box,
        observation_box=as_observation_box(
            observation_box, None if sensor.matrix is None else len(sensor.matrix)
        ),
        boxed=state_box is not None,
        structure=structure,
        **_transition_parts(Affine(matrix, shift), noise),
        **sensor.parts,
    )


def _transition_parts(
    f: AbstractFunction, noise: Noise, changing: AbstractFunction | None = None
) -> Parts:
    """log N(x; f(u), Q), whole and, if the noise is independent, axis by axis."""
    if changing is not None:
        transition, sampler = NoisyTransition(f, changing), NoisySampler(f, changing)
        return {"log_transition": transition, "sample_transition": sampler}
    parts: Parts = {
        "log_transition": GaussianTransition(f, noise),
        "sample_transition": GaussianSampler(f, noise),
    }
    if noise.is_diagonal:
        parts["log_transition_axis"] = GaussianTransitionAxis(f, noise)
    return parts


def _check_map(
    name: str, fn: Callable[..., Numbers], x: Array, size: int | None, inputs: Inputs
) -> int:
    """The length of fn(x), compared with `size`; 1 for a function that cannot be called yet."""
    if inputs is None and requires(fn, "inputs"):
        return _size_unknown(name, size)
    try:
        shape = jax.eval_shape(lambda u: as_vector(call(fn, u, t=1, inputs=inputs)), x).shape
    except TypeError as error:
        raise ValueError(
            f"{name} must be a JAX function of one state of shape {x.shape}, but it failed on one: "
            f"{error}"
        ) from error
    if len(shape) != 1 or (size is not None and shape[0] != size):
        expected = "a vector" if size is None else f"shape ({size},)"
        raise ValueError(f"{name} must return {expected} for one state, got shape {shape}")
    return shape[0]


def _size_unknown(name: str, size: int | None) -> int:
    if size is None:
        raise ValueError(
            f"inputs must be given: {name} takes them, and one typical row is needed to see how "
            "many coordinates y has"
        )
    return size


def _linear_box(
    given: BoxLike | None,
    dynamics: tuple[Array, Array, Noise],
    mean: Array | None,
    start: Noise | None,
    horizon: int,
) -> Box:
    F, b, noise = dynamics
    if given is not None:
        box = as_box("state_box", given, len(F))
        if box.periodic:
            raise ValueError(
                "state_box must have no axes that wrap for linear_gaussian, whose transitions do "
                "not: additive_gaussian(lambda u: F @ u + b, ..., state_box=...) wraps the noise"
            )
        return box
    assert mean is not None
    assert start is not None
    return gaussian_box(F, b, noise.matrix(), mean, start.matrix(), horizon)


def _as_prior(
    prior: AbstractDensity | Callable[..., Numbers] | None,
    m0: Numbers | None,
    P0: Numbers | None,
    dim: int,
    state_box: BoxLike | None,
) -> tuple[Array | None, Noise | None, Callable[..., Numbers]]:
    """Mean and covariance of the prior as far as they are known, and its log-density."""
    if isinstance(prior, AbstractDensity):
        if prior.dim != dim:
            raise ValueError(f"prior must have {dim} coordinates, as F has, got {prior.dim}")
        if isinstance(prior, GaussianBlocks):
            mean, covariance = prior.moments()
        else:
            mean, covariance = moments(prior)  # pyright: ignore[reportArgumentType]
        start = as_noise("the covariance of prior", covariance, dim, singular=True)
        return mean, start, DensityPrior(prior)
    known = m0 is not None and P0 is not None
    if not known and (prior is None or state_box is None):
        raise ValueError(
            "m0 and P0 must be given; only a prior that is a PSD model, or a function with a "
            "state_box, does without them"
        )
    mean = None if m0 is None else as_offset("m0", m0, dim)
    start = None if P0 is None else as_noise("P0", P0, dim, singular=True)
    if prior is not None:
        if not callable(prior):
            raise ValueError(
                f"prior must be a PSD model or a function x -> log p(x), got {type(prior).__name__}"
            )
        return mean, start, prior
    assert mean is not None
    assert start is not None
    return mean, start, GaussianPrior(mean, start)
