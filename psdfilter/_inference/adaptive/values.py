"""Exact values of the densities of a model, in logs: log Q(u, x), log G(x, y) and log p_0(x).

A model of known structure is taken apart into its maps and matrices: two models with the same maps
then share their compiled programs, whatever their matrices. Nothing is fitted here.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Float

from ..._checks import is_concrete
from ..._statespace.functions import AbstractFunction, Inputs, Time, call
from ..._statespace.model import AdditiveGaussian, LinearGaussian, StateSpaceModel
from ..._statespace.noise import Noise, log_normal


class Gaussian1D(eqx.Module):
    """x' = f(u) + N(0, variance) on the line; f is a map, or slope u + shift."""

    map: AbstractFunction | None
    slope: Float[Array, ""]
    shift: Float[Array, ""]
    variance: Float[Array, ""]

    def mean(self, u: Array, t: Time, row: Inputs) -> Array:
        """f(u) of one point."""
        if self.map is None:
            return self.slope * u + self.shift
        return _number(call(self.map, u[None], t=t, inputs=row))


class Sensor(eqx.Module):
    """y = h(x) + N(0, R); h is a map, or H x + d."""

    map: AbstractFunction | None
    matrix: Float[Array, "p d"]
    shift: Float[Array, " p"]
    noise: Noise

    def log_density(self, x: Array, y: Array, t: Time, row: Inputs) -> Array:
        """log G(x, y), NaN coordinates of y left out."""
        if self.map is None:
            mean = self.matrix @ x + self.shift
        else:
            mean = jnp.atleast_1d(
                jnp.asarray(call(self.map, x, t=t, inputs=row), dtype=jnp.float64)
            )
        return self.noise.log_density_observed(y, mean)


class Start(eqx.Module):
    """x_0 ~ N(mean, variance); the variance may be zero."""

    mean: Float[Array, ""]
    variance: Float[Array, ""]


class Parts(eqx.Module):
    """What the engine evaluates: a structure where one is known, the user's functions elsewhere."""

    log_prior: AbstractFunction | None
    log_transition: AbstractFunction | None
    log_observation: AbstractFunction | None
    start: Start | None
    moved: Gaussian1D | None
    sensor: Sensor | None

    def log_p0(self, x: Float[Array, " m"]) -> Float[Array, " m"]:
        """log p_0(x_j)."""
        if self.start is not None:
            return log_normal(x - self.start.mean, jnp.full(x.shape, self.start.variance))
        fn = self.log_prior
        assert fn is not None
        return jax.vmap(lambda point: _number(fn(point[None])))(x)

    def log_q(
        self, u: Float[Array, " n"], x: Float[Array, " m"], t: Time, row: Inputs
    ) -> Float[Array, "n m"]:
        """log Q(u_i, x_j)."""
        if self.moved is not None:
            gap = x[None, :] - self.means(u, t, row)[:, None]
            return log_normal(gap, jnp.full(gap.shape, self.moved.variance))
        fn = self.log_transition
        assert fn is not None

        def one(old: Array, new: Array) -> Array:
            return _number(call(fn, old[None], new[None], t=t, inputs=row))

        return jax.vmap(lambda old: jax.vmap(lambda new: one(old, new))(x))(u)

    def means(self, u: Float[Array, " n"], t: Time, row: Inputs) -> Float[Array, " n"]:
        """f(u_i), where the noise is additive."""
        moved = self.moved
        assert moved is not None
        return jax.vmap(lambda old: moved.mean(old, t, row))(u)

    def log_g(
        self, x: Float[Array, " m"], y: Float[Array, " p"], t: Time, row: Inputs
    ) -> Float[Array, " m"]:
        """log G(x_j, y)."""
        sensor, fn = self.sensor, self.log_observation
        if sensor is not None:
            return jax.vmap(lambda point: sensor.log_density(point[None], y, t, row))(x)
        assert fn is not None
        return jax.vmap(lambda point: _number(call(fn, point[None], y, t=t, inputs=row)))(x)


def _number(value: ArrayLike) -> Array:
    array = jnp.asarray(value, dtype=jnp.float64)
    if array.size != 1:
        raise ValueError(
            "a log-density must return one number for one point, got shape "
            f"{array.shape}: write it for a single state x of shape (d,), not for a batch"
        )
    return array.reshape(())


def parts_of(ssm: StateSpaceModel) -> Parts:
    """A one-dimensional model taken apart."""
    form = ssm.structure
    if isinstance(form, AdditiveGaussian):
        zero = jnp.zeros(())
        moved = Gaussian1D(form.f, zero, zero, form.Q[0, 0])
        start = Start(form.m0[0], form.P0[0, 0])
        if form.h is None or form.R is None:
            return Parts(None, None, ssm.log_observation, start, moved, None)
        p = form.R.shape[0]
        noise = Noise(_noise(form.R).covariance, form.turns)
        sensor = Sensor(form.h, jnp.zeros((p, 1)), jnp.zeros(p), noise)
        return Parts(None, None, None, start, moved, sensor)
    if isinstance(form, LinearGaussian):
        moved = Gaussian1D(None, form.F[0, 0], form.b[0], form.Q[0, 0])
        sensor = start = None
        if form.H is not None and form.d is not None and form.R is not None:
            sensor = Sensor(None, form.H, form.d, _noise(form.R))
        gaussian = form.prior is None and not form.prior_is_function
        if gaussian and form.m0 is not None and form.P0 is not None:
            start = Start(form.m0[0], form.P0[0, 0])
        return Parts(
            None if start is not None else ssm.log_prior,
            None,
            None if sensor is not None else ssm.log_observation,
            start,
            moved,
            sensor,
        )
    return Parts(ssm.log_prior, ssm.log_transition, ssm.log_observation, None, None, None)


def _noise(matrix: Float[Array, "p p"]) -> Noise:
    """Variances if they are independent for certain: one coordinate, or a matrix looked at."""
    if matrix.shape[0] == 1:
        return Noise(matrix[0])
    if not is_concrete(matrix):
        return Noise(matrix)
    values = np.asarray(matrix)
    if np.count_nonzero(values - np.diag(np.diag(values))) == 0:
        return Noise(jnp.diagonal(matrix))
    return Noise(matrix)
