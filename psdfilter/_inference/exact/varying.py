"""Linear-Gaussian models whose matrices change from step to step: Kalman's filter, exact."""

from functools import partial
from typing import ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray

from ..._gaussian.conditioning import symmetric
from ..._gaussian.linalg import psd_root
from ..._statespace.model import Inputs, StateSpaceModel
from ..._statespace.varying import VaryingLinear, listed_steps
from ..ability import Ability
from ..gaussian.bank import Bank, Layout, bank_moments
from ..gaussian.frozen import FrozenGaussian
from ..gaussian.laws import BankLaws
from ..gaussian.linear import Dynamics, Sensor, noise_floor, predict_bank, update_bank
from ..gaussian.model import AbstractBankModel, BankRun, Record, as_trace
from ..gaussian.observed import linear_sensor_laws
from ..lengths import scan_rows, with_room
from ..model import AbstractFrozen
from ..report import Report
from ..series import Series
from ..trace import Ahead, Moved, Observation, Seen, Smoothing, Trace

VARYING_ABILITIES = frozenset(
    {
        Ability.INPUTS,
        Ability.PARTLY_MISSING,
        Ability.SMOOTHER,
        Ability.OBSERVED_LAWS,
        Ability.ERRORS,
        Ability.GRADIENTS,
    }
)


class VaryingModel(AbstractBankModel):
    """x' = F_t u + b_t + N(0, Q_t),  y = H x + d + N(0, R), from a Gaussian prior."""

    engine: ClassVar[str] = "exact"
    form: VaryingLinear
    report: Report = eqx.field(static=True)

    @property
    def dim(self) -> int:
        """Number of coordinates of the state."""
        return self.form.m0.shape[0]

    @property
    def num_observed(self) -> int:
        """Coordinates of an observation."""
        return self.form.H.shape[0]

    @property
    def num_listed(self) -> int | None:
        """As many as there are matrices in a list."""
        return listed_steps(self.form)

    @property
    def abilities(self) -> frozenset[Ability]:
        """All but a lag, and what needs a box."""
        return VARYING_ABILITIES

    @property
    def layout(self) -> Layout:
        """One Gaussian."""
        return Layout()

    @property
    def sensor(self) -> Sensor:
        """H, d and R."""
        return Sensor(self.form.H, self.form.d, self.form.R)

    def first_bank(self) -> Bank:
        """The prior."""
        return Bank(jnp.zeros((1, 1)), self.form.m0[None, None], self.form.P0[None])

    def bank_of(self, law: Bank) -> Bank:
        """Itself."""
        return law

    def start(self) -> Bank:
        """The prior."""
        return self.first_bank()

    def predict(self, law: Bank, step: Int[Array, ""], row: Inputs) -> tuple[Bank, Moved]:
        """One transition."""
        nothing = jnp.zeros(())
        moved = Moved(nothing, nothing, jnp.zeros((), int))
        return _predict(self.form, law, step, row), moved

    def update(
        self, law: Bank, y: Observation, step: Int[Array, ""], row: Inputs
    ) -> tuple[Bank, Seen]:
        """One observation."""
        bank, record = _update(self.form, law, jnp.asarray(y), step, row)
        return bank, Seen(record.log_mass, jnp.zeros(()), record.seen, record.code)

    def run(self, series: Series, keep: bool) -> Trace:
        """The filter of a series."""
        out = _run(self.form, self.first_bank(), with_room(series, self.form), keep)
        return as_trace(out.cut(series))

    def smooth(self, series: Series, trace: Trace, lag: int | None, keep: bool) -> Smoothing:
        """Rauch, Tung and Striebel's, with the matrices of every step."""
        del lag, keep
        bank, (mean, covariance) = _smooth(self.form, trace.laws, series)
        laws = BankLaws.with_moments(bank, self.layout, mean, covariance)
        return Smoothing(mean, covariance, laws, "exact", jnp.zeros(series.num))

    def paths(
        self, series: Series, trace: Trace, key: PRNGKeyArray, num: int
    ) -> Float[Array, "n t d"]:
        """By backward sampling."""
        return _paths(self.form, trace.laws, series, key, num)

    def ahead(self, last: Bank, steps: Int[Array, " k"], rows: Inputs) -> Ahead:
        """Transitions one after the other."""
        bank, (mean, covariance) = _advance(self.form, last, steps, rows)
        laws = BankLaws.with_moments(bank, self.layout, mean, covariance)
        num = steps.shape[0]
        return Ahead(mean, covariance, laws, jnp.zeros(num), jnp.zeros(num, int))

    def move_banks(self, before: Bank, series: Series) -> Bank:
        """By the dynamics of every row."""
        return _move_banks(self.form, before, series)

    def seen_banks(self, bank: Bank, steps: Int[Array, " t"], rows: Inputs) -> Bank:
        """By the sensor."""
        del steps, rows
        return linear_sensor_laws(bank, self.sensor)

    def frozen(self) -> FrozenGaussian:
        """Nothing but the way it is run."""
        return FrozenGaussian(varying_of, self.report)

    def refilled(self, frozen: AbstractFrozen, ssm: StateSpaceModel) -> "VaryingModel":
        """The same with other matrices."""
        del frozen
        return varying_of(ssm, self.report)


def varying_of(ssm: StateSpaceModel, report: Report) -> VaryingModel:
    """The model of matrices that may be traced."""
    assert ssm.varying is not None
    return VaryingModel(form=ssm.varying, report=report)


class _At(NamedTuple):
    """When a row is, how many transitions come before it, and its inputs."""

    step: Array
    hops: Array
    row: Inputs


def _composed(form: VaryingLinear, at: _At, regular: bool) -> Dynamics:
    """The transitions before a row as one: x' = F u + b + N(0, Q)."""
    dim = form.m0.shape[0]
    nothing = Dynamics(jnp.eye(dim), jnp.zeros(dim), jnp.zeros((dim, dim)))

    def once(k: Array | int, now: Dynamics) -> Dynamics:
        F, b, Q = form.at(at.step - at.hops + 1 + k, at.row)
        return Dynamics(F @ now.F, F @ now.b + b, symmetric(F @ now.Q @ F.T) + Q)

    if regular:
        moved = once(0, nothing)
        return jax.tree.map(lambda new, old: jnp.where(at.hops > 0, new, old), moved, nothing)
    return jax.lax.fori_loop(0, at.hops, once, nothing)


def _rows(series: Series) -> _At:
    return _At(series.steps, series.hops, series.rows)


@partial(jax.jit, static_argnums=3)
def _run(form: VaryingLinear, start: Bank, series: Series, keep: bool) -> BankRun:
    sensor = Sensor(form.H, form.d, form.R)

    def step(bank: Bank, xs: tuple[Array, _At]):
        y, at = xs
        dynamics = _composed(form, at, series.regular)
        bank = predict_bank(bank, dynamics)
        bank, record = update_bank(bank, Layout(), sensor, y, noise_floor(dynamics, sensor))
        return bank, (bank if keep else None, record, bank_moments(bank, Layout()))

    xs = jnp.asarray(series.ys), _rows(series)
    last, (laws, record, (mean, covariance)) = scan_rows(step, start, xs, series.count)
    log_mass, seen, code = record
    out = Record(log_mass, jnp.zeros(series.num), seen, code)
    return BankRun(last, laws, out, mean, covariance)


@jax.jit
def _predict(form: VaryingLinear, bank: Bank, step: Array, row: Inputs) -> Bank:
    return predict_bank(bank, Dynamics(*form.at(step, row)))


@jax.jit
def _update(form: VaryingLinear, bank: Bank, y: Array, step: Array, row: Inputs):
    sensor, dynamics = Sensor(form.H, form.d, form.R), Dynamics(*form.at(step, row))
    return update_bank(bank, Layout(), sensor, y, noise_floor(dynamics, sensor))


@jax.jit
def _move_banks(form: VaryingLinear, before: Bank, series: Series) -> Bank:
    def one(bank: Bank, at: _At) -> Bank:
        return predict_bank(bank, _composed(form, at, series.regular))

    return jax.vmap(one)(before, _rows(series))


@jax.jit
def _advance(form: VaryingLinear, last: Bank, steps: Array, rows: Inputs):
    def step(bank: Bank, at: tuple[Array, Inputs]):
        bank = predict_bank(bank, Dynamics(*form.at(*at)))
        return bank, (bank, bank_moments(bank, Layout()))

    return jax.lax.scan(step, last, (steps, rows))[1]


def _backward_gain(form: VaryingLinear, law: Bank, at: _At, regular: bool):
    """G = S F' (F S F' + Q)^-1 of the transition into the next row, and its moments."""
    mean, S = law.means[0, 0], law.covariances[0]
    F, b, Q = _composed(form, at, regular)
    ahead = symmetric(F @ S @ F.T) + Q
    # A pseudo-inverse: singular covariances have directions that nothing is learned of.
    gain = S @ F.T @ jnp.linalg.pinv(ahead, hermitian=True)
    left = symmetric(S - gain @ ahead @ gain.T)
    return gain, F @ mean + b, ahead, left


def _later(series: Series) -> _At:
    """For every row but the last, the transitions into the next."""
    return jax.tree.map(lambda a: a[1:], _rows(series))


@jax.jit
def _smooth(form: VaryingLinear, laws: Bank, series: Series):
    def step(after: tuple[Array, Array], xs: tuple[Bank, _At]):
        law, at = xs
        gain, ahead, S_ahead, _ = _backward_gain(form, law, at, series.regular)
        mean = law.means[0, 0] + gain @ (after[0] - ahead)
        S = law.covariances[0] + symmetric(gain @ (after[1] - S_ahead) @ gain.T)
        return (mean, S), (mean, S)

    last = laws.means[-1, 0, 0], laws.covariances[-1, 0]
    early = jax.tree.map(lambda a: a[:-1], laws)
    _, (means, covariances) = jax.lax.scan(step, last, (early, _later(series)), reverse=True)
    means = jnp.concatenate([means, last[0][None]])
    covariances = jnp.concatenate([covariances, last[1][None]])
    bank = Bank(laws.log_sizes, means[:, None, None, :], covariances[:, None])
    return bank, (means, covariances)


@partial(jax.jit, static_argnums=4)
def _paths(form: VaryingLinear, laws: Bank, series: Series, key: PRNGKeyArray, num: int):
    def draw(one: PRNGKeyArray, mean: Array, S: Array) -> Array:
        return mean + psd_root(S) @ jax.random.normal(one, mean.shape, dtype=mean.dtype)

    def path(own: PRNGKeyArray) -> Array:
        keys = jax.random.split(own, series.num)
        last = draw(keys[-1], laws.means[-1, 0, 0], laws.covariances[-1, 0])

        def step(after: Array, xs: tuple[Bank, _At, PRNGKeyArray]):
            law, at, one = xs
            gain, ahead, _, left = _backward_gain(form, law, at, series.regular)
            x = draw(one, law.means[0, 0] + gain @ (after - ahead), left)
            return x, x

        early = jax.tree.map(lambda a: a[:-1], laws)
        xs = early, _later(series), keys[:-1]
        _, states = jax.lax.scan(step, last, xs, reverse=True)
        return jnp.concatenate([states, last[None]])

    return jax.vmap(path)(jax.random.split(key, num))
