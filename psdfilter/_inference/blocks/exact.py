"""Linear-Gaussian models with a linear sensor: every component is filtered exactly."""

import time
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from ..._checks import Numbers, as_count, is_concrete
from ..._density.block_conversions import as_blocks
from ..._density.blocks import GaussianBlocks
from ..._statespace.model import Inputs, LinearGaussian, StateSpaceModel
from .bank import Bank, Layout, bank_of
from .linear import Dynamics, Sensor, predict_all, run_exact
from .model import AbstractBankModel, Record, Trace
from .observed import linear_sensor_laws
from .online import BlocksState, predict_blocks, update_exact
from .paths import draw_linear
from .posterior import BlocksForecast, BlocksPosterior, BlocksSmoother
from .report import BlocksReport
from .run import forecast_blocks
from .series import BlockSeries
from .smooth import smooth_posterior

# Compiled for shapes alone: models of one size share the programme.
_run_exact = jax.jit(run_exact, static_argnums=(6, 7))


class ExactModel(AbstractBankModel):
    """x' = F u + b + N(0, Q),  y = H x + d + N(0, R), with a prior that is a sum of Gaussians.

    What `learn` returns for such a model, and every inference function takes. Nothing is
    approximated: the order of the prior stays, and for a Gaussian prior this is the Kalman filter.
    Nor does it need the functions of the StateSpaceModel any more.
    """

    dynamics: Dynamics
    sensor: Sensor
    prior: Bank
    prior_layout: Layout
    report: BlocksReport = eqx.field(static=True)

    @property
    def dim(self) -> int:
        """Number of coordinates of the state."""
        return self.dynamics.F.shape[0]

    @property
    def layout(self) -> Layout:
        """That of the prior, which no step changes."""
        return self.prior_layout

    @property
    def num_observed(self) -> int:
        """Coordinates of an observation."""
        return self.sensor.H.shape[0]

    def start(self) -> Bank:
        """The law before anything has been seen."""
        return self.prior

    def ahead(self, before: Bank, series: BlockSeries) -> Bank:
        """The laws before each observation, from those after the one before it, stacked."""
        return predict_all(before, self.dynamics, series.hops, series.single_hop)

    def seen_laws(self, bank: Bank, at: Any) -> Bank:
        """The laws of y for stacked laws of x."""
        del at  # neither steps nor inputs change the sensor
        return linear_sensor_laws(bank, self.sensor)

    def sample_paths(
        self, post: BlocksPosterior, key: PRNGKeyArray, num: int
    ) -> Float[Array, "k t d"]:
        """Paths from the joint law of all states."""
        laws, layout = post._banks()
        drawn = draw_linear(laws, layout, self.dynamics, post.series.hops, key, num)
        return jnp.moveaxis(drawn.state, 0, 1)

    def _trace(self, series: BlockSeries, keep: bool) -> Trace:
        _no_inputs(series.rows)
        out = _run_exact(
            self.prior, self.layout, self.dynamics, self.sensor, series.ys, series.hops,
            series.single_hop, keep,
        )  # fmt: skip
        nothing = jnp.zeros(series.ys.shape[0])
        log_mass, seen, code = out.record
        record = Record(log_mass, nothing, nothing, seen, code)
        return Trace(out.last, out.laws, record, out.mean, out.covariance)

    def _smoothed(self, post: BlocksPosterior, lag: int | None) -> BlocksSmoother:
        return smooth_posterior(post, None if lag is None else as_count("lag", lag))

    def forecast(self, post: Any, steps: int, *, inputs: Inputs = None) -> BlocksForecast:
        """`forecast`."""
        _no_inputs(inputs)
        return forecast_blocks(self, post, steps)

    def predict(self, state: BlocksState, *, inputs: Inputs = None) -> BlocksState:
        """`predict`: one transition."""
        _no_inputs(inputs)
        return predict_blocks(self, state)

    def update(self, state: BlocksState, y: Numbers, *, inputs: Inputs = None) -> BlocksState:
        """`update`: one observation."""
        _no_inputs(inputs)
        return update_exact(self, state, y)


def _no_inputs(inputs: Inputs) -> None:
    if inputs is not None:
        raise ValueError("inputs must be None: the matrices of a linear-Gaussian model are fixed")


def prior_blocks(structure: LinearGaussian) -> GaussianBlocks | None:
    """The prior as a sum of blocks; None if it is only known as a function."""
    if structure.prior is not None:
        return as_blocks("prior", structure.prior)
    if structure.m0 is None or structure.P0 is None or structure.prior_is_function:
        return None
    return GaussianBlocks.of_mixture(jnp.zeros(1), structure.m0[None], structure.P0[None])


def learn_exact(ssm: StateSpaceModel, reason: str) -> ExactModel:
    """The exact engine for a model whose sensor is linear."""
    started = time.perf_counter()
    structure = ssm.structure
    assert isinstance(structure, LinearGaussian)
    blocks = prior_blocks(structure)
    if blocks is None or structure.H is None:
        raise ValueError(
            'engine="blocks" needs a prior that is Gaussian or a PSD model, got a function: learn '
            "one from it with learn_rank_one, and pass its model as prior="
        )
    assert structure.d is not None
    assert structure.R is not None
    prior, layout = bank_of(blocks)
    choices = [("sensor", f"linear, {structure.H.shape[0]} of y on {ssm.dim} of x")]
    if singular := _singular(structure):
        choices.append(("singular", ", ".join(singular) + " (no inverse of these is taken)"))
    report = BlocksReport(
        "exact", reason, blocks.order, tuple(choices), time.perf_counter() - started
    )
    dynamics = Dynamics(structure.F, structure.b, structure.Q)
    sensor = Sensor(structure.H, structure.d, structure.R)
    return ExactModel(
        dynamics=dynamics, sensor=sensor, prior=prior, prior_layout=layout, report=report
    )


def _singular(structure: LinearGaussian) -> list[str]:
    """Names of the covariances that have no inverse, as far as they can be looked at."""
    names = []
    for name in ("Q", "R", "P0"):
        matrix: Any = getattr(structure, name)
        if matrix is None or not is_concrete(matrix):
            continue
        values = np.linalg.eigvalsh(np.asarray(matrix))
        if values[0] <= 1e-14 * max(values[-1], 0.0):
            names.append(name)
    return names
