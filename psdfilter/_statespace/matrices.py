"""Matrices, offsets, sensors and boxes as users write them, checked and shaped."""

from collections.abc import Callable
from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Float

from .._checks import Numbers, as_floats
from .._density.box import Box, as_box
from .functions import AbstractFunction, Affine, GaussianObservation, GaussianSampler, Parts
from .noise import Noise, as_noise

BoxLike = Box | tuple[Numbers, Numbers]


def no_sensor(names: str, *given: object) -> None:
    if any(one is not None for one in given):
        raise ValueError(f"log_observation stands instead of {names}: pass None for those")


def observation_parts(h: AbstractFunction, noise: Noise) -> Parts:
    """log N(y; h(x), R) of the coordinates of y that were seen, and samples of y."""
    return {
        "log_observation": GaussianObservation(h, noise),
        "sample_observation": GaussianSampler(h, noise),
        "marginalizes_missing": True,
    }


def as_observation_box(box: BoxLike | None, width: int | None) -> Box | None:
    if box is None:
        return None
    given = box if isinstance(box, Box) else Box(*box)
    return as_box("observation_box", given, given.dim if width is None else width)


def as_mean(name: str, value: Numbers) -> Array:
    array = jnp.atleast_1d(as_floats(name, value))
    if array.ndim != 1 or array.size == 0:
        raise ValueError(f"{name} must have shape (d,), got {array.shape}")
    return array


def as_offset(name: str, value: Numbers, size: int) -> Array:
    array = as_mean(name, value)
    if array.shape != (size,):
        raise ValueError(f"{name} must have shape ({size},), got {array.shape}")
    return array


def as_matrix(name: str, value: Numbers, rows: int | None, columns: int | None) -> Array:
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


class Sensor(NamedTuple):
    """A linear sensor, all None if it is a function, and what a `StateSpaceModel` takes of it."""

    matrix: Float[Array, "p d"] | None
    shift: Float[Array, " p"] | None
    noise: Noise | None
    parts: Parts


def as_sensor(
    H: Numbers | None,
    R: Numbers | None,
    d: Numbers | None,
    log_observation: Callable[..., Numbers] | None,
    dim: int,
) -> Sensor:
    if log_observation is not None:
        no_sensor("H, R and d", H, R, d)
        return Sensor(None, None, None, {"log_observation": log_observation})
    if H is None or R is None:
        raise ValueError("H and R must be given, or log_observation instead of both")
    matrix = as_matrix("H", H, None, dim)
    shift = jnp.zeros(len(matrix)) if d is None else as_offset("d", d, len(matrix))
    noise = as_noise("R", R, len(matrix), singular=True)
    return Sensor(matrix, shift, noise, observation_parts(Affine(matrix, shift), noise))
