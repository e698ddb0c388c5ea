"""Learned densities as PSD models: what Algorithm 2 takes, from any anchors or from a grid."""

from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from ..._checks import Numbers
from ..._density.anchors import TensorGrid
from ..._density.box import Box
from ..._density.conversions import change_units
from ..._density.mass import log_integral, scale
from ..._density.operations import marginal, partial, product, transition
from ..._density.psd import GaussianPSD
from ..._statespace.model import Inputs
from ..nodes.filled import Filled
from ..nodes.filtered import observation_fits
from ..series import Series, as_series
from ..sizing.plan import AxisRegression

T = TypeVar("T")


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
    regressions: tuple[AxisRegression, ...], coefficients: Array, log_scale: Numbers = 0.0
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


def _jit_unless_black_box(filled: Filled, fn: Callable[..., T]) -> Callable[..., T]:
    return fn if filled.ssm.vectorized else eqx.filter_jit(fn)
