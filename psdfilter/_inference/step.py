"""One step at the nodes: the likelihood of an observation, and Bayes' rule."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from .. import _results
from .._statespace.model import log_observation_table
from .model import LearnedModel
from .nodes import apply_axes, smooth_roots
from .observations import partly_missing_logs
from .plan import grid_points


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
    model: LearnedModel, log_values: Float[Array, " k"], missing: Array
) -> tuple[Float[Array, " n"], Float[Array, ""]]:
    """G^(z, y) and the exponent pulled out of it, from log G at the training points."""
    clean = jnp.where(jnp.isnan(log_values), -jnp.inf, log_values)
    peak = jax.lax.stop_gradient(jnp.max(clean))
    peak = jnp.where(jnp.isfinite(peak), peak, 0.0)
    values = jnp.square(smooth_roots(model.plan, jnp.exp(0.5 * (clean - peak))))
    return jnp.where(missing, 1.0, values), peak


def observation_logs(
    model: LearnedModel, y: Float[Array, " p"], t, row, partly: bool = False
) -> Float[Array, " k"]:
    """log G(., y) at the training points; `partly`: single coordinates of y may be missing."""
    return logs_at(model, model.plan.training_points(), y, t, row, partly)


def logs_at(model: LearnedModel, points: Float[Array, "k d"], y, t, row, partly: bool) -> Array:
    if partly and not model.ssm.marginalizes_missing:
        return partly_missing_logs(model.ssm, points, y, t, row)
    return log_observation_table(model.ssm, points, y, t, row)


def observation_errors(
    model: LearnedModel,
    part: Any,
    logs: Float[Array, "t k"],
    peaks: Float[Array, " t"],
    predicted: Float[Array, "t n"],
) -> Float[Array, " t"]:
    """delta_t = 2 int p |G - G^| / int p G, on points between the training nodes of sqrt G."""
    plan = model.plan
    axes = plan.check_axes()
    points, nearest = grid_points(plan.box, axes), plan.nearest_nodes(axes)
    fits = tuple(r.kernel(z) @ r.solve for r, z in zip(plan.observation, axes, strict=True))
    shape = tuple(r.nodes.shape[0] for r in plan.observation)

    def one(y, t, row, log_values, peak, density):
        root = jnp.exp(0.5 * (log_values - peak)).reshape(shape)
        fit = jnp.square(apply_axes(root, fits)).ravel()
        truth = jnp.exp(logs_at(model, points, y, t, row, part.partly) - peak)
        mass = density[nearest]
        total = mass @ truth
        return 2 * (mass @ jnp.abs(truth - fit)) / jnp.where(total > 0, total, 1.0)

    errors = jax.vmap(one)(part.ys, part.steps, part.rows, logs, peaks, predicted)
    return jnp.where(jnp.isnan(errors), 0.0, errors)


def observation_status(y: Float[Array, " p"]) -> tuple[Array, Int[Array, ""]]:
    """Whether y is missing as a whole, and a code for what cannot be used."""
    infinite = jnp.any(jnp.isinf(y))
    code = jnp.where(infinite, _results.BAD_OBSERVATION, _results.OK)
    return jnp.all(jnp.isnan(y)) | infinite, code
