"""The engine that controls its error step by step; the default on a line and in the plane."""

import time
from typing import ClassVar

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..._checks import is_traced
from ..._statespace.hoisting import hoisted
from ..._statespace.model import Inputs, StateSpaceModel
from ..ability import Ability
from ..certificate.certificate import Certificate
from ..engine import AbstractEngine, Task
from ..model import AbstractModel
from ..nodes.engine import Nodes
from ..report import Report
from ..series import Series
from ..trace import Trace
from .base import ABILITIES, AbstractAdaptive
from .looked import look_at
from .model import AdaptiveModel
from .plan import adaptive_obstacle, plan_for
from .plane.model import PlaneModel


class Adaptive(AbstractEngine):
    """Nodes chosen at every step, exact values of Q and G, an error estimate of every step; d <= 2.

    No box is needed, and outliers, heavy tails, kinks and jumps cost nodes instead of accuracy.
    """

    name: ClassVar[str] = "adaptive"
    abilities: ClassVar[frozenset[Ability]] = ABILITIES
    roams: ClassVar[bool] = True

    def refusal(self, ssm: StateSpaceModel, tol: float) -> str | None:
        """Several coordinates, traced numbers, or noise without a density."""
        if is_traced(ssm):
            return "it looks at every step and cannot be traced: learn outside jit"
        return adaptive_obstacle(ssm, tol)

    def choice(self, ssm: StateSpaceModel, tol: float) -> str | None:
        """On a line and in the plane, wherever it can serve."""
        if self.refusal(ssm, tol) is not None:
            return None
        where = "on a line" if ssm.dim == 1 else "in the plane"
        return f"a state {where}: errors are controlled step by step"

    def learn(self, task: Task) -> AbstractAdaptive:
        """Nothing to learn: the model's own densities are evaluated as they are needed."""
        started, ssm = time.perf_counter(), hoisted(task.ssm, _first_row(task.inputs))
        plan = plan_for(task.tol)
        look_at(ssm, task.inputs)
        kind, nodes = AdaptiveModel, f"{plan.capacities[0]} at a time, more where a step needs them"
        if ssm.dim == 2:
            kind, nodes = PlaneModel, "a lattice, chosen at every step"
        seconds = time.perf_counter() - started
        report = Report(self.name, task.reason, task.tol, seconds, notes=(("nodes", nodes),))
        return kind(ssm=ssm, plan=plan, report=report)

    def errors(self, model: AbstractModel, series: Series, trace: Trace) -> Float[Array, " t"]:
        """Those of every step, carried through the filter."""
        del model, series
        assert trace.errors is not None
        return jnp.asarray(trace.errors)

    def certify(self, model: AbstractModel, series: Series, trace: Trace) -> Certificate:
        """That of the filter on a fixed plan, whose learned densities have an error to prove."""
        del trace
        assert isinstance(model, AbstractAdaptive)
        fixed = model.fixed()
        return Nodes().certify(fixed, series, fixed.run(series, True))

    def for_likelihoods(self, dim: int) -> tuple[AbstractEngine, ...]:
        """A fixed plan, which can be filled for every theta; on a line, windows of a run."""
        fixed = Nodes().for_likelihoods(dim)
        return (*fixed, self) if dim == 1 else fixed

    def judges(self, ssm: StateSpaceModel) -> bool:
        """On a line; in the plane where a filter takes no longer than making a likelihood."""
        return not ssm.vectorized and (ssm.dim == 1 or ssm.structure is not None)


def _first_row(inputs: Inputs) -> Inputs:
    return jax.tree.map(lambda a: jnp.asarray(a)[0], inputs)
