"""What Algorithm 2 runs on: a prior, a transition and likelihoods as PSD models."""

from abc import abstractmethod
from collections.abc import Callable
from typing import TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from ..._density.box import Box
from ..._density.conversions import PSDModel, change_units
from ..._density.mass import positive_mass
from ..._density.psd import GaussianPSD
from ..._statespace.model import Inputs
from ..ability import Ability
from ..nodes.filled import Filled
from ..nodes.filtered import observation_fits
from ..nodes.models import Kernel, density_of, join_factors, root_square
from ..nodes.step import observation_status
from ..series import Series, as_series


class AbstractLearned(eqx.Module):
    """Q^, G^ and the prior as PSD models, in coordinates of the box they were learned on."""

    @property
    @abstractmethod
    def dim(self) -> int:
        """Number of coordinates of the state."""

    @property
    @abstractmethod
    def prior(self) -> PSDModel:
        """The prior, not normalised."""

    @abstractmethod
    def predict(self, f: PSDModel, t: int, row: Inputs) -> PSDModel:
        """int Q^(u, x) f(u) du, the transition into step t."""

    @abstractmethod
    def likelihood(self, y: Array, t: int, row: Inputs) -> PSDModel:
        """G^(., y)."""

    @abstractmethod
    def log_mass(self, f: PSDModel) -> Float[Array, ""]:
        """log int f where the state lives; an error if there is none."""

    @abstractmethod
    def status(self, y: Array) -> tuple[Array, Int[Array, ""]]:
        """Whether y is not to be used, and a code."""

    @abstractmethod
    def in_units(self, f: PSDModel) -> PSDModel:
        """A density in the user's units."""

    @property
    @abstractmethod
    def user_box(self) -> Box | None:
        """The box in the user's units; None for all of space."""

    @property
    @abstractmethod
    def num_observed(self) -> int | None:
        """Coordinates of an observation, if known."""

    @property
    @abstractmethod
    def abilities(self) -> frozenset[Ability]:
        """What a filter on these models offers beside itself."""

    @abstractmethod
    def why_not(self, ability: Ability) -> str | None:
        """Why something is not offered, if there is a reason of these models' own."""

    @abstractmethod
    def model_of(self, what: str) -> PSDModel:
        """The "prior", the "transition" or the "observation" in user units."""


class LearnedOnGrid(AbstractLearned):
    """The densities of a filled plan, in unit coordinates."""

    filled: Filled

    @property
    def dim(self) -> int:
        """Number of coordinates of the state."""
        return self.filled.dim

    @property
    def box(self) -> Box:
        """(-1, 1)^d."""
        return Box(-np.ones(self.filled.dim), np.ones(self.filled.dim))

    @property
    def user_box(self) -> Box:
        """The user's."""
        return self.filled.plan.box

    @property
    def prior(self) -> GaussianPSD:
        """The square of its learned root."""
        return root_square(self.filled.plan.prior, self.filled.prior_root)

    @property
    def num_observed(self) -> int | None:
        """If a box or a sampler tells."""
        return self.filled.ssm.num_observed

    def kernel(self, t: int, row: Inputs) -> Kernel:
        """All factors joined."""
        factors = _jit_unless_black_box(self.filled, _factors)(self.filled, t, row)
        return join_factors(factors, self.filled.plan.structure)

    def predict(self, f: PSDModel, t: int, row: Inputs) -> PSDModel:
        """By the generic operations."""
        assert isinstance(f, GaussianPSD)
        return self.kernel(t, row).apply(f, self.box)

    def log_mass(self, f: PSDModel) -> Float[Array, ""]:
        """On the box."""
        return positive_mass(f, self.box)

    def status(self, y: Array) -> tuple[Array, Int[Array, ""]]:
        """Infinite numbers are of no use."""
        return observation_status(y)

    @property
    def abilities(self) -> frozenset[Ability]:
        """The functions of the model may take inputs."""
        return frozenset({Ability.INPUTS})

    def why_not(self, ability: Ability) -> str | None:
        """No reason beside the engine."""
        del ability
        return None

    def model_of(self, what: str) -> PSDModel:
        """As the filter on nodes has them."""
        return density_of(self.filled, what)

    def likelihood(self, y: Array, t: int, row: Inputs) -> GaussianPSD:
        """The square of the root that was fitted to sqrt G(., y)."""
        rows = jax.tree.map(lambda a: jnp.asarray(a)[None], row)
        one = as_series(jnp.asarray(y)[None], None, times=[t])
        series = Series(one.ys, one.steps, one.hops, rows, True, one.partly)
        fits = _jit_unless_black_box(self.filled, observation_fits)
        coefficients, peaks = fits(self.filled, series)
        return root_square(self.filled.plan.observation, coefficients[0], peaks[0])

    def in_units(self, f: PSDModel) -> PSDModel:
        """From unit coordinates."""
        box = self.filled.plan.box
        return change_units(f, box.center, box.half_width)


T = TypeVar("T")


def _factors(filled: Filled, t: int, row: Inputs) -> tuple[GaussianPSD, ...]:
    return filled.transition_density(t, row)


def _jit_unless_black_box(filled: Filled, fn: Callable[..., T]) -> Callable[..., T]:
    return fn if filled.ssm.vectorized else eqx.filter_jit(fn)
