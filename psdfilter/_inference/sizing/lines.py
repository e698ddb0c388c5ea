"""Functions along lines through typical states, by which every axis is sized alone."""

from collections.abc import Callable

import numpy as np
from jaxtyping import Float

from ..._density.box import Box
from ..._gaussian.spectrum import legendre_transform
from ..._learning.axes import Axis, features, least_num
from ..._learning.sizing import oversampling_for, pad_for, ridge_for, spread_for
from ..._statespace.model import Inputs, StateSpaceModel
from ..._statespace.pairs import log_transition_pairs
from ..numerics.grids import center_of, half_of
from .plan import Unaffordable, ridge_fit
from .typical import TypicalPaths


def most_per_axis(dim: int) -> int:
    """The most anchors or nodes on one axis."""
    return {1: 3000, 2: 180, 3: 72, 4: 40}.get(dim, 32)


class Lines:
    """Values of a root function along one axis, through typical points."""

    def __init__(self, values: Callable[[np.ndarray], np.ndarray], discount: Callable):
        self._values, self._discount = values, discount

    def varies(self) -> bool:
        """Whether the function depends on this axis at all."""
        roots = self._values(np.linspace(-0.97, 0.99, 9))
        return bool(np.ptp(roots, axis=0).max() > 1e-12 * np.max(np.abs(roots)))

    def degree(self, tol: float) -> int:
        """Legendre degree beyond which the lines hold less than `tol` of their peak."""
        num = 64
        while True:
            nodes, transform = legendre_transform(num)
            roots = self._values(nodes)
            tails = np.cumsum(np.abs(transform @ roots)[::-1], axis=0)[::-1]
            above = np.flatnonzero(np.max(tails, axis=1) > tol * np.max(roots))
            if above.size == 0 or above[-1] < 0.85 * num or num >= 1024:
                return int(above[-1]) + 1 if above.size else 1
            num *= 2

    def error(self, axis: Axis, ridge: float) -> float:
        """Discounted sup error of g^2 between the training nodes, relative to its largest value."""
        trained = axis.nodes
        held = 0.5 * (trained[1:] + trained[:-1])
        roots = self._values(np.concatenate([trained, held]))
        coefficients = ridge_fit(axis, trained, roots[: len(trained)], ridge)
        fitted = features(held, axis.anchors, axis.precision) @ coefficients
        truth = roots[len(trained) :]
        gap = np.abs(np.square(fitted) - np.square(truth)) * self._discount(held)[:, None]
        return float(np.max(gap) / max(np.max(np.square(roots)), 1e-300))


# From this multiple on sizes grow in larger steps.
_FEW_SIZES = 8


def rounded_up(num: int, multiple: int) -> int:
    """The next multiple: plans of equal sizes share their compiled programs.

    Multiples of eight or more are 1, 2, 3, 4, 6, 8, 12, ... times as much: where a state has one
    coordinate, half as many nodes again cost less than one more compilation.
    """
    times = -(-num // multiple)
    if multiple < _FEW_SIZES or times < 4:
        return times * multiple
    power = 2 ** (times - 1).bit_length()
    return multiple * (3 * power // 4 if times <= 3 * power // 4 else power)


def smallest_axis(lines: Lines, tol: float, limit: int, what: str, multiple: int = 1) -> Axis:
    """The fewest anchors, rounded up, whose error on the lines is at most `tol`."""
    spread, pad = spread_for(tol), pad_for(tol, spread_for(tol))
    least = max(4, least_num(spread, pad))
    oversampling = oversampling_for(2)

    def design(num: int) -> Axis:
        return Axis.padded(num, spread, pad, oversampling)

    def ok(num: int) -> bool:
        return lines.error(design(num), ridge_for(tol)) <= tol

    # A grid of spacing h carries degrees up to about pi / h: start there, then walk. Every trial
    # costs a singular value decomposition of its size.
    inner = 2 * lines.degree(tol) / np.pi
    num = max(least, int(np.ceil(inner + 2 * pad / np.sqrt(spread))))
    if num <= limit and ok(num):
        for stride in (0.8, 0.93):
            while num > least:
                fewer = max(least, min(num - 1, int(stride * num)))
                if not ok(fewer):
                    break
                num = fewer
        return design(rounded_up(num, multiple))
    while num < limit:
        num = min(limit, int(np.ceil(1.08 * num)) + 1)
        if ok(num):
            return design(rounded_up(num, multiple))
    raise Unaffordable(
        f"{what} needs more than {limit} anchors on this axis for an error of {tol:.1g}: the noise "
        "is too small for the box"
    )


def axis_discount(box: Box, paths: TypicalPaths, axis: int) -> Callable[[np.ndarray], np.ndarray]:
    """How much an error at coordinate z of an axis counts: one where paths go, less where never.

    The distance to the range of the paths, in units of their spread, costs a factor exp(-d^2 / 2):
    what lies beyond is reached with about that probability.
    """
    unit = (paths.states[..., axis] - center_of(box)[axis]) / half_of(box)[axis]
    low, high, spread = np.min(unit), np.max(unit), max(float(np.std(unit)), 1e-3)

    def discount(z: np.ndarray) -> np.ndarray:
        beyond = np.maximum(np.maximum(low - z, z - high), 0.0) / (0.5 * spread)
        return np.exp(-0.5 * np.square(beyond))

    return discount


def typical_pairs(paths: TypicalPaths, num: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Typical (u, x, t), spread over chains and steps."""
    steps = paths.states.shape[1]
    old = paths.states[:, :-1].reshape(-1, paths.states.shape[2])
    new = paths.states[:, 1:].reshape(-1, paths.states.shape[2])
    times = np.tile(np.arange(1, steps), paths.states.shape[0])
    pick = np.linspace(0, len(old) - 1, min(num, len(old))).astype(int)
    return old[pick], new[pick], times[pick]


def line_points(points: np.ndarray, axis: int, box: Box, nodes: np.ndarray) -> np.ndarray:
    """(lines, nodes, d): the points with one coordinate running through the box."""
    lines = np.repeat(points[:, None, :], len(nodes), axis=1)
    lines[:, :, axis] = center_of(box)[axis] + half_of(box)[axis] * nodes
    return lines


def line_table(
    ssm: StateSpaceModel,
    group: tuple[int, ...],
    lines: Float[np.ndarray, "k n d"],
    fixed: Float[np.ndarray, "k d"],
    times: np.ndarray,
    moving_u: bool,
    inputs: Inputs,
) -> Float[np.ndarray, "k n"]:
    """log Q_g along lines with the other argument fixed."""
    moving = lines.reshape(-1, lines.shape[2])
    still = np.repeat(fixed, lines.shape[1], axis=0)
    u, x = (moving, still) if moving_u else (still, moving)
    t = np.repeat(times, lines.shape[1])
    return log_transition_pairs(ssm, group, u, x[:, list(group)], t, inputs).reshape(
        lines.shape[:2]
    )
