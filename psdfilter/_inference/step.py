"""One step at the nodes: the likelihood of an observation, and Bayes' rule."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from .. import _results
from .._statespace.model import log_observation_table
from .joint import JointObservation
from .model import LearnedModel
from .nodes import smooth_roots
from .observations import partly_missing_logs
from .workspace import Workspace, at_check_points


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


def likelihood_at_nodes(
    model: LearnedModel,
    log_values: Float[Array, " k"],
    missing: Array,
    space: Workspace | None = None,
) -> tuple[Float[Array, " n"], Float[Array, ""]]:
    """G^(z, y) and the exponent pulled out of it, from log G at the training points."""
    clean = jnp.where(jnp.isnan(log_values), -jnp.inf, log_values)
    peak = jax.lax.stop_gradient(jnp.max(clean))
    peak = jnp.where(jnp.isfinite(peak), peak, 0.0)
    roots = jnp.exp(0.5 * (clean - peak))
    fits = None if space is None else space.fits
    values = jnp.square(smooth_roots(model.plan, roots, fits))
    return jnp.where(missing, 1.0, values), peak


def likelihoods_at_nodes(
    model: LearnedModel, logs: Float[Array, "t k"], missing: Array, space: Workspace
) -> tuple[Float[Array, "t n"], Float[Array, " t"]]:
    """`likelihood_at_nodes` of several times."""
    clean = jnp.where(jnp.isnan(logs), -jnp.inf, logs)
    peaks = jax.lax.stop_gradient(jnp.max(clean, axis=1))
    peaks = jnp.where(jnp.isfinite(peaks), peaks, 0.0)
    roots = jnp.exp(0.5 * (clean - peaks[:, None]))
    values = jnp.square(fitted_roots(model, roots, space.fits))
    return jnp.where(missing[:, None], 1.0, values), peaks


def fitted_roots(
    model: LearnedModel, roots: Float[Array, "t k"], fits: tuple[Float[Array, "_ _"], ...]
) -> Float[Array, "t n"]:
    """Fits of several roots at once: one matrix product for each axis."""
    shape = tuple(r.nodes.shape[0] for r in model.plan.observation)
    tensor = roots.reshape(-1, *shape)
    for fit in reversed(fits):
        # The axis done last moves to the front of the others: after all of them, order is restored.
        tensor = jnp.moveaxis(tensor @ fit.T, -1, 1)
    return tensor.reshape(roots.shape[0], -1)


def observation_logs(
    model: LearnedModel,
    y: Float[Array, " p"],
    t,
    row,
    partly: bool = False,
    space: Workspace | None = None,
) -> Float[Array, " k"]:
    """log G(., y) at the training points; `partly`: single coordinates of y may be missing."""
    points = model.plan.training_points() if space is None else space.training_points
    return logs_at(model, points, y, t, row, partly)


def logs_at(model: LearnedModel, points: Float[Array, "k d"], y, t, row, partly: bool) -> Array:
    if partly and not model.ssm.marginalizes_missing:
        return partly_missing_logs(model.ssm, points, y, t, row)
    return log_observation_table(model.ssm, points, y, t, row)


def observation_errors(
    model: LearnedModel,
    part: Any,
    logs: Float[Array, "t k"] | None,
    peaks: Float[Array, " t"],
    predicted: Float[Array, "t n"],
    space: Workspace | None = None,
    fitted: Float[Array, "t n"] | None = None,
) -> Float[Array, " t"]:
    """delta_t = 2 int p |G - G^| / int p G, by the rule of the filter.

    Its nodes are not the training nodes of sqrt G: a fit that is right there and wrong between
    shows. `fitted` is G^ at the nodes, if it is known already.
    """
    space = Workspace.of(model.plan) if space is None else space
    if fitted is None:
        nothing = jnp.zeros(peaks.shape[0], dtype=bool)
        if model.joint is None:
            assert logs is not None
            fitted = likelihoods_at_nodes(model, logs, nothing, space)[0]
        else:
            fitted = model.joint.likelihoods(part.ys, nothing, part.partly)[0]
    true_logs = jax.vmap(
        lambda y, t, row: logs_at(model, space.check_points, y, t, row, part.partly)
    )(part.ys, part.steps, part.rows)
    truth = jnp.exp(true_logs - peaks[:, None])
    mass = at_check_points(model.plan, predicted * space.weights[None, :])
    fitted = at_check_points(model.plan, fitted)
    totals = jnp.sum(mass * truth, axis=1)
    gaps = jnp.sum(mass * jnp.abs(truth - fitted), axis=1)
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
