"""What models that follow a mixture of fixed size have in common, whatever they do at a step."""

from abc import abstractmethod

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from ... import _results
from .bank import Bank, Layout
from .mixture import Mixture
from .model import AbstractBankModel
from .nonlinear_paths import Backward, smoothed_laws
from .online import BlocksState
from .posterior import BlocksPosterior, BlocksSmoother

# Paths of the smoother: 3 % of a standard deviation in its means.
_PATHS, _SEED = 1024, 20_240_101


def as_bank(mixture: Mixture) -> Bank:
    """Blocks of one component each."""
    return Bank(mixture.log_weights[..., None], mixture.means[..., None, :], mixture.covariances)


def as_mixture(bank: Bank) -> Mixture:
    """The other way round."""
    return Mixture(bank.log_sizes[..., 0], bank.means[..., 0, :], bank.covariances)


class AbstractMixtureModel(AbstractBankModel):
    """Models whose filter carries positive sums of Gaussians, at most `prior.size` of them."""

    prior: eqx.AbstractVar[Mixture]

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

    def sample_paths(
        self, post: BlocksPosterior, key: PRNGKeyArray, num: int
    ) -> Float[Array, "k t d"]:
        """Paths from the joint law of all states."""
        return jnp.moveaxis(self._backwards(post, key, num).state, 0, 1)

    def _smoothed(self, post: BlocksPosterior, lag: int | None) -> BlocksSmoother:
        """By paths drawn backwards; seeded, so that it gives the same again."""
        if lag is not None:
            raise ValueError(
                f'lag must be None for engine="blocks" unless the model is linear-Gaussian, got '
                f'{lag}: use engine="nodes", or smooth windows of the series'
            )
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


def with_observation(state: BlocksState, bank: Bank, log_mass: Array, code: Array) -> BlocksState:
    """An online filter after an observation; its first bad code stays."""
    code = jnp.where(state.code == _results.OK, code, state.code)
    return BlocksState(bank, state.layout, state.log_likelihood + log_mass, state.step, code)
