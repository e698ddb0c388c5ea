"""Filtered densities, at the nodes and as PSD models."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from .nodes import observation_coefficients
from .posterior import AbstractFilterPosterior
from .product import ProductDensity
from .refine import FineNodes, filtered_on
from .step import observation_logs


class FilterPosterior(AbstractFilterPosterior):
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
    log_normalizers: Float[Array, " t"]  # log D_t
    observation_errors: Float[Array, " t"]  # delta_t of the fit of G(., y_t)
    seen: Array  # whether an observation was used
    last: Float[Array, " n"]
    densities: Float[Array, "t n"] | None
    sources: Float[Array, "t n"] | None  # before the last transition

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

    def density(self, t: int) -> ProductDensity:
        """The filtered density at index t, a function of x (..., d) in user units."""
        return filtered_density(self, t)

    def predictive_density(self, t: int) -> ProductDensity:
        """The density of x_t given y before t."""
        return filtered_density(self, t, observed=False)

    def on_nodes(self) -> "FilterPosterior":
        """Itself."""
        return self


def observation_fits(model: Any, series: Any) -> tuple[Float[Array, "t ..."], Float[Array, " t"]]:
    """c_t and the exponent of G^(., y_t) = (chi . c_t)^2 exp(peak), for all t."""
    if model.joint is not None:
        joint = model.joint
        coefficients = jax.vmap(lambda y: joint.coefficients(y, series.partly))(series.ys)
        return coefficients, jnp.broadcast_to(joint.log_scale, series.ys.shape[:1])
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
