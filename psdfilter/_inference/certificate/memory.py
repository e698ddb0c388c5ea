"""How long a filter remembers: Dobrushin coefficients of its smoothing kernels.

For fixed n the exact filter from time k on is linear but for one reweighting,

    R_n ... R_{k+1} mu / mass = (mu beta / mu(beta)) F_{k+1} ... F_n,
    beta(u) = p(y_{k+1} ... y_n | x_k = u),   F_j(u, dx) ~ Q(u, x) G_j(x) beta_j(x) dx,

so that a distance at time k is multiplied at most by d(F_{k+1} ... F_n) sup beta / mu(beta), mu the
one of the two measures that gives beta more weight. The Dobrushin coefficient d is half the largest
distance between two rows. That of Q alone bounds nothing: Bayes steps can expand distances.
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from ..nodes.filtered import FilteredLaws
from ..numerics.grids import flat_weights
from .discrepancy import dense_nodes, fitted_observations
from .hilbert import dobrushin_coefficient

# Steps times nodes cubed: about a second for each lag.
MAX_MEMORY_WORK = 1e9
# Beyond these lags, or once an error counts for so little, its share is held at the last value.
_MAX_LAG, _FORGOTTEN = 64, 1e-4


@dataclass(frozen=True)
class Memory:
    """coefficients[k, n]: how much an error after k transitions can count after n, n > k."""

    coefficients: Float[np.ndarray, "k n"]

    def errors(
        self, start_error: float, one_step: Float[np.ndarray, " t"], has_start: bool
    ) -> tuple[np.ndarray, np.ndarray]:
        """The parts of the start and of the steps at every t."""
        steps = one_step[1:] if has_start else one_step
        deltas = np.concatenate([[start_error], steps])
        # Nothing counts for more than the largest distance there is.
        terms = np.minimum(2.0, self.coefficients * deltas[:, None])
        terms = np.where(deltas[:, None] == 0.0, 0.0, terms)
        start, carried = terms[0], np.sum(terms[1:], axis=0)
        start[0] = start_error
        rest = carried + np.concatenate([[0.0], steps])
        return (start, rest) if has_start else (start[1:], rest[1:])


def smoothing_memory(
    laws: FilteredLaws, kernel: Float[np.ndarray, "n n"], coefficients: np.ndarray
) -> Memory:
    """All coefficients of a filter whose transition is fixed in time.

    Args:
        laws: the filter.
        kernel: Q^ at its nodes and the faces of the box.
        coefficients: of G^(., y_t).
    """
    model = laws.model
    grid = dense_nodes(model, 1.0)
    weights = flat_weights(grid.weights, np)
    fitted = fitted_observations(laws, grid.nodes, coefficients) * weights
    densities = np.asarray(laws.kept.densities)
    if int(laws.series.hops[0]) == 0:
        fitted = fitted[1:]
    else:
        densities = np.concatenate([np.asarray(model.prior)[None], densities])
    # The faces of the box have no weight, but count as places to start from.
    inner = densities.reshape(len(densities), *model.plan.shape)
    padded = np.pad(inner, [(0, 0)] + [(1, 1)] * model.dim)
    return memory_of(kernel, fitted, padded.reshape(len(densities), -1) * weights)


def memory_of(
    kernel: Float[np.ndarray, "n n"],
    corrections: Float[np.ndarray, "t n"],
    masses: Float[np.ndarray, "s n"],
) -> Memory:
    """Coefficients from matrices.

    Args:
        kernel: Q(u, x).
        corrections: G_j(x) times the weight of x, for the steps j = 1 ... T.
        masses: of the filter after 0 ... T steps.
    """
    num, size = len(corrections), len(kernel)
    out = np.zeros((num + 1, num + 1))
    rows = np.broadcast_to(np.eye(size), (num, size, size))
    log_beta = np.zeros((num, size))
    for lag in range(1, num + 1):
        last = num + 1 - lag
        moved = (rows[:last].reshape(-1, size) @ kernel).reshape(last, size, size)
        moved = moved * corrections[lag - 1 :, None, :]
        totals = moved.sum(axis=2)
        alive = totals > 0
        rows = moved / np.where(alive, totals, 1.0)[:, :, None]
        with np.errstate(divide="ignore"):
            log_beta = log_beta[:last] + np.log(totals)
        at = np.arange(last)
        out[at, at + lag] = [_coefficient(rows[k], log_beta[k], masses[k]) for k in range(last)]
        if lag == _MAX_LAG or np.max(out[at, at + lag]) < _FORGOTTEN:
            for k in range(last - 1):
                out[k, k + lag + 1 :] = out[k, k + lag]
            break
    return Memory(out)


def _coefficient(rows: np.ndarray, log_beta: np.ndarray, masses: np.ndarray) -> float:
    beta = np.exp(log_beta - np.max(log_beta))
    # Where beta vanishes the reweighted measures have no mass: such rows are nobody's.
    alive = beta > 0
    seen = masses @ beta
    if not seen > 0:
        return np.inf
    return dobrushin_coefficient(rows[alive]) / seen
