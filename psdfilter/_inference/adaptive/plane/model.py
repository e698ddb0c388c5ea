"""The learned model of a state of two coordinates: nothing is fitted, every step is controlled."""

from collections.abc import Sequence
from typing import ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray

from .... import _results
from ...._checks import is_traced
from ...._statespace.model import (
    Inputs,
    StateSpaceModel,
    log_observation_grid,
    observation_box,
)
from ...ability import Ability
from ...compiled import remembered
from ...laws import AbstractLaws
from ...model import AbstractModel
from ...nodes.engine import Nodes
from ...nodes.model import NodesModel
from ...observed import GridLaws, observation_grid
from ...report import Report
from ...series import Series
from ...trace import Ahead, Moved, Observation, Seen, Smoothing, Trace
from ..drawing import generator
from ..hosted import Step
from ..model import ABILITIES
from ..model import _refuse_tracing as refuse_tracing
from ..trace import AdaptivePlan
from . import answers
from .chain import Chain, Link, extended, started
from .density import PlaneDensity
from .known import plane_values
from .law import Law
from .laws import PlaneLaws
from .smooth import draw_paths, forecast, smoothed
from .values import PlaneValues


# tol over what one step may spend: a filter forgets most of it in a few steps.
SHARE = 4.0


class Row(NamedTuple):
    """What is told of one row."""

    log_mass: float
    log_kept: float
    error: float
    code: int
    mean: Float[np.ndarray, " 2"]
    covariance: Float[np.ndarray, "2 2"]


class PlaneModel(AbstractModel):
    """Lattices that are chosen anew at every step, where the law is and as close as it asks for.

    Values of Q and G are exact; the error of every step is estimated and held to the tolerance.
    Traced series (under `jit`, `vmap` or `grad`) are filtered on a fixed plan, by the engine
    "nodes".
    """

    engine: ClassVar[str] = "adaptive"
    ssm: StateSpaceModel
    plan: AdaptivePlan = eqx.field(static=True)
    report: Report = eqx.field(static=True)

    @property
    def dim(self) -> int:
        """Two."""
        return self.ssm.dim

    @property
    def num_observed(self) -> int | None:
        """Number of coordinates of an observation, if a box or a sampler tells."""
        return self.ssm.num_observed

    @property
    def abilities(self) -> frozenset[Ability]:
        """Laws of y, and observations with gaps, only where the box of y is known."""
        missing = set()
        if self.ssm.observation_box is None:
            missing.add(Ability.OBSERVED_LAWS)
        if not self.ssm.marginalizes_missing:
            missing.add(Ability.PARTLY_MISSING)
        return ABILITIES - missing

    def why_not(self, ability: Ability) -> str | None:
        """The box of y is what is missing."""
        if ability is Ability.OBSERVED_LAWS:
            return (
                f"{ability} needs observation_box: say where y lives, "
                "StateSpaceModel(..., observation_box=psdfilter.Box(lower, upper))"
            )
        return None

    def fixed(self) -> NodesModel:
        """The model on a fixed plan, learned when it is first asked for."""
        ssm, tol = self.ssm, self.report.tol

        def make() -> NodesModel:
            with jax.ensure_compile_time_eval():
                return Nodes().learn(ssm, tol, reason="series that are traced")

        return remembered(self, NodesModel, make)

    def sized(self, series: Series) -> AbstractModel:
        """Itself; for a traced series the model on a fixed plan."""
        return self.fixed() if is_traced((series.ys, series.steps, series.rows)) else self

    @property
    def _values(self) -> PlaneValues:
        return plane_values(self.ssm)

    @property
    def _target(self) -> float:
        return self.plan.tol / SHARE

    def start(self) -> Chain:
        """The prior."""
        return started(self._values, self._target)

    def predict(self, law: Chain, step: Int[Array, ""], row: Inputs) -> tuple[Chain, Moved]:
        """One transition."""
        refuse_tracing((law, step, row))
        nothing = Step(int(step), 1, row, np.full(1, np.nan))
        new = extended(self._values, law, nothing, self._target).short()
        last = new.links[-1]
        code = self.code_of(last.code, last.law)
        moved = Moved(jnp.asarray(last.log_kept), jnp.asarray(last.law.local), jnp.asarray(code))
        return new, moved

    def update(
        self, law: Chain, y: Observation, step: Int[Array, ""], row: Inputs
    ) -> tuple[Chain, Seen]:
        """One observation; the last transition is made again for it, as in a series."""
        refuse_tracing((law, y, step, row))
        seen = np.asarray(y, dtype=float)
        last = law.links[-1] if law.links else None
        if last is not None and not last.law.seen and last.step.hops > 0:
            again = Chain(law.start, law.links[:-1], law.first)
            new = extended(self._values, again, last.step._replace(y=seen, row=row), self._target)
        else:
            new = extended(self._values, law, Step(int(step), 0, row, seen), self._target)
        link = new.short().links[-1]
        used = bool(np.isfinite(link.log_mass)) and not bool(np.all(np.isnan(seen)))
        return new.short(), Seen(
            jnp.asarray(link.log_mass),
            jnp.asarray(link.law.local),
            jnp.asarray(used),
            jnp.asarray(self.code_of(link.code, link.law)),
        )

    def code_of(self, code: int, law: Law) -> int:
        """UNRESOLVED if the error of a law exceeds the tolerance."""
        if code == _results.OK and not law.error + law.sampling <= self.plan.tol:
            return _results.UNRESOLVED
        return code

    def moments(self, law: Chain) -> tuple[Float[Array, " d"], Float[Array, "d d"]]:
        """Mean and covariance."""
        mean, covariance = answers.moments(self._values, law.law)
        return jnp.asarray(mean), jnp.asarray(covariance)

    def density(self, law: Chain) -> PlaneDensity:
        """The law as a density."""
        return PlaneDensity(self.ssm, law.law)

    def run(self, series: Series, keep: bool) -> Trace:
        """The filter of a series."""
        ys, steps, hops = (np.asarray(a) for a in (series.ys, series.steps, series.hops))
        start = chain = started(self._values, self._target)
        done: list[Link] = []
        rows: list[Row] = []
        for k in range(len(ys)):
            step = Step(int(steps[k]), int(hops[k]), series.row(k), ys[k])
            chain = extended(self._values, chain, step, self._target)
            start = chain if chain.first else start
            short = chain.short() if k + 1 < len(ys) else chain._replace(links=())
            # Rows that are made again no more.
            final = chain.links[: len(chain.links) - len(short.links)]
            rows += [_row(self, link) for link in final]
            done += [link._replace(law=link.law.archived()) for link in final] if keep else []
            last, chain = chain, short
        log_masses, log_kept, errors, codes, mean, covariance = (
            jnp.asarray(np.stack(part)) for part in zip(*rows, strict=True)
        )
        seen = np.isfinite(log_masses) & ~np.isnan(ys).all(axis=1) & np.isfinite(ys).any(axis=1)
        return Trace(
            log_likelihoods=log_masses,
            mean=mean,
            covariance=covariance,
            codes=codes,
            seen=jnp.asarray(seen),
            log_kept=log_kept,
            log_normalizers=log_kept,
            errors=errors,
            last=last.short(),
            laws=Chain(start.start, tuple(done)) if keep else None,
        )

    def filtered(self, series: Series, trace: Trace) -> PlaneLaws:
        """p(x_t | y_1 ... y_t)."""
        del series
        return PlaneLaws(self.ssm, [link.law for link in trace.laws.links])

    def predicted(self, series: Series, trace: Trace) -> PlaneLaws:
        """p(x_t | y before t), each on a lattice of its own."""
        chain: Chain = trace.laws
        laws, before = [], chain.start
        for k, link in enumerate(chain.links):
            first = link.step.t - link.step.hops + 1
            times = [(first + i, series.row(k)) for i in range(link.step.hops)]
            laws.append(forecast(self._values, before, times, self._target)[-1] if times else before)
            before = link.law
        return PlaneLaws(self.ssm, laws)

    def smooth(self, series: Series, trace: Trace, lag: int | None, keep: bool) -> Smoothing:
        """On the nodes of the filter."""
        del series, keep
        chain: Chain = trace.laws
        both = smoothed(self._values, chain, lag)
        laws, after = [one.law for one in both], [one.after for one in both]
        mean, covariance = _moments(self._values, laws)
        filtered = [link.law for link in chain.links]
        return Smoothing(
            mean, covariance, PlaneLaws(self.ssm, laws, filtered, after), "backward sums"
        )

    def pair_law(self, series: Series, trace: Trace, laws: AbstractLaws, t: int) -> Array:
        """On a fixed plan."""
        del trace, laws
        fixed = self.fixed()
        trace = fixed.run(series, True)
        again = fixed.smooth(series, trace, None, True).laws
        return fixed.pair_law(series, trace, again, t)

    def paths(
        self, series: Series, trace: Trace, key: PRNGKeyArray, num: int
    ) -> Float[Array, "n t d"]:
        """Drawn backwards on the nodes of the filter."""
        del series
        drawn = draw_paths(self._values, trace.laws, generator(key), num)
        return jnp.asarray(self._values.space.x_of(drawn.reshape(-1, 2)).reshape(drawn.shape))

    def ahead(self, last: Chain, steps: Int[Array, " k"], rows: Inputs) -> Ahead:
        """Transitions one after the other."""
        at = [int(t) for t in np.asarray(steps)]
        times = [(t, jax.tree.map(lambda a, i=i: a[i], rows)) for i, t in enumerate(at)]
        laws = forecast(self._values, last.law, times, self._target)
        mean, covariance = _moments(self._values, laws)
        kept = jnp.asarray([law.log_norm for law in laws])
        codes = jnp.asarray([self.code_of(law.code, law) for law in laws])
        return Ahead(mean, covariance, PlaneLaws(self.ssm, laws), kept, codes)

    def observed(self, laws: AbstractLaws, steps: Int[Array, " t"], rows: Inputs) -> GridLaws:
        """By quadrature over `observation_box`."""
        assert isinstance(laws, PlaneLaws)
        box = observation_box(self.ssm, "the law of y")
        nodes, _ = observation_grid(box)
        values = []
        for k, law in enumerate(laws.laws):
            row = jax.tree.map(lambda a, k=k: a[k], rows)
            x = jnp.asarray(answers.states(self._values, law))
            table = log_observation_grid(self.ssm, x, nodes, steps[k], row)
            values.append(jnp.asarray(law.masses) @ jnp.exp(table))
        return GridLaws.of(box, jnp.stack(values))

    def transforms(self, series: Series, trace: Trace) -> Float[Array, " t"]:
        """By the distribution functions of the laws of y."""
        if series.ys.shape[1] != 1:
            raise ValueError(
                f"the probability transform needs a scalar y, got {series.ys.shape[1]} coordinates"
            )
        laws = self.observed(self.predicted(series, trace), series.steps, series.rows)
        ys = jnp.asarray(series.ys)
        levels = laws.cdfs(jnp.where(jnp.isnan(ys), laws.mean, ys))[:, 0]
        return jnp.where(jnp.isnan(ys[:, 0]), jnp.nan, levels)


def _moments(values: PlaneValues, laws: Sequence[Law]) -> tuple[Array, Array]:
    mean, covariance = zip(*(answers.moments(values, law) for law in laws), strict=True)
    return jnp.asarray(np.stack(mean)), jnp.asarray(np.stack(covariance))


def _row(model: PlaneModel, link: Link) -> Row:
    mean, covariance = answers.moments(plane_values(model.ssm), link.law)
    error = link.law.error + link.law.sampling
    code = model.code_of(link.code, link.law)
    return Row(link.log_mass, link.log_kept, error, code, mean, covariance)
