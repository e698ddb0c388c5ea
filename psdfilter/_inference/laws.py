"""Laws of the state, or of observations, at several times: the questions every engine answers."""

from abc import abstractmethod
from collections.abc import Callable

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from .._checks import Numbers
from .._density.psd import AbstractDensity


class AbstractLaws(eqx.Module):
    """Laws at T times of d coordinates, in user units. Arguments have been checked."""

    @abstractmethod
    def quantiles(self, levels: Float[Array, " k"]) -> Float[Array, "k t d"]:
        """The quantiles of every coordinate at every time."""

    @abstractmethod
    def cdfs(self, x: Float[Array, "t d"]) -> Float[Array, "t d"]:
        """P(x_t,l <= x_l) of every coordinate l at every time."""

    @abstractmethod
    def expectations(self, fn: Callable[[Array], Numbers]) -> Array:
        """E fn(x_t) for every t; fn takes one state (d,)."""

    @abstractmethod
    def draws(self, key: PRNGKeyArray, num: int) -> Float[Array, "n t d"]:
        """Independent draws from the law of every time."""

    @abstractmethod
    def density(self, t: int) -> AbstractDensity:
        """The law of one time, 0 <= t < T, as a density of mass one."""

    def simulation_errors(self) -> Float[Array, "t d"] | None:
        """Standard errors of means that come from draws; None where nothing was drawn."""
        return None

    def log_mass(self, t: int) -> Float[Array, ""]:
        """log of the exact mass of what the recursion took for mass one; zero in closed forms."""
        del t
        return jnp.zeros(())


def check_level(q: np.ndarray) -> None:
    """Levels of quantiles lie in [0, 1]."""
    if np.any(~((q >= 0) & (q <= 1))):
        raise ValueError(f"q must lie in [0, 1], got {q}")


def checked_index(name: str, t: int, num: int) -> int:
    """An index into `num` rows, counted from the end if it is negative, as 0 <= t < num."""
    if not -num <= t < num:
        raise ValueError(f"{name} must lie in 0..{num - 1}, got {t}")
    return t % num


def quantiles_of(laws: AbstractLaws, q: Numbers) -> Float[Array, "... t d"]:
    """Quantiles for one level (T, d), or a leading axis for several."""
    levels = jnp.asarray(q, dtype=jnp.float64)
    check_level(np.asarray(q, dtype=float))
    values = laws.quantiles(levels.ravel())
    return values[0] if levels.ndim == 0 else values.reshape(*levels.shape, *values.shape[1:])


def central_levels(mass: float) -> list[float]:
    """The levels at the ends of a central interval."""
    if not 0 < mass < 1:
        raise ValueError(f"mass must lie in (0, 1), got {mass}")
    return [0.5 * (1 - mass), 0.5 * (1 + mass)]
