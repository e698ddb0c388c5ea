"""Exact steps of a linear-Gaussian model: Kalman's formulas for every component of a bank."""

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from ... import _results
from ..._gaussian.conditioning import LinearSensor, move_covariance, observe, sensor_gain
from ..._gaussian.reflections import covariance_rows
from ..._gaussian.small import semidefinite_cholesky
from ..lengths import scan_rows
from ..series import Series
from .bank import Bank, Layout, bank_moments, log_total
from .roots import bank_of_rows, move_rows, observe_rows

# Variance of a predicted observation, in units of its noise, beyond which covariances are not
# carried without roots. Kalman's formulas lose about eps times this: measured on a trend and on
# motion in the plane, errors were 1e-10 at 1e8, 1e-6 at 1e12 and 2e-5 at 1e14.
MAX_SPREAD = 1e8


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
    if bank.rows is not None:
        rows = move_rows(bank.rows, F, covariance_rows(Q))
        return bank_of_rows(bank.log_sizes, bank.means @ F.T + b[None, None, :], rows)
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


class Settled(NamedTuple):
    """Weights of sum one after an observation, if they have a sum."""

    good: Bool[Array, ""]
    log_sizes: Float[Array, "b k"]
    record: StepRecord


def settle(
    log_sizes: Float[Array, "b k"], layout: Layout, part: LinearSensor, infinite: Bool[Array, ""]
) -> Settled:
    """What a step leaves behind, from weights times likelihoods; `infinite` observations fail."""
    total = log_total(log_sizes, layout)
    good = jnp.isfinite(total)
    shift = jnp.where(good, total, 0.0)
    missing = ~jnp.any(part.seen)
    seen = good & ~missing
    code = jnp.where(good, _results.OK, _results.SINGULAR)
    code = jnp.where(infinite, _results.BAD_OBSERVATION, code)
    log_mass = jnp.where(seen, shift, jnp.where(missing & good, 0.0, -jnp.inf))
    return Settled(good, log_sizes - shift, StepRecord(log_mass, seen, code))


def noise_floor(dynamics: Dynamics, sensor: Sensor) -> Float[Array, " p"]:
    """The least variance that each coordinate of y has, given all before it and the last state.

    That of its sensor, given the other sensors; of the transition, if the sensor has none;
    infinite if nothing in the model has noise.
    """
    own = jnp.square(jnp.diagonal(semidefinite_cholesky(sensor.R)))
    moved = jnp.einsum("pd,de,pe->p", sensor.H, dynamics.Q, sensor.H)
    floor = jnp.where(own > 0, own, moved)
    return jax.lax.stop_gradient(jnp.where(floor > 0, floor, jnp.inf))


def _observe_covariances(
    bank: Bank, part: LinearSensor, y: Float[Array, " p"]
) -> tuple[Bank, Float[Array, "b p"]]:
    """Laws given y, with weights times likelihoods, and the diagonals of H S H' + R."""

    def block(log_sizes: Array, means: Array, covariance: Array) -> tuple[Bank, Array]:
        gain = sensor_gain(covariance, part)
        means, logs = observe(means, gain, part, y)
        spread = jnp.sum(jnp.square(gain.chol), axis=1)
        return Bank(log_sizes + logs, means, gain.covariance), spread

    if bank.means.shape[0] == 1:
        out = block(bank.log_sizes[0], bank.means[0], bank.covariances[0])
        return jax.tree.map(lambda a: a[None], out)
    return jax.vmap(block)(bank.log_sizes, bank.means, bank.covariances)


def update_bank(
    bank: Bank,
    layout: Layout,
    sensor: Sensor,
    y: Float[Array, " p"],
    floor: Float[Array, " p"],
) -> tuple[Bank, StepRecord]:
    """Bayes' rule for one observation; NaN coordinates are not seen.

    A step whose numbers have lost digits says so, against `noise_floor`. Where it cannot be carried
    out the bank stands as it was and the code says why.
    """
    infinite = jnp.any(jnp.isinf(y))
    usable = jnp.where(infinite, jnp.nan, y)
    part = LinearSensor.of(sensor.H, sensor.d, sensor.R, usable)

    precise = jnp.array(True)
    if bank.rows is not None:
        new = observe_rows(bank, part, covariance_rows(sensor.R), usable)
    else:
        new, spread = _observe_covariances(bank, part, usable)
        precise = jnp.all((spread <= MAX_SPREAD * floor[None, :]) | ~part.seen[None, :])
    good, log_sizes, record = settle(new.log_sizes, layout, part, infinite)
    code = jnp.where(precise | (record.code != _results.OK), record.code, _results.IMPRECISE)
    new = new._replace(log_sizes=log_sizes)
    new = jax.tree.map(lambda after, old: jnp.where(good, after, old), new, bank)
    return new, record._replace(code=code)


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
    """All steps in one scan, on roots if the first bank has them."""
    floor = noise_floor(dynamics, sensor)

    def step(bank: Bank, at: tuple[Array, Array]):
        y, hop = at
        bank = predict_hops(bank, dynamics, hop, series.regular)
        bank, record = update_bank(bank, layout, sensor, y, floor)
        return bank, (bank if keep else None, record, bank_moments(bank, layout))

    last, (laws, record, (mean, covariance)) = scan_rows(
        step, start, (jnp.asarray(series.ys), series.hops), series.count
    )
    return ExactRun(last, laws, record, mean, covariance)
