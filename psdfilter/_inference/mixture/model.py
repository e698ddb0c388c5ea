"""What models that follow a mixture of fixed size have in common, whatever they do at a step."""

from abc import abstractmethod
from collections.abc import Callable
from typing import ClassVar, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from ..._statespace.model import Inputs
from ..gaussian.bank import Bank, Layout
from ..gaussian.forgetting import Carried, conditioned, increased, no_error
from ..gaussian.laws import BankLaws
from ..gaussian.mixture import Mixture, moments
from ..gaussian.model import AbstractBankModel, BankRun, Record
from ..gaussian.paths import NUM_PATHS, Drawn, smoothed_laws, with_draws
from ..lengths import scan_rows
from ..series import Series
from ..trace import Moved, Seen, Smoothing, Trace, held_to

# Paths of the smoother: 3 % of a standard deviation in its means.
_SEED = 20_240_101

Step = TypeVar("Step", Moved, Seen)


def as_bank(mixture: Mixture) -> Bank:
    """Blocks of one component each."""
    return Bank(mixture.log_weights[..., None], mixture.means[..., None, :], mixture.covariances)


def as_mixture(bank: Bank) -> Mixture:
    """The other way round."""
    return Mixture(bank.log_sizes[..., 0], bank.means[..., 0, :], bank.covariances)


# A mixture and the error that it carries.
Carrying = tuple[Mixture, Carried]
# One row of a series: observation, time, transitions before it, inputs.
Row = tuple[Array, Array, Array, Inputs]


def run_rows(
    prior: Mixture,
    series: Series,
    step: Callable[[Carrying, Row], tuple[Carrying, Record]],
    keep: bool,
) -> BankRun:
    """The filter of a series.

    Args:
        prior: where it starts.
        series: its rows.
        step: transitions and Bayes' rule, with the error carried up to the observation; the error
            of the record is what the observation has added.
        keep: whether all laws are kept.
    """

    def one(law: Carrying, row: Row):
        (mixture, carried), record = step(law, row)
        mean, covariance = moments(mixture)
        unlikely = carried.likelihood_error(mean)
        carried = increased(conditioned(carried, (mean, covariance)), record.error)
        kept = as_bank(mixture) if keep else None
        error = jnp.maximum(carried.size, unlikely)
        return (mixture, carried), (kept, record._replace(error=error), mean, covariance)

    start = prior, no_error(moments(prior))
    rows = jnp.asarray(series.ys), series.steps, series.hops, series.rows
    (last, _), (laws, record, mean, covariance) = scan_rows(one, start, rows, series.count)
    return BankRun(as_bank(last), laws, record, mean, covariance)


class AbstractMixtureModel(AbstractBankModel):
    """Models whose filter carries at most `start_mixture.size` Gaussians, all positive."""

    engine: ClassVar[str] = "mixture"
    start_mixture: eqx.AbstractVar[Mixture]

    @abstractmethod
    def backwards(self, series: Series, trace: Trace, key: PRNGKeyArray, num: int) -> Drawn:
        """Paths drawn from the last state to the first."""

    def held(self, out: tuple[Bank, Step]) -> tuple[Bank, Step]:
        """A single step, with a code if its own error exceeds the tolerance."""
        law, step = out
        return law, step._replace(code=held_to(step.code, step.error, self.tol))

    @property
    def layout(self) -> Layout:
        """Of the banks: positive weights, one component in each block."""
        return Layout()

    def first_bank(self) -> Bank:
        """The prior."""
        return as_bank(self.start_mixture)

    def paths(
        self, series: Series, trace: Trace, key: PRNGKeyArray, num: int
    ) -> Float[Array, "n t d"]:
        """By backward sampling."""
        return jnp.moveaxis(self.backwards(series, trace, key, num).state, 0, 1)

    def smooth(self, series: Series, trace: Trace, lag: int | None, keep: bool) -> Smoothing:
        """By paths drawn backwards; seeded, so that it gives the same again."""
        del lag, keep
        drawn = self.backwards(series, trace, jax.random.key(_SEED), NUM_PATHS)
        bank, mean, covariance = smoothed_laws(drawn, self.start_mixture.size)
        laws = BankLaws.with_moments(bank, self.layout, mean, covariance)
        assert trace.errors is not None
        errors = with_draws(trace.errors)
        return Smoothing(mean, covariance, laws, "backward sampling", errors)
