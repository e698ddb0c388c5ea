"""Laws of observations, as inference returns them."""

from dataclasses import dataclass, field

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from .._frames.labels import Labels
from .._statespace.model import Inputs
from .ability import Ability
from .laws import AbstractLaws
from .model import AbstractModel
from .registry import require
from .result import STATIC, AbstractGiven
from .trace import Moments


@jax.tree_util.register_dataclass
@dataclass(frozen=True, eq=False, repr=False)
class Observations(AbstractGiven):
    """Laws of y at K times.

    Attributes:
        leak: mass of y outside of where it is said to live, (K,).
    """

    summary: Moments
    given: AbstractLaws
    leak: Float[Array, " k"]
    at: Int[Array, " k"]
    called: Labels | None = field(default=None, metadata=STATIC)

    @property
    def labels(self) -> Labels | None:
        """What a data frame called rows and columns."""
        return self.called

    @property
    def given_names(self) -> tuple[str, ...]:
        """Those of the columns that were observed."""
        dim = self.mean.shape[1]
        if self.labels is None or self.labels.columns is None or len(self.labels.columns) != dim:
            return tuple(f"y{i}" for i in range(dim))
        return self.labels.columns

    @property
    def row_facts(self) -> dict[str, np.ndarray]:
        """The mass that is not where y is said to live."""
        return {"leak": np.asarray(self.leak)}

    @property
    def times(self) -> Array:
        """When."""
        return self.at

    @property
    def facts(self) -> dict[str, float | str]:
        """The mass that is not where y is said to live."""
        return {"largest_leak": float(jnp.max(self.leak))}


def observations_of(
    model: AbstractModel,
    laws: AbstractLaws,
    steps: Int[Array, " t"],
    rows: Inputs,
    labels: Labels | None,
) -> Observations:
    """The laws of y at some times, of laws of the state there."""
    require(model, Ability.OBSERVED_LAWS)
    seen = model.observed(laws, steps, rows)
    return Observations(Moments(seen.mean, seen.covariance), seen, seen.leak, steps, labels)
