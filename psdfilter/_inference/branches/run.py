"""The filter of a series with regimes of linear-Gaussian models: one scan."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..._statespace.model import LinearGaussian, StateSpaceModel
from ..gaussian.bank import Bank
from ..gaussian.linear import Dynamics, Sensor, noise_floor
from ..gaussian.mixture import Mixture, moments, padded
from ..gaussian.prior import prior_blocks
from ..lattice.run import Rows
from ..lengths import scan_rows as rows_up_to
from .step import Branches, Law, Outcome, Parts, predicted_law, seen_law


class Sizes(NamedTuple):
    """Gaussians of each regime, and mass that merging may drop."""

    order: int
    prune: float

    @property
    def both(self) -> tuple[int, int]:
        """Those of the filter, and of the coarser one beside it."""
        return self.order, max(1, self.order // 2)


def forms_of(ssm: StateSpaceModel) -> list[LinearGaussian]:
    """The matrices of all regimes."""
    assert ssm.regimes is not None
    forms = [model.structure for model in ssm.regimes.models]
    assert all(isinstance(form, LinearGaussian) for form in forms)
    return forms  # pyright: ignore[reportReturnType]


def parts_of(ssm: StateSpaceModel) -> Parts:
    """All regimes, stacked."""
    assert ssm.regimes is not None
    forms = forms_of(ssm)
    dynamics = [Dynamics(form.F, form.b, form.Q) for form in forms]
    sensors = [Sensor(form.H, form.d, form.R) for form in forms]  # pyright: ignore
    floors = [noise_floor(d, s) for d, s in zip(dynamics, sensors, strict=True)]
    P = ssm.regimes.P(forms[0].b)
    some = P > 0
    log_switch = jnp.where(some, jnp.log(jnp.where(some, P, 1.0)), -jnp.inf)

    def stack(values: list) -> object:
        return jax.tree.map(lambda *a: jnp.stack(a), *values)

    return Parts(stack(dynamics), stack(sensors), jnp.stack(floors), log_switch)  # pyright: ignore


def start_of(ssm: StateSpaceModel, sizes: Sizes) -> Law:
    """The priors of all regimes, with the regimes' own probabilities."""
    assert ssm.regimes is not None
    each = []
    for k, form in enumerate(forms_of(ssm)):
        blocks = prior_blocks(form)
        assert blocks is not None
        logs = blocks.log_weights.reshape(-1)
        p = ssm.regimes.initial[k]
        own = jnp.where(p > 0, jnp.log(jnp.where(p > 0, p, 1.0)), -jnp.inf)
        means = blocks.means.reshape(-1, blocks.dim)
        logs = logs - jax.scipy.special.logsumexp(logs) + own
        each.append(padded(Mixture(logs, means, blocks.covariance), sizes.order))
    fine = jax.tree.map(lambda *a: jnp.stack(a), *each)
    start = Law(fine, fine, jnp.zeros(2), jnp.array(True), jnp.zeros(()))
    return start._replace(coarse=_halved(start, sizes))


class Kept(NamedTuple):
    """What every row leaves behind."""

    law: Branches | None
    before: Branches | None
    outcome: Outcome
    mean: Float[Array, " d"]
    covariance: Float[Array, "d d"]


def flat_of(law: Branches) -> Mixture:
    """The Gaussians of all regimes in a row, one regime after the other."""
    dim = law.means.shape[-1]
    return Mixture(
        law.log_weights.reshape(-1),
        law.means.reshape(-1, dim),
        law.covariances.reshape(-1, dim, dim),
    )


def banks_of(laws: Branches) -> Bank:
    """Laws of many times as stacked banks."""
    count, dim = laws.means.shape[0], laws.means.shape[-1]
    return Bank(
        laws.log_weights.reshape(count, -1, 1),
        laws.means.reshape(count, -1, 1, dim),
        laws.covariances.reshape(count, -1, dim, dim),
    )


def widened(law: Law, sizes: Sizes, num: int) -> Law:
    """Both filters on as many places as a transition makes."""
    fine, coarse = sizes.both
    wide = jax.vmap(lambda m: padded(m, num * fine))
    thin = jax.vmap(lambda m: padded(m, num * coarse))
    return law._replace(fine=wide(law.fine), coarse=thin(law.coarse))


def scan_rows(ssm: StateSpaceModel, rows: Rows, sizes: Sizes, keep: bool) -> tuple[Law, Kept]:
    """All rows: observations, and whether a transition comes before them."""
    parts, num = parts_of(ssm), len(forms_of(ssm))
    start, at = start_of(ssm, sizes), (jnp.asarray(rows.ys), jnp.asarray(rows.moves))

    def step(law: Law, at: tuple[Array, Array]) -> tuple[Law, Kept]:
        return one_row(law, parts, at, (sizes, num, keep))

    return rows_up_to(step, start, at, rows.end)


def _halved(law: Law, sizes: Sizes) -> Branches:
    """The prior on fewer places; if it has more Gaussians than those, the largest of them."""
    size = sizes.both[1]

    def regime(mixture: Mixture) -> Mixture:
        _, index = jax.lax.top_k(mixture.log_weights, size)
        total = jax.scipy.special.logsumexp(mixture.log_weights)
        fewer = Mixture(*(values[index] for values in mixture))
        own = jax.scipy.special.logsumexp(fewer.log_weights)
        shift = jnp.where(jnp.isfinite(own), total - own, 0.0)
        return fewer._replace(log_weights=fewer.log_weights + shift)

    return jax.vmap(regime)(law.fine)


def one_row(
    law: Law, parts: Parts, at: tuple[Array, Array], options: tuple[Sizes, int, bool]
) -> tuple[Law, Kept]:
    """A transition if there is one, and what was seen after it."""
    y, moves = at
    sizes, num, keep = options
    before = jax.tree.map(
        lambda a, b: jnp.where(moves, a, b),
        predicted_law(law, parts),
        widened(law, sizes, num),
    )
    new, outcome = seen_law(before, parts, y, sizes.both, sizes.prune)
    mean, covariance = moments(flat_of(new.fine))
    kept = new.fine if keep else None
    return new, Kept(kept, before.fine if keep else None, outcome, mean, covariance)
