"""The engine of models with regimes, and of states with angles, on a line or in the plane."""

import time
from typing import ClassVar

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..._checks import as_count, is_concrete, is_traced
from ..._statespace.model import StateSpaceModel, Trait
from ..ability import Ability
from ..engine import AbstractEngine, Task
from ..model import AbstractModel
from ..report import Report
from ..series import Series
from ..trace import Trace
from .model import ABILITIES, LatticeModel
from .plan import MOST, Plan
from .space import space_of
from .values import parts_of

# Nodes of each axis to begin with, by the number of coordinates.
_FIRST = {1: 128, 2: 24}
# What windows leave out, of the tolerance.
_LEFT_OUT = 1e-4
_LEAST_TOL = 1e-9


class Lattice(AbstractEngine):
    """Regime and state on lattices that follow them: exact values of Q and G, d <= 2.

    Serves models with regimes (`switching`), states with periodic axes, sensors that take the state
    before, and plain models if asked for. The error of every step is estimated.

    Attributes:
        nodes: of each axis, to begin with; more are taken where a series asks for them.
    """

    name: ClassVar[str] = "lattice"
    abilities: ClassVar[frozenset[Ability]] = ABILITIES
    traits: ClassVar[frozenset[Trait]] = frozenset(
        {Trait.REGIMES, Trait.PERIODIC, Trait.STATE_BEFORE}
    )
    nodes: int | None = None

    def refusal(self, ssm: StateSpaceModel, tol: float) -> str | None:
        """More than two coordinates, NumPy functions, or noise without a density."""
        if ssm.dim > max(MOST):
            return f"it serves states of one or two coordinates, got {ssm.dim}"
        if ssm.vectorized:
            return "it needs a model written in JAX, got NumPy functions"
        if tol < _LEAST_TOL:
            return f"tol must be at least {_LEAST_TOL:g}, got {tol:g}"
        for k, model in enumerate(parts_of(ssm)):
            form = model.structure
            if form is None:
                continue
            where = "" if ssm.regimes is None else f" of regime {k}"
            for name, matrix in (("Q", form.Q), ("P0", form.P0)):
                if matrix is None or not is_concrete(matrix):
                    continue
                if float(np.linalg.eigvalsh(np.asarray(matrix))[0]) <= 0:
                    return f"{name}{where} is singular, so that the state has no density"
        return None

    def choice(self, ssm: StateSpaceModel, tol: float) -> str | None:
        """For models with regimes, angles or sensors of two states, where it can serve."""
        if not ssm.traits or self.refusal(ssm, tol) is not None:
            return None
        what = " and ".join(sorted(ssm.traits))
        return f"a model with {what}: exact values on lattices that follow the state"

    def learn(self, task: Task) -> LatticeModel:
        """Nothing to learn: the model's own densities are evaluated as they are needed."""
        started, ssm = time.perf_counter(), task.ssm
        if not is_traced(ssm):
            _check_circles(ssm)
        num = _FIRST[ssm.dim] if self.nodes is None else 4 * -(-as_count("nodes", self.nodes) // 4)
        plan = Plan(num, _LEFT_OUT * task.tol)
        notes = [("nodes", f"{num} on each axis, more where a series needs them")]
        if ssm.regimes is not None:
            notes.insert(0, ("regimes", str(ssm.regimes.num)))
        seconds = time.perf_counter() - started
        report = Report(self.name, task.reason, task.tol, seconds, notes=tuple(notes))
        return LatticeModel(ssm=ssm, space=space_of(ssm), plan=plan, report=report)

    def errors(self, model: AbstractModel, series: Series, trace: Trace) -> Float[Array, " t"]:
        """Those of every step, carried through the filter."""
        del model, series
        assert trace.errors is not None
        return jnp.asarray(trace.errors)


def _check_circles(ssm: StateSpaceModel) -> None:
    """Functions of a user's own must agree at both ends of a circle."""
    box = ssm.state_box
    for model in parts_of(ssm):
        if model.structure is not None:
            continue
        for axis in box.periodic:
            middle = np.asarray(box.center)
            ends = [middle.copy(), middle.copy()]
            ends[0][axis], ends[1][axis] = float(box.lower[axis]), float(box.upper[axis])
            low, high = (float(model.log_prior(jnp.asarray(end))) for end in ends)
            if not np.isclose(low, high, rtol=1e-6, atol=1e-6):
                raise ValueError(
                    f"log_prior must agree at both ends of axis {axis}, which is periodic, got "
                    f"{low:.6g} at {ends[0][axis]:.6g} and {high:.6g} at {ends[1][axis]:.6g}: "
                    "write it, and log_transition, in sines and cosines of differences"
                )
