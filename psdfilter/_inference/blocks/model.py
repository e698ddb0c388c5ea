"""Models whose filter carries Gaussians on R^d: what they all answer, and how they are run."""

from abc import abstractmethod
from typing import Any, NamedTuple

import equinox as eqx
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray

from ..._checks import Numbers, is_concrete
from ..._statespace.model import Inputs
from .bank import Bank, Layout
from .online import BlocksState, init_blocks
from .posterior import BlocksPosterior, BlocksSmoother
from .report import BlocksReport
from .run import raise_failure
from .series import BlockSeries, as_block_series


class AbstractBlocksModel(eqx.Module):
    """Models whose filter carries Gaussians; each brings its own inference."""

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


class Record(NamedTuple):
    """What a step leaves behind beside the law itself."""

    log_mass: Float[Array, ""]
    error: Float[Array, ""]
    loss: Float[Array, ""]
    seen: Array
    code: Int[Array, ""]


class Trace(NamedTuple):
    """What a whole series leaves behind: all but `last` stacked over its steps."""

    last: Bank
    laws: Bank | None
    record: Record
    mean: Float[Array, "t d"]
    covariance: Float[Array, "t d d"]


class AbstractBankModel(AbstractBlocksModel):
    """Models whose laws are banks; they differ in what they do at a step."""

    @property
    @abstractmethod
    def layout(self) -> Layout:
        """What the components of the banks stand for."""

    @property
    @abstractmethod
    def num_observed(self) -> int | None:
        """Coordinates of an observation, if the model knows."""

    @abstractmethod
    def start(self) -> Bank:
        """The law before anything has been seen."""

    @abstractmethod
    def ahead(self, before: Bank, series: BlockSeries) -> Bank:
        """The laws before each observation, from those after the one before it, stacked."""

    @abstractmethod
    def seen_laws(self, bank: Bank, at: Any) -> Bank:
        """The laws of y for stacked laws of x; `at` has the steps and the inputs."""

    @abstractmethod
    def sample_paths(
        self, post: BlocksPosterior, key: PRNGKeyArray, num: int
    ) -> Float[Array, "k t d"]:
        """Paths from the joint law of all states."""

    @abstractmethod
    def _trace(self, series: BlockSeries, keep: bool) -> Trace:
        """The filter of a series that has been checked."""

    @abstractmethod
    def _smoothed(self, post: BlocksPosterior, lag: int | None) -> BlocksSmoother:
        """The smoother of a series that has been filtered."""

    def run(
        self,
        ys: Numbers,
        *,
        first: str = "predict",
        inputs: Inputs = None,
        times: Numbers | None = None,
        keep: str = "densities",
        throw: bool = True,
    ) -> BlocksPosterior:
        """`run_filter`."""
        if keep not in ("densities", "summaries"):
            raise ValueError(f'keep must be "densities" or "summaries", got {keep!r}')
        series = as_block_series(ys, self.num_observed, first, inputs, times)
        out = self._trace(series, keep == "densities")
        if throw and is_concrete(out.record.code):
            raise_failure(np.asarray(out.record.code))
        return BlocksPosterior(
            model=self,
            series=series,
            log_likelihoods=out.record.log_mass,
            mean=out.mean,
            covariance=out.covariance,
            codes=out.record.code,
            seen=out.record.seen,
            fit_errors=out.record.error,
            compression_losses=out.record.loss,
            last=out.last,
            laws=out.laws,
            layout=self.layout,
        )

    def smooth(
        self,
        ys: Numbers,
        *,
        first: str = "predict",
        inputs: Inputs = None,
        times: Numbers | None = None,
        throw: bool = True,
        lag: int | None = None,
    ) -> BlocksSmoother:
        """`run_smoother`."""
        post = self.run(ys, first=first, inputs=inputs, times=times, throw=throw)
        return self._smoothed(post, lag)

    def init(self) -> BlocksState:
        """`init`: the state of an online filter."""
        return init_blocks(self)
