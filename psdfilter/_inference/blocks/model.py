"""Models of blocks: linear-Gaussian dynamics on R^d, filtered exactly where that is possible."""

import time
from abc import abstractmethod
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np

from ..._checks import Numbers, is_concrete
from ..._density.block_conversions import as_blocks
from ..._density.blocks import GaussianBlocks
from ..._statespace.model import Inputs, LinearGaussian, StateSpaceModel
from .bank import Bank, Layout, bank_of
from .linear import Dynamics, Sensor
from .report import BlocksReport


class AbstractBlocksModel(eqx.Module):
    """Models whose filter carries Gaussians on R^d; each brings its own inference."""

    report: eqx.AbstractVar[BlocksReport]

    @property
    @abstractmethod
    def dim(self) -> int:
        """Number of coordinates of the state."""

    @abstractmethod
    def run(
        self,
        ys: Numbers,
        *,
        first: str,
        inputs: Inputs,
        times: Numbers | None,
        keep: str,
        throw: bool,
    ) -> Any:
        """`run_filter`."""

    @abstractmethod
    def smooth(
        self, ys: Numbers, *, first: str, inputs: Inputs, times: Numbers | None, throw: bool
    ) -> Any:
        """`run_smoother`."""

    @abstractmethod
    def forecast(self, post: Any, steps: int, *, inputs: Inputs) -> Any:
        """`forecast`."""

    @abstractmethod
    def init(self) -> Any:
        """`init`: the state of an online filter."""

    @abstractmethod
    def predict(self, state: Any, *, inputs: Inputs) -> Any:
        """`predict`: one transition."""

    @abstractmethod
    def update(self, state: Any, y: Numbers, *, inputs: Inputs) -> Any:
        """`update`: one observation."""


class ExactModel(AbstractBlocksModel):
    """x' = F u + b + N(0, Q),  y = H x + d + N(0, R), with a prior that is a sum of Gaussians.

    What `learn` returns for such a model, and every inference function takes. Nothing is
    approximated: the order of the prior stays, and for a Gaussian prior this is the Kalman filter.
    Nor does it need the functions of the StateSpaceModel any more.
    """

    dynamics: Dynamics
    sensor: Sensor
    prior: Bank
    layout: Layout
    report: BlocksReport = eqx.field(static=True)

    @property
    def dim(self) -> int:
        """Number of coordinates of the state."""
        return self.dynamics.F.shape[0]

    def start(self) -> Bank:
        """The law before anything has been seen."""
        return self.prior

    def run(
        self,
        ys: Numbers,
        *,
        first: str = "predict",
        inputs: Inputs = None,
        times: Numbers | None = None,
        keep: str = "densities",
        throw: bool = True,
    ) -> Any:
        """`run_filter`."""
        from .run import run_exact_model

        _no_inputs(inputs)
        return run_exact_model(self, ys, first=first, times=times, keep=keep, throw=throw)

    def smooth(
        self,
        ys: Numbers,
        *,
        first: str = "predict",
        inputs: Inputs = None,
        times: Numbers | None = None,
        throw: bool = True,
    ) -> Any:
        """`run_smoother`."""
        from .smooth import smooth_posterior

        return smooth_posterior(self.run(ys, first=first, inputs=inputs, times=times, throw=throw))

    def forecast(self, post: Any, steps: int, *, inputs: Inputs = None) -> Any:
        """`forecast`."""
        from .run import forecast_blocks

        _no_inputs(inputs)
        return forecast_blocks(self, post, steps)

    def init(self) -> Any:
        """`init`: the state of an online filter."""
        from .online import init_blocks

        return init_blocks(self)

    def predict(self, state: Any, *, inputs: Inputs = None) -> Any:
        """`predict`: one transition."""
        from .online import predict_blocks

        _no_inputs(inputs)
        return predict_blocks(self, state)

    def update(self, state: Any, y: Numbers, *, inputs: Inputs = None) -> Any:
        """`update`: one observation."""
        from .online import update_exact

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
    return ExactModel(dynamics=dynamics, sensor=sensor, prior=prior, layout=layout, report=report)


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
