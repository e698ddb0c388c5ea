"""Linear-Gaussian dynamics with any observation density, followed by a mixture of fixed size."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray

from ... import _results
from ..._checks import Numbers, is_traced
from ..._statespace.functions import AbstractFunction, Time, call
from ..._statespace.model import Inputs, LinearGaussian, StateSpaceModel
from ..ability import Ability, NotOffered
from ..gaussian.ahead import ahead_linear
from ..gaussian.bank import Bank
from ..gaussian.forgetting import transitioned
from ..gaussian.frozen import FrozenGaussian
from ..gaussian.linear import Dynamics, predict_all, predict_bank
from ..gaussian.mixture import Mixture, moments, moved, padded
from ..gaussian.model import BankRun, Record, as_trace
from ..gaussian.paths import Drawn, draw_linear
from ..gaussian.prior import prior_blocks
from ..lengths import with_room
from ..model import AbstractFrozen
from ..report import Report
from ..series import Series
from ..trace import Ahead, Moved, Observation, Seen, Trace
from .measured import measured_directions
from .model import AbstractMixtureModel, Carrying, Row, as_bank, as_mixture, run_rows
from .observe import Sizes, observe_mixture

# As for linearised mixtures.
MAX_DIM = 6
# By default 32 (0.01 / tol)^(1/3), between these: 16 follow a target in four dimensions as well as
# 64 do (docs/decisions.md), and 512 are for tolerances of 2e-6.
LEAST_ORDER, MOST_ORDER = 16, 512
# Of the posterior, misplaced by one step: beyond this the step counts as unresolved.
_UNRESOLVED = 0.5

Directions = tuple[tuple[float, ...], ...]  # (d, q), static

SENSOR_ABILITIES = frozenset({Ability.INPUTS, Ability.SMOOTHER, Ability.ERRORS, Ability.GRADIENTS})


def abilities_of(ssm: StateSpaceModel) -> frozenset[Ability]:
    """Of mixtures with a density for a sensor; a product of laws leaves out what is missing."""
    partly = {Ability.PARTLY_MISSING} if ssm.marginalizes_missing else set()
    return SENSOR_ABILITIES | partly


def why_a_density_cannot(ability: Ability) -> str | None:
    """What mixtures do not offer for a sensor that is a density, and what to do instead."""
    if ability is Ability.OBSERVED_LAWS:
        return (
            "the law of y has a closed form for a linear sensor only: this model has a "
            "log_observation. Draw states with sample() and simulate y from them"
        )
    if ability is Ability.PARTLY_MISSING:
        return (
            "an observation misses some of its coordinates, which a log_observation cannot be "
            "integrated over here. Set the whole row to NaN, give each sensor a row of its own "
            "with times= and NaN, or write the sensor as distributions, a list (from_distributions)"
        )
    return None


class Setup(eqx.Module):
    """How an observation is worked on."""

    log_observation: AbstractFunction
    measured: Directions = eqx.field(static=True)
    sizes: Sizes = eqx.field(static=True)
    partly: bool = eqx.field(static=True, default=False)  # G leaves out coordinates that are NaN

    def likelihood(self, y: Array, t: Time, row: Inputs) -> Callable[[Array], Array]:
        """x -> log G(x, y)."""
        return lambda x: _scalar(call(self.log_observation, x, y, t=t, inputs=row))


def _scalar(value: Numbers) -> Array:
    return jnp.asarray(value, dtype=jnp.float64).reshape(())


class Sensed(eqx.Module):
    """A law between two calls, and the measured directions, once data have shown them."""

    bank: Bank
    measured: Directions | None = eqx.field(static=True)


class SensorModel(AbstractMixtureModel):
    """x' = F u + b + N(0, Q),  y | x ~ G(x, y) with G a function of at most three directions.

    Transitions are exact; at an observation every Gaussian is tilted by G, split where the result
    would not be Gaussian, and the mixture merged back to its size.

    Attributes:
        measured: the directions; None if each series has to show them.
    """

    engine: ClassVar[str] = "mixture"
    ssm: StateSpaceModel
    dynamics: Dynamics
    start_mixture: Mixture
    sizes: Sizes = eqx.field(static=True)
    report: Report = eqx.field(static=True)
    measured: Directions | None = eqx.field(static=True, default=None)

    @property
    def dim(self) -> int:
        """Number of coordinates of the state."""
        return self.dynamics.F.shape[0]

    @property
    def num_observed(self) -> None:
        """Whatever `log_observation` takes."""

    @property
    def abilities(self) -> frozenset[Ability]:
        """Laws of y have no closed form here."""
        return abilities_of(self.ssm)

    def why_not(self, ability: Ability) -> str | None:
        """A log_observation is only known for the y that were seen."""
        return why_a_density_cannot(ability)

    def sized(self, series: Series) -> "SensorModel":
        """With the directions that these observations show, if nobody has named them."""
        if self.measured is not None:
            return self
        found = self._found(series.ys, series.steps, series.rows)
        return replace(self, measured=found)

    def _found(self, ys: Array | np.ndarray, steps: Array, rows: Inputs) -> Directions:
        if self.dim == 1:
            return ((1.0,),)
        if is_traced((self.dynamics, self.start_mixture, ys, steps, rows)):
            raise ValueError(
                "under jit, vmap or grad the measured coordinates cannot be found from data: name "
                "them, learn(..., engine=psdfilter.engines.Mixture(measured=(0, 1))), or pass "
                "learn(..., ys=...)"
            )
        setup = Setup(self.ssm.log_observation, (), self.sizes)
        found = measured_directions(
            setup.likelihood,
            self.start_mixture,
            self.dynamics,
            np.asarray(ys),
            np.asarray(steps),
            rows,
        )
        return as_directions(found)

    def _setup(self, measured: Directions | None = None) -> Setup:
        chosen = self.measured if measured is None else measured
        assert chosen is not None
        partly = self.ssm.marginalizes_missing
        return Setup(self.ssm.log_observation, chosen, self.sizes, partly)

    def bank_of(self, law: Sensed | Bank) -> Bank:
        """The Gaussians."""
        return law.bank if isinstance(law, Sensed) else law

    def start(self) -> Sensed:
        """The prior."""
        return Sensed(self.first_bank(), self.measured)

    def predict(self, law: Sensed, step: Int[Array, ""], row: Inputs) -> tuple[Sensed, Moved]:
        """One transition, exact."""
        del step, row
        nothing = jnp.zeros(())
        bank = _predict(law.bank, self.dynamics)
        return Sensed(bank, law.measured), Moved(nothing, nothing, jnp.zeros((), int))

    def update(
        self, law: Sensed, y: Observation, step: Int[Array, ""], row: Inputs
    ) -> tuple[Sensed, Seen]:
        """One observation; the first one shows the directions, if nobody has named them."""
        seen, measured = jnp.asarray(y), law.measured
        if measured is None:
            if bool(jnp.all(jnp.isnan(seen))):
                nothing = jnp.zeros(())
                return law, Seen(nothing, nothing, jnp.zeros((), bool), jnp.zeros((), int))
            rows = jax.tree.map(lambda a: jnp.asarray(a)[None], row)
            measured = self._found(seen[None], jnp.asarray(step)[None], rows)
        bank, out = self.held(_update(law.bank, seen, step, row, self._setup(measured)))
        return Sensed(bank, measured), out

    def run(self, series: Series, keep: bool) -> Trace:
        """The filter of a series."""
        setup = self._setup()
        roomy = with_room(series, self.start_mixture, self.dynamics, setup)
        out = _run(self.start_mixture, self.dynamics, roomy, setup, keep)
        return as_trace(out.cut(series), self.tol)

    def backwards(self, series: Series, trace: Trace, key: PRNGKeyArray, num: int) -> Drawn:
        """Paths drawn from the last state to the first."""
        return draw_linear(trace.laws, self.layout, self.dynamics, series.hops, key, num)

    def ahead(self, last: Sensed | Bank, steps: Int[Array, " k"], rows: Inputs) -> Ahead:
        """By the dynamics."""
        del rows
        return ahead_linear(self.bank_of(last), self.layout, self.dynamics, steps.shape[0])

    def move_banks(self, before: Bank, series: Series) -> Bank:
        """By the dynamics."""
        return predict_all(before, self.dynamics, series.hops, series.regular)

    def seen_banks(self, bank: Bank, steps: Int[Array, " t"], rows: Inputs) -> Bank:
        """Not on offer."""
        del bank, steps, rows
        raise NotOffered(self.engine, Ability.OBSERVED_LAWS)

    def frozen(self) -> FrozenGaussian:
        """Its sizes, and the directions."""
        return FrozenGaussian(Refill(self.sizes, self.measured), self.report)

    def refilled(self, frozen: AbstractFrozen, ssm: StateSpaceModel) -> "SensorModel":
        """The same for other numbers."""
        del frozen
        return Refill(self.sizes, self.measured)(ssm, self.report)


class Refill(NamedTuple):
    """ssm, report -> model, with the sizes that were chosen; equal to another of equal sizes."""

    sizes: Sizes
    measured: Directions | None

    def __call__(self, ssm: StateSpaceModel, report: Report) -> SensorModel:
        """The model of numbers that may be traced."""
        structure = ssm.structure
        assert isinstance(structure, LinearGaussian)
        blocks = prior_blocks(structure)
        assert blocks is not None
        prior = Mixture(blocks.log_weights, blocks.means[:, 0, :], blocks.covariance)
        weights = prior.log_weights - jax.scipy.special.logsumexp(prior.log_weights)
        prior = padded(prior._replace(log_weights=weights), self.sizes.order)
        dynamics = Dynamics(structure.F, structure.b, structure.Q)
        return SensorModel(
            ssm=ssm,
            dynamics=dynamics,
            start_mixture=prior,
            sizes=self.sizes,
            report=report,
            measured=self.measured,
        )


def as_directions(matrix: np.ndarray) -> Directions:
    """A matrix as something that can be compared."""
    return tuple(tuple(float(v) for v in row) for row in matrix)


def correct_mixture(
    mixture: Mixture, y: Float[Array, " p"], t: Time, row: Inputs, setup: Setup
) -> tuple[Mixture, Record]:
    """Bayes' rule; a missing or an impossible observation leaves the mixture as it is."""
    infinite = jnp.any(jnp.isinf(y))
    gaps = jnp.isnan(y)
    missing = (jnp.all(gaps) if setup.partly else jnp.any(gaps)) | infinite
    safe = jnp.where(missing, 0.0, y)
    nothing = jnp.zeros(())

    def use(before: Mixture) -> tuple[Mixture, Record]:
        measured = np.asarray(setup.measured)
        out = observe_mixture(before, measured, setup.likelihood(safe, t, row), setup.sizes)
        good = jnp.isfinite(out.log_mass)
        after = jax.tree.map(lambda a, b: jnp.where(good, a, b), out.mixture, before)
        loss = jnp.where(good, out.loss, 0.0)
        unresolved = out.fit_error + loss > _UNRESOLVED
        code = jnp.where(unresolved, _results.UNRESOLVED, _results.OK)
        code = jnp.where(good, code, _results.NO_MASS)
        log_mass = jnp.where(good, out.log_mass, -jnp.inf)
        return after, Record(log_mass, out.fit_error + loss, good, code)

    def skip(before: Mixture) -> tuple[Mixture, Record]:
        code = jnp.where(infinite, _results.BAD_OBSERVATION, _results.OK)
        log_mass = jnp.where(infinite, -jnp.inf, 0.0)
        return before, Record(log_mass, nothing, jnp.asarray(False), code)

    return jax.lax.cond(missing, skip, use, mixture)


def _move_hops(law: Carrying, dynamics: Dynamics, hops: Array, regular: bool) -> Carrying:
    def once(now: Carrying) -> Carrying:
        ahead = moved(now[0], *dynamics)
        slope = dynamics.F @ now[1].root
        return ahead, transitioned(now[1], slope, moments(ahead))

    if not regular:
        return jax.lax.fori_loop(0, hops, lambda _, now: once(now), law)
    return jax.tree.map(lambda new, old: jnp.where(hops > 0, new, old), once(law), law)


_predict = jax.jit(predict_bank)


@partial(jax.jit, static_argnums=4)
def _run(prior: Mixture, dynamics: Dynamics, series: Series, setup: Setup, keep: bool) -> BankRun:
    def step(law: Carrying, at: Row) -> tuple[Carrying, Record]:
        y, t, hops, row = at
        mixture, carried = _move_hops(law, dynamics, hops, series.regular)
        mixture, record = correct_mixture(mixture, y, t, row, setup)
        return (mixture, carried), record

    return run_rows(prior, series, step, keep)


@jax.jit
def _update(bank: Bank, y: Array, step: Array, row: Inputs, setup: Setup) -> tuple[Bank, Seen]:
    mixture, record = correct_mixture(as_mixture(bank), y, step, row, setup)
    seen = Seen(record.log_mass, record.error, record.seen, record.code)
    return as_bank(mixture), seen


def sizes_for(order: int, tol: float) -> Sizes:
    """Everything that follows from the number of components kept and the tolerance.

    What a component may lose counts for more than how many are kept: seen from two beacons, a
    target in 4-d is followed by 16 components with a target of 0.02 to 0.005 standard deviations,
    by 64 with one of 0.05 to 0.011.
    """
    # Splits themselves are good to 0.004, and smaller targets than this run out of places.
    target = float(np.clip(2.0 * tol, 0.02, 0.1))
    return Sizes(order=order, capacity=max(6 * order, 96), rounds=4, target=target)
