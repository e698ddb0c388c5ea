"""f and h of a model with additive noise, at a time and with its inputs."""

from collections.abc import Callable
from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Float

from ..._statespace.angles import Turns
from ..._statespace.functions import AbstractFunction, Inputs, Time, as_vector, call


class Functions(NamedTuple):
    """f and h; their numbers may be traced."""

    f: AbstractFunction
    h: AbstractFunction
    turns: Turns | None = None  # coordinates of h that are angles
    noise: AbstractFunction | None = None  # Q of every step, if it changes

    def moving(self, t: Time, row: Inputs) -> Callable[[Array], Array]:
        """u -> f(u) at this time."""
        return lambda u: as_vector(call(self.f, u, t=t, inputs=row))

    def spread(self, Q: Float[Array, "d d"], t: Time, row: Inputs) -> Float[Array, "d d"]:
        """Q of this time, or the one for all."""
        return Q if self.noise is None else call(self.noise, t=t, inputs=row)

    def seeing(self, t: Time, row: Inputs, near: Array | None = None) -> Callable[[Array], Array]:
        """x -> h(x) at this time; angles by whole turns as close to `near` as can be."""
        turns = self.turns
        if turns is None or near is None:
            return lambda x: as_vector(call(self.h, x, t=t, inputs=row))
        middle = jnp.where(jnp.isfinite(near), near, 0.0)
        return lambda x: (
            middle + turns.nearest(as_vector(call(self.h, x, t=t, inputs=row)) - middle)
        )


class Noises(NamedTuple):
    """Covariances of the transition and of the sensor."""

    Q: Float[Array, "d d"]
    R: Float[Array, "p p"]
