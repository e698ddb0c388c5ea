"""The exact engine: Kalman's filter for every component of the prior, in any dimension."""

import time
from typing import ClassVar

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..._checks import is_concrete
from ..._statespace.model import LinearGaussian, StateSpaceModel
from ..ability import Ability
from ..engine import AbstractEngine, Task
from ..gaussian.linear import MAX_SPREAD
from ..gaussian.prior import prior_bank, prior_order
from ..model import AbstractModel
from ..report import Report
from ..series import Series
from ..trace import Trace
from .model import ABILITIES, ExactModel, exact_of
from .spread import widest_observation
from .varying import VARYING_ABILITIES, VaryingModel, varying_of

# An eigenvalue of a covariance below this share of the largest is none.
_SINGULAR = 1e-14


class Exact(AbstractEngine):
    """Linear-Gaussian dynamics and sensor on all of R^d, any dimension; no tolerance is needed."""

    name: ClassVar[str] = "exact"
    abilities: ClassVar[frozenset[Ability]] = ABILITIES | VARYING_ABILITIES

    def refusal(self, ssm: StateSpaceModel, tol: float) -> str | None:
        """Anything that is not linear and Gaussian, or a prior that is only a function."""
        del tol
        structure = ssm.structure
        if ssm.varying is not None:
            return None
        if not isinstance(structure, LinearGaussian) or structure.H is None:
            return (
                "it needs linear-Gaussian dynamics and a linear sensor, as "
                "linear_gaussian(F, Q, H, R, m0, P0) makes them"
            )
        if prior_order(structure) is None:
            return (
                "it needs a prior that is Gaussian or a PSD model, got a function: learn one from "
                "it with learn_rank_one, and pass its model as prior="
            )
        return None

    def choice(self, ssm: StateSpaceModel, tol: float) -> str | None:
        """Whenever it can serve, unless the state lives on a box that nodes can honour."""
        if ssm.varying is not None:
            return "linear-Gaussian dynamics that change with time, and a linear sensor"
        structure = ssm.structure
        if not isinstance(structure, LinearGaussian) or self.refusal(ssm, tol) is not None:
            return None
        # A box in one or two dimensions is a statement about the model.
        if structure.boxed and ssm.dim <= 2:
            return None
        return "linear-Gaussian dynamics and sensor, on all of R^d"

    def learn(self, task: Task) -> ExactModel | VaryingModel:
        """Nothing to learn: the matrices are the model."""
        started, ssm = time.perf_counter(), task.ssm
        if ssm.varying is not None:
            return varying_of(ssm, Report(self.name, task.reason, task.tol, 0.0, order=1))
        structure = ssm.structure
        assert isinstance(structure, LinearGaussian)
        assert structure.H is not None
        notes = [("sensor", f"linear, {structure.H.shape[0]} of y on {ssm.dim} of x")]
        if singular := _singular(structure):
            notes.append(("singular", ", ".join(singular) + " (no inverse of these is taken)"))
        start = prior_bank(structure)
        assert start is not None
        spread = widest_observation(structure, start[0].covariances)
        if roots := spread > MAX_SPREAD:
            notes.append(
                (
                    "square roots",
                    f"of covariances: var y / noise up to {spread:.0e}",
                )
            )
        seconds = time.perf_counter() - started
        report = Report(
            self.name,
            task.reason,
            task.tol,
            seconds,
            order=prior_order(structure),
            notes=tuple(notes),
        )
        return exact_of(structure, report, roots)

    def errors(self, model: AbstractModel, series: Series, trace: Trace) -> Float[Array, " t"]:
        """None."""
        del model, trace
        return jnp.zeros(series.num)


def _singular(structure: LinearGaussian) -> list[str]:
    """Names of the covariances that have no inverse, as far as they can be looked at."""
    names = []
    covariances = {"Q": structure.Q, "R": structure.R, "P0": structure.P0}
    for name, matrix in covariances.items():
        if matrix is None or not is_concrete(matrix):
            continue
        values = np.linalg.eigvalsh(np.asarray(matrix))
        if values[0] <= _SINGULAR * max(values[-1], 0.0):
            names.append(name)
    return names
