"""Distribution functions of one coordinate, from masses at the nodes of a window.

Integrals up to the nodes come from the interpolant of the rule, spectrally accurate; between them
goes a monotone cubic. On a circle the function goes on, by one for every turn, and levels are
counted from the point opposite of the mean direction.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from .rules import Rule

_BISECTIONS = 52


class Line(NamedTuple):
    """A distribution function at points of a window, with its slopes."""

    points: Float[Array, " m"]
    levels: Float[Array, " m"]
    slopes: Float[Array, " m"]

    def below(self, x: Float[Array, ""]) -> Float[Array, ""]:
        """P(X <= x)."""
        at = jnp.clip(x, self.points[0], self.points[-1])
        i = jnp.clip(jnp.searchsorted(self.points, at, side="right") - 1, 0, self.points.size - 2)
        return self._inside(i, (at - self.points[i]) / self._width(i))

    def quantile(self, level: Float[Array, ""]) -> Float[Array, ""]:
        """The point of a level in [0, 1]."""
        i = jnp.searchsorted(self.levels, level, side="right") - 1
        i = jnp.clip(i, 0, self.points.size - 2)

        def halve(_: Array | int, ends: tuple[Array, Array]) -> tuple[Array, Array]:
            middle = 0.5 * (ends[0] + ends[1])
            above = self._inside(i, middle) > level
            return jnp.where(above, ends[0], middle), jnp.where(above, middle, ends[1])

        low, high = jax.lax.fori_loop(0, _BISECTIONS, halve, (jnp.zeros(()), jnp.ones(())))
        return self.points[i] + self._width(i) * 0.5 * (low + high)

    def _width(self, i: Array) -> Array:
        return self.points[i + 1] - self.points[i]

    def _inside(self, i: Array, s: Array) -> Array:
        """Hermite's cubic of one cell, s in [0, 1]."""
        a, b, width = self.levels[i], self.levels[i + 1], self._width(i)
        p, q = self.slopes[i] * width, self.slopes[i + 1] * width
        bump = s * (1 - s) * ((1 - s) * p - s * q)
        return a + (b - a) * s * s * (3 - 2 * s) + bump


def line_of(
    rule: Rule, lower: Array, upper: Array, masses: Float[Array, " n"], walls: bool, whole: Array
) -> Line:
    """Of masses at nodes of a rule on (lower, upper); `whole` circles have slopes at the ends."""
    width = upper - lower
    levels = jnp.asarray(rule.cumulative) @ masses
    slopes = masses / jnp.asarray(rule.weights) / width
    points = lower + width * jnp.asarray(rule.nodes)
    if not walls:
        end = jnp.where(whole, 0.5 * (slopes[0] + slopes[-1]), 0.0)
        points = jnp.concatenate([lower[None], points, upper[None]])
        levels = jnp.concatenate([jnp.zeros(1), levels, jnp.ones(1)])
        slopes = jnp.concatenate([end[None], slopes, end[None]])
    levels = jnp.clip(levels, 0.0, 1.0).at[0].set(0.0).at[-1].set(1.0)
    levels = jax.lax.cummax(levels)
    # Slopes within three secants keep a cubic from turning back.
    secants = jnp.diff(levels) / jnp.diff(points)
    least = jnp.minimum(
        jnp.concatenate([secants[:1], secants]), jnp.concatenate([secants, secants[-1:]])
    )
    return Line(points, levels, jnp.minimum(slopes, 3 * least))


class Circle(NamedTuple):
    """The distribution function of an angle."""

    line: Line
    period: Float[Array, ""]
    cut: Float[Array, ""]  # opposite of the mean direction

    def _from_window(self, x: Array) -> Array:
        """The function that goes on over all turns."""
        start = self.line.points[0]
        turns = jnp.floor((x - start) / self.period)
        return self.line.below(x - turns * self.period) + turns

    def below(self, x: Float[Array, ""]) -> Float[Array, ""]:
        """Mass between the cut and x, for x by whole turns within one turn after the cut."""
        at = x - self.period * jnp.floor((x - self.cut) / self.period)
        return jnp.clip(self._from_window(at) - self._from_window(self.cut), 0.0, 1.0)

    def quantile(self, level: Float[Array, ""]) -> Float[Array, ""]:
        """The angle of a level; levels beyond (0, 1) go on into the next turn."""
        wanted = level + self._from_window(self.cut)
        turns = jnp.floor(wanted)
        return self.line.quantile(wanted - turns) + turns * self.period
