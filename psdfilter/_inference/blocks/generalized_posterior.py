"""Filtered, smoothed and forecast laws of a learned model with free shapes."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray

from ..._checks import Numbers, as_count, as_key, is_concrete
from ..._density.box import Box
from ..._density.generalized import GeneralizedGaussianPSD
from ..observations import ObservationLaws
from ..smoothed import AbstractSmoothed
from ..summaries import axis_marginal, check_level, draw, line_quantiles
from .generalized_atoms import Atoms, log_heights
from .generalized_compress import SquareSum
from .generalized_rules import axes_between, mesh
from .generalized_seen import observation_laws, transforms
from .generalized_step import StepSizes, region_of
from .stepwise import AbstractStepwise

# Orders of densities are multiples of this.
_ROUNDED = 16


def as_density(law: SquareSum, box: Box) -> GeneralizedGaussianPSD:
    """The law in user units. Its mass is one on the box; what it is outside means nothing."""
    atoms, factor = law
    if is_concrete(factor):
        # Atoms in use come first. Orders are rounded up, so that few are ever compiled for.
        used = int(np.any(np.asarray(factor) != 0, axis=1).sum())
        order = min(-(-used // _ROUNDED) * _ROUNDED, factor.shape[0])
        atoms, factor = Atoms(*(part[:order] for part in atoms)), factor[:order]
    half = box.half_width
    height = jnp.exp(log_heights(atoms)) / jnp.sqrt(jnp.prod(half))
    return GeneralizedGaussianPSD.from_centers(
        box.center[None, :] + half[None, :] * atoms.centers,
        height[:, None] * factor,
        atoms.precision / (half[:, None] * half[None, :])[None],
    )


def check_index(name: str, t: int, num: int) -> None:
    """An index into `num` rows, from the end if it is negative."""
    if not -num <= t < num:
        raise ValueError(f"{name} must lie in 0..{num - 1}, got {t}")


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
        laws = self._laws()
        check_index("t", t, self.mean.shape[0])
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


def sample_laws(post: AbstractGeneralizedLaws, key: Any, num: Any) -> Float[Array, "k t d"]:
    """Independent draws from every marginal, (num, T, d)."""
    laws, count = post._laws(), as_count("num", num)
    draws = _sample(laws, as_key("key", key), count, post.model.sizes)
    return post.model.state_box.from_unit(draws)


class _Table(eqx.Module):
    """A law at the nodes of the part of the box where it is."""

    values: Float[Array, " n"]
    nodes: tuple[Array, ...]
    weights: tuple[Array, ...]
    middle: Float[Array, " d"]
    half: Float[Array, " d"]


def _tabulate(law: SquareSum, sizes: StepSizes) -> _Table:
    region = region_of(law, sizes)
    low, high = region.low, region.high
    axes, weights = axes_between(low, high, sizes.table_nodes)
    return _Table(law(mesh(axes)), axes, weights, 0.5 * (low + high), 0.5 * (high - low))


@eqx.filter_jit
def _quantiles(
    laws: SquareSum, levels: Float[Array, " k"], sizes: StepSizes
) -> Float[Array, "k t d"]:
    def one(law: SquareSum) -> Array:
        table, shape = _tabulate(law, sizes), (sizes.table_nodes,) * law.atoms.dim
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
        log_likelihoods: log Z_t, (T,), zero where y_t is missing, -inf where it is impossible.
        mean: (T, d).
        covariance: (T, d, d).
        codes: outcome of each step, 0 if fine.
        seen: whether the observation was used, (T,).
        log_kept: log of the predicted mass on the box, (T,).
        fit_errors: estimated total variation error of each step from the learned Q, and from the
            learned G with `observation="joint"`, (T,).
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

    @property
    def log_predictive(self) -> Float[Array, ""]:
        """sum_t log(Z_t / D_t) with D_t the predicted mass on the state box."""
        return jnp.sum(jnp.where(self.seen, self.log_likelihoods - self.log_kept, 0.0))

    def _predicted(self) -> SquareSum:
        """The laws before each observation, stacked."""
        before = jax.tree.map(
            lambda first, rest: jnp.concatenate([first[None], rest[:-1]]),
            self.model.prior,
            self._laws(),
        )
        return self.model.ahead(before, self.series)

    def predictive_density(self, t: int) -> GeneralizedGaussianPSD:
        """The law of x_t given y before t, of mass one on the state box."""
        check_index("t", t, self.mean.shape[0])
        return as_density(jax.tree.map(lambda a: a[t], self._predicted()), self.model.state_box)

    @property
    def predicted_observations(self) -> ObservationLaws:
        """The law of y_t given y before t, for every t; needs `observation_box`."""
        return observation_laws(self.model, self._predicted())

    @property
    def pit(self) -> Float[Array, " t"]:
        """P(Y_t <= y_t | y before t), uniform on (0, 1) if the model is right; NaN if missing."""
        return transforms(self.model, self._predicted(), self.series.ys)

    def sample(self, *, key: PRNGKeyArray, num: int) -> Float[Array, "k t d"]:
        """Independent draws from every marginal, (num, T, d); paths come from the smoother."""
        return sample_laws(self, key, num)


class GeneralizedSmoother(AbstractSmoothed, AbstractGeneralizedLaws):
    """p(x_t | y_1 ... y_T) for every t, on the state box, and paths from their joint law.

    Attributes:
        filtered: the filter that came before.
        mean: (T, d).
        covariance: (T, d, d).
        compression_losses: int |before - after| of the projection of each law, (T,).
        method: "two-filter": a filtered law times what the observations after it say.
    """

    model: Any
    filtered: GeneralizedPosterior
    steps: GeneralizedPosterior  # the same with a row for every time
    rows: Int[Array, " t"]  # where the rows of the data are among these
    laws: SquareSum | None
    mean: Float[Array, "t d"]
    covariance: Float[Array, "t d d"]
    compression_losses: Float[Array, " t"]
    method: str = eqx.field(static=True, default="two-filter")

    def sample(self, *, key: PRNGKeyArray, num: int) -> Float[Array, "k t d"]:
        """Paths x_1 ... x_T from their joint law, (num, T, d), by backward sampling."""
        paths = self.model.sample_paths(self.steps, as_key("key", key), as_count("num", num))
        return paths[:, self.rows]

    def sample_marginals(self, *, key: PRNGKeyArray, num: int) -> Float[Array, "k t d"]:
        """Independent draws from every marginal, (num, T, d)."""
        return sample_laws(self, key, num)


class GeneralizedForecast(AbstractGeneralizedLaws):
    """p(x_{T+k} | y_1 ... y_T) for k = 1 ... K, renormalised on the box at each step."""

    model: Any
    laws: SquareSum | None
    mean: Float[Array, "k d"]
    covariance: Float[Array, "k d d"]
    log_kept: Float[Array, " k"]
    compression_losses: Float[Array, " k"]
    codes: Int[Array, " k"]

    def sample(self, *, key: PRNGKeyArray, num: int) -> Float[Array, "n k d"]:
        """Independent draws from every marginal, (num, K, d)."""
        return sample_laws(self, key, num)

    @property
    def observations(self) -> ObservationLaws:
        """The laws of y at the same times; needs `observation_box`."""
        return observation_laws(self.model, self._laws())
