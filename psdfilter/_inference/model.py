"""What `learn` returns, whatever the engine: a value that every function of inference takes."""

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar, NamedTuple

import equinox as eqx
from jaxtyping import Array, Float, Int, PRNGKeyArray, PyTree

from .._checks import counted
from .._density.psd import AbstractDensity
from .._modules import PlainModule
from .._statespace.model import Inputs, StateSpaceModel
from .._statespace.varying import listed_steps
from .ability import Ability, NoDensity, NotOffered
from .laws import NO_REGIMES, AbstractLaws
from .report import Report
from .series import Asked, Series
from .trace import Ahead, Law, Moved, Observation, Seen, Smoothing, Trace


class AbstractModel(PlainModule):
    """A learned model. Frozen: what data decide about it makes another one (`sized`).

    The functions of inference check their arguments and ask `abilities`; the methods here do not.
    `row` is the row of inputs that belongs to a step.
    """

    report: eqx.AbstractVar[Report]  # prints: engine and why, sizes, errors
    engine: ClassVar[str]  # its name
    resizes: ClassVar[bool] = False  # whether the facts of `evidence` decide on its sizes

    @property
    @abstractmethod
    def dim(self) -> int:
        """Number of coordinates of the state."""

    @property
    @abstractmethod
    def num_observed(self) -> int | None:
        """Number of coordinates of an observation, if the model knows."""

    @property
    @abstractmethod
    def abilities(self) -> frozenset[Ability]:
        """What this model offers."""

    def __str__(self) -> str:
        """What it was learned from and how; fields are what `repr` shows."""
        return f"learned model of {counted(self.dim, 'coordinate')}\n{self.report}"

    @property
    def source(self) -> StateSpaceModel | None:
        """The state-space model that it was learned from, where it is kept."""
        return None

    @property
    def num_listed(self) -> int | None:
        """For how many transitions it has matrices; None if there is no list of them."""
        return None if self.source is None else listed_steps(self.source.log_transition)

    @property
    def tol(self) -> float:
        """The tolerance that was asked for."""
        return self.report.tol

    @property
    def asked(self) -> Asked:
        """What the user's functions ask of a row beside inputs, if anything."""
        return Asked()

    def core(self, trace: Trace) -> tuple["AbstractModel", Trace]:
        """The model of an engine, and its trace, inside of a model that translates."""
        return self, trace

    def why_not(self, ability: Ability) -> str | None:
        """The cause, and the remedy, if something is missing for a reason of this model's own."""
        del ability
        return None

    @property
    def prior(self) -> AbstractDensity:
        """The law of x_0 as a density in user units, if the engine has one."""
        raise NoDensity(self.engine, "prior")

    @property
    def transition(self) -> AbstractDensity:
        """Q^(u, x) as a density in user units over (u, x), if the engine has one."""
        raise NoDensity(self.engine, "transition")

    @property
    def observation(self) -> AbstractDensity:
        """G^(x, y) as a density in user units over (x, y), if the engine has one."""
        raise NoDensity(self.engine, "observation")

    def sized(self, series: Series) -> "AbstractModel":
        """The model for these data; itself unless they have something to decide."""
        del series
        return self

    @abstractmethod
    def start(self) -> Law:
        """The law before anything has been seen."""

    @abstractmethod
    def predict(self, law: Law, step: Int[Array, ""], row: Inputs) -> tuple[Law, Moved]:
        """One transition, into `step`."""

    @abstractmethod
    def update(
        self, law: Law, y: Observation, step: Int[Array, ""], row: Inputs
    ) -> tuple[Law, Seen]:
        """Bayes' rule for one observation."""

    @abstractmethod
    def moments(self, law: Law) -> tuple[Float[Array, " d"], Float[Array, "d d"]]:
        """Mean and covariance."""

    @abstractmethod
    def density(self, law: Law) -> AbstractDensity:
        """The law as a density in user units."""

    def regimes(self, law: Law) -> Float[Array, " k"]:
        """Probabilities of the regimes of a law, if there are any."""
        del law
        raise ValueError(NO_REGIMES)

    @abstractmethod
    def run(self, series: Series, keep: bool) -> Trace:
        """The filter of a series; laws only if they are kept."""

    def run_elsewhere(self, sized: "AbstractModel", series: Series, keep: bool) -> Trace:
        """The filter of a series by the model that `sized` gave."""
        return sized.run(series, keep)

    def settle(self, series: Series, keep: bool) -> "Settled":
        """The filter of a series, by the model that the data ask for."""
        sized = self.sized(series)
        if sized is self:
            return Settled(self, series, self.run(series, keep))
        return Settled(sized, series, self.run_elsewhere(sized, series, keep))

    def batched(self) -> "AbstractModel | None":
        """The model that filters many series side by side, under `vmap`; None if none does."""
        return None

    def finer(self) -> "AbstractModel | None":
        """A finer model of batches, for series that `batched` gets wrong; None if there is none."""
        return None

    def watched(self, series: Series, keep: bool) -> Trace:
        """`run` with `errors` in its trace, as cheap as they come; for models of batches."""
        return self.run(series, keep)

    def settled(self, law: Law) -> Law:
        """The law as `tick` carries it on, without what single steps remember."""
        return law

    def tick(
        self, law: Law, y: Observation, step: Int[Array, ""], row: Inputs
    ) -> tuple[Law, Moved, Seen]:
        """One transition and one observation, with errors as `watched` estimates them."""
        law, moved = self.predict(law, step, row)
        law, seen = self.update(law, y, step, row)
        return law, moved, seen

    def cut(self, trace: Trace, num: int) -> Trace:
        """The trace of the first `num` rows, of one that has kept its laws."""
        raise ValueError(f'engine "{self.engine}" has no traces of batches, got {num} rows')

    @abstractmethod
    def filtered(self, series: Series, trace: Trace) -> AbstractLaws:
        """p(x_t | y_1 ... y_t), of a trace that has kept its laws."""

    @abstractmethod
    def predicted(self, series: Series, trace: Trace) -> AbstractLaws:
        """p(x_t | y before t), likewise."""

    @abstractmethod
    def smooth(self, series: Series, trace: Trace, lag: int | None, keep: bool) -> Smoothing:
        """p(x_t | y_1 ... y_T), or with a lag L p(x_t | y_1 ... y_{t+L})."""

    @abstractmethod
    def paths(
        self, series: Series, trace: Trace, key: PRNGKeyArray, num: int
    ) -> Float[Array, "n t d"]:
        """Paths from the joint law of all states given all data."""

    @abstractmethod
    def ahead(self, last: Law, steps: Int[Array, " k"], rows: Inputs) -> Ahead:
        """The laws after transitions into these steps, one after the other."""

    def pair_law(self, series: Series, trace: Trace, laws: AbstractLaws, t: int) -> Array:
        """p(x_t, x_{t+1} | all y) of smoothed laws, if it is on offer."""
        raise NotOffered(self.engine, Ability.PAIRS)

    def observed(self, laws: AbstractLaws, steps: Int[Array, " t"], rows: Inputs) -> Any:
        """The laws of y for laws of x at the same steps, if they are on offer."""
        raise NotOffered(self.engine, Ability.OBSERVED_LAWS)

    def transforms(self, series: Series, trace: Trace) -> Float[Array, "t *p"]:
        """P(Y_t <= y_t | y before t), if laws of y are on offer; NaN where y_t is missing."""
        raise NotOffered(self.engine, Ability.OBSERVED_LAWS)

    def observation_density(self, series: Series, trace: Trace, t: int) -> AbstractDensity:
        """p(y_t | y before t), if that is a PSD model."""
        raise NotOffered(self.engine, Ability.JOINT)

    def frozen(self) -> "AbstractFrozen":
        """Everything but the parameters, for likelihoods, if they are on offer."""
        raise NotOffered(self.engine, Ability.GRADIENTS)

    def frozen_on(self, parts: Sequence[Series]) -> "AbstractFrozen":
        """`frozen`, for models that have something to decide for these series.

        They have at most one transition before each row.
        """
        del parts
        return self.frozen()

    def refilled(self, frozen: "AbstractFrozen", ssm: StateSpaceModel) -> "AbstractModel":
        """The learned model of another state-space model on the same plan."""
        raise NotOffered(self.engine, Ability.GRADIENTS)

    def resized(self, facts: PyTree, series: Series, which: int, inputs: Inputs) -> "AbstractModel":
        """The model on a plan for one of the stacked series whose `evidence` had these facts."""
        del facts, series, which, inputs
        return self


class Settled(NamedTuple):
    """A filtered series: the model for these data, the series as it took it, and what came."""

    model: AbstractModel
    series: Series
    trace: Trace


class PlanCheck(NamedTuple):
    """How well a frozen plan serves at a theta.

    Attributes:
        transition_error: int |Q - Q^| dx, averaged over where the states have been.
        observation_error: largest delta_t, the one-step error of the fits of sqrt G.
        mean_observation_error: mean of min(delta_t, 1): outliers are single steps.
        lost: mean of 1 - D_t: mass that leaves the box in a step.
        failed: whether some step had no likelihood at all.
    """

    transition_error: Float[Array, ""]
    observation_error: Float[Array, ""]
    mean_observation_error: Float[Array, ""]
    lost: Float[Array, ""]
    failed: Array


class AbstractFrozen(eqx.Module):
    """What a learned model has decided, apart from the numbers of its state-space model.

    Pure functions of a state-space model whose numbers may be traced.
    """

    has_plan: ClassVar[bool]  # whether there is one that can cease to serve

    @abstractmethod
    def increments(
        self, ssm: StateSpaceModel, series: Series, forward: bool
    ) -> Float[Array, "s t"]:
        """log p(y_t | y before t) of stacked series.

        `forward`: for forward differentiation, which cannot pass through a custom reverse pass.
        """

    @abstractmethod
    def evidence(
        self, ssm: StateSpaceModel, series: Series
    ) -> tuple[Float[Array, ""], PlanCheck, PyTree]:
        """The sum of all increments, how well the plan serves, and facts for `resized`."""

    def merged(self, other: "AbstractFrozen") -> "AbstractFrozen":
        """A plan that serves wherever one of both does."""
        del other
        return self

    def unresolved(self, facts: PyTree) -> Float[Array, "s t"] | None:
        """delta_t of every step, where the plan may fail to resolve an observation."""
        del facts
        return None

    def log_masses(self, facts: PyTree) -> Float[Array, "s t"] | None:
        """The increments, where `evidence` keeps them."""
        del facts
        return None
