"""Algorithm 2 to the letter, with the generic operations on PSD models: the oracle of the others.

    predict   p(x)  = int Q^(u, x) pi(u) du         order of Q^ (x anchors, on a grid)
    correct   p(x) G^(x, y)                         order M_Q M_G
    scale     Z = int over the box,  pi = p G^ / Z

Every weight matrix is formed and every pair of anchors integrated, so the cost of a step grows like
M_Q^4 M_G^2: small orders only. Any anchors will do.
"""

from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray

from ... import _results
from ..._density.anchors import TensorGrid
from ..._density.box import Box
from ..._density.conversions import change_units
from ..._density.moments import cdf, moments, quantile
from ..._density.operations import (
    log_integral,
    marginal,
    partial,
    positive_mass,
    product,
    scale,
    transition,
)
from ..._density.psd import GaussianPSD
from ..._density.sampling import sample
from ..._gaussian.quadrature import gauss_legendre
from ..._statespace.model import Inputs
from ..ability import Ability, NotOffered
from ..laws import AbstractLaws
from ..model import AbstractModel
from ..nodes.filled import Filled
from ..nodes.filtered import observation_fits
from ..nodes.step import observation_status
from ..report import Report
from ..series import Series, as_series
from ..sizing.plan import AxisRegression
from ..trace import Ahead, Moved, Observation, Seen, Smoothing, Trace

REFERENCE_ABILITIES = frozenset({Ability.INPUTS})
# Nodes per axis for expectations of functions, which have no closed form.
_NODES = {1: 200, 2: 60}


class Kernel(NamedTuple):
    """A transition Q(u_given, x): the old coordinates it depends on, and the model."""

    given: tuple[int, ...]
    model: GaussianPSD

    def apply(self, f: GaussianPSD, box: Box) -> GaussianPSD:
        """int Q(u, x) f(u) du."""
        if not self.given:
            return scale(self.model, log_integral(f, box))
        inner = box
        if len(self.given) < f.dim:
            f = marginal(f, self.given, box)
            inner = box.keep(self.given)
        return transition(self.model, f, inner)


def join_factors(
    factors: Sequence[GaussianPSD], structure: Sequence[tuple[tuple[int, ...], tuple[int, ...]]]
) -> Kernel:
    """prod_g Q_g(u_given, x_group) as one model of (u_given of all, x_0 ... x_{d-1})."""
    given = tuple(sorted({axis for of_u, _ in structure for axis in of_u}))
    place = {axis: index for index, axis in enumerate(given)}
    named = [
        tuple(place[a] for a in of_u) + tuple(len(given) + a for a in of_x)
        for of_u, of_x in structure
    ]
    if len(factors) == 1 and named[0] == tuple(range(factors[0].dim)):
        return Kernel(given, factors[0])
    # Each product must name its variables without gaps: number those met so far.
    whole, variables = factors[0], list(named[0])
    for factor, names in zip(factors[1:], named[1:], strict=True):
        met = sorted({*variables, *names})
        whole = product(
            whole, factor, [met.index(v) for v in variables], [met.index(v) for v in names]
        )
        variables = met
    return Kernel(given, whole)


def root_square(
    regressions: tuple[AxisRegression, ...], coefficients: Array, log_scale: Any = 0.0
) -> GaussianPSD:
    """|c' k(x)|^2 exp(log_scale) on the tensor grid of the regressions."""
    grid = TensorGrid([r.anchors for r in regressions])
    precision = jnp.stack([r.precision for r in regressions])
    num = int(np.prod([r.anchors.shape[0] for r in regressions]))
    return GaussianPSD(grid, coefficients.reshape(num, -1), precision, log_scale)


class AbstractLearned(eqx.Module):
    """Q^, G^ and the prior as PSD models, in coordinates of the box they were learned on."""

    @property
    @abstractmethod
    def box(self) -> Box:
        """Where the state lives, in the coordinates of the models."""

    @property
    @abstractmethod
    def prior(self) -> GaussianPSD:
        """The prior, not normalised."""

    @abstractmethod
    def kernel(self, t: int, row: Inputs) -> Kernel:
        """The transition into step t."""

    @abstractmethod
    def likelihood(self, y: Array, t: int, row: Inputs) -> GaussianPSD:
        """G^(., y)."""

    @abstractmethod
    def in_units(self, f: GaussianPSD) -> GaussianPSD:
        """A density in the user's units."""

    @property
    @abstractmethod
    def user_box(self) -> Box:
        """The box in the user's units."""

    @property
    @abstractmethod
    def num_observed(self) -> int | None:
        """Coordinates of an observation, if known."""


class LearnedTriple(AbstractLearned):
    """Any PSD models Q^(u, x), G^(x, y) and prior, in user units."""

    Q: GaussianPSD
    G: GaussianPSD
    start: GaussianPSD
    state_box: Box

    @property
    def box(self) -> Box:
        """Of the state."""
        return self.state_box

    @property
    def user_box(self) -> Box:
        """The same."""
        return self.state_box

    @property
    def prior(self) -> GaussianPSD:
        """The prior."""
        return self.start

    @property
    def num_observed(self) -> int:
        """What G^ has beyond the state."""
        return self.G.dim - self.state_box.dim

    def kernel(self, t: int, row: Inputs) -> Kernel:
        """The same at every step."""
        del t, row
        return Kernel(tuple(range(self.state_box.dim)), self.Q)

    def likelihood(self, y: Array, t: int, row: Inputs) -> GaussianPSD:
        """By partial evaluation."""
        del t, row
        return partial(self.G, range(self.state_box.dim, self.G.dim), y)

    def in_units(self, f: GaussianPSD) -> GaussianPSD:
        """As it is."""
        return f


class LearnedOnGrid(AbstractLearned):
    """The densities of a filled plan, in unit coordinates."""

    filled: Filled

    @property
    def box(self) -> Box:
        """(-1, 1)^d."""
        return Box(-np.ones(self.filled.dim), np.ones(self.filled.dim))

    @property
    def user_box(self) -> Box:
        """The user's."""
        return self.filled.plan.box

    @property
    def prior(self) -> GaussianPSD:
        """The square of its learned root."""
        return root_square(self.filled.plan.prior, self.filled.prior_root)

    @property
    def num_observed(self) -> int | None:
        """If a box or a sampler tells."""
        return self.filled.ssm.num_observed

    def kernel(self, t: int, row: Inputs) -> Kernel:
        """All factors joined."""
        factors = _jit_unless_black_box(self.filled, _factors)(self.filled, t, row)
        return join_factors(factors, self.filled.plan.structure)

    def likelihood(self, y: Array, t: int, row: Inputs) -> GaussianPSD:
        """The square of the root that was fitted to sqrt G(., y)."""
        rows = jax.tree.map(lambda a: jnp.asarray(a)[None], row)
        one = as_series(jnp.asarray(y)[None], None, times=[t])
        series = Series(one.ys, one.steps, one.hops, rows, True, one.partly)
        fits = _jit_unless_black_box(self.filled, observation_fits)
        coefficients, peaks = fits(self.filled, series)
        return root_square(self.filled.plan.observation, coefficients[0], peaks[0])

    def in_units(self, f: GaussianPSD) -> GaussianPSD:
        """From unit coordinates."""
        box = self.filled.plan.box
        return change_units(f, box.center, box.half_width)


def _factors(filled: Filled, t: int, row: Inputs) -> tuple[GaussianPSD, ...]:
    return filled.transition_density(t, row)


def _jit_unless_black_box(filled: Filled, fn: Callable[..., Any]) -> Callable[..., Any]:
    return fn if filled.ssm.vectorized else eqx.filter_jit(fn)


class DensityLaws(AbstractLaws):
    """Laws that are PSD models, one for each time."""

    densities: tuple[GaussianPSD, ...]
    box: Box

    def quantiles(self, levels: Float[Array, " k"]) -> Float[Array, "k t d"]:
        """In error functions, inverted."""
        axes = range(self.box.dim)
        rows = [
            jnp.stack([quantile(f, axis, levels, self.box) for axis in axes], axis=-1)
            for f in self.densities
        ]
        return jnp.stack(rows, axis=1)

    def cdfs(self, x: Float[Array, "t d"]) -> Float[Array, "t d"]:
        """In error functions."""
        rows = [
            jnp.stack([cdf(f, axis, point[axis], self.box) for axis in range(self.box.dim)])
            for f, point in zip(self.densities, x, strict=True)
        ]
        return jnp.stack(rows)

    def expectations(self, fn: Callable[[Array], Any]) -> Array:
        """By quadrature."""
        counts = [_NODES[self.box.dim]] * self.box.dim
        nodes, weights = gauss_legendre(self.box.lower, self.box.upper, counts)
        image = jax.vmap(lambda x: jnp.asarray(fn(x), dtype=jnp.float64))(nodes)
        shares = jnp.stack([f(nodes) * weights for f in self.densities])
        shares = shares / jnp.sum(shares, axis=1, keepdims=True)
        return jnp.tensordot(shares, image, axes=1)

    def draws(self, key: PRNGKeyArray, num: int) -> Float[Array, "n t d"]:
        """By inverting conditional distribution functions."""
        keys = jax.random.split(key, len(self.densities))
        each = zip(self.densities, keys, strict=True)
        return jnp.stack([sample(f, self.box, key=k, num=num) for f, k in each], axis=1)

    def density(self, t: int) -> GaussianPSD:
        """As it is."""
        return self.densities[t]


class Formed(NamedTuple):
    """A law with its weight matrix, in the coordinates of the models, and the prediction of it."""

    f: GaussianPSD
    predicted: GaussianPSD
    log_kept: Float[Array, ""]


class ReferenceModel(AbstractModel):
    """Algorithm 2: product, marginal, partial evaluation and integral, and nothing else."""

    engine: ClassVar[str] = "reference"
    learned: AbstractLearned
    report: Report = eqx.field(static=True)

    @property
    def dim(self) -> int:
        """Number of coordinates of the state."""
        return self.learned.box.dim

    @property
    def num_observed(self) -> int | None:
        """Number of coordinates of an observation, if known."""
        return self.learned.num_observed

    @property
    def abilities(self) -> frozenset[Ability]:
        """Little beside the filter itself."""
        return REFERENCE_ABILITIES

    def start(self) -> Formed:
        """The prior, normalised."""
        prior = self.learned.prior
        f = scale(prior, -positive_mass(prior, self.learned.box))
        return Formed(f, f, jnp.zeros(()))

    def predict(self, law: Formed, step: Int[Array, ""], row: Inputs) -> tuple[Formed, Moved]:
        """One transition."""
        predicted = self.learned.kernel(int(step), row).apply(law.f, self.learned.box)
        log_kept = positive_mass(predicted, self.learned.box)
        f = scale(predicted, -log_kept)
        total = law.log_kept + log_kept
        return Formed(f, f, total), Moved(log_kept, jnp.zeros(()), jnp.zeros((), int))

    def update(
        self, law: Formed, y: Observation, step: Int[Array, ""], row: Inputs
    ) -> tuple[Formed, Seen]:
        """One observation."""
        missing, code = observation_status(jnp.asarray(y))
        nothing = jnp.zeros(())
        if bool(missing):
            log_mass = jnp.where(code == _results.OK, 0.0, -jnp.inf)
            still = law._replace(log_kept=nothing)
            return still, Seen(log_mass, nothing, jnp.zeros((), bool), code)
        joint = product(law.f, self.learned.likelihood(jnp.asarray(y), int(step), row))
        log_mass = positive_mass(joint, self.learned.box)
        new = Formed(scale(joint, -log_mass), law.predicted, nothing)
        total = law.log_kept + log_mass
        return new, Seen(total, nothing, jnp.ones((), bool), code)

    def moments(self, law: Formed) -> tuple[Float[Array, " d"], Float[Array, "d d"]]:
        """Mean and covariance."""
        return moments(self.density(law), self.learned.user_box)

    def density(self, law: Formed) -> GaussianPSD:
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

    def _laws(self, densities: Sequence[GaussianPSD]) -> DensityLaws:
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
