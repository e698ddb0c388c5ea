"""Filtered and forecast laws of a learned model with free shapes."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray

from ..._checks import Numbers, as_count, as_key, is_concrete
from ..._density.box import Box
from ..._density.generalized import GeneralizedGaussianPSD
from ..._gaussian.quadrature import legendre_rule
from ..summaries import axis_marginal, check_level, draw, line_quantiles
from .generalized_atoms import log_heights
from .generalized_compress import SquareSum
from .generalized_step import StepSizes, corners_of, rule_between, scan_points
from .stepwise import AbstractStepwise


def as_density(law: SquareSum, box: Box) -> GeneralizedGaussianPSD:
    """The law in user units. Its mass is one on the box; what it is outside means nothing."""
    atoms, factor = law
    if is_concrete(factor):
        used = np.any(np.asarray(factor) != 0, axis=1)
        atoms, factor = atoms.take(jnp.asarray(np.flatnonzero(used))), factor[used]
    half = box.half_width
    height = jnp.exp(log_heights(atoms)) / jnp.sqrt(jnp.prod(half))
    return GeneralizedGaussianPSD.from_centers(
        box.center[None, :] + half[None, :] * atoms.centers,
        height[:, None] * factor,
        atoms.precision / (half[:, None] * half[None, :])[None],
    )


class AbstractGeneralizedLaws(eqx.Module):
    """Laws of T times on the box. `mean` (T, d) and `covariance` (T, d, d) are at hand."""

    model: eqx.AbstractVar[Any]
    laws: eqx.AbstractVar[SquareSum | None]
    mean: eqx.AbstractVar[Array]
    covariance: eqx.AbstractVar[Array]

    def _laws(self) -> SquareSum:
        if self.laws is None:
            raise ValueError(
                'this needs the densities: call run_filter(..., keep="densities") instead of '
                '"summaries"'
            )
        return self.laws

    def density(self, t: int) -> GeneralizedGaussianPSD:
        """The law at index t, of mass one on the state box; outside of it, it means nothing."""
        laws, num = self._laws(), self.mean.shape[0]
        if not -num <= t < num:
            raise ValueError(f"t must lie in 0..{num - 1}, got {t}")
        return as_density(jax.tree.map(lambda a: a[t], laws), self.model.state_box)

    def quantile(self, q: Numbers) -> Float[Array, "t d"]:
        """The q-quantile of every coordinate at every time; a leading axis for several q."""
        levels = jnp.asarray(q, dtype=jnp.float64)
        check_level(np.asarray(q, dtype=float))
        unit = _quantiles(self._laws(), levels.ravel(), self.model.sizes)
        values = self.model.state_box.from_unit(unit)
        return values[0] if levels.ndim == 0 else values.reshape(*levels.shape, *values.shape[1:])

    def interval(self, mass: float = 0.9) -> tuple[Float[Array, "t d"], Float[Array, "t d"]]:
        """Lower and upper end of the central interval of the given mass."""
        if not 0 < mass < 1:
            raise ValueError(f"mass must lie in (0, 1), got {mass}")
        ends = self.quantile([0.5 * (1 - mass), 0.5 * (1 + mass)])
        return ends[0], ends[1]

    def sample(self, *, key: PRNGKeyArray, num: int) -> Float[Array, "k t d"]:
        """Independent draws from every marginal, (num, T, d)."""
        laws, count = self._laws(), as_count("num", num)
        return self.model.state_box.from_unit(
            _sample(laws, as_key("key", key), count, self.model.sizes)
        )


class _Table(eqx.Module):
    """A law at the nodes of the part of the box where it is."""

    values: Float[Array, " n"]
    nodes: tuple[Array, ...]
    weights: tuple[Array, ...]
    middle: Float[Array, " d"]
    half: Float[Array, " d"]


def _tabulate(law: SquareSum, sizes: StepSizes) -> _Table:
    dim = law.atoms.dim
    low, high = corners_of(law(scan_points(dim, sizes.scan)), dim, sizes.scan)
    middle, half = 0.5 * (low + high), 0.5 * (high - low)
    rule = rule_between(low, high, sizes.fine_nodes)
    unit, weights = legendre_rule(sizes.fine_nodes)
    nodes = tuple(middle[i] + half[i] * jnp.asarray(unit) for i in range(dim))
    return _Table(
        law(rule.nodes), nodes, tuple(half[i] * jnp.asarray(weights) for i in range(dim)),
        middle, half,
    )  # fmt: skip


@eqx.filter_jit
def _quantiles(
    laws: SquareSum, levels: Float[Array, " k"], sizes: StepSizes
) -> Float[Array, "k t d"]:
    def one(law: SquareSum) -> Array:
        table, shape = _tabulate(law, sizes), (sizes.fine_nodes,) * law.atoms.dim
        lines = [
            axis_marginal(table.values[None], shape, table.weights, axis)
            for axis in range(law.atoms.dim)
        ]
        inner = jnp.concatenate([line_quantiles(line, levels[None]) for line in lines])
        return (table.middle[:, None] + table.half[:, None] * inner).T

    return jnp.moveaxis(jax.lax.map(one, laws), 0, 1)


@eqx.filter_jit
def _sample(
    laws: SquareSum, key: PRNGKeyArray, num: int, sizes: StepSizes
) -> Float[Array, "k t d"]:
    keys = jax.random.split(key, laws.factor.shape[0])

    def one(at: tuple[SquareSum, Array]) -> Array:
        table = _tabulate(at[0], sizes)
        each = jax.random.split(at[1], num)
        return jax.vmap(lambda k: draw(table.values, table.nodes, table.weights, k))(each)

    return jnp.moveaxis(jax.lax.map(one, (laws, keys)), 0, 1)


class GeneralizedPosterior(AbstractStepwise, AbstractGeneralizedLaws):
    """p(x_t | y_1 ... y_t) for t = 1 ... T, on the state box.

    Attributes:
        log_likelihoods: log Z_t, (T,), zero where y_t is missing.
        mean: (T, d).
        covariance: (T, d, d).
        codes: outcome of each step, 0 if fine.
        seen: whether the observation was used, (T,).
        log_kept: log of the predicted mass on the box, (T,).
        fit_errors: estimated total variation error of each step from the learned Q and G, (T,).
        compression_losses: int |before - after| of the projections of each step, (T,).
    """

    model: Any
    series: Any
    log_likelihoods: Float[Array, " t"]
    mean: Float[Array, "t d"]
    covariance: Float[Array, "t d d"]
    codes: Int[Array, " t"]
    seen: Array
    log_kept: Float[Array, " t"]
    fit_errors: Float[Array, " t"]
    compression_losses: Float[Array, " t"]
    last: SquareSum
    laws: SquareSum | None

    @property
    def _engine(self) -> str:
        return f"generalized, order {self.model.sizes.places}"


class GeneralizedForecast(AbstractGeneralizedLaws):
    """p(x_{T+k} | y_1 ... y_T) for k = 1 ... K, renormalised on the box at each step."""

    model: Any
    laws: SquareSum | None
    mean: Float[Array, "k d"]
    covariance: Float[Array, "k d d"]
    log_kept: Float[Array, " k"]
    compression_losses: Float[Array, " k"]
