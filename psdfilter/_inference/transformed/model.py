"""A model of any engine, learned in other coordinates or with rows of its own, in user units."""

from dataclasses import replace
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray, PyTree

from ..._checks import is_traced
from ..._density.psd import AbstractDensity
from ..._statespace.coordinates import Coordinates
from ..._statespace.functions import Row
from ..._statespace.model import Inputs, StateSpaceModel
from ..ability import Ability, NoDensity
from ..laws import AbstractLaws
from ..model import AbstractFrozen, AbstractModel, Settled
from ..report import Report
from ..series import Asked, Series, asked_by, sub_steps
from ..trace import Ahead, Law, Moments, Moved, Observation, Seen, Smoothing, Trace
from .finer import refine
from .laws import TransformedDensity, TransformedLaws, moments_of, moments_of_density
from .picked import PickedLaws, PickedSeen
from .simulated import DrawnStates, observed_by_draws, simulated_ahead


class TransformedModel(AbstractModel):
    """x = b(z): filtered in z by `inner`, reported in x.

    Attributes:
        inner: the learned model of z.
        ssm: the model as the user wrote it.
    """

    inner: AbstractModel
    ssm: StateSpaceModel
    report: Report = eqx.field(static=True)

    @property
    def coordinates(self) -> Coordinates:
        """b, the identity if only what rows hold (dt, last_y, y) is at stake."""
        return self.ssm.coordinates

    @property
    def engine(self) -> str:  # pyright: ignore[reportIncompatibleVariableOverride]
        """That of the inner model."""
        return self.inner.engine

    @property
    def source(self) -> StateSpaceModel:
        """What it was learned from."""
        return self.ssm

    @property
    def dim(self) -> int:
        """Number of coordinates of the state."""
        return self.inner.dim

    @property
    def num_observed(self) -> int | None:
        """Number of coordinates of an observation."""
        return self.inner.num_observed

    @property
    def abilities(self) -> frozenset[Ability]:
        """Those of the inner model; laws of neighbours are in its coordinates only."""
        return self.inner.abilities - {Ability.PAIRS} if self._bends else self.inner.abilities

    @property
    def asked(self) -> Asked:
        """What the user's functions ask for."""
        return asked_by(self.ssm)

    @property
    def _bends(self) -> bool:
        return not self.coordinates.is_identity

    def why_not(self, ability: Ability) -> str | None:
        """As the inner model says."""
        return self.inner.why_not(ability)

    def core(self, trace: Trace) -> tuple[AbstractModel, Trace]:
        """The inner model and its trace."""
        return self.inner.core(trace if trace.laws is None else trace.laws)

    def _density(self, name: str) -> AbstractDensity:
        if self._bends:
            raise NoDensity(self.engine, name)
        return getattr(self.inner, name)

    @property
    def prior(self) -> AbstractDensity:
        """That of the inner model, if it is in user units."""
        return self._density("prior")

    @property
    def transition(self) -> AbstractDensity:
        """That of the inner model, if it is in user units."""
        return self._density("transition")

    @property
    def observation(self) -> AbstractDensity:
        """That of the inner model, if it is in user units."""
        return self._density("observation")

    def _with(self, inner: AbstractModel) -> "TransformedModel":
        return TransformedModel(inner=inner, ssm=self.ssm, report=inner.report)

    def sized(self, series: Series) -> "TransformedModel":
        """The inner model for these data."""
        inner = self.inner.sized(series)
        return self if inner is self.inner else self._with(inner)

    def start(self) -> Law:
        """The law before anything has been seen."""
        return self.inner.start()

    def predict(self, law: Law, step: Int[Array, ""], row: Inputs) -> tuple[Law, Moved]:
        """One transition."""
        return self.inner.predict(law, step, row)

    def update(
        self, law: Law, y: Observation, step: Int[Array, ""], row: Inputs
    ) -> tuple[Law, Seen]:
        """One observation."""
        return self.inner.update(law, y, step, row)

    def moments(self, law: Law) -> tuple[Float[Array, " d"], Float[Array, "d d"]]:
        """Mean and covariance of x."""
        inner = self.inner.moments(law)
        if not self._bends:
            return inner
        return moments_of_density(self.inner.density(law), inner, self.coordinates)

    def density(self, law: Law) -> AbstractDensity:
        """The law as a density of x."""
        inner = self.inner.density(law)
        return TransformedDensity(inner, self.coordinates) if self._bends else inner

    def _laws(self, inner: AbstractLaws) -> AbstractLaws:
        return TransformedLaws(inner, self.coordinates) if self._bends else inner

    def _moments(self, laws: AbstractLaws, mean: Array) -> Moments:
        return moments_of(laws, self.coordinates, self.coordinates.to_user(jnp.mean(mean, axis=0)))

    def run(self, series: Series, keep: bool) -> Trace:
        """The filter; its trace is kept in the place of laws."""
        return self._reported(series, self.inner.run(series, keep or self._bends), keep)

    def _reported(self, series: Series, trace: Trace, keep: bool) -> Trace:
        mean, covariance = trace.mean, trace.covariance
        if self._bends:
            mean, covariance = self._moments(self.inner.filtered(series, trace), trace.mean)
        return trace._replace(mean=mean, covariance=covariance, laws=trace if keep else None)

    def settle(self, series: Series, keep: bool) -> Settled:
        """The filter; on shorter transitions, where those are composed and still change it."""
        if self.ssm.step is None or is_traced((series.ys, series.rows)):
            ran = self.inner.settle(series, keep or self._bends)
            model = self if ran.model is self.inner else self._with(ran.model)
            return Settled(model, series, model._reported(series, ran.trace, keep))

        done = refine(self.inner, series, self.tol)
        ssm = replace(self.ssm, step=self.ssm.step / done.parts)
        model = TransformedModel(inner=done.model, ssm=ssm, report=done.model.report)
        return Settled(model, done.series, model._reported(done.series, done.trace, keep))

    def filtered(self, series: Series, trace: Trace) -> AbstractLaws:
        """p(x_t | y_1 ... y_t)."""
        return self._laws(self.inner.filtered(series, trace.laws))

    def predicted(self, series: Series, trace: Trace) -> AbstractLaws:
        """p(x_t | y before t)."""
        return self._laws(self.inner.predicted(series, trace.laws))

    def smooth(self, series: Series, trace: Trace, lag: int | None, keep: bool) -> Smoothing:
        """p(x_t | y_1 ... y_T)."""
        out = self.inner.smooth(series, trace.laws or trace, lag, keep or self._bends)
        if not self._bends:
            return out
        mean, covariance = self._moments(out.laws, out.mean)
        laws = self._laws(out.laws) if keep else None
        return Smoothing(mean, covariance, laws, out.method, out.errors)

    def paths(
        self, series: Series, trace: Trace, key: PRNGKeyArray, num: int
    ) -> Float[Array, "n t d"]:
        """Paths of x."""
        return self.coordinates.to_user(self.inner.paths(series, trace.laws, key, num))

    def ahead(self, last: Law, steps: Int[Array, " k"], rows: Inputs) -> Ahead:
        """The laws of x to come; by simulation where they depend on y that nobody has seen."""
        if "last_y" in self.asked.names and steps.shape[0] > 1:
            one = self.ahead(last, steps[:1], jax.tree.map(lambda a: a[:1], rows))
            return simulated_ahead(self.ssm, one, steps, rows)
        out = self._composed(last, steps, rows)
        if not self._bends:
            return out
        mean, covariance = self._moments(out.laws, out.mean)
        return out._replace(mean=mean, covariance=covariance, laws=self._laws(out.laws))

    def _composed(self, last: Law, steps: Int[Array, " k"], rows: Inputs) -> Ahead:
        """Each step as the transitions that it is made of."""
        step = self.ssm.step
        if step is None:
            return self.inner.ahead(last, steps, rows)
        assert isinstance(rows, Row)
        assert rows.dt is not None
        parts = sub_steps(jnp.asarray(rows.dt), step)
        rows = rows._replace(dt=jnp.asarray(rows.dt) / parts.astype(float))
        own = np.repeat(np.arange(len(parts)), parts)
        times = steps[0] + jnp.arange(len(own))
        out = self.inner.ahead(last, times, jax.tree.map(lambda a: jnp.asarray(a)[own], rows))
        ends = tuple(int(k) for k in np.cumsum(parts) - 1)
        lost = np.add.reduceat(np.asarray(out.log_kept), np.r_[0, np.cumsum(parts)[:-1]])
        at = np.array(ends)
        laws = PickedLaws(out.laws, ends)
        return Ahead(out.mean[at], out.covariance[at], laws, jnp.asarray(lost), out.codes[at])

    def pair_law(self, series: Series, trace: Trace, laws: AbstractLaws, t: int) -> Array:
        """That of the inner model, where it is in user units."""
        return self.inner.pair_law(series, trace.laws, laws, t)

    def observed(self, laws: AbstractLaws, steps: Int[Array, " t"], rows: Inputs) -> Any:
        """The laws of y."""
        if isinstance(laws, DrawnStates):
            return observed_by_draws(laws, jax.random.key(1))
        inner = laws.inner if isinstance(laws, TransformedLaws) else laws
        if not isinstance(inner, PickedLaws):
            return self.inner.observed(inner, steps, rows)
        own = np.searchsorted(inner.ends, np.arange(inner.ends[-1] + 1))
        every = jax.tree.map(lambda a: jnp.asarray(a)[own], rows)
        return PickedSeen.of(self.inner.observed(inner.inner, steps[own], every), inner.ends)

    def transforms(self, series: Series, trace: Trace) -> Float[Array, "t *p"]:
        """P(Y_t <= y_t | y before t)."""
        return self.inner.transforms(series, trace.laws)

    def observation_density(self, series: Series, trace: Trace, t: int) -> AbstractDensity:
        """p(y_t | y before t)."""
        return self.inner.observation_density(series, trace.laws, t)

    def frozen(self) -> AbstractFrozen:
        """That of the inner model."""
        return self.inner.frozen()

    def refilled(self, frozen: AbstractFrozen, ssm: StateSpaceModel) -> "TransformedModel":
        """The inner model refilled, for a model in its coordinates."""
        return self._with(self.inner.refilled(frozen, ssm))

    def resized(
        self, facts: PyTree, series: Series, which: int, inputs: Inputs
    ) -> "TransformedModel":
        """The inner model resized."""
        return self._with(self.inner.resized(facts, series, which, inputs))


def in_user_units(inner: AbstractModel, ssm: StateSpaceModel) -> AbstractModel:
    """A learned model as users hold it: wrapped, if there is anything to translate."""
    if ssm.coordinates.is_identity and not ssm.wants & {"dt", "last_y", "u"}:
        return inner
    return TransformedModel(inner=inner, ssm=ssm, report=inner.report)
