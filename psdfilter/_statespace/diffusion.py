"""Stochastic differential equations between irregular observations.

dx = a(x) dt + B(x) dW is taken to coordinates without walls, z = g(x), by Ito's formula, and
stepped there by Gaussians whose mean and covariance are right to second order in the step, and
exact for linear equations (local linearisation, Shoji and Ozaki 1998): with S = B B', J = a' and
the generator L f = f' a + 1/2 tr(S f''),

    E z_h   = z + int_0^h e^{Js} ds a + h^2/4 tr(S a''),
    cov z_h = int_0^h e^{J(h-s)} (S + s L S) e^{J'(h-s)} ds.

On a line noise that depends on the state makes a step lean to one side; its third moment is

    E (z_h - E z_h)^3 = 3/2 S S' h^2

to first order, and the step is the shifted lognormal law with these three moments (a Gaussian one
where S' = 0). So errors are of second order on a line, and in the plane where S is constant.
Sub-steps are composed by the engine, exactly: errors are those of the time step alone, which the
filter measures and holds to the tolerance.
"""

from collections.abc import Callable
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .._checks import Numbers, is_concrete, require_x64
from .coordinates import Coordinates, as_support
from .distributions import Distribution, LawPrior, LawPriorSampler, check_distribution, size_of_law
from .functions import (
    AbstractFunction,
    GaussianPrior,
    GaussianStart,
    Inputs,
    Keywords,
    Parts,
    Row,
    Time,
    as_function,
    as_vector,
    call,
)
from .matrices import as_mean, observation_parts
from .model import StateSpaceModel
from .noise import as_noise
from .simulation import typical_boxes
from .step_laws import Leaning, Upright
from .tails import Densities

# Of the shortest time scale that drift and diffusion have where the state is: errors of second
# order are then a few parts in a thousand of a step's own spread.
_SHARE = 0.2
# The step of equations in which nothing changes: longer than any time between two observations.
_ENDLESS = 1e6
_SEED, _TYPICAL = 20_240_101, 64
# Gauss and Legendre's rule of three nodes on (0, 1).
_NODES, _WEIGHTS = (0.5 - np.sqrt(0.15), 0.5, 0.5 + np.sqrt(0.15)), (5 / 18, 8 / 18, 5 / 18)


class Equation(eqx.Module):
    """a and B of the user's, in coordinates z = g(x)."""

    drift: AbstractFunction
    diffusion: AbstractFunction
    coordinates: Coordinates

    def parts(self, z: Float[Array, " d"], row: Inputs) -> tuple[Array, Array]:
        """Drift and covariance rate of z: g' a + 1/2 g'' S and g' S g'."""
        x = self.coordinates.to_user(z)
        a = as_vector(call(self.drift, x, inputs=row))
        B = _matrix(call(self.diffusion, x, inputs=row), x.size)
        S = B @ B.T
        # With x = b(z): g' = 1 / b', and g'' b'^2 = -b'' / b' = -(log b')'.
        slopes = [axis.log_slope(z[i]) for i, axis in enumerate(self.coordinates.axes)]
        bends = [jax.grad(axis.log_slope)(z[i]) for i, axis in enumerate(self.coordinates.axes)]
        inverse = jnp.exp(-jnp.stack(slopes))
        Sz = inverse[:, None] * S * inverse[None, :]
        return inverse * a - 0.5 * jnp.stack(bends) * jnp.diagonal(Sz), Sz

    def near(self, z: Float[Array, " d"], row: Inputs) -> "Near":
        """a, S, their slopes, and what the generator makes of them."""

        def fields(v: Array) -> tuple[tuple[Array, Array], tuple[Array, Array]]:
            values = self.parts(v, row)
            return values, values

        def slopes(v: Array) -> tuple[tuple[Array, Array], tuple]:
            first, values = jax.jacfwd(fields, has_aux=True)(v)
            return first, (values, first)

        second, (values, first) = jax.jacfwd(slopes, has_aux=True)(z)
        a, S = values
        La, LS = (
            f @ a + 0.5 * jnp.tensordot(s, S, axes=2) for f, s in zip(first, second, strict=True)
        )
        return Near(a, S, first[0], first[1], La, LS)

    def step(self, z: Float[Array, " d"], row: Inputs, h: Array) -> "Leaning | Upright":
        """The law of z after a time h."""
        near = self.near(z, row)
        mean = z + 0.5 * h**2 * (near.La - near.J @ near.a)
        covariance = jnp.zeros_like(near.S)
        for node, weight in zip(_NODES, _WEIGHTS, strict=True):
            grown = _exponential(h * (1 - node) * near.J)
            rate = near.S + h * node * near.LS
            # A step that is far too long still has a density.
            rate = jnp.where(_least(rate - 0.25 * near.S) > 0, rate, 0.25 * near.S)
            mean = mean + h * weight * grown @ near.a
            covariance = covariance + h * weight * grown @ rate @ grown.T
        if z.size > 1:
            return Upright(mean, covariance)
        skewness = 1.5 * near.slope[0, 0, 0] * jnp.sqrt(h / near.S[0, 0])
        return Leaning.of(mean, covariance, skewness)


class Near(NamedTuple):
    """An equation at a point.

    Attributes:
        a: the drift.
        S: the covariance rate.
        J: slopes of a.
        slope: slopes of S.
        La: L a.
        LS: L S.
    """

    a: Float[Array, " d"]
    S: Float[Array, "d d"]
    J: Float[Array, "d d"]
    slope: Float[Array, "d d d"]
    La: Float[Array, " d"]
    LS: Float[Array, "d d"]


def _exponential(A: Float[Array, "d d"]) -> Float[Array, "d d"]:
    """e^A by its series: A is small where steps are short."""
    if A.shape[0] == 1:
        return jnp.exp(A)
    total = term = jnp.eye(A.shape[0])
    for k in range(1, 9):
        term = term @ A / k
        total = total + term
    return total


def _least(S: Float[Array, "d d"]) -> Float[Array, ""]:
    """The least eigenvalue of a symmetric matrix of one or two rows."""
    if S.shape[0] == 1:
        return S[0, 0]
    middle, gap = 0.5 * (S[0, 0] + S[1, 1]), 0.5 * (S[0, 0] - S[1, 1])
    return middle - jnp.sqrt(jnp.square(gap) + jnp.square(S[0, 1]) + 1e-300)


def _matrix(value: Numbers, dim: int) -> Float[Array, "d m"]:
    """B as a matrix: a number or a vector is a diagonal."""
    B = jnp.asarray(value, dtype=jnp.float64)
    if B.ndim < 2:
        return jnp.diag(jnp.broadcast_to(B.reshape(-1), (dim,)))
    return B


class AbstractOfEquation(AbstractFunction):
    """A function of one step of an equation."""

    equation: eqx.AbstractVar[Equation]

    @property
    def keywords(self) -> Keywords:
        """The time, in a row."""
        return Keywords(frozenset(("inputs",)), frozenset())

    @property
    def wants(self) -> frozenset[str]:
        """The time, and what drift and diffusion take."""
        return self.equation.drift.wants | self.equation.diffusion.wants | {"dt"}


def _law(equation: Equation, u: Array, row: Inputs) -> Leaning | Upright:
    """The law of z after one step from u."""
    return equation.step(equation.coordinates.from_user(u), row, _step(row))


def _step(row: Inputs) -> Array:
    known = isinstance(row, Row) and row.dt is not None
    return jnp.asarray(row.dt if known else 1.0, dtype=jnp.float64)


class StepDensity(AbstractOfEquation):
    """log of the density of x after one step."""

    equation: Equation

    def __call__(self, u: Array, x: Array, t: Time = None, inputs: Inputs = None) -> Array:
        """At one pair."""
        del t
        coordinates = self.equation.coordinates
        z = coordinates.from_user(x)
        return _law(self.equation, u, inputs).log_density(z) - coordinates.log_slope(z)


class StepSampler(AbstractOfEquation):
    """Draws after one step."""

    equation: Equation

    def __call__(self, key: Array, u: Array, t: Time = None, inputs: Inputs = None) -> Array:
        """One draw."""
        del t
        return self.equation.coordinates.to_user(_law(self.equation, u, inputs).draw(key))


def diffusion(
    drift: Callable[..., Numbers],
    diffusion: Callable[..., Numbers],
    *,
    m0: Numbers | None = None,
    P0: Numbers | None = None,
    prior: Distribution = None,
    h: Callable[..., Numbers] | None = None,
    R: Numbers | None = None,
    log_observation: Callable[..., Numbers] | None = None,
    support: object = None,
    step: float | None = None,
    inputs: Inputs = None,
) -> StateSpaceModel:
    """dx = a(x) dt + B(x) dW,  y_k ~ G(x(t_k), .), for `times` that are real numbers or dates.

    Between two observations steps of at most `step` are composed exactly; each has moments of
    second order, in coordinates without walls. Errors fall with the square of the step on a line,
    and in the plane where B is constant in these coordinates; elsewhere at least with the step.
    Filters take shorter steps until these errors are below the tolerance, and `post.model` has the
    step that they ended with; online filters and likelihoods take `step` as it is. For states of
    one or two coordinates.

    Args:
        drift: x (d,) -> a (d,); may take `inputs`.
        diffusion: x (d,) -> B (d, m), or d numbers for a diagonal matrix.
        m0: mean of x at time 0, and
        P0: its covariance, for a Gaussian law; with a support, of log x or logit x it is not.
        prior: a distribution of x at time 0, instead of both.
        h: x -> mean of y, with
        R: the covariance of its noise; or
        log_observation: x, y -> log G(x, y).
        support: as for `StateSpaceModel`, for equations whose state is confined.
        step: the longest step, and the first that a filter tries; by default a fifth of the
            shortest time scale of drift and diffusion where the state usually is.
        inputs: one typical row of inputs.
    """
    require_x64()
    for name, fn in (("drift", drift), ("diffusion", diffusion)):
        if not callable(fn):
            raise ValueError(f"{name} must be a function of the state, got {type(fn).__name__}")
    start, sample, dim = _start(prior, m0, P0)
    if dim > 2:
        raise ValueError(f"diffusion serves states of one or two coordinates, got {dim}")
    chosen = as_support("real" if support is None else support)
    assert chosen is not None
    coordinates = chosen.of_dim(dim)
    if m0 is not None and prior is None:
        _refuse_outside(coordinates, as_mean("m0", m0))
    equation = Equation(as_function(drift), as_function(diffusion), coordinates)
    if step is None:
        step = _time_scale(equation, sample, inputs)
    if not (isinstance(step, float | int) and 0 < step < np.inf):
        raise ValueError(f"step must be a positive number, got {step!r}")
    density, sampler = StepDensity(equation), StepSampler(equation)
    # Where nothing changes in time one step is as good as many, and no typical one.
    row = Row(inputs, None, jnp.asarray(float(step) if step < _ENDLESS else 1.0), None)
    see = _sensor(h, R, log_observation, dim)
    boxes = typical_boxes(
        (sample, sampler, None), Densities(start, density, coordinates, row), row, None
    )
    return StateSpaceModel(
        log_prior=start,
        log_transition=density,
        sample_prior=sample,
        sample_transition=sampler,
        state_box=boxes[0],
        reach_box=boxes[1],
        boxed=False,
        support=None if coordinates.is_identity else coordinates,
        step=float(step),
        **see,
    )


def _start(
    prior: Distribution, m0: Numbers | None, P0: Numbers | None
) -> tuple[AbstractFunction, AbstractFunction, int]:
    """log p_0, draws of it, and the dimension."""
    if prior is not None:
        check_distribution("prior", prior)
        return LawPrior(prior), LawPriorSampler(prior), size_of_law("prior", prior)
    if m0 is None or P0 is None:
        raise ValueError("m0 and P0 must be given, or a distribution as prior=")
    mean = as_mean("m0", m0)
    noise = as_noise("P0", P0, mean.shape[0])
    return GaussianPrior(mean, noise), GaussianStart(mean, noise), mean.shape[0]


def _refuse_outside(coordinates: Coordinates, mean: Float[Array, " d"]) -> None:
    """A mean beyond the support."""
    if is_concrete(mean) and not np.isfinite(np.asarray(coordinates.from_user(mean))).all():
        raise ValueError(f"m0 must lie in the support of the state, got {np.asarray(mean)}")


def _sensor(
    h: Callable[..., Numbers] | None,
    R: Numbers | None,
    log_observation: Callable[..., Numbers] | None,
    dim: int,
) -> Parts:
    if log_observation is not None:
        if h is not None or R is not None:
            raise ValueError("log_observation stands instead of h and R: pass None for those")
        return {"log_observation": log_observation}
    if h is None or R is None:
        raise ValueError("h and R must be given, or log_observation instead of both")
    see = as_function(h)
    width = jax.eval_shape(lambda x: as_vector(call(see, x)), jnp.zeros(dim)).shape[0]
    return observation_parts(see, as_noise("R", R, width))


def _time_scale(equation: Equation, sample: AbstractFunction, inputs: Inputs) -> float:
    """A share of the least time in which drift or diffusion change, over draws of the prior."""
    row = Row(inputs)
    keys = jax.random.split(jax.random.key(_SEED), _TYPICAL)
    z = equation.coordinates.from_user(jax.vmap(sample)(keys))

    def rate(point: Array) -> Array:
        near = equation.near(point, row)
        spread = jnp.max(jnp.abs(near.LS)) / jnp.max(jnp.abs(near.S))
        return jnp.maximum(jnp.max(jnp.abs(near.J)), spread)

    rates = jax.vmap(rate)(z[jnp.all(jnp.isfinite(z), axis=1)] if is_concrete(z) else z)
    if not is_concrete(rates):
        raise ValueError("step must be given for a diffusion with traced parameters")
    fastest = float(np.nanquantile(np.asarray(rates), 0.95))
    return min(_SHARE / fastest, _ENDLESS) if fastest > 0 else _ENDLESS
