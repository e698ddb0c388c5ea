"""What learned models of the adaptive engine share, on a line and in the plane."""

from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PyTree

from ..._checks import is_traced
from ..._density.box import Box
from ..._statespace.hoisting import hoisted
from ..._statespace.model import StateSpaceModel
from ..ability import Ability
from ..engine import Task
from ..laws import AbstractLaws
from ..model import AbstractModel
from ..nodes.engine import Nodes
from ..nodes.learn import LEAST_TOL
from ..nodes.model import NodesModel
from ..numerics.compiled import remembered
from ..report import Report
from ..series import Series, is_partly
from ..sizing.plan import Unaffordable
from ..trace import Observation, Trace, held_to
from .known import known_width
from .trace import AdaptivePlan

ABILITIES = frozenset(
    {
        Ability.INPUTS,
        Ability.PARTLY_MISSING,
        Ability.SMOOTHER,
        Ability.LAG,
        Ability.SMOOTHED_SUMMARIES,
        Ability.PAIRS,
        Ability.OBSERVED_LAWS,
        Ability.ERRORS,
        Ability.CERTIFICATE,
        Ability.GRADIENTS,
    }
)


class AbstractAdaptive(AbstractModel):
    """Nothing is fitted: a state-space model, and what its steps are held to."""

    engine: ClassVar[str] = "adaptive"
    ssm: StateSpaceModel = eqx.field(converter=hoisted)
    plan: AdaptivePlan = eqx.field(static=True)
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
        """Number of coordinates of an observation, if a box or a sampler tells."""
        return known_width(self.ssm)

    @property
    def abilities(self) -> frozenset[Ability]:
        """Laws of y, and observations with gaps, only where the box of y is known."""
        missing = {Ability.GRADIENTS} if self.dim > 1 else set()
        if not self.ssm.has_seen_laws:
            missing.add(Ability.OBSERVED_LAWS)
        if self.ssm.observation_box is None and not self.ssm.marginalizes_missing:
            missing.add(Ability.PARTLY_MISSING)
        return ABILITIES - missing

    def why_not(self, ability: Ability) -> str | None:
        """The box of y is what is missing."""
        if ability in (Ability.OBSERVED_LAWS, Ability.PARTLY_MISSING):
            return (
                f"{ability} needs observation_box: say where y lives, "
                "StateSpaceModel(..., observation_box=psdfilter.Box(lower, upper)), or for laws of "
                "y how to draw it, sample_observation=lambda key, x: ..."
            )
        return None

    def fixed(self) -> NodesModel:
        """The model on a fixed plan, learned when it is first asked for."""
        ssm, tol = self.ssm, self.report.tol

        def make() -> NodesModel:
            with jax.ensure_compile_time_eval():
                return Nodes().learn(Task(ssm, tol, reason="series that are traced"))

        return remembered(self, NodesModel, make)

    def batched(self) -> NodesModel | None:
        """The model on a fixed plan, if its functions can be traced and there is one.

        With a tenth of the tolerance: a plan is sized by typical data, and among thousands of
        series many have a step or two that are not.
        """
        return None if self.ssm.vectorized else self._on_a_plan(10, 1.0)

    def finer(self) -> NodesModel | None:
        """The same on a finer plan, on a wider box if nobody gave one: for what is not typical."""
        return self._on_a_plan(100, 1.5)

    def _on_a_plan(self, share: int, width: float) -> NodesModel | None:
        ssm, tol = self.ssm, max(self.report.tol / share, LEAST_TOL)
        if ssm.structure is not None and not ssm.structure.boxed and width != 1:
            box = ssm.state_box
            wider = Box(box.center - width * box.half_width, box.center + width * box.half_width)
            ssm = eqx.tree_at(lambda m: m.state_box, ssm, wider)

        def make() -> NodesModel | None:
            with jax.ensure_compile_time_eval():
                try:
                    return Nodes().learn(Task(ssm, tol, reason="many series side by side"))
                except Unaffordable:  # as for a state that is known at the start
                    return None

        return remembered(self, ("batched", share), make)

    def sized(self, series: Series) -> AbstractModel:
        """Itself; the model on a fixed plan for a traced series, and for gaps by quadrature."""
        by_quadrature = series.partly and not self.ssm.marginalizes_missing
        traced = is_traced((series.ys, series.steps, series.rows))
        if traced:
            return self.batched() or self.fixed()
        return self.fixed() if by_quadrature else self

    def run_elsewhere(self, sized: AbstractModel, series: Series, keep: bool) -> Trace:
        """By a fixed plan, whose steps are watched: one that misses has a code."""
        trace = sized.watched(series, keep)
        if trace.errors is None:
            return trace
        return trace._replace(codes=held_to(trace.codes, trace.errors, self.tol))

    def refuse_gaps(self, y: Observation) -> None:
        """Single steps do not integrate over missing coordinates."""
        if is_partly(np.atleast_2d(np.asarray(y))) and not self.ssm.marginalizes_missing:
            raise ValueError(
                f"y must be complete, or missing as a whole, got {np.asarray(y)}: online steps of "
                'engine "adaptive" take gaps only from models with marginalizes_missing=True; '
                'learn with engine="nodes" for a quadrature over observation_box'
            )

    def pair_law(self, series: Series, trace: Trace, laws: AbstractLaws, t: int) -> Array:
        """On a fixed plan."""
        del trace, laws
        fixed = self.fixed()
        trace = fixed.run(series, True)
        again = fixed.smooth(series, trace, None, True).laws
        return fixed.pair_law(series, trace, again, t)

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


def refuse_tracing(parts: PyTree) -> None:
    """Steps look at numbers."""
    if is_traced(parts):
        raise ValueError(
            'online steps of engine "adaptive" look at every step and cannot be traced: learn with '
            'engine="nodes" for steps under jit, vmap or scan'
        )
