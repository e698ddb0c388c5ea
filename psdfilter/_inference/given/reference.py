"""Given models for Algorithm 2 to the letter: operations of the calculus and nothing else."""

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from ... import _results
from ..._density.box import Box
from ..._density.conversions import PSDModel, with_precisions
from ..._density.mass import closed_integral, positive_mass
from ..._density.operations import closed_transition, partial, transition
from ..._density.psd import GaussianPSD
from ..._density.rounding import LIMIT
from ..._statespace.model import Inputs
from ..ability import Ability
from ..closed.learned import AbstractLearned
from .model import why_not_given
from .triple import Triple

# Components of a generalised law: its weight matrix then has 10^7 pairs.
_MAX_ORDER = 3000


class GivenParts(AbstractLearned):
    """A triple, in user units.

    With `closed`, error functions and nothing else: where these cancel to fewer than six digits
    the filter stops, while the operations themselves would go over to squares at nodes.
    """

    triple: Triple
    closed: bool = eqx.field(static=True, default=False)

    @property
    def dim(self) -> int:
        """Number of coordinates of the state."""
        return self.triple.dim

    @property
    def user_box(self) -> Box | None:
        """Of the state."""
        return self.triple.box

    @property
    def num_observed(self) -> int:
        """What G^ has beyond the state."""
        return self.triple.num_observed

    @property
    def prior(self) -> PSDModel:
        """As it was given."""
        return self.triple.prior

    @property
    def abilities(self) -> frozenset[Ability]:
        """The filter, and nothing beside it."""
        return frozenset()

    def why_not(self, ability: Ability) -> str | None:
        """Where it is."""
        return why_not_given(ability)

    def model_of(self, what: str) -> PSDModel:
        """As it was given."""
        return getattr(self.triple, what)

    def predict(self, f: PSDModel, t: int, row: Inputs) -> PSDModel:
        """The same transition at every step."""
        del t, row
        Q, box = self.triple.transition, self.triple.box
        if self.closed and isinstance(Q, GaussianPSD) and isinstance(f, GaussianPSD):
            model, error = closed_transition(Q, f, box)
            _require(error, "a transition")
            return model
        if not isinstance(Q, GaussianPSD) and f.order * Q.order > _MAX_ORDER:
            raise ValueError(
                f"the law has grown to {f.order} components, and one more transition would make "
                f"{f.order * Q.order} of them: orders of generalised models multiply. Take a box "
                'and engine="nodes", or compress the models'
            )
        return with_precisions(transition(Q, f, box))

    def likelihood(self, y: Array, t: int, row: Inputs) -> PSDModel:
        """By partial evaluation."""
        del t, row
        G = self.triple.observation
        return partial(G, range(self.dim, G.dim), y)

    def log_mass(self, f: PSDModel) -> Float[Array, ""]:
        """By error functions only, if so asked."""
        if not self.closed:
            return positive_mass(f, self.triple.box)
        (mass, log_scale), error = closed_integral(f, self.triple.box)
        _require(error, "a normaliser")
        return jnp.log(mass) + log_scale

    def status(self, y: Array) -> tuple[Array, Int[Array, ""]]:
        """G^ has no meaning outside of the box of y, if there is one."""
        bad = jnp.any(jnp.isinf(y))
        if self.triple.observation_box is not None:
            box = self.triple.observation_box
            bad = bad | jnp.any((y < box.lower) | (y > box.upper))
        code = jnp.where(bad, _results.BAD_OBSERVATION, _results.OK)
        return jnp.all(jnp.isnan(y)) | bad, code

    def in_units(self, f: PSDModel) -> PSDModel:
        """As it is."""
        return f


def _require(error: Array, what: str) -> None:
    size = float(error)
    if size <= LIMIT:
        return
    raise ValueError(
        f"{what} of the filter has a relative rounding error of about {min(size, 1.0):.0e} in "
        "error functions, more than the 1e-6 that are allowed: coefficients of the models are "
        'large against their values and cancel. Take engine="nodes", which sums squares, or '
        'engine="reference", which goes over to them'
    )
