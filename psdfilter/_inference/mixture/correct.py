"""Bayes' rule for one Gaussian and a smooth sensor, with the exact likelihood as a check.

The sensor in units of its noise is g(x) = R^{-1/2} (h(x) - y), the likelihood exp(-|g|^2 / 2) up to
a constant. In coordinates x = m + L z, z ~ N(0, I):

1. g is linearised on average over N(m, S), which gives a first guess of the posterior's mean;
2. there it is linearised once more, g ~ c + J z, which gives N(mu, C) by Kalman's formulas;
3. at points of a quadrature rule for N(mu, C) the logarithm of the exact likelihood is compared
   with the linearised one. The quadratic part of the difference corrects weight, mean and
   covariance; the rest is the error.

For a linear sensor the difference is zero and this is the Kalman filter.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from ..._gaussian.conditioning import symmetric
from ..._gaussian.small import (
    backward_solve,
    forward_solve,
    log_volume,
    semidefinite_cholesky,
)
from .linearize import Pushed, coefficients, fifth_degree_rule

_LOG_2PI = float(np.log(2 * np.pi))
# Differences of log-likelihoods beyond this are no corrections any more; the error says so.
_LIMIT = 4.0
# Pivots of 1 - K below this: the correction would more than double a standard deviation.
_PIVOT = 0.25


class Seen(NamedTuple):
    """One observation, ready to be compared: coordinates that are NaN are taken out."""

    y: Float[Array, " p"]
    mask: Bool[Array, " p"]
    root: Float[Array, "p p"]  # of R, with unit variances where nothing was seen
    log_height: Float[Array, ""]  # log of the largest density of what was seen

    @staticmethod
    def of(y: Float[Array, " p"], R: Float[Array, "p p"]) -> "Seen":
        """Missing coordinates get a residual of zero and independent noise of variance one."""
        mask = ~jnp.isnan(y)
        both = mask[:, None] & mask[None, :]
        root = semidefinite_cholesky(jnp.where(both, R, jnp.eye(y.size)))
        count = jnp.sum(mask).astype(y.dtype)
        height = -log_volume(root) - 0.5 * count * _LOG_2PI
        return Seen(jnp.where(mask, y, 0.0), mask, root, height)

    def residual(self, expected: Float[Array, " p"]) -> Float[Array, " p"]:
        """g = R^{-1/2} (h - y)."""
        return forward_solve(self.root, jnp.where(self.mask, expected - self.y, 0.0))


class Corrected(NamedTuple):
    """N(m, S) after an observation."""

    log_mass: Float[Array, ""]
    mean: Float[Array, " d"]
    covariance: Float[Array, "d d"]
    error: Float[Array, ""]  # about the total variation of what the quadratic fit leaves out
    distance: Float[Array, ""]  # squared distance of y from what was expected, in its own units


def correct(
    residual: Callable[[Array], Array],
    mean: Float[Array, " d"],
    root: Float[Array, "d d"],
    ahead: Pushed,
) -> Corrected:
    """Bayes' rule for N(m, L L'); `ahead` is it pushed through `residual` with unit noise."""

    def g(z: Float[Array, " d"]) -> Float[Array, " p"]:
        return residual(mean + root @ z)

    dim = mean.size
    # (1) a first guess, with the bend of g as further noise so that it does not overshoot
    chol = semidefinite_cholesky(ahead.covariance)
    guess = -forward_solve(chol, ahead.slope).T @ forward_solve(chol, ahead.mean)
    # (2) Kalman's formulas with g ~ c + J z
    value, tangent = jax.linearize(g, guess)
    J = jax.vmap(tangent, out_axes=1)(jnp.eye(dim))
    c = value - J @ guess
    chol = semidefinite_cholesky(symmetric(J @ J.T) + jnp.eye(c.size))
    white, slope = forward_solve(chol, c), forward_solve(chol, J)
    gain = backward_solve(chol, slope).T
    distance = jnp.sum(jnp.square(white))
    centre = -slope.T @ white
    kept = jnp.eye(dim) - gain @ J
    spread = semidefinite_cholesky(symmetric(kept @ kept.T + gain @ gain.T))
    # (3) the exact likelihood at points of N(centre, spread spread')
    rule = fifth_degree_rule(dim)
    points = jnp.asarray(rule.points)
    z = centre[None, :] + points @ spread.T
    exact = jax.vmap(g)(z)
    linear = c[None, :] + z @ J.T
    difference = 0.5 * jnp.sum((linear - exact) * (linear + exact), axis=1)
    difference = difference[0] + jnp.clip(difference - difference[0], -_LIMIT, _LIMIT)
    log_factor, shift, shape, error = _quadratic_correction(difference, dim)
    moved = root @ (centre + spread @ shift)
    stretched = root @ spread @ shape
    return Corrected(
        -0.5 * distance - log_volume(chol) + log_factor,
        mean + moved,
        symmetric(stretched @ stretched.T),
        error,
        distance,
    )


def _quadratic_correction(
    difference: Float[Array, " n"], dim: int
) -> tuple[Float[Array, ""], Float[Array, " d"], Float[Array, "d d"], Float[Array, ""]]:
    """N(0, I) times exp(b + g'z + (z'Kz - tr K) / 2): log mass, mean, root; and what is left."""
    rule = fifth_degree_rule(dim)
    fit = coefficients(rule, difference[:, None])
    level, slope, form = fit.mean[0], fit.slope[0], symmetric(fit.curvature[0])
    identity = jnp.eye(dim)
    chol = semidefinite_cholesky(identity - form, _PIVOT)
    form = identity - chol @ chol.T
    half = forward_solve(chol, slope)
    length = jnp.sum(jnp.square(half))
    # A step of more than one standard deviation has left the points that it was computed from.
    slope = slope / jnp.sqrt(jnp.maximum(length, 1.0))
    half = half / jnp.sqrt(jnp.maximum(length, 1.0))
    shape = backward_solve(chol, identity)
    log_factor = level - 0.5 * jnp.trace(form) + 0.5 * jnp.sum(jnp.square(half)) - log_volume(chol)
    points = jnp.asarray(rule.points)
    fitted = level + points @ slope
    fitted = fitted + 0.5 * (jnp.sum((points @ form) * points, axis=1) - jnp.trace(form))
    left = jnp.abs(jnp.asarray(rule.weights)) @ jnp.square(difference - fitted)
    return log_factor, backward_solve(chol, half), shape, jnp.sqrt(left)
