"""Linear-Gaussian dynamics with any observation density, followed by a mixture of fixed size."""

import time
from functools import partial
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from ... import _results
from ..._checks import Numbers, as_count, is_concrete
from ..._statespace.model import Inputs, StateSpaceModel, call
from .bank import Bank
from .engine import Sizes, observe_mixture
from .exact import prior_blocks
from .linear import Dynamics, predict_all
from .measured import measured_coordinates, measured_directions
from .mixture import Mixture, moments, moved, padded
from .mixture_model import AbstractMixtureModel, as_bank, as_mixture, with_observation
from .model import Record, Trace
from .nonlinear_paths import Backward
from .online import BlocksState, predict_blocks
from .paths import draw_linear
from .posterior import BlocksForecast, BlocksPosterior
from .report import BlocksReport
from .run import forecast_blocks
from .series import BlockSeries

MAX_DIM = 6
_LEAST, _MOST = 16, 512
# Of the posterior, misplaced by one step: beyond this the step counts as unresolved.
_UNRESOLVED = 0.5


class Setup(NamedTuple):
    """Everything static: what is compiled for."""

    log_observation: Any
    measured: tuple[tuple[float, ...], ...]
    sizes: Sizes

    def likelihood(self, y: Array, t: Any, row: Any) -> Any:
        """x -> log G(x, y)."""
        return lambda x: _scalar(call(self.log_observation, x, y, t=t, inputs=row))


def _scalar(value: Any) -> Array:
    return jnp.asarray(value, dtype=jnp.float64).reshape(())


class Found:
    """The measured directions, once data have shown them; an object, because models are frozen."""

    def __init__(self, measured: np.ndarray | None):
        """Known beforehand, or None."""
        self.measured = measured


class CompressedModel(AbstractMixtureModel):
    """x' = F u + b + N(0, Q),  y | x ~ G(x, y) with G a function of at most three directions.

    What `learn` returns for `linear_gaussian(..., log_observation=...)`, and every inference
    function takes. Transitions are exact; at an observation every Gaussian is tilted by G, split
    where the result would not be Gaussian, and the mixture merged back to its size.
    """

    ssm: StateSpaceModel
    dynamics: Dynamics
    prior: Mixture
    sizes: Sizes = eqx.field(static=True)
    report: BlocksReport = eqx.field(static=True)
    found: Found = eqx.field(static=True)

    @property
    def dim(self) -> int:
        """Number of coordinates of the state."""
        return self.dynamics.F.shape[0]

    @property
    def log_observation(self) -> Any:
        """x, y -> log G(x, y)."""
        return self.ssm.log_observation

    @property
    def num_observed(self) -> None:
        """Whatever `log_observation` takes."""

    def _setup(self, ys: Any, steps: Any, rows: Any) -> Setup:
        """What to compile for; concrete data show the measured directions, if nobody named them."""
        if self.found.measured is None:
            if self.dim <= 1:
                self.found.measured = np.eye(1)
            elif not all(is_concrete(a) for a in jax.tree.leaves((self, ys, steps, rows))):
                raise ValueError(
                    "under jit, vmap or grad the measured coordinates cannot be found from data: "
                    "filter a concrete series first, or name them, learn(..., measured=(0, 1))"
                )
            else:
                self.found.measured = measured_directions(
                    lambda x, y, t, row: Setup(self.log_observation, (), self.sizes).likelihood(
                        y, t, row
                    )(x),
                    self.prior,
                    self.dynamics,
                    np.asarray(ys),
                    np.asarray(steps),
                    rows,
                )
        static = tuple(tuple(float(v) for v in row) for row in self.found.measured)
        return Setup(self.log_observation, static, self.sizes)

    def _trace(self, series: BlockSeries, keep: bool) -> Trace:
        _refuse_gaps(series.ys)
        setup = self._setup(series.ys, series.steps, series.rows)
        return _run(self.prior, self.dynamics, series, setup, keep)

    def _backwards(self, post: BlocksPosterior, key: PRNGKeyArray, num: int) -> Backward:
        laws, layout = post._banks()
        return draw_linear(laws, layout, self.dynamics, post.series.hops, key, num)

    def ahead(self, before: Bank, series: BlockSeries) -> Bank:
        """The laws before each observation, from those after the one before it, stacked."""
        return predict_all(before, self.dynamics, series.hops, series.single_hop)

    def seen_laws(self, bank: Bank, at: Any) -> Bank:
        """The laws of y, which have no closed form here."""
        raise ValueError(
            "the law of y has a closed form for a linear sensor only: this model has a "
            "log_observation. Draw states with sample() and simulate y from them"
        )

    def forecast(self, post: Any, steps: int, *, inputs: Inputs = None) -> BlocksForecast:
        """`forecast`."""
        del inputs  # of the observation only
        return forecast_blocks(self, post, steps)

    def predict(self, state: BlocksState, *, inputs: Inputs = None) -> BlocksState:
        """`predict`: one transition."""
        del inputs  # of the observation only
        return predict_blocks(self, state)

    def update(self, state: BlocksState, y: Numbers, *, inputs: Inputs = None) -> BlocksState:
        """`update`: one observation."""
        seen = jnp.atleast_1d(jnp.asarray(y, dtype=jnp.float64))
        if seen.ndim != 1:
            raise ValueError(f"y must have shape (p,), got {seen.shape}")
        _refuse_gaps(seen[None])
        rows = jax.tree.map(lambda a: jnp.asarray(a)[None], inputs)
        if self.found.measured is None and bool(jnp.all(jnp.isnan(seen))):
            return state
        setup = self._setup(seen[None], jnp.asarray(state.step)[None], rows)
        bank, log_mass, code = _update(state.bank, seen, state.step, inputs, setup)
        return with_observation(state, bank, log_mass, code)


def _refuse_gaps(ys: Array) -> None:
    if not is_concrete(ys) or ys.shape[1] == 1:
        return
    gaps = np.isnan(np.asarray(ys))
    partly = np.flatnonzero(gaps.any(axis=1) & ~gaps.all(axis=1))
    if partly.size:
        raise ValueError(
            f"ys[{int(partly[0])}] misses some of its coordinates, which a log_observation cannot "
            "be integrated over here. Set the whole row to NaN, or give each sensor a row of its "
            "own with times= and NaN"
        )


def correct_mixture(
    mixture: Mixture, y: Float[Array, " p"], t: Any, row: Any, setup: Setup
) -> tuple[Mixture, Record]:
    """Bayes' rule; a missing or an impossible observation leaves the mixture as it is."""
    infinite = jnp.any(jnp.isinf(y))
    missing = jnp.any(jnp.isnan(y)) | infinite
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
        return after, Record(log_mass, out.fit_error, loss, good, code)

    def skip(before: Mixture) -> tuple[Mixture, Record]:
        code = jnp.where(infinite, _results.BAD_OBSERVATION, _results.OK)
        log_mass = jnp.where(infinite, -jnp.inf, 0.0)
        return before, Record(log_mass, nothing, nothing, jnp.asarray(False), code)

    return jax.lax.cond(missing, skip, use, mixture)


def _move_hops(mixture: Mixture, dynamics: Dynamics, hops: Array, single_hop: bool) -> Mixture:
    if not single_hop:
        return jax.lax.fori_loop(0, hops, lambda _, m: moved(m, *dynamics), mixture)
    ahead = moved(mixture, *dynamics)
    return jax.tree.map(lambda new, old: jnp.where(hops > 0, new, old), ahead, mixture)


@partial(jax.jit, static_argnums=(3, 4))
def _run(
    prior: Mixture, dynamics: Dynamics, series: BlockSeries, setup: Setup, keep: bool
) -> Trace:
    def step(mixture: Mixture, at: Any):
        y, t, hop, row = at
        mixture = _move_hops(mixture, dynamics, hop, series.single_hop)
        mixture, record = correct_mixture(mixture, y, t, row, setup)
        return mixture, (as_bank(mixture) if keep else None, record, moments(mixture))

    rows = (series.ys, series.steps, series.hops, series.rows)
    last, (laws, record, (mean, covariance)) = jax.lax.scan(step, prior, rows)
    return Trace(as_bank(last), laws, record, mean, covariance)


@partial(jax.jit, static_argnums=4)
def _update(bank: Bank, y: Array, step: Array, row: Any, setup: Setup):
    mixture, record = correct_mixture(as_mixture(bank), y, step, row, setup)
    return as_bank(mixture), record.log_mass, record.code


def sizes_for(order: int, tol: float) -> Sizes:
    """Everything that follows from the number of components kept and the tolerance.

    What a component may lose counts for more than how many are kept: seen from two beacons, a
    target in 4-d is followed by 16 components with a target of 0.02 to 0.005 standard deviations,
    by 64 with one of 0.05 to 0.011.
    """
    # Splits themselves are good to 0.004, and smaller targets than this run out of places.
    target = float(np.clip(2.0 * tol, 0.02, 0.1))
    return Sizes(order=order, capacity=max(6 * order, 96), rounds=4, target=target)


def learn_compressed(
    ssm: StateSpaceModel,
    tol: float,
    reason: str,
    *,
    order: int | None = None,
    measured: Any = None,
) -> CompressedModel:
    """The engine for linear-Gaussian dynamics and a `log_observation`."""
    started = time.perf_counter()
    structure = ssm.structure
    assert structure is not None
    if ssm.dim > MAX_DIM:
        raise ValueError(
            f"the state must have at most {MAX_DIM} coordinates for a log_observation, got "
            f"{ssm.dim}; a particle filter may serve better"
        )
    blocks = prior_blocks(structure)  # pyright: ignore[reportArgumentType]
    if blocks is None or not blocks.is_mixture:
        raise ValueError(
            "prior must be Gaussian or a mixture of Gaussians (GaussianBlocks.mixture) for a "
            "log_observation with these dynamics"
        )
    if order is None:
        order = int(np.clip(2 ** round(np.log2(32 * (0.01 / tol) ** (1 / 3))), _LEAST, _MOST))
        chosen = f"from tol = {tol:g}; see post.error_estimates, and learn(..., order=)"
    else:
        order = as_count("order", order, least=4)
        chosen = "as given"
    sizes = sizes_for(order, tol)
    prior = Mixture(blocks.log_weights, blocks.means[:, 0, :], blocks.covariance)
    weights = prior.log_weights - jax.scipy.special.logsumexp(prior.log_weights)
    prior = prior._replace(log_weights=weights)
    if prior.size > order:
        raise ValueError(
            f"order must be at least {prior.size}, the order of the prior, got {order}"
        )
    found = Found(None if measured is None else measured_coordinates("measured", measured, ssm.dim))
    choices = (
        ("order", chosen),
        ("splits", f"up to {sizes.capacity} components at an observation, {sizes.rounds} rounds"),
        ("compression", "merge, moments preserved"),
    )
    report = BlocksReport("compressed", reason, order, choices, time.perf_counter() - started)
    dynamics = Dynamics(structure.F, structure.b, structure.Q)  # pyright: ignore
    return CompressedModel(
        ssm=ssm,
        dynamics=dynamics,
        prior=padded(prior, order),
        sizes=sizes,
        report=report,
        found=found,
    )
