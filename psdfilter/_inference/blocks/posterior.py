"""Filtered and smoothed laws of models of blocks, and forecasts."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray

from ..._checks import as_count, as_key
from ..._density.blocks import GaussianBlocks
from ..smoothed import AbstractSmoothed
from .bank import Bank, Layout, density_of
from .laws import AbstractLaws, Laws, sample_laws
from .observed import probability_transforms
from .stepwise import AbstractStepwise


class BlocksPosterior(AbstractStepwise, AbstractLaws):
    """p(x_t | y_1 ... y_t) for t = 1 ... T, on all of R^d.

    Attributes:
        log_likelihoods: log Z_t, (T,), zero where y_t is missing.
        mean: (T, d).
        covariance: (T, d, d).
        codes: outcome of each step, 0 if fine.
        seen: whether the observation was used, (T,).
        fit_errors: estimated total variation error of each step from fitting G(., y_t) component by
            component, (T,); zero for a linear sensor.
        compression_losses: estimated total variation error of each step from compression, (T,);
            zero if nothing was compressed.
    """

    model: Any
    series: Any
    log_likelihoods: Float[Array, " t"]
    mean: Float[Array, "t d"]
    covariance: Float[Array, "t d d"]
    codes: Int[Array, " t"]
    seen: Array
    fit_errors: Float[Array, " t"]
    compression_losses: Float[Array, " t"]
    last: Bank
    laws: Bank | None
    layout: Layout

    @property
    def _engine(self) -> str:
        return f"blocks, {self.model.report.engine}"

    @property
    def log_predictive(self) -> Float[Array, ""]:
        """The same: there is no box that mass could leave."""
        return jnp.sum(jnp.where(self.seen, self.log_likelihoods, 0.0))

    def _banks(self) -> tuple[Bank, Layout]:
        if self.laws is None:
            raise ValueError(
                'this needs the densities: call run_filter(..., keep="densities") instead of '
                '"summaries"'
            )
        return self.laws, self.layout

    def _predicted(self) -> Bank:
        """The laws before each observation, stacked."""
        laws, _ = self._banks()
        before = jax.tree.map(
            lambda first, rest: jnp.concatenate([first[None], rest[:-1]]), self.model.start(), laws
        )
        return self.model.ahead(before, self.series)

    def predictive_density(self, t: int) -> GaussianBlocks:
        """The law of x_t given y before t."""
        num = self.mean.shape[0]
        if not -num <= t < num:
            raise ValueError(f"t must lie in 0..{num - 1}, got {t}")
        return density_of(jax.tree.map(lambda a: a[t], self._predicted()), self.layout)

    @property
    def predicted_observations(self) -> Laws:
        """The law of y_t given y before t, for every t; for a linear sensor."""
        return Laws.of(self.model.seen_laws(self._predicted(), self.series), self.layout)

    @property
    def pit(self) -> Float[Array, "t *p"]:
        """P(Y_t <= y_t | y before t), uniform on (0, 1) if the model is right; NaN if not seen.

        (T,), or (T, p) for several coordinates, each given those before it in y_t.
        """
        values = probability_transforms(
            self.model.seen_laws(self._predicted(), self.series), self.layout, self.series.ys
        )
        return values[:, 0] if values.shape[1] == 1 else values

    def sample(self, *, key: PRNGKeyArray, num: int) -> Float[Array, "k t d"]:
        """Independent draws from every marginal, (num, T, d); paths come from the smoother."""
        return sample_laws(self, key, num)


class BlocksSmoother(AbstractSmoothed, AbstractLaws):
    """p(x_t | y_1 ... y_T) for every t, and paths from their joint law.

    With a lag L, p(x_t | y_1 ... y_{t+L}) instead: every row has seen L rows more than itself.

    Attributes:
        filtered: the filter that came before.
        method: "exact", every component smoothed by itself; or "backward sampling", averages over
            paths drawn backwards through the filtered laws.
        lag: L, or None.
    """

    filtered: BlocksPosterior
    laws: Bank
    layout: Layout
    mean: Float[Array, "t d"]
    covariance: Float[Array, "t d d"]
    method: str = eqx.field(static=True)
    lag: int | None = eqx.field(static=True, default=None)

    @property
    def model(self) -> Any:
        """The learned model."""
        return self.filtered.model

    def _banks(self) -> tuple[Bank, Layout]:
        return self.laws, self.layout

    def sample(self, *, key: PRNGKeyArray, num: int) -> Float[Array, "k t d"]:
        """Paths x_1 ... x_T from their joint law, (num, T, d), by backward sampling."""
        if self.lag is not None:
            raise ValueError(
                "sample draws whole paths, which a smoother with a lag has no law of: see "
                "sample_marginals, or smooth without a lag"
            )
        return self.model.sample_paths(self.filtered, as_key("key", key), as_count("num", num))

    def sample_marginals(self, *, key: PRNGKeyArray, num: int) -> Float[Array, "k t d"]:
        """Independent draws from every marginal, (num, T, d)."""
        return sample_laws(self, key, num)


class BlocksForecast(AbstractLaws):
    """p(x_{T+k} | y_1 ... y_T) for k = 1 ... K."""

    model: Any
    laws: Bank
    layout: Layout
    mean: Float[Array, "k d"]
    covariance: Float[Array, "k d d"]
    times: Any = None  # steps and inputs, for a sensor that takes them

    def _banks(self) -> tuple[Bank, Layout]:
        return self.laws, self.layout

    def sample(self, *, key: PRNGKeyArray, num: int) -> Float[Array, "n k d"]:
        """Independent draws from every marginal, (num, K, d)."""
        return sample_laws(self, key, num)

    @property
    def observations(self) -> Laws:
        """The laws of y at the same times, for a linear sensor."""
        return Laws.of(self.model.seen_laws(self.laws, self.times), self.layout)
