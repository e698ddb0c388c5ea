"""The likelihood as a function of theta, on a plan that is chosen once and then frozen."""

import warnings
from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .._checks import Numbers, is_traced
from .._inference.evidence import Constants, Evidence
from .._inference.learn import learn_in_steps
from .._inference.model import LearnedModel
from .._inference.resizing import paths_through, resized_along
from .._inference.run import run_filter
from .._inference.series import as_series
from .._inference.typical import TypicalPaths
from .._statespace.model import Inputs, StateSpaceModel
from .cores import AbstractCore, BlocksCore, Build, NodesCore, PlanCheck
from .covering import covering_ssm, merged_plan
from .stacking import stack_series
from .theta import Theta, as_theta, names_of

# Mean error of a step above which a likelihood says nothing.
_MAX_MEAN_ERROR = 0.05

# Sizes of grids are multiples of this, by dimension: plans at other thetas, or for other data, then
# often have the same, and need not be compiled again.
_MULTIPLES = {1: 8, 2: 4}


class PlanWarning(UserWarning):
    """theta has moved to where the frozen plan of a likelihood no longer serves."""


@eqx.filter_jit
def _increments(core: AbstractCore, theta: Theta) -> list[Float[Array, " t"]]:
    return core.increments(theta)


@eqx.filter_jit
def _run(core: AbstractCore, theta: Theta) -> tuple[Float[Array, ""], PlanCheck, Evidence | None]:
    return core.run(theta)


class Likelihood(eqx.Module):
    """theta -> log p(y_1 ... y_T; theta): smooth, without noise, compiled once.

    Grids, nodes, box, precisions and ridge are those that suited the theta it was made at, and
    constants from then on; the model's own functions are filled into them for every theta. So
    `jax.grad`, `jax.hessian`, `jax.vmap` and samplers work on it.
    """

    core: AbstractCore
    theta: Theta  # where the plan was made
    tol: float = eqx.field(static=True)
    report: Any = eqx.field(static=True)  # of the model at `theta`
    settings: "Settings" = eqx.field(static=True)
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
        return jnp.where(self._is_of_use(check), value, -jnp.inf)

    # `jax.jit(likelihood)` has to hash it, and arrays cannot be.
    def __hash__(self) -> int:
        return id(self)

    def __eq__(self, other: object) -> bool:
        return self is other

    def increments(self, theta: Theta) -> Float[Array, " t"] | list[Float[Array, " t"]]:
        """log p(y_t | y_1 ... y_{t-1}; theta), (T,); a list of them for several series."""
        each = _increments(self.core, as_theta("theta", theta))
        return each if self.settings.several else each[0]

    def value_and_check(self, theta: Theta) -> tuple[Float[Array, ""], PlanCheck]:
        """log p(y; theta), and how well the plan serves at theta."""
        return _run(self.core, as_theta("theta", theta))[:2]

    def serves(self, check: PlanCheck, slack: float = 10.0) -> Array:
        """Whether no error of a check is more than `slack` times the tolerance."""
        limit = slack * self.tol
        return (check.observation_error <= limit) & self._keeps_its_mass(check, limit)

    def _is_of_use(self, check: PlanCheck) -> Array:
        limit = max(2 * self.tol, _MAX_MEAN_ERROR)
        # What no plan of this tolerance resolves is no reason to leave a theta.
        observations = check.mean_observation_error <= limit + 2 * self.unresolved
        return observations & self._keeps_its_mass(check, limit)

    def _keeps_its_mass(self, check: PlanCheck, limit: float) -> Array:
        # A grid that is too coarse can also create mass.
        return (
            (check.transition_error <= limit)
            & (jnp.abs(check.lost) <= 2 * getattr(self.report, "leak", 0.0) + limit)
            & ~check.failed
        )

    def model(self, theta: Theta) -> Any:
        """The learned model at theta on this plan, for filtering, smoothing and forecasting."""
        return self.core.model(as_theta("theta", theta), self.report)

    def posterior(self, theta: Theta) -> Any:
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


class Settings:
    """What a likelihood was made from, so that it can be made again; compared by identity."""

    def __init__(self, ys: Any, keywords: dict[str, Any]):
        """Keep the arguments of `likelihood`."""
        self.ys, self.keywords = ys, keywords
        self.several = _are_several(ys)

    def each(self) -> list[tuple[Any, Any, Any]]:
        """ys, inputs and times of every series."""
        inputs, times = self.keywords["inputs"], self.keywords["times"]
        if not self.several:
            return [(self.ys, inputs, times)]
        for name, value in (("inputs", inputs), ("times", times)):
            if value is not None and not (
                isinstance(value, list | tuple) and len(value) == len(self.ys)
            ):
                raise ValueError(
                    f"{name} must be a list with one entry for each of {len(self.ys)} series"
                )
        count = len(self.ys)
        return list(zip(self.ys, inputs or [None] * count, times or [None] * count, strict=True))

    @property
    def num_observed(self) -> int:
        """Number of rows of all series that are not wholly missing."""
        return sum(int(np.sum(~np.isnan(_two_axes(y)).all(axis=1))) for y, _, _ in self.each())


def _are_several(ys: Any) -> bool:
    if isinstance(ys, list | tuple) and len(ys):
        return np.ndim(ys[0]) >= 1 and not isinstance(ys[0], list | tuple)
    return np.ndim(ys) == 3


def _two_axes(y: Any) -> np.ndarray:
    array = np.asarray(y, dtype=float)
    return array[:, None] if array.ndim == 1 else array


def default_tol(dim: int) -> float:
    """What a score needs to be right to 1e-3, where that is cheap."""
    return 1e-5 if dim == 1 else 1e-4


def likelihood(
    build: Build,
    theta: Theta,
    ys: Numbers | Sequence[Numbers],
    *,
    tol: float | None = None,
    first: str = "predict",
    inputs: Inputs = None,
    times: Any = None,
    cover: Sequence[Theta] = (),
    engine: str = "auto",
) -> Likelihood:
    """log p(y_1 ... y_T; theta) as a function of theta, differentiable and compiled once.

    Args:
        build: theta -> StateSpaceModel, written in JAX.
        theta: a pytree of numbers at which grids, nodes and box are chosen.
        ys: a series (T, p) or (T,), NaN where missing; or a list of series, which are independent.
        tol: as for `learn`: the error of each increment; by default 1e-5 for states on a line and
            1e-4 otherwise. Gradients lose a digit or two on values.
        first: as for `run_filter`.
        inputs: as for `run_filter`; a list of them for several series.
        times: likewise.
        cover: further thetas that the plan has to serve too: the box holds all their boxes, and
            each axis takes the finest of their grids.
        engine: as for `learn`: "nodes" or "blocks", or "auto" to let the model at `theta` decide.
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
    if engine not in ("auto", "nodes", "blocks"):
        raise ValueError(f'engine must be "auto", "nodes" or "blocks", got {engine!r}')
    keywords["engine"] = engine
    settings = Settings(ys, keywords)
    each = settings.each()
    longest = int(np.argmax([len(y) for y, _, _ in each]))
    rows = each[longest][1]

    multiple = _MULTIPLES.get(ssms[0].dim, 2)

    def learned(ssm: StateSpaceModel, at: Theta, chosen: str) -> Any:
        model = learn_in_steps(ssm, tol, multiple, chosen, rows)
        if not isinstance(model, LearnedModel):
            return model
        # A filter on the first plan shows where the states of these data were.
        paths = _paths(_nodes_core(build, model, each, first), at, longest)
        return resized_along(model, paths, rows, multiple)

    def made_on(model: Any) -> Likelihood:
        core = _nodes_core(build, model, each, first)
        _, check, out = _run(core, theta)
        assert out is not None
        _warn_of_outliers(np.asarray(out.observation_errors), core.rows, float(tol))
        unresolved = float(check.mean_observation_error)
        return Likelihood(core, theta, float(tol), model.report, settings, unresolved)

    model = learned(ssms[0], theta, engine)
    if not isinstance(model, LearnedModel):
        core = _blocks_core(build, each, first, float(tol))
        return Likelihood(core, theta, float(tol), model.report, settings)
    made = made_on(model)
    for other, ssm in zip(thetas[1:], ssms[1:], strict=True):
        if not bool(made.serves(made.value_and_check(other)[1], 1.0)):
            model = merged_plan([model, learned(ssm, other, "nodes")])
            made = made_on(model)
    return made


def _nodes_core(build: Build, model: LearnedModel, each: list[Any], first: str) -> NodesCore:
    parts = [as_series(model, y, first, rows, at)[0] for y, rows, at in each]
    series, places = stack_series(parts)
    constants = eqx.filter_jit(Constants.of)(model.plan)
    rows = tuple(tuple(at.tolist()) for at in places)
    return NodesCore(build, model.plan, constants, series, rows)


def _warn_of_outliers(errors: np.ndarray, rows: Sequence[Sequence[int]], tol: float) -> None:
    """Name the observations that the plan does not resolve where it was made."""
    places = [
        (f"ys[{i}]" if len(rows) == 1 else f"ys[{series}][{i}]", row[place])
        for series, row in enumerate(errors)
        for i, place in enumerate(rows[series])
        if row[place] > 10 * tol
    ]
    if places:
        places.sort(key=lambda pair: -pair[1])
        shown = ", ".join(f"{name} ({error:.1e})" for name, error in places[:5])
        warnings.warn(
            f"{len(places)} observations are so far from what the model expects that their "
            f"likelihoods are not resolved to tol = {tol:g}: {shown}{' ...' * (len(places) > 5)}. "
            "Check them, or use a smaller tol",
            PlanWarning,
            stacklevel=4,
        )


def _paths(core: NodesCore, theta: Theta, which: int) -> TypicalPaths | None:
    """Where the states of one of the series were."""
    out = _run(core, theta)[2]
    assert out is not None
    highest, log_kept = np.asarray(out.highest)[which], np.asarray(out.log_kept)[which]
    return paths_through(core.plan, highest, np.asarray(core.series.ys)[which], log_kept)


def _blocks_core(build: Build, each: list[Any], first: str, tol: float) -> BlocksCore:
    ys, rows, times = zip(*each, strict=True)
    arrays = tuple(jnp.asarray(_two_axes(y)) for y in ys)
    return BlocksCore(build, arrays, times, rows, first, tol)


def _complaint(check: PlanCheck, ll: Likelihood) -> str:
    if bool(check.failed):
        return "some observation has no likelihood anywhere in the box"
    if check.transition_error > 10 * ll.tol:
        return f"the transition is too narrow for its grid (error: {check.transition_error:.1e})"
    if check.observation_error > 10 * ll.tol:
        return f"an observation is too narrow for its grid (error: {check.observation_error:.1e})"
    return f"{check.lost:.1e} of the mass leaves the box in a step"
