"""The learned model of the filter in error functions."""

from typing import ClassVar, NamedTuple

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray

from ..._density.conversions import PSDModel
from ..._density.psd import GaussianPSD
from ..._statespace.model import Inputs
from ..ability import Ability
from ..laws import AbstractLaws
from ..model import AbstractModel
from ..nodes.filled import Filled
from ..nodes.host import host_logs, tabulate
from ..nodes.laws import AbstractNodeLaws
from ..nodes.model import NodesModel
from ..nodes.online import NodesLaw
from ..numerics.compiled import remembered
from ..numerics.observed import AbstractObservedLaws
from ..report import Report
from ..series import Series, is_partly
from ..sizing.host import fill
from ..trace import Ahead, Moved, Observation, Seen, Smoothing, Trace
from .laws import ClosedLaws, values_at
from .recursion import (
    ClosedLaw,
    Grid,
    KeptSteps,
    Root,
    Update,
    clean_logs,
    expand,
    predict,
    run,
    start,
    update,
)

ABILITIES = frozenset(Ability) - {Ability.JOINT, Ability.GRADIENTS, Ability.LAG_OF_SENSORS}

_predict = eqx.filter_jit(predict)
_update = eqx.filter_jit(update)
_clean_logs = eqx.filter_jit(clean_logs)


class Between(NamedTuple):
    """A law between two calls, and the root of the transition that led to it."""

    law: ClosedLaw
    root: Root | None


def _in_units(
    grid: Grid, first: Float[Array, "*t d"], second: Float[Array, "*t d d"]
) -> tuple[Float[Array, "*t d"], Float[Array, "*t d d"]]:
    """Mean and covariance in user units."""
    box, lead = grid.plan.box, (1,) * (first.ndim - 1)
    spread = second - first[..., :, None] * first[..., None, :]
    outer = jnp.outer(box.half_width, box.half_width)
    center, half = box.center.reshape(*lead, -1), box.half_width.reshape(*lead, -1)
    return center + half * first, spread * outer.reshape(*lead, *outer.shape)


class ClosedModel(AbstractModel):
    """Q^, G^ and the prior on one grid per axis: error functions, no quadrature.

    Smoothing, forecasts, laws of y and certificates are those of the filter on nodes with the same
    learned densities.
    """

    engine: ClassVar[str] = "closed"
    grid: Grid
    report: Report = eqx.field(static=True)

    @property
    def dim(self) -> int:
        """Number of coordinates of the state."""
        return self.grid.ssm.dim

    @property
    def num_observed(self) -> int | None:
        """Number of coordinates of an observation, if a box or a sampler tells."""
        return self.grid.ssm.num_observed

    @property
    def abilities(self) -> frozenset[Ability]:
        """Those of the filter on nodes, but the ones that need a joint model."""
        return ABILITIES & self.on_nodes().abilities

    def why_not(self, ability: Ability) -> str | None:
        """As on nodes, where the box of y is what is missing."""
        return None if ability is Ability.JOINT else self.on_nodes().why_not(ability)

    @property
    def prior(self) -> PSDModel:
        """The law of x_0."""
        return self.on_nodes().prior

    @property
    def transition(self) -> PSDModel:
        """Q^(u, x)."""
        return self.on_nodes().transition

    def on_nodes(self) -> NodesModel:
        """The same learned densities for the filter on nodes."""
        grid = self.grid

        def make() -> Filled:
            return Filled(grid.ssm, grid.plan, *fill(grid.plan, grid.ssm, False))

        return NodesModel(filled=remembered(grid, Filled, make), report=self.report)

    def start(self) -> Between:
        """The prior."""
        return Between(start(self.grid), None)

    def predict(self, law: Between, step: Int[Array, ""], row: Inputs) -> tuple[Between, Moved]:
        """One transition."""
        root = self.grid.root_at(int(step) if self.grid.ssm.vectorized else step, row)
        new, log_kept = _predict(self.grid, law.law, root)
        return Between(new, root), Moved(log_kept, jnp.zeros(()), jnp.zeros((), int))

    def update(
        self, law: Between, y: Observation, step: Int[Array, ""], row: Inputs
    ) -> tuple[Between, Seen]:
        """One observation."""
        grid, seen = self.grid, jnp.asarray(y)
        if grid.ssm.vectorized:
            logs = host_logs(self.on_nodes().filled, seen[None], step[None])[0]
        else:
            logs = _clean_logs(grid, seen, step, row, is_partly(seen))
        new, out = _update(grid, law.law, logs, seen)
        return law._replace(law=new), Seen(out.log_mass, jnp.zeros(()), out.seen, out.code)

    def _as_it_is(self, law: ClosedLaw) -> Update:
        """What an observation that is missing would find."""
        nothing = jnp.full(self.num_observed or 1, jnp.nan)
        return _update(self.grid, law, jnp.zeros_like(law.logs), nothing)[1]

    def moments(self, law: Between) -> tuple[Float[Array, " d"], Float[Array, "d d"]]:
        """Mean and covariance."""
        out = self._as_it_is(law.law)
        return _in_units(self.grid, out.first, out.second)

    def density(self, law: Between) -> GaussianPSD:
        """The law in user units."""
        out = self._as_it_is(law.law)
        c = out.c if bool(law.law.used) else None
        return expand(self.grid, law.root, law.law.source, c, out.log_scale)

    def run(self, series: Series, keep: bool) -> Trace:
        """The filter of a series."""
        grid = self.grid
        frame = Filled(grid.ssm, grid.plan, grid.prior_root, None)
        host = tabulate(frame, series)._replace(squares=None)
        out = run(grid, series, host, grid.roots_for(series), keep)
        mean, covariance = _in_units(grid, out.updates.first, out.updates.second)
        return Trace(
            log_likelihoods=out.updates.log_mass,
            mean=mean,
            covariance=covariance,
            codes=out.updates.code,
            seen=out.updates.seen,
            log_kept=out.log_kept,
            log_normalizers=out.log_kept,
            errors=None,
            last=Between(out.last, None),
            laws=out.kept,
        )

    def filtered(self, series: Series, trace: Trace) -> ClosedLaws:
        """p(x_t | y_1 ... y_t)."""
        kept: KeptSteps = trace.laws
        return ClosedLaws(self.on_nodes().filled, self.grid, series, kept)

    def predicted(self, series: Series, trace: Trace) -> AbstractLaws:
        """p(x_t | y before t), on nodes."""
        del trace
        nodes = self.on_nodes()
        return nodes.predicted(series, nodes.run(series, True))

    def smooth(self, series: Series, trace: Trace, lag: int | None, keep: bool) -> Smoothing:
        """On nodes."""
        del trace
        nodes = self.on_nodes()
        return nodes.smooth(series, nodes.run(series, True), lag, keep)

    def paths(
        self, series: Series, trace: Trace, key: PRNGKeyArray, num: int
    ) -> Float[Array, "n t d"]:
        """On nodes."""
        del trace
        nodes = self.on_nodes()
        return nodes.paths(series, nodes.run(series, True), key, num)

    def pair_law(self, series: Series, trace: Trace, laws: AbstractLaws, t: int) -> Array:
        """On nodes."""
        return self.on_nodes().pair_law(series, trace, laws, t)

    def ahead(self, last: Between, steps: Int[Array, " k"], rows: Inputs) -> Ahead:
        """On nodes, from the values of the law there."""
        out = self._as_it_is(last.law)
        at = KeptSteps(last.law.source, last.law.predicted, out.c, out.log_scale, last.law.used)
        nodes = self.on_nodes()
        plan = nodes.filled.plan
        values = values_at(self.grid, at, plan.nodes)
        return nodes.ahead(NodesLaw(values), steps, rows)

    def observed(
        self, laws: AbstractLaws, steps: Int[Array, " t"], rows: Inputs
    ) -> AbstractObservedLaws:
        """By quadrature over `observation_box`."""
        assert isinstance(laws, AbstractNodeLaws)
        return self.on_nodes().observed(laws, steps, rows)

    def transforms(self, series: Series, trace: Trace) -> Float[Array, " t"]:
        """On nodes."""
        del trace
        nodes = self.on_nodes()
        return nodes.transforms(series, nodes.run(series, True))
