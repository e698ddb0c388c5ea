"""The filter of a model whose Q and G were learned with free shapes: whole series, and online."""

from functools import partial
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from ... import _results
from ..._checks import Numbers, as_count, is_concrete
from ..._density.box import Box
from ..._density.generalized import GeneralizedGaussianPSD
from ..._statespace.model import Inputs
from .generalized_compress import SquareSum
from .generalized_posterior import GeneralizedForecast, GeneralizedPosterior, as_density
from .generalized_step import (
    LearnedRoots,
    Record,
    StepSizes,
    predict_law,
    rule_for,
    settle,
    update_law,
)
from .model import AbstractBlocksModel
from .report import BlocksReport
from .run import raise_failure
from .series import BlockSeries, as_block_series

# Estimated errors of the learned densities, in tolerances, that call for a code.
_ROUGH = 10.0


class GeneralizedState(eqx.Module):
    """The filter between two calls: the law of the state, and what has been summed up."""

    law: SquareSum  # in unit coordinates
    state_box: Box
    mean: Float[Array, " d"]
    covariance: Float[Array, "d d"]
    log_kept: Float[Array, ""]  # of the transitions since the last observation
    log_likelihood: Float[Array, ""]
    step: Int[Array, ""]
    code: Int[Array, ""]

    @property
    def density(self) -> GeneralizedGaussianPSD:
        """The law of the state, of mass one on the box."""
        return as_density(self.law, self.state_box)


class FitErrors(NamedTuple):
    """Averages of |Q^ - Q| and |G^ - G| over their boxes, and the tolerance of a step; static."""

    transition: float
    observation: float
    tol: float

    def of_step(self, record: Record) -> Float[Array, ""]:
        """About 2 (|G^ - G| + |Q^ - Q| int G dx) / Z, what they do to a filtered density."""
        error = self.observation + self.transition * record.spread
        return 2.0 * error * jnp.exp(-record.log_mass)


class GeneralizedModel(AbstractBlocksModel):
    """Q^ = g_Q^2 and G^ = g_G^2, sums of Gaussians with free shapes, on the state box.

    What `learn(..., engine="generalized")` returns, and every inference function takes. It does not
    need the functions of the StateSpaceModel any more.
    """

    learned: LearnedRoots
    prior: SquareSum
    state_box: Box
    observation_box: Box
    sizes: StepSizes = eqx.field(static=True)
    errors: FitErrors = eqx.field(static=True)
    report: BlocksReport = eqx.field(static=True)

    @property
    def dim(self) -> int:
        """Number of coordinates of the state."""
        return self.state_box.dim

    def run(
        self,
        ys: Numbers,
        *,
        first: str = "predict",
        inputs: Inputs = None,
        times: Numbers | None = None,
        keep: str = "densities",
        throw: bool = True,
    ) -> GeneralizedPosterior:
        """`run_filter`."""
        _no_inputs(inputs)
        if keep not in ("densities", "summaries"):
            raise ValueError(f'keep must be "densities" or "summaries", got {keep!r}')
        series = as_block_series(ys, None, first, None, times)
        self._check_rows("ys", series.ys)
        post = _filter(self, series, keep == "densities")
        if throw and is_concrete(post.codes):
            raise_failure(np.asarray(post.codes))
        return post

    def smooth(
        self,
        ys: Numbers,
        *,
        first: str = "predict",
        inputs: Inputs = None,
        times: Numbers | None = None,
        throw: bool = True,
    ) -> Any:
        """`run_smoother`, which this engine does not have."""
        raise ValueError(
            'run_smoother is not served by engine="generalized": learn the same model with '
            'engine="nodes", whose smoother is of the same state box'
        )

    def forecast(self, post: Any, steps: int, *, inputs: Inputs = None) -> GeneralizedForecast:
        """`forecast`."""
        _no_inputs(inputs)
        num = as_count("steps", steps)
        if not isinstance(post, GeneralizedPosterior):
            raise ValueError(f"post must come from run_filter of this model, got {type(post)}")
        laws, record = _forecast(post.last, self.learned, self.sizes, num)
        mean, covariance = _in_units(self.state_box, record)
        return GeneralizedForecast(self, laws, mean, covariance, record.log_mass, record.loss)

    def init(self) -> GeneralizedState:
        """`init`: the state of an online filter."""
        record = _start(self.prior, self.sizes)
        zero = jnp.zeros((), int)
        return self._state(self.prior, record, jnp.zeros(()), jnp.zeros(()), zero, zero)

    def predict(self, state: GeneralizedState, *, inputs: Inputs = None) -> GeneralizedState:
        """`predict`: one transition."""
        _no_inputs(inputs)
        law, record = _predict(state.law, self.learned, self.sizes)
        log_kept = state.log_kept + record.log_mass
        code = _rough(state.code, record.loss, self.errors)
        return self._state(law, record, log_kept, state.log_likelihood, state.step + 1, code)

    def update(
        self, state: GeneralizedState, y: Numbers, *, inputs: Inputs = None
    ) -> GeneralizedState:
        """`update`: one observation."""
        _no_inputs(inputs)
        seen = jnp.atleast_1d(jnp.asarray(y, dtype=jnp.float64))
        self._check_rows("y", seen)
        law, out = _update(state.law, self.learned, self._unit(seen), self.sizes, self.errors)
        used = state.log_kept + out.record.log_mass
        log_likelihood = state.log_likelihood + jnp.where(out.seen, used, 0.0)
        code = jnp.where(state.code == _results.OK, out.code, state.code)
        return self._state(law, out.record, jnp.zeros(()), log_likelihood, state.step, code)

    def _state(
        self,
        law: SquareSum,
        record: Record,
        log_kept: Array,
        total: Array,
        step: Array,
        code: Array,
    ) -> GeneralizedState:
        mean, covariance = _in_units(self.state_box, record)
        return GeneralizedState(law, self.state_box, mean, covariance, log_kept, total, step, code)

    def _unit(self, ys: Float[Array, "*t p"]) -> Float[Array, "*t p"]:
        """Observations in unit coordinates, whatever they hold."""
        box = self.observation_box
        shape = (1,) * (ys.ndim - 1) + (box.dim,)
        return (ys - box.center.reshape(shape)) / box.half_width.reshape(shape)

    def _check_rows(self, name: str, ys: Float[Array, "*t p"]) -> None:
        expected = self.observation_box.dim
        if ys.shape[-1] != expected:
            raise ValueError(
                f"{name} must have {expected} columns, as observation_box has coordinates, got "
                f"{ys.shape[-1]}"
            )
        if is_concrete(ys):
            gaps = np.isnan(np.asarray(ys))
            if np.any(gaps.any(axis=-1) & ~gaps.all(axis=-1)):
                raise ValueError(
                    f"{name} must be missing as a whole or not at all: rows with single NaN are "
                    'served by learn(..., engine="nodes", observation="joint")'
                )


def _no_inputs(inputs: Inputs) -> None:
    if inputs is not None:
        raise ValueError("inputs must be None: the learned densities do not take any")


def _rough(code: Int[Array, ""], loss: Float[Array, ""], errors: FitErrors) -> Int[Array, ""]:
    """The code of a transition whose loss is beyond the tolerance, unless there is another."""
    return jnp.where((code == _results.OK) & (loss > errors.tol), _results.UNRESOLVED, code)


class _Observed(NamedTuple):
    record: Record
    fit_error: Float[Array, ""]
    seen: Array
    code: Int[Array, ""]


def _observe(
    law: SquareSum,
    learned: LearnedRoots,
    y: Float[Array, " p"],
    sizes: StepSizes,
    errors: FitErrors,
) -> tuple[SquareSum, _Observed]:
    """One observation in unit coordinates; what cannot be used leaves the law alone."""
    missing = jnp.all(jnp.isnan(y))
    usable = jnp.all(jnp.abs(y) <= 1.0)  # False for NaN too
    after, record = update_law(law, learned, jnp.where(usable, y, 0.0), sizes)
    possible = jnp.isfinite(record.log_mass)
    seen = usable & possible
    same = _moments_of(law, sizes)
    law = jax.tree.map(lambda a, b: jnp.where(seen, a, b), after, law)
    kept = jax.tree.map(lambda a, b: jnp.where(seen, a, b), record, same)
    fit_error = errors.of_step(record)
    rough = (record.loss > errors.tol) | (fit_error > _ROUGH * errors.tol)
    unresolved = jnp.where(rough, _results.UNRESOLVED, _results.OK)
    code = jnp.where(possible, unresolved, _results.NO_MASS)
    code = jnp.where(usable, code, _results.BAD_OBSERVATION)
    fit_error = jnp.where(seen, fit_error, 0.0)
    return law, _Observed(kept, fit_error, seen, jnp.where(missing, _results.OK, code))


def _moments_of(law: SquareSum, sizes: StepSizes) -> Record:
    """The record of a law that is left as it is."""
    rule = rule_for(law, sizes, sizes.fine_nodes)
    record = settle(law, rule, law(rule.nodes))[1]
    return record._replace(log_mass=jnp.zeros(()), loss=jnp.zeros(()))


_start = jax.jit(_moments_of, static_argnums=1)
_predict = jax.jit(predict_law, static_argnums=2)
_update = jax.jit(_observe, static_argnums=(3, 4))


@partial(jax.jit, static_argnums=(2, 3))
def _forecast(
    law: SquareSum, learned: LearnedRoots, sizes: StepSizes, num: int
) -> tuple[SquareSum, Record]:
    def step(law: SquareSum, _: None) -> tuple[SquareSum, tuple[SquareSum, Record]]:
        law, record = predict_law(law, learned, sizes)
        return law, (law, record)

    return jax.lax.scan(step, law, None, length=num)[1]


def _move(
    law: SquareSum, learned: LearnedRoots, sizes: StepSizes, hops: Array, single_hop: bool
) -> tuple[SquareSum, Array, Array]:
    """`hops` transitions, the sum of the logs of the mass kept, and of the losses."""

    def once(_: Any, at: tuple[SquareSum, Array, Array]) -> tuple[SquareSum, Array, Array]:
        law, record = predict_law(at[0], learned, sizes)
        return law, at[1] + record.log_mass, at[2] + record.loss

    start = law, jnp.zeros(()), jnp.zeros(())
    if not single_hop:
        return jax.lax.fori_loop(0, hops, once, start)
    return jax.lax.cond(hops > 0, lambda: once(0, start), lambda: start)


@partial(jax.jit, static_argnums=(4, 5, 6, 7))
def _run(
    prior: SquareSum, learned: LearnedRoots, ys: Array, hops: Array,
    sizes: StepSizes, errors: FitErrors, single_hop: bool, keep: bool,
):  # fmt: skip
    def step(law: SquareSum, at: tuple[Array, Array]):
        y, hop = at
        law, log_kept, loss = _move(law, learned, sizes, hop, single_hop)
        law, out = _observe(law, learned, y, sizes, errors)
        out = out._replace(code=_rough(out.code, loss, errors))
        return law, (law if keep else None, out, log_kept, loss + out.record.loss)

    return jax.lax.scan(step, prior, (ys, hops))


def _filter(model: GeneralizedModel, series: BlockSeries, keep: bool) -> GeneralizedPosterior:
    last, (laws, out, log_kept, losses) = _run(
        model.prior, model.learned, model._unit(series.ys), series.hops,
        model.sizes, model.errors, series.single_hop, keep,
    )  # fmt: skip
    mean, covariance = _in_units(model.state_box, out.record)
    return GeneralizedPosterior(
        model=model,
        series=series,
        log_likelihoods=jnp.where(out.seen, log_kept + out.record.log_mass, 0.0),
        mean=mean,
        covariance=covariance,
        codes=out.code,
        seen=out.seen,
        log_kept=log_kept,
        fit_errors=out.fit_error,
        compression_losses=losses,
        last=last,
        laws=laws,
    )


def _in_units(box: Box, record: Record) -> tuple[Float[Array, "*t d"], Float[Array, "*t d d"]]:
    """Mean and covariance in user units."""
    half = box.half_width
    shape = (1,) * (record.mean.ndim - 1)
    mean = box.center.reshape(*shape, -1) + half.reshape(*shape, -1) * record.mean
    outer = half[:, None] * half[None, :]
    return mean, outer.reshape(*shape, *outer.shape) * record.covariance
