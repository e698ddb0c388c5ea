"""The learned model of the filter on nodes."""

from dataclasses import replace
from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray

from ..._checks import is_concrete, is_traced
from ..._density.conversions import PSDModel
from ..._density.psd import AbstractDensity, GaussianPSD
from ..._statespace.model import Inputs, StateSpaceModel
from ..ability import Ability
from ..laws import AbstractLaws
from ..model import AbstractFrozen, AbstractModel
from ..numerics.observed import AbstractObservedLaws
from ..report import Report
from ..series import Series
from ..trace import Ahead, Moved, Observation, Seen, Smoothing, Trace, held_to
from .ahead import advance, ahead_laws
from .evidence import Evidence
from .filled import Filled
from .filtered import FilteredLaws
from .frozen import FrozenNodes
from .host import tabulate
from .lagged import smooth_with_lag
from .laws import AbstractNodeLaws
from .learn import Learned, paths_of_data, paths_through, resized_along
from .models import density_of
from .observed import joint_law, observation_laws, probability_transforms
from .online import (
    NodesLaw,
    density_on_nodes,
    moments_on_nodes,
    predict_on_nodes,
    start_on_nodes,
    update_on_nodes,
)
from .paths import sample_paths
from .run import tick_on_nodes, trace_on_nodes
from .smoothed import SmoothedLaws, pair_law, smooth_to_the_end

ABILITIES = frozenset(Ability) - {Ability.LAG_OF_SENSORS}
# Steps are watched from this dimension on. Estimates are two to four times the error where a model
# is smooth (Lorenz-63, range_only, pendulum): a step counts as missed from three tolerances on.
_WATCHED_DIM, _MISSED = 3, 3.0
_SIZED_HERE = ("sized", "by the data of this call; learn(..., ys=...) does it once")


class NodesModel(AbstractModel):
    """Q^ and the prior as PSD models, filtered with positive weights at quadrature nodes.

    Attributes:
        filled: the plan and the tables.
        is_sized: whether observations have had a say in the sizes; if not, each series that is
            filtered has one of its own.
    """

    engine: ClassVar[str] = "nodes"
    resizes: ClassVar[bool] = True
    filled: Filled
    report: Report = eqx.field(static=True)
    is_sized: bool = eqx.field(static=True, default=True)
    multiple: int = eqx.field(static=True, default=1)  # sizes are multiples of this

    @staticmethod
    def of(learned: Learned, multiple: int) -> "NodesModel":
        """From what learning has given."""
        filled, report, is_sized = learned
        return NodesModel(filled=filled, report=report, is_sized=is_sized, multiple=multiple)

    @property
    def source(self) -> StateSpaceModel:
        """What it was learned from."""
        return self.filled.ssm

    @property
    def dim(self) -> int:
        """Number of coordinates of the state."""
        return self.filled.dim

    @property
    def num_observed(self) -> int | None:
        """Number of coordinates of an observation, if a box or a sampler tells."""
        return self.filled.ssm.num_observed

    @property
    def abilities(self) -> frozenset[Ability]:
        """Laws of y, and observations with gaps, only where the box of y is known."""
        missing = set()
        ssm = self.filled.ssm
        if not ssm.has_seen_laws:
            missing.add(Ability.OBSERVED_LAWS)
        if ssm.observation_box is None and not ssm.marginalizes_missing:
            missing.add(Ability.PARTLY_MISSING)
        if self.filled.joint is None:
            missing.add(Ability.JOINT)
        if self.filled.joint is not None or self.filled.renormalize:
            missing.add(Ability.GRADIENTS)
        return ABILITIES - missing

    def why_not(self, ability: Ability) -> str | None:
        """What is missing can be had: by a box of y, a joint model, or rows that are joined."""
        if ability is Ability.LAG_OF_SENSORS:
            return (
                "lag needs one row for each time: join the observations of several sensors at one "
                "time into one row"
            )
        if ability is Ability.JOINT:
            return (
                "observation_density needs a G that is a PSD model of (x, y): learn with "
                'engine=psdfilter.engines.Nodes(observation="joint"), or see predicted_observations'
            )
        if ability is Ability.GRADIENTS:
            return (
                f"{ability} needs Q as it is and a G that is fitted for each observation: take "
                'engine="nodes" without options'
            )
        if ability in (Ability.OBSERVED_LAWS, Ability.PARTLY_MISSING):
            return (
                f"{ability} needs observation_box: say where y lives, "
                "StateSpaceModel(..., observation_box=psdfilter.Box(lower, upper)), or for laws of "
                "y how to draw it, sample_observation=lambda key, x: ..."
            )
        return None

    @property
    def prior(self) -> PSDModel:
        """The law of x_0."""
        return density_of(self.filled, "prior")

    @property
    def transition(self) -> PSDModel:
        """Q^(u, x), all factors multiplied out."""
        return density_of(self.filled, "transition")

    @property
    def observation(self) -> PSDModel:
        """G^(x, y) of a joint model."""
        return density_of(self.filled, "observation")

    def sized(self, series: Series) -> "NodesModel":
        """Nodes and anchors of sqrt G for these observations, if nothing else has decided them."""
        if self.is_sized or is_traced((series, self.filled.prior_root)):
            return self
        learned = Learned(self.filled, self.report, False)
        paths = paths_of_data(self.filled, series)
        learned = resized_along(learned, paths, series.rows, self.multiple)
        report = replace(learned.report, notes=(_SIZED_HERE,))
        return NodesModel.of(learned._replace(report=report, is_sized=True), self.multiple)

    def start(self) -> NodesLaw:
        """The prior."""
        return start_on_nodes(self.filled)

    def predict(self, law: NodesLaw, step: Int[Array, ""], row: Inputs) -> tuple[NodesLaw, Moved]:
        """One transition."""
        return predict_on_nodes(self.filled, law, step, row)

    def update(
        self, law: NodesLaw, y: Observation, step: Int[Array, ""], row: Inputs
    ) -> tuple[NodesLaw, Seen]:
        """One observation."""
        return update_on_nodes(self.filled, law, y, step, row)

    def moments(self, law: NodesLaw) -> tuple[Float[Array, " d"], Float[Array, "d d"]]:
        """Mean and covariance."""
        return moments_on_nodes(self.filled, law)

    def density(self, law: NodesLaw) -> AbstractDensity:
        """The law as a lazy product in user units."""
        return density_on_nodes(self.filled, law)

    def run(self, series: Series, keep: bool) -> Trace:
        """The filter of a series; from three dimensions on, where nobody else serves, watched."""
        if self.dim < _WATCHED_DIM or self.filled.ssm.vectorized or is_traced(series):
            return trace_on_nodes(self.filled, series, keep)
        trace = self.watched(series, keep)
        if trace.errors is None or not is_concrete(trace.codes):
            return trace
        return trace._replace(codes=held_to(trace.codes, trace.errors, _MISSED * self.tol))

    def batched(self) -> "NodesModel | None":
        """Itself, unless its functions are NumPy's."""
        return None if self.filled.ssm.vectorized else self

    def watched(self, series: Series, keep: bool) -> Trace:
        """The filter of a series, with an estimate of what each step adds to the error."""
        return trace_on_nodes(self.filled, series, keep, True)

    def settled(self, law: NodesLaw) -> NodesLaw:
        """Its values at the nodes."""
        return NodesLaw(law.values)

    def tick(
        self, law: NodesLaw, y: Observation, step: Int[Array, ""], row: Inputs
    ) -> tuple[NodesLaw, Moved, Seen]:
        """One transition and one observation, watched."""
        return tick_on_nodes(self.filled, law, y, step, row)

    def cut(self, trace: Trace, num: int) -> Trace:
        """Whatever is stacked has rows."""
        rows = jax.tree.map(lambda a: a[:num], trace._replace(last=None))
        return rows._replace(last=NodesLaw(rows.laws.densities[-1]))

    def filtered(self, series: Series, trace: Trace) -> FilteredLaws:
        """p(x_t | y_1 ... y_t)."""
        return FilteredLaws(self.filled, series, trace.laws, trace.seen, trace.log_kept)

    def predicted(self, series: Series, trace: Trace) -> FilteredLaws:
        """p(x_t | y before t)."""
        return replace(self.filtered(series, trace), observed=False)

    def smooth(self, series: Series, trace: Trace, lag: int | None, keep: bool) -> Smoothing:
        """By the backward information recursion."""
        laws = self.filtered(series, trace)
        if lag is None:
            back = smooth_to_the_end(laws)
        else:
            host = tabulate(self.filled, series) if trace.laws is None else trace.laws.host
            back = smooth_with_lag(self.filled, series, host, trace.seen, lag, keep)
        smoothed = None
        if back.sinks is not None and keep:
            smoothed = SmoothedLaws(self.filled, laws, back.sinks, back.log_norms)
        return Smoothing(back.mean, back.covariance, smoothed, "backward information")

    def paths(
        self, series: Series, trace: Trace, key: PRNGKeyArray, num: int
    ) -> Float[Array, "n t d"]:
        """By backward sampling on fine nodes."""
        hops = series.hops
        most = int(np.max(np.asarray(hops))) if is_concrete(hops) else 2
        return sample_paths(self.filtered(series, trace), key, num, most > 1)

    def pair_law(self, series: Series, trace: Trace, laws: AbstractLaws, t: int) -> Array:
        """p(x_t, x_{t+1} | all y) at the nodes of the recursion."""
        del series, trace
        assert isinstance(laws, SmoothedLaws)
        return pair_law(laws, t)

    def ahead(self, last: NodesLaw, steps: Int[Array, " k"], rows: Inputs) -> Ahead:
        """Renormalised on the box at each step."""
        out = advance(self.filled, last.values, steps, rows)
        codes = jnp.zeros(steps.shape[0], int)
        laws = ahead_laws(self.filled, out, steps, rows)
        return Ahead(out.mean, out.covariance, laws, out.log_kept, codes)

    def observed(
        self, laws: AbstractLaws, steps: Int[Array, " t"], rows: Inputs
    ) -> AbstractObservedLaws:
        """By quadrature over `observation_box`."""
        assert isinstance(laws, AbstractNodeLaws)
        return observation_laws(laws, steps, rows)

    def transforms(self, series: Series, trace: Trace) -> Float[Array, " t"]:
        """By quadrature, or in error functions."""
        return probability_transforms(self.predicted(series, trace))

    def observation_density(self, series: Series, trace: Trace, t: int) -> GaussianPSD:
        """p(y_t | y before t) of a joint model."""
        return joint_law(self.predicted(series, trace), t)

    def frozen(self) -> FrozenNodes:
        """The plan."""
        with jax.ensure_compile_time_eval():
            return FrozenNodes.of(self.filled.plan)

    def refilled(self, frozen: AbstractFrozen, ssm: StateSpaceModel) -> "NodesModel":
        """The plan, filled with another state-space model."""
        assert isinstance(frozen, FrozenNodes)
        return replace(self, filled=frozen.fill(ssm), is_sized=True)

    def resized(self, facts: Evidence, series: Series, which: int, inputs: Inputs) -> "NodesModel":
        """Nodes and anchors of sqrt G for where the states of one of the series were."""
        highest, log_kept = np.asarray(facts.highest)[which], np.asarray(facts.log_kept)[which]
        seen = np.asarray(series.ys)[which]
        paths = paths_through(self.filled.plan, highest, seen, log_kept)
        learned = Learned(self.filled, self.report, self.is_sized)
        learned = resized_along(learned, paths, inputs, self.multiple)
        return NodesModel.of(learned, self.multiple)
