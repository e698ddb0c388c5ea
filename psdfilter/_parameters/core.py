"""What is compiled of a likelihood: pure functions of theta.

Two cores of equal sizes share their programs, because nothing in them is static but what `build` is
and how the series are laid out.
"""

from collections.abc import Callable

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from .._inference.model import AbstractFrozen, PlanCheck
from .._inference.series import Series
from .._statespace.functions import AbstractFunction
from .._statespace.inside import inside
from .._statespace.model import StateSpaceModel
from .theta import Theta

Build = Callable[[Theta], StateSpaceModel]


class Core(eqx.Module):
    """theta -> increments and likelihood, on what a learned model has decided."""

    build: AbstractFunction
    frozen: AbstractFrozen
    series: Series  # stacked over the series
    rows: tuple[tuple[int, ...], ...] = eqx.field(static=True)  # those that are observations

    def increments(self, theta: Theta, forward: bool = False) -> list[Float[Array, " t"]]:
        """log p(y_t | y_1 ... y_{t-1}; theta) of every series.

        `forward`: for forward differentiation, which has no use for the custom reverse pass.
        """
        logs = self.frozen.increments(inside(self.build(theta)), self.series, forward)
        return self._picked(logs)

    def increments_of(self, facts: PyTree) -> list[Float[Array, " t"]] | None:
        """The same from what `run` has found, if that holds them."""
        logs = self.frozen.log_masses(facts)
        return None if logs is None else self._picked(logs)

    def _picked(self, logs: Float[Array, "s t"]) -> list[Float[Array, " t"]]:
        return [row[jnp.asarray(at)] for row, at in zip(logs, self.rows, strict=True)]

    def run(self, theta: Theta) -> tuple[Float[Array, ""], PlanCheck, PyTree]:
        """log p(y; theta), how well the plan serves at theta, and facts to make another one by."""
        return self.frozen.evidence(inside(self.build(theta)), self.series)

    def total(self, theta: Theta) -> tuple[Float[Array, ""], PlanCheck]:
        """log p(y; theta), and how well the plan serves at theta."""
        return self.run(theta)[:2]
