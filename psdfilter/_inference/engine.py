"""What an engine is: options as a value, whether it can serve a model, and how it learns one."""

from abc import abstractmethod
from typing import ClassVar, NamedTuple

import equinox as eqx
from jaxtyping import Array, Float

from .._checks import Numbers
from .._statespace.model import Inputs, StateSpaceModel, Trait
from .ability import Ability, NotOffered
from .model import AbstractModel
from .series import Series
from .trace import Trace


class Task(NamedTuple):
    """What is to be learned.

    Attributes:
        ssm: the model.
        tol: total variation error of the filtered densities.
        ys: typical observations (T, p), by which grids may be sized.
        inputs: typical inputs.
        reason: why the engine was chosen.
    """

    ssm: StateSpaceModel
    tol: float
    ys: Numbers | None = None
    inputs: Inputs = None
    reason: str = "asked for"


class AbstractEngine(eqx.Module):
    """Options of an engine. A new engine is a folder with one of these, and a line in a registry.

    Attributes:
        name: the word by which `learn` takes it.
        abilities: what its models offer, some of them perhaps on a condition of their own.
        traits: what models may have that it can serve.
    """

    name: ClassVar[str]
    abilities: ClassVar[frozenset[Ability]]
    # Nodes are chosen at every step: a state that is not confined needs no box.
    roams: ClassVar[bool] = False
    # What models may have that the engine knows of.
    traits: ClassVar[frozenset[Trait]] = frozenset()

    def obstacle(self, ssm: StateSpaceModel, tol: float) -> str | None:
        """Why the engine cannot serve a model: traits that it does not know, or its own refusal."""
        unknown = sorted(ssm.traits - self.traits)
        if unknown:
            return f"it does not know {' and '.join(unknown)}"
        return self.refusal(ssm, tol)

    @abstractmethod
    def refusal(self, ssm: StateSpaceModel, tol: float) -> str | None:
        """Why the engine cannot serve a model, as the end of a sentence; None if it can."""

    def choice(self, ssm: StateSpaceModel, tol: float) -> str | None:
        """Why the engine should be chosen for a model by itself; None if it should not."""
        del ssm, tol
        return None

    @abstractmethod
    def learn(self, task: Task) -> AbstractModel:
        """The learned model."""

    def errors(self, model: AbstractModel, series: Series, trace: Trace) -> Float[Array, " t"]:
        """Estimated total variation to the exact filter at every t."""
        del model, series, trace
        raise NotOffered(self.name, Ability.ERRORS)

    def certify(self, model: AbstractModel, series: Series, trace: Trace) -> object:
        """What can be proved about the error, if that is on offer."""
        del model, series, trace
        raise NotOffered(self.name, Ability.CERTIFICATE)

    def for_likelihoods(self, dim: int) -> "tuple[AbstractEngine, ...]":
        """Engines that serve likelihoods, with sizes that models of nearby parameters share.

        The fastest first; the next is taken where one disagrees with the filter.
        """
        del dim
        return (self,)

    def judges(self, ssm: StateSpaceModel) -> bool:
        """Whether the filter controls its error, so that likelihoods are compared with it."""
        del ssm
        return False
