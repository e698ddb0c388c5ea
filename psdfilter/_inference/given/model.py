"""The filter of three given PSD models, at quadrature nodes of the box."""

from dataclasses import replace
from typing import ClassVar

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray

from ..._density.conversions import PSDModel
from ..._statespace.model import Inputs
from ..ability import Ability
from ..laws import AbstractLaws
from ..model import AbstractModel
from ..numerics.observed import GridLaws, observation_grid
from ..report import Report
from ..series import Series
from ..trace import Ahead, Moved, Observation, Seen, Smoothing, Trace
from .density import StepDensity
from .laws import AbstractTableLaws, AheadLaws, FilteredLaws, SmoothedLaws, density_between
from .paths import advance_values, draw_paths
from .run import (
    GivenLaw,
    begin,
    compiled_advance,
    compiled_moments,
    compiled_run,
    compiled_smooth,
    compiled_update,
)
from .table import Table
from .triple import Triple, pair_values

ABILITIES = frozenset(
    {
        Ability.SMOOTHER,
        Ability.PAIRS,
        Ability.OBSERVED_LAWS,
        Ability.ERRORS,
        Ability.CERTIFICATE,
    }
)


def why_not_given(ability: Ability) -> str | None:
    """Why a filter of given models does not offer something, and what does."""
    if ability is Ability.INPUTS:
        return "inputs must be None: the given PSD models take none; learn a StateSpaceModel"
    if ability is Ability.OBSERVED_LAWS:
        return (
            "the law of y needs observation_box: say where y lives, "
            'learned(..., observation_box=psdfilter.Box(lower, upper)), with engine="nodes"'
        )
    if ability is Ability.PARTLY_MISSING:
        return (
            "an observation of given PSD models must be whole or missing: integrate G over the "
            "coordinates that are never seen with psdfilter.marginal, or set the row to NaN"
        )
    if ability is Ability.GRADIENTS:
        return (
            "a likelihood of parameters needs a StateSpaceModel, from which Q and G are learned "
            "anew at every theta: see psdfilter.likelihood"
        )
    if ability in (Ability.SMOOTHER, Ability.PAIRS, Ability.ERRORS, Ability.CERTIFICATE):
        return f'{ability} of given PSD models takes learned(..., engine="nodes")'
    return None


class GivenModel(AbstractModel):
    """Algorithm 2 on any PSD models; integrals are positive sums over nodes of the box."""

    engine: ClassVar[str] = "given"
    table: Table
    report: Report = eqx.field(static=True)

    @property
    def triple(self) -> Triple:
        """The models."""
        return self.table.triple

    @property
    def dim(self) -> int:
        """Number of coordinates of the state."""
        return self.triple.dim

    @property
    def num_observed(self) -> int:
        """Number of coordinates of an observation."""
        return self.triple.num_observed

    @property
    def abilities(self) -> frozenset[Ability]:
        """Laws of y only where their box is known."""
        known = self.triple.observation_box is not None
        return ABILITIES if known else ABILITIES - {Ability.OBSERVED_LAWS}

    def why_not(self, ability: Ability) -> str | None:
        """What is missing, and where it is."""
        return why_not_given(ability)

    @property
    def prior(self) -> PSDModel:
        """As it was given."""
        return self.triple.prior

    @property
    def transition(self) -> PSDModel:
        """As it was given."""
        return self.triple.transition

    @property
    def observation(self) -> PSDModel:
        """As it was given."""
        return self.triple.observation

    def start(self) -> GivenLaw:
        """The prior, of mass one on the box."""
        return begin(self.table)

    def predict(self, law: GivenLaw, step: Int[Array, ""], row: Inputs) -> tuple[GivenLaw, Moved]:
        """One transition."""
        del step, row
        new, log_kept = compiled_advance(self.table, law)
        return new, Moved(log_kept, jnp.zeros(()), jnp.zeros((), int))

    def update(
        self, law: GivenLaw, y: Observation, step: Int[Array, ""], row: Inputs
    ) -> tuple[GivenLaw, Seen]:
        """One observation."""
        del step, row
        new, out = compiled_update(self.table, law, jnp.asarray(y))
        return new, Seen(out.log_mass, jnp.zeros(()), out.seen, out.code)

    def moments(self, law: GivenLaw) -> tuple[Float[Array, " d"], Float[Array, "d d"]]:
        """Mean and covariance."""
        mean, covariance = compiled_moments(self.table, law.values[None])
        return mean[0], covariance[0]

    def density(self, law: GivenLaw) -> StepDensity:
        """The law in user units, between the nodes too."""
        return density_between(self.table, law)

    def run(self, series: Series, keep: bool) -> Trace:
        """The filter of a series."""
        return compiled_run(self.table, series, keep)

    def filtered(self, series: Series, trace: Trace) -> FilteredLaws:
        """p(x_t | y_1 ... y_t)."""
        kept = trace.laws
        return FilteredLaws(
            table=self.table,
            series=series,
            kept=kept,
            seen=trace.seen,
            values=kept.densities,
            log_kept=trace.log_kept,
        )

    def predicted(self, series: Series, trace: Trace) -> FilteredLaws:
        """p(x_t | y before t)."""
        laws = self.filtered(series, trace)
        return replace(laws, values=_predictions(self.table, series, trace), observed=False)

    def smooth(self, series: Series, trace: Trace, lag: int | None, keep: bool) -> Smoothing:
        """By the backward information recursion."""
        del lag, keep
        back = compiled_smooth(self.table, series, trace.laws)
        mean, covariance = compiled_moments(self.table, back.values)
        forward = self.filtered(series, trace)
        laws = SmoothedLaws(
            table=self.table,
            forward=forward,
            values=back.values,
            sinks=back.sinks,
            log_norms=back.log_norms,
        )
        return Smoothing(mean, covariance, laws, "backward information")

    def paths(
        self, series: Series, trace: Trace, key: PRNGKeyArray, num: int
    ) -> Float[Array, "n t d"]:
        """By backward sampling."""
        return draw_paths(self.table, trace.laws.densities, series.hops, key, num)

    def pair_law(self, series: Series, trace: Trace, laws: AbstractLaws, t: int) -> Array:
        """p(x_t, x_{t+1} | all y) at the nodes."""
        del series
        assert isinstance(laws, SmoothedLaws)
        weights = self.table.flat_weights
        ahead = (laws.sinks[t] / weights)[None, :]
        joint = trace.laws.densities[t][:, None] * self.table.kernel * ahead
        return joint / (weights @ joint @ weights)

    def ahead(self, last: GivenLaw, steps: Int[Array, " k"], rows: Inputs) -> Ahead:
        """Renormalised on the box at each step."""
        del rows
        values, sources, log_kept = advance_values(self.table, last.values, steps.shape[0])
        mean, covariance = compiled_moments(self.table, values)
        laws = AheadLaws(self.table, values, sources, log_kept)
        return Ahead(mean, covariance, laws, log_kept, jnp.zeros(steps.shape[0], int))

    def observed(self, laws: AbstractLaws, steps: Int[Array, " t"], rows: Inputs) -> GridLaws:
        """int G^(x, y) p(x) dx on a grid over the box of y."""
        del steps, rows
        assert isinstance(laws, AbstractTableLaws)
        return _laws_of_y(self.table, laws.values)

    def transforms(self, series: Series, trace: Trace) -> Float[Array, "t p"]:
        """P(Y_t <= y_t | y before t) of every coordinate."""
        laws = _laws_of_y(self.table, self.predicted(series, trace).values)
        ys = jnp.asarray(series.ys)
        missing = jnp.isnan(ys)
        levels = laws.cdfs(jnp.where(missing, 0.0, ys))
        levels = jnp.where(missing, jnp.nan, levels)
        return levels[:, 0] if levels.shape[1] == 1 else levels


@eqx.filter_jit
def _laws_of_y(table: Table, values: Float[Array, "t n"]) -> GridLaws:
    box = table.triple.observation_box
    assert box is not None
    nodes, _ = observation_grid(box)
    shares = values * table.flat_weights[None, :]
    return GridLaws.of(box, shares @ pair_values(table.triple.observation, table.points, nodes))


@eqx.filter_jit
def _predictions(table: Table, series: Series, trace: Trace) -> Float[Array, "t n"]:
    """p(x_t | y before t) at the nodes, of mass one."""
    kept, weights = trace.laws, table.flat_weights
    moved = (kept.sources * weights[None, :]) @ table.kernel
    before = jnp.concatenate([table.start[None], kept.densities[:-1]])
    values = jnp.where((series.hops > 0)[:, None], moved, before)
    return values / (values @ weights)[:, None]
