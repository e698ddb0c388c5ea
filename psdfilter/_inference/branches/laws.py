"""Laws of regime and state at several times, as mixtures of Gaussians for each regime."""

from collections.abc import Callable

import equinox as eqx
import jax
from jax.scipy.special import logsumexp
from jaxtyping import Array, Float, PRNGKeyArray

from ..._checks import Numbers
from ..._density.blocks import GaussianBlocks
from ..gaussian.bank import Layout
from ..gaussian.laws import BankLaws
from ..laws import AbstractLaws
from .run import banks_of
from .step import Branches


class BranchLaws(AbstractLaws):
    """Laws of T times: what `BankLaws` knows of the state, and the regimes beside it."""

    laws: Branches
    states: BankLaws

    @staticmethod
    def of(laws: Branches) -> "BranchLaws":
        """With the moments computed."""
        return BranchLaws(laws, BankLaws.of(banks_of(laws), Layout()))

    def regimes(self) -> Float[Array, "t k"]:
        """Probabilities of the regimes."""
        return _regimes(self.laws)

    def quantiles(self, levels: Float[Array, " k"]) -> Float[Array, "k t d"]:
        """By bisection; infinite at levels 0 and 1."""
        return self.states.quantiles(levels)

    def cdfs(self, x: Float[Array, "t d"]) -> Float[Array, "t d"]:
        """In error functions."""
        return self.states.cdfs(x)

    def expectations(self, fn: Callable[[Array], Numbers]) -> Array:
        """Gauss-Hermite quadrature for every component."""
        return self.states.expectations(fn)

    def draws(self, key: PRNGKeyArray, num: int) -> Float[Array, "n t d"]:
        """A component, then a Gaussian."""
        return self.states.draws(key, num)

    def density(self, t: int) -> GaussianBlocks:
        """A mixture of Gaussians."""
        found = self.states.density(t)
        assert isinstance(found, GaussianBlocks)
        return found

    def regime_density(self, t: int, regime: int) -> GaussianBlocks:
        """A mixture of Gaussians."""
        own = jax.tree.map(lambda a: a[t, regime], self.laws)
        logs = own.log_weights - logsumexp(own.log_weights)
        return GaussianBlocks.of_mixture(logs, own.means, own.covariances)


@eqx.filter_jit
def _regimes(laws: Branches) -> Float[Array, "t k"]:
    return jax.nn.softmax(logsumexp(laws.log_weights, axis=2), axis=1)
