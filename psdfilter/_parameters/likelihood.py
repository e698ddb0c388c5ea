"""The likelihood as a function of theta, on a plan that is chosen once and then frozen."""

import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PyTree

from .._checks import Numbers, is_traced
from .._frames.table import Frame, Times
from .._inference.ability import Ability, NotOffered
from .._inference.engine import AbstractEngine, Task
from .._inference.learn import choose_engine
from .._inference.model import AbstractFrozen, AbstractModel, PlanCheck
from .._inference.posterior import Posterior
from .._inference.registry import require
from .._inference.report import Report
from .._inference.run import run_filter
from .._inference.series import asked_by
from .._inference.sizing.plan import Unaffordable
from .._inference.transformed.model import in_user_units
from .._statespace.functions import AbstractFunction, as_function
from .._statespace.inside import inside
from .._statespace.model import Inputs, StateSpaceModel
from .agreement import Judge, Truth, disagreement
from .core import Build, Core
from .covering import along_inputs, covering_ssm
from .doubts import doubt, outliers
from .pooling import PIECE, PooledCore, hand_out, in_pieces
from .settings import Settings, as_list
from .stacking import single_hops, stack_series
from .theta import Theta, as_theta, names_of

if TYPE_CHECKING:
    from distributed import Client

# Mean error of a step above which a likelihood says nothing.
_MAX_MEAN_ERROR = 0.05


class PlanWarning(UserWarning):
    """theta has moved to where the frozen plan of a likelihood no longer serves."""


@eqx.filter_jit
def _increments(core: Core | PooledCore, theta: Theta) -> list[Float[Array, " t"]]:
    return core.increments(theta)


@eqx.filter_jit
def _run(core: Core | PooledCore, theta: Theta) -> tuple[Float[Array, ""], PlanCheck, PyTree]:
    return core.run(theta)


class Likelihood(eqx.Module):
    """theta -> log p(y_1 ... y_T; theta): smooth, without noise, compiled once.

    Grids, nodes, box, precisions and ridge are those that suited the theta it was made at, and
    constants from then on; the model's own functions are filled into them for every theta. So
    `jax.grad`, `jax.hessian`, `jax.vmap` and samplers work on it.
    """

    core: Core | PooledCore
    learned: AbstractModel  # at `theta`
    theta: Theta  # where the plan was made
    tol: float = eqx.field(static=True)
    settings: Settings = eqx.field(static=True)
    unresolved: float = eqx.field(static=True, default=0.0)  # mean observation error at `theta`

    def __call__(self, theta: Theta) -> Float[Array, ""]:
        """log p(y; theta), the sum over all series; warns if the plan does not serve there.

        -inf where the plan is of no use at all, with a mean error of a step above 5 %: a sampler
        that strays there, where no warning can reach it, has to turn back.
        """
        theta = as_theta("theta", theta)
        self._same_tree(theta)
        value, check = self.value_and_check(theta)
        if not is_traced((value, check)):
            self._warn(check)
        return jnp.where(self.is_of_use(check), value, -jnp.inf)

    # `jax.jit(likelihood)` has to hash it, and arrays cannot be.
    def __hash__(self) -> int:
        return id(self)

    def __eq__(self, other: object) -> bool:
        return self is other

    def increments(self, theta: Theta) -> Float[Array, " t"] | list[Float[Array, " t"]]:
        """log p(y_t | y_1 ... y_{t-1}; theta), (T,); a list of them for several series."""
        theta = as_theta("theta", theta)
        each = None
        if isinstance(self.core, Core) and not is_traced(theta):
            # The program of the likelihood has them too; another one takes seconds to compile.
            each = self.core.increments_of(_run(self.core, theta)[2])
        each = _increments(self.core, theta) if each is None else each
        return each if self.settings.several else each[0]

    def value_and_check(self, theta: Theta) -> tuple[Float[Array, ""], PlanCheck]:
        """log p(y; theta), and how well the plan serves at theta."""
        return _run(self.core, as_theta("theta", theta))[:2]

    def serves(self, check: PlanCheck, slack: float = 10.0) -> Array:
        """Whether no error of a check is more than `slack` times the tolerance."""
        limit = slack * self.tol
        return (check.observation_error <= limit) & self._keeps_its_mass(check, limit)

    def is_of_use(self, check: PlanCheck) -> Array:
        """Whether values mean anything where a check was made."""
        limit = max(2 * self.tol, _MAX_MEAN_ERROR)
        # What no plan of this tolerance resolves is no reason to leave a theta.
        observations = check.mean_observation_error <= limit + 2 * self.unresolved
        return observations & self._keeps_its_mass(check, limit)

    def _keeps_its_mass(self, check: PlanCheck, limit: float) -> Array:
        # A grid that is too coarse can also create mass.
        return (
            (check.transition_error <= limit)
            & (jnp.abs(check.lost) <= 2 * self.report.leak + limit)
            & ~check.failed
        )

    @property
    def report(self) -> Report:
        """Of the model where the plan was made."""
        return self.learned.report

    def model(self, theta: Theta) -> AbstractModel:
        """The learned model at theta on this plan, for filtering, smoothing and forecasting."""
        ssm = self.core.build(as_theta("theta", theta))
        return in_user_units(self.learned.refilled(self.core.frozen, inside(ssm)), ssm)

    def posterior(self, theta: Theta) -> Posterior | list[Posterior]:
        """The filter at theta; a list of them for several series."""
        model, settings = self.model(theta), self.settings
        posts = [
            run_filter(model, y, first=settings.keywords["first"], inputs=rows, times=at)
            for y, rows, at in settings.each()
        ]
        return posts if settings.several else posts[0]

    def replan(self, theta: Theta, **changes: Any) -> "Likelihood":
        """The same likelihood on a plan made at another theta."""
        keywords = {**self.settings.keywords, "tol": self.tol, **changes}
        return likelihood(self.core.build, theta, self.settings.ys, **keywords)

    def complaint(self, theta: Theta) -> str | None:
        """Where it differs from the filter at theta; None if it does not, or nobody can tell."""
        theta = as_theta("theta", theta)
        ssm = self.core.build(theta)
        chosen, _ = choose_engine(inside(ssm), self.tol, self.settings.keywords["engine"])
        if isinstance(self.core, PooledCore) or not chosen.judges(ssm):
            return None
        truth = Judge(chosen, self.settings, self.tol).increments(ssm)
        return disagreement(self, [(theta, ssm)], [truth], self.tol)

    def _same_tree(self, theta: Theta) -> None:
        if jax.tree.structure(theta) != jax.tree.structure(self.theta):
            raise ValueError(
                "theta must have the structure of the one the likelihood was made with, "
                f"{', '.join(names_of(self.theta))}; got {', '.join(names_of(theta))}"
            )

    def _warn(self, check: PlanCheck) -> None:
        if not bool(self.serves(check)):
            warnings.warn(
                "the plan of this likelihood does not serve at this theta: "
                f"{_complaint(check, self)}. Use .replan(theta), or psdfilter.fit, which does",
                PlanWarning,
                stacklevel=3,
            )


def default_tol(dim: int) -> float:
    """What a score needs to be right to 1e-3, where that is cheap."""
    return 1e-5 if dim == 1 else 1e-4


def likelihood(
    build: Build,
    theta: Theta,
    ys: Numbers | Frame | Sequence[Numbers | Frame],
    *,
    tol: float | None = None,
    first: str = "predict",
    inputs: Inputs = None,
    times: Times = None,
    cover: Sequence[Theta] = (),
    engine: str | AbstractEngine = "auto",
    client: "Client | None" = None,
) -> Likelihood:
    """log p(y_1 ... y_T; theta) as a function of theta, differentiable and compiled once.

    Args:
        build: theta -> StateSpaceModel, written in JAX.
        theta: a pytree of numbers at which grids, nodes and box are chosen.
        ys: one series as for `run_filter`: an array (T, p) or (T,), NaN where missing, or a list of
            T numbers or of T arrays of shape (1,). Or several independent series: a list of arrays
            (T_i, p), a mapping of them, or an array (S, T, p). Data frames serve as well, one or a
            list of them.
        tol: as for `learn`: the error of each increment; by default 1e-5 for states on a line and
            1e-4 otherwise. Gradients lose a digit or two on values.
        first: as for `run_filter`.
        inputs: as for `run_filter`; a list of them for several series.
        times: likewise.
        cover: further thetas that the plan has to serve too: the box holds all their boxes, and
            each axis takes the finest of their grids.
        engine: as for `learn`; "auto" lets the model at `theta` decide.
        client: a `dask.distributed.Client` whose workers share the series; their parts of value,
            gradient and Hessian are summed. Many series are computed in pieces without one, too.
    """
    if not callable(build):
        raise ValueError(f"build must be a function of theta, got {type(build).__name__}")
    theta = as_theta("theta", theta)
    if is_traced(theta):
        raise ValueError(
            "theta must be concrete where a likelihood is made, since it decides the sizes; make "
            "it outside of jax.jit and jax.grad, and transform the function it returns"
        )
    thetas = [theta, *(as_theta(f"cover[{i}]", other) for i, other in enumerate(cover))]
    ssms = covering_ssm(build, thetas)
    tol = default_tol(ssms[0].dim) if tol is None else tol
    keywords = {"first": first, "inputs": inputs, "times": times, "cover": tuple(cover)}
    given = {**keywords, "engine": engine, "client": client}
    settings = Settings(as_list(ys), given, asked_by(ssms[0]))
    ssms = along_inputs(ssms, settings)
    if (question := doubt(ssms[0], settings)) is not None:
        warnings.warn(question, UserWarning, stacklevel=2)
    chosen, reason = choose_engine(inside(ssms[0]), tol, engine)
    engines = chosen.for_likelihoods(ssms[0].dim)
    if Ability.GRADIENTS not in engines[0].abilities:
        raise NotOffered(chosen.name, Ability.GRADIENTS, ': take "nodes", "exact" or "mixture"')
    shared = as_function(build, constant=True)
    makers = [_Maker(shared, settings, one, float(tol), reason) for one in engines]
    places = list(zip(thetas, ssms, strict=True))
    if not chosen.judges(ssms[0]) or makers[0].is_pooled:
        return makers[0].covering(places)
    judge = Judge(chosen, settings, float(tol))
    truths = [judge.increments(ssm) for ssm in ssms]
    return _first_that_agrees(makers, places, truths)


def _first_that_agrees(
    makers: Sequence["_Maker"],
    places: Sequence[tuple[Theta, StateSpaceModel]],
    truths: Sequence[Truth | None],
) -> Likelihood:
    """The first likelihood that has the filter's values; the last one, with a warning, if none."""
    for maker in makers[:-1]:
        try:
            # What this plan does not resolve the next one may.
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", PlanWarning)
                made = maker.covering(places)
        except Unaffordable:
            continue
        if disagreement(made, places, truths, maker.tol) is None:
            return made
    made = makers[-1].covering(places)
    if (complaint := disagreement(made, places, truths, makers[-1].tol)) is not None:
        warnings.warn(complaint, PlanWarning, stacklevel=3)
    return made


class _Maker(NamedTuple):
    """What all plans of a likelihood have in common."""

    build: AbstractFunction
    settings: Settings
    engine: AbstractEngine
    tol: float
    reason: str

    def covering(self, places: Sequence[tuple[Theta, StateSpaceModel]]) -> Likelihood:
        """The likelihood on a plan that serves at several thetas; made at the first."""
        (theta, ssm), *others = places
        model = self.learned(ssm, theta)
        made = self.made_on(model, self.frozen(model), theta)
        for other, there in others:
            if not bool(made.serves(made.value_and_check(other)[1], 1.0)):
                model = self.learned(there, other)
                frozen = made.core.frozen.merged(self.frozen(model))
                model = max((made.learned, model), key=lambda m: m.report.leak)
                made = self.made_on(model.refilled(frozen, inside(ssm)), frozen, theta)
        return made

    def frozen(self, model: AbstractModel) -> AbstractFrozen:
        """Everything that a model has decided for these series."""
        return model.frozen_on([single_hops(p) for p in self.settings.parts(model.num_observed)])

    def core(
        self, frozen: AbstractFrozen, num_observed: int | None, only: int | None = None
    ) -> Core:
        """The core of a plan for these data, or for one of the series only."""
        parts = self.settings.parts(num_observed)
        parts = parts if only is None else parts[only : only + 1]
        series, places = stack_series(parts)
        rows = tuple(tuple(at.tolist()) for at in places)
        return Core(self.build, frozen, series, rows)

    @property
    def is_pooled(self) -> bool:
        """Whether the series are computed in pieces."""
        client = self.settings.keywords["client"]
        return self.settings.several and (client is not None or len(self.settings.ys) > PIECE)

    def pooled(self, frozen: AbstractFrozen, num_observed: int | None) -> PooledCore:
        """The core of a plan for series in pieces."""
        whole = self.core(frozen, num_observed)
        core = PooledCore(self.build, frozen, in_pieces(whole.series), whole.rows)
        client = self.settings.keywords["client"]
        return core if client is None else hand_out(client, core)

    def learned(self, ssm: StateSpaceModel, theta: Theta) -> AbstractModel:
        """The model at theta, sized by the longest of the series."""
        if ssm.vectorized:
            raise ValueError(
                "build must return a model written in JAX: one of NumPy functions cannot be traced"
            )
        within = inside(ssm, self.engine.roams)
        parts = self.settings.parts(within.num_observed)
        longest = int(np.argmax([part.num for part in parts]))
        series = parts[longest]
        model = self.engine.learn(Task(within, self.tol, inputs=series.rows, reason=self.reason))
        require(model, Ability.GRADIENTS)
        if not model.resizes:
            return model.sized(series)
        frozen = model.frozen()
        # A filter on the first plan shows where the states of these data were.
        core = self.core(frozen, model.num_observed, longest)
        return model.resized(_run(core, theta)[2], core.series, 0, series.rows)

    def made_on(self, model: AbstractModel, frozen: AbstractFrozen, theta: Theta) -> Likelihood:
        """The likelihood on a plan; observations that it does not resolve are named."""
        if self.is_pooled:
            return self._made_in_pieces(model, frozen, theta)
        core = self.core(frozen, model.num_observed)
        unresolved = 0.0
        if frozen.has_plan:
            _, check, facts = _run(core, theta)
            errors = frozen.unresolved(facts)
            assert errors is not None
            if (message := outliers(np.asarray(errors), core.rows, self.tol)) is not None:
                warnings.warn(message, PlanWarning, stacklevel=3)
            unresolved = float(check.mean_observation_error)
        return Likelihood(core, model, theta, self.tol, self.settings, unresolved)

    def _made_in_pieces(
        self, model: AbstractModel, frozen: AbstractFrozen, theta: Theta
    ) -> Likelihood:
        core = self.pooled(frozen, model.num_observed)
        _, check, _ = _run(core, theta)
        if float(check.observation_error) > 10 * self.tol:
            warnings.warn(
                "some observation is so far from what the model expects that its likelihood is not "
                f"resolved to tol = {self.tol:g} (error {float(check.observation_error):.1e}): "
                "run_fleet names the series",
                PlanWarning,
                stacklevel=4,
            )
        unresolved = float(check.mean_observation_error)
        return Likelihood(core, model, theta, self.tol, self.settings, unresolved)


def _complaint(check: PlanCheck, ll: Likelihood) -> str:
    if bool(check.failed):
        return "some observation has no likelihood anywhere in the box"
    if jnp.isinf(check.observation_error):
        return "the state is so uncertain that covariances lose digits there (see explain(5))"
    if check.transition_error > 10 * ll.tol:
        return f"the transition is too narrow for its grid (error: {check.transition_error:.1e})"
    if check.observation_error > 10 * ll.tol:
        return f"an observation is too narrow for its grid (error: {check.observation_error:.1e})"
    return f"{check.lost:.1e} of the mass leaves the box in a step"
