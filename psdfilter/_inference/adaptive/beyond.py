"""Observations that rest on what is far from all nodes of a lattice.

A lattice has nodes where predictions have mass. A likelihood that is nearly zero there, but has a
floor, leaves a law on the floor, whose sums agree with each other; what it has far away, times the
tail of the prediction, may be all there is. Such an observation is much less likely than others
were, and so seldom that all of the tail can be looked at.
"""

import numpy as np
from scipy.special import logsumexp

from .reach import Frame
from .rules import no_nan
from .sparse import SparseStretch
from .tables import Values

# Nats below the most likely observation from which on one is looked at: tails that lattices leave
# out are 1e-12 of a prediction and less.
_UNLIKELY = 20.0
# Deviations of the noise on both sides of where nodes lead, and points to each of them: a Gaussian
# tail has nothing beyond that a float64 could tell from zero.
_FAR, _POINTS = 40.0, 8
# Most points of a look.
_MOST = 2**14


def first_beyond(
    values: Values, frame: Frame, stretch: SparseStretch, highest: float, target: float
) -> int | None:
    """The first step that lacks more than its target far from its nodes; `highest` of log Z yet."""
    if frame.noise is None or stretch.grid.region.sensor is not None:
        return None  # Gaussian sensors have no floor
    num = stretch.ran.done
    ys = stretch.series.seen(stretch.first, stretch.first + num)
    used = ~np.isnan(ys).all(axis=1) & ~np.isinf(ys).any(axis=1)
    norms = np.where(used, stretch.ran.told.log_norm[:num], -np.inf)
    likely = np.maximum.accumulate(np.append(highest, norms))[:-1]
    for k in np.flatnonzero(used & (norms < likely - _UNLIKELY)):
        if _outside(values, frame, stretch, int(k)) > np.log(target):
            return int(k)
    return None


def _outside(values: Values, frame: Frame, stretch: SparseStretch, k: int) -> float:
    """log of the mass outside of the nodes of a step, over its own."""
    law, noise = stretch.law(k), frame.noise
    assert law.source is not None
    assert noise is not None
    means = values.means(law.source)
    if means is None or not np.any(np.isfinite(means)):
        return -np.inf
    low = max(float(np.nanmin(means)) - _FAR * noise, frame.lower)
    high = min(float(np.nanmax(means)) + _FAR * noise, frame.upper)
    num = int(min(np.ceil(_POINTS * (high - low) / noise), _MOST))
    x = np.linspace(low, high, max(num, 2))
    x = x[(x < law.nodes[0]) | (x > law.nodes[-1])]
    if len(x) == 0:
        return -np.inf
    logs = values.push(law.source, x).log_p
    for one in law.seen:
        logs = logs + values.log_likelihood(x, one)
    spacing = (high - low) / max(num - 1, 1)
    return float(logsumexp(no_nan(logs)) + np.log(spacing) - law.log_norm)
