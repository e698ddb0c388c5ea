"""Sums of Gaussians of fixed size: for sensors of any kind, and for noise too small for a grid."""

import time
from typing import ClassVar

import equinox as eqx
import numpy as np
from jaxtyping import Array, Float
from scipy import special

from ..._checks import as_count, is_traced
from ..._statespace.model import AdditiveGaussian, LinearGaussian, StateSpaceModel, Trait
from ..ability import Ability
from ..engine import AbstractEngine, Task
from ..gaussian.prior import prior_blocks
from ..model import AbstractModel
from ..numerics.obstacles import grid_obstacle, too_little_noise
from ..report import Report
from ..series import Series, as_series
from ..trace import Trace
from .any_sensor import AnySensorModel, RefillAny
from .linearized import LINEARIZED_ABILITIES, effort_for, linearized_notes
from .linearized import MAX_DIM as MAX_LINEARIZED
from .linearized import Refill as RefillLinearized
from .measured import measured_coordinates
from .refine import Effort
from .sensor import LEAST_ORDER, MAX_DIM, MOST_ORDER, SENSOR_ABILITIES, as_directions, sizes_for
from .sensor import Refill as RefillSensor


class Mixture(AbstractEngine):
    """Gaussians that are split where they bend and merged where they lie together, up to d = 6.

    Linear dynamics with any `log_observation`, whose observations tilt every Gaussian; or additive
    noise around nonlinear functions, each Gaussian with its own linearisation.

    Attributes:
        order: number of Gaussians that are kept; by default from the tolerance.
        measured: coordinates of the state that a `log_observation` depends on; by default found
            from its gradients with the data.
    """

    name: ClassVar[str] = "mixture"
    abilities: ClassVar[frozenset[Ability]] = LINEARIZED_ABILITIES | SENSOR_ABILITIES
    traits: ClassVar[frozenset[Trait]] = frozenset({Trait.VARYING_NOISE})
    order: int | None = eqx.field(static=True, default=None)
    measured: tuple[int, ...] | int | None = eqx.field(static=True, default=None)

    def refusal(self, ssm: StateSpaceModel, tol: float) -> str | None:
        """No Gaussian noise, too many coordinates, or a prior that is no mixture."""
        structure = ssm.structure
        if isinstance(structure, AdditiveGaussian):
            if (wide := _wide_angle(structure, tol)) is not None:
                return wide
            if ssm.dim <= MAX_LINEARIZED:
                return None
            return (
                f"the state must have at most {MAX_LINEARIZED} coordinates, got {ssm.dim}: points "
                "and splits grow with the square of that number. A particle filter may serve better"
            )
        if not isinstance(structure, LinearGaussian):
            return (
                "it needs linear-Gaussian dynamics, as linear_gaussian(...) makes them, or "
                "additive Gaussian noise, as additive_gaussian(...)"
            )
        if structure.H is not None:
            return 'the sensor is linear: engine="exact" needs no mixture'
        if ssm.dim > MAX_DIM:
            return (
                f"the state must have at most {MAX_DIM} coordinates for a log_observation, got "
                f"{ssm.dim}; a particle filter may serve better"
            )
        blocks = prior_blocks(structure)
        if blocks is None or not blocks.is_mixture:
            return (
                "prior must be Gaussian or a mixture of Gaussians (GaussianBlocks.mixture) for a "
                "log_observation with these dynamics"
            )
        return None

    def choice(self, ssm: StateSpaceModel, tol: float) -> str | None:
        """Where no grid can serve, or none of tolerable size."""
        structure = ssm.structure
        if structure is None or self.refusal(ssm, tol) is not None:
            return None
        if isinstance(structure, AdditiveGaussian):
            if structure.noise is not None:
                return str(Trait.VARYING_NOISE)
            if is_traced((structure, ssm.state_box)):
                return None
            obstacle = grid_obstacle(ssm)
            if obstacle is not None:
                return obstacle.partition(":")[0]
            return too_little_noise(ssm, structure.Q)
        if structure.prior_is_function:
            return None
        if ssm.dim <= 2 and not is_traced((structure, ssm.state_box)):
            return too_little_noise(ssm, structure.Q)
        return "linear-Gaussian dynamics with a log_observation, on all of R^d"

    def learn(self, task: Task) -> AbstractModel:
        """Choose sizes; nothing is fitted."""
        started, (ssm, tol, ys, inputs, reason) = time.perf_counter(), task
        if isinstance(ssm.structure, AdditiveGaussian):
            places, effort = effort_for(ssm.dim, tol, self.order)
            if ssm.structure.h is None:
                return self._any_sensor(task, places, effort)
            seconds, notes = time.perf_counter() - started, linearized_notes(effort)
            report = Report(self.name, reason, tol, seconds, order=places, notes=notes)
            return RefillLinearized(places, effort)(ssm, report)
        order, sizes = self._order(ssm, tol)
        notes = (
            ("order", "from tol" if self.order is None else "as given"),
            ("splits", f"up to {sizes.capacity} components at an observation"),
            ("compression", "merge, moments preserved"),
        )
        measured = None
        if self.measured is not None:
            matrix = measured_coordinates("measured", self.measured, ssm.dim)
            measured = as_directions(matrix)
        seconds = time.perf_counter() - started
        report = Report(self.name, reason, tol, seconds, order=order, notes=notes)
        model = RefillSensor(sizes, measured)(ssm, report)
        return model if ys is None else model.sized(as_series(ys, None, inputs=inputs))

    def _any_sensor(self, task: Task, places: int, effort: Effort) -> AnySensorModel:
        """Nonlinear dynamics with a log_observation."""
        measured = None
        if self.measured is not None:
            measured = as_directions(measured_coordinates("measured", self.measured, task.ssm.dim))
        notes = linearized_notes(effort)
        report = Report(self.name, task.reason, task.tol, 0.0, order=places, notes=notes)
        return RefillAny(places, effort, sizes_for(places, task.tol), measured)(task.ssm, report)

    def _order(self, ssm: StateSpaceModel, tol: float):
        structure = ssm.structure
        assert isinstance(structure, LinearGaussian)
        blocks = prior_blocks(structure)
        assert blocks is not None
        if self.order is None:
            wanted = 2 ** round(np.log2(32 * (0.01 / tol) ** (1 / 3)))
            order = int(np.clip(wanted, LEAST_ORDER, MOST_ORDER))
        else:
            order = as_count("order", self.order, least=4)
        if blocks.order > order:
            raise ValueError(
                f"order must be at least {blocks.order}, the order of the prior, got {order}"
            )
        return order, sizes_for(order, tol)

    def errors(self, model: AbstractModel, series: Series, trace: Trace) -> Float[Array, " t"]:
        """Errors of fits and compression, as far as the filter has not forgotten them."""
        del model, series
        assert trace.errors is not None
        return trace.errors


def _wide_angle(structure: AdditiveGaussian, tol: float) -> str | None:
    """Linearised sensors see angles by the shortest way only; why that is not enough, if so."""
    turns = structure.turns
    noise = structure.R
    if turns is None or noise is None or is_traced((noise, turns)):
        return None
    for axis in turns.axes:
        sd = float(np.sqrt(noise[axis, axis]))
        if special.erfc(float(turns.periods[axis]) / (2 * np.sqrt(2) * sd)) > 0.1 * tol:
            return (
                f"coordinate {axis} of y is an angle whose noise, of standard deviation {sd:.3g}, "
                "reaches half round: more turns than one count"
            )
    return None
