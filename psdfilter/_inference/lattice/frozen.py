"""Likelihoods of parameters on lattices: windows follow the law, constants in derivatives."""

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
    """Nodes of each axis, the mass that windows leave out, and rows of one time."""

    has_plan: ClassVar[bool] = False
    num: int = eqx.field(static=True)
    eps: float = eqx.field(static=True)
    sensors: int = eqx.field(static=True)

    def _kept(self, ssm: StateSpaceModel, series: Series) -> Kept:
        space, eps = space_of(ssm), jnp.asarray(self.eps)

        def one(series: Series) -> Kept:
            wide = expanded(series, self.sensors)
            options = self.num, wide.sensors, False
            kept = scan_rows(ssm, space, eps, wide.rows, options)[1]
            kept = jax.tree.map(lambda a: a[wide.places], kept)
            return kept._replace(code=jnp.where(wide.fits, kept.code, _results.NO_MASS))

        return jax.lax.map(one, series)

    def increments(
        self, ssm: StateSpaceModel, series: Series, forward: bool
    ) -> Float[Array, "s t"]:
        """log p(y_t | y before t) of stacked series."""
        del forward
        return self._kept(ssm, series).log_likelihood

    def evidence(
        self, ssm: StateSpaceModel, series: Series
    ) -> tuple[Float[Array, ""], PlanCheck, None]:
        """log p(y; theta), and the errors of all steps."""
        kept = self._kept(ssm, series)
        errors = jax.lax.stop_gradient(kept.error)
        none = jnp.zeros(())
        failed = jnp.any((kept.code == _results.NO_MASS) | (kept.code == _results.BAD_OBSERVATION))
        mean = jnp.mean(jnp.minimum(errors, 1.0))
        check = PlanCheck(none, jnp.max(errors), mean, none, failed)
        return jnp.sum(kept.log_likelihood), check, None
