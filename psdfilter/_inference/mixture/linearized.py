"""Models with additive Gaussian noise, followed on R^d by Gaussians that are linearised apart."""

from functools import partial
from typing import ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int, PRNGKeyArray

from ..._checks import as_count
from ..._statespace.model import AdditiveGaussian, Inputs, StateSpaceModel
from ..ability import Ability
from ..gaussian.bank import Bank, Layout
from ..gaussian.forgetting import increased, no_error, transitioned
from ..gaussian.frozen import FrozenGaussian
from ..gaussian.laws import BankLaws
from ..gaussian.mixture import Mixture, moments, padded
from ..gaussian.model import BankRun, Record, as_trace
from ..gaussian.paths import Drawn
from ..lengths import with_room
from ..model import AbstractFrozen
from ..report import Report
from ..series import Series
from ..trace import Ahead, Moved, Observation, Seen, Trace
from .functions import Functions, Noises
from .linearize import expand, push
from .model import AbstractMixtureModel, Carrying, Row, as_bank, as_mixture, run_rows
from .paths import draw_backwards
from .refine import Effort, move, observe, roots_of
from .splitting import unit_split

# Points of an expansion grow with the square of this number, and so do the products with them.
MAX_DIM = 6
# Places for a tolerance of 1e-3, by the number of coordinates; more for less, slowly.
_PLACES = {1: 24, 2: 32, 3: 48, 4: 64, 5: 64, 6: 64}
_LEAST, _MOST = 8, 256
_PATIENCE = 100.0
_PRUNE = 1e-4


def effort_for(dim: int, tol: float, order: int | None = None) -> tuple[int, Effort]:
    """The number of places, and how they are used, for a tolerance of each step."""
    wanted = _PLACES[dim] * (1e-3 / tol) ** (1 / 3)
    places = int(np.clip(wanted, _LEAST, _MOST)) if order is None else as_count("order", order)
    allowed = float(np.clip(10 * tol, 1e-3, 2e-2))
    return places, Effort(
        tol=tol,
        batch=0 if places < 3 else max(1, places // 8),
        rounds=6,
        patience=_PATIENCE,
        prune=min(_PRUNE, 1e-3 * tol),
        split=unit_split(allowed),
    )


class LinearizedModel(AbstractMixtureModel):
    """x' = f(u) + N(0, Q),  y = h(x) + N(0, R) on R^d, each Gaussian with its own linearisation."""

    engine: ClassVar[str] = "mixture"
    ssm: StateSpaceModel
    start_mixture: Mixture
    effort: Effort = eqx.field(static=True)
    report: Report = eqx.field(static=True)

    @property
    def structure(self) -> AdditiveGaussian:
        """f, h, Q, R, m0 and P0."""
        structure = self.ssm.structure
        assert isinstance(structure, AdditiveGaussian)
        return structure

    @property
    def dim(self) -> int:
        """Number of coordinates of the state."""
        return self.ssm.dim

    @property
    def num_observed(self) -> int:
        """Coordinates of an observation."""
        assert self.structure.R is not None
        return self.structure.R.shape[0]

    @property
    def abilities(self) -> frozenset[Ability]:
        """All but what needs a box or a closed form."""
        return LINEARIZED_ABILITIES

    @property
    def functions(self) -> Functions:
        """f and h."""
        form = self.structure
        assert form.h is not None
        return Functions(form.f, form.h, form.turns, form.noise)

    @property
    def noises(self) -> Noises:
        """Q and R."""
        assert self.structure.R is not None
        return Noises(self.structure.Q, self.structure.R)

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
        """One observation."""
        at = step, row
        seen = _update(law, self.noises, jnp.asarray(y), at, self.functions, self.effort)
        return self.held(seen)

    def run(self, series: Series, keep: bool) -> Trace:
        """The filter of a series."""
        roomy = with_room(series, self.start_mixture, self.noises, self.functions)
        out = _run(self.start_mixture, self.noises, roomy, self.functions, self.effort, keep)
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
        """Each Gaussian through its linearisation of h."""
        return _seen_banks(bank, self.noises, steps, rows, self.functions)

    def frozen(self) -> FrozenGaussian:
        """How it is refined."""
        size, effort = self.start_mixture.size, self.effort
        return FrozenGaussian(Refill(size, effort), self.report)

    def refilled(self, frozen: AbstractFrozen, ssm: StateSpaceModel) -> "LinearizedModel":
        """The same for other numbers."""
        del frozen
        return Refill(self.start_mixture.size, self.effort)(ssm, self.report)


LINEARIZED_ABILITIES = frozenset(
    {
        Ability.INPUTS,
        Ability.PARTLY_MISSING,
        Ability.SMOOTHER,
        Ability.OBSERVED_LAWS,
        Ability.ERRORS,
        Ability.GRADIENTS,
    }
)


class Refill(NamedTuple):
    """ssm, report -> model, with the sizes that were chosen; equal to another of equal sizes."""

    size: int
    effort: Effort

    def __call__(self, ssm: StateSpaceModel, report: Report) -> LinearizedModel:
        """The model of numbers that may be traced."""
        structure = ssm.structure
        assert isinstance(structure, AdditiveGaussian)
        start = Mixture(jnp.zeros(1), structure.m0[None], structure.P0[None])
        prior = padded(start, self.size)
        return LinearizedModel(ssm=ssm, start_mixture=prior, effort=self.effort, report=report)


def linearized_notes(effort: Effort) -> tuple[tuple[str, str], ...]:
    """Lines for the report."""
    return (
        ("splits", f"in three, each {effort.split.deviation:.2f} as wide"),
        ("errors", "in post.error_estimates, less what has been forgotten"),
    )


def _move_hops(
    law: Carrying,
    noises: Noises,
    at: tuple[Array, Array, Inputs],
    functions: Functions,
    effort: Effort,
    regular: bool,
) -> Carrying:
    """The transitions into a step (time, their number, inputs), and the error so far."""
    t, hops, row = at

    def once(k: Array | int, now: Carrying) -> Carrying:
        (mixture, carried), step = now, t - hops + 1 + k
        Q, f = functions.spread(noises.Q, step, row), functions.moving(step, row)
        moved = move(mixture, f, Q, effort)
        slope = expand(f, moments(mixture)[0], carried.root).slope
        carried = transitioned(carried, slope, moments(moved.mixture))
        return moved.mixture, increased(carried, moved.error + moved.loss)

    start = law
    if not regular:
        return jax.lax.fori_loop(0, hops, once, start)
    return jax.lax.cond(hops > 0, lambda: once(0, start), lambda: start)


@partial(jax.jit, static_argnums=(4, 5))
def _run(
    prior: Mixture, noises: Noises, series: Series, functions: Functions, effort: Effort, keep: bool
) -> BankRun:
    def step(law: Carrying, at: Row) -> tuple[Carrying, Record]:
        y, t, hops, row = at
        times = t, hops, row
        mixture, carried = _move_hops(law, noises, times, functions, effort, series.regular)
        out = observe(mixture, functions.seeing(t, row, y), noises.R, y, effort)
        record = Record(out.log_mass, out.error + out.loss, out.seen, out.code)
        return (out.mixture, carried), record

    return run_rows(prior, series, step, keep)


@partial(jax.jit, static_argnums=5)
def _advance(
    last: Mixture, noises: Noises, steps: Array, rows: Inputs, functions: Functions, effort: Effort
):
    def step(mixture: Mixture, at: tuple[Array, Inputs]):
        t, row = at
        Q = functions.spread(noises.Q, t, row)
        mixture = move(mixture, functions.moving(t, row), Q, effort).mixture
        return mixture, (as_bank(mixture), moments(mixture))

    return jax.lax.scan(step, last, (steps, rows))[1]


@partial(jax.jit, static_argnums=5)
def _predict(
    bank: Bank, noises: Noises, step: Array, row: Inputs, functions: Functions, effort: Effort
) -> tuple[Bank, Moved]:
    Q = functions.spread(noises.Q, step, row)
    out = move(as_mixture(bank), functions.moving(step, row), Q, effort)
    moved = Moved(jnp.zeros(()), out.error + out.loss, jnp.zeros((), int))
    return as_bank(out.mixture), moved


@partial(jax.jit, static_argnums=5)
def _update(
    bank: Bank,
    noises: Noises,
    y: Array,
    at: tuple[Array, Inputs],
    functions: Functions,
    effort: Effort,
) -> tuple[Bank, Seen]:
    out = observe(as_mixture(bank), functions.seeing(*at, y), noises.R, y, effort)
    return as_bank(out.mixture), Seen(out.log_mass, out.error + out.loss, out.seen, out.code)


@partial(jax.jit, static_argnums=4)
def _move_banks(
    before: Bank, noises: Noises, series: Series, functions: Functions, effort: Effort
) -> Bank:
    def one(xs: tuple[Bank, Array, Array, Inputs]) -> Bank:
        mixture = as_mixture(xs[0])
        law = mixture, no_error(moments(mixture))
        return as_bank(_move_hops(law, noises, xs[1:], functions, effort, series.regular)[0])

    return jax.lax.map(one, (before, series.steps, series.hops, series.rows))


@jax.jit
def _seen_banks(
    bank: Bank, noises: Noises, steps: Array, rows: Inputs, functions: Functions
) -> Bank:
    def one(at: tuple[Bank, Array, Inputs]) -> Bank:
        law, t, row = at
        mixture = as_mixture(law)
        heaviest = mixture.means[jnp.argmax(mixture.log_weights)]
        h = functions.seeing(t, row, functions.seeing(t, row)(heaviest))
        roots = roots_of(mixture)
        out = jax.vmap(lambda m, L: push(expand(h, m, L), noises.R))(mixture.means, roots)
        return as_bank(Mixture(mixture.log_weights, out.mean, out.covariance))

    return jax.lax.map(one, (bank, steps, rows))
