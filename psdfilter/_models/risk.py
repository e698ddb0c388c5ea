"""Value at risk of the next return, and a count of how often past ones were beyond theirs."""

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Float
from scipy.special import chdtrc, xlogy

from .._checks import as_count
from .._frames.table import Times
from .._inference.posterior import Posterior
from .._statespace.model import Inputs
from .family import Fitted


def value_at_risk(
    fitted: Fitted, level: float = 0.01, *, times: Times = None, inputs: Inputs = None
) -> tuple[float, float]:
    """The `level`-quantile of the next return, and the mean of the returns below it.

    Value at risk and expected shortfall of one step, as returns (negative numbers).

    Args:
        fitted: a family with its parameters and data.
        level: the probability of a return below the value at risk.
        times: when the next return is, as for `forecast`.
        inputs: covariates of the next return, one row.
    """
    level = _as_level(level)
    ahead = fitted.forecast(1, times=times, inputs=inputs).observations
    cut = float(ahead.quantile(level)[0, 0])
    tail = ahead.expect(lambda y: jnp.where(y[0] <= cut, y[0] - cut, 0.0))
    return cut, cut + float(tail[0]) / level


class Backtest(NamedTuple):
    """Returns held against the values at risk of the steps before.

    Attributes:
        level: probability of a return below its value at risk.
        value_at_risk: the quantile of every return given those before it, (T,).
        below: whether the return was below it, (T,); never where it is missing.
        counted: whether the row counts: seen, and not skipped, (T,).
        coverage: p-value of Kupiec's test, that returns are below with probability `level`.
        independence: p-value of Christoffersen's test, that it does not matter for today whether
            yesterday's return was below; NaN if none ever was.
    """

    level: float
    value_at_risk: Float[np.ndarray, " t"]
    below: Bool[np.ndarray, " t"]
    counted: Bool[np.ndarray, " t"]
    coverage: float
    independence: float

    @property
    def num_below(self) -> int:
        """How many returns were below."""
        return int(self.below[self.counted].sum())

    @property
    def num(self) -> int:
        """How many returns count."""
        return int(self.counted.sum())

    def __str__(self) -> str:
        return (
            f"{self.num_below} of {self.num} returns below the value at risk of {self.level:.3g}, "
            f"{self.level * self.num:.1f} expected; p-values: coverage {self.coverage:.3f}, "
            f"independence {self.independence:.3f}"
        )


def backtest(results: Fitted | Posterior, level: float = 0.01, *, skip: int = 0) -> Backtest:
    """How often returns were below the `level`-quantile of their law given the past.

    Parameters should be those of other data: fit one part of a series, and skip it here.

    Args:
        results: a filter of scalar returns, or a family with its parameters and data.
        level: probability of a return below its value at risk.
        skip: rows at the start that do not count.
    """
    level = _as_level(level)
    post = results if isinstance(results, Posterior) else results.filter()
    y = np.asarray(post.series.ys)
    if y.shape[1] != 1:
        raise ValueError(f"results must be of scalar returns, got {y.shape[1]} columns")
    counted = ~np.isnan(y[:, 0])
    counted[: as_count("skip", skip, least=0)] = False
    if not counted.any():
        raise ValueError(f"skip must leave some returns of {len(y)}, got {skip}")
    cut = np.asarray(post.predicted_observations.quantile(level))[:, 0]
    below = counted & (y[:, 0] < cut)
    return Backtest(
        level, cut, below, counted, _coverage(below[counted], level), _independence(below, counted)
    )


def _coverage(below: Bool[np.ndarray, " n"], level: float) -> float:
    """Kupiec (1995): 2 log of the ratio of Bernoulli likelihoods at count / num and at level."""
    num, count = len(below), int(below.sum())
    there, given = (
        float(xlogy(count, p) + xlogy(num - count, 1 - p)) for p in (count / num, level)
    )
    return float(chdtrc(1, max(2 * (there - given), 0.0)))


def _independence(below: Bool[np.ndarray, " t"], counted: Bool[np.ndarray, " t"]) -> float:
    """Christoffersen (1998): the ratio for a Markov chain of two states and independent draws."""
    both = counted[1:] & counted[:-1]
    pairs = np.zeros((2, 2))
    np.add.at(pairs, (below[:-1][both].astype(int), below[1:][both].astype(int)), 1)
    rows, columns, total = pairs.sum(1), pairs.sum(0), pairs.sum()
    if rows[1] == 0 or columns[1] == 0:
        return float("nan")
    expected = np.outer(rows, columns) / total
    return float(chdtrc(1, max(2 * float(np.sum(xlogy(pairs, pairs / expected))), 0.0)))


def _as_level(level: float) -> float:
    if not (isinstance(level, float | int | np.generic) and 0 < level < 1):
        raise ValueError(f"level must be one number that lies in (0, 1), got {level!r}")
    return float(level)
