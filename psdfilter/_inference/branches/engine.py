"""The engine of linear-Gaussian regimes in any dimension."""

import time
from typing import ClassVar

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..._checks import as_count
from ..._statespace.model import LinearGaussian, StateSpaceModel, Trait
from ..._statespace.regimes import ConstantMatrix
from ..ability import Ability
from ..engine import AbstractEngine, Task
from ..gaussian.prior import prior_blocks
from ..model import AbstractModel
from ..report import Report
from ..series import Series
from ..trace import Trace
from .model import ABILITIES, BranchModel
from .run import Sizes, forms_of

# Gaussians of each regime to begin with.
_FIRST = 8
# Of the tolerance, what a step may drop.
_DROPPED = 1e-3


class Branches(AbstractEngine):
    """Linear-Gaussian regimes: Gaussians branch with the regimes and merge after each observation.

    The error of every step is estimated from a filter of half as many that runs beside it.

    Attributes:
        order: Gaussians of each regime; by default as many as a series asks for, 128 at most.
    """

    name: ClassVar[str] = "branches"
    abilities: ClassVar[frozenset[Ability]] = ABILITIES
    traits: ClassVar[frozenset[Trait]] = frozenset({Trait.REGIMES})
    order: int | None = eqx.field(static=True, default=None)

    def refusal(self, ssm: StateSpaceModel, tol: float) -> str | None:
        """Anything that is not linear and Gaussian in every regime, or switches by the state."""
        del tol
        if ssm.regimes is None:
            return "the model has no regimes: psdfilter.switching makes one that has"
        for k, model in enumerate(ssm.regimes.models):
            form = model.structure
            if not isinstance(form, LinearGaussian) or form.H is None:
                return (
                    f"regime {k} must have linear-Gaussian dynamics and a linear sensor, as "
                    "linear_gaussian(F, Q, H, R, m0, P0) makes them"
                )
            if form.boxed:
                return f"regime {k} must live on all of R^d, but a state_box was given"
            blocks = prior_blocks(form)
            if blocks is None or not blocks.is_mixture:
                return f"the prior of regime {k} must be Gaussian or a mixture of Gaussians"
        if not isinstance(ssm.regimes.P, ConstantMatrix):
            return "P must be a matrix, got a function of the state"
        return None

    def choice(self, ssm: StateSpaceModel, tol: float) -> str | None:
        """In the plane and beyond, and where noise has no density; on a line lattices are exact."""
        if ssm.regimes is None or self.refusal(ssm, tol) is not None:
            return None
        noises = [np.linalg.eigvalsh(np.asarray(m))[0] for f in forms_of(ssm) for m in (f.Q, f.P0)]
        if ssm.dim == 1 and min(noises) > 0:
            return None
        return "linear-Gaussian regimes, on all of R^d"

    def learn(self, task: Task) -> BranchModel:
        """Nothing to learn: the matrices are the model."""
        started, ssm = time.perf_counter(), task.ssm
        order = _FIRST if self.order is None else as_count("order", self.order)
        largest = max(blocks.order for f in forms_of(ssm) if (blocks := prior_blocks(f)))
        if order < largest:
            if self.order is not None:
                raise ValueError(
                    f"order must be at least {largest}, that of a prior, got {self.order}"
                )
            order = largest
        assert ssm.regimes is not None
        more = "more where a series needs them" if self.order is None else "as given"
        notes = (("regimes", str(ssm.regimes.num)), ("Gaussians", f"{order} of each, {more}"))
        seconds = time.perf_counter() - started
        report = Report(self.name, task.reason, task.tol, seconds, order=order, notes=notes)
        sizes = Sizes(order, _DROPPED * task.tol)
        return BranchModel(ssm=ssm, sizes=sizes, fixed=self.order is not None, report=report)

    def errors(self, model: AbstractModel, series: Series, trace: Trace) -> Float[Array, " t"]:
        """What both filters differ by."""
        del model, series
        assert trace.errors is not None
        return jnp.asarray(trace.errors)
