"""Where a density is, and Gauss-Legendre nodes there, in panels that are short where it varies.

Panel edges are at even steps of the length of a curve, the profile of the root of the density along
an axis (the largest over the other one), with one unit for all of the width and two for each way up
or down:

    s = int (dx^2 / L^2 + 4 dr^2 / (max r)^2)^{1/2},   r = sqrt(density).

A mode gets four panels, be it narrow or wide. What the density is to be multiplied by may ask for
more: a rate of panels per unit of length, where there is mass.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..._gaussian.quadrature import legendre_rule
from .atoms import Atoms

LogDensity = Callable[[Float[Array, "n d"]], Float[Array, " n"]]

# Where the density is below this share of its peak, no nodes are spent.
NOTHING = 1e-10
_LOG_NOTHING = float(np.log(NOTHING))
# Panels follow the length of the curve (x, 2 sqrt f), x and sqrt f from 0 to 1: a rise of the root
# to its peak and the fall from it count like four widths of the support.
_PER_SLOPE = 2.0
# Margins, in outermost panels.
_MARGIN = 1.5
# P h^2 of atoms at distance h: exp(-pi^2 / (P h^2)) is what their sums can resolve.
_SHARPNESS = 0.35


class Rule(NamedTuple):
    """Nodes on the box and their weights."""

    nodes: Float[Array, "n d"]
    weights: Float[Array, " n"]


class Region(NamedTuple):
    """Part of the box, cut into panels along each axis."""

    edges: tuple[Float[Array, " k"], ...]

    @property
    def low(self) -> Float[Array, " d"]:
        """The lower corner."""
        return jnp.stack([line[0] for line in self.edges])

    @property
    def high(self) -> Float[Array, " d"]:
        """The upper corner."""
        return jnp.stack([line[-1] for line in self.edges])

    def with_margins(self) -> "Region":
        """A panel more on either side, inside of the box; where there is nothing to be seen."""
        wider = []
        for line in self.edges:
            low = jnp.maximum(line[0] - _MARGIN * (line[1] - line[0]), -1.0)
            high = jnp.minimum(line[-1] + _MARGIN * (line[-1] - line[-2]), 1.0)
            wider.append(jnp.concatenate([low[None], line, high[None]]))
        return Region(tuple(wider))


def mesh(axes: tuple[Array, ...]) -> Float[Array, "n d"]:
    """The points axes[0] x axes[1] x ..., first axis slowest."""
    return jnp.stack([m.ravel() for m in jnp.meshgrid(*axes, indexing="ij")], axis=-1)


def rule_on(region: Region, num: int) -> Rule:
    """`num` nodes in every panel of every axis."""
    z, w = (jnp.asarray(part) for part in legendre_rule(num))
    axes, volumes = [], jnp.ones(1)
    for edges in region.edges:
        half, middle = 0.5 * jnp.diff(edges), 0.5 * (edges[1:] + edges[:-1])
        axes.append((middle[:, None] + half[:, None] * z[None, :]).ravel())
        volumes = (volumes[:, None] * (half[:, None] * w[None, :]).ravel()[None, :]).ravel()
    return Rule(mesh(tuple(axes)), volumes)


def whole_box(dim: int, num: int) -> Rule:
    """`num` nodes along each axis of the unit box."""
    return rule_on(Region((jnp.asarray([-1.0, 1.0]),) * dim), num)


def axes_between(
    low: Float[Array, " d"], high: Float[Array, " d"], num: int
) -> tuple[tuple[Array, ...], tuple[Array, ...]]:
    """Nodes and weights of one panel, axis by axis."""
    nodes, weights = (jnp.asarray(part) for part in legendre_rule(num))
    half, middle = 0.5 * (high - low), 0.5 * (high + low)
    each = range(low.size)
    return tuple(middle[i] + half[i] * nodes for i in each), tuple(half[i] * weights for i in each)


def _profiles(logs: Float[Array, " n"], dim: int, scan: int) -> list[Float[Array, " k"]]:
    """The largest value over the other axes, for each axis."""
    table = logs.reshape((scan,) * dim)
    axes = range(dim)
    return [jnp.max(table, axis=tuple(i for i in axes if i != axis)) for axis in axes]


def _ends(profile: Float[Array, " k"], line: Float[Array, " k"]) -> tuple[Array, Array]:
    """The points before the first and after the last one that is above nothing."""
    alive, last = profile > jnp.max(profile) + _LOG_NOTHING, line.size - 1
    low = jnp.maximum(jnp.argmax(alive) - 1, 0)
    high = jnp.minimum(last - jnp.argmax(alive[::-1]) + 1, last)
    return line[low], line[high]


def corners_of(
    log_density: LogDensity, dim: int, scan: int
) -> tuple[Float[Array, " d"], Float[Array, " d"]]:
    """Corners of the part of the unit box where a density is, from a scan of it."""
    line = jnp.asarray(np.linspace(-1.0, 1.0, scan))
    profiles = _profiles(_cleaned(log_density(mesh((line,) * dim))), dim, scan)
    ends = [_ends(profile, line) for profile in profiles]
    return jnp.stack([low for low, _ in ends]), jnp.stack([high for _, high in ends])


def region_between(
    log_density: LogDensity,
    low: Float[Array, " d"],
    high: Float[Array, " d"],
    scan: int,
    panels: int,
    rate: Callable[[Float[Array, " k"]], Float[Array, " k"]] | None = None,
) -> tuple[Region, Float[Array, ""]]:
    """Panels between two corners, narrowed to where the density is; and the log of its peak."""
    dim, unit = low.size, jnp.asarray(np.linspace(0.0, 1.0, scan))
    lines = tuple(low[i] + (high[i] - low[i]) * unit for i in range(dim))
    logs = _cleaned(log_density(mesh(lines)))
    peak = jnp.max(logs)
    peak = jnp.where(jnp.isfinite(peak), peak, 0.0)
    edges = []
    for line, profile in zip(lines, _profiles(logs, dim, scan), strict=True):
        first, last = _ends(profile, line)
        root = jnp.exp(0.5 * (profile - peak))
        across = jnp.diff(line) / (last - first)
        pace = jnp.hypot(across, _PER_SLOPE * jnp.diff(root))
        if rate is not None:
            middle = 0.5 * (line[1:] + line[:-1])
            used = jnp.sqrt(jnp.maximum(root[1:], root[:-1]))
            pace = pace + rate(middle) * jnp.diff(line) * used
        pace = jnp.where((line[1:] > first) & (line[:-1] < last), pace, 0.0)
        sums = jnp.concatenate([jnp.zeros(1), jnp.cumsum(pace)])
        levels = jnp.asarray(np.arange(1, panels) / panels) * sums[-1]
        inner = jnp.interp(levels, sums, line)
        edges.append(jnp.concatenate([first[None], inner, last[None]]))
    return Region(tuple(edges)), peak


def find_region(
    log_density: LogDensity,
    dim: int,
    scan: int,
    panels: int,
    rate: Callable[[Float[Array, " k"]], Float[Array, " k"]] | None = None,
) -> tuple[Region, Float[Array, ""]]:
    """Panels where a density is on the unit box, from a scan of it and a second one where it is."""
    return region_between(log_density, *corners_of(log_density, dim, scan), scan, panels, rate)


def _cleaned(logs: Float[Array, " n"]) -> Float[Array, " n"]:
    """Not a number is nothing."""
    return jnp.where(jnp.isnan(logs), -jnp.inf, logs)


def graded_atoms(region: Region, num: int) -> Atoms:
    """Atoms at even steps through the panels and one step beyond, as wide as they are apart.

    In one dimension `num` and half as many, in the plane `num` in all.
    """
    dim = len(region.edges)
    counts = (num, num // 2) if dim == 1 else (max(int(num ** (1 / dim)), 4),)
    parts = []
    for count in counts:
        lines, gaps = [], []
        for edges in region.edges:
            steps = jnp.asarray(np.linspace(0.0, 1.0, count - 2) * (edges.size - 1))
            line = jnp.interp(steps, jnp.asarray(np.arange(float(edges.size))), edges)
            ends = 2.0 * line[:1] - line[1:2], 2.0 * line[-1:] - line[-2:-1]
            lines.append(jnp.concatenate([ends[0], line, ends[1]]))
            gaps.append(jnp.gradient(lines[-1]))
        each = _SHARPNESS / jnp.square(mesh(tuple(gaps)))
        precision = each[:, :, None] * jnp.eye(dim)[None]
        parts.append(Atoms(mesh(tuple(lines)), precision))
    return joined(*parts)


def joined(*parts: Atoms) -> Atoms:
    """All atoms in one row."""
    return Atoms(*(jnp.concatenate(part) for part in zip(*parts, strict=True)))
