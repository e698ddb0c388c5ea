"""Filtered and predicted laws at the nodes, and as PSD models."""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from ..numerics.grids import finite_peak
from ..series import Series
from ..sizing.tables import observation_coefficients
from .densities import ProductDensity
from .filled import Filled
from .host import Tabulated
from .laws import AbstractNodeLaws, of_mass_one
from .refine import FineNodes, Fits, filtered_on
from .step import series_logs


class Kept(NamedTuple):
    """What the recursion keeps of every step."""

    densities: Float[Array, "t n"]
    sources: Float[Array, "t n"]  # before the last transition
    log_norms: Float[Array, " t"]  # of what each step divided by
    host: Tabulated  # of a NumPy model


class FilteredLaws(AbstractNodeLaws):
    """p(x_t | y_1 ... y_t), or with `observed` false p(x_t | y before t)."""

    model: Filled
    series: Series
    kept: Kept
    seen: Bool[Array, " t"]
    log_kept: Float[Array, " t"]
    observed: bool = eqx.field(static=True, default=True)

    @property
    def fits(self) -> Fits:
        """G^(., y_t) of every step, less what it divided by."""
        coefficients, peaks = observation_fits(self.model, self.series, self.kept.host.logs)
        log_scales = jnp.where(self.seen, peaks, 0.0) - self.kept.log_norms
        return Fits(coefficients, log_scales, self.seen)

    def values_on(self, fine: FineNodes) -> Float[Array, "t n"]:
        """Densities on other nodes; of predictions, of mass one on the box."""
        sources = self.kept.sources
        predicted, filtered = filtered_on(self.model, fine.nodes, sources, self.series, self.fits)
        if self.observed:
            return filtered
        return predicted / (predicted @ fine.flat_weights())[:, None]

    def unscaled(self, t: int) -> ProductDensity:
        """The density at index t, normalised as the recursion did."""
        return filtered_density(self, t)

    def density(self, t: int) -> ProductDensity:
        """The density at index t, a function of x (..., d) in user units."""
        return of_mass_one(self.unscaled(t), self.model)


def observation_fits(
    model: Filled, series: Series, logs: Float[Array, "t k"] | None = None
) -> tuple[Float[Array, "t ..."], Float[Array, " t"]]:
    """c_t and the exponent of G^(., y_t) = (chi . c_t)^2 exp(peak), for all t."""
    if model.joint is not None:
        joint = model.joint
        coefficients = jax.vmap(lambda y: joint.coefficients(y, series.partly))(series.ys)
        return coefficients, jnp.broadcast_to(joint.log_scale, series.ys.shape[:1])
    if logs is None:
        logs = series_logs(model.ssm, model.plan.training_points(), series)
    return fit_logs(model, logs)


def fit_logs(
    model: Filled, logs: Float[Array, "t k"]
) -> tuple[Float[Array, "t ..."], Float[Array, " t"]]:
    """c_t and the exponents, from logarithms at the training points."""
    clean = jnp.where(jnp.isnan(logs), -jnp.inf, logs)
    peaks = finite_peak(clean, axis=1)
    roots = jnp.exp(0.5 * (clean - peaks[:, None]))
    return jax.vmap(lambda r: observation_coefficients(model.plan, r))(roots), peaks


def filtered_density(laws: FilteredLaws, t: int) -> ProductDensity:
    """pi_t (or, not observed, its prediction) as a lazy product in user units."""
    model, series, kept, observed = laws.model, laws.series, laws.kept, laws.observed
    hops, seen = np.asarray(series.hops), np.asarray(laws.seen)
    # Observations at one time multiply: walk back to the last transition.
    used, first = [], t
    while True:
        if seen[first] and (observed or first != t):
            used.append(first)
        if hops[first] > 0 or first == 0:
            break
        first -= 1
    at = np.asarray(used, dtype=int)
    part, logs = jax.tree.map(lambda a: a[at], (series, kept.host.logs))
    roots = []
    log_scale = -jnp.sum(kept.log_norms[first : t + (1 if observed else 0)])
    if used:
        coefficients, peaks = observation_fits(model, part, logs)
        roots = list(coefficients)
        log_scale = log_scale + jnp.sum(peaks)
    if not observed:
        log_scale = log_scale - laws.log_kept[t]
    if hops[first] == 0:
        return ProductDensity.of_prior(model, roots, log_scale)
    tables = model.tables_at(series.steps[first], series.row(first))
    v = model.plan.node_weights() * kept.sources[first]
    return ProductDensity.predicted(model, tables.rows, v, roots, log_scale)
