"""Laws of a scalar observation, p(y) = sum_m v_m G(x_m, y), on grids that are found for them.

Draws of y show where it is; from there a grid y = b(c + s sinh z) is widened until the density has
fallen by twelve orders of magnitude on both sides, and laid out anew where it has not. Sums over
equispaced z are right to rounding for smooth densities, whatever the tails. Whole numbers are
summed one by one. No box is asked for; the mass that is found says how well it went.
"""

import warnings
from collections.abc import Callable, Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray
from scipy.interpolate import CubicSpline

from ..._checks import Numbers
from ..._density.psd import AbstractDensity
from ..._statespace.coordinates import AbstractAxis, Real
from ..._statespace.functions import Inputs, call
from ..._statespace.model import StateSpaceModel, log_observation_grid
from ..notices import no_density_of_y
from .observed import AbstractObservedLaws

# Nodes of a law of x, with their masses.
Weighted = tuple[Float[np.ndarray, "n d"], Float[np.ndarray, " n"]]

_DRAWS, _LOOK, _POINTS, _FINE = 256, 129, 1025, 8
# A density ends where it has fallen to this share of its peak.
_END = 1e-13
_WIDENINGS, _MOST = 60, 2**17
# Steps that find a place between two points to rounding.
_NEWTON = 4
# What the mass of a law of y may differ from one by: sensors that are probabilities of some values
# and densities of others, as where y is censored, integrate to anything.
_NO_DENSITY = 0.05
# Draws of several coordinates of y: means to 1/128 of a standard deviation.
_MANY, _SEED = 2**14, 0


def _below_at(points: Float[np.ndarray, " n"], masses: Float[np.ndarray, " n"], y: float) -> float:
    """P(Y <= y) by the splines through points and masses, of which only one place is asked."""
    if not points[0] < y < points[-1]:
        return float(y >= points[-1])
    places = np.arange(len(points))
    curve, below = CubicSpline(places, points), CubicSpline(places, masses).antiderivative()
    k = int(np.clip(np.searchsorted(points, y) - 1, 0, len(points) - 2))
    place = k + (y - points[k]) / (points[k + 1] - points[k])
    for _ in range(_NEWTON):
        place = float(np.clip(place - (curve(place) - y) / curve(place, 1), k, k + 1))
    return float(np.clip(below(place) / below(places[-1]), 0.0, 1.0))


class ScalarLaws(AbstractObservedLaws):
    """Laws of y at K times, each at points of its own.

    Attributes:
        points: in user units, increasing.
        masses: of the points, as a rule: density times spacing, or probabilities of whole numbers.
        counts: whether y is a whole number.
    """

    points: Float[np.ndarray, "k n"]
    masses: Float[np.ndarray, "k n"]
    mean: Float[Array, "k p"]
    covariance: Float[Array, "k p p"]
    leak: Float[Array, " k"]
    counts: bool = eqx.field(static=True)

    @staticmethod
    def of(points: np.ndarray, masses: np.ndarray, counts: bool) -> "ScalarLaws":
        """With their moments."""
        total = masses.sum(axis=1)
        with np.errstate(over="ignore", invalid="ignore"):
            shares = masses / total[:, None]
            mean = (shares * points).sum(axis=1)
            variance = (shares * np.square(points - mean[:, None])).sum(axis=1)
        return ScalarLaws(
            points=points,
            masses=shares,
            mean=jnp.asarray(mean[:, None]),
            covariance=jnp.asarray(variance[:, None, None]),
            leak=jnp.asarray(1 - total),
            counts=counts,
        )

    def _below(self) -> tuple[np.ndarray, np.ndarray]:
        """Points, closer ones if y is continuous, and the distribution function there."""
        if self.counts:
            return self.points, np.cumsum(self.masses, axis=1)
        place = np.arange(self.masses.shape[1])
        fine = np.linspace(0, place[-1], _FINE * place[-1] + 1)
        below = CubicSpline(place, self.masses, axis=1).antiderivative()(fine)
        below = np.maximum.accumulate(np.clip(below / below[:, -1:], 0.0, 1.0), axis=1)
        return CubicSpline(place, self.points, axis=1)(fine), below

    def quantiles(self, levels: Float[Array, " k"]) -> Float[Array, "k t p"]:
        """The distribution function inverted; of whole numbers the least that reaches a level."""
        points, below = self._below()
        wanted = np.asarray(levels)
        if self.counts:
            slack = 1e-12
            rows = [
                p[np.minimum(np.searchsorted(b + slack, wanted), len(p) - 1)]
                for p, b in zip(points, below, strict=True)
            ]
        else:
            rows = [np.interp(wanted, b, p) for p, b in zip(points, below, strict=True)]
        return jnp.asarray(np.stack(rows).T[..., None])

    def cdfs(self, x: Float[Array, "t p"]) -> Float[Array, "t p"]:
        """P(Y_t <= x_t)."""
        at = np.asarray(x)[:, 0]
        if self.counts:
            points, below = self._below()
            each = [
                b[k - 1] if (k := np.searchsorted(p, v, side="right")) > 0 else 0.0
                for p, b, v in zip(points, below, at, strict=True)
            ]
        else:
            each = [
                _below_at(p, m, v) for p, m, v in zip(self.points, self.masses, at, strict=True)
            ]
        return jnp.asarray(np.array(each)[:, None])

    def expectations(self, fn: Callable[[Array], Numbers]) -> Array:
        """By the rule of the points."""
        image = jax.vmap(lambda y: jnp.asarray(fn(y), dtype=jnp.float64))
        out = [
            jnp.tensordot(jnp.asarray(m), image(jnp.asarray(p)[:, None]), axes=1)
            for p, m in zip(self.points, self.masses, strict=True)
        ]
        return jnp.stack(out)

    def draws(self, key: PRNGKeyArray, num: int) -> Float[Array, "n t p"]:
        """By inverting distribution functions."""
        levels = np.asarray(jax.random.uniform(key, (len(self.points), num)))
        points, below = self._below()
        if self.counts:
            rows = [
                p[np.minimum(np.searchsorted(b, v), len(p) - 1)]
                for p, b, v in zip(points, below, levels, strict=True)
            ]
        else:
            rows = [np.interp(v, b, p) for p, b, v in zip(points, below, levels, strict=True)]
        return jnp.asarray(np.stack(rows).T[..., None])

    def density(self, t: int) -> "ScalarDensity":
        """Between the points, in logs; of whole numbers, their probabilities."""
        points, masses = self.points[t], self.masses[t]
        heights = masses if self.counts else masses / np.gradient(points)
        return ScalarDensity(jnp.asarray(points), jnp.asarray(heights), self.counts)


class ScalarDensity(AbstractDensity):
    """A density by its values at points, its logarithm linear in between."""

    points: Float[Array, " n"]
    heights: Float[Array, " n"]
    counts: bool = eqx.field(static=True)

    @property
    def dim(self) -> int:
        """One."""
        return 1

    def _scaled_value(self, x: Float[Array, " d"]) -> tuple[Float[Array, ""], Float[Array, ""]]:
        least = jnp.finfo(self.heights.dtype).tiny
        if self.counts:
            place = jnp.argmin(jnp.abs(self.points - x[0]))
            near = jnp.abs(self.points[place] - x[0]) < 1e-9
            return jnp.where(near, self.heights[place], 0.0), jnp.zeros(())
        logs = jnp.log(jnp.maximum(self.heights, least))
        inside = (x[0] >= self.points[0]) & (x[0] <= self.points[-1])
        value = jnp.exp(jnp.interp(x[0], self.points, logs))
        return jnp.where(inside, value, 0.0), jnp.zeros(())


@eqx.filter_jit
def _mixture(ssm: StateSpaceModel, law: tuple[Array, Array], ys: Array, t: Array, row: Inputs):
    x, masses = law
    return masses @ jnp.exp(log_observation_grid(ssm, x, ys[:, None], t, row))


@eqx.filter_jit
def _drawn(ssm: StateSpaceModel, x: Array, t: Array, row: Inputs) -> Float[Array, "n p"]:
    keys = jax.random.split(jax.random.key(_SEED), x.shape[0])
    see = ssm.sample_observation
    assert see is not None

    def one(key: Array, point: Array) -> Array:
        drawn = call(see, key, point, t=t, inputs=row)
        return jnp.asarray(drawn, dtype=jnp.float64).reshape(-1)

    return jax.vmap(one)(keys, x)


def _some(law: Weighted, num: int) -> Float[np.ndarray, "n d"]:
    """Nodes of a law, each as often as its mass asks for."""
    x, masses = law
    levels = (np.arange(num) + 0.5) / num
    place = np.searchsorted(np.cumsum(masses) / np.sum(masses), levels)
    return x[np.minimum(place, len(x) - 1)]


class DrawnLaws(AbstractObservedLaws):
    """Laws of several coordinates of y by draws."""

    points: Float[Array, "n k p"]
    mean: Float[Array, "k p"]
    covariance: Float[Array, "k p p"]
    leak: Float[Array, " k"]

    @staticmethod
    def of(points: Float[Array, "n k p"]) -> "DrawnLaws":
        """With their moments."""
        mean = jnp.mean(points, axis=0)
        gap = points - mean[None]
        covariance = jnp.einsum("nki,nkj->kij", gap, gap) / points.shape[0]
        return DrawnLaws(
            points=points, mean=mean, covariance=covariance, leak=jnp.zeros(points.shape[1])
        )

    def quantiles(self, levels: Float[Array, " k"]) -> Float[Array, "k t p"]:
        """Of the draws."""
        return jnp.quantile(self.points, levels, axis=0)

    def cdfs(self, x: Float[Array, "t p"]) -> Float[Array, "t p"]:
        """Of the draws."""
        return jnp.mean((self.points <= x[None]).astype(x.dtype), axis=0)

    def expectations(self, fn: Callable[[Array], Numbers]) -> Array:
        """Averages over the draws."""
        image = jax.vmap(jax.vmap(lambda y: jnp.asarray(fn(y), dtype=jnp.float64)))
        return jnp.mean(image(self.points), axis=0)

    def draws(self, key: PRNGKeyArray, num: int) -> Float[Array, "n t p"]:
        """Some of the draws, with replacement."""
        return self.points[jax.random.randint(key, (num,), 0, self.points.shape[0])]

    def density(self, t: int) -> AbstractDensity:
        """Not known from draws alone."""
        raise ValueError(
            f"the law of y at index {t} is known by draws: see sample, quantile, cdf and expect"
        )


def laws_of_y(
    ssm: StateSpaceModel, laws: Sequence[Weighted], steps: Int[Array, " k"], rows: Inputs
) -> AbstractObservedLaws | None:
    """By sums for a scalar y, by 16384 draws for more; None if only a box can tell where y is.

    A scalar y that has no density is drawn as well.
    """
    if ssm.sample_observation is None or ssm.vectorized:
        return None
    row = jax.tree.map(lambda a: jnp.asarray(a)[0], rows)
    width = _drawn(ssm, jnp.asarray(laws[0][0][:1]), steps[0], row).shape[1]
    if width == 1:
        found = scalar_laws(ssm, laws, steps, rows)
        worst = int(np.argmax(np.abs(np.nan_to_num(found.leak, nan=np.inf))))
        if np.abs(found.leak[worst]) < _NO_DENSITY:
            return found
        warnings.warn(no_density_of_y(1 - float(found.leak[worst]), _MANY), stacklevel=4)
    elif ssm.observation_box is not None:
        return None
    drawn = []
    for k, law in enumerate(laws):
        row = jax.tree.map(lambda a, k=k: jnp.asarray(a)[k], rows)
        drawn.append(_drawn(ssm, jnp.asarray(_some(law, _MANY)), steps[k], row))
    return DrawnLaws.of(jnp.stack(drawn, axis=1))


def scalar_laws(
    ssm: StateSpaceModel, laws: Sequence[Weighted], steps: Int[Array, " k"], rows: Inputs
) -> ScalarLaws:
    """The laws of y for laws of x by their nodes; the model can be sampled."""
    found = []
    for k, law in enumerate(laws):
        row = jax.tree.map(lambda a, k=k: jnp.asarray(a)[k], rows)
        drawn = np.asarray(_drawn(ssm, jnp.asarray(_some(law, _DRAWS)), steps[k], row))[:, 0]
        nodes = jnp.asarray(law[0]), jnp.asarray(law[1])

        def density(
            ys: np.ndarray, at: tuple[tuple[Array, Array], Array, Inputs] = (nodes, steps[k], row)
        ) -> np.ndarray:
            values = _mixture(ssm, at[0], jnp.asarray(ys), at[1], at[2])
            return np.nan_to_num(np.asarray(values), nan=0.0, posinf=0.0)

        if ssm.counts:
            found.append(_whole(density, drawn))
        else:
            found.append(_graded(density, drawn, ssm.seen_axis or Real()))
    size = max(len(points) for points, _ in found)
    points = np.stack([_padded(p, size) for p, _ in found])
    masses = np.stack([np.pad(m, (0, size - len(m))) for _, m in found])
    return ScalarLaws.of(points, masses, ssm.counts)


def _padded(points: np.ndarray, size: int) -> np.ndarray:
    extra = np.arange(1, size - len(points) + 1)
    return np.concatenate([points, points[-1] + extra])


def _whole(density: Callable[[np.ndarray], np.ndarray], drawn: np.ndarray) -> Weighted:
    """Probabilities of whole numbers, as far as there are any."""
    low, high = int(drawn.min()), int(drawn.max())
    for _ in range(_WIDENINGS):
        width = max(high - low, 8)
        # Powers of two, so that few programs are compiled.
        size = 1 << int(np.ceil(np.log2(high - low + 1 + 2 * width)))
        points = np.arange(low - width, low - width + size, dtype=float)
        values = density(points)
        top = values.max()
        if (values[0] <= _END * top and values[-1] <= _END * top) or size >= _MOST:
            there = np.flatnonzero(values > 0)
            first, last = (there[0], there[-1]) if len(there) else (0, size - 1)
            return points[first : last + 1], values[first : last + 1]
        low, high = int(points[0]), int(points[-1])
    raise AssertionError("a window of whole numbers stops growing at its largest size")


def _graded(
    density: Callable[[np.ndarray], np.ndarray], drawn: np.ndarray, axis: AbstractAxis
) -> Weighted:
    """Points and masses on a grid y = b(c + s sinh z)."""
    w = np.asarray(axis.from_user(jnp.asarray(drawn)))
    w = w[np.isfinite(w)]
    center = float(np.median(w))
    low, high = np.quantile(w, [0.1, 0.9])
    scale = max(0.5 * float(high - low), 1e-12 * (1 + abs(center)))
    least, most = (float(end) for end in axis.reach)
    ends = np.arcsinh((np.array([least, most]) - center) / scale)

    def at(z: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Points, and density times slope."""
        inner = jnp.asarray(center + scale * np.sinh(z))
        y = np.asarray(axis.to_user(inner))
        slope = np.exp(np.asarray(axis.log_slope(inner))) * scale * np.cosh(z)
        return y, density(y) * slope

    reach = np.array([-3.0, 3.0])
    z = values = np.zeros(_LOOK)
    for _ in range(_WIDENINGS):
        near = np.clip(reach, ends[0], ends[1])
        z = np.linspace(near[0], near[1], _LOOK)
        values = at(z)[1]
        open_ends = values[[0, -1]] > _END * values.max()
        stuck = np.isclose(z[[0, -1]], ends) | (np.abs(z[[0, -1]]) > 300.0)
        if not np.any(open_ends & ~stuck):
            break
        reach = np.where(open_ends & ~stuck, reach * 1.5, reach)
    there = np.flatnonzero(values > _END * values.max())
    first, last = max(there[0] - 1, 0), min(there[-1] + 1, _LOOK - 1)
    z = np.linspace(z[first], z[last], _POINTS)
    y, values = at(z)
    return y, values * (z[1] - z[0])
