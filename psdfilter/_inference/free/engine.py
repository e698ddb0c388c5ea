"""The engine of learned free shapes: few Gaussians, each with a width and a tilt of its own."""

from typing import ClassVar

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..._statespace.model import StateSpaceModel
from ..ability import Ability
from ..engine import AbstractEngine, Task
from ..model import AbstractModel
from ..numerics.obstacles import grid_obstacle
from ..series import Series
from ..trace import Trace
from .learn import free_obstacle, learn_free_shapes
from .model import ABILITIES, FreeModel


class Free(AbstractEngine):
    """Q learned once as the square of few Gaussians with free shapes, for d <= 2.

    Much slower than nodes; never chosen by itself.

    Attributes:
        observation: "each" takes sqrt G(., y) when y comes; "joint" learns G over (x, y).
        order: number of Gaussians that are kept; by default 64 on a line, 160 in the plane.
    """

    name: ClassVar[str] = "free"
    abilities: ClassVar[frozenset[Ability]] = ABILITIES
    observation: str = eqx.field(static=True, default="each")
    order: int | None = eqx.field(static=True, default=None)

    def __check_init__(self):
        if self.observation not in ("each", "joint"):
            raise ValueError(f'observation must be "each" or "joint", got {self.observation!r}')

    def refusal(self, ssm: StateSpaceModel, tol: float) -> str | None:
        """Too many coordinates, or densities that change from step to step."""
        del tol
        return free_obstacle(ssm, self.observation == "joint") or grid_obstacle(ssm)

    def learn(self, task: Task) -> FreeModel:
        """Learn Q, the prior and, jointly, G."""
        joint = self.observation == "joint"
        return learn_free_shapes(task.ssm, task.tol, joint, self.order, task.reason)

    def errors(self, model: AbstractModel, series: Series, trace: Trace) -> Float[Array, " t"]:
        """Errors that the steps up to t have added, fits and projections, as a sum."""
        del model, series
        assert trace.errors is not None
        return jnp.cumsum(trace.errors)
