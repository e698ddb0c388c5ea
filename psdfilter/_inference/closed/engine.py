"""Engines without quadrature: error functions on a grid, and Algorithm 2 to the letter."""

import time
from abc import abstractmethod
from typing import ClassVar

from jaxtyping import Array, Float

from ..._statespace.model import StateSpaceModel
from ..ability import Ability
from ..certificate.certificate import Certificate, certificate
from ..engine import AbstractEngine, Task
from ..model import AbstractModel
from ..nodes.estimate import estimate_errors
from ..numerics.obstacles import grid_obstacle
from ..report import Report
from ..series import Series
from ..sizing.host import one_step_error
from ..trace import Trace
from .learned import LearnedOnGrid
from .model import ABILITIES, ClosedModel
from .plan import closed_obstacle, learn_axes, shared_plan
from .recursion import Grid
from .reference import REFERENCE_ABILITIES, ReferenceModel


def _learn_grid(task: Task, name: str) -> tuple[Grid, Report]:
    started, (ssm, tol, ys, inputs, reason) = time.perf_counter(), task
    axes, paths = learn_axes(ssm, tol, ys, inputs)
    plan = shared_plan(ssm.state_box, axes, tol)
    error, norm = one_step_error(plan, ssm, paths, inputs)
    grid = Grid.of(ssm, plan)
    sizes = tuple(axis.num for axis in axes)
    note = f"{' x '.join(map(str, sizes))} for u, x, sqrt G and the prior"
    report = Report(
        engine=name,
        reason=reason,
        tol=tol,
        seconds=time.perf_counter() - started,
        order=int(grid.prior_root.size),
        one_step_error=error,
        coefficient_norm=norm,
        leak=paths.leak,
        time_varying=ssm.is_time_varying,
        notes=(("anchors", f"{note}, eta h^2 = {axes[0].spread:.2f}"),),
    )
    return grid, report


class _OnGrid(AbstractEngine):
    """One grid per axis for Q and the prior; never chosen by itself, since nodes are faster."""

    def refusal(self, ssm: StateSpaceModel, tol: float) -> str | None:
        """Too many coordinates, too small a tolerance, or no density at all."""
        return closed_obstacle(ssm, tol) or grid_obstacle(ssm)

    def learn(self, task: Task) -> AbstractModel:
        """Learn Q and the prior on one grid per axis."""
        return self._model(*_learn_grid(task, self.name))

    @abstractmethod
    def _model(self, grid: Grid, report: Report) -> AbstractModel:
        """The model of what was learned on a grid."""


class Closed(_OnGrid):
    """Error functions on grid midpoints and no quadrature, for d <= 2; slower than nodes."""

    name: ClassVar[str] = "closed"
    abilities: ClassVar[frozenset[Ability]] = ABILITIES

    def _model(self, grid: Grid, report: Report) -> ClosedModel:
        return ClosedModel(grid=grid, report=report)

    def errors(self, model: AbstractModel, series: Series, trace: Trace) -> Float[Array, " t"]:
        """Against a filter on nodes with a plan for a thirtieth of the tolerance."""
        assert isinstance(model, ClosedModel)
        laws = model.filtered(series, trace)
        return estimate_errors(laws.model, laws, series)

    def certify(self, model: AbstractModel, series: Series, trace: Trace) -> Certificate:
        """That of the filter on nodes with the same learned densities."""
        assert isinstance(model, ClosedModel)
        nodes = model.on_nodes()
        again = nodes.run(series, True)
        return certificate(nodes.filtered(series, again), again.codes)


class Reference(_OnGrid):
    """Algorithm 2 with the generic operations on PSD models: every weight matrix is formed.

    For small orders: the cost of a step grows like M_Q^4 M_G^2.
    """

    name: ClassVar[str] = "reference"
    abilities: ClassVar[frozenset[Ability]] = REFERENCE_ABILITIES

    def _model(self, grid: Grid, report: Report) -> ReferenceModel:
        filled = ClosedModel(grid=grid, report=report).on_nodes().filled
        return ReferenceModel(learned=LearnedOnGrid(filled), report=report)
