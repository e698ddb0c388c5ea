"""Likelihoods of linear-Gaussian regimes: who merges with whom is constant in derivatives."""

from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ... import _results
from ..._statespace.model import StateSpaceModel
from ..lattice.series import expanded
from ..model import AbstractFrozen, PlanCheck
from ..series import Series
from .run import Sizes, scan_rows
from .step import Outcome


class FrozenBranches(AbstractFrozen):
    """How many Gaussians there are."""

    has_plan: ClassVar[bool] = False
    sizes: Sizes = eqx.field(static=True)

    def _outcomes(self, ssm: StateSpaceModel, series: Series) -> Outcome:
        def one(series: Series) -> Outcome:
            rows = expanded(series).rows
            return scan_rows(ssm, rows, self.sizes, False)[1].outcome

        return jax.lax.map(one, series)

    def increments(
        self, ssm: StateSpaceModel, series: Series, forward: bool
    ) -> Float[Array, "s t"]:
        """log p(y_t | y before t) of stacked series."""
        del forward
        return self._outcomes(ssm, series).log_mass

    def evidence(
        self, ssm: StateSpaceModel, series: Series
    ) -> tuple[Float[Array, ""], PlanCheck, None]:
        """log p(y; theta), and what merging costs at theta."""
        out = self._outcomes(ssm, series)
        none, errors = jnp.zeros(()), jax.lax.stop_gradient(out.error)
        failed = jnp.any((out.code == _results.SINGULAR) | (out.code == _results.BAD_OBSERVATION))
        mean = jnp.mean(jnp.minimum(errors, 1.0))
        return jnp.sum(out.log_mass), PlanCheck(none, jnp.max(errors), mean, none, failed), None
