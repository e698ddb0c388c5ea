"""Kinks and jumps of Q(u, x) that move with x: old panels integrated anew for single x.

int_P pi(u) Q(u, x) du with the 15 values of pi on the panel made a polynomial, and the panel halved
where the integrand is rough: Laplace, uniform or exponential noise then costs a few hundred values
for each x instead of thousands of nodes for all of them.
"""

from functools import lru_cache
from typing import NamedTuple

import numpy as np

from .rules import MARGIN, PANEL, embedded_error, end_rows, lagrange, patterson
from .tables import Source, Sums, Values

# A panel whose error is a larger share of p(x) does not see the transition at all: it is halved
# for all x instead.
BLIND = 0.2
# Halvings of a panel for one x; a jump is then met to 2^-24 of it.
_ROUNDS = 24
# Intervals for single x that are integrated in one go, and pairs: a jump keeps two intervals of a
# pair at work, and a kink no more.
_MOST, _PAIRS = 2**14, 2**12


class Smooth(NamedTuple):
    """Panels of a law as polynomials: density at their nodes, and how wrong they are between."""

    lower: np.ndarray
    upper: np.ndarray
    density: np.ndarray  # (k, PANEL)
    log_scale: np.ndarray  # (k,), of the density
    relative: np.ndarray  # (k,) error over each panel's own mass
    target: float

    def mends(self, sums: Sums, blind: float = BLIND) -> np.ndarray:
        """Pairs (k, m) whose integral can be had from the polynomials.

        The error of a polynomial counts as much as its panel does for x; where the panel does not
        see the transition at all, other panels do not either.
        """
        good = self.relative[:, None] * sums.shares[0] < 0.25 * self.target
        return good & (sums.errors < blind)


@lru_cache(maxsize=1)
def _coarse_maps() -> np.ndarray:
    """From values at 15 nodes to the polynomials through 7 and through 3 of them, at all 15."""
    nodes = patterson().nodes
    out = np.zeros((2, PANEL, PANEL))
    for level, used in enumerate((np.arange(1, 15, 2), np.array([3, 7, 11]))):
        some = np.polynomial.legendre.legvander(nodes[used], len(used) - 1)
        every = np.polynomial.legendre.legvander(nodes, len(used) - 1)
        out[level][:, used] = every @ np.linalg.inv(some)
    return out


def smooth_panels(
    lower: np.ndarray, upper: np.ndarray, log_masses: np.ndarray, target: float
) -> Smooth:
    """Panels as polynomials; densities are relative to the largest mass of each panel."""
    logs = log_masses.reshape(-1, PANEL)
    half = 0.5 * (upper - lower)
    weights = half[:, None] * patterson().weights[0][None, :]
    tops = np.max(logs, axis=1)
    tops = np.where(np.isfinite(tops), tops, 0.0)
    density = np.exp(logs - tops[:, None]) / weights
    gaps = [np.sum(weights * np.abs(density - density @ m.T), axis=1) for m in _coarse_maps()]
    own = np.maximum(np.sum(weights * density, axis=1), 1e-300)
    return Smooth(lower, upper, density, tops, embedded_error(gaps[0], gaps[1]) / own, target)


class _Work(NamedTuple):
    """Intervals for single x: the panel and the new point that each belongs to."""

    low: np.ndarray
    high: np.ndarray
    panel: np.ndarray
    point: np.ndarray


def corrected(
    values: Values,
    source: Source,
    x: np.ndarray,
    sums: Sums,
    where: np.ndarray,
    target: float,
    blind: float = BLIND,
) -> tuple[np.ndarray, np.ndarray]:
    """log p and its companions (4, m), rough pairs of panel and x integrated anew where asked.

    Pairs with an error of `blind` and more are left to those who can halve the panel.
    """
    smooth = source.smooth
    log_p, companions = sums.log_p, sums.companions
    if smooth is None or not np.any(where):
        return log_p, companions
    bad = smooth.mends(sums, blind) & (sums.errors > target / 8) & where[None, :]
    panel, point = np.nonzero(bad)
    if len(panel) == 0:
        return log_p, companions
    parts = [
        _integrate(
            values, source, x, log_p, (panel[k : k + _PAIRS], point[k : k + _PAIRS]), target / 8
        )
        for k in range(0, len(panel), _PAIRS)
    ]
    anew, rest = (np.concatenate(part) for part in zip(*parts, strict=True))
    gain = np.zeros(len(x))
    np.add.at(gain, point, anew - sums.shares[0][panel, point])
    # The coarser rules have nothing more to say of these pairs: they take the new value, less what
    # the halving left.
    lower = np.zeros((2, len(x)))
    for level in (0, 1):
        np.add.at(lower[level], point, anew - rest - sums.shares[level + 1][panel, point])
    total = np.maximum(1 + gain, 1e-3)
    out = companions.copy()
    out[:2] = (companions[:2] + lower) / total
    out[2:] = companions[2:] / total
    return log_p + np.log(total), out


def _integrate(
    values: Values,
    source: Source,
    x: np.ndarray,
    log_p: np.ndarray,
    pairs: tuple[np.ndarray, np.ndarray],
    limit: float,
) -> tuple[np.ndarray, np.ndarray]:
    """Integrals of pairs over p(x), and the errors left."""
    smooth = source.smooth
    assert smooth is not None
    rule = patterson()
    # The ends as well: nodes see no jump in the margins beside them.
    places = np.concatenate([rule.nodes, [-1.0, 1.0]])
    panel, point = pairs
    total, left = np.zeros(len(panel)), np.zeros(len(panel))
    kept_parts = kept_errors = np.zeros(0)
    place = np.arange(len(panel))
    work = _Work(smooth.lower[panel], smooth.upper[panel], panel, point)
    for _ in range(_ROUNDS):
        middle, half = 0.5 * (work.low + work.high), 0.5 * (work.high - work.low)
        u = middle[:, None] + half[:, None] * places[None, :]
        low, high = smooth.lower[work.panel], smooth.upper[work.panel]
        z = (2 * u - (low + high)[:, None]) / (high - low)[:, None]
        density = np.einsum("ijk,ik->ij", lagrange(z), smooth.density[work.panel])
        xs = np.repeat(x[work.point], len(places))
        logs = values.log_q_pairs(u.reshape(-1), xs, source.t, source.row).reshape(u.shape)
        logs = logs + (smooth.log_scale[work.panel] - log_p[work.point])[:, None]
        terms = np.maximum(density, 0.0) * np.exp(logs)
        inner, ends = terms[:, :PANEL], terms[:, PANEL:]
        parts = half[:, None] * (inner @ rule.weights.T)
        errors = embedded_error(parts[:, 0] - parts[:, 1], parts[:, 1] - parts[:, 2])
        jumps = np.max(np.abs(ends - inner @ end_rows().T), axis=1)
        errors = np.maximum(errors, MARGIN * half * jumps)
        go = errors > 0.1 * limit
        if np.count_nonzero(go) * 2 > _MOST:
            worst = np.argsort(-errors)[: _MOST // 2]
            chosen = np.zeros(len(go), dtype=bool)
            chosen[worst] = True
            go &= chosen
        np.add.at(total, place[~go], parts[~go, 0])
        np.add.at(left, place[~go], errors[~go])
        if not np.any(go):
            return total, left
        again = _Work(*(a[go] for a in work))
        center = middle[go]
        place = np.concatenate([place[go], place[go]])
        work = _Work(
            np.concatenate([again.low, center]),
            np.concatenate([center, again.high]),
            np.concatenate([again.panel, again.panel]),
            np.concatenate([again.point, again.point]),
        )
        kept_parts, kept_errors = parts[go, 0], errors[go]
    # Out of rounds: the last values stand, with their errors.
    first = place[: len(place) // 2]
    np.add.at(total, first, kept_parts)
    np.add.at(left, first, kept_errors)
    return total, left
