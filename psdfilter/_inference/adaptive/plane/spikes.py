"""Peaks of a likelihood that stand on a floor, between the nodes of a lattice: see `..spikes`.

A lattice of one spacing does not resolve a narrow peak and a wide floor at once. What is found here
is counted as an error, so that nothing is missing without a word.
"""

from collections.abc import Callable

import numpy as np
from jaxtyping import Bool, Float

from .... import _results
from ...._statespace.model import AdditiveGaussian, LinearGaussian
from ..rules import no_nan
from ..spikes import BUMP, MOST
from ..tables import Seen
from .axes import Axes, lattice_weights
from .law import Law, Looked, likelihoods, points_of
from .sums import Source, log_sums
from .values import PlaneValues

# Points of a look along each axis: peaks are seen that are wider than 1/3000 of the window.
_DENSE = 320
# Points, and steps, of the search for the top of a peak, each four times as close as the last.
_POINTS, _STEPS = 17, 12
# Nodes of a lattice are close enough for a peak of so many spacings to a width.
_RESOLVED = 1.5


def has_floor(values: PlaneValues) -> bool:
    """Whether a likelihood may have one: those of additive Gaussian noise have none."""
    form = values.ssm.structure
    if isinstance(form, AdditiveGaussian):
        return form.h is None
    return not (isinstance(form, LinearGaussian) and form.H is not None)


def bends(logs: Float[np.ndarray, "n m"]) -> Float[np.ndarray, "k l"]:
    """Largest |second difference| along both axes, at inner points."""
    with np.errstate(invalid="ignore", over="ignore"):
        one = np.abs(logs[:-2, 1:-1] - 2 * logs[1:-1, 1:-1] + logs[2:, 1:-1])
        two = np.abs(logs[1:-1, :-2] - 2 * logs[1:-1, 1:-1] + logs[1:-1, 2:])
    return np.nan_to_num(np.maximum(one, two), nan=0.0, posinf=np.inf)


def _tops(logs: Float[np.ndarray, "n m"]) -> Bool[np.ndarray, "k l"]:
    """Inner points that none of their neighbours exceeds."""
    inner = logs[1:-1, 1:-1]
    out = np.isfinite(inner)
    n, m = logs.shape
    for i in range(3):
        for j in range(3):
            out &= inner >= logs[i : n - 2 + i, j : m - 2 + j]
    return out


def hidden_mass(
    values: PlaneValues,
    source: Source | None,
    seen: tuple[Seen, ...],
    window: tuple[Axes, Float[np.ndarray, "2 2"]],
    law: Law,
) -> float:
    """Mass of the peaks in a window that the lattice of a law does not resolve, over its own."""
    axes, turn = window
    if law.is_flat or any(axis.num == 0 for axis in axes):
        return 0.0
    if source is not None and not seen:
        return 0.0

    def log_values(z: np.ndarray) -> np.ndarray:
        """Of what may have peaks: the likelihood, and the prior if that is the user's own."""
        logs = likelihoods(values, seen, z)
        return no_nan(logs + values.log_prior(z)) if source is None else logs

    lines = [np.linspace(axis.low, axis.high, _DENSE) for axis in axes]
    mesh = np.stack(np.meshgrid(*lines, indexing="ij"), axis=-1).reshape(-1, 2)
    logs = log_values(mesh @ turn.T).reshape(_DENSE, _DENSE)
    i, j = np.nonzero(_tops(logs) & (bends(logs) > BUMP))
    if len(i) == 0:
        return 0.0
    order = np.argsort(-logs[i + 1, j + 1])[:MOST]
    centre = np.stack([lines[0][i[order] + 1], lines[1][j[order] + 1]], axis=1)
    step = float(np.max([line[1] - line[0] for line in lines]))
    # Widths along the axes of the lattice that is to resolve them.
    centre, width, height = _followed(log_values, centre @ turn.T @ law.turn, step, law.turn)
    z = centre @ law.turn.T
    log_p = np.zeros(len(z)) if source is None else log_sums(values, source, z)
    masses = 2 * np.pi * np.prod(width, axis=1) * np.exp(log_p + height - law.log_norm)
    cell = np.array([(axis.high - axis.low) / axis.num for axis in law.axes])
    near = np.abs(centre[:, None, :] - (law.nodes @ law.turn)[None, :, :])
    held = np.any(np.all(near <= 2 * cell, axis=2), axis=1)
    fine = np.all(cell <= _RESOLVED * width, axis=1)
    return float(min(np.sum(np.where(held & fine, 0.0, masses)), 2.0))


def _followed(
    log_values: Callable[[np.ndarray], np.ndarray],
    centre: Float[np.ndarray, "k 2"],
    first: float,
    turn: Float[np.ndarray, "2 2"],
) -> tuple[Float[np.ndarray, "k 2"], Float[np.ndarray, "k 2"], Float[np.ndarray, " k"]]:
    """Tops of peaks, their widths along the axes, and their heights."""
    offsets = np.linspace(-1.0, 1.0, _POINTS)
    grid = np.stack(np.meshgrid(offsets, offsets, indexing="ij"), axis=-1).reshape(-1, 2)
    step = np.full((len(centre), 2), first)
    each, height = np.arange(len(centre)), np.zeros(len(centre))
    width = step.copy()
    for _ in range(_STEPS):
        points = centre[:, None, :] + step[:, None, :] * grid[None, :, :]
        flat = log_values(points.reshape(-1, 2) @ turn.T)
        logs = flat.reshape(len(centre), _POINTS, _POINTS)
        best = np.argmax(logs.reshape(len(centre), -1), axis=1)
        i, j = (np.clip(k, 1, _POINTS - 2) for k in np.unravel_index(best, (_POINTS, _POINTS)))
        height = logs[each, i, j]
        cell = step * 2 / (_POINTS - 1)
        with np.errstate(invalid="ignore"):
            bend = np.stack(
                [
                    2 * height - logs[each, i - 1, j] - logs[each, i + 1, j],
                    2 * height - logs[each, i, j - 1] - logs[each, i, j + 1],
                ],
                axis=1,
            )
        bend = np.nan_to_num(bend, nan=np.inf)
        centre = centre + step * np.stack([offsets[i], offsets[j]], axis=1)
        # A ridge is as long as the look at it.
        width = np.minimum(cell / np.sqrt(np.clip(bend, 1e-9, 1e9)), first * _DENSE)
        if np.all(bend < 1):
            break
        step = np.where(bend < 1, step, step / 4)
    return centre, width, height


def outside(looked: Looked, axes: Axes, turn: Float[np.ndarray, "2 2"]) -> float:
    """log of the mass at nodes that are not between the ends of other axes."""
    with np.errstate(divide="ignore"):
        weights = np.log(lattice_weights(looked.axes)[looked.place[:, 0], looked.place[:, 1]])
    # Steep tails hold less than their nodes say; a floor is flat.
    flat = np.pad(bends(looked.dense) < 1, 1, constant_values=True)
    w = points_of(looked.axes, looked.turn, looked.place) @ turn
    low, high = (np.array([getattr(axis, end) for axis in axes]) for end in ("low", "high"))
    out = ~np.all((w >= low) & (w <= high), axis=1) & flat[looked.place[:, 0], looked.place[:, 1]]
    logs = (looked.logs + weights)[out]
    top = float(np.max(logs, initial=-np.inf))
    return top + float(np.log(np.sum(np.exp(logs - top)))) if np.isfinite(top) else -np.inf


def lost_to_floors(
    values: PlaneValues,
    given: tuple[Source | None, tuple[Seen, ...]],
    around: tuple[tuple[Axes, Float[np.ndarray, "2 2"]], list[float]],
    law: Law,
) -> float:
    """Mass that looks have left outside, or that peaks may hide, of likelihoods with a floor."""
    (source, seen), (window, left_out) = given, around
    if law.code != _results.OK or not has_floor(values):
        return 0.0
    # A floor far below a peak may hold more than the peak.
    lost = float(np.sum(np.exp(np.minimum(np.array(left_out) - law.log_norm, 1.0))))
    return lost + hidden_mass(values, source, seen, window, law)
