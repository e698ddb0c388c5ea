"""What models that follow a mixture of fixed size have in common, whatever they do at a step."""

from abc import abstractmethod
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray

from ... import _results
from ..._checks import Numbers, is_concrete
from ..._statespace.model import Inputs
from .bank import Bank, Layout
from .mixture import Mixture
from .model import AbstractBlocksModel
from .nonlinear_paths import Backward, smoothed_laws
from .online import BlocksState, init_blocks
from .posterior import BlocksPosterior, BlocksSmoother
from .run import raise_failure
from .series import BlockSeries, as_block_series

# Paths of the smoother: 3 % of a standard deviation in its means.
_PATHS, _SEED = 1024, 20_240_101


def as_bank(mixture: Mixture) -> Bank:
    """Blocks of one component each."""
    return Bank(mixture.log_weights[..., None], mixture.means[..., None, :], mixture.covariances)


def as_mixture(bank: Bank) -> Mixture:
    """The other way round."""
    return Mixture(bank.log_sizes[..., 0], bank.means[..., 0, :], bank.covariances)


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


class AbstractMixtureModel(AbstractBlocksModel):
    """Models whose filter carries positive sums of Gaussians, at most `prior.size` of them."""

    prior: eqx.AbstractVar[Mixture]

    @property
    @abstractmethod
    def num_observed(self) -> int | None:
        """Coordinates of an observation, if the model knows."""

    @abstractmethod
    def _trace(self, series: BlockSeries, keep: bool) -> Trace:
        """The filter of a series that has been checked."""

    @abstractmethod
    def _backwards(self, post: BlocksPosterior, key: PRNGKeyArray, num: int) -> Backward:
        """Paths drawn from the last state to the first."""

    @property
    def layout(self) -> Layout:
        """Of the banks: positive weights, one component in each block."""
        return Layout()

    def start(self) -> Bank:
        """The law before anything has been seen."""
        return as_bank(self.prior)

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
    ) -> BlocksSmoother:
        """`run_smoother`, by paths drawn backwards; seeded, so that it gives the same again."""
        post = self.run(ys, first=first, inputs=inputs, times=times, throw=throw)
        drawn = self._backwards(post, jax.random.key(_SEED), _PATHS)
        bank, mean, covariance = smoothed_laws(drawn, self.prior.size)
        return BlocksSmoother(
            filtered=post,
            laws=bank,
            layout=self.layout,
            mean=mean,
            covariance=covariance,
            method="backward sampling",
        )

    def sample_paths(
        self, post: BlocksPosterior, key: PRNGKeyArray, num: int
    ) -> Float[Array, "k t d"]:
        """Paths from the joint law of all states."""
        return jnp.moveaxis(self._backwards(post, key, num).state, 0, 1)

    def init(self) -> BlocksState:
        """`init`: the state of an online filter."""
        return init_blocks(self)


def with_observation(state: BlocksState, bank: Bank, log_mass: Array, code: Array) -> BlocksState:
    """An online filter after an observation; its first bad code stays."""
    code = jnp.where(state.code == _results.OK, code, state.code)
    return BlocksState(bank, state.layout, state.log_likelihood + log_mass, state.step, code)
