"""Times composed of short transitions: shorter ones, until they change nothing.

The transitions of a diffusion are right to some order of their length. The same series is filtered
on transitions that are shorter by some factor; what changes tells the error of both, as in
extrapolation after Richardson.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from ..._statespace.functions import Row
from ..laws import AbstractLaws
from ..model import AbstractModel
from ..series import Series
from ..trace import Trace, held_to

# Of the tolerance; the rest is for the errors of single transitions.
_SHARE = 0.5
# Filters of a series, the first two included, and transitions between two observations at most.
_RUNS, _MOST = 6, 4096
# Orders of convergence that are believed in: the first is certain.
_ORDERS = (1.0, 2.0)
# Points per law at which two of them are compared: distances are known to a tenth.
_POINTS = 256
# More than this at once is not worth a guess.
_LEAP = 16


class Ran(NamedTuple):
    """A series on transitions of some length, what came, and how many times shorter."""

    series: Series
    trace: Trace
    laws: AbstractLaws
    model: AbstractModel
    parts: int


def divided(series: Series, parts: int) -> Series:
    """The series with each of its transitions made of several."""
    rows = series.rows
    assert isinstance(rows, Row)
    assert rows.dt is not None
    hops = parts * np.asarray(series.hops)
    # Rows without a transition, at the time of the prior, have no time to divide.
    rows = rows._replace(dt=jnp.asarray(rows.dt) / parts)
    at = jnp.asarray(np.cumsum(hops))
    return Series(series.ys, at, jnp.asarray(hops), rows, False, series.partly)


def refine(inner: AbstractModel, series: Series, tol: float) -> Ran:
    """The filter on transitions so short that halving them changes less than the tolerance.

    Returns:
        The last of several filters; its errors include what the length of transitions is
        estimated to do, and its codes say where they miss the tolerance.
    """

    def ran(parts: int, model: AbstractModel) -> Ran:
        one = divided(series, parts) if parts > 1 else series
        done = model.settle(one, True)
        return Ran(one, done.trace, done.model.filtered(one, done.trace), done.model, parts)

    last, errors = ran(1, inner), np.zeros(series.num)
    # Walls that the first filter has moved stay where they are; another engine is asked anew.
    inner = last.model if last.model.engine == inner.engine else inner
    if last.trace.errors is None or not np.all(np.asarray(last.trace.errors) <= tol):
        # Of fixed sizes, or missed as it is: shorter transitions would be resolved even less. They
        # tell the error all the same, twice the change at first order.
        return last._replace(
            trace=_with_errors(last.trace, 2 * distances(last, ran(2, inner)), tol)
        )
    longest = max(1, int(np.max(np.asarray(series.hops), initial=1)))
    gaps: list[tuple[int, float, int]] = []  # parts, distance, parts
    shifts: list[tuple[int, float, int]] = []  # the same of log Z
    factor = 2
    for _ in range(_RUNS - 1):
        new = ran(factor * last.parts, inner)
        steps, moved = distances(last, new), _changes(last, new)
        gaps.append((last.parts, float(np.max(steps)), new.parts))
        shifts.append((last.parts, float(np.max(moved)), new.parts))
        # What is left: the change is C (n^-p - m^-p), and C m^-p of it remains.
        ratio = new.parts / last.parts
        steps = steps / (ratio ** _order(gaps) - 1)
        # Likelihoods of outliers converge later than laws do: they are told, and not waited for.
        errors = np.fmax(steps, moved / (ratio ** _order(shifts) - 1))
        worst, last = float(np.max(steps)), new
        if not worst > _SHARE * tol:
            break
        # The next one by the best order: if that is not reached there is another one.
        factor = int(np.clip(np.ceil((worst / (_SHARE * tol)) ** (1 / _ORDERS[1])), 2, _LEAP))
        if factor * last.parts * longest > _MOST:
            break
    return last._replace(trace=_with_errors(last.trace, errors, tol))


def _order(changes: list[tuple[int, float, int]]) -> float:
    """p of the last two changes C (n^-p - m^-p), between the orders that are believed in."""
    if len(changes) < 2:
        return _ORDERS[0]
    before, now = changes[-2:]

    def expected(p: float) -> float:
        return (now[0] ** -p - now[2] ** -p) / (before[0] ** -p - before[2] ** -p)

    if not (before[1] > 0 and now[1] > 0):
        return _ORDERS[0]
    grid = np.linspace(*_ORDERS, 41)
    misfit = [abs(np.log(expected(p) * before[1] / now[1])) for p in grid]
    return float(grid[int(np.argmin(misfit))])


def distances(coarse: Ran, fine: Ran) -> np.ndarray:
    """int |p - q| of the laws of every row, over draws of the finer ones."""
    draws = np.asarray(fine.laws.draws(jax.random.key(0), _POINTS))
    out = np.zeros(draws.shape[1])
    # Before the first transition there is nothing to compare.
    for t in np.flatnonzero(np.asarray(fine.series.steps) > 0):
        x = jnp.asarray(draws[:, t])
        if not np.all(np.isfinite(draws[:, t])):
            out[t] = np.inf
            continue
        p, q = (np.asarray(ran.laws.density(int(t)).log_density(x)) for ran in (coarse, fine))
        ratios = np.expm1(np.clip(p - q, -np.inf, 50.0))
        # Draws of an atom have no density; it is the same for both.
        out[t] = np.mean(np.abs(ratios[np.isfinite(q)])) if np.isfinite(q).any() else 0.0
    return out


def _changes(coarse: Ran, fine: Ran) -> np.ndarray:
    """|log Z - log Z'| of every row."""
    each = (np.asarray(ran.trace.log_likelihoods) for ran in (coarse, fine))
    with np.errstate(invalid="ignore"):
        return np.nan_to_num(np.abs(np.subtract(*each)))


def _with_errors(trace: Trace, more: np.ndarray, tol: float) -> Trace:
    errors = jnp.asarray(more) + (0.0 if trace.errors is None else trace.errors)
    return trace._replace(errors=errors, codes=held_to(trace.codes, errors, tol))
