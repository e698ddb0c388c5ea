"""f and h of a model with additive noise, at a time and with its inputs."""

from collections.abc import Callable
from typing import NamedTuple

from jaxtyping import Array, Float

from ..._statespace.functions import AbstractFunction, Inputs, Time, as_vector, call


class Functions(NamedTuple):
    """f and h; their numbers may be traced."""

    f: AbstractFunction
    h: AbstractFunction

    def moving(self, t: Time, row: Inputs) -> Callable[[Array], Array]:
        """u -> f(u) at this time."""
        return lambda u: as_vector(call(self.f, u, t=t, inputs=row))

    def seeing(self, t: Time, row: Inputs) -> Callable[[Array], Array]:
        """x -> h(x) at this time."""
        return lambda x: as_vector(call(self.h, x, t=t, inputs=row))


class Noises(NamedTuple):
    """Covariances of the transition and of the sensor."""

    Q: Float[Array, "d d"]
    R: Float[Array, "p p"]
