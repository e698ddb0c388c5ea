"""Laws at several times on lattices, with the probabilities of their regimes."""

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import logsumexp
from jaxtyping import Array, Float, PRNGKeyArray

from ..._checks import Numbers
from ..._statespace.model import StateSpaceModel
from ..laws import NO_REGIMES, AbstractLaws
from .density import LatticeDensity, Sink
from .lines import Circle, Line, line_of
from .run import Law, moments, resultants
from .space import Space, Window, grid_of
from .step import Lattice

# Levels at which a shortest interval may start, and closer looks around the best.
_STARTS, _LOOKS = 65, 3


class LatticeLaws(AbstractLaws):
    """Laws of T times.

    Attributes:
        lattices: stacked, with the masses of these laws.
        laws: the filtered laws on the same nodes, for densities between them.
        sinks: what smoothed laws know of the future; their last row says nothing.
        final: rows whose laws know of no future.
    """

    ssm: StateSpaceModel
    space: Space
    lattices: Lattice
    laws: Law
    num: int = eqx.field(static=True)
    sinks: Sink | None = None
    final: tuple[bool, ...] = eqx.field(static=True, default=())

    def regimes(self) -> Float[Array, "t k"]:
        """Probabilities of the regimes."""
        if self.ssm.regimes is None:
            raise ValueError(NO_REGIMES)
        return _regimes(self.lattices)

    def quantiles(self, levels: Float[Array, " k"]) -> Float[Array, "k t d"]:
        """By the integrals of what lies between the nodes."""
        return _quantiles(self, levels)

    def cdfs(self, x: Float[Array, "t d"]) -> Float[Array, "t d"]:
        """By the integrals of what lies between the nodes."""
        return _cdfs(self, x)

    def shortest(self, mass: float) -> Float[Array, "2 t d"]:
        """The ends of the shortest interval of this mass, round a circle if need be."""
        return _shortest(self, jnp.asarray(mass))

    def circles(self) -> dict[int, tuple[float, float]]:
        """As the box of the state has them."""
        axes = np.flatnonzero(self.space.is_kind("circle"))
        return {int(a): (float(self.space.lower[a]), float(self.space.upper[a])) for a in axes}

    def resultants(self) -> Float[Array, "t d"]:
        """Lengths of mean directions on circles; NaN on other axes."""
        return _resultants(self)

    def expectations(self, fn: Callable[[Array], Numbers]) -> Array:
        """By the rule of the nodes."""
        return _expectations(self, fn)

    def draws(self, key: PRNGKeyArray, num: int) -> Float[Array, "n t d"]:
        """A node for its mass, then a point of its cell; on a line by inverting the function."""
        return _draws(self, key, num)

    def density(self, t: int) -> LatticeDensity:
        """Exact between the nodes."""
        return self._density(t, None)

    def regime_density(self, t: int, regime: int) -> LatticeDensity:
        """Exact between the nodes."""
        return self._density(t, regime)

    def _density(self, t: int, regime: int | None) -> LatticeDensity:
        one = jax.tree.map(lambda a: a[t], self.laws)
        sink = None
        if self.sinks is not None and not self.final[t]:
            sink = jax.tree.map(lambda a: a[t], self.sinks)
        kinds = np.arange(self.lattices.log_masses.shape[1])
        keep = jnp.asarray(np.where((kinds == regime) | (regime is None), 0.0, -np.inf))
        f = LatticeDensity(self.ssm, self.space, one, sink, keep, jnp.zeros(()), self.num)
        return eqx.tree_at(lambda g: g.log_scale, f, _log_scale(f))

    def log_mass(self, t: int) -> Float[Array, ""]:
        """Of what the recursion took for mass one: the rule of the nodes is its own."""
        del t
        return jnp.zeros(())


@eqx.filter_jit
def _log_scale(f: LatticeDensity) -> Float[Array, ""]:
    """What makes the mass one, by the rule of the nodes."""
    grid = grid_of(f.space, f.law.now.window, f.num)
    parts = f.log_parts(grid.nodes) + grid.log_weights[None, :]
    return logsumexp(parts)


@eqx.filter_jit
def _regimes(lattices: Lattice) -> Float[Array, "t k"]:
    return jax.nn.softmax(logsumexp(lattices.log_masses, axis=2), axis=1)


def _axis_masses(space: Space, lattice: Lattice, num: int, axis: int) -> Float[Array, " n"]:
    sizes = [len(rule.nodes) for rule in space.rules(num)]
    masses = jnp.sum(jnp.exp(lattice.log_masses), axis=0).reshape(sizes)
    line = jnp.sum(masses, axis=tuple(a for a in range(space.dim) if a != axis))
    return line / jnp.sum(line)


def _functions(laws: LatticeLaws, lattice: Lattice) -> list[Line | Circle]:
    """Distribution functions of all coordinates at one time."""
    space, num, out = laws.space, laws.num, []
    whole = space.whole(lattice.window)
    nodes = grid_of(space, lattice.window, num).nodes
    mean = moments(space, nodes, jnp.sum(jnp.exp(lattice.log_masses), axis=0))[0]
    for axis, (kind, rule) in enumerate(zip(space.kinds, space.rules(num), strict=True)):
        masses = _axis_masses(space, lattice, num, axis)
        low, high = lattice.lower[axis], lattice.upper[axis]
        line = line_of(rule, low, high, masses, kind == "walls", whole[axis])
        if kind == "circle":
            period = space.period[axis]
            line = Circle(line, period, mean[axis] - 0.5 * period)
        out.append(line)
    return out


@eqx.filter_jit
def _quantiles(laws: LatticeLaws, levels: Float[Array, " k"]) -> Float[Array, "k t d"]:
    def one(lattice: Lattice) -> Array:
        lines = _functions(laws, lattice)
        return jnp.stack([jax.vmap(line.quantile)(levels) for line in lines], axis=-1)

    return jnp.moveaxis(jax.lax.map(one, laws.lattices), 0, 1)


@eqx.filter_jit
def _cdfs(laws: LatticeLaws, x: Float[Array, "t d"]) -> Float[Array, "t d"]:
    def one(at: tuple[Lattice, Array]) -> Array:
        lines = _functions(laws, at[0])
        return jnp.stack([line.below(at[1][axis]) for axis, line in enumerate(lines)])

    return jax.lax.map(one, (laws.lattices, x))


@eqx.filter_jit
def _shortest(laws: LatticeLaws, mass: Float[Array, ""]) -> Float[Array, "2 t d"]:
    def of_line(line: Line | Circle) -> Array:
        # On a circle an interval may start anywhere.
        last = jnp.where(isinstance(line, Circle), 1.0, 1.0 - mass)

        def closer(ends: tuple[Array, Array], _: None) -> tuple[tuple[Array, Array], None]:
            starts = jnp.linspace(ends[0], ends[1], _STARTS)
            first = jax.vmap(line.quantile)(starts)
            length = jax.vmap(line.quantile)(starts + mass) - first
            best, step = starts[jnp.argmin(length)], (ends[1] - ends[0]) / (_STARTS - 1)
            return (jnp.maximum(best - step, 0.0), jnp.minimum(best + step, last)), None

        ends = jnp.zeros(()), last * jnp.ones(())
        (low, high), _ = jax.lax.scan(closer, ends, None, length=_LOOKS)
        start = 0.5 * (low + high)
        return jnp.stack([line.quantile(start), line.quantile(start + mass)])

    def one(lattice: Lattice) -> Array:
        return jnp.stack([of_line(line) for line in _functions(laws, lattice)], axis=-1)

    return jnp.moveaxis(jax.lax.map(one, laws.lattices), 0, 1)


@eqx.filter_jit
def _resultants(laws: LatticeLaws) -> Float[Array, "t d"]:
    def one(lattice: Lattice) -> Array:
        nodes = grid_of(laws.space, lattice.window, laws.num).nodes
        return resultants(laws.space, nodes, jnp.sum(jnp.exp(lattice.log_masses), axis=0))

    return jax.lax.map(one, laws.lattices)


@eqx.filter_jit
def _expectations(laws: LatticeLaws, fn: Callable[[Array], Numbers]) -> Array:
    def one(lattice: Lattice) -> Array:
        nodes = laws.space.wrapped(grid_of(laws.space, lattice.window, laws.num).nodes)
        masses = jnp.sum(jnp.exp(lattice.log_masses), axis=0)
        image = jax.vmap(lambda x: jnp.asarray(fn(x), dtype=jnp.float64))(nodes)
        return jnp.tensordot(masses / jnp.sum(masses), image, axes=1)

    return jax.lax.map(one, laws.lattices)


@eqx.filter_jit
def _draws(laws: LatticeLaws, key: PRNGKeyArray, num: int) -> Float[Array, "n t d"]:
    count = laws.lattices.lower.shape[0]

    def one(at: tuple[Lattice, Array]) -> Array:
        lattice, own = at
        if laws.space.dim == 1:
            levels = jax.random.uniform(own, (num,), dtype=jnp.float64)
            return jax.vmap(_functions(laws, lattice)[0].quantile)(levels)[:, None]
        first, second = jax.random.split(own)
        logs = logsumexp(lattice.log_masses, axis=0)
        index = jax.random.categorical(first, logs, shape=(num,))
        return points_of_cells(laws.space, lattice.window, laws.num, index, second)

    keys = jax.random.split(key, count)
    drawn = jnp.moveaxis(jax.lax.map(one, (laws.lattices, keys)), 0, 1)
    return laws.space.wrapped(drawn.reshape(-1, laws.space.dim)).reshape(drawn.shape)


def points_of_cells(
    space: Space, window: Window, num: int, index: Array, key: PRNGKeyArray
) -> Float[Array, "n d"]:
    """Points drawn evenly from the cells of nodes."""
    rules = space.rules(num)
    sizes = tuple(len(rule.nodes) for rule in rules)
    along = jnp.unravel_index(index, sizes)
    levels = jax.random.uniform(key, (index.shape[0], space.dim), dtype=jnp.float64)
    columns = []
    for axis, rule in enumerate(rules):
        ends = jnp.asarray(np.concatenate([[0.0], np.cumsum(rule.weights)]))
        low, high = ends[along[axis]], ends[along[axis] + 1]
        columns.append(low + (high - low) * levels[:, axis])
    unit = jnp.stack(columns, axis=1)
    return window.lower[None, :] + (window.upper - window.lower)[None, :] * unit
