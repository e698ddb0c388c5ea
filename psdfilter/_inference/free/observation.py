"""What an observation tells: sqrt G(., y), either itself or from a G^ learned jointly over (x, y).

Both give values of the root, which the step projects, and atoms among which a projection may look.
"""

from abc import abstractmethod
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..._density.box import Box
from ..._statespace.model import StateSpaceModel, log_observation_table
from .atoms import Atoms, TermKernel, determinant, evaluate, inverse, products, slices
from .compress import SquareSum, spread_choice
from .rules import Region, graded_atoms, joined

# exp of more than this is not taken: the law it meets is zero in double precision.
_HIGHEST = 600.0


class AbstractObservation(eqx.Module):
    """G(x, y) with x in unit coordinates and y in its own."""

    box: eqx.AbstractVar[Any]  # of y; None if it is not known

    @abstractmethod
    def is_usable(self, y: Float[Array, " p"]) -> Array:
        """Whether the density is known at y."""

    @abstractmethod
    def logs(self, x: Float[Array, "k d"], y: Float[Array, " p"]) -> Float[Array, " k"]:
        """log G(x, y)."""

    @abstractmethod
    def roots(
        self, x: Float[Array, "k d"], y: Float[Array, " p"], log_peak: Array
    ) -> Float[Array, " k"]:
        """A smooth root of G(x, y) exp(-log_peak)."""

    @abstractmethod
    def tried(self, law: SquareSum, y: Float[Array, " p"], region: Region, num: int) -> Atoms:
        """Atoms that may carry the law times G(., y), which is in the region."""


class EachObservation(AbstractObservation):
    """sqrt G(., y) itself, for every y when it comes."""

    ssm: StateSpaceModel
    box: Box | None

    def is_usable(self, y: Float[Array, " p"]) -> Array:
        """Any finite y."""
        return jnp.all(jnp.isfinite(y))

    def logs(self, x: Float[Array, "k d"], y: Float[Array, " p"]) -> Float[Array, " k"]:
        """log G(x, y)."""
        return log_observation_table(self.ssm, self.ssm.state_box._place(x), y)

    def roots(
        self, x: Float[Array, "k d"], y: Float[Array, " p"], log_peak: Array
    ) -> Float[Array, " k"]:
        """exp((log G(x, y) - log_peak) / 2)."""
        return jnp.exp(jnp.minimum(0.5 * (self.logs(x, y) - log_peak), _HIGHEST))

    def tried(self, law: SquareSum, y: Float[Array, " p"], region: Region, num: int) -> Atoms:
        """The atoms of the law times the Gaussians that sqrt G is near them; narrower; graded."""

        def log_root(x: Float[Array, " d"]) -> Float[Array, ""]:
            return 0.5 * self.logs(x[None], y)[0]

        near = _tilted(law.atoms, log_root, region)
        narrow = near._replace(precision=2.0 * near.precision)
        return joined(near, narrow, graded_atoms(region, num))


class LearnedObservation(AbstractObservation):
    """G^(x, y) = g(x, y)^2, a sum of Gaussians with free shapes, on the box of y."""

    kernel: TermKernel  # g with y fixed first, in unit coordinates
    box: Box
    num_terms: int = eqx.field(static=True)

    def is_usable(self, y: Float[Array, " p"]) -> Array:
        """y on its box."""
        return jnp.all(jnp.abs(self._unit(y)) <= 1.0)  # False for NaN too

    def _unit(self, y: Float[Array, " p"]) -> Float[Array, " p"]:
        return (y - self.box.center) / self.box.half_width

    def _slice(self, y: Float[Array, " p"]) -> tuple[Atoms, Float[Array, " j"]]:
        part = slices(self.kernel, self._unit(y)[None], self.num_terms)
        return Atoms(part.centers[0], part.precision[0]), part.amplitudes[0]

    def _values(self, x: Float[Array, "k d"], y: Float[Array, " p"]) -> Float[Array, " k"]:
        atoms, amplitudes = self._slice(y)
        return evaluate(atoms, x) @ amplitudes

    def logs(self, x: Float[Array, "k d"], y: Float[Array, " p"]) -> Float[Array, " k"]:
        """log g(x, y)^2."""
        return jnp.log(jnp.square(self._values(x, y)))

    def roots(
        self, x: Float[Array, "k d"], y: Float[Array, " p"], log_peak: Array
    ) -> Float[Array, " k"]:
        """g(x, y) exp(-log_peak / 2)."""
        return self._values(x, y) * jnp.exp(jnp.minimum(-0.5 * log_peak, _HIGHEST))

    def tried(self, law: SquareSum, y: Float[Array, " p"], region: Region, num: int) -> Atoms:
        """Products of the atoms of the law and of g(., y), some of them; and graded ones."""
        atoms, _ = self._slice(y)
        both, factors = products(law.atoms, atoms)
        used = jnp.any(law.factor != 0, axis=1)[:, None] & jnp.ones(factors.shape, bool)
        # Centres may lie outside, where nothing is known of the learned models.
        nearest = jnp.clip(both.centers, region.low[None, :], region.high[None, :])
        masses = law(nearest) * jnp.square(self._values(nearest, y))
        masses = masses / jnp.sqrt(determinant(both.precision))
        near = spread_choice(both, jnp.where(used.ravel(), masses, 0.0), num)
        return joined(near, graded_atoms(region, num))


def _tilted(
    atoms: Atoms, log_root: Callable[[Float[Array, " d"]], Float[Array, ""]], region: Region
) -> Atoms:
    """k exp(l) with l expanded to second order at the centre of k.

    P' = P - l'' / 2,   m' = x + P'^{-1} (l' - 2 P (x - m)) / 2,   x = m, moved into the region;
    where that has no peak, the atom as it is.
    """
    low, high = region.low[None, :], region.high[None, :]
    x = jnp.clip(atoms.centers, low, high)
    slope, bend = jax.vmap(jax.grad(log_root))(x), jax.vmap(jax.hessian(log_root))(x)
    precision = atoms.precision - 0.5 * bend
    size, trace = determinant(precision), jnp.trace(precision, axis1=1, axis2=2)
    good = (size > 0) & (trace > 0) & jnp.isfinite(size) & jnp.all(jnp.isfinite(slope), axis=1)
    precision = jnp.where(good[:, None, None], precision, atoms.precision)
    pull = slope - 2.0 * jnp.einsum("nde,ne->nd", atoms.precision, x - atoms.centers)
    moved = x + 0.5 * jnp.einsum("nde,ne->nd", inverse(precision), pull)
    return Atoms(jnp.where(good[:, None], jnp.clip(moved, low, high), atoms.centers), precision)
