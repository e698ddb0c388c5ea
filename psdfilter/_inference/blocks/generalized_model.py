"""The filter of a model whose Q was learned with free shapes: whole series, and online."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray

from ..._checks import Numbers, as_count, is_concrete
from ..._density.box import Box
from ..._density.generalized import GeneralizedGaussianPSD
from ..._statespace.model import Inputs
from .generalized_compress import SquareSum
from .generalized_observation import AbstractObservation
from .generalized_posterior import (
    GeneralizedForecast,
    GeneralizedPosterior,
    GeneralizedSmoother,
    as_density,
)
from .generalized_run import (
    FitErrors,
    advance_once,
    advance_steps,
    moments_of,
    move_all,
    observe_once,
    run_series,
    worse,
)
from .generalized_smooth import draw_paths, smooth_laws, without_jumps
from .generalized_step import LearnedTransition, Record, StepSizes
from .model import AbstractBlocksModel
from .report import BlocksReport
from .run import raise_failure
from .series import BlockSeries, as_block_series


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


class GeneralizedModel(AbstractBlocksModel):
    """Q^ = g_Q^2, a sum of Gaussians with free shapes squared, on the state box.

    What `learn(..., engine="generalized")` returns, and every inference function takes. With
    `observation="joint"` G^ is learned too, and no functions of the StateSpaceModel are needed any
    more.
    """

    learned: LearnedTransition
    observation: AbstractObservation
    prior: SquareSum
    state_box: Box
    num_observed: int | None = eqx.field(static=True)
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
    ) -> GeneralizedSmoother:
        """`run_smoother`."""
        filtered = self.run(ys, first=first, inputs=inputs, times=times, throw=throw)
        steps, rows = filtered, np.arange(filtered.mean.shape[0])
        if not filtered.series.single_hop:
            series, rows = without_jumps(filtered.series)
            steps = _filter(self, series, True)
        laws, record = smooth_laws(
            steps.laws, self.learned, self.observation, steps.series.ys, steps.seen,
            steps.series.hops, self.sizes,
        )  # fmt: skip
        index = jnp.asarray(rows)
        laws, record = jax.tree.map(lambda a: a[index], (laws, record))
        mean, covariance = _in_units(self.state_box, record)
        return GeneralizedSmoother(
            model=self,
            filtered=filtered,
            steps=steps,
            rows=index,
            laws=laws,
            mean=mean,
            covariance=covariance,
            compression_losses=record.loss,
        )

    def ahead(self, before: SquareSum, series: BlockSeries) -> SquareSum:
        """Stacked laws, each after the transitions before its row."""
        return move_all(
            before, self.learned, series.hops, self.sizes, self.errors, series.single_hop
        )

    def sample_paths(
        self, post: GeneralizedPosterior, key: PRNGKeyArray, num: int
    ) -> Float[Array, "k t d"]:
        """Paths drawn backwards through filtered laws that are at most a transition apart."""
        drawn = draw_paths(post._laws(), self.learned, post.series.hops, key, num, self.sizes)
        return jnp.moveaxis(self.state_box.from_unit(drawn), 0, 1)

    def forecast(self, post: Any, steps: int, *, inputs: Inputs = None) -> GeneralizedForecast:
        """`forecast`."""
        _no_inputs(inputs)
        num = as_count("steps", steps)
        if not isinstance(post, GeneralizedPosterior):
            raise ValueError(f"post must come from run_filter of this model, got {type(post)}")
        laws, record, codes = advance_steps(post.last, self.learned, self.sizes, self.errors, num)
        mean, covariance = _in_units(self.state_box, record)
        return GeneralizedForecast(
            self, laws, mean, covariance, record.log_mass, record.loss, codes
        )

    def init(self) -> GeneralizedState:
        """`init`: the state of an online filter."""
        record = moments_of(self.prior, self.sizes)
        zero = jnp.zeros((), int)
        return self._state(self.prior, record, jnp.zeros(()), jnp.zeros(()), zero, zero)

    def predict(self, state: GeneralizedState, *, inputs: Inputs = None) -> GeneralizedState:
        """`predict`: one transition."""
        _no_inputs(inputs)
        law, record, code = advance_once(state.law, self.learned, self.sizes, self.errors)
        log_kept, code = state.log_kept + record.log_mass, worse(state.code, code)
        return self._state(law, record, log_kept, state.log_likelihood, state.step + 1, code)

    def update(
        self, state: GeneralizedState, y: Numbers, *, inputs: Inputs = None
    ) -> GeneralizedState:
        """`update`: one observation."""
        _no_inputs(inputs)
        seen = jnp.atleast_1d(jnp.asarray(y, dtype=jnp.float64))
        self._check_rows("y", seen)
        law, out = observe_once(state.law, self.observation, seen, self.sizes, self.errors)
        log_likelihood = state.log_likelihood + out.log_likelihood(state.log_kept)
        code = worse(state.code, out.code)
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

    def _check_rows(self, name: str, ys: Float[Array, "*t p"]) -> None:
        expected = self.num_observed
        if expected is not None and ys.shape[-1] != expected:
            raise ValueError(
                f"{name} must have {expected} columns, as the observations of the model have, got "
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


def _filter(model: GeneralizedModel, series: BlockSeries, keep: bool) -> GeneralizedPosterior:
    last, (laws, out, moved) = run_series(
        model.prior, model.learned, model.observation, series.ys, series.hops,
        model.sizes, model.errors, series.single_hop, keep,
    )  # fmt: skip
    mean, covariance = _in_units(model.state_box, out.record)
    return GeneralizedPosterior(
        model=model,
        series=series,
        log_likelihoods=out.log_likelihood(moved.log_kept),
        mean=mean,
        covariance=covariance,
        codes=worse(moved.code, out.code),
        seen=out.seen,
        log_kept=moved.log_kept,
        fit_errors=out.fit_error,
        compression_losses=moved.loss + out.record.loss,
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
