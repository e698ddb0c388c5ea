"""Profile likelihoods: the best the other parameters can do."""

from typing import TYPE_CHECKING

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import optimistix as optx
from jaxtyping import Array, Float
from scipy.special import chdtri

from .._checks import as_count
from .maximize import Objective

if TYPE_CHECKING:
    from .fit import Fit


class Profile(eqx.Module):
    """max over the other parameters of log L, as a function of one.

    Attributes:
        name: the parameter.
        values: where it was held.
        log_likelihoods: what was reached there.
        thetas: all parameters, (num, p), in the order of `fit.names`.
        best: log L at the estimate.
    """

    name: str = eqx.field(static=True)
    values: Float[np.ndarray, " n"]
    log_likelihoods: Float[np.ndarray, " n"]
    thetas: Float[np.ndarray, "n p"]
    best: float

    def interval(self, level: float = 0.95) -> tuple[float, float]:
        """Where 2 (best - log L) stays below its chi-squared quantile; linear in between.

        NaN for an end that lies beyond the values tried.
        """
        if not 0 < level < 1:
            raise ValueError(f"level must lie in (0, 1), got {level!r}")
        gap = 2 * (self.best - self.log_likelihoods) - chdtri(1, 1 - level)
        inside = np.flatnonzero(gap <= 0)
        if not inside.size:
            return float("nan"), float("nan")
        return self._crossing(gap, inside[0], -1), self._crossing(gap, inside[-1], 1)

    def _crossing(self, gap: np.ndarray, at: int, step: int) -> float:
        other = at + step
        if not 0 <= other < len(gap):
            return float("nan")
        share = gap[at] / (gap[at] - gap[other])
        return float(self.values[at] + share * (self.values[other] - self.values[at]))


@eqx.filter_jit
def _best_others(objective: Objective, index: int, held: Array, start: Array):
    """Minimise over all free coordinates but one."""
    others = np.delete(np.arange(start.shape[0]), index)

    def whole(rest: Array) -> Array:
        return start.at[index].set(held).at[others].set(rest)

    if others.size == 0:
        return whole(jnp.zeros(0)), objective(whole(jnp.zeros(0)))
    solution = optx.minimise(
        lambda rest, _: objective(whole(rest)),
        optx.BFGS(rtol=1e-8, atol=1e-9),
        start[others],
        max_steps=200,
        throw=False,
    )
    free = whole(solution.value)
    return free, objective(free)


def profile_likelihood(fit: "Fit", name: str, *, num: int, width: float) -> Profile:
    """From the estimate outwards, each value starting where its neighbour ended."""
    if name not in fit.names:
        raise ValueError(f"name must be one of {', '.join(fit.names)}, got {name!r}")
    num = as_count("num", num, least=3)
    index = fit.names.index(name)
    free = fit.free
    error = float(jnp.sqrt(jnp.linalg.inv(fit.hessian)[index, index]))
    grid = np.linspace(-width, width, num | 1) * error + float(free[index])
    middle = len(grid) // 2
    found = {}
    for side in (range(middle, len(grid)), range(middle - 1, -1, -1)):
        start = free
        for i in side:
            start, loss = _best_others(fit.objective, index, jnp.asarray(grid[i]), start)
            found[i] = (start, -float(loss) * fit.objective.count)
    order = range(len(grid))
    thetas = np.stack([np.asarray(fit.objective.coordinates.natural(found[i][0])) for i in order])
    best = -float(fit.objective(free)) * fit.objective.count
    return Profile(name, thetas[:, index], np.array([found[i][1] for i in order]), thetas, best)
