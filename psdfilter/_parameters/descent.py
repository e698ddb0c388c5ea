"""Quasi-Newton steps and Hessians, from one compiled program: value and gradient.

The loop runs on the host. Compiled as a whole it takes half as long again to compile as its
objective, and a Hessian by forward over reverse differentiation three times as long, which is most
of the time of a fit: models of five parameters on 500 observations compiled for a minute.
"""

from collections.abc import Callable
from typing import NamedTuple, Protocol

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

# Of the search, on the objective per observation; Newton steps do the rest.
_RTOL = 1e-5
# Armijo's rule: share of the decrease that the slope promises.
_DECREASE = 0.1
# A step to where values mean nothing is not shortened below this: a new plan may lead further.
_SHORTEST = 1 / 16
# At an optimum rounding lets no step through.
_MAX_REFUSED = 10
# Width of differences of gradients, in standard errors: their relative error is a sixth of its
# square, and what rounding adds is below that.
_WIDTH = 1e-3
# How far from that a first guess may be, below and above.
_NARROW, _WIDE = 1 / 30, 3.0
# Further guesses, and by how much each may differ from the one before.
_GUESSES, _LEAP = 6, 100.0


class Function(Protocol):
    """What is to be minimised, a pytree that is a function."""

    def __call__(self, free: Float[Array, " p"]) -> Float[Array, ""]:
        """The value."""
        ...


class Point(NamedTuple):
    """Where a search is."""

    free: Float[np.ndarray, " p"]
    value: float
    gradient: Float[np.ndarray, " p"]

    @property
    def is_finite(self) -> bool:
        """Whether a search may go on from here."""
        return bool(np.isfinite(self.value) and np.isfinite(self.gradient).all())


@eqx.filter_jit
def value_and_gradient(objective: Function, free: Array) -> tuple[Array, Array]:
    return jax.value_and_grad(lambda z: objective(z))(free)


def evaluated(objective: Function, free: Float[np.ndarray, " p"]) -> Point:
    """Value and gradient at a point."""
    value, gradient = value_and_gradient(objective, jnp.asarray(free))
    return Point(np.asarray(free), float(value), np.asarray(gradient))


class Verdict(NamedTuple):
    """Whether a search may go on from a point, and whether values there mean anything at all."""

    goes_on: bool
    trusted: bool


class Descent(NamedTuple):
    """Where a search ended, after how many steps, whether it came to rest, and what it has learned.

    `inverse` is that of the Hessian, as far as it is known: the next search may begin with it.
    """

    free: Float[np.ndarray, " p"]
    taken: int
    rested: bool
    inverse: Float[np.ndarray, "p p"] | None


def descend(
    objective: Function,
    free: Float[np.ndarray, " p"],
    max_steps: int,
    judge: Callable[[Point], Verdict],
    known: Float[np.ndarray, "p p"] | None = None,
) -> Descent:
    """BFGS with backtracking, until it rests or is told not to go on from where it is.

    A step to where values are not to be trusted is halved before it is taken. Every evaluation is
    a step, whether it is taken or not.
    """
    here, inverse = evaluated(objective, free), np.eye(len(free)) if known is None else known
    direction = -inverse @ here.gradient
    if known is None or float(here.gradient @ direction) >= 0:
        inverse, direction = np.eye(len(free)), _bounded(-here.gradient)
    length, taken, refused = 1.0, 0, 0
    if not here.is_finite:
        return Descent(here.free, 0, False, None)
    while taken < max_steps:
        trial = evaluated(objective, here.free + length * direction)
        taken += 1
        promised = length * float(here.gradient @ direction)
        if not (trial.is_finite and trial.value <= here.value + _DECREASE * promised):
            length, refused = 0.5 * length, refused + 1
            if refused >= _MAX_REFUSED:
                return Descent(here.free, taken, True, inverse)
            continue
        verdict = judge(trial)
        if not verdict.trusted and length > _SHORTEST:
            length = 0.5 * length
            continue
        rested = _is_small(here, trial)
        inverse = _updated(inverse, trial.free - here.free, trial.gradient - here.gradient)
        here, length, refused = trial, 1.0, 0
        direction = -inverse @ here.gradient
        if rested or not verdict.goes_on:
            return Descent(here.free, taken, rested, inverse)
    return Descent(here.free, taken, False, inverse)


def _bounded(step: Float[np.ndarray, " p"]) -> Float[np.ndarray, " p"]:
    """The first step, when nothing is known of the curvature: of length one at most."""
    return step / max(1.0, float(np.linalg.norm(step)))


def _is_small(old: Point, new: Point) -> bool:
    moved = np.abs(new.free - old.free) <= _RTOL * (1 + np.abs(new.free))
    return bool(moved.all() and abs(new.value - old.value) <= _RTOL * (1 + abs(new.value)))


def _updated(
    inverse: Float[np.ndarray, "p p"], s: Float[np.ndarray, " p"], y: Float[np.ndarray, " p"]
) -> Float[np.ndarray, "p p"]:
    """(I - s y'/s'y) H (I - y s'/s'y) + s s'/s'y; H as it is without positive curvature."""
    curvature = float(s @ y)
    if not curvature > 1e-12 * float(np.linalg.norm(s) * np.linalg.norm(y)):
        return inverse
    if np.array_equal(inverse, np.eye(len(s))):
        inverse = curvature / float(y @ y) * inverse  # the scale that the first step has seen
    left = np.eye(len(s)) - np.outer(s, y) / curvature
    return left @ inverse @ left.T + np.outer(s, s) / curvature


def hessian_at(objective: Function, here: Point, scale: float) -> Float[np.ndarray, "p p"]:
    """Of `scale` times the objective, by central differences of gradients."""

    def column(i: int, width: float) -> Float[np.ndarray, " p"]:
        ends = [evaluated(objective, here.free + side * unit[i]) for side in (-width, width)]
        return scale * (ends[1].gradient - ends[0].gradient) / (2 * width)

    unit = np.eye(len(here.free))
    columns = []
    for i, place in enumerate(here.free):
        width = 1e-4 * max(1.0, abs(float(place)))
        found = column(i, width)
        for _ in range(_GUESSES):
            if not found[i] > 0:
                break
            wanted = _WIDTH / float(np.sqrt(found[i]))
            if _NARROW * wanted <= width <= _WIDE * wanted:
                break
            # A secant far out says little of the curvature here.
            width = float(np.clip(wanted, width / _LEAP, width * _LEAP))
            found = column(i, width)
        columns.append(found)
    matrix = np.stack(columns)
    return 0.5 * (matrix + matrix.T)
