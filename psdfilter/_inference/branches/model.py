"""The learned model of linear-Gaussian regimes, in any dimension."""

from typing import ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray

from ... import _results
from ..._checks import is_traced, looked_at
from ..._density.blocks import GaussianBlocks
from ..._statespace.model import Inputs, StateSpaceModel
from ..ability import Ability
from ..gaussian.bank import Bank, Layout
from ..gaussian.laws import BankLaws
from ..gaussian.mixture import moments
from ..gaussian.observed import probability_transforms
from ..gaussian.paths import NUM_PATHS, with_draws
from ..lattice.run import Rows
from ..lattice.series import expanded, roomy
from ..laws import AbstractLaws
from ..lengths import cut_rows
from ..model import AbstractFrozen, AbstractModel
from ..numerics.compiled import call_compiled, remembered
from ..report import Report
from ..series import Series
from ..trace import Ahead, Moved, Observation, Seen, Smoothing, Trace
from .frozen import FrozenBranches
from .laws import BranchLaws
from .run import (
    Kept,
    Sizes,
    flat_of,
    forms_of,
    one_row,
    parts_of,
    scan_rows,
    start_of,
)
from .smooth import go_back
from .step import Branches, Law, merged, predicted_law, seen_law

ABILITIES = frozenset(
    {
        Ability.PARTLY_MISSING,
        Ability.SMOOTHER,
        Ability.OBSERVED_LAWS,
        Ability.ERRORS,
        Ability.GRADIENTS,
    }
)
# The most Gaussians of a regime that a series may ask for.
MOST = 128


class Ran(NamedTuple):
    """What `sized` has found on the way, so that `run` need not do it again."""

    series: Series
    last: Law
    kept: Kept


class BranchModel(AbstractModel):
    """Gaussians that branch with the regimes and merge after every observation."""

    engine: ClassVar[str] = "branches"
    ssm: StateSpaceModel
    sizes: Sizes = eqx.field(static=True)
    fixed: bool = eqx.field(static=True)  # the order was asked for
    report: Report = eqx.field(static=True)

    @property
    def dim(self) -> int:
        """Number of coordinates of the state."""
        return self.ssm.dim

    @property
    def num_observed(self) -> int:
        """Coordinates of an observation."""
        sensor = forms_of(self.ssm)[0].H
        assert sensor is not None
        return sensor.shape[0]

    @property
    def abilities(self) -> frozenset[Ability]:
        """All but inputs, and what needs a box."""
        return ABILITIES

    def why_not(self, ability: Ability) -> str | None:
        """The matrices are fixed."""
        if ability is Ability.INPUTS:
            return "inputs must be None: the matrices of linear-Gaussian regimes are fixed"
        return None

    def start(self) -> Law:
        """The priors."""
        return call_compiled(_start, self)

    def predict(self, law: Law, step: Int[Array, ""], row: Inputs) -> tuple[Law, Moved]:
        """One transition; of a law that was not seen since the last, after it has merged."""
        del step, row
        nothing = jnp.zeros(())
        return call_compiled(_predict, self, law), Moved(nothing, nothing, jnp.zeros((), int))

    def update(
        self, law: Law, y: Observation, step: Int[Array, ""], row: Inputs
    ) -> tuple[Law, Seen]:
        """One observation."""
        del step, row
        new, out = call_compiled(_update, self, law, jnp.asarray(y, dtype=jnp.float64))
        code = jnp.where(
            (out.code == _results.OK) & (out.error > self.tol), _results.UNRESOLVED, out.code
        )
        return new, Seen(out.log_mass, out.error - law.error, out.used, code)

    def moments(self, law: Law) -> tuple[Float[Array, " d"], Float[Array, "d d"]]:
        """Mean and covariance."""
        return _moments(law.fine)

    def regimes(self, law: Law) -> Float[Array, " k"]:
        """Probabilities of the regimes."""
        return jax.nn.softmax(jax.scipy.special.logsumexp(law.fine.log_weights, axis=1))

    def density(self, law: Law) -> GaussianBlocks:
        """The law as a mixture."""
        return flat_of(law.fine).density()

    def run(self, series: Series, keep: bool) -> Trace:
        """The filter of a series; `sized` has taken as many Gaussians as it asks for."""
        wide = expanded(series)
        ran: Ran | None = remembered(self, Ran, lambda: None)
        if ran is not None and ran.series is series:
            last, kept = ran.last, ran.kept
        else:
            last, kept = self._scan(wide.rows, self.sizes, keep)
        out, at = kept.outcome, wide.places
        xp, code, error = looked_at(out.code, out.error)
        missed = (code == _results.OK) & (error > self.tol)
        codes, nothing = xp.where(missed, _results.UNRESOLVED, code), xp.zeros(series.num)
        return Trace(
            log_likelihoods=out.log_mass[at],
            mean=kept.mean[at],
            covariance=kept.covariance[at],
            codes=codes[at],
            seen=out.used[at],
            log_kept=nothing,
            log_normalizers=nothing,
            errors=out.error[at],
            last=last,
            laws=(kept.law, kept.before) if keep else None,
        )

    def _scan(self, rows: Rows, sizes: Sizes, keep: bool) -> tuple[Law, Kept]:
        longer = roomy(rows, self.ssm)
        last, kept = call_compiled(_scan, self, longer, options=(sizes, keep))
        return last, kept if longer is rows else cut_rows(kept, rows.ys.shape[0])

    def filtered(self, series: Series, trace: Trace) -> BranchLaws:
        """p(x_t | y_1 ... y_t)."""
        at = expanded(series).places
        return BranchLaws.of(jax.tree.map(lambda a: a[at], trace.laws[0]))

    def predicted(self, series: Series, trace: Trace) -> BranchLaws:
        """p(x_t | y before t)."""
        at = expanded(series).places
        return BranchLaws.of(jax.tree.map(lambda a: a[at], trace.laws[1]))

    def smooth(self, series: Series, trace: Trace, lag: int | None, keep: bool) -> Smoothing:
        """By paths drawn backwards, of which averages are taken."""
        del lag, keep
        wide = expanded(series)
        key = jax.random.key(0)
        back = go_back(trace.laws[0], parts_of(self.ssm), wide.moves, key, NUM_PATHS)
        laws = BranchLaws.of(jax.tree.map(lambda a: a[wide.places], back.laws))
        states = laws.states
        assert trace.errors is not None
        errors = with_draws(trace.errors)
        return Smoothing(states.mean, states.covariance, laws, "backward sampling", errors)

    def paths(
        self, series: Series, trace: Trace, key: PRNGKeyArray, num: int
    ) -> Float[Array, "n t d"]:
        """Drawn backwards, regime and state at once."""
        wide = expanded(series)
        back = go_back(trace.laws[0], parts_of(self.ssm), wide.moves, key, num)
        return jnp.moveaxis(back.states[wide.places], 0, 1)

    def ahead(self, last: Law, steps: Int[Array, " k"], rows: Inputs) -> Ahead:
        """Transitions one after the other."""
        del rows
        kept = call_compiled(_ahead, self, last, options=(steps.shape[0],))
        assert kept.law is not None
        laws = BranchLaws.of(kept.law)
        errors = kept.outcome.error
        codes = jnp.where(errors > self.tol, _results.UNRESOLVED, _results.OK)
        return Ahead(kept.mean, kept.covariance, laws, jnp.zeros(steps.shape[0]), codes)

    def observed(self, laws: AbstractLaws, steps: Int[Array, " t"], rows: Inputs) -> BankLaws:
        """The laws of y: each Gaussian through the sensor of its regime."""
        del steps, rows
        assert isinstance(laws, BranchLaws)
        return BankLaws.of(_seen_banks(laws.laws, parts_of(self.ssm).sensor), Layout())

    def transforms(self, series: Series, trace: Trace) -> Float[Array, "t *p"]:
        """(T,), or (T, p) for several coordinates, each given those before it in y_t."""
        laws = self.observed(self.predicted(series, trace), series.steps, series.rows)
        values = probability_transforms(laws.bank, Layout(), jnp.asarray(series.ys))
        return values[:, 0] if values.shape[1] == 1 else values

    def sized(self, series: Series) -> "BranchModel":
        """With as many Gaussians as a series asks for that can be looked at."""
        if is_traced((self.ssm, series.ys, series.hops)):
            return self
        wide = expanded(series)
        sizes = self.sizes
        while True:
            last, kept = self._scan(wide.rows, sizes, True)
            enough = not np.any(np.asarray(kept.outcome.error) > self.tol)
            if enough or self.fixed or 2 * sizes.order > MOST:
                break
            sizes = sizes._replace(order=2 * sizes.order)
        new = BranchModel(ssm=self.ssm, sizes=sizes, fixed=self.fixed, report=self.report)
        # What was computed on the way is the answer to the question that comes next.
        ran = remembered(new, Ran, lambda: Ran(series, last, kept))
        assert ran.series is series
        return new

    def frozen(self) -> FrozenBranches:
        """How many Gaussians there are."""
        return FrozenBranches(self.sizes)

    def refilled(self, frozen: AbstractFrozen, ssm: StateSpaceModel) -> "BranchModel":
        """The same with other matrices."""
        assert isinstance(frozen, FrozenBranches)
        return BranchModel(ssm=ssm, sizes=frozen.sizes, fixed=True, report=self.report)


@jax.jit
def _moments(law: Branches) -> tuple[Array, Array]:
    return moments(flat_of(law))


def _start(model: BranchModel) -> Law:
    return start_of(model.ssm, model.sizes)


def _room(model: BranchModel, law: Law) -> Law:
    """A law that was predicted and not seen merges before it branches again."""
    fine, coarse = model.sizes.both
    one, loss = merged(law.fine, fine, model.sizes.prune)
    two, more = merged(law.coarse, coarse, model.sizes.prune)
    lost = law.lost + jnp.stack([loss, more])
    return Law(one, two, lost, law.exact & (loss == 0), law.error)


def _predict(model: BranchModel, law: Law) -> Law:
    return predicted_law(_room(model, law), parts_of(model.ssm))


def _update(model: BranchModel, law: Law, y: Array):
    return seen_law(law, parts_of(model.ssm), y, model.sizes.both, model.sizes.prune)


def _scan(model: BranchModel, rows: Rows, sizes: Sizes, keep: bool) -> tuple[Law, Kept]:
    return scan_rows(model.ssm, rows, sizes, keep)


def _ahead(model: BranchModel, last: Law, num: int) -> Kept:
    parts, count = parts_of(model.ssm), len(forms_of(model.ssm))
    sizes = model.sizes._replace(order=last.fine.log_weights.shape[1])
    width = parts.sensor.H.shape[1]
    blank = jnp.full(width, jnp.nan)

    def step(law: Law, _: None) -> tuple[Law, Kept]:
        return one_row(law, parts, (blank, jnp.array(True)), (sizes, count, True))

    return jax.lax.scan(step, last, None, length=num)[1]


@jax.jit
def _seen_banks(laws: Branches, sensor) -> Bank:
    """Laws of y of stacked laws of x."""
    means = jnp.einsum("kpd,tkmd->tkmp", sensor.H, laws.means) + sensor.d[None, :, None, :]
    spread = jnp.einsum("kpd,tkmde,kqe->tkmpq", sensor.H, laws.covariances, sensor.H)
    spread = spread + sensor.R[None, :, None]
    count, width = means.shape[0], means.shape[-1]
    return Bank(
        laws.log_weights.reshape(count, -1, 1),
        means.reshape(count, -1, 1, width),
        spread.reshape(count, -1, width, width),
    )
