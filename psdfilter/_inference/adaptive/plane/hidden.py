"""What sensors and maps do between the nodes of a lattice that these do not show.

A spot that a sensor sees, or does not see, may lie between nodes, and so may a place that a map
throws far away: sums over nodes then agree with each other and are wrong. So every cell is looked
into before a lattice is believed.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float

from ...._statespace.model import Inputs
from ..loop.roughness import BEYOND_CORNERS, between, look_inside
from ..tables import Seen
from .axes import Axes, lattice_weights, shape_of
from .law import Law, Looked, likelihoods, points_of
from .values import PlaneValues

# Points of a look along each axis, and along each axis of a cell, at least and at most.
_DENSE, _LEAST, _MOST = 256, 2, 12
# Points at a time: programs are compiled for few sizes.
_BLOCK = 2**13
# Nats below the highest value of a likelihood that are looked at: more makes no difference.
_DEEP = 700.0


class Hidden(NamedTuple):
    """Mass that may be missing or too much, over that of the law, and the nodes beside it."""

    share: float
    nodes: Bool[np.ndarray, "n m"]


def _looks(shape: tuple[int, int]) -> int:
    """Points along each axis of a cell."""
    return int(np.clip(_DENSE // max(shape), _LEAST, _MOST))


def _everywhere(
    fn: Callable[[np.ndarray], np.ndarray], axes: Axes, turn: Float[np.ndarray, "2 2"]
) -> np.ndarray:
    """A function at nodes and between them."""
    looks = _looks(shape_of(axes))
    mesh = np.meshgrid(*(between(axis.nodes, looks) for axis in axes), indexing="ij")
    points = np.stack(mesh, axis=-1).reshape(-1, 2) @ turn.T
    return np.concatenate(
        [fn(points[k : k + _BLOCK]) for k in range(0, len(points), _BLOCK)], axis=0
    )


def hidden_moves(values: PlaneValues, law: Law, step: tuple[int, Inputs]) -> float:
    """Mass of a law beside places from which a map leads where it leads from no node."""
    shape = shape_of(law.axes)
    if not values.space.gaussian or min(shape) < 3:
        return 0.0
    moved = _everywhere(lambda z: values.means(z, *step), law.axes, law.turn)
    inside = look_inside(moved, shape, _looks(shape), BEYOND_CORNERS)
    beside = inside.hidden_beside.reshape(shape)[law.place[:, 0], law.place[:, 1]]
    return float(np.sum(law.masses[beside]))


def most_gained(
    values: PlaneValues, seen: tuple[Seen, ...], looked: Looked, log_norm: float
) -> float:
    """By how much mass may grow in Bayes' rule if it goes where the likelihood is highest."""
    points = points_of(looked.axes, looked.turn, looked.place)
    highest = float(np.max(likelihoods(values, seen, points)))
    return float(np.exp(np.clip(highest - log_norm, 0.0, _DEEP)))


def hidden_in(values: PlaneValues, seen: tuple[Seen, ...], looked: Looked, least: float) -> Hidden:
    """What is hidden in cells that hold more than `least` of the mass, by what is found there."""
    axes, shape = looked.axes, shape_of(looked.axes)
    nothing = Hidden(0.0, np.zeros(shape, bool))
    if not seen or min(shape) < 3 or not np.isfinite(np.max(looked.logs)):
        return nothing
    looks = _looks(shape)
    logs = _everywhere(lambda z: likelihoods(values, seen, z), axes, looked.turn)
    highest = float(np.max(logs[np.isfinite(logs)], initial=-np.inf))
    if not np.isfinite(highest):
        return nothing
    logs = np.where(np.isnan(logs), -np.inf, logs)
    inside = look_inside(np.maximum(logs, highest - _DEEP)[:, None], shape, looks)
    if not np.any(inside.hidden):
        return nothing
    at_nodes = inside.nodes.reshape(shape)
    log_p = np.full(shape, -np.inf)
    there = looked.place[:, 0], looked.place[:, 1]
    log_p[there] = looked.logs - at_nodes[there]
    most = np.full(shape, -np.inf)
    for i in range(2):
        for j in range(2):
            part = log_p[i:, j:]
            most[: part.shape[0], : part.shape[1]] = np.fmax(
                most[: part.shape[0], : part.shape[1]], part
            )
    top = float(np.max(looked.logs))
    weights = lattice_weights(axes)
    total = np.sum(np.exp(looked.logs - top) * weights[there])
    logs = most + (inside.middle + inside.spread).reshape(shape) - top
    masses = np.exp(np.minimum(logs, _DEEP)) * weights / total
    masses = np.where(inside.hidden.reshape(shape), masses, 0.0)
    if float(np.sum(masses)) <= least:
        return nothing
    corners = masses > least / masses.size
    beside = corners.copy()
    beside[1:] |= corners[:-1]
    beside[:, 1:] |= beside[:, :-1]
    return Hidden(float(np.sum(masses)), beside)
