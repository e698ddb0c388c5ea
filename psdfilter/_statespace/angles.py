"""Angles: coordinates that are known up to whole turns."""

from collections.abc import Callable, Sequence
from itertools import product

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import logsumexp
from jaxtyping import Array, Bool, Float

from .._checks import Numbers, is_concrete

# Deviations of a Gaussian within which turns are summed: what is left out is below 1e-10.
_REACH = 6.5
# Turns to each side where the noise cannot be looked at: enough for a deviation of 1.5 periods, at
# which a wrapped Gaussian is uniform to 1e-19.
_MOST = 10


class Turns(eqx.Module):
    """Which coordinates wrap, and by how much.

    Attributes:
        periods: of all coordinates, 1 where there is none.
        axes: the coordinates that wrap.
        count: turns to each side of the nearest that sums go over.
    """

    periods: Float[Array, " d"]
    axes: tuple[int, ...] = eqx.field(static=True)
    count: int = eqx.field(static=True)

    def nearest(self, residual: Float[Array, " d"]) -> Float[Array, " d"]:
        """The residual by the shortest way round."""
        whole = jax.lax.stop_gradient(jnp.round(residual / self.periods))
        circle = np.isin(np.arange(residual.size), self.axes)
        return jnp.where(jnp.asarray(circle), residual - whole * self.periods, residual)

    def log_sum(
        self,
        log_density: Callable[[Array], Array],
        residual: Float[Array, " d"],
        seen: Bool[Array, " d"] | None = None,
    ) -> Float[Array, ""]:
        """log sum_n f(residual + n periods): the density of a residual up to whole turns."""
        whole = range(-self.count, self.count + 1)
        shifts = np.zeros((len(whole) ** len(self.axes), residual.size))
        shifts[:, list(self.axes)] = list(product(whole, repeat=len(self.axes)))
        turns = jnp.asarray(shifts) * self.periods[None, :]
        if seen is not None:
            turns = jnp.where(seen[None, :], turns, 0.0)
        logs = jax.vmap(log_density)(self.nearest(residual)[None, :] + turns)
        if seen is None:
            return logsumexp(logs)
        # A coordinate that was not seen has all its turns at the same place: they count once.
        idle = jnp.sum(jnp.where(seen, 0.0, 1.0)[np.asarray(self.axes)])
        return logsumexp(logs) - idle * np.log(len(whole))


def as_turns(
    name: str, wrap: Sequence[bool | float | None], size: int, variances: Array
) -> Turns | None:
    """Periods of coordinates: True for 2 pi, a number for itself, False or None for none."""
    given = tuple(wrap) if isinstance(wrap, Sequence | np.ndarray) else (wrap,)
    if len(given) != size:
        raise ValueError(
            f"{name} must have {size} entries, one for each coordinate, got {len(given)}"
        )
    periods = [2 * np.pi if entry is True else float(entry or 0.0) for entry in given]
    if not all(np.isfinite(period) and period >= 0 for period in periods):
        raise ValueError(
            f"{name} must hold True (for 2 pi), False, or the period of a coordinate, a positive "
            f"number; got {given}"
        )
    axes = tuple(i for i, period in enumerate(periods) if period > 0)
    if not axes:
        return None
    return turns_of([period or 1.0 for period in periods], axes, variances)


def turns_of(periods: Numbers, axes: tuple[int, ...], variances: Array) -> Turns:
    """As many turns as the noise asks for, where it can be looked at."""
    lengths = jnp.asarray(periods, dtype=jnp.float64)
    count = _MOST
    if is_concrete((lengths, variances)):
        index = np.asarray(axes)
        share = np.sqrt(np.asarray(variances)[index]) / np.asarray(lengths)[index]
        count = int(np.clip(np.ceil(_REACH * share.max() - 0.5), 1, _MOST))
        if share.max() > _MOST / _REACH:
            raise ValueError(
                f"the noise of an angle must be below {_MOST / _REACH:.2g} periods, at which "
                f"nothing is known of it, got a standard deviation of {share.max():.3g} periods"
            )
    return Turns(lengths, axes, count)
