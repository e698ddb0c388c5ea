"""Nonlinear dynamics with additive Gaussian noise and any observation density, on R^d.

Transitions are those of `linearized.py`, each Gaussian with its own linearisation; at an
observation every Gaussian is tilted by G as in `sensor.py`, split where the result would not be
Gaussian, and merged back. Both parts estimate what they leave out.
"""

from dataclasses import replace
from functools import partial
from typing import ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int, PRNGKeyArray

from ..._checks import is_traced
from ..._statespace.model import AdditiveGaussian, Inputs, StateSpaceModel
from ..ability import Ability, NotOffered
from ..gaussian.bank import Bank, Layout
from ..gaussian.frozen import FrozenGaussian
from ..gaussian.laws import BankLaws
from ..gaussian.linear import Dynamics
from ..gaussian.mixture import Mixture, padded
from ..gaussian.model import BankRun, Record, as_trace
from ..gaussian.paths import Drawn
from ..lengths import with_room
from ..model import AbstractFrozen
from ..report import Report
from ..series import Series
from ..trace import Ahead, Moved, Observation, Seen, Trace
from .functions import Functions, Noises
from .linearized import _advance, _move_banks, _move_hops, _predict
from .measured import measured_directions
from .model import AbstractMixtureModel, Carrying, Row, as_mixture, run_rows
from .observe import Sizes
from .paths import draw_backwards
from .refine import Effort
from .sensor import (
    Directions,
    Setup,
    _update,
    abilities_of,
    as_directions,
    correct_mixture,
    why_a_density_cannot,
)


class AnySensorModel(AbstractMixtureModel):
    """x' = f(u) + N(0, Q),  y | x ~ G(x, y).

    Attributes:
        measured: directions of the state that G depends on; None if each series has to show them.
    """

    engine: ClassVar[str] = "mixture"
    ssm: StateSpaceModel
    start_mixture: Mixture
    effort: Effort = eqx.field(static=True)
    sizes: Sizes = eqx.field(static=True)
    report: Report = eqx.field(static=True)
    measured: Directions | None = eqx.field(static=True, default=None)

    @property
    def structure(self) -> AdditiveGaussian:
        """f, Q, m0 and P0."""
        structure = self.ssm.structure
        assert isinstance(structure, AdditiveGaussian)
        return structure

    @property
    def source(self) -> StateSpaceModel:
        """What it was learned from."""
        return self.ssm

    @property
    def dim(self) -> int:
        """Number of coordinates of the state."""
        return self.ssm.dim

    @property
    def num_observed(self) -> int | None:
        """As far as a sampler or a box tells."""
        return self.ssm.num_observed

    @property
    def abilities(self) -> frozenset[Ability]:
        """Laws of y have no closed form here."""
        return abilities_of(self.ssm)

    def why_not(self, ability: Ability) -> str | None:
        """A log_observation is only known for the y that were seen."""
        return why_a_density_cannot(ability)

    @property
    def functions(self) -> Functions:
        """f; what stands for h is not called."""
        form = self.structure
        return Functions(form.f, form.f, noise=form.noise)

    @property
    def noises(self) -> Noises:
        """Q; what stands for R is not used."""
        return Noises(self.structure.Q, self.structure.Q)

    def sized(self, series: Series) -> "AnySensorModel":
        """With the directions that these observations show, if nobody has named them."""
        if self.measured is not None:
            return self
        return replace(self, measured=self._found(series))

    def _found(self, series: Series) -> Directions:
        if is_traced((self.start_mixture, series.ys, series.rows)):
            raise ValueError(
                "under jit, vmap or grad the measured coordinates cannot be found from data: name "
                "them, learn(..., engine=psdfilter.engines.Mixture(measured=(0, 1)))"
            )
        setup = Setup(self.ssm.log_observation, (), self.sizes)
        dim = self.dim
        # States are looked for around the prior, spread by the noise of a step.
        still = Dynamics(jnp.eye(dim), jnp.zeros(dim), self.structure.Q)
        found = measured_directions(
            setup.likelihood,
            self.start_mixture,
            still,
            np.asarray(series.ys),
            np.asarray(series.steps),
            series.rows,
        )
        return as_directions(found)

    def _setup(self) -> Setup:
        assert self.measured is not None
        partly = self.ssm.marginalizes_missing
        return Setup(self.ssm.log_observation, self.measured, self.sizes, partly)

    def bank_of(self, law: Bank) -> Bank:
        """Itself."""
        return law

    def start(self) -> Bank:
        """The prior."""
        return self.first_bank()

    def predict(self, law: Bank, step: Int[Array, ""], row: Inputs) -> tuple[Bank, Moved]:
        """One transition."""
        return self.held(_predict(law, self.noises, step, row, self.functions, self.effort))

    def update(
        self, law: Bank, y: Observation, step: Int[Array, ""], row: Inputs
    ) -> tuple[Bank, Seen]:
        """One observation; all directions count if nobody has named those that are measured."""
        model = self
        if self.measured is None:
            every = as_directions(np.eye(self.dim)) if self.dim <= 3 else None
            if every is None:
                raise ValueError(
                    "online steps need the measured coordinates: name them, "
                    "learn(..., engine=psdfilter.engines.Mixture(measured=(0, 1)))"
                )
            model = replace(self, measured=every)
        return self.held(_update(law, jnp.asarray(y), step, row, model._setup()))

    def run(self, series: Series, keep: bool) -> Trace:
        """The filter of a series."""
        parts = _Parts(self.noises, self.functions, self._setup())
        roomy = with_room(series, self.start_mixture, parts)
        out = _run(self.start_mixture, parts, roomy, self.effort, keep)
        return as_trace(out.cut(series), self.tol)

    def backwards(self, series: Series, trace: Trace, key: PRNGKeyArray, num: int) -> Drawn:
        """Paths drawn from the last state to the first."""
        laws = as_mixture(trace.laws)
        return draw_backwards(laws, self.structure.Q, series, key, self.functions, num)

    def ahead(self, last: Bank, steps: Int[Array, " k"], rows: Inputs) -> Ahead:
        """Transitions one after the other."""
        bank, (mean, covariance) = _advance(
            as_mixture(last), self.noises, steps, rows, self.functions, self.effort
        )
        laws = BankLaws.with_moments(bank, Layout(), mean, covariance)
        num = steps.shape[0]
        return Ahead(mean, covariance, laws, jnp.zeros(num), jnp.zeros(num, int))

    def move_banks(self, before: Bank, series: Series) -> Bank:
        """Each Gaussian through its linearisation of f."""
        return _move_banks(before, self.noises, series, self.functions, self.effort)

    def seen_banks(self, bank: Bank, steps: Int[Array, " t"], rows: Inputs) -> Bank:
        """Not on offer."""
        del bank, steps, rows
        raise NotOffered(self.engine, Ability.OBSERVED_LAWS)

    def frozen(self) -> FrozenGaussian:
        """Its sizes, and the directions."""
        return FrozenGaussian(self._refill(), self.report)

    def _refill(self) -> "RefillAny":
        return RefillAny(self.start_mixture.size, self.effort, self.sizes, self.measured)

    def refilled(self, frozen: AbstractFrozen, ssm: StateSpaceModel) -> "AnySensorModel":
        """The same for other numbers."""
        del frozen
        return self._refill()(ssm, self.report)


class RefillAny(NamedTuple):
    """ssm, report -> model, with the sizes that were chosen; equal to another of equal sizes."""

    size: int
    effort: Effort
    sizes: Sizes
    measured: Directions | None

    def __call__(self, ssm: StateSpaceModel, report: Report) -> AnySensorModel:
        """The model of numbers that may be traced."""
        structure = ssm.structure
        assert isinstance(structure, AdditiveGaussian)
        start = Mixture(jnp.zeros(1), structure.m0[None], structure.P0[None])
        return AnySensorModel(
            ssm=ssm,
            start_mixture=padded(start, self.size),
            effort=self.effort,
            sizes=self.sizes,
            report=report,
            measured=self.measured,
        )


class _Parts(NamedTuple):
    """What a step is made of."""

    noises: Noises
    functions: Functions
    setup: Setup


@partial(jax.jit, static_argnums=(3, 4))
def _run(prior: Mixture, parts: _Parts, series: Series, effort: Effort, keep: bool) -> BankRun:
    noises, functions, setup = parts

    def step(law: Carrying, at: Row) -> tuple[Carrying, Record]:
        y, t, hops, row = at
        times = t, hops, row
        mixture, carried = _move_hops(law, noises, times, functions, effort, series.regular)
        mixture, record = correct_mixture(mixture, y, t, row, setup)
        return (mixture, carried), record

    return run_rows(prior, series, step, keep)
