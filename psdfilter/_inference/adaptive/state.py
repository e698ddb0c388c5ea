"""The law of the state at one time: nodes, masses, and how to evaluate it between them."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from ... import _results
from ..._statespace.model import Inputs
from .dropped import left_out
from .pairs import BLIND, corrected, smooth_panels
from .panels import Field, Panels, level_ratios
from .reach import Frame
from .rules import PANEL, embedded_error, no_nan
from .tables import Idle, Seen, Source, Values

# Mass beyond an end over that of the outermost three nodes of a panel, a tenth of it, for a density
# that falls within half a panel.
BEYOND = 5.0
OUTER = 3
# Nodes without panels: the outermost are those in this share of the window, a sixth of a typical
# panel's half. Chebyshev's nodes are so close there that three of them hold nothing at all.
OUTSIDE = 1 / 80
# Where to look beyond an end, in widths of its panel and in widths of the whole: a density that is
# zero at all of these points ends there. What lies closer is a millionth of the panel.
_NEAR, _WIDE = 4.0 ** np.arange(-10.0, 1.0), 4.0 ** np.arange(-3.0, 2.0)


class Law(NamedTuple):
    """p(x) = prod_i G(x, y_i) sum_m v_m Q(u_m, x) / norm,  or with the prior for the sum.

    `source` are the nodes before the last transition, None for the prior; `seen` the observations
    since. `error` is the total variation error accumulated so far, `local` this step's own.
    """

    source: Source | None
    seen: tuple[Seen, ...]
    log_norm: float
    nodes: Float[np.ndarray, " n"]
    log_masses: Float[np.ndarray, " n"]
    ratios: Float[np.ndarray, "3 n"]
    lower: Float[np.ndarray, " k"]  # panels; empty where nodes come without
    upper: Float[np.ndarray, " k"]
    offset: float  # mean of the relative error
    error: float
    local: float
    sampling: float  # error of int p = 1 by the rule: not inherited
    code: int
    target: float  # what errors of one step were held to
    before: "Law | None" = None  # an intermediate law, where several transitions came at once
    walls: Float[np.ndarray, " e"] = np.zeros(0)  # ends of panels beyond which the density is zero
    idle: Idle | None = None

    @property
    def masses(self) -> np.ndarray:
        """w p at the nodes, of sum one."""
        return np.exp(self.log_masses)

    @property
    def has_panels(self) -> bool:
        """Whether nodes come in panels, so that they can be refined."""
        return len(self.lower) > 0

    def as_source(self, t: int, row: Inputs, target: float, frame: Frame) -> Source:
        """The measure that the next transition, into step t, starts from."""
        smooth = None
        if self.has_panels:
            smooth = smooth_panels(self.lower, self.upper, self.log_masses, target)
        ratios = np.concatenate([self.ratios, self.ends(frame)[None]])
        return Source(self.nodes, self.log_masses, ratios, smooth, t, row, self.idle)

    def ends(self, frame: Frame) -> np.ndarray:
        """Mass beyond the ends of the nodes over that of each node: zero but for the outermost.

        Ends of the support have nothing beyond, nor have jumps to zero.
        """
        if not self.has_panels:
            return ends_of_line(self.nodes, frame)
        out = np.zeros(len(self.nodes))
        tiny = 1e-9 * (self.nodes[-1] - self.nodes[0])
        gaps = self.lower[1:] > self.upper[:-1] + tiny
        left = np.concatenate([[self.lower[0] > frame.lower + tiny], gaps])
        right = np.concatenate([gaps, [self.upper[-1] < frame.upper - tiny]])
        left &= ~np.isin(self.lower, self.walls)
        right &= ~np.isin(self.upper, self.walls)
        groups = out.reshape(-1, PANEL)
        groups[left, :OUTER] = BEYOND
        groups[right, -OUTER:] = BEYOND
        return groups.reshape(-1)


def at_one_time(law: Law, other: Law) -> bool:
    """Whether two laws of a series are of the same time: several sensors, or the same row."""
    if law.source is None or other.source is None:
        return law.source is other.source
    return law.source.t == other.source.t


def ends_of_line(nodes: Float[np.ndarray, " n"], frame: Frame) -> Float[np.ndarray, " n"]:
    """`Law.ends` of nodes without panels."""
    out = np.zeros(len(nodes))
    if len(out) == 1:
        return out
    width = nodes[-1] - nodes[0]
    place, tiny, near = np.arange(len(out)), 1e-9 * width, OUTSIDE * width
    left = (place < OUTER) | (nodes <= nodes[0] + near)
    right = (place >= len(out) - OUTER) | (nodes >= nodes[-1] - near)
    left &= nodes[0] > frame.lower + tiny
    right &= nodes[-1] < frame.upper - tiny
    return BEYOND * (left | right)


def relative_errors(ratios: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Inherited and own error of a prediction, relative to it, from its companions (4, m).

    Its own is that of the sum over old nodes, and what may be missing beyond their ends.
    """
    fine, coarse = 1 - ratios[0], ratios[0] - ratios[1]
    sign = np.where(fine < 0, -1.0, 1.0)
    return ratios[2], sign * (embedded_error(fine, coarse) + ratios[3])


def depth_of(target: float) -> float:
    """Nats below the highest value where a law has mass that counts."""
    return float(np.log(1e4 / target))


def field_of(
    values: Values,
    source: Source | None,
    seen: tuple[Seen, ...],
    target: float,
    blind: float = BLIND,
) -> Field:
    """log of the unnormalised law at points, and the prediction's companions.

    Rough transitions are integrated anew only where the law has mass, as far as it is known, and
    only for pairs whose error is below `blind`.
    """
    top = -np.inf
    cut = depth_of(target)

    def field(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        nonlocal top
        logs = np.zeros(len(x))
        for one in seen:
            logs = logs + values.log_likelihood(x, one)
        if source is None:
            logs = no_nan(logs + values.log_prior(x))
            return logs, np.concatenate([np.ones((2, len(x))), np.zeros((2, len(x)))])
        sums = values.push(source, x)
        both = no_nan(logs + sums.log_p)
        top = max(top, float(np.max(both)))
        log_p, ratios = corrected(values, source, x, sums, both > top - cut, target, blind)
        if source.idle is not None:
            lacking = left_out(values, source.idle, source, x, sums.log_p).ratio
            ratios = np.concatenate([ratios[:3], ratios[3:] + lacking[None]])
        return no_nan(logs + log_p), ratios

    return field


def evaluate(values: Values, law: Law, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """log p(x_j), and the relative error carried there.

    Old panels are what they are by now: no error is left to their being halved.
    """
    logs, ratios = field_of(values, law.source, law.seen, law.target, np.inf)(x)
    inherited, own = relative_errors(ratios)
    return logs - law.log_norm, together(inherited, own) - law.offset


def together(inherited: np.ndarray, own: np.ndarray) -> np.ndarray:
    """Two relative errors as one that has the size of both: they may not cancel."""
    sign = np.where(inherited == 0, np.sign(own), np.sign(inherited))
    return sign * (np.abs(inherited) + np.abs(own))


def walls_of(field: Field, panels: Panels) -> np.ndarray:
    """Ends of panels beyond which the density is zero, as that of a bounded sensor is."""
    if not np.isfinite(panels.log_total):
        return np.zeros(0)
    lower, upper = panels.lower, panels.upper
    left = np.concatenate([[True], lower[1:] > upper[:-1]])
    right = np.concatenate([lower[1:] > upper[:-1], [True]])
    ends = np.concatenate([lower[left], upper[right]])
    sides = np.concatenate([-np.ones(np.count_nonzero(left)), np.ones(np.count_nonzero(right))])
    widths = np.concatenate([(upper - lower)[left], (upper - lower)[right]])
    whole = np.full(len(ends), upper[-1] - lower[0])
    away = np.concatenate([widths[:, None] * _NEAR, whole[:, None] * _WIDE], axis=1)
    looks = ends[:, None] + sides[:, None] * away
    logs, _ = field(looks.reshape(-1))
    return ends[np.all(np.isneginf(logs.reshape(looks.shape)), axis=1)]


def law_of(
    source: Source | None,
    seen: tuple[Seen, ...],
    panels: Panels,
    target: float,
    walls: np.ndarray,
) -> Law:
    """Bayes' rule on panels, with its errors.

    The relative error of the density is |c| + |l| with the sign of c, less its mean: c inherited
    through the transition, l from the quadrature over old nodes. A step's own error is the mean
    of |l| itself: it is that of log Z too, and where one old node holds the whole sum, l is
    constant and yet nothing is known between the nodes.
    """
    found = np.isfinite(panels.log_total)
    if not found:
        return atom(float(panels.nodes[0]))._replace(
            source=source, seen=seen, log_norm=-np.inf, code=_results.NO_MASS
        )
    masses = panels.masses
    inherited, own = relative_errors(panels.flat_extras)
    passed = float(masses @ np.abs(inherited - masses @ inherited))
    local = float(masses @ np.abs(own))
    shape = together(inherited, own)
    mean = float(masses @ shape)
    ratios = np.concatenate([level_ratios(len(panels.lower)), (shape - mean)[None]])
    sampling = float(np.sum(panels.errors)) + panels.dropped
    return Law(
        source,
        seen,
        panels.log_total,
        panels.nodes,
        panels.log_masses,
        ratios,
        panels.lower,
        panels.upper,
        mean,
        passed + local,
        local,
        sampling,
        _results.OK,
        target,
        walls=walls,
        idle=panels.idle,
    )


def atom(x: float) -> Law:
    """A state known exactly."""
    none = np.zeros(0)
    nodes, ratios = np.array([x]), np.array([[1.0], [1.0], [0.0]])
    return Law(
        None, (), 0.0, nodes, np.zeros(1), ratios, none, none, 0.0, 0.0, 0.0, 0.0, _results.OK, 1e-3
    )
