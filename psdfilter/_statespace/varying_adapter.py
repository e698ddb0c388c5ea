"""`linear_gaussian` with matrices that change from step to step."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array

from .._checks import Numbers, is_concrete
from .._density.box import Box
from .boxes import SPREAD
from .functions import GaussianPrior, GaussianStart, Row
from .matrices import BoxLike, as_mean, as_observation_box, as_sensor
from .model import StateSpaceModel
from .noise import as_noise
from .varying import (
    VaryingLinear,
    VaryingSampler,
    VaryingTransition,
    as_varying,
    refuse_unequal,
    wanted,
)


class VaryingParts(NamedTuple):
    """What the user gave."""

    F: Any
    b: Any
    Q: Any
    H: Numbers | None
    R: Numbers | None
    d: Numbers | None
    m0: Numbers | None
    P0: Numbers | None


def varying_linear(parts: VaryingParts, observation_box: BoxLike | None) -> StateSpaceModel:
    """The model; its box is five deviations after each of a few steps of one unit of time."""
    if parts.m0 is None or parts.P0 is None:
        raise ValueError("m0 and P0 must be given")
    mean = as_mean("m0", parts.m0)
    dim = mean.shape[0]
    start = as_noise("P0", parts.P0, dim, singular=True)
    sensor = as_sensor(parts.H, parts.R, parts.d, None, dim)
    assert sensor.matrix is not None
    assert sensor.shift is not None
    assert sensor.noise is not None
    F = as_varying("F", parts.F, (dim, dim))
    Q = as_varying("Q", parts.Q, (dim, dim))
    b = as_varying("b", jnp.zeros(dim) if parts.b is None else parts.b, (dim,))
    refuse_unequal(F=F, b=b, Q=Q)
    form = VaryingLinear(
        F, b, Q, sensor.matrix, sensor.shift, sensor.noise.matrix(), mean, start.matrix()
    )
    return StateSpaceModel(
        log_prior=GaussianPrior(mean, start),
        log_transition=VaryingTransition(F, b, Q),
        sample_prior=GaussianStart(mean, start),
        sample_transition=VaryingSampler(F, b, Q),
        state_box=_box(form),
        observation_box=as_observation_box(observation_box, len(sensor.matrix)),
        boxed=False,
        varying=form,
        **sensor.parts,
    )


def refuse_others(*given: object) -> None:
    """What goes with constant matrices only."""
    if any(one is not None for one in given):
        raise ValueError(
            "prior, log_observation and state_box must be None where F, Q or b change in time: "
            "write additive_gaussian(lambda u, dt: ...), or from_distributions"
        )


def _box(form: VaryingLinear, steps: int = 32) -> Box:
    """Around the means of a few steps; no engine that serves these models is confined by it."""
    mean, S = form.m0, form.P0
    lows, highs = [], []
    row: Row = Row(None, None, jnp.ones(()), None)
    for t in range(1, steps + 1):
        spread = SPREAD * jnp.sqrt(jnp.diagonal(S))
        lows.append(mean - spread)
        highs.append(mean + spread)
        if wanted(form) & {"inputs", "last_y"}:
            break
        F, b, Q = form.at(t, row)
        mean, S = F @ mean + b, F @ S @ F.T + Q
    low, high = _hull(lows, jnp.min), _hull(highs, jnp.max)
    if is_concrete(low) and not bool(jnp.all(jnp.isfinite(low) & jnp.isfinite(high))):
        raise ValueError("F, Q and b must be finite for dt = 1")
    wide = high > low
    return Box(jnp.where(wide, low, low - 1.0), jnp.where(wide, high, high + 1.0))


def _hull(ends: list[Array], choose: Any) -> Array:
    return jax.lax.stop_gradient(choose(jnp.stack(ends), axis=0))
