"""The learned model of a state of two coordinates: nothing is fitted, every step is controlled."""

from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray

from .... import _results
from ...._statespace.model import (
    Inputs,
    log_observation_grid,
    observation_box,
)
from ...laws import AbstractLaws
from ...model import Settled
from ...numerics.observed import AbstractObservedLaws, GridLaws, observation_grid
from ...numerics.seen import laws_of_y
from ...series import Series
from ...trace import Ahead, Moved, Observation, Seen, Smoothing, Trace, held_to
from .. import hosted
from ..base import AbstractAdaptive, refuse_tracing
from ..drawing import generator
from ..hosted import Step
from ..plan import FINER
from ..walls import TIMES, are_ours, moved_out, widened
from . import answers
from .chain import AbstractLink, Chain, Laws, Link, Row, started
from .density import PlaneDensity
from .known import plane_values
from .law import Law
from .laws import PlaneLaws
from .passes import Kit, Past, go_on
from .smooth import draw_paths, forecast, smoothed
from .values import PlaneValues
from .walls import wider, with_box


class _Pass(NamedTuple):
    """A series that is done: the chain at its start and at its end, and what is kept of rows."""

    start: Chain
    last: Chain
    links: list[AbstractLink]
    rows: list[Row]


class PlaneModel(AbstractAdaptive):
    """Lattices that are chosen anew at every step, where the law is and as close as it asks for.

    Values of Q and G are exact; the error of every step is estimated and held to the tolerance.
    Traced series (under `jit`, `vmap` or `grad`) are filtered on a fixed plan, by the engine
    "nodes".
    """

    @property
    def _values(self) -> PlaneValues:
        return plane_values(self.ssm)

    @property
    def _target(self) -> float:
        return self.plan.tol / self.plan.share

    def start(self) -> Chain:
        """The prior."""
        return started(self._values, self._target)

    def predict(self, law: Chain, step: Int[Array, ""], row: Inputs) -> tuple[Chain, Moved]:
        """One transition."""
        refuse_tracing((law, step, row))
        nothing = Step(int(step), 1, row, np.full(1, np.nan))
        new = self._extended(law, nothing)
        last = new.links[-1]
        code = self.code_of(last.code, last.law)
        moved = Moved(jnp.asarray(last.log_kept), jnp.asarray(last.law.local), jnp.asarray(code))
        return new, moved

    def update(
        self, law: Chain, y: Observation, step: Int[Array, ""], row: Inputs
    ) -> tuple[Chain, Seen]:
        """One observation; the last transition is made again for it, as in a series."""
        refuse_tracing((law, y, step, row))
        self.refuse_gaps(y)
        seen = np.asarray(y, dtype=float)
        last = law.links[-1] if law.links else None
        if last is not None and not last.law.seen and last.step.hops > 0:
            again = law._replace(links=law.links[:-1])
            new = self._extended(again, last.step._replace(y=seen, row=row))
        else:
            new = self._extended(law, Step(int(step), 0, row, seen))
        link = new.links[-1]
        used = bool(np.isfinite(link.log_mass)) and not bool(np.all(np.isnan(seen)))
        return new, Seen(
            jnp.asarray(link.log_mass),
            jnp.asarray(link.law.local),
            jnp.asarray(used),
            jnp.asarray(self.code_of(link.code, link.law)),
        )

    def _extended(self, chain: Chain, step: Step) -> Chain:
        """One more row, as in a series, within walls that hold it if nobody gave any."""
        kit = self._kit
        past = _one_more(kit, chain, step)
        for _ in range(TIMES):
            found = wider(kit.values, (past.chain.law,), self._target)
            if found is None:
                break
            kit = kit._replace(values=with_box(kit.values, found[0]))
            past = _one_more(kit, chain, step)
        last = past.chain.links[-1]
        plain = Link(last.step, last.law, last.log_mass, last.log_kept, last.code)
        return past.chain._replace(links=(*past.chain.links[:-1], plain)).short()

    @property
    def _kit(self) -> Kit:
        return Kit(self._values, self._target, self.plan.tol)

    def code_of(self, code: int, law: Law) -> int:
        """UNRESOLVED if the error of a law exceeds the tolerance."""
        if code == _results.OK and not law.total <= self.plan.tol:
            return _results.UNRESOLVED
        return code

    def moments(self, law: Chain) -> tuple[Float[Array, " d"], Float[Array, "d d"]]:
        """Mean and covariance."""
        mean, covariance = answers.moments(self._values, law.law)
        return jnp.asarray(mean), jnp.asarray(covariance)

    def density(self, law: Chain) -> PlaneDensity:
        """The law as a density."""
        return PlaneDensity(self.ssm, law.law)

    def settle(self, series: Series, keep: bool) -> Settled:
        """The filter of a series, within walls that hold it if nobody gave any."""
        if self.sized(series) is not self or not are_ours(self.ssm):
            return super().settle(series, keep)

        def made(model: PlaneModel) -> tuple[PlaneModel, Trace]:
            return model, model.run(series, True)

        (model, trace), found = moved_out(
            made(self),
            lambda pair: wider(pair[0]._values, pair[1].laws.every_law(), self._target),
            lambda pair, found: made(widened(pair[0], lambda m: m.ssm.state_box, found[0])),
        )
        if found is not None:
            errors = jnp.minimum(trace.errors + 2 * np.max(found[1]), 2.0)
            trace = trace._replace(errors=errors, codes=held_to(trace.codes, errors, self.tol))
        return Settled(model, series, trace if keep else trace._replace(laws=None))

    def run(self, series: Series, keep: bool) -> Trace:
        """The filter of a series; with smaller errors of a step if they add up to more than tol."""
        ys, steps, hops = (np.asarray(a) for a in (series.ys, series.steps, series.hops))
        rows = hosted.Series(np.asarray(ys, dtype=float), steps, hops, series.rows)
        made = self._pass(rows, self._kit, keep, True)
        if made is None:
            finer = self._kit._replace(target=self._target / FINER)
            made = self._pass(rows, finer, keep, False)
        assert made is not None
        start, last, done, found = made
        log_masses, log_kept, errors, codes, mean, covariance = (
            np.stack(part) for part in zip(*found, strict=True)
        )
        seen = np.isfinite(log_masses) & ~np.isnan(ys).all(axis=1) & np.isfinite(ys).any(axis=1)
        missed = (codes == _results.OK) & ~(errors <= self.plan.tol)
        codes = np.where(missed, _results.UNRESOLVED, codes)
        put = jax.device_put  # `jnp.asarray` is compiled for every length
        return Trace(
            log_likelihoods=put(log_masses),
            mean=put(mean),
            covariance=put(covariance),
            codes=put(codes),
            seen=put(seen),
            log_kept=put(log_kept),
            log_normalizers=put(log_kept),
            errors=put(errors),
            last=last.short(),
            laws=Chain(start.start, tuple(done)) if keep else None,
        )

    def _pass(self, rows: hosted.Series, kit: Kit, keep: bool, strict: bool) -> "_Pass | None":
        """All rows, from the prior on; None if `strict` and errors add up to more than tol."""
        past = Past(started(self._values, kit.target))
        start = last = past.chain
        done: list[AbstractLink] = []
        found: list[Row] = []
        while past.at < rows.num:
            past = go_on(kit, rows, past)
            last = past.chain
            if strict and last.links and last.links[-1].law.total > kit.tol:
                return None
            start = last if last.first else start
            short = last.short() if past.at < rows.num else last._replace(links=())
            # Rows that are made again no more.
            final = last.links[: len(last.links) - len(short.links)]
            found += [link.row(self._values) for link in final]
            done += [link.archived() for link in final] if keep else []
            past = past._replace(chain=short)
        return _Pass(start, last, done, found)

    def filtered(self, series: Series, trace: Trace) -> PlaneLaws:
        """p(x_t | y_1 ... y_t)."""
        del series
        return PlaneLaws(self.ssm, Laws(trace.laws.links))

    def predicted(self, series: Series, trace: Trace) -> PlaneLaws:
        """p(x_t | y before t), each on a lattice of its own."""
        chain: Chain = trace.laws
        laws, before = [], chain.start
        for k, link in enumerate(chain.links):
            first = link.step.t - link.step.hops + 1
            times = [(first + i, series.row(k)) for i in range(link.step.hops)]
            laws.append(self._advanced(before, times)[-1] if times else before)
            before = link.law
        return PlaneLaws(self.ssm, laws)

    def smooth(self, series: Series, trace: Trace, lag: int | None, keep: bool) -> Smoothing:
        """On the nodes of the filter."""
        del series, keep
        chain: Chain = trace.laws
        both = smoothed(self._values, chain, lag)
        laws, after = [one.law for one in both], [one.after for one in both]
        mean, covariance = _moments(self._values, laws)
        filtered = Laws(chain.links)
        return Smoothing(
            mean, covariance, PlaneLaws(self.ssm, laws, filtered, after), "backward sums"
        )

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
        laws = self._advanced(last.law, times)
        mean, covariance = _moments(self._values, laws)
        kept = jnp.asarray([law.log_norm for law in laws])
        codes = jnp.asarray([self.code_of(law.code, law) for law in laws])
        return Ahead(mean, covariance, PlaneLaws(self.ssm, laws), kept, codes)

    def _advanced(self, law: Law, times: list[tuple[int, Inputs]]) -> list[Law]:

        def made(values: PlaneValues) -> tuple[PlaneValues, list[Law]]:
            return values, forecast(values, law, times, self._target)

        (_, laws), found = moved_out(
            made(self._values),
            lambda pair: wider(*pair, self._target),
            lambda pair, found: made(with_box(pair[0], found[0])),
        )
        if found is None:
            return laws
        worst = 2 * float(np.max(found[1]))
        return [one._replace(lost=min(one.lost + worst, 2.0)) for one in laws]

    def observed(
        self, laws: AbstractLaws, steps: Int[Array, " t"], rows: Inputs
    ) -> AbstractObservedLaws:
        """By quadrature, over grids that are found or `observation_box`."""
        assert isinstance(laws, PlaneLaws)
        each = [(np.asarray(answers.states(self._values, law)), law.masses) for law in laws.laws]
        if (found := laws_of_y(self.ssm, each, steps, rows)) is not None:
            return found
        box = observation_box(self.ssm, "the law of y")
        nodes, _ = observation_grid(box)
        values = []
        for k, law in enumerate(laws.laws):
            row = jax.tree.map(lambda a, k=k: a[k], rows)
            x = jnp.asarray(answers.states(self._values, law))
            table = log_observation_grid(self.ssm, x, nodes, steps[k], row)
            values.append(jnp.asarray(law.masses) @ jnp.exp(table))
        return GridLaws.of(box, jnp.stack(values))


def _one_more(kit: Kit, chain: Chain, step: Step) -> Past:
    past, rows = Past(chain), hosted.Series.after((), step, True)
    while past.at < 1:
        past = go_on(kit, rows, past)
    return past


def _moments(values: PlaneValues, laws: Sequence[Law]) -> tuple[Array, Array]:
    mean, covariance = zip(*(answers.moments(values, law) for law in laws), strict=True)
    return jnp.asarray(np.stack(mean)), jnp.asarray(np.stack(covariance))
