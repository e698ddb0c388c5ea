"""Models whose filter carries Gaussians on R^d: what they all answer."""

from abc import abstractmethod
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from ..._checks import looked_at
from ..._density.blocks import GaussianBlocks
from ..._density.generalized import PairwiseGaussianPSD
from ..._statespace.model import Inputs
from ..laws import AbstractLaws
from ..lengths import cut_rows
from ..model import AbstractModel
from ..series import Series
from ..trace import Law, Trace, held_to
from .bank import Bank, Layout, bank_moments
from .laws import BankLaws, law_of
from .observed import probability_transforms
from .roots import rooted


class Record(NamedTuple):
    """What a step leaves behind beside the law itself."""

    log_mass: Float[Array, ""]
    error: Float[Array, ""]
    seen: Bool[Array, ""]
    code: Int[Array, ""]


class BankRun(NamedTuple):
    """What a whole series leaves behind: all but `last` stacked over its steps."""

    last: Bank
    laws: Bank | None
    record: Record
    mean: Float[Array, "t d"]
    covariance: Float[Array, "t d d"]

    def cut(self, series: Series) -> "BankRun":
        """Without the room that a series was given."""
        if self.mean.shape[0] == series.num:
            return self
        return cut_rows(self._replace(last=None), series.num)._replace(last=self.last)


def as_trace(out: BankRun, tol: float = jnp.inf) -> Trace:
    """Nothing leaves R^d; errors are those of fits and of compression, as far as remembered.

    Steps whose error exceeds `tol` have a code.
    """
    xp, code, error = looked_at(out.record.code, out.record.error)
    nothing = xp.zeros(out.mean.shape[0])
    return Trace(
        log_likelihoods=out.record.log_mass,
        mean=out.mean,
        covariance=out.covariance,
        codes=held_to(code, error, tol),
        seen=out.record.seen,
        log_kept=nothing,
        log_normalizers=nothing,
        errors=error,
        last=out.last,
        laws=out.laws,
    )


class AbstractBankModel(AbstractModel):
    """Models whose laws are banks; they differ in what they do at a step."""

    @property
    @abstractmethod
    def layout(self) -> Layout:
        """What the components of the banks stand for."""

    @abstractmethod
    def first_bank(self) -> Bank:
        """The law before anything has been seen."""

    @abstractmethod
    def move_banks(self, before: Bank, series: Series) -> Bank:
        """The laws before each observation, from those after the one before it, stacked."""

    @abstractmethod
    def seen_banks(self, bank: Bank, steps: Int[Array, " t"], rows: Inputs) -> Bank:
        """The laws of y for stacked laws of x."""

    @abstractmethod
    def bank_of(self, law: Law) -> Bank:
        """A law between two calls as a bank."""

    def moments(self, law: Law) -> tuple[Float[Array, " d"], Float[Array, "d d"]]:
        """Mean and covariance."""
        return bank_moments(self.bank_of(law), self.layout)

    def density(self, law: Law) -> GaussianBlocks | PairwiseGaussianPSD:
        """The law as a sum of Gaussians."""
        return law_of(self.bank_of(law), self.layout)

    def filtered(self, series: Series, trace: Trace) -> BankLaws:
        """p(x_t | y_1 ... y_t)."""
        del series
        return BankLaws.with_moments(trace.laws, self.layout, trace.mean, trace.covariance)

    def predicted(self, series: Series, trace: Trace) -> BankLaws:
        """p(x_t | y before t)."""
        before = jax.tree.map(
            lambda first, rest: jnp.concatenate([first[None], rest[:-1]]),
            self.first_bank() if trace.laws.rows is None else rooted(self.first_bank()),
            trace.laws,
        )
        return BankLaws.of(self.move_banks(before, series), self.layout)

    def observed(self, laws: AbstractLaws, steps: Int[Array, " t"], rows: Inputs) -> BankLaws:
        """The laws of y."""
        assert isinstance(laws, BankLaws)
        return BankLaws.of(self.seen_banks(laws.bank, steps, rows), self.layout)

    def transforms(self, series: Series, trace: Trace) -> Float[Array, "t *p"]:
        """(T,), or (T, p) for several coordinates, each given those before it in y_t."""
        laws = self.observed(self.predicted(series, trace), series.steps, series.rows)
        ys: Array = jnp.asarray(series.ys)
        values = probability_transforms(laws.bank, self.layout, ys)
        return values[:, 0] if values.shape[1] == 1 else values
