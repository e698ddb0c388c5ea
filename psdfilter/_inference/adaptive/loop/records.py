"""What the compiled loop of sparse lattices is given, and what it leaves behind."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

# Axes of all arrays; the first ones have a single node where the state has fewer coordinates.
AXES = 4
# Most neighbours along an axis that a node reaches: eight deviations to each side, on the finest
# lattice of a line.
BAND = 1024
# What half of the nodes err by where all of them are just enough.
ENOUGH = 0.008
# Why a run of steps has ended.
DONE, MISSED, OUTSIDE, FULL, WIDE = 0, 1, 2, 3, 4


class Tables(NamedTuple):
    """What the loop reads: values at the nodes of a region of the lattice, in C order.

    Attributes:
        low: index of the first node along every axis.
        size: number of nodes along every axis.
        means: f at the nodes, in z.
        sensor: h at the nodes, in units of the sensor's noise; none of a likelihood by tables.
        middle, spread: middle of its range from a node to the next along all axes, and half of it.
        inside: whether a node is where the state lives, and not beside a wall.
        rough: whether f, and h, have kinks or jumps near a node.
        missed: share of the mass of a node that goes where no other node shows.
        hidden: whether h does something from a node to the next that nodes do not show.
        logs: log G at the nodes for every row; none of a sensor with Gaussian noise.
        between: the same between nodes, its largest value where there are several points.
        bent: the second difference of log G there, over what nodes can resolve.
        kernel: Q at pairs of nodes, old ones first; none of Gaussian noise.
        band: of every old node, the first new one that it reaches, and the one after the last.
        peak: the highest value of a kernel.
        hides: whether anything is hidden.
    """

    low: Int[np.ndarray, " 4"]
    size: Int[np.ndarray, " 4"]
    means: Float[np.ndarray, "r 4"]
    sensor: Float[np.ndarray, "r p"]
    middle: Float[np.ndarray, "r p"]
    spread: Float[np.ndarray, "r p"]
    inside: Int[np.ndarray, " r"]
    rough: Bool[np.ndarray, "2 r"]
    missed: Float[np.ndarray, " r"]
    hidden: Bool[np.ndarray, " r"]
    logs: Float[np.ndarray, "t r"]
    between: Float[np.ndarray, "t r"]
    bent: Float[np.ndarray, "t r"]
    kernel: Float[np.ndarray, "r r"]
    band: Int[np.ndarray, "r 2"]
    peak: float
    hides: bool


class Numbers(NamedTuple):
    """Numbers of a run."""

    axes: int  # coordinates of the state
    h: float
    threshold: float  # mass of a node that is dropped
    tail: float  # mass times kernel where the kernel of a node is cut off
    depth: float  # nats below the highest value where structure of the likelihood matters
    target: float  # largest error of one step
    total: float  # largest error accumulated


class Active(NamedTuple):
    """Nodes that hold mass, and errors carried over masses."""

    place: Int[np.ndarray, "n 4"]
    masses: Float[np.ndarray, " n"]
    carried: Float[np.ndarray, " n"]
    error: float
    lost: float
    dropped: float  # mass that was left out


class Kept(NamedTuple):
    """Nodes of all steps, one after the other, and where each step ends."""

    place: Int[np.ndarray, "m 4"]
    masses: Float[np.ndarray, " m"]
    carried: Float[np.ndarray, " m"]
    ends: Int[np.ndarray, " t"]


class Told(NamedTuple):
    """Numbers of every step.

    Attributes:
        log_norm: log Z; of a row without observation, that of the mass kept.
        numbers: error accumulated, its own part, error of the sum over nodes, that of nodes left
            out, mass lost, mean of relative errors, mass dropped.
        halves: what every second node would err by, along the worst axis.
        mean, covariance: of z.
    """

    log_norm: Float[np.ndarray, " t"]
    numbers: Float[np.ndarray, "t 7"]
    halves: Float[np.ndarray, " t"]
    mean: Float[np.ndarray, "t 4"]
    covariance: Float[np.ndarray, "t 4 4"]

    def some(self, rows: slice) -> "Told":
        """Those of some steps."""
        log_norm, numbers, halves, mean, covariance = (part[rows] for part in self)
        return Told(log_norm, numbers, halves, mean, covariance)


class Scratch(NamedTuple):
    """Arrays that every step writes anew; the first ones have room for a window."""

    sums: Float[np.ndarray, "3 w"]  # nodes that are multiples of four, other even ones, others
    carried: Float[np.ndarray, " w"]
    total: Float[np.ndarray, " w"]
    post: Float[np.ndarray, " w"]
    lines: Float[np.ndarray, "3 w"]
    fine: Float[np.ndarray, " w"]
    left_out: Float[np.ndarray, " w"]  # what nodes that were dropped would add to kept ones
    weights: Float[np.ndarray, "4 b"]
    window: Int[np.ndarray, "3 4"]  # first node, number of nodes, strides
    band: Int[np.ndarray, "2 4"]  # first neighbour of a node, number of neighbours
    scalars: Float[np.ndarray, " 8"]
