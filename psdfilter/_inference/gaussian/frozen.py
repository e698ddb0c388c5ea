"""Likelihoods of models on R^d: there is no plan that could cease to serve."""

from collections.abc import Callable
from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ... import _results
from ..._statespace.model import StateSpaceModel
from ..model import AbstractFrozen, AbstractModel, PlanCheck
from ..report import Report
from ..series import Series
from ..trace import Trace


class FrozenGaussian(AbstractFrozen):
    """How a model is made of a state-space model whose numbers may be traced."""

    has_plan: ClassVar[bool] = False
    make: Callable[[StateSpaceModel, Report], AbstractModel] = eqx.field(static=True)
    report: Report = eqx.field(static=True)

    def _traces(self, ssm: StateSpaceModel, series: Series) -> Trace:
        model = self.make(ssm, self.report)
        # One after the other: where `vmap` is at work, both branches of a condition are taken.
        return jax.lax.map(lambda one: model.run(one, False), series)

    def increments(
        self, ssm: StateSpaceModel, series: Series, forward: bool
    ) -> Float[Array, "s t"]:
        """log p(y_t | y before t) of stacked series."""
        del forward
        return self._traces(ssm, series).log_likelihoods

    def evidence(
        self, ssm: StateSpaceModel, series: Series
    ) -> tuple[Float[Array, ""], PlanCheck, None]:
        """log p(y; theta), and whether every step had one."""
        trace = self._traces(ssm, series)
        codes: Array = trace.codes
        none = jnp.zeros(())
        failed = jnp.any((codes == _results.NO_MASS) | (codes == _results.BAD_OBSERVATION))
        # The value still has most of its digits; a model made at this theta keeps all of them.
        error = jnp.where(jnp.any(codes == _results.IMPRECISE), jnp.inf, none)
        total = jnp.sum(trace.log_likelihoods)
        return total, PlanCheck(none, error, none, none, failed), None
