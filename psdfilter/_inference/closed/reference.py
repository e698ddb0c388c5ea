"""Algorithm 2 to the letter, with the generic operations on PSD models: the oracle of the others.

    predict   p(x)  = int Q^(u, x) pi(u) du         order of Q^ (x anchors, on a grid)
    correct   p(x) G^(x, y)                         order M_Q M_G
    scale     Z = int over the box,  pi = p G^ / Z

Every weight matrix is formed and every pair of anchors integrated, so the cost of a step grows like
M_Q^4 M_G^2: small orders only. Any anchors will do.
"""

from collections.abc import Callable, Sequence
from typing import ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray

from ... import _results
from ..._checks import Numbers
from ..._density.box import Box
from ..._density.conversions import PSDModel, with_precisions
from ..._density.mass import scale
from ..._density.moments import cdf, moments, quantile
from ..._density.operations import product
from ..._density.sampling import sample
from ..._density.support import effective_box
from ..._gaussian.quadrature import gauss_legendre
from ..._statespace.model import Inputs
from ..ability import Ability, NotOffered
from ..laws import AbstractLaws
from ..model import AbstractModel
from ..report import Report
from ..series import Series
from ..trace import Ahead, Moved, Observation, Seen, Smoothing, Trace
from .learned import AbstractLearned

REFERENCE_ABILITIES = frozenset({Ability.INPUTS})
# Nodes per axis for expectations of functions, which have no closed form.
_NODES = {1: 200, 2: 60, 3: 24}


class DensityLaws(AbstractLaws):
    """Laws that are PSD models, one for each time."""

    densities: tuple[PSDModel, ...]
    box: Box | None

    def quantiles(self, levels: Float[Array, " k"]) -> Float[Array, "k t d"]:
        """In error functions, inverted."""
        rows = [
            jnp.stack([quantile(f, axis, levels, self.box) for axis in range(f.dim)], axis=-1)
            for f in self.densities
        ]
        return jnp.stack(rows, axis=1)

    def cdfs(self, x: Float[Array, "t d"]) -> Float[Array, "t d"]:
        """In error functions."""
        rows = [
            jnp.stack([cdf(f, axis, point[axis], self.box) for axis in range(f.dim)])
            for f, point in zip(self.densities, x, strict=True)
        ]
        return jnp.stack(rows)

    def expectations(self, fn: Callable[[Array], Numbers]) -> Array:
        """By quadrature."""

        def one(f: PSDModel) -> Array:
            room = effective_box(f, self.box)
            num = _NODES.get(f.dim)
            if num is None:
                raise ValueError(
                    f"expect is a quadrature in at most {max(_NODES)} coordinates, got {f.dim}: "
                    "take the mean over draws of sample"
                )
            nodes, weights = gauss_legendre(room.lower, room.upper, [num] * f.dim)
            image = jax.vmap(lambda x: jnp.asarray(fn(x), dtype=jnp.float64))(nodes)
            shares = f(nodes) * weights
            return jnp.tensordot(shares / jnp.sum(shares), image, axes=1)

        return jnp.stack([one(f) for f in self.densities])

    def draws(self, key: PRNGKeyArray, num: int) -> Float[Array, "n t d"]:
        """By inverting conditional distribution functions."""
        keys = jax.random.split(key, len(self.densities))
        each = zip(self.densities, keys, strict=True)
        return jnp.stack([sample(f, self.box, key=k, num=num) for f, k in each], axis=1)

    def density(self, t: int) -> PSDModel:
        """As it is."""
        return self.densities[t]


class Formed(NamedTuple):
    """A law with its weight matrix, in the coordinates of the models, and the prediction of it."""

    f: PSDModel
    predicted: PSDModel
    log_kept: Float[Array, ""]


class ReferenceModel(AbstractModel):
    """Algorithm 2: product, marginal, partial evaluation and integral, and nothing else."""

    engine: ClassVar[str] = "reference"
    learned: AbstractLearned
    report: Report = eqx.field(static=True)

    @property
    def dim(self) -> int:
        """Number of coordinates of the state."""
        return self.learned.dim

    @property
    def num_observed(self) -> int | None:
        """Number of coordinates of an observation, if known."""
        return self.learned.num_observed

    @property
    def abilities(self) -> frozenset[Ability]:
        """Little beside the filter itself."""
        return self.learned.abilities

    def why_not(self, ability: Ability) -> str | None:
        """What the models that it runs on say."""
        return self.learned.why_not(ability)

    @property
    def prior(self) -> PSDModel:
        """In user units."""
        return self.learned.model_of("prior")

    @property
    def transition(self) -> PSDModel:
        """Q^(u, x) in user units."""
        return self.learned.model_of("transition")

    @property
    def observation(self) -> PSDModel:
        """G^(x, y) in user units, if it is known for all y."""
        return self.learned.model_of("observation")

    def start(self) -> Formed:
        """The prior, normalised."""
        prior = self.learned.prior
        f = scale(prior, -self.learned.log_mass(prior))
        return Formed(f, f, jnp.zeros(()))

    def predict(self, law: Formed, step: Int[Array, ""], row: Inputs) -> tuple[Formed, Moved]:
        """One transition."""
        predicted = self.learned.predict(law.f, int(step), row)
        log_kept = self.learned.log_mass(predicted)
        f = scale(predicted, -log_kept)
        total = law.log_kept + log_kept
        return Formed(f, f, total), Moved(log_kept, jnp.zeros(()), jnp.zeros((), int))

    def update(
        self, law: Formed, y: Observation, step: Int[Array, ""], row: Inputs
    ) -> tuple[Formed, Seen]:
        """One observation."""
        missing, code = self.learned.status(jnp.asarray(y))
        nothing = jnp.zeros(())
        if bool(missing):
            log_mass = jnp.where(code == _results.OK, 0.0, -jnp.inf)
            still = law._replace(log_kept=nothing)
            return still, Seen(log_mass, nothing, jnp.zeros((), bool), code)
        seen = self.learned.likelihood(jnp.asarray(y), int(step), row)
        joint = with_precisions(product(law.f, seen))
        log_mass = self.learned.log_mass(joint)
        new = Formed(scale(joint, -log_mass), law.predicted, nothing)
        total = law.log_kept + log_mass
        return new, Seen(total, nothing, jnp.ones((), bool), code)

    def moments(self, law: Formed) -> tuple[Float[Array, " d"], Float[Array, "d d"]]:
        """Mean and covariance."""
        return moments(self.density(law), self.learned.user_box)

    def density(self, law: Formed) -> PSDModel:
        """The law in user units."""
        return self.learned.in_units(law.f)

    def run(self, series: Series, keep: bool) -> Trace:
        """Step by step; everything is kept."""
        del keep
        law, rows = self.start(), []
        hops, steps = np.asarray(series.hops), np.asarray(series.steps)
        for index, count in enumerate(hops):
            row = series.row(index)
            kept = jnp.zeros(())
            for k in range(count):
                law, moved = self.predict(law, jnp.asarray(steps[index] - count + 1 + k), row)
                kept = kept + moved.log_kept
            law, seen = self.update(law, jnp.asarray(series.ys[index]), steps[index], row)
            rows.append((law, seen, kept, *self.moments(law)))
        laws, seen, kept, mean, covariance = zip(*rows, strict=True)
        marks = jax.tree.map(lambda *a: jnp.stack(a), *seen)
        log_kept = jnp.stack(kept)
        return Trace(
            log_likelihoods=marks.log_mass,
            mean=jnp.stack(mean),
            covariance=jnp.stack(covariance),
            codes=marks.code,
            seen=marks.used,
            log_kept=log_kept,
            log_normalizers=log_kept,
            errors=None,
            last=law,
            laws=laws,
        )

    def _laws(self, densities: Sequence[PSDModel]) -> DensityLaws:
        in_units = tuple(self.learned.in_units(f) for f in densities)
        return DensityLaws(in_units, self.learned.user_box)

    def filtered(self, series: Series, trace: Trace) -> DensityLaws:
        """p(x_t | y_1 ... y_t)."""
        del series
        return self._laws([law.f for law in trace.laws])

    def predicted(self, series: Series, trace: Trace) -> DensityLaws:
        """p(x_t | y before t)."""
        del series
        return self._laws([law.predicted for law in trace.laws])

    def smooth(self, series: Series, trace: Trace, lag: int | None, keep: bool) -> Smoothing:
        """Not on offer: its orders would grow."""
        del series, trace, lag, keep
        raise NotOffered(self.engine, Ability.SMOOTHER)

    def paths(
        self, series: Series, trace: Trace, key: PRNGKeyArray, num: int
    ) -> Float[Array, "n t d"]:
        """Not on offer either."""
        del series, trace, key, num
        raise NotOffered(self.engine, Ability.SMOOTHER)

    def ahead(self, last: Formed, steps: Int[Array, " k"], rows: Inputs) -> Ahead:
        """Transitions one after the other, renormalised on the box at each."""
        laws, kept, law = [], [], last
        for index, step in enumerate(np.asarray(steps)):
            law, moved = self.predict(law, step, jax.tree.map(lambda a, i=index: a[i], rows))
            laws.append(law.f)
            kept.append(moved.log_kept)
        densities = self._laws(laws)
        mean, covariance = zip(
            *(moments(f, self.learned.user_box) for f in densities.densities), strict=True
        )
        codes = jnp.zeros(len(laws), int)
        return Ahead(jnp.stack(mean), jnp.stack(covariance), densities, jnp.stack(kept), codes)
