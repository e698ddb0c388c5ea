"""What a likelihood does between the nodes of a lattice that these do not show.

A spot that a sensor sees, or does not see, may lie between nodes: their sums then agree with each
other and are wrong. So every cell is looked into before a lattice is believed.
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float

from ..loop.roughness import look_inside
from ..tables import Seen
from .axes import Axis, lattice_weights, shape_of
from .law import Looked, likelihoods
from .values import PlaneValues

# Points of a look along each axis, and along each axis of a cell, at least and at most.
_DENSE, _LEAST, _MOST = 256, 2, 12
# Nats below the highest value of a likelihood that are looked at: more makes no difference.
_DEEP = 700.0


class Hidden(NamedTuple):
    """Mass that may be missing or too much, over that of the law, and the nodes beside it."""

    share: float
    nodes: Bool[np.ndarray, "n m"]


def _between(axis: Axis, looks: int) -> Float[np.ndarray, " k"]:
    """Nodes, and points from each of them to the next."""
    nodes = axis.nodes
    gaps = np.append(np.diff(nodes), nodes[-1] - nodes[-2])
    return (nodes[:, None] + gaps[:, None] * np.arange(looks)[None, :] / looks).reshape(-1)


def hidden_in(values: PlaneValues, seen: tuple[Seen, ...], looked: Looked, least: float) -> Hidden:
    """What is hidden in cells that hold more than `least` of the mass, by what is found there."""
    axes, shape = looked.axes, shape_of(looked.axes)
    nothing = Hidden(0.0, np.zeros(shape, bool))
    if not seen or min(shape) < 3 or not np.isfinite(np.max(looked.logs)):
        return nothing
    looks = int(np.clip(_DENSE // max(shape), _LEAST, _MOST))
    mesh = np.meshgrid(*(_between(axis, looks) for axis in axes), indexing="ij")
    points = np.stack(mesh, axis=-1).reshape(-1, 2)
    logs = likelihoods(values, seen, points @ looked.turn.T)
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
