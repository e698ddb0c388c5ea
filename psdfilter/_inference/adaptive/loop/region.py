"""Values of a model at the nodes of a region of a lattice, for the compiled loop."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from ...._statespace.functions import as_vector, call, keywords_of
from ...._statespace.model import (
    AdditiveGaussian,
    Inputs,
    LinearGaussian,
    StateSpaceModel,
)
from ...numerics.compiled import call_compiled
from .looks import (
    LOOKS,
    ROWS,
    Likelihoods,
    Rows,
    filled,
    line_likelihoods,
    plane_likelihoods,
)
from .records import AXES, Active, Tables
from .roughness import BEYOND_CORNERS, between, is_rough, look_inside

# Points that are evaluated at once: one size, one program.
_BLOCK = 2048
# Deviations of the noise from one look at a likelihood to the next, in the plane. A peak on a floor
# has to be seen within about five of its widths: a precise sensor with clutter is, if it is no more
# than sixty times as precise as the noise.
_SEEN = 0.9 / 8
# Looks at maps from a node to the next along an axis, by coordinates.
_FINE = {1: 8, 2: 4, 3: 2, 4: 2}
# Nodes of a region, by coordinates: tables of megabytes.
_REGION = {1: 2**16, 2: 2**17, 3: 2**20, 4: 2**22}


class Space(NamedTuple):
    """Coordinates x = frame z in which the noise has variance one, and walls in z."""

    frame: Float[np.ndarray, "d d"]
    low: Float[np.ndarray, " d"]
    high: Float[np.ndarray, " d"]


class Sensor(NamedTuple):
    """Gaussian noise of a sensor: residuals times `whiten` have variance one."""

    whiten: Float[np.ndarray, "p p"]
    diagonal: bool

    def constant(self, ys: Float[np.ndarray, "t p"]) -> Float[np.ndarray, " t"]:
        """What log G has beside the squares, of the coordinates that were seen."""
        logs = np.log(np.diag(self.whiten)) - 0.5 * np.log(2 * np.pi)
        return np.sum(np.where(np.isnan(ys), 0.0, logs[None, :]), axis=1)


def _maps(ssm: StateSpaceModel, x: Array, t: Array, row: Inputs) -> tuple[Array, Array]:
    """f and h at points; h has no columns where the likelihood is given by itself."""
    form = ssm.structure
    if isinstance(form, LinearGaussian):
        seen = jnp.zeros((x.shape[0], 0))
        if form.H is not None and form.d is not None:
            seen = x @ form.H.T + form.d[None, :]
        return x @ form.F.T + form.b[None, :], seen
    assert isinstance(form, AdditiveGaussian)

    h = form.h

    def both(point: Array) -> tuple[Array, Array]:
        one = as_vector(call(form.f, point, t=t, inputs=row))
        none = jnp.zeros(0)
        return one, none if h is None else as_vector(call(h, point, t=t, inputs=row))

    return jax.vmap(both)(x)


class Region:
    """A model on a lattice: which nodes are tabulated, and their values.

    Args:
        ssm: a model of additive Gaussian noise, or one with linear dynamics.
        space: its coordinates.
        h: the spacing.
    """

    def __init__(self, ssm: StateSpaceModel, space: Space, h: float):
        self.ssm, self.space, self.h = ssm, space, h
        self.dim = len(space.low)
        self.sensor = sensor_of(ssm)
        self.changes = changes(ssm)
        self.low = np.zeros(AXES, np.int64)
        self.size = np.zeros(AXES, np.int64)
        self._values: Values | None = None
        self._lines: list[np.ndarray] = []
        self._z = np.zeros((0, self.dim))

    def cover(self, first: Int[np.ndarray, " 4"], last: Int[np.ndarray, " 4"], most: int) -> bool:
        """Tabulate all nodes of a window, and some more; False if these are too many."""
        real = np.arange(AXES) >= AXES - self.dim
        room = np.where(real, 4 + (last - first) // 4, 0)
        low, high = first - room, last + room
        if self._values is not None:
            wide = np.minimum(low, self.low), np.maximum(high, self.low + self.size - 1)
            if np.prod(wide[1] - wide[0] + 1) <= most:
                low, high = wide
        if np.prod(high - low + 1) > most:
            low, high = first, last
        if np.prod(high - low + 1) > most:
            return False
        self.low, self.size = low, high - low + 1
        ends = zip(low[real], high[real], strict=True)
        self._lines = [np.arange(a, b + 1) * self.h for a, b in ends]
        mesh = np.meshgrid(*self._lines, indexing="ij")
        self._z = np.stack(mesh, axis=-1).reshape(-1, self.dim)
        self._values = None
        return True

    def reached(self, active: Active, tail: float, row: Rows) -> bool:
        """Tabulate some nodes and what these reach; False if that is too much."""
        dim, place = self.dim, active.place
        span = self._span(self.means_at(place[:, AXES - dim :] * self.h, row), active.masses, tail)
        if span is None:
            return False
        first, last = place.min(axis=0), place.max(axis=0)
        real = slice(AXES - dim, AXES)
        first[real] = np.minimum(first[real], span[0])
        last[real] = np.maximum(last[real], span[1])
        return self.cover(first, last, _REGION[dim])

    def _span(
        self, means: Float[np.ndarray, "n d"], masses: Float[np.ndarray, " n"], tail: float
    ) -> tuple[Int[np.ndarray, " d"], Int[np.ndarray, " d"]] | None:
        """First and last node that old ones reach, and one more; None if there are none."""
        there = np.all(np.isfinite(means), axis=1)
        if not np.any(there):
            return None
        reach = np.sqrt(2 * np.log(masses / tail))[:, None] + self.h
        low = np.min((means - reach)[there], axis=0) / self.h
        high = np.max((means + reach)[there], axis=0) / self.h
        if not max(np.max(np.abs(low)), np.max(np.abs(high))) < 2**40:
            return None
        return np.floor(low).astype(np.int64), np.ceil(high).astype(np.int64)

    @property
    def is_empty(self) -> bool:
        """Whether no nodes are tabulated yet."""
        return len(self._z) == 0

    @property
    def rows_at_once(self) -> int:
        """Rows that tables are good for."""
        if self.changes or self.follows:
            return 1
        return ROWS if self.sensor is None else 2**30

    @property
    def follows(self) -> bool:
        """Whether likelihoods are looked at where a step goes: in the plane looks are many."""
        return self.sensor is None and self.dim > 1

    def means_at(self, z: Float[np.ndarray, "n d"], row: Rows) -> Float[np.ndarray, "n d"]:
        """f in z."""
        inputs = jax.tree.map(lambda a: a[0], row.rows)
        means = self._mapped(z, int(row.steps[0]), inputs)[0]
        return np.linalg.solve(self.space.frame, means.T).T

    def tables(self, rows: Rows, active: Active, tail: float) -> Tables:
        """What the loop reads for some rows; `active` is the law before them."""
        if self._values is None or self.changes:
            # What nodes hide is looked for once: maps that change are mostly shifted.
            self._values = self._tabulated(rows, self._values)
        seen, values = Likelihoods.none(), self._values
        if self.follows:
            seen = self._ahead(values, rows, active, tail)
        elif self.sensor is None:
            seen = line_likelihoods(self.ssm, self._lines[0], float(self.space.frame[0, 0]), rows)
        return Tables(
            self.low,
            self.size,
            values.means,
            values.sensor,
            values.middle,
            values.spread,
            values.inside,
            values.rough,
            values.missed,
            values.hidden,
            logs=seen.logs,
            between=seen.between,
            bent=seen.bent,
            kernel=np.zeros((0, 0)),
            band=np.zeros((0, 2), np.int64),
            peak=1.0,
            hides=bool(np.any(values.hidden)),
        )

    def _ahead(self, values: "Values", rows: Rows, active: Active, tail: float) -> Likelihoods:
        """Likelihoods where the next step goes; zero elsewhere."""
        shape = tuple(int(n) for n in self.size[AXES - self.dim :])
        at = (active.place - self.low)[:, AXES - self.dim :]
        out = Likelihoods.zero(shape)
        if np.any(at < 0) or np.any(at >= shape):
            return out  # the loop says so, and asks again
        means = values.means[np.ravel_multi_index(tuple(at.T), shape), AXES - self.dim :]
        span = self._span(means, active.masses, tail)
        if span is None:
            return out
        low = self.low[AXES - self.dim :]
        part = tuple(
            slice(max(int(a), 0), min(int(b) + 1, n))
            for a, b, n in zip(span[0] - low, span[1] - low, shape, strict=True)
        )
        lines = [line[some] for line, some in zip(self._lines, part, strict=True)]
        if min(len(line) for line in lines) < 2:
            return out
        looks = int(np.clip(np.ceil(self.h / _SEEN), 2, LOOKS))
        found = plane_likelihoods(self.ssm, lines, self.space.frame, rows, looks)
        for whole, some in zip(out, found, strict=True):
            whole.reshape(shape)[part] = some.reshape([len(line) for line in lines])
        return out

    def _tabulated(self, rows: Rows, known: "Values | None") -> "Values":
        """Values of all nodes, and what lies between them unless that is known."""
        t, dim = int(rows.steps[0]), self.dim
        row = jax.tree.map(lambda a: a[0], rows.rows)
        shape = tuple(int(n) for n in self.size[AXES - dim :])
        if known is None:
            fine = [between(line, _FINE[dim]) for line in self._lines]
            mesh = np.stack(np.meshgrid(*fine, indexing="ij"), axis=-1).reshape(-1, dim)
            moved, watched = (
                look_inside(part, shape, _FINE[dim], most)
                for part, most in zip(
                    self._whitened(mesh, t, row), (BEYOND_CORNERS, np.inf), strict=True
                )
            )
            means, seen = moved.nodes, watched.nodes
            cells = watched.middle, watched.spread
            hidden = moved.hidden_beside.astype(float), watched.hidden
        else:
            means, seen = self._whitened(self._z, t, row)
            cells = self._whitened(self._z + 0.5 * self.h, t, row)[1], np.zeros(seen.shape)
            hidden = known.missed, known.hidden
        full = np.zeros((len(means), AXES))
        full[:, AXES - dim :] = means
        full[~np.all(np.isfinite(full), axis=1)] = np.nan
        rough = np.stack([is_rough(full[:, AXES - dim :], shape), is_rough(seen, shape)])
        return Values(full, seen, *cells, self._inside(), rough, *hidden)

    def _inside(self) -> Int[np.ndarray, " r"]:
        """One where the state lives, two beside a wall, else zero."""
        space, z = self.space, self._z
        within = np.all((z >= space.low) & (z <= space.high), axis=1)
        beside = np.any((z < space.low + self.h) | (z > space.high - self.h), axis=1)
        return np.where(within, np.where(beside, 2, 1), 0).astype(np.int64)

    def _whitened(self, z: np.ndarray, t: int, row: Inputs) -> tuple[np.ndarray, np.ndarray]:
        """f in z, and h in deviations of its noise."""
        means, seen = self._mapped(z, t, row)
        means = np.linalg.solve(self.space.frame, means.T).T
        seen = seen if self.sensor is None else seen @ self.sensor.whiten.T
        return means, np.ascontiguousarray(seen)

    def _mapped(self, z: np.ndarray, t: int, row: Inputs) -> tuple[np.ndarray, np.ndarray]:
        x, one, two = z @ self.space.frame.T, [], []
        for k in range(0, len(x), _BLOCK):
            part = x[k : k + _BLOCK]
            out = call_compiled(_maps, self.ssm, filled(part, _BLOCK), t, row)
            one.append(np.asarray(out[0])[: len(part)])
            two.append(np.asarray(out[1])[: len(part)])
        return np.concatenate(one), np.concatenate(two)


class Values(NamedTuple):
    """`Tables.means`, `sensor`, `middle` and what comes after them."""

    means: Float[np.ndarray, "r 4"]
    sensor: Float[np.ndarray, "r p"]
    middle: Float[np.ndarray, "r p"]
    spread: Float[np.ndarray, "r p"]
    inside: Int[np.ndarray, " r"]
    rough: Bool[np.ndarray, "2 r"]
    missed: Float[np.ndarray, " r"]
    hidden: Bool[np.ndarray, " r"]


def sensor_of(ssm: StateSpaceModel) -> Sensor | None:
    """Gaussian noise of a sensor; None if the likelihood is given by itself."""
    form = ssm.structure
    known = isinstance(form, AdditiveGaussian) or (
        isinstance(form, LinearGaussian) and form.H is not None
    )
    if form is None or not known or form.R is None:
        return None
    if getattr(form, "turns", None) is not None:
        # Residuals of angles are wrapped: the likelihood is tabulated by itself.
        return None
    noise = np.asarray(form.R)
    try:
        whiten = np.linalg.inv(np.linalg.cholesky(noise))
    except np.linalg.LinAlgError:
        return None
    return Sensor(whiten, bool(np.count_nonzero(noise - np.diag(np.diag(noise))) == 0))


def changes(ssm: StateSpaceModel) -> bool:
    """Whether tables are good for one step only: maps that take the time or inputs."""
    form = ssm.structure
    if isinstance(form, AdditiveGaussian):
        return bool(keywords_of(form.f) or (form.h is not None and keywords_of(form.h)))
    return False
