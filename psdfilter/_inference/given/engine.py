"""The engine of given models: it learns nothing."""

from typing import ClassVar

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..._statespace.model import StateSpaceModel
from ..ability import Ability
from ..certificate.certificate import Certificate
from ..engine import AbstractEngine, Task
from ..model import AbstractModel
from ..series import Series
from ..trace import Trace
from .certificate import certify_given, one_step_errors
from .model import ABILITIES, GivenModel

_REFUSAL = "it takes PSD models instead: psdfilter.learned(prior=, transition=, observation=, box=)"


class Given(AbstractEngine):
    """Filters of PSD models that were made elsewhere, by `psdfilter.learned`."""

    name: ClassVar[str] = "given"
    abilities: ClassVar[frozenset[Ability]] = ABILITIES

    def refusal(self, ssm: StateSpaceModel, tol: float) -> str | None:
        """Always: a StateSpaceModel is not what it takes."""
        del ssm, tol
        return _REFUSAL

    def learn(self, task: Task) -> AbstractModel:
        """Nothing."""
        del task
        raise ValueError(f'engine "given" learns nothing: {_REFUSAL}')

    def errors(self, model: AbstractModel, series: Series, trace: Trace) -> Float[Array, " t"]:
        """Of the nodes, summed up: distance to Algorithm 2 on the given models in exact integrals.

        What the models are off from any truth is not known here.
        """
        assert isinstance(model, GivenModel)
        if trace.laws is None:
            raise ValueError('an error estimate needs the densities: filter with keep="densities"')
        return jnp.minimum(jnp.cumsum(jnp.asarray(one_step_errors(model, series, trace))), 2.0)

    def certify(self, model: AbstractModel, series: Series, trace: Trace) -> Certificate:
        """Bounds and estimates of the same distance, with the contraction of Q^."""
        assert isinstance(model, GivenModel)
        return certify_given(model, series, trace, np.asarray(trace.codes))
