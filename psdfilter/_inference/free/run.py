"""The scan of a filter with a learned transition of free shapes, and its single steps."""

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from ... import _results
from ..series import Series
from .compress import SquareSum
from .observation import AbstractObservation
from .step import (
    LearnedTransition,
    Record,
    StepSizes,
    predict_law,
    rule_for,
    settle,
    update_law,
)

# Estimated errors of the learned densities, in tolerances, that call for a code.
_ROUGH = 10.0


class FitErrors(NamedTuple):
    """Averages of |Q^ - Q| and |G^ - G| over their boxes, and the tolerance of a step; static."""

    transition: float
    observation: float
    tol: float

    def of_step(self, record: Record) -> Float[Array, ""]:
        """About 2 (|G^ - G| + |Q^ - Q| int G dx) / Z, what they do to a filtered density.

        At most 2, also if it is not a number.
        """
        log_seen, log_moved = jnp.log(self.observation), jnp.log(self.transition)
        logs = jnp.logaddexp(log_seen, log_moved + record.log_spread) - record.log_mass
        return 2.0 * jnp.exp(jnp.where(logs < 0, logs, 0.0))


class Moved(NamedTuple):
    """What transitions have done, as sums over them."""

    log_kept: Float[Array, ""]
    loss: Float[Array, ""]
    code: Int[Array, ""]


class Observed(NamedTuple):
    """What an observation has done."""

    record: Record
    fit_error: Float[Array, ""]
    seen: Array
    missing: Array
    code: Int[Array, ""]

    def log_likelihood(self, log_kept: Float[Array, ""]) -> Float[Array, ""]:
        """log Z, after transitions that kept so much; of nothing 0, of what cannot be -inf."""
        unseen = jnp.where(self.missing, 0.0, -jnp.inf)
        return jnp.where(self.seen, log_kept + self.record.log_mass, unseen)


def worse(one: Int[Array, ""], other: Int[Array, ""]) -> Int[Array, ""]:
    """The first code, unless the other is of a step that could not be taken."""
    mild = (one == _results.OK) | ((one == _results.UNRESOLVED) & (other != _results.OK))
    return jnp.where(mild, other, one)


def _advance(
    law: SquareSum, learned: LearnedTransition, sizes: StepSizes, errors: FitErrors
) -> tuple[SquareSum, Record, Int[Array, ""]]:
    """One transition; if no more of it stays on the box than Q^ is wrong by, the law is left."""
    after, record = predict_law(law, learned, sizes)
    kept, error = jnp.exp(record.log_mass), errors.transition * 2.0**law.atoms.dim
    stays = kept > error
    poor = ~(record.loss <= errors.tol) | (2.0 * error > _ROUGH * errors.tol * kept)
    code = jnp.where(poor, _results.UNRESOLVED, _results.OK)
    law, record = jax.lax.cond(
        stays, lambda: (after, record), lambda: (law, _moments_of(law, sizes))
    )
    return law, record, jnp.where(stays, code, _results.NO_MASS)


def _observe(
    law: SquareSum,
    observation: AbstractObservation,
    y: Float[Array, " p"],
    sizes: StepSizes,
    errors: FitErrors,
) -> tuple[SquareSum, Observed]:
    """One observation; what cannot be used leaves the law alone."""
    missing, usable = jnp.all(jnp.isnan(y)), observation.is_usable(y)
    after, record = update_law(law, observation, jnp.where(usable, y, 0.0), sizes)
    possible = jnp.isfinite(record.log_mass)
    seen = usable & possible
    law, kept = jax.lax.cond(seen, lambda: (after, record), lambda: (law, _moments_of(law, sizes)))
    fit_error = errors.of_step(record)
    poor = ~(record.loss <= errors.tol) | (fit_error > _ROUGH * errors.tol)
    code = jnp.where(poor, _results.UNRESOLVED, _results.OK)
    code = jnp.where(possible, code, _results.NO_MASS)
    code = jnp.where(usable, code, _results.BAD_OBSERVATION)
    fit_error = jnp.where(seen, fit_error, 0.0)
    return law, Observed(kept, fit_error, seen, missing, jnp.where(missing, _results.OK, code))


def _moments_of(law: SquareSum, sizes: StepSizes) -> Record:
    """The record of a law that is left as it is."""
    rule = rule_for(law, sizes)
    record = settle(law, rule, law(rule.nodes))[1]
    return record._replace(log_mass=jnp.zeros(()), loss=jnp.zeros(()))


moments_of = jax.jit(_moments_of, static_argnums=1)
advance_once = jax.jit(_advance, static_argnums=(2, 3))
observe_once = jax.jit(_observe, static_argnums=(3, 4))


@partial(jax.jit, static_argnums=(2, 3, 4))
def advance_steps(
    law: SquareSum, learned: LearnedTransition, sizes: StepSizes, errors: FitErrors, num: int
) -> tuple[SquareSum, Record, Int[Array, " k"]]:
    """`num` transitions, one after the other, stacked."""

    def step(law: SquareSum, _: None) -> tuple[SquareSum, tuple[SquareSum, Record, Array]]:
        out = _advance(law, learned, sizes, errors)
        return out[0], out

    return jax.lax.scan(step, law, None, length=num)[1]


def _move(
    law: SquareSum,
    learned: LearnedTransition,
    sizes: StepSizes,
    errors: FitErrors,
    hops: Array,
    regular: bool,
) -> tuple[SquareSum, Moved]:
    """`hops` transitions."""

    def once(_: Array | int, at: tuple[SquareSum, Moved]) -> tuple[SquareSum, Moved]:
        law, before = at
        law, record, code = _advance(law, learned, sizes, errors)
        return law, Moved(
            before.log_kept + record.log_mass, before.loss + record.loss, worse(before.code, code)
        )

    start = law, Moved(jnp.zeros(()), jnp.zeros(()), jnp.zeros((), int))
    if not regular:
        return jax.lax.fori_loop(0, hops, once, start)
    return jax.lax.cond(hops > 0, lambda: once(0, start), lambda: start)


@partial(jax.jit, static_argnums=(3, 4, 5))
def move_all(
    laws: SquareSum, learned: LearnedTransition, hops: Array, sizes: StepSizes, errors: FitErrors,
    regular: bool,
) -> SquareSum:  # fmt: skip
    """Stacked laws, each after its own number of transitions."""

    def one(at: tuple[SquareSum, Array]) -> SquareSum:
        return _move(at[0], learned, sizes, errors, at[1], regular)[0]

    return jax.lax.map(one, (laws, hops))


class Filter(NamedTuple):
    """What a filter is made of; static but for the arrays."""

    learned: LearnedTransition
    observation: AbstractObservation


@partial(jax.jit, static_argnums=(3, 4, 5))
def run_series(
    prior: SquareSum, filter_: Filter, series: Series, sizes: StepSizes, errors: FitErrors,
    keep: bool,
):  # fmt: skip
    """The last law; and all laws (if kept), what was observed, and what has moved, stacked."""

    def step(law: SquareSum, at: tuple[Array, Array]):
        y, hops = at
        law, moved = _move(law, filter_.learned, sizes, errors, hops, series.regular)
        law, out = _observe(law, filter_.observation, y, sizes, errors)
        return law, (law if keep else None, out, moved)

    return jax.lax.scan(step, prior, (jnp.asarray(series.ys), series.hops))
