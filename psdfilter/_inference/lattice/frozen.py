"""Likelihoods of parameters on lattices: windows follow the law, and are constants in derivatives."""

from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ... import _results
from ..._statespace.model import StateSpaceModel
from ..model import AbstractFrozen, PlanCheck
from ..series import Series
from .run import Kept, scan_rows
from .series import expanded
from .space import space_of


class FrozenLattice(AbstractFrozen):
    """Nodes of each axis, and the mass that windows leave out."""

    has_plan: ClassVar[bool] = True
    num: int = eqx.field(static=True)
    eps: float = eqx.field(static=True)

    def _kept(self, ssm: StateSpaceModel, series: Series) -> Kept:
        space = space_of(ssm)
        eps = jnp.asarray(self.eps)
        each = []
        for s in range(series.ys.shape[0]):
            wide = expanded(jax.tree.map(lambda a, s=s: a[s], series))
            options = self.num, wide.sensors, False
            kept = scan_rows(ssm, space, eps, wide.rows, options)[1]
            each.append(jax.tree.map(lambda a, at=wide.places: a[at], kept))
        return jax.tree.map(lambda *a: jnp.stack(a), *each)

    def increments(
        self, ssm: StateSpaceModel, series: Series, forward: bool
    ) -> Float[Array, "s t"]:
        """log p(y_t | y before t) of stacked series."""
        del forward
        return self._kept(ssm, series).log_likelihood

    def evidence(
        self, ssm: StateSpaceModel, series: Series
    ) -> tuple[Float[Array, ""], PlanCheck, Float[Array, "s t"]]:
        """log p(y; theta), and the errors of all steps."""
        kept = self._kept(ssm, series)
        errors = jax.lax.stop_gradient(kept.error)
        none = jnp.zeros(())
        failed = jnp.any((kept.code == _results.NO_MASS) | (kept.code == _results.BAD_OBSERVATION))
        mean = jnp.mean(jnp.minimum(errors, 1.0))
        check = PlanCheck(none, jnp.max(errors), mean, none, failed)
        return jnp.sum(kept.log_likelihood), check, errors

    def merged(self, other: AbstractFrozen) -> "FrozenLattice":
        """The closer look of both."""
        assert isinstance(other, FrozenLattice)
        return FrozenLattice(max(self.num, other.num), min(self.eps, other.eps))

    def unresolved(self, facts: Float[Array, "s t"]) -> Float[Array, "s t"]:
        """The errors of all steps."""
        return facts
