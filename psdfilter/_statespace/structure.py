"""What is known of a model beside its densities: matrices, or maps and Gaussian noise."""

import equinox as eqx
from jaxtyping import Array, Float

from .._density.psd import AbstractDensity
from .angles import Turns
from .functions import AbstractFunction


class LinearGaussian(eqx.Module):
    """x' = F u + b + N(0, Q),  y = H x + d + N(0, R),  x_0 ~ N(m0, P0): what is known of it.

    The sensor is None for another observation density, the prior's moments if they are not known.
    Q, R and P0 may be singular.

    Attributes:
        prior: the law of x_0 if it is a model of this package and not N(m0, P0).
        prior_is_function: it is only known as a function.
        boxed: the state was said to live on a box, rather than on R^d.
    """

    F: Float[Array, "d d"]
    b: Float[Array, " d"]
    Q: Float[Array, "d d"]
    H: Float[Array, "p d"] | None
    d: Float[Array, " p"] | None
    R: Float[Array, "p p"] | None
    m0: Float[Array, " d"] | None
    P0: Float[Array, "d d"] | None
    prior: AbstractDensity | None = None
    prior_is_function: bool = eqx.field(static=True, default=False)
    boxed: bool = eqx.field(static=True, default=False)


class AdditiveGaussian(eqx.Module):
    """x' = f(u) + N(0, Q),  y = h(x) + N(0, R),  x_0 ~ N(m0, P0).

    f and h may take keywords, as the functions of a StateSpaceModel. Q and P0 may be singular. h
    and R are None for another observation density.

    Attributes:
        boxed: the state was said to live on a box, rather than on R^d.
        bounded: a box is known, if only by simulation.
        turns: coordinates of y that are angles.
        noise: Q of every step, if it changes; `Q` is then that of one unit of time.
    """

    f: AbstractFunction
    h: AbstractFunction | None
    Q: Float[Array, "d d"]
    R: Float[Array, "p p"] | None
    m0: Float[Array, " d"]
    P0: Float[Array, "d d"]
    boxed: bool = eqx.field(static=True, default=False)
    bounded: bool = eqx.field(static=True, default=True)
    turns: Turns | None = None
    noise: AbstractFunction | None = None
