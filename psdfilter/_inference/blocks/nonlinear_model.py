"""Models with additive Gaussian noise, followed on R^d by Gaussians that are linearised apart."""

import time
from functools import partial
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray

from ..._checks import Numbers, as_count
from ..._statespace.model import AdditiveGaussian, Inputs, StateSpaceModel, call
from ..series import as_rows
from .bank import Bank, Layout
from .linearize import expand, push
from .mixture import Mixture, moments, padded
from .mixture_model import AbstractMixtureModel, as_bank, as_mixture, with_observation
from .model import Record, Trace
from .nonlinear import Effort, move, observe, roots_of
from .nonlinear_paths import Backward, draw_backwards
from .online import BlocksState
from .posterior import BlocksForecast, BlocksPosterior
from .report import BlocksReport
from .series import BlockSeries
from .splitting import unit_split

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


class Functions(NamedTuple):
    """f and h with everything but the state, the time and the inputs; static."""

    f: Any
    h: Any

    def moving(self, t: Any, row: Any) -> Any:
        """u -> f(u) at this time."""
        return lambda u: _vector(call(self.f, u, t=t, inputs=row))

    def seeing(self, t: Any, row: Any) -> Any:
        """x -> h(x) at this time."""
        return lambda x: _vector(call(self.h, x, t=t, inputs=row))


def _vector(value: Any) -> Array:
    return jnp.atleast_1d(jnp.asarray(value, dtype=jnp.float64))


class Noises(NamedTuple):
    """Covariances of the transition and of the sensor."""

    Q: Float[Array, "d d"]
    R: Float[Array, "p p"]


class Times(NamedTuple):
    """Steps and the inputs that belong to them."""

    steps: Int[Array, " t"]
    rows: Any


class LinearizedModel(AbstractMixtureModel):
    """x' = f(u) + N(0, Q),  y = h(x) + N(0, R) on R^d, each Gaussian with its own linearisation.

    What `learn` returns for noise too small for a grid, and every inference function takes.
    """

    ssm: StateSpaceModel
    prior: Mixture
    effort: Effort = eqx.field(static=True)
    report: BlocksReport = eqx.field(static=True)

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
        return self.structure.R.shape[0]

    @property
    def functions(self) -> Functions:
        """f and h."""
        return Functions(self.structure.f, self.structure.h)

    @property
    def noises(self) -> Noises:
        """Q and R."""
        return Noises(self.structure.Q, self.structure.R)

    def _trace(self, series: BlockSeries, keep: bool) -> Trace:
        return _run(
            self.prior, self.noises, series.ys, series.steps, series.hops, series.rows,
            self.functions, self.effort, series.single_hop, keep,
        )  # fmt: skip

    def _backwards(self, post: BlocksPosterior, key: PRNGKeyArray, num: int) -> Backward:
        laws, _ = post._banks()
        series = post.series
        return draw_backwards(
            as_mixture(laws), self.structure.Q, series.steps, series.hops, series.rows, key,
            self.functions, num,
        )  # fmt: skip

    def forecast(self, post: Any, steps: int, *, inputs: Inputs = None) -> BlocksForecast:
        """`forecast`."""
        num = as_count("steps", steps)
        if not isinstance(post, BlocksPosterior):
            raise ValueError(f"post must come from run_filter, got {type(post).__name__}")
        times = post.series.steps[-1] + 1 + jnp.arange(num)
        rows = as_rows(inputs, num)
        last = as_mixture(post.last)
        laws, (mean, covariance) = _forecast(
            last, self.noises, times, rows, self.functions, self.effort
        )
        return BlocksForecast(
            model=self,
            laws=laws,
            layout=Layout(),
            mean=mean,
            covariance=covariance,
            times=Times(times, rows),
        )

    def predict(self, state: BlocksState, *, inputs: Inputs = None) -> BlocksState:
        """`predict`: one transition."""
        bank, step = _predict(
            state.bank, self.noises, state.step, inputs, self.functions, self.effort
        )
        return BlocksState(bank, state.layout, state.log_likelihood, step, state.code)

    def update(self, state: BlocksState, y: Numbers, *, inputs: Inputs = None) -> BlocksState:
        """`update`: one observation."""
        seen = jnp.atleast_1d(jnp.asarray(y, dtype=jnp.float64))
        if seen.shape != self.structure.R.shape[:1]:
            raise ValueError(f"y must have shape {self.structure.R.shape[:1]}, got {seen.shape}")
        bank, log_mass, code = _update(
            state.bank, self.noises, seen, state.step, inputs, self.functions, self.effort
        )
        return with_observation(state, bank, log_mass, code)

    def ahead(self, before: Bank, series: BlockSeries) -> Bank:
        """The laws before each observation, from those after the one before it, stacked."""
        return _ahead(
            before, self.noises, series.steps, series.hops, series.rows,
            self.functions, self.effort, series.single_hop,
        )  # fmt: skip

    def seen_laws(self, bank: Bank, at: Any) -> Bank:
        """The laws of y for stacked laws of x, each Gaussian through its linearisation of h."""
        return _seen_laws(bank, self.noises, at.steps, at.rows, self.functions)


def _move_hops(
    mixture: Mixture, noises: Noises, t: Array, hops: Array, row: Any,
    functions: Functions, effort: Effort, single_hop: bool,
) -> tuple[Mixture, Array, Array]:  # fmt: skip
    """The transitions into step t, and the sums of their errors and losses."""

    def once(k: Any, at: tuple[Mixture, Array, Array]) -> tuple[Mixture, Array, Array]:
        step = t - hops + 1 + k
        moved = move(at[0], functions.moving(step, row), noises.Q, effort)
        return moved.mixture, at[1] + moved.error, at[2] + moved.loss

    start = mixture, jnp.zeros(()), jnp.zeros(())
    if not single_hop:
        return jax.lax.fori_loop(0, hops, once, start)
    return jax.lax.cond(hops > 0, lambda: once(0, start), lambda: start)


@partial(jax.jit, static_argnums=(6, 7, 8, 9))
def _run(
    prior: Mixture, noises: Noises, ys: Array, steps: Array, hops: Array, rows: Any,
    functions: Functions, effort: Effort, single_hop: bool, keep: bool,
) -> Trace:  # fmt: skip
    def step(mixture: Mixture, at: Any):
        y, t, hop, row = at
        mixture, error, loss = _move_hops(
            mixture, noises, t, hop, row, functions, effort, single_hop
        )
        out = observe(mixture, functions.seeing(t, row), noises.R, y, effort)
        record = Record(out.log_mass, error + out.error, loss + out.loss, out.seen, out.code)
        law = as_bank(out.mixture) if keep else None
        return out.mixture, (law, record, moments(out.mixture))

    last, (laws, record, (mean, covariance)) = jax.lax.scan(step, prior, (ys, steps, hops, rows))
    return Trace(as_bank(last), laws, record, mean, covariance)


@partial(jax.jit, static_argnums=(4, 5))
def _forecast(
    last: Mixture, noises: Noises, times: Array, rows: Any, functions: Functions, effort: Effort
):
    def step(mixture: Mixture, at: Any):
        t, row = at
        mixture = move(mixture, functions.moving(t, row), noises.Q, effort).mixture
        return mixture, (as_bank(mixture), moments(mixture))

    return jax.lax.scan(step, last, (times, rows))[1]


@partial(jax.jit, static_argnums=(4, 5))
def _predict(
    bank: Bank, noises: Noises, step: Array, row: Any, functions: Functions, effort: Effort
):
    moved = move(as_mixture(bank), functions.moving(step + 1, row), noises.Q, effort)
    return as_bank(moved.mixture), step + 1


@partial(jax.jit, static_argnums=(5, 6))
def _update(
    bank: Bank, noises: Noises, y: Array, step: Array, row: Any,
    functions: Functions, effort: Effort,
):  # fmt: skip
    out = observe(as_mixture(bank), functions.seeing(step, row), noises.R, y, effort)
    return as_bank(out.mixture), out.log_mass, out.code


@partial(jax.jit, static_argnums=(5, 6, 7))
def _ahead(
    before: Bank, noises: Noises, steps: Array, hops: Array, rows: Any,
    functions: Functions, effort: Effort, single_hop: bool,
) -> Bank:  # fmt: skip
    def one(at: Any) -> Bank:
        bank, t, hop, row = at
        mixture = as_mixture(bank)
        return as_bank(_move_hops(mixture, noises, t, hop, row, functions, effort, single_hop)[0])

    return jax.lax.map(one, (before, steps, hops, rows))


@partial(jax.jit, static_argnums=4)
def _seen_laws(bank: Bank, noises: Noises, steps: Array, rows: Any, functions: Functions) -> Bank:
    def one(at: Any) -> Bank:
        law, t, row = at
        mixture = as_mixture(law)
        h = functions.seeing(t, row)
        roots = roots_of(mixture)
        out = jax.vmap(lambda m, L: push(expand(h, m, L), noises.R))(mixture.means, roots)
        return as_bank(Mixture(mixture.log_weights, out.mean, out.covariance))

    return jax.lax.map(one, (bank, steps, rows))


def learn_linearized(
    ssm: StateSpaceModel, tol: float, reason: str, order: int | None = None
) -> LinearizedModel:
    """The engine for additive Gaussian noise of any size, on R^d."""
    started = time.perf_counter()
    structure = ssm.structure
    assert isinstance(structure, AdditiveGaussian)
    if ssm.dim > MAX_DIM:
        raise ValueError(
            f"the state must have at most {MAX_DIM} coordinates, got {ssm.dim}: points and splits "
            "grow with the square of that number. A particle filter may serve better"
        )
    places, effort = effort_for(ssm.dim, tol, order)
    start = Mixture(jnp.zeros(1), structure.m0[None], structure.P0[None])
    choices = (
        ("splits", f"in three, each {effort.split.deviation:.2f} as wide"),
        ("tolerance", f"{tol:g} in total variation, for each step; see post.error_estimates"),
    )
    report = BlocksReport("linearized", reason, places, choices, time.perf_counter() - started)
    return LinearizedModel(ssm=ssm, prior=padded(start, places), effort=effort, report=report)
