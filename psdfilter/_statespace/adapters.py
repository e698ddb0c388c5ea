"""Models in the form that other libraries take them: f, h, Q, R or matrices."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from .._checks import Numbers, as_floats
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
    GaussianObservation,
    GaussianPrior,
    GaussianSampler,
    GaussianTransition,
    GaussianTransitionAxis,
    Inputs,
    as_function,
    as_vector,
    call,
    requires,
)
from .model import AdditiveGaussian, LinearGaussian, StateSpaceModel
from .noise import Noise, as_noise

BoxLike = Box | tuple[Numbers, Numbers]


def additive_gaussian(
    f: Callable[..., Numbers],
    h: Callable[..., Numbers],
    Q: Numbers,
    R: Numbers,
    m0: Numbers,
    P0: Numbers,
    state_box: BoxLike | None = None,
    observation_box: BoxLike | None = None,
    *,
    inputs: Inputs = None,
    wrap: Sequence[bool | float | None] | None = None,
) -> StateSpaceModel:
    """x' = f(u) + N(0, Q),  y = h(x) + N(0, R),  x_0 ~ N(m0, P0).

    NaN coordinates of y are marginalised exactly. Everything may be traced, so that models can be
    built inside `jax.grad`. `learn` works on a grid if the noise is wide enough for one; noise that
    is small or singular, and states of more than four coordinates, are followed on all of R^d by
    Gaussians, each with its own linearisation.

    Args:
        f: u (d,) -> mean of the new state (d,), a JAX function; may take `t` and `inputs`.
        h: x (d,) -> mean of the observation (p,), likewise.
        Q: a variance, d variances, or a covariance matrix. On a grid, independent noise lets every
            axis be learned apart, and correlated noise is taken for d <= 2.
        R: a variance, p variances, or a covariance matrix.
        m0: mean of the first state.
        P0: its covariance, as for Q.
        state_box: where the state lives. By default quantiles of 512 simulated paths of 64 steps
            plus a margin, and five standard deviations of the prior; `learn` reports the leak.
        observation_box: where y lives; needed for laws of y only.
        inputs: one typical row of inputs, for choosing the box of a model that takes them.
        wrap: for each coordinate of y, True if it is an angle in radians, its period (360.0) if it
            is one in other units, else False. Residuals then go the shortest way round, and it
            does not matter by how many turns y and h(x) differ.
    """
    _check_callable(f=f, h=h)
    mean = _as_mean("m0", m0)
    dim = mean.shape[0]
    if state_box is None and inputs is None and requires(f, "inputs"):
        raise ValueError(
            "state_box must be given for an f that takes inputs, or one typical row of them as "
            "inputs=, so that a box can be simulated"
        )
    _ = _check_map("f", f, mean, dim, inputs)
    num_seen = _check_map("h", h, mean, None, inputs)
    noise = as_noise("Q", Q, dim, singular=True)
    seen_noise = as_noise("R", R, num_seen)
    turns = None if wrap is None else as_turns("wrap", wrap, num_seen, seen_noise.variances)
    prior = as_noise("P0", P0, dim, singular=True)

    move, see = as_function(f), as_function(h)
    bounded = True
    if state_box is None:
        box, bounded = simulated_or_prior_box(
            lambda key: mean + prior.draw(key),
            lambda key, u, t: as_vector(call(f, u, t=t, inputs=inputs)) + noise.draw(key),
            mean,
            jnp.sqrt(prior.variances),
        )
    else:
        box = as_box("state_box", state_box, dim)
        noise, prior = _on_circles(box, noise), _on_circles(box, prior)
    return StateSpaceModel(
        log_prior=GaussianPrior(mean, prior),
        state_box=box,
        observation_box=_as_observation_box(observation_box, num_seen),
        structure=AdditiveGaussian(
            move,
            see,
            *(noise.matrix(), seen_noise.matrix(), mean, prior.matrix()),
            *(state_box is not None, bounded, turns),
        ),
        **_transition_parts(move, noise),
        **_observation_parts(see, Noise(seen_noise.covariance, turns)),
    )


def _check_callable(**functions: object) -> None:
    for name, fn in functions.items():
        if not callable(fn):
            raise ValueError(f"{name} must be a function, got {type(fn).__name__}")


def _on_circles(box: Box, noise: Noise) -> Noise:
    """Noise of a state whose periodic coordinates wrap."""
    if not box.periodic:
        return noise
    return Noise(noise.covariance, turns_of(box.upper - box.lower, box.periodic, noise.variances))


def linear_gaussian(
    F: Numbers,
    Q: Numbers,
    H: Numbers | None,
    R: Numbers | None,
    m0: Numbers | None,
    P0: Numbers | None,
    *,
    b: Numbers | None = None,
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
    dimensions the state is taken to live on that box instead.

    Args:
        F: transition matrix (d, d); a number if d = 1.
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
    matrix = _as_matrix("F", F, None, None)
    dim = matrix.shape[0]
    if matrix.shape != (dim, dim):
        raise ValueError(f"F must be a square matrix, got shape {matrix.shape}")
    noise = as_noise("Q", Q, dim, singular=True)
    shift = jnp.zeros(dim) if b is None else _as_offset("b", b, dim)
    mean, start, log_prior = _as_prior(prior, m0, P0, dim, state_box)
    if state_box is None:
        assert mean is not None
        assert start is not None
        box = gaussian_box(matrix, shift, noise.matrix(), mean, start.matrix(), horizon)
    else:
        box = as_box("state_box", state_box, dim)
    sensor = _as_sensor(H, R, d, log_observation, dim)
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
        observation_box=_as_observation_box(
            observation_box, None if sensor.matrix is None else len(sensor.matrix)
        ),
        structure=structure,
        **_transition_parts(Affine(matrix, shift), noise),
        **sensor.parts,
    )


def _as_observation_box(box: BoxLike | None, num: int | None) -> Box | None:
    if box is None:
        return None
    if num is not None:
        return as_box("observation_box", box, num)
    return box if isinstance(box, Box) else Box(*box)


def _transition_parts(f: AbstractFunction, noise: Noise) -> dict[str, Any]:
    """log N(x; f(u), Q), whole and, if the noise is independent, axis by axis."""
    parts: dict[str, Any] = {"log_transition": GaussianTransition(f, noise)}
    if noise.is_diagonal:
        parts["log_transition_axis"] = GaussianTransitionAxis(f, noise)
    return parts


def _observation_parts(h: AbstractFunction, noise: Noise) -> dict[str, Any]:
    """log N(y; h(x), R) of the coordinates of y that were seen, and samples of y."""
    return {
        "log_observation": GaussianObservation(h, noise),
        "sample_observation": GaussianSampler(h, noise),
        "marginalizes_missing": True,
    }


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


def _as_mean(name: str, value: Numbers) -> Array:
    array = jnp.atleast_1d(as_floats(name, value))
    if array.ndim != 1 or array.size == 0:
        raise ValueError(f"{name} must have shape (d,), got {array.shape}")
    return array


def _as_offset(name: str, value: Numbers, size: int) -> Array:
    array = _as_mean(name, value)
    if array.shape != (size,):
        raise ValueError(f"{name} must have shape ({size},), got {array.shape}")
    return array


def _as_matrix(name: str, value: Numbers, rows: int | None, columns: int | None) -> Array:
    """A matrix; a number is one of size (1, 1), a vector one row if there are several columns."""
    array = as_floats(name, value)
    if array.ndim == 0:
        array = array[None, None]
    elif array.ndim == 1 and columns is not None:
        array = array[None, :]
    expected = (rows or array.shape[0], columns or array.shape[-1])
    if array.ndim != 2 or array.shape != expected:
        sizes = ", ".join("any" if n is None else str(n) for n in (rows, columns))
        raise ValueError(f"{name} must be a matrix ({sizes}), got shape {array.shape}")
    return array


class _Sensor(NamedTuple):
    """A linear sensor, all None if it is a function, and what a `StateSpaceModel` takes of it."""

    matrix: Float[Array, "p d"] | None
    shift: Float[Array, " p"] | None
    noise: Noise | None
    parts: dict[str, Any]


def _as_sensor(
    H: Numbers | None,
    R: Numbers | None,
    d: Numbers | None,
    log_observation: Callable[..., Numbers] | None,
    dim: int,
) -> _Sensor:
    if log_observation is not None:
        if H is not None or R is not None or d is not None:
            raise ValueError("log_observation stands instead of H, R and d: pass None for those")
        return _Sensor(None, None, None, {"log_observation": log_observation})
    if H is None or R is None:
        raise ValueError("H and R must be given, or log_observation instead of both")
    matrix = _as_matrix("H", H, None, dim)
    shift = jnp.zeros(len(matrix)) if d is None else _as_offset("d", d, len(matrix))
    noise = as_noise("R", R, len(matrix), singular=True)
    return _Sensor(matrix, shift, noise, _observation_parts(Affine(matrix, shift), noise))


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
    mean = None if m0 is None else _as_offset("m0", m0, dim)
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
