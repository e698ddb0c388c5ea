"""Filtered densities and forecasts."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray

from .._checks import is_concrete
from .nodes import observation_coefficients
from .posterior import AbstractPosterior, checked_sample
from .product import ProductDensity
from .refine import FineNodes, filtered_on, fine_nodes
from .step import observation_logs


class FilterPosterior(AbstractPosterior):
    """p(x_t | y_1 ... y_t) for t = 1 ... T.

    Attributes:
        log_likelihoods: log Z_t, (T,), zero where y_t is missing.
        mean: (T, d).
        covariance: (T, d, d).
        codes: outcome of each step, 0 if fine.
        log_kept: log of the predicted mass on the box, (T,).
    """

    model: Any
    series: Any
    log_likelihoods: Float[Array, " t"]
    mean: Float[Array, "t d"]
    covariance: Float[Array, "t d d"]
    codes: Int[Array, " t"]
    log_kept: Float[Array, " t"]
    log_norms: Float[Array, " t"]  # of each step, whether seen or missing
    observation_errors: Float[Array, " t"]  # delta_t of the fit of G(., y_t)
    seen: Array  # whether an observation was used
    last: Float[Array, " n"]
    densities: Float[Array, "t n"] | None
    sources: Float[Array, "t n"] | None  # before the last transition

    @property
    def log_likelihood(self) -> Float[Array, ""]:
        """sum_t log Z_t."""
        return jnp.sum(self.log_likelihoods)

    @property
    def log_predictive(self) -> Float[Array, ""]:
        """sum_t log(Z_t / D_t), D_t the predicted mass on the box: normalised by what stayed."""
        return jnp.sum(jnp.where(self.seen, self.log_likelihoods - self.log_kept, 0.0))

    def _kept(self) -> tuple[Array, Array]:
        if self.densities is None or self.sources is None:
            raise ValueError(
                'this needs the densities: call run_filter(..., keep="densities") instead of '
                '"summaries"'
            )
        return self.densities, self.sources

    def _values_on(self, fine: FineNodes) -> Float[Array, "t n"]:
        return self._both_on(fine)[1]

    def predictions_on(self, fine: FineNodes) -> Float[Array, "t n"]:
        """p(x_t | y before t) on other nodes in unit coordinates, of mass one on the box."""
        predicted = self._both_on(fine)[0]
        return predicted / (predicted @ fine.flat_weights())[:, None]

    def _both_on(self, fine: FineNodes) -> tuple[Array, Array]:
        _, sources = self._kept()
        coefficients, peaks = observation_fits(self.model, self.series)
        return filtered_on(
            self.model,
            fine.nodes,
            sources,
            self.series.hops,
            self.series.steps,
            self.series.rows,
            coefficients,
            jnp.where(self.seen, peaks, 0.0) - self.log_norms,
            self.seen,
        )

    def sample(self, *, key: PRNGKeyArray, num: int) -> Float[Array, "k t d"]:
        """Independent draws from every marginal, (num, T, d); paths come from the smoother."""
        return checked_sample(self, key, num)

    def density(self, t: int) -> ProductDensity:
        """The filtered density at index t, a function of x (..., d) in user units."""
        return filtered_density(self, t)

    def predictive_density(self, t: int) -> ProductDensity:
        """The density of x_t given y before t."""
        return filtered_density(self, t, observed=False)

    @property
    def predicted_observations(self) -> Any:
        """The law of y_t given y before t, for every t; needs `observation_box`."""
        from .observations import predictive_laws

        return predictive_laws(self)

    @property
    def pit(self) -> Float[Array, " t"]:
        """P(Y_t <= y_t | y before t), uniform on (0, 1) if the model is right."""
        from .observations import probability_transforms

        return probability_transforms(self)

    @property
    def residuals(self) -> Float[Array, " t"]:
        """Normal quantiles of `pit`: standard normal and independent if the model is right."""
        from .observations import residuals

        return residuals(self)

    @property
    def certificate(self) -> Any:
        """What can be proved about the error, and what can be estimated; see the guide."""
        from .certificate import certificate

        return certificate(self)

    @property
    def error_estimate(self) -> Float[Array, ""]:
        """Largest total variation between these densities and those of a finer filter.

        Runs the filter again on a plan for a thirtieth of the tolerance: an estimate from the data
        at hand, not a bound.
        """
        return jnp.max(self.error_estimates)

    @property
    def error_estimates(self) -> Float[Array, " t"]:
        """`error_estimate` for every t."""
        from .estimate import estimate_errors

        return estimate_errors(self)

    def __str__(self) -> str:
        if not is_concrete(self.log_likelihoods):
            return "FilterPosterior(traced)"
        num, dim = self.mean.shape
        missing = int(np.sum(~np.asarray(self.seen)))
        bad = int(np.sum(np.asarray(self.codes) != 0))
        return "\n".join(
            [
                f"filter of {num} observations, state of {dim} coordinates",
                f"log-likelihood     {float(self.log_likelihood):.6f}",
                f"not used           {missing} (missing or refused), {bad} with a bad code",
                f"mass kept in box   {float(jnp.exp(jnp.min(self.log_kept))):.6f} (smallest step)",
                f"last mean          {np.array2string(np.asarray(self.mean[-1]), precision=6)}",
                f"last sd            {np.sqrt(np.diagonal(np.asarray(self.covariance[-1])))}",
            ]
        )


def observation_fits(model: Any, series: Any) -> tuple[Float[Array, "t ..."], Float[Array, " t"]]:
    """c_t and the exponent of G^(., y_t) = (chi . c_t)^2 exp(peak), for all t."""
    logs = series.logs
    if logs is None:
        logs = jax.vmap(lambda y, t, row: observation_logs(model, y, t, row, series.partly))(
            series.ys, series.steps, series.rows
        )
    clean = jnp.where(jnp.isnan(logs), -jnp.inf, logs)
    peaks = jnp.max(clean, axis=1)
    peaks = jnp.where(jnp.isfinite(peaks), peaks, 0.0)
    roots = jnp.exp(0.5 * (clean - peaks[:, None]))
    return jax.vmap(lambda r: observation_coefficients(model.plan, r))(roots), peaks


def filtered_density(post: FilterPosterior, t: int, observed: bool = True) -> ProductDensity:
    """pi_t (or, not observed, its prediction) as a lazy product in user units."""
    densities, sources = post._kept()
    num = densities.shape[0]
    if not -num <= t < num:
        raise ValueError(f"t must lie in 0..{num - 1}, got {t}")
    t = t % num
    hops, seen = np.asarray(post.series.hops), np.asarray(post.seen)
    model = post.model
    # Observations at one time multiply: walk back to the last transition.
    used, first = [], t
    while True:
        if seen[first] and (observed or first != t):
            used.append(first)
        if hops[first] > 0 or first == 0:
            break
        first -= 1
    part = jax.tree.map(lambda a: a[np.asarray(used, dtype=int)], post.series)
    roots = []
    log_scale = -jnp.sum(post.log_norms[first : t + (1 if observed else 0)])
    if used:
        coefficients, peaks = observation_fits(model, part)
        roots = list(coefficients)
        log_scale = log_scale + jnp.sum(peaks)
    if hops[first] > 0:
        row = (
            None if post.series.rows is None else jax.tree.map(lambda a: a[first], post.series.rows)
        )
        tables = model.tables_at(post.series.steps[first], row)
        v = model.plan.node_weights() * sources[first]
        density = ProductDensity.predicted(model, tables.rows, v, roots, log_scale)
    else:
        density = ProductDensity.of_prior(model, roots, log_scale)
    if not observed:
        kept = float(post.log_kept[t])
        density = eqx.tree_at(lambda d: d.log_scale, density, density.log_scale - kept)
    return density


class Forecast(AbstractPosterior):
    """p(x_{T+k} | y_1 ... y_T) for k = 1 ... K, renormalised on the box at each step."""

    model: Any
    mean: Float[Array, "k d"]
    covariance: Float[Array, "k d d"]
    sources: Float[Array, "k n"]
    steps: Int[Array, " k"]
    rows: Any
    log_kept: Float[Array, " k"]

    def _values_on(self, fine: FineNodes) -> Float[Array, "k n"]:
        from .refine import predict_onto

        def one(source: Array, t: Array, row: Any, log_kept: Array) -> Array:
            return predict_onto(self.model, source, fine.nodes, t, row) * jnp.exp(-log_kept)

        return jax.lax.map(lambda a: one(*a), (self.sources, self.steps, self.rows, self.log_kept))

    def sample(self, *, key: PRNGKeyArray, num: int) -> Float[Array, "n k d"]:
        """Independent draws from every marginal, (num, K, d)."""
        return checked_sample(self, key, num)

    def density(self, k: int) -> ProductDensity:
        """The density k + 1 steps ahead, in user units."""
        num = self.sources.shape[0]
        if not -num <= k < num:
            raise ValueError(f"k must lie in 0..{num - 1}, got {k}")
        row = None if self.rows is None else jax.tree.map(lambda a: a[k], self.rows)
        tables = self.model.tables_at(self.steps[k], row)
        v = self.model.plan.node_weights() * self.sources[k]
        return ProductDensity.predicted(self.model, tables.rows, v, [], -self.log_kept[k])

    @property
    def observations(self) -> Any:
        """The laws of y at the same times, by quadrature over `observation_box`."""
        from .observations import ObservationLaws

        fine = fine_nodes(self.model)
        return ObservationLaws.make(self.model, fine, self._values_on(fine), self.steps, self.rows)
