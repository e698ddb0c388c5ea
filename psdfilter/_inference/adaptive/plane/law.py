"""The law of the state at one time: a lattice, its nodes that hold mass, and how to evaluate it."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from .... import _results
from ...._statespace.model import Inputs
from ..rules import embedded_error, no_nan
from ..state import together
from ..tables import Seen
from .axes import LEAST_SHARE, Axes, Axis, is_edge, shape_of
from .sums import CARRIED, EDGE, HALF, QUARTER, RATIOS, Source, at_points, log_sums, on_lattice
from .values import PlaneValues

# Mass left out beside a node at the edge, over that of the node: of densities that fall by a factor
# of 1.25 from node to node, and faster.
BEYOND = 4.0


class Law(NamedTuple):
    """p(z) = prod_i G(z, y_i) sum_m v_m Q(u_m, z) / norm,  or with the prior for the sum.

    `source` are the nodes before the last transition, None for the prior; `seen` the observations
    since. `error` is the total variation error accumulated so far, `local` this step's own,
    `edge` the part of it that nodes before the transition have left out.
    """

    source: Source | None
    seen: tuple[Seen, ...]
    log_norm: float
    axes: Axes
    turn: Float[np.ndarray, "2 2"]  # of the axes: z = turn w
    place: Int[np.ndarray, "n 2"]  # indices of nodes
    log_masses: Float[np.ndarray, " n"]
    shape: Float[np.ndarray, " n"]  # relative error carried
    offset: float
    error: float
    local: float
    sampling: float
    edge: float
    code: int
    depth: float  # nats below the highest value that are kept
    lost: float = 0.0  # mass that no lattice held, now or before, as far as it is not forgotten
    hint: tuple[int, int] = (0, 0)  # intervals that the next law may begin with
    before: "Law | None" = None  # an intermediate law, where several transitions came at once
    dropped: float = 0.0  # mass of the nodes that were left out

    @property
    def total(self) -> float:
        """All that is estimated of its error."""
        return self.error + self.sampling + self.lost

    @property
    def nodes(self) -> Float[np.ndarray, "n 2"]:
        """Where mass is, in z."""
        return points_of(self.axes, self.turn, self.place)

    @property
    def masses(self) -> Float[np.ndarray, " n"]:
        """w p at the nodes, of sum one."""
        return np.exp(self.log_masses)

    @property
    def kept(self) -> Bool[np.ndarray, "n m"]:
        """The nodes that hold mass, as a mask of the lattice."""
        out = np.zeros((self.axes[0].num + 1, self.axes[1].num + 1), bool)
        out[self.place[:, 0], self.place[:, 1]] = True
        return out

    def archived(self) -> "Law":
        """Without what only more steps would need: half of the memory."""
        before = None if self.before is None else self.before.archived()
        if self.source is None:
            return self._replace(before=before)
        source = self.source._replace(ratios=np.zeros((0, len(self.source.nodes))))
        return self._replace(source=source, before=before)

    @property
    def is_flat(self) -> bool:
        """A coordinate is known exactly, so that there is no density."""
        return self.axes[0].num == 0 or self.axes[1].num == 0

    def as_source(self, values: PlaneValues, t: int, row: Inputs) -> Source:
        """The measure that the next transition, into step t, starts from."""
        i, j = self.place[:, 0], self.place[:, 1]
        ratios = np.zeros((RATIOS, len(i)))
        for k, place in enumerate((i, j)):
            half, quarter = self.axes[k].companions()
            ratios[HALF[k]], ratios[QUARTER[k]] = half[place], quarter[place]
        ratios[CARRIED] = self.shape
        ratios[EDGE] = np.asarray(is_edge(self.axes, self.kept))[i, j]
        nodes = self.nodes
        means = values.means(nodes, t, row) if values.space.gaussian else None
        if means is not None:
            # What is thrown to infinity stays nowhere.
            lost = np.any(~np.isfinite(means), axis=1)
            means = np.where(np.stack([lost, lost], axis=1), 0.0, means)
            masses = np.where(lost, -np.inf, self.log_masses)
            return Source(nodes, masses, ratios, means, t, row, self.dropped)
        return Source(nodes, self.log_masses, ratios, None, t, row, self.dropped)


def points_of(
    axes: Axes, turn: Float[np.ndarray, "2 2"], index: Int[np.ndarray, "n 2"]
) -> Float[np.ndarray, "n 2"]:
    """Nodes of a lattice, in z."""
    w = np.stack([axes[0].nodes[index[:, 0]], axes[1].nodes[index[:, 1]]], axis=1)
    return w @ turn.T


class Looked(NamedTuple):
    """Values at nodes of a lattice: log of the unnormalised law, and companions over p.

    `lacking` is what nodes that were left out may add to p, over p.
    """

    axes: Axes
    turn: Float[np.ndarray, "2 2"]
    place: Int[np.ndarray, "n 2"]  # indices of nodes
    logs: Float[np.ndarray, " n"]
    ratios: Float[np.ndarray, "r n"]
    lacking: Float[np.ndarray, " n"]

    @property
    def dense(self) -> Float[np.ndarray, "n m"]:
        """The logs on the whole lattice, -inf where nothing was looked at."""
        out = np.full(shape_of(self.axes), -np.inf)
        out[self.place[:, 0], self.place[:, 1]] = self.logs
        return out

    def some(self, which: Bool[np.ndarray, " n"]) -> "Looked":
        """Some of the nodes."""
        return self._replace(
            place=self.place[which],
            logs=self.logs[which],
            ratios=self.ratios[:, which],
            lacking=self.lacking[which],
        )


def look(
    values: PlaneValues,
    source: Source | None,
    seen: tuple[Seen, ...],
    axes: Axes,
    turn: Float[np.ndarray, "2 2"],
    mask: Bool[np.ndarray, "n m"],
) -> Looked:
    """The unnormalised law at nodes of a lattice."""
    index = np.argwhere(mask)
    points = points_of(axes, turn, index)
    logs = likelihoods(values, seen, points)
    if values.space.walled and turn[0, 0] != 1:
        # Walls are not the ends of turned axes.
        inside = np.all((points >= values.space.low) & (points <= values.space.high), axis=1)
        logs = np.where(inside, logs, -np.inf)
    if source is None:
        ratios = np.ones((RATIOS, len(index)))
        ratios[[CARRIED, EDGE]] = 0.0
        prior = prior_logs(values, axes, points)
        return Looked(axes, turn, index, no_nan(logs + prior), ratios, np.zeros(len(index)))
    if values.space.separable:
        turned = source if source.means is None else source._replace(means=source.means @ turn)
        found = on_lattice(values, turned, (axes[0].nodes, axes[1].nodes), index)
    else:
        found = at_points(values, source, points)
    log_p, ratios, log_peak = found
    lacking = source.lacking(log_p, log_peak)
    return Looked(axes, turn, index, no_nan(logs + log_p), ratios, lacking)


def prior_logs(values: PlaneValues, axes: Axes, points: np.ndarray) -> np.ndarray:
    """log p_0; where coordinates are known exactly, the density of the others."""
    start = values.space.start
    if start is None or (axes[0].num > 0 and axes[1].num > 0):
        return values.log_prior(points)
    logs = np.zeros(len(points))
    for k in range(2):
        if axes[k].num > 0:
            gap = (points[:, k] - start.mean[k]) / start.sd[k]
            logs += -0.5 * np.square(gap) - 0.5 * np.log(2 * np.pi) - np.log(start.sd[k])
    return logs


def likelihoods(values: PlaneValues, seen: tuple[Seen, ...], points: np.ndarray) -> np.ndarray:
    """sum_i log G(x_j, y_i)."""
    logs = np.zeros(len(points))
    for one in seen:
        logs = logs + values.log_likelihood(points, one)
    return logs


def own_errors(ratios: Float[np.ndarray, "6 n"]) -> Float[np.ndarray, "2 n"]:
    """Errors of sums over old nodes, relative to them, by axis."""
    half, quarter = ratios[list(HALF)], ratios[list(QUARTER)]
    return embedded_error(1 - half, half - quarter, LEAST_SHARE)


def log_law(
    values: PlaneValues, law: Law, points: Float[np.ndarray, "n 2"]
) -> Float[np.ndarray, " n"]:
    """log p(z_j), exact between nodes."""
    logs = likelihoods(values, law.seen, points)
    if law.source is None:
        return no_nan(logs + values.log_prior(points)) - law.log_norm
    return no_nan(logs + log_sums(values, law.source, points)) - law.log_norm


def law_of(
    source: Source | None,
    seen: tuple[Seen, ...],
    looked: Looked,
    sampling: float,
    depth: float,
    first: Law | None = None,
) -> Law:
    """Bayes' rule on a lattice, with its errors.

    As on a line: the relative error is |c| + |l| with the sign of c, less its mean; c inherited
    through the transition, l of the sum over old nodes. `first` is the same law on other nodes, if
    there is one: int |l| p does not depend on nodes, but rules that are estimated with more lines
    of nodes, such as those of sparse lattices, know it better. So it counts if it is less, and with
    it the mass that `first` did not find.
    """
    with np.errstate(divide="ignore"):
        log_weights = [np.log(axis.weights) for axis in looked.axes]
    i, j = looked.place[:, 0], looked.place[:, 1]
    log_masses = looked.logs + log_weights[0][i] + log_weights[1][j]
    there = np.isfinite(log_masses)
    if not np.any(there):
        return nowhere(source, seen, looked, depth)
    log_masses, looked = log_masses[there], looked.some(there)
    index, ratios = looked.place, looked.ratios
    peak = float(np.max(log_masses))
    log_norm = peak + float(np.log(np.sum(np.exp(log_masses - peak))))
    log_masses = log_masses - log_norm
    masses = np.exp(log_masses)
    inherited, edge = ratios[CARRIED], BEYOND * ratios[EDGE] + looked.lacking
    own = own_errors(ratios).sum(0)
    if first is not None:
        known, sums = first.local + abs(log_norm - first.log_norm), float(masses @ own)
        own *= min(known / sums, 1.0) if sums > 0 else 1.0
    own += edge
    passed = float(masses @ np.abs(inherited - masses @ inherited))
    local = float(masses @ own)
    shape = together(inherited, own)
    mean = float(masses @ shape)
    return Law(
        source,
        seen,
        log_norm,
        looked.axes,
        looked.turn,
        index,
        log_masses,
        shape - mean,
        mean,
        passed + local,
        local,
        sampling,
        float(masses @ edge),
        _results.OK,
        depth,
    )


def nowhere(source: Source | None, seen: tuple[Seen, ...], looked: Looked, depth: float) -> Law:
    """No mass was found."""
    middle = points_of(looked.axes, looked.turn, looked.place[:1])[0]
    return atom(middle)._replace(
        source=source, seen=seen, log_norm=-np.inf, code=_results.NO_MASS, depth=depth
    )


def atom(z: Float[np.ndarray, " 2"]) -> Law:
    """A state known exactly."""
    axes = Axis(float(z[0]), float(z[0]), 0), Axis(float(z[1]), float(z[1]), 0)
    one = np.zeros(1)
    return Law(
        None,
        (),
        0.0,
        axes,
        np.eye(2),
        np.zeros((1, 2), int),
        one,
        one,
        0.0,
        0.0,
        0.0,
        0.0,
        0.0,
        0,
        0.0,
    )
