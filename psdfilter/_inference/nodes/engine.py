"""The default engine: learned PSD models, filtered at quadrature nodes with positive weights."""

from dataclasses import replace
from typing import ClassVar

import equinox as eqx
from jaxtyping import Array, Float

from ..._statespace.model import StateSpaceModel
from ..ability import Ability
from ..certificate.certificate import Certificate, certificate
from ..engine import AbstractEngine, Task
from ..model import AbstractModel
from ..numerics.obstacles import grid_obstacle
from ..series import Series
from ..trace import Trace
from .estimate import estimate_errors
from .learn import LEAST_TOL, Wish, learn_filled
from .model import ABILITIES, NodesModel

# Sizes of grids are multiples of this for likelihoods, by dimension: plans at other thetas, or for
# other data, then often have the same, and need not be compiled again.
_MULTIPLES = {1: 8, 2: 4}


class Nodes(AbstractEngine):
    """Quadrature nodes on the box, for one to four coordinates.

    Attributes:
        observation: "each" fits sqrt G(., y) for every observation when it comes; "joint" learns
            one PSD model of (x, y) on state_box times `observation_box`, which has closed forms for
            laws of y, for observations with gaps, and for a likelihood that integrates to one.
        renormalize: divide Q(u, .) by its mass on the box. By default the mass that leaves the box
            is measured and reported, and lowers the likelihood.
        multiple: numbers of nodes and anchors are multiples of this.
    """

    name: ClassVar[str] = "nodes"
    abilities: ClassVar[frozenset[Ability]] = ABILITIES
    observation: str = eqx.field(static=True, default="each")
    renormalize: bool = eqx.field(static=True, default=False)
    multiple: int = eqx.field(static=True, default=1)

    def __check_init__(self):
        if self.observation not in ("each", "joint"):
            raise ValueError(f'observation must be "each" or "joint", got {self.observation!r}')

    def refusal(self, ssm: StateSpaceModel, tol: float) -> str | None:
        """Noise without a density, no box at all, or a tolerance below rounding."""
        if tol < LEAST_TOL:
            return (
                f"tol must be at least {LEAST_TOL:g} on quadrature nodes, got {tol:g}: rounding in "
                "double precision leaves errors of that size"
            )
        return grid_obstacle(ssm)

    def choice(self, ssm: StateSpaceModel, tol: float) -> str | None:
        """Whatever no engine before it has taken."""
        del ssm, tol
        return "densities on a box"

    def learn(self, task: Task) -> NodesModel:
        """Learn Q and the prior as PSD models, sized so that the filter's error is below `tol`."""
        wish = Wish(self.observation == "joint", self.renormalize, self.multiple)
        learned = learn_filled(task, wish)
        return NodesModel.of(learned, self.multiple)

    def errors(self, model: AbstractModel, series: Series, trace: Trace) -> Float[Array, " t"]:
        """By a second filter on a plan for a thirtieth of the tolerance."""
        assert isinstance(model, NodesModel)
        if trace.laws is None:
            raise ValueError('an error estimate needs the densities: filter with keep="densities"')
        return estimate_errors(model.filled, model.filtered(series, trace), series)

    def certify(self, model: AbstractModel, series: Series, trace: Trace) -> Certificate:
        """Bounds and estimates, step by step."""
        assert isinstance(model, NodesModel)
        return certificate(model.filtered(series, trace), trace.codes)

    def for_likelihoods(self, dim: int) -> "tuple[Nodes, ...]":
        """Sizes in larger steps."""
        return (replace(self, multiple=_MULTIPLES.get(dim, 2)),)
