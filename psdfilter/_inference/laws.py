"""Laws of the state, or of observations, at several times: the questions every engine answers."""

from abc import abstractmethod
from collections.abc import Callable

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray

from .. import _results
from .._checks import Numbers
from .._density.psd import AbstractDensity
from .._modules import PlainModule

NO_REGIMES = "the model has no regimes: psdfilter.switching makes one that has"
# Levels at which a shortest interval may start.
_STARTS = 255


# The outer parts of a law, at each side, that its tolerance says nothing of: a normal law has 3e-5
# of its variance there, one of Student with four degrees of freedom 3e-3.
OUTER_MASS = 1e-6
# Of a variance: beyond that its size depends on tails that nobody looks at.
_HEAVY = 0.01


class AbstractLaws(PlainModule):
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

    def tail_shares(
        self, image: Callable[[Array], Numbers], rows: Int[np.ndarray, " k"]
    ) -> Float[np.ndarray, "k d"] | None:
        """What outer parts of 1e-6 of the mass have of the variance of image(x_t), t in `rows`.

        None where tails are known to be light, or nobody knows.
        """
        del image, rows
        return None

    def regime_density(self, t: int, regime: int) -> AbstractDensity:
        """The law of x at one time given its regime, if there are regimes."""
        raise ValueError(NO_REGIMES)

    def regimes(self) -> Float[Array, "t k"]:
        """Probabilities of the regimes, if there are any."""
        raise ValueError(NO_REGIMES)

    def resultants(self) -> Float[Array, "t d"]:
        """Lengths of mean directions, if coordinates are angles."""
        raise ValueError(
            "the state has no angles: psdfilter.Box(lower, upper, periodic=...) says which "
            "coordinates wrap"
        )

    def circles(self) -> dict[int, tuple[float, float]]:
        """Coordinates that wrap, and the two ends, which are one point; none on lines."""
        return {}

    def shortest(self, mass: float) -> Float[Array, "2 t d"]:
        """The ends of the shortest interval of this mass, by one in 256 of the levels."""
        starts = jnp.linspace(0.0, 1.0 - mass, _STARTS + 2)[1:-1]
        low, high = self.quantiles(starts), self.quantiles(starts + mass)
        best = jnp.argmin(high - low, axis=0)[None]
        return jnp.concatenate([jnp.take_along_axis(a, best, axis=0) for a in (low, high)])

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


def with_tails(
    codes: Array | np.ndarray, laws: AbstractLaws, rows: Int[np.ndarray, " k"]
) -> np.ndarray:
    """Codes of times, and one at those of `rows` where tails decide on the variance."""
    out = np.array(codes)
    shares = laws.tail_shares(lambda x: x, rows)
    if shares is not None:
        heavy = rows[np.max(shares, axis=1) > _HEAVY]
        out[heavy[out[heavy] == _results.OK]] = _results.HEAVY_TAILS
    return out
