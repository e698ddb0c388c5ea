"""One step at the nodes: the likelihood of an observation, and Bayes' rule."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from ... import _results
from ..._statespace.functions import Inputs, Time
from ..._statespace.model import StateSpaceModel, log_observation_table
from ..numerics.grids import finite_peak
from ..series import Series
from .joint import JointObservation
from .marginal import partly_missing_logs
from .workspace import Stepper, Workspace, at_check_points


class StepOutput(NamedTuple):
    """What one step leaves behind."""

    density: Float[Array, " n"]
    log_mass: Float[Array, ""]  # log Z; zero if nothing was seen
    log_norm: Float[Array, ""]  # log of what the step divided by
    log_kept: Float[Array, ""]  # log D: the predicted mass on the box
    seen: Array
    code: Int[Array, ""]


def correct(
    weights: Float[Array, " n"],
    predicted: Float[Array, " n"],
    likelihood: Float[Array, " n"],
    log_scale: Float[Array, ""],
    missing: Array,
    code: Int[Array, ""],
) -> StepOutput:
    """pi = p G / Z at the nodes; where Z is no positive number, the prediction stands."""
    kept = weights @ predicted
    safe_kept = jnp.where(kept > 0, kept, 1.0)
    joint = predicted * likelihood
    mass = weights @ joint
    good = (mass > 0) & jnp.isfinite(mass)
    safe = jnp.where(good, mass, 1.0)
    seen = good & ~missing
    code = jnp.where(good | (code != _results.OK), code, _results.NO_MASS)
    log_z = jnp.log(safe) + log_scale
    return StepOutput(
        density=jnp.where(seen, joint / safe, predicted / safe_kept),
        log_mass=jnp.where(seen, log_z, jnp.where(missing, 0.0, -jnp.inf)),
        log_norm=jnp.where(seen, log_z, jnp.log(safe_kept)),
        log_kept=jnp.log(safe_kept),
        seen=seen,
        code=code,
    )


def likelihoods_at_nodes(
    space: Workspace, logs: Float[Array, "t k"], missing: Array
) -> tuple[Float[Array, "t n"], Float[Array, " t"]]:
    """G^(z, y) of several times and the exponents pulled out, from log G at the training points."""
    clean = jnp.where(jnp.isnan(logs), -jnp.inf, logs)
    peaks = jax.lax.stop_gradient(finite_peak(clean, axis=1))
    roots = jnp.exp(0.5 * (clean - peaks[:, None]))
    values = jnp.square(_fitted_roots(roots, space.fits))
    return jnp.where(missing[:, None], 1.0, values), peaks


def _fitted_roots(
    roots: Float[Array, "t k"], fits: tuple[Float[Array, "_ _"], ...]
) -> Float[Array, "t n"]:
    """Fits of several roots at once: one matrix product for each axis."""
    tensor = roots.reshape(-1, *(fit.shape[1] for fit in fits))
    for fit in reversed(fits):
        # The axis done last moves to the front of the others: after all of them, order is restored.
        tensor = jnp.moveaxis(tensor @ fit.T, -1, 1)
    return tensor.reshape(roots.shape[0], -1)


def series_logs(
    sensor: StateSpaceModel, points: Float[Array, "k d"], series: Series
) -> Float[Array, "t k"]:
    """log G(., y_t) at points, for all t."""

    def one(y: Array, t: Array, row: Inputs) -> Array:
        return logs_at(sensor, points, y, t, row, series.partly)

    return jax.vmap(one)(jnp.asarray(series.ys), series.steps, series.rows)


def logs_at(
    sensor: StateSpaceModel,
    points: Float[Array, "k d"],
    y: Array,
    t: Time,
    row: Inputs,
    partly: bool,
) -> Float[Array, " k"]:
    """log G(., y) at points; `partly`: single coordinates of y may be missing."""
    if partly and not sensor.marginalizes_missing:
        return partly_missing_logs(sensor, points, y, t, row)
    return log_observation_table(sensor, points, y, t, row)


def observation_errors(
    stepper: Stepper,
    part: Series,
    peaks: Float[Array, " t"],
    predicted: Float[Array, "t n"],
    fitted: Float[Array, "t n"],
) -> Float[Array, " t"]:
    """delta_t = 2 int p |G - G^| / int p G, by the rule of the filter.

    Its nodes are not the training nodes of sqrt G: a fit that is right there and wrong between
    shows. `fitted` is G^ at the nodes.
    """
    space, shape = stepper.space, stepper.shape
    true_logs = series_logs(stepper.sensor, space.check_points, part)
    truth = jnp.exp(true_logs - peaks[:, None])
    weights = at_check_points(shape, space.weights[None, :])[0]
    predicted, fitted = at_check_points(shape, predicted), at_check_points(shape, fitted)
    totals = (predicted * truth) @ weights
    gaps = (predicted * jnp.abs(truth - fitted)) @ weights
    errors = 2 * gaps / jnp.where(totals > 0, totals, 1.0)
    return jnp.where(jnp.isnan(errors), 0.0, errors)


def observation_status(
    y: Float[Array, " p"], joint: JointObservation | None = None
) -> tuple[Array, Int[Array, ""]]:
    """Whether y is missing as a whole, and a code for what cannot be used.

    A model of (x, y) has no meaning outside of its box.
    """
    unusable = jnp.any(jnp.isinf(y))
    if joint is not None:
        unusable = unusable | ~joint.contains(y)
    code = jnp.where(unusable, _results.BAD_OBSERVATION, _results.OK)
    return jnp.all(jnp.isnan(y)) | unusable, code
