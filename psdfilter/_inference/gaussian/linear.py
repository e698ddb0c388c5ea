"""Exact steps of a linear-Gaussian model: Kalman's formulas for every component of a bank."""

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from ... import _results
from ..._gaussian.conditioning import LinearSensor, move_covariance, observe, sensor_gain
from ..series import Series
from .bank import Bank, Layout, bank_moments, log_total


class Dynamics(NamedTuple):
    """x' = F u + b + N(0, Q)."""

    F: Float[Array, "d d"]
    b: Float[Array, " d"]
    Q: Float[Array, "d d"]


class Sensor(NamedTuple):
    """y = H x + d + N(0, R)."""

    H: Float[Array, "p d"]
    d: Float[Array, " p"]
    R: Float[Array, "p p"]


class StepRecord(NamedTuple):
    """What a step leaves behind beside the law itself."""

    log_mass: Float[Array, ""]  # log Z; zero if nothing was seen, -inf if the step failed
    seen: Array
    code: Int[Array, ""]


def predict_bank(bank: Bank, dynamics: Dynamics) -> Bank:
    """m <- F m + b, S <- F S F' + Q; weights stay."""
    F, b, Q = dynamics
    if bank.means.shape[0] == 1:
        covariances = move_covariance(bank.covariances[0], F, Q)[None]
    else:
        covariances = jax.vmap(lambda S: move_covariance(S, F, Q))(bank.covariances)
    return Bank(bank.log_sizes, bank.means @ F.T + b[None, None, :], covariances)


def predict_hops(bank: Bank, dynamics: Dynamics, hops: Int[Array, ""], single_hop: bool) -> Bank:
    """As many transitions as there are before an observation."""
    if single_hop:
        moved = predict_bank(bank, dynamics)
        return jax.tree.map(lambda new, old: jnp.where(hops > 0, new, old), moved, bank)
    return jax.lax.fori_loop(0, hops, lambda _, b: predict_bank(b, dynamics), bank)


@partial(jax.jit, static_argnums=3)
def predict_all(before: Bank, dynamics: Dynamics, hops: Int[Array, " t"], single_hop: bool) -> Bank:
    """The same for banks that are stacked over time."""
    return jax.vmap(lambda bank, hop: predict_hops(bank, dynamics, hop, single_hop))(before, hops)


def update_bank(
    bank: Bank, layout: Layout, sensor: Sensor, y: Float[Array, " p"]
) -> tuple[Bank, StepRecord]:
    """Bayes' rule for one observation; NaN coordinates are not seen.

    Where it cannot be carried out the bank stands as it was and the code says why.
    """
    infinite = jnp.any(jnp.isinf(y))
    usable = jnp.where(infinite, jnp.nan, y)
    part = LinearSensor.of(sensor.H, sensor.d, sensor.R, usable)

    def block(log_sizes: Array, means: Array, covariance: Array):
        gain = sensor_gain(covariance, part)
        means, logs = observe(means, gain, part, usable)
        return Bank(log_sizes + logs, means, gain.covariance)

    if bank.means.shape[0] == 1:
        new = Bank(*(a[None] for a in block(*(a[0] for a in bank))))
    else:
        new = Bank(*jax.vmap(block)(*bank))
    total = log_total(new.log_sizes, layout)
    good = jnp.isfinite(total)
    shift = jnp.where(good, total, 0.0)
    missing = ~jnp.any(part.seen)
    seen = good & ~missing
    new = new._replace(log_sizes=new.log_sizes - shift)
    new = jax.tree.map(lambda after, before: jnp.where(good, after, before), new, bank)
    code = jnp.where(good, _results.OK, _results.SINGULAR)
    code = jnp.where(infinite, _results.BAD_OBSERVATION, code)
    log_mass = jnp.where(seen, shift, jnp.where(missing & good, 0.0, -jnp.inf))
    return new, StepRecord(log_mass, seen, code)


class ExactRun(NamedTuple):
    """A filtered series; laws are stacked over time, or None if only summaries were kept."""

    last: Bank
    laws: Bank | None
    record: StepRecord
    mean: Float[Array, "t d"]
    covariance: Float[Array, "t d d"]


def run_exact(
    start: Bank,
    layout: Layout,
    dynamics: Dynamics,
    sensor: Sensor,
    series: Series,
    keep: bool,
) -> ExactRun:
    """All steps in one scan."""

    def step(bank: Bank, at: tuple[Array, Array]):
        y, hop = at
        bank = predict_hops(bank, dynamics, hop, series.regular)
        bank, record = update_bank(bank, layout, sensor, y)
        return bank, (bank if keep else None, record, bank_moments(bank, layout))

    last, (laws, record, (mean, covariance)) = jax.lax.scan(
        step, start, (jnp.asarray(series.ys), series.hops)
    )
    return ExactRun(last, laws, record, mean, covariance)
