"""The learned model of linear-Gaussian systems with a linear sensor: nothing is approximated."""

from dataclasses import replace
from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray

from ... import _results
from ..._checks import is_concrete, looked_at
from ..._density.conversions import conditional_gaussian
from ..._density.generalized import GeneralizedGaussianPSD
from ..._density.psd import AbstractDensity
from ..._statespace.model import Inputs, LinearGaussian, StateSpaceModel
from ..ability import Ability
from ..gaussian.ahead import ahead_linear
from ..gaussian.bank import Bank, Layout
from ..gaussian.frozen import FrozenGaussian
from ..gaussian.laws import BankLaws, law_of
from ..gaussian.linear import (
    Dynamics,
    Sensor,
    noise_floor,
    predict_all,
    predict_bank,
    run_exact,
    update_bank,
)
from ..gaussian.model import AbstractBankModel, BankRun, Record, as_trace
from ..gaussian.observed import linear_sensor_laws
from ..gaussian.paths import draw_linear
from ..gaussian.prior import prior_bank
from ..gaussian.roots import rooted
from ..lengths import with_room
from ..model import AbstractFrozen
from ..report import Report
from ..series import Series
from ..trace import Ahead, Moved, Observation, Seen, Smoothing, Trace
from .root_smooth import backward_roots, smooth_roots
from .smooth import SmoothedBank, smooth_exact

ABILITIES = frozenset(
    {
        Ability.PARTLY_MISSING,
        Ability.SMOOTHER,
        Ability.LAG,
        Ability.LAG_OF_SENSORS,
        Ability.OBSERVED_LAWS,
        Ability.ERRORS,
        Ability.GRADIENTS,
    }
)

_LOST = (_results.IMPRECISE, _results.SINGULAR)

# Compiled for shapes alone: models of one size share the program.
_run = jax.jit(run_exact, static_argnums=5)
_predict = jax.jit(predict_bank)
_update = jax.jit(update_bank)
_floor = jax.jit(noise_floor)
_rooted = jax.jit(rooted)


class ExactModel(AbstractBankModel):
    """x' = F u + b + N(0, Q),  y = H x + d + N(0, R), with a prior that is a sum of Gaussians.

    The order of the prior stays, and for a Gaussian prior this is the Kalman filter. The functions
    of the StateSpaceModel are not needed any more.
    """

    engine: ClassVar[str] = "exact"
    dynamics: Dynamics
    sensor: Sensor
    start_bank: Bank
    prior_layout: Layout
    report: Report = eqx.field(static=True)

    @property
    def dim(self) -> int:
        """Number of coordinates of the state."""
        return self.dynamics.F.shape[0]

    @property
    def num_observed(self) -> int:
        """Coordinates of an observation."""
        return self.sensor.H.shape[0]

    @property
    def abilities(self) -> frozenset[Ability]:
        """All but inputs, and what needs a box."""
        return ABILITIES

    def why_not(self, ability: Ability) -> str | None:
        """The matrices are fixed."""
        if ability is Ability.INPUTS:
            return "inputs must be None: the matrices of a linear-Gaussian model are fixed"
        return None

    @property
    def prior(self) -> AbstractDensity:
        """The law of x_0."""
        return law_of(self.start_bank, self.layout)

    @property
    def transition(self) -> GeneralizedGaussianPSD:
        """N(x | F u + b, Q), of order one; Q must not be singular."""
        return conditional_gaussian(self.dynamics.F, self.dynamics.Q, self.dynamics.b)

    @property
    def observation(self) -> GeneralizedGaussianPSD:
        """N(y | H x + d, R), of order one; R must not be singular."""
        return conditional_gaussian(self.sensor.H, self.sensor.R, self.sensor.d)

    @property
    def layout(self) -> Layout:
        """That of the prior, which no step changes."""
        return self.prior_layout

    def first_bank(self) -> Bank:
        """The prior."""
        return self.start_bank

    def bank_of(self, law: Bank) -> Bank:
        """Itself."""
        return law

    def move_banks(self, before: Bank, series: Series) -> Bank:
        """By the dynamics."""
        return predict_all(before, self.dynamics, series.hops, series.regular)

    def seen_banks(self, bank: Bank, steps: Int[Array, " t"], rows: Inputs) -> Bank:
        """By the sensor, which neither steps nor inputs change."""
        del steps, rows
        return linear_sensor_laws(bank, self.sensor)

    def start(self) -> Bank:
        """The prior."""
        return self.start_bank

    def predict(self, law: Bank, step: Int[Array, ""], row: Inputs) -> tuple[Bank, Moved]:
        """One transition."""
        del step, row
        nothing = jnp.zeros(())
        moved = Moved(nothing, nothing, jnp.zeros((), int))
        return _predict(law, self.dynamics), moved

    def update(
        self, law: Bank, y: Observation, step: Int[Array, ""], row: Inputs
    ) -> tuple[Bank, Seen]:
        """One observation."""
        del step, row
        bank, record = _update(
            law, self.layout, self.sensor, jnp.asarray(y), _floor(self.dynamics, self.sensor)
        )
        return bank, Seen(record.log_mass, jnp.zeros(()), record.seen, record.code)

    def run(self, series: Series, keep: bool) -> Trace:
        """The filter of a series."""
        roomy = with_room(series, self.start_bank, self.dynamics, self.sensor)
        system = self.layout, self.dynamics, self.sensor, roomy, keep
        out = _run(self.start_bank, *system)
        codes = out.record.code
        # What looks singular may be rounding; on roots it is not.
        if is_concrete(codes) and np.isin(np.asarray(codes), _LOST).any():
            out = _run(_rooted(self.start_bank), *system)
        xp, code = looked_at(codes)
        record = Record(out.record.log_mass, xp.zeros(len(code)), out.record.seen, code)
        whole = BankRun(out.last, out.laws, record, out.mean, out.covariance)
        return as_trace(whole.cut(series))

    def batched(self) -> "ExactModel":
        """Itself."""
        return self

    def cut(self, trace: Trace, num: int) -> Trace:
        """Whatever is stacked has rows."""
        rows = jax.tree.map(lambda a: a[:num], trace._replace(last=None))
        return rows._replace(last=jax.tree.map(lambda a: a[-1], rows.laws))

    def smooth(self, series: Series, trace: Trace, lag: int | None, keep: bool) -> Smoothing:
        """Every component by itself."""
        del keep  # these laws take no room
        used = jnp.where(trace.seen[:, None], jnp.asarray(series.ys), jnp.nan)
        ahead = None if lag is None else min(lag, series.num - 1)
        bank, mean, covariance = self._smoothed(trace.laws, replace(series, ys=used), ahead)
        laws = BankLaws.with_moments(bank, self.layout, mean, covariance)
        return Smoothing(mean, covariance, laws, "exact", jnp.zeros(series.num))

    def _smoothed(self, laws: Bank, series: Series, lag: int | None) -> SmoothedBank:
        """By differences of covariances where those keep their digits, else by roots."""
        system = self.layout, self.dynamics, self.sensor, series, True

        def by_roots() -> SmoothedBank:
            roots = laws if laws.rows is not None else _run(_rooted(self.start_bank), *system).laws
            assert roots is not None
            return smooth_roots(roots, self.layout, self.dynamics, series, lag)

        if laws.rows is not None:
            return by_roots()
        parts = self.dynamics, self.sensor
        out, precise = smooth_exact(self.start_bank, laws, self.layout, parts, series, lag)
        if is_concrete(precise):
            return out if bool(precise) else by_roots()

        def without_rows() -> SmoothedBank:
            rooted_out = by_roots()
            return rooted_out._replace(bank=rooted_out.bank._replace(rows=None))

        return jax.lax.cond(precise, lambda: out, without_rows)

    def paths(
        self, series: Series, trace: Trace, key: PRNGKeyArray, num: int
    ) -> Float[Array, "n t d"]:
        """By backward sampling."""
        if self.layout.factor is not None:
            raise ValueError(
                "paths are drawn for priors that are mixtures or share one precision: this one has "
                "components that interfere, with precisions of their own. See sample_marginals"
            )
        backward = None
        if trace.laws.rows is not None:
            backward = backward_roots(trace.laws, self.dynamics, series)
        drawn = draw_linear(trace.laws, self.layout, self.dynamics, series.hops, key, num, backward)
        return jnp.moveaxis(drawn.state, 0, 1)

    def ahead(self, last: Bank, steps: Int[Array, " k"], rows: Inputs) -> Ahead:
        """By the dynamics."""
        del rows
        return ahead_linear(last, self.layout, self.dynamics, steps.shape[0])

    def frozen(self) -> FrozenGaussian:
        """Nothing but the way it is run."""
        make = _refilled if self.start_bank.rows is None else _refilled_on_roots
        return FrozenGaussian(make, self.report)

    def refilled(self, frozen: AbstractFrozen, ssm: StateSpaceModel) -> "ExactModel":
        """The same with other matrices."""
        del frozen
        make = _refilled if self.start_bank.rows is None else _refilled_on_roots
        return make(ssm, self.report)


def exact_of(structure: LinearGaussian, report: Report, roots: bool) -> ExactModel:
    """The model of matrices that may be traced; `roots`: on roots of covariances from the start."""
    start = prior_bank(structure)
    assert start is not None
    assert structure.H is not None
    assert structure.d is not None
    assert structure.R is not None
    prior, layout = start
    prior = _rooted(prior) if roots else prior
    dynamics = Dynamics(structure.F, structure.b, structure.Q)
    sensor = Sensor(structure.H, structure.d, structure.R)
    return ExactModel(
        dynamics=dynamics, sensor=sensor, start_bank=prior, prior_layout=layout, report=report
    )


def _refilled(ssm: StateSpaceModel, report: Report) -> ExactModel:
    assert isinstance(ssm.structure, LinearGaussian)
    return exact_of(ssm.structure, report, False)


def _refilled_on_roots(ssm: StateSpaceModel, report: Report) -> ExactModel:
    assert isinstance(ssm.structure, LinearGaussian)
    return exact_of(ssm.structure, report, True)
