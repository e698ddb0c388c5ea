"""What is compiled of a likelihood: pure functions of theta, one class for each engine.

Two cores of equal sizes share their programmes, because nothing in them is static but what `build`
is and how the series are laid out.
"""

from abc import abstractmethod
from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from .. import _results
from .._inference.evidence import KEPT, Constants, Evidence, evidence, refilled
from .._inference.learn import learn
from .._inference.model import LearnedModel
from .._inference.plan import Plan
from .._inference.resolution import transition_error
from .._inference.run import run_filter
from .._inference.series import Series
from .._statespace.model import StateSpaceModel
from .theta import Theta

Build = Callable[[Theta], StateSpaceModel]


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


class AbstractCore(eqx.Module):
    """theta -> increments, likelihood and model, on one engine."""

    build: eqx.AbstractVar[Build]

    @abstractmethod
    def model(self, theta: Theta, report: Any = None) -> Any:
        """The model at theta, for the functions of inference."""

    @abstractmethod
    def increments(self, theta: Theta, forward: bool = False) -> list[Float[Array, " t"]]:
        """log p(y_t | y_1 ... y_{t-1}; theta) of every series.

        `forward`: for forward differentiation, which has no use for the custom reverse pass.
        """

    @abstractmethod
    def run(self, theta: Theta) -> tuple[Float[Array, ""], PlanCheck, Evidence | None]:
        """log p(y; theta), how well the plan serves at theta, and what each step says of it."""

    def total(self, theta: Theta) -> tuple[Float[Array, ""], PlanCheck]:
        """log p(y; theta), and how well the plan serves at theta."""
        return self.run(theta)[:2]


class NodesCore(AbstractCore):
    """On quadrature nodes, with a frozen plan."""

    build: Build = eqx.field(static=True)
    plan: Plan
    constants: Constants  # of the plan
    series: Series  # stacked over the series
    rows: tuple[tuple[int, ...], ...] = eqx.field(static=True)  # those that are observations

    def model(self, theta: Theta, report: Any = None) -> LearnedModel:
        """The plan, filled at theta."""
        return refilled(self.plan, self.build(theta), report, self.constants)

    def increments(self, theta: Theta, forward: bool = False) -> list[Float[Array, " t"]]:
        """log p(y_t | y_1 ... y_{t-1}; theta) of every series."""
        masses = self._evidence(self.model(theta), forward).log_masses
        return [row[jnp.asarray(at)] for row, at in zip(masses, self.rows, strict=True)]

    def _evidence(self, model: LearnedModel, forward: bool = False) -> Evidence:
        kept = KEPT // self.series.ys.shape[0]
        space = self.constants.space
        return jax.vmap(lambda one: evidence(model, one, space, forward, kept))(self.series)

    def run(self, theta: Theta) -> tuple[Float[Array, ""], PlanCheck, Evidence | None]:
        """log p(y; theta), how well the plan serves at theta, and what each step says of it."""
        model = self.model(theta)
        out = self._evidence(model)
        failed = jnp.any((out.codes != _results.OK) & (out.codes != _results.UNRESOLVED))
        check = PlanCheck(
            self._transition_error(model, jnp.mean(out.occupancy, axis=0)),
            jnp.max(out.observation_errors),
            jnp.mean(jnp.minimum(out.observation_errors, 1.0)),
            jnp.mean(1.0 - jnp.exp(out.log_kept)),
            failed,
        )
        return jnp.sum(out.log_masses), jax.lax.stop_gradient(check), out

    def _transition_error(self, model: LearnedModel, occupancy: Array) -> Array:
        """For a transition that varies in time, the largest at the first, middle and last step."""
        occupancy = jax.lax.stop_gradient(occupancy)
        if model.tables is not None:
            return transition_error(model, occupancy)
        length = self.series.ys.shape[1]
        errors = [
            transition_error(
                model,
                occupancy,
                self.series.steps[0, k],
                jax.tree.map(lambda a, k=k: a[0, k], self.series.rows),
            )
            for k in (0, length // 2, length - 1)
        ]
        return jnp.max(jnp.stack(errors))


class BlocksCore(AbstractCore):
    """On Gaussians on all of R^d: there is no plan that could cease to serve."""

    build: Build = eqx.field(static=True)
    ys: tuple[Array, ...]
    times: tuple[Array | None, ...]
    inputs: Any
    first: str = eqx.field(static=True)
    tol: float = eqx.field(static=True)

    def model(self, theta: Theta, report: Any = None) -> Any:
        """The model at theta."""
        del report
        return learn(self.build(theta), self.tol, engine="blocks")

    def _posts(self, theta: Theta) -> list[Any]:
        model = self.model(theta)
        each = zip(self.ys, self.times, self.inputs, strict=True)
        return [
            run_filter(
                model, y, first=self.first, times=at, inputs=rows, keep="summaries", throw=False
            )
            for y, at, rows in each
        ]

    def increments(self, theta: Theta, forward: bool = False) -> list[Float[Array, " t"]]:
        """log p(y_t | y_1 ... y_{t-1}; theta) of every series."""
        del forward
        return [post.log_likelihoods for post in self._posts(theta)]

    def run(self, theta: Theta) -> tuple[Float[Array, ""], PlanCheck, None]:
        """log p(y; theta), and whether every step had one."""
        posts = self._posts(theta)
        value = jnp.sum(jnp.stack([jnp.sum(post.log_likelihoods) for post in posts]))
        codes = jnp.concatenate([post.codes for post in posts])
        none = jnp.zeros(())
        failed = jnp.any((codes == _results.NO_MASS) | (codes == _results.BAD_OBSERVATION))
        return value, PlanCheck(none, none, none, none, failed), None
