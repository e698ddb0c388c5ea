"""The filter on nodes, one observation at a time."""

from typing import NamedTuple

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from ..._statespace.model import Inputs
from ..numerics.compiled import call_compiled
from ..series import is_partly
from ..trace import Moved, Observation, Seen
from .densities import ProductDensity
from .filled import Filled
from .filtered import fit_logs
from .host import host_logs
from .laws import moments_from_features, of_mass_one
from .recursion import hop
from .step import StepOutput, correct, likelihoods_at_nodes, logs_at, observation_status
from .workspace import Stepper, stepper_of


class NodesLaw(NamedTuple):
    """A law at the nodes, and what it is made of between them.

    Attributes:
        values: at the nodes, of mass one after an observation.
        source: values before the last transition; None if the law is that of a whole series.
        logs: log G at the training points, summed over the observations since then.
        log_norm: log of what these have divided by.
        at: step and inputs of the last transition; step 0 if there was none.
    """

    values: Float[Array, " n"]
    source: Float[Array, " n"] | None = None
    logs: Float[Array, " k"] | None = None
    log_norm: Float[Array, ""] | None = None
    at: tuple[Int[Array, ""], Inputs] | None = None


def start_on_nodes(filled: Filled) -> NodesLaw:
    """The prior."""
    stepper = stepper_of(filled)
    num = stepper.space.training_points.shape[0]
    values = stepper.prior
    # Of the same structure as after a transition, so that a scan can carry it.
    return NodesLaw(values, values, jnp.zeros(num), jnp.zeros(()), (jnp.zeros((), int), None))


def _predict(
    stepper: Stepper, law: NodesLaw, step: Int[Array, ""], row: Inputs
) -> tuple[NodesLaw, Moved]:
    predicted = hop(stepper, stepper.squares_at(step, row), stepper.weights * law.values)
    kept = stepper.weights @ predicted
    nothing, still = jnp.zeros(()), jnp.zeros((), int)
    logs = None if law.logs is None else jnp.zeros_like(law.logs)
    new = NodesLaw(predicted, law.values, logs, nothing, (step, row))
    return new, Moved(jnp.log(jnp.where(kept > 0, kept, 1.0)), nothing, still)


def predict_on_nodes(
    filled: Filled, law: NodesLaw, step: Int[Array, ""], row: Inputs
) -> tuple[NodesLaw, Moved]:
    """One transition; mass that leaves the box is missing until the next observation."""
    return call_compiled(_predict, stepper_of(filled), law, step, row)


def _update(
    stepper: Stepper,
    law: NodesLaw,
    y: Float[Array, " p"],
    step: Int[Array, ""],
    row: Inputs,
    partly: bool,
) -> tuple[NodesLaw, Seen]:
    joint, space = stepper.joint, stepper.space
    if joint is None:
        logs = logs_at(stepper.sensor, space.training_points, y, step, row, partly)
        return _correct(stepper, law, y, logs)
    assert stepper.whole is not None
    missing, code = observation_status(y, joint)
    likelihood, scale = joint.likelihoods(y[None], missing[None], partly)
    safe = jnp.where(missing, joint.box.center, y)
    logs = joint.logs(stepper.whole.plan, safe, partly)
    out = correct(space.weights, law.values, likelihood[0], scale[0], missing, code)
    return _after(law, logs, out)


def _correct(
    stepper: Stepper, law: NodesLaw, y: Float[Array, " p"], logs: Float[Array, " k"]
) -> tuple[NodesLaw, Seen]:
    """Bayes' rule with log G at the training points."""
    missing, code = observation_status(y)
    likelihood, scale = likelihoods_at_nodes(stepper.space, logs[None], missing[None])
    out = correct(stepper.weights, law.values, likelihood[0], scale[0], missing, code)
    return _after(law, logs, out)


def _after(law: NodesLaw, logs: Float[Array, " k"], out: StepOutput) -> tuple[NodesLaw, Seen]:
    seen = Seen(out.log_mass, jnp.zeros(()), out.seen, out.code)
    if law.logs is None or law.log_norm is None:
        return NodesLaw(out.density), seen
    added, log_norm = law.logs + jnp.where(out.seen, logs, 0.0), law.log_norm + out.log_norm
    return law._replace(values=out.density, logs=added, log_norm=log_norm), seen


def update_on_nodes(
    filled: Filled, law: NodesLaw, y: Observation, step: Int[Array, ""], row: Inputs
) -> tuple[NodesLaw, Seen]:
    """One observation; G of a NumPy model is evaluated before the compiled part."""
    stepper = stepper_of(filled)
    if filled.ssm.vectorized and filled.joint is None:
        logs = host_logs(filled, jnp.asarray(y)[None], step[None])[0]
        return call_compiled(_correct, stepper, law, jnp.asarray(y), logs)
    return call_compiled(_update, stepper, law, y, step, row, options=(is_partly(y),))


def _moments(
    stepper: Stepper, values: Float[Array, " n"]
) -> tuple[Float[Array, " d"], Float[Array, "d d"]]:
    masses = values * stepper.weights
    features = (masses @ stepper.space.features) / jnp.sum(masses)
    mean, covariance = moments_from_features(stepper.center, stepper.half_width, features[None])
    return mean[0], covariance[0]


def moments_on_nodes(
    filled: Filled, law: NodesLaw
) -> tuple[Float[Array, " d"], Float[Array, "d d"]]:
    """Mean and covariance."""
    return call_compiled(_moments, stepper_of(filled), law.values)


def density_on_nodes(filled: Filled, law: NodesLaw) -> ProductDensity:
    """The law between the nodes too; several observations since the last transition share a fit."""
    if law.source is None or law.logs is None or law.log_norm is None or law.at is None:
        raise ValueError("this law is that of a whole series: see post.density(t)")
    roots, log_scale = [], -law.log_norm
    if bool(jnp.any(law.logs != 0.0)):
        coefficients, peaks = eqx.filter_jit(fit_logs)(filled, law.logs[None])
        roots, log_scale = [coefficients[0]], log_scale + peaks[0]
    if int(law.at[0]) == 0:
        return of_mass_one(ProductDensity.of_prior(filled, roots, log_scale), filled)
    v = filled.plan.node_weights() * law.source
    rows = filled.tables_at(*law.at).rows
    return of_mass_one(ProductDensity.predicted(filled, rows, v, roots, log_scale), filled)
