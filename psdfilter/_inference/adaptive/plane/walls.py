"""Walls in the plane that nobody gave, moved out where a law rests on what is beyond them."""

from collections.abc import Iterable

import numpy as np
from jaxtyping import Array, Bool, Float

from ...._density.box import Box
from ...._statespace.functions import keywords_of
from ...._statespace.model import StateSpaceModel, log_transition_table
from ...numerics.compiled import call_compiled, remembered
from ..rules import no_nan
from ..walls import NOTHING, are_ours, highest, widened
from .known import plane_values
from .law import Law, log_law
from .values import PlaneValues

# Where a law is looked at along an axis: beyond a wall in half-widths of the box, and inside.
_LADDER, _INNER = 2.0 ** np.arange(-6.0, 7.0), np.linspace(-1.0, 1.0, 25)
# Old states along an axis of a table of what leaves the box.
_STATES = 17
# Logs of shares are cut here: sums of their exponentials stay finite.
_HIGHEST = 600.0


# A box that holds more, and what laws have beyond the one they were made in.
Found = tuple[Box, np.ndarray]


def wider(values: PlaneValues, laws: Iterable[Law], target: float) -> Found | None:
    """A box twice as wide on the sides where laws have more than nothing, and what they have."""
    ssm = values.ssm
    if not are_ours(ssm):
        return None
    every, outside = [law for law in laws if not law.is_flat], _Outside(ssm)
    shares = outside.shares(values, every) if every else np.zeros((0, 4))
    short = np.any(shares > NOTHING * target, axis=0)
    if not np.any(short):
        return None
    low, high = np.array(ssm.state_box.lower), np.array(ssm.state_box.upper)
    width = high - low
    ends = low - width * short[:2], high + width * short[2:]
    return Box(*outside.within(*ends)), np.sum(shares, axis=1)


def with_box(values: PlaneValues, box: Box) -> PlaneValues:
    """The values of the same model on another box."""
    return plane_values(widened(values.ssm, lambda s: s.state_box, box))


class _Outside:
    """Points beyond the walls of a box, and the area that each of them stands for."""

    def __init__(self, ssm: StateSpaceModel):
        box, self.ssm = ssm.state_box, ssm
        center, half = np.array(box.center), np.array(box.half_width)
        self.low, self.high = center - half, center + half
        lines, widths, (least, most) = [], [], self._reach()
        for k in range(2):
            line = np.concatenate([-1 - _LADDER[::-1], _INNER, 1 + _LADDER])
            line = np.clip(center[k] + half[k] * line, least[k], most[k])
            lines.append(line)
            widths.append(np.gradient(line))
        self.x = np.stack(np.meshgrid(*lines, indexing="ij"), axis=-1).reshape(-1, 2)
        self.area = np.outer(*widths).ravel()
        kept = np.any((self.x < self.low) | (self.x > self.high), axis=1) & (self.area > 0)
        self.x, self.area = self.x[kept], self.area[kept]
        self.sides = self._sides()

    def _reach(self) -> tuple[np.ndarray, np.ndarray]:
        reach = self.ssm.reach_box
        if reach is None:
            return np.full(2, -np.inf), np.full(2, np.inf)
        return np.array(reach.lower), np.array(reach.upper)

    def _sides(self) -> Bool[np.ndarray, "4 n"]:
        return np.concatenate([(self.x < self.low).T, (self.x > self.high).T])

    def within(self, low: np.ndarray, high: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Walls that coordinates without walls can have."""
        least, most = self._reach()
        return np.maximum(low, least), np.minimum(high, most)

    def shares(self, values: PlaneValues, laws: list[Law]) -> Float[np.ndarray, "n 4"]:
        """Mass of each law beyond each wall, over what is inside; more, where a bound is enough."""
        out = np.zeros((len(laws), 4))
        fixed = not self.ssm.vectorized and not keywords_of(self.ssm.log_transition)
        leaks = remembered(self.ssm, _Outside, self._leaks) if fixed else None
        gains = highest(self.ssm, self.x, laws) if fixed else None
        z = values.space.z_of(self.x)
        for k, law in enumerate(laws):
            if law.source is None or leaks is None or gains is None:
                # Densities are those of z.
                logs = log_law(values, law, z) - values.space.log_det
                out[k] = self.sides @ (self.area * np.exp(np.minimum(logs, _HIGHEST)))
                continue
            gain = gains[k] - law.log_norm
            old = values.space.x_of(law.source.nodes)
            lost = np.exp(law.source.log_masses) @ leaks[self._cells(old)]
            out[k] = np.where(lost > 0, lost * np.exp(min(gain, _HIGHEST)), 0.0)
        return out

    def _cells(self, u: Float[np.ndarray, "n 2"]) -> np.ndarray:
        place = (u - self.low) / (self.high - self.low) * (_STATES - 1)
        i, j = np.clip(place.astype(int), 0, _STATES - 2).T
        return i * (_STATES - 1) + j

    def _leaks(self) -> Float[np.ndarray, "c 4"]:
        """The mass of Q(u, .) beyond each wall, by cells of u: the largest of their corners."""
        lines = [np.linspace(a, b, _STATES) for a, b in zip(self.low, self.high, strict=True)]
        u = np.stack(np.meshgrid(*lines, indexing="ij"), axis=-1).reshape(-1, 2)
        logs = no_nan(np.asarray(call_compiled(_pairs, self.ssm, u, self.x)))
        each = ((np.exp(np.minimum(logs, _HIGHEST)) * self.area) @ self.sides.T).reshape(
            _STATES, _STATES, 4
        )
        pairs = np.maximum(each[1:], each[:-1])
        return np.maximum(pairs[:, 1:], pairs[:, :-1]).reshape(-1, 4)


def _pairs(ssm: StateSpaceModel, u: Array, x: Array) -> Array:
    return log_transition_table(ssm, (0, 1), u, x)
