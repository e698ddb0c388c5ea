"""The learned model of the lattice engine: nothing is fitted, every law has its own window."""

from typing import ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray

from ... import _results
from ..._checks import is_concrete, is_traced, looked_at
from ..._statespace.functions import Row
from ..._statespace.model import Inputs, StateSpaceModel
from ..ability import Ability
from ..gaussian.bank import Layout
from ..gaussian.laws import BankLaws
from ..gaussian.observed import probability_transforms
from ..laws import NO_REGIMES, AbstractLaws
from ..lengths import cut_rows
from ..model import AbstractFrozen, AbstractModel
from ..numerics.compiled import call_compiled, remembered
from ..numerics.observed import AbstractObservedLaws
from ..report import Report
from ..series import Series
from ..trace import Ahead, Moved, Observation, Seen, Smoothing, Trace
from .density import LatticeDensity
from .frozen import FrozenLattice
from .laws import LatticeLaws
from .observed import drawn_laws, gaussian_laws, grid_laws, sensors_of
from .plan import MOST, Plan, next_plan, num_of
from .run import (
    Kept,
    Law,
    Rows,
    moved,
    refuse_no_pair,
    scan_ahead,
    scan_rows,
    start_law,
    summary,
)
from .series import expanded, roomy, sensors_at_once
from .smooth import draw_back, go_back, last_of_times
from .space import Space
from .step import Lattice, Level, Sensed, Settled, settle
from .values import parts_of, takes_u, unseen

ABILITIES = frozenset(
    {
        Ability.INPUTS,
        Ability.PARTLY_MISSING,
        Ability.SMOOTHER,
        Ability.OBSERVED_LAWS,
        Ability.ERRORS,
        Ability.GRADIENTS,
    }
)
# Closer looks at a series, at most.
_LOOKS = 8
# Rows of a series up to which its laws are kept while it is looked at.
_REMEMBERED = 4096


class Ran(NamedTuple):
    """What `sized` has found on the way, so that `run` need not do it again."""

    series: Series
    last: Law
    kept: Kept


class LatticeModel(AbstractModel):
    """Laws of regime and state on windows of their own, in exact values of Q and G."""

    engine: ClassVar[str] = "lattice"
    ssm: StateSpaceModel
    space: Space
    plan: Plan = eqx.field(static=True)
    report: Report = eqx.field(static=True)

    @property
    def source(self) -> StateSpaceModel:
        """What it was learned from."""
        return self.ssm

    @property
    def dim(self) -> int:
        """Number of coordinates of the state."""
        return self.ssm.dim

    @property
    def num_observed(self) -> int | None:
        """Number of coordinates of an observation, if a regime tells."""
        return next((n for n in (m.num_observed for m in parts_of(self.ssm)) if n), None)

    @property
    def abilities(self) -> frozenset[Ability]:
        """Laws of y and gaps in y only where the sensor tells."""
        missing = set()
        if takes_u(self.ssm):
            samplers = self.ssm.sample_transition, self.ssm.sample_observation
            known = all(sampler is not None for sampler in samplers)
        else:
            known = self.ssm.observation_box is not None or sensors_of(self.ssm) is not None
        if not known:
            missing.add(Ability.OBSERVED_LAWS)
        if not self.ssm.marginalizes_missing:
            missing.add(Ability.PARTLY_MISSING)
        return ABILITIES - missing

    def why_not(self, ability: Ability) -> str | None:
        """What is not known of the sensor."""
        if ability is Ability.OBSERVED_LAWS and takes_u(self.ssm):
            return (
                f"{ability} needs sample_transition and sample_observation=lambda key, x, u: ...: "
                "the sensor takes u, the state before, and pairs of states are simulated"
            )
        if ability is Ability.OBSERVED_LAWS:
            return (
                f"{ability} needs observation_box: say where y lives, in the model of each regime"
            )
        if ability is Ability.PARTLY_MISSING:
            return (
                f"{ability} needs a log_observation that leaves NaN out, and "
                "marginalizes_missing=True to say so"
            )
        return None

    def level(self) -> Level:
        """To begin with."""
        return Level(self.plan.num, self.plan.eps)

    def start(self) -> Law:
        """The prior."""
        return call_compiled(_start, self)

    def predict(self, law: Law, step: Int[Array, ""], row: Inputs) -> tuple[Law, Moved]:
        """One transition."""
        before = moved(law, jnp.asarray(step), row)
        width = law.seen.ys.shape[1]
        new, out = self._settled(law, before, Sensed(jnp.zeros((0, width)), None))
        kept = jnp.where("walls" in self.space.kinds, out.log_norm, 0.0)
        new = new._replace(log_kept=kept)
        return new, Moved(kept, out.error - law.error, self._code(out))

    def update(
        self, law: Law, y: Observation, step: Int[Array, ""], row: Inputs
    ) -> tuple[Law, Seen]:
        """One observation."""
        del step
        value = jnp.asarray(y, dtype=jnp.float64)
        infinite = jnp.any(jnp.isinf(value))
        value = jnp.where(infinite, jnp.nan, value)
        before = law.before
        if takes_u(self.ssm):
            refuse_no_pair(law)
            assert isinstance(row, Row)
            before, row = before._replace(row=unseen(row, infinite)), unseen(row)
        old = law.seen.ys if law.seen.ys.shape[0] else jnp.zeros((0, value.size))
        earlier = (
            law.seen.rows if law.seen.ys.shape[0] else jax.tree.map(lambda a: a[None][:0], row)
        )
        rows = jax.tree.map(lambda a, b: jnp.concatenate([a, jnp.asarray(b)[None]]), earlier, row)
        seen = Sensed(jnp.concatenate([old, value[None]]), rows)
        new, out = self._settled(law, before, seen)
        missing = jnp.all(jnp.isnan(value))
        bad = ~jnp.isfinite(out.log_norm)
        if takes_u(self.ssm):
            bad = bad | before.is_prior  # nobody could tell while it was traced
        # After a transition a row counts with what has left the walls, as in a series.
        base = jnp.where(
            old.shape[0] == 0, jnp.where(law.before.is_prior, law.log_norm, 0.0), law.log_norm
        )
        log_mass = jnp.where(missing, 0.0, out.log_norm - base)
        log_mass = jnp.where(bad | infinite, -jnp.inf, log_mass)
        if is_concrete(bad) and bool(bad):
            new = law
        code = jnp.where(infinite, _results.BAD_OBSERVATION, self._code(out))
        used = ~(missing | bad | infinite)
        return new, Seen(log_mass, out.error - law.error, used, code)

    def _settled(self, law: Law, before, seen: Sensed) -> tuple[Law, Settled]:
        """With more nodes where the first do not resolve it, as far as that can be seen."""
        old = num_of(self.space, before.lattice.log_masses.shape[1])
        num = max(self.plan.num, num_of(self.space, law.now.log_masses.shape[1]))
        while True:
            options = num, old
            out = call_compiled(_settle, self, before, seen, options=options)
            more = is_concrete(out.error) and float(out.error) > self.tol
            if not more or float(out.own) < 0.5 * float(out.error) or 2 * num > MOST[self.dim]:
                break
            num *= 2
        new = Law(before, seen, out.lattice, out.log_norm, out.error, law.log_kept)
        return new, out

    def _code(self, out: Settled) -> Int[Array, ""]:
        code = jnp.where(out.error > self.tol, _results.UNRESOLVED, _results.OK)
        return jnp.where(jnp.isfinite(out.log_norm), code, _results.NO_MASS)

    def moments(self, law: Law) -> tuple[Float[Array, " d"], Float[Array, "d d"]]:
        """Mean and covariance."""
        return _summary(self.space, law.now, num_of(self.space, law.now.log_masses.shape[1]))[:2]

    def regimes(self, law: Law) -> Float[Array, " k"]:
        """Probabilities of the regimes."""
        if self.ssm.regimes is None:
            raise ValueError(NO_REGIMES)
        return _summary(self.space, law.now, num_of(self.space, law.now.log_masses.shape[1]))[2]

    def density(self, law: Law) -> LatticeDensity:
        """The law as a density."""
        old = num_of(self.space, law.before.lattice.log_masses.shape[1])
        keep, zero = jnp.zeros(len(parts_of(self.ssm))), jnp.zeros(())
        return LatticeDensity(self.ssm, self.space, law, None, keep, zero, old)

    def run(self, series: Series, keep: bool) -> Trace:
        """The filter of a series; `sized` has looked as closely as it asks for."""
        wide = expanded(series, self.plan.sensors)
        ran: Ran | None = remembered(self, Ran, lambda: None)
        if ran is not None and ran.series is series and (ran.kept.law is not None or not keep):
            last, kept = ran.last, ran.kept
        else:
            last, kept = self._scan(wide.rows, self.plan, wide.sensors, keep)
        at = wide.places
        xp, code, error = looked_at(kept.code, kept.error)
        code = xp.where(wide.fits, code, _results.NO_MASS)
        codes = xp.where((code == _results.OK) & (error > self.tol), _results.UNRESOLVED, code)
        return Trace(
            log_likelihoods=kept.log_likelihood[at],
            mean=kept.mean[at],
            covariance=kept.covariance[at],
            codes=codes[at],
            seen=kept.used[at],
            log_kept=kept.log_kept[at],
            log_normalizers=kept.log_kept[at],
            errors=kept.error[at],
            last=last,
            laws=kept.law if keep else None,
        )

    def _scan(self, rows: Rows, plan: Plan, sensors: int, keep: bool) -> tuple[Law, Kept]:
        num, options = rows.ys.shape[0], (plan.num, sensors, keep)
        longer = roomy(rows, self.ssm)
        last, kept = call_compiled(_scan, self, np.asarray(plan.eps), longer, options=options)
        return last, kept if longer is rows else cut_rows(kept, num)

    def _laws(self, laws: Law) -> LatticeLaws:
        num = num_of(self.space, laws.now.log_masses.shape[2])
        return LatticeLaws(self.ssm, self.space, laws.now, laws, num)

    def filtered(self, series: Series, trace: Trace) -> LatticeLaws:
        """p(x_t | y_1 ... y_t)."""
        at = expanded(series).places
        return self._laws(jax.tree.map(lambda a: a[at], trace.laws))

    def predicted(self, series: Series, trace: Trace) -> LatticeLaws:
        """p(x_t | y before t): of several sensors at one time, before all of them."""
        at = expanded(series).places
        laws = jax.tree.map(lambda a: a[at], trace.laws)
        num = num_of(self.space, laws.now.log_masses.shape[2])
        return self._laws(call_compiled(_predicted, self, laws, options=(num,)))

    def smooth(self, series: Series, trace: Trace, lag: int | None, keep: bool) -> Smoothing:
        """Carried back from law to law."""
        del lag, keep
        wide = expanded(series)
        last, number = last_of_times(wide.moves)
        laws = jax.tree.map(lambda a: a[last], trace.laws)
        num = num_of(self.space, laws.now.log_masses.shape[2])
        lattices, sinks = go_back(self.ssm, self.space, laws, num)
        at = number[wide.places]
        final = tuple(bool(i == len(last) - 1) for i in at)
        lattices, laws, sinks = (
            jax.tree.map(lambda a: a[at], part) for part in (lattices, laws, sinks)
        )
        mean, covariance, _ = _summaries(self.space, lattices, num)
        found = LatticeLaws(self.ssm, self.space, lattices, laws, num, sinks, final)
        return Smoothing(mean, covariance, found, "backward sums")

    def paths(
        self, series: Series, trace: Trace, key: PRNGKeyArray, num: int
    ) -> Float[Array, "n t d"]:
        """Drawn backwards, regime and state at once."""
        wide = expanded(series)
        last, number = last_of_times(wide.moves)
        laws = jax.tree.map(lambda a: a[last], trace.laws)
        nodes = num_of(self.space, laws.now.log_masses.shape[2])
        drawn = draw_back(self.ssm, self.space, laws, nodes, key, num)
        return jnp.moveaxis(drawn[number[wide.places]], 0, 1)

    def ahead(self, last: Law, steps: Int[Array, " k"], rows: Inputs) -> Ahead:
        """Transitions one after the other."""
        num = num_of(self.space, last.now.log_masses.shape[1])
        kept = call_compiled(_ahead, self, last, steps, rows, options=(num,))
        assert kept.law is not None
        codes = jnp.where(kept.error > self.tol, _results.UNRESOLVED, kept.code)
        return Ahead(kept.mean, kept.covariance, self._laws(kept.law), kept.log_kept, codes)

    def observed(
        self, laws: AbstractLaws, steps: Int[Array, " t"], rows: Inputs
    ) -> AbstractObservedLaws:
        """The laws of y."""
        assert isinstance(laws, LatticeLaws)
        if takes_u(self.ssm):
            return drawn_laws(laws, steps, rows)
        return (
            gaussian_laws(laws, steps, rows)
            if sensors_of(self.ssm)
            else grid_laws(laws, steps, rows)
        )

    def transforms(self, series: Series, trace: Trace) -> Float[Array, "t *p"]:
        """(T,), or (T, p) for several coordinates of Gaussian sensors."""
        laws = self.observed(self.predicted(series, trace), series.steps, series.rows)
        ys = jnp.asarray(series.ys)
        if isinstance(laws, BankLaws):
            values = probability_transforms(laws.bank, Layout(), ys)
            return values[:, 0] if values.shape[1] == 1 else values
        if ys.shape[1] != 1:
            raise ValueError(
                f"the probability transform needs a scalar y, got {ys.shape[1]} coordinates"
            )
        levels = laws.cdfs(jnp.where(jnp.isnan(ys), laws.mean, ys))[:, 0]
        return jnp.where(jnp.isnan(ys[:, 0]), jnp.nan, levels)

    def sized(self, series: Series) -> "LatticeModel":
        """With as many nodes, and windows as deep, as a series asks for that can be looked at."""
        if is_traced((self.ssm, series.ys, series.rows, series.hops)):
            return self
        wide, plan = expanded(series), self.plan._replace(sensors=sensors_at_once(series))
        keep = len(wide.rows.ys) <= _REMEMBERED
        last, kept = self._scan(wide.rows, plan, wide.sensors, keep)
        for _ in range(_LOOKS):
            wanted = next_plan(self.tol, self.dim, plan, kept)
            if wanted is None:
                break
            plan = wanted
            last, kept = self._scan(wide.rows, plan, wide.sensors, keep)
        new = LatticeModel(ssm=self.ssm, space=self.space, plan=plan, report=self.report)
        # What was computed on the way is the answer to the question that comes next.
        ran = remembered(new, Ran, lambda: Ran(series, last, kept))
        assert ran.series is series
        return new

    def frozen(self) -> FrozenLattice:
        """Its nodes and what windows leave out."""
        return FrozenLattice(*self.plan)

    def refilled(self, frozen: AbstractFrozen, ssm: StateSpaceModel) -> "LatticeModel":
        """The same for other numbers."""
        assert isinstance(frozen, FrozenLattice)
        plan = Plan(frozen.num, frozen.eps, frozen.sensors)
        return LatticeModel(ssm=ssm, space=self.space, plan=plan, report=self.report)


_summary = eqx.filter_jit(summary)


@eqx.filter_jit
def _summaries(space: Space, lattices: Lattice, num: int) -> tuple[Array, Array, Array]:
    return jax.vmap(lambda one: summary(space, one, num))(lattices)


def _start(model: LatticeModel) -> Law:
    none = Sensed(jnp.zeros((0, 1)), None)
    return start_law(model.ssm, model.space, model.level(), none)


def _settle(model: LatticeModel, before, seen: Sensed, num: int, old: int) -> Settled:
    level = Level(num, model.plan.eps)
    return settle(model.ssm, model.space, before, seen, level, old)


def _scan(model: LatticeModel, eps, rows: Rows, num: int, sensors: int, keep: bool):
    return scan_rows(model.ssm, model.space, eps, rows, (num, sensors, keep))


def _predicted(model: LatticeModel, laws: Law, num: int) -> Law:
    level = Level(num, model.plan.eps)

    def one(law: Law) -> Law:
        seen = law.seen._replace(ys=jnp.full_like(law.seen.ys, jnp.nan))
        before = law.before._replace(row=unseen(law.before.row))
        out = settle(model.ssm, model.space, before, seen, level, num)
        return Law(before, seen, out.lattice, out.log_norm, out.error, law.log_kept)

    return jax.lax.map(one, laws)


def _ahead(model: LatticeModel, last: Law, steps: Array, rows: Inputs, num: int) -> Kept:
    return scan_ahead(model.ssm, model.space, last, steps, rows, Level(num, model.plan.eps))
