"""The learned model whose Q is the square of a few Gaussians with free shapes."""

from typing import ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray

from ..._density.box import Box
from ..._density.generalized import GeneralizedGaussianPSD
from ..._statespace.model import Inputs
from ..ability import Ability
from ..laws import AbstractLaws
from ..model import AbstractModel
from ..numerics.observed import GridLaws
from ..report import Report
from ..series import Series
from ..trace import Ahead, Observation, Seen, Smoothing, Trace
from ..trace import Moved as StepMoved
from .compress import SquareSum
from .laws import FreeLaws, as_density
from .observation import AbstractObservation
from .run import (
    Filter,
    FitErrors,
    advance_once,
    advance_steps,
    moments_of,
    move_all,
    observe_once,
    run_series,
    worse,
)
from .seen import observation_laws, transforms
from .smooth import draw_paths, smooth_laws, without_jumps
from .step import LearnedTransition, Record, StepSizes

ABILITIES = frozenset({Ability.SMOOTHER, Ability.OBSERVED_LAWS, Ability.ERRORS})


class FreeLaw(NamedTuple):
    """A law in unit coordinates, and the mass kept by transitions since the last observation."""

    law: SquareSum
    log_kept: Float[Array, ""]


class FreeModel(AbstractModel):
    """Q^ = g_Q^2, a sum of Gaussians with free shapes squared, on the state box.

    With a joint observation G^ is learned too, and the functions of the StateSpaceModel are not
    needed any more.
    """

    engine: ClassVar[str] = "free"
    learned: LearnedTransition
    sensor: AbstractObservation
    start_law: SquareSum
    state_box: Box
    seen_dim: int | None = eqx.field(static=True)
    sizes: StepSizes = eqx.field(static=True)
    fit_errors: FitErrors = eqx.field(static=True)
    report: Report = eqx.field(static=True)

    @property
    def dim(self) -> int:
        """Number of coordinates of the state."""
        return self.state_box.dim

    @property
    def num_observed(self) -> int | None:
        """Number of coordinates of an observation, if a box or a sampler tells."""
        return self.seen_dim

    @property
    def abilities(self) -> frozenset[Ability]:
        """Laws of y only where their box is known."""
        known = self.sensor.box is not None
        return ABILITIES if known else ABILITIES - {Ability.OBSERVED_LAWS}

    def why_not(self, ability: Ability) -> str | None:
        """The learned densities take nothing but states and whole observations."""
        if ability is Ability.INPUTS:
            return "inputs must be None: the learned densities do not take any"
        if ability is Ability.OBSERVED_LAWS:
            return (
                "the law of y needs observation_box: say where y lives, "
                "StateSpaceModel(..., observation_box=psdfilter.Box(lower, upper))"
            )
        return None

    @property
    def prior(self) -> GeneralizedGaussianPSD:
        """The law of x_0 on the box."""
        return as_density(self.start_law, self.state_box)

    def start(self) -> FreeLaw:
        """The prior."""
        return FreeLaw(self.start_law, jnp.zeros(()))

    def predict(self, law: FreeLaw, step: Int[Array, ""], row: Inputs) -> tuple[FreeLaw, StepMoved]:
        """One transition."""
        del step, row
        new, record, code = advance_once(law.law, self.learned, self.sizes, self.fit_errors)
        moved = StepMoved(record.log_mass, record.loss, code)
        return FreeLaw(new, law.log_kept + record.log_mass), moved

    def update(
        self, law: FreeLaw, y: Observation, step: Int[Array, ""], row: Inputs
    ) -> tuple[FreeLaw, Seen]:
        """One observation."""
        del step, row
        new, out = observe_once(law.law, self.sensor, jnp.asarray(y), self.sizes, self.fit_errors)
        error = out.fit_error + out.record.loss
        seen = Seen(out.log_likelihood(law.log_kept), error, out.seen, out.code)
        return FreeLaw(new, jnp.zeros(())), seen

    def moments(self, law: FreeLaw) -> tuple[Float[Array, " d"], Float[Array, "d d"]]:
        """Mean and covariance."""
        return _in_units(self.state_box, moments_of(law.law, self.sizes))

    def density(self, law: FreeLaw) -> GeneralizedGaussianPSD:
        """The law, of mass one on the box."""
        return as_density(law.law, self.state_box)

    def run(self, series: Series, keep: bool) -> Trace:
        """The filter of a series."""
        last, (laws, out, moved) = run_series(
            self.start_law, Filter(self.learned, self.sensor), series, self.sizes,
            self.fit_errors, keep,
        )  # fmt: skip
        mean, covariance = _in_units(self.state_box, out.record)
        return Trace(
            log_likelihoods=out.log_likelihood(moved.log_kept),
            mean=mean,
            covariance=covariance,
            codes=worse(moved.code, out.code),
            seen=out.seen,
            log_kept=moved.log_kept,
            log_normalizers=moved.log_kept,
            errors=out.fit_error + moved.loss + out.record.loss,
            last=FreeLaw(last, jnp.zeros(())),
            laws=laws,
        )

    def _laws(self, laws: SquareSum) -> FreeLaws:
        return FreeLaws(laws, self.state_box, self.sizes)

    def filtered(self, series: Series, trace: Trace) -> FreeLaws:
        """p(x_t | y_1 ... y_t)."""
        del series
        return self._laws(trace.laws)

    def predicted(self, series: Series, trace: Trace) -> FreeLaws:
        """p(x_t | y before t)."""
        before = jax.tree.map(
            lambda first, rest: jnp.concatenate([first[None], rest[:-1]]),
            self.start_law,
            trace.laws,
        )
        moved = move_all(
            before, self.learned, series.hops, self.sizes, self.fit_errors, series.regular
        )
        return self._laws(moved)

    def _every_step(self, series: Series, trace: Trace) -> tuple[Series, Trace, np.ndarray]:
        """The filter with a row for every time, and where the rows of the data are among these."""
        if series.regular:
            return series, trace, np.arange(series.num)
        whole, rows = without_jumps(series)
        return whole, self.run(whole, True), rows

    def smooth(self, series: Series, trace: Trace, lag: int | None, keep: bool) -> Smoothing:
        """A filtered law times what the observations after it say."""
        del lag, keep
        whole, steps, rows = self._every_step(series, trace)
        laws, record = smooth_laws(
            steps.laws, self.learned, self.sensor, jnp.asarray(whole.ys), steps.seen,
            whole.hops, self.sizes,
        )  # fmt: skip
        laws, record = jax.tree.map(lambda a: a[jnp.asarray(rows)], (laws, record))
        return Smoothing(*_in_units(self.state_box, record), self._laws(laws), "two-filter")

    def paths(
        self, series: Series, trace: Trace, key: PRNGKeyArray, num: int
    ) -> Float[Array, "n t d"]:
        """Drawn backwards through filtered laws that are at most a transition apart."""
        whole, steps, rows = self._every_step(series, trace)
        drawn = draw_paths(steps.laws, self.learned, whole.hops, key, num, self.sizes)
        return jnp.moveaxis(self.state_box.from_unit(drawn), 0, 1)[:, jnp.asarray(rows)]

    def ahead(self, last: FreeLaw, steps: Int[Array, " k"], rows: Inputs) -> Ahead:
        """Renormalised on the box at each step."""
        del rows
        laws, record, codes = advance_steps(
            last.law, self.learned, self.sizes, self.fit_errors, steps.shape[0]
        )
        mean, covariance = _in_units(self.state_box, record)
        return Ahead(mean, covariance, self._laws(laws), record.log_mass, codes)

    def observed(self, laws: AbstractLaws, steps: Int[Array, " t"], rows: Inputs) -> GridLaws:
        """By quadrature over `observation_box`."""
        del steps, rows
        assert isinstance(laws, FreeLaws)
        return observation_laws(self.sensor, laws.laws, self.sizes)

    def transforms(self, series: Series, trace: Trace) -> Float[Array, " t"]:
        """By quadrature."""
        laws = self.predicted(series, trace).laws
        return transforms(self.sensor, laws, jnp.asarray(series.ys), self.sizes)


def _in_units(box: Box, record: Record) -> tuple[Float[Array, "*t d"], Float[Array, "*t d d"]]:
    """Mean and covariance in user units."""
    half = box.half_width
    shape = (1,) * (record.mean.ndim - 1)
    mean = box.center.reshape(*shape, -1) + half.reshape(*shape, -1) * record.mean
    outer = half[:, None] * half[None, :]
    return mean, outer.reshape(*shape, *outer.shape) * record.covariance
