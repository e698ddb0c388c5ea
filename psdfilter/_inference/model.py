"""A learned model: a plan, the tables that fill it, and what was found out on the way."""

import time
import warnings
from dataclasses import replace
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jax.errors import ConcretizationTypeError, TracerArrayConversionError
from jaxtyping import Array, Float, Int

from .._checks import require_x64
from .._density.anchors import TensorGrid
from .._density.psd import GaussianPSD
from .._statespace.model import AdditiveGaussian, Inputs, StateSpaceModel
from .contraction import backward_tensor
from .hosted import fill, one_step_error
from .joint import JointObservation
from .joint_plan import learn_joint, observed_paths
from .nodes import (
    TransitionTables,
    apply_last_axes,
    fill_transition,
    learn_coefficients,
    roots_on,
)
from .plan import Plan, Unaffordable
from .report import LearnReport
from .sizing import make_plan, resize_plan
from .typical import TypicalPaths, simulate_typical

# What rounding leaves of the fits; filters were measured to keep tolerances down to here.
LEAST_TOL = 1e-10


class Sizing:
    """Whether a plan has been sized by observations; if not, the model that data has led to.

    An object of its own, because a model is frozen and the first data it meets decide.
    """

    def __init__(self, by_observations: bool):
        """Start without a resized model."""
        self.by_observations = by_observations
        self.resized: LearnedModel | None = None
        self.prepared: Any = None  # functions compiled for this model, see compiled.py
        self.stacked: Any = None  # tables of a transition that varies in time, see filled.py


class LearnedModel(eqx.Module):
    """What `learn` returns and every inference function takes.

    The tables are those of a transition that does not vary in time; one that does is filled step by
    step on the same plan.
    """

    ssm: StateSpaceModel
    plan: Plan
    prior_root: Float[Array, "..."]  # coefficients of sqrt p(x_0), one axis of anchors each
    tables: TransitionTables | None
    renormalize: bool = eqx.field(static=True)
    report: LearnReport = eqx.field(static=True)
    sizing: "Sizing" = eqx.field(static=True)
    joint: JointObservation | None = None  # None: sqrt G(., y) is fitted for each observation

    @property
    def dim(self) -> int:
        """Number of coordinates of the state."""
        return self.ssm.dim

    @property
    def tol(self) -> float:
        """The tolerance that was asked for."""
        return self.plan.tol

    @property
    def prior(self) -> Float[Array, " n"]:
        """The prior at the nodes, of mass one."""
        return jnp.square(roots_on(self.plan.prior, self.prior_root, self.plan.nodes))

    def tables_at(self, t=None, inputs: Inputs = None) -> TransitionTables:
        """The transition into step t at the nodes."""
        if self.tables is not None:
            return self.tables
        return maybe_renormalized(
            self.plan, fill_transition(self.plan, self.ssm, t, inputs), self.renormalize
        )

    def transition_density(self, t=None, inputs: Inputs = None) -> tuple[GaussianPSD, ...]:
        """The learned factors of Q as PSD models of (u_given, x_group), in unit coordinates."""
        models = []
        for part in self.plan.transitions:
            coefficients, log_scale = learn_coefficients(self.plan, part, self.ssm, t, inputs)
            regressions = (*part.given_regressions, *part.group_regressions)
            grid = TensorGrid([r.anchors for r in regressions])
            precision = jnp.stack([r.precision for r in regressions])
            models.append(GaussianPSD(grid, coefficients.ravel(), precision, log_scale))
        return tuple(models)


def row_masses(plan: Plan, tables: TransitionTables) -> Float[Array, "..."]:
    """int Q(u, x) dx over the box at every node u, one axis for each coordinate."""
    ones = tuple(
        apply_last_axes(squares, tuple(plan.weights[a][None, :] for a in part.group))
        for part, squares in zip(plan.transitions, tables.squares, strict=True)
    )
    single = jnp.ones((1,) * len(plan.nodes))
    return backward_tensor(plan.structure, ones, single, plan.shape)


def maybe_renormalized(plan: Plan, tables: TransitionTables, wanted: bool) -> TransitionTables:
    """Q(u, x) / int Q(u, x) dx, if asked for."""
    if not wanted:
        return tables
    scaled = []
    for part, rows, squares in zip(plan.transitions, tables.rows, tables.squares, strict=True):
        mass = apply_last_axes(squares, tuple(plan.weights[a][None, :] for a in part.group))
        scale = 1.0 / jnp.where(mass > 0, mass, 1.0)
        scaled.append((rows * jnp.sqrt(scale), squares * scale))
    return TransitionTables(tuple(r for r, _ in scaled), tuple(s for _, s in scaled))


# Share of mass leaving the box in a step, and mass on it, that call for a word.
_LARGE_LEAK, _NO_DENSITY = 0.05, 1.5
_MAX_ONE_STEP_ERROR = 0.3


def learn(
    ssm: StateSpaceModel,
    tol: float = 1e-3,
    *,
    engine: str = "auto",
    observation: str = "each",
    renormalize: bool = False,
    ys=None,
    inputs: Inputs = None,
    order: int | None = None,
    measured: Any = None,
) -> LearnedModel:
    """Learn Q and the prior as PSD models, sized so that the filter's error stays below `tol`.

    Args:
        ssm: the model.
        tol: total variation error of the filtered densities (int |p - q|, no factor 1/2), and
            error of each log-likelihood increment.
        engine: "nodes", quadrature nodes and positive weights; "closed", error functions on grid
            midpoints and no quadrature, for d <= 2 (slower); or "blocks", Gaussians on all of R^d,
            for `linear_gaussian` and, each with its own linearisation, for `additive_gaussian`;
            or "generalized", Q learned once as the square of few Gaussians with free shapes, for
            d <= 2 (much slower than "nodes"; never chosen by itself).
            "auto" chooses, and the report says which and why.
        observation: "each" fits sqrt G(., y) for every observation when it comes; "joint" learns
            one PSD model of (x, y) on state_box times `observation_box`, which has closed forms for
            laws of y, for observations with gaps, and for a likelihood that integrates to one.
        renormalize: divide Q(u, .) by its mass on the box. By default the mass that leaves the box
            is measured and reported, and lowers the likelihood.
        ys: typical observations (T, p), by which the nodes are sized; without them the model's own
            simulations, if it can be simulated, or the first data that are filtered.
        inputs: typical inputs, for models that take them.
        order: number of Gaussians that "blocks" keeps for a `log_observation` or for
            `additive_gaussian`, by default from `tol`; or that "generalized" keeps.
        measured: coordinates of the state that this `log_observation` depends on; by default found
            from its gradients with the first data.
    """
    _check_choices(ssm, tol, engine, observation)
    found = _learn_without_nodes(
        ssm, tol, engine, observation, renormalize, ys, inputs, order, measured
    )
    if found is not None:
        return found
    return _learn_on_nodes(ssm, float(tol), observation, renormalize, ys, inputs)


def learn_in_steps(
    ssm: StateSpaceModel, tol: float, multiple: int, engine: str, inputs: Inputs
) -> Any:
    """`learn`, with numbers of nodes and anchors that are multiples of one number.

    So that models of nearby parameters have equal sizes, and share their compiled programmes.
    """
    _check_choices(ssm, tol, engine, "each")
    found = _learn_without_nodes(ssm, tol, engine, "each", False, None, inputs, None, None)
    if found is not None:
        return found
    return _learn_on_nodes(ssm, float(tol), "each", False, None, inputs, multiple)


def _learn_without_nodes(
    ssm: StateSpaceModel,
    tol: float,
    engine: str,
    observation: str,
    renormalize: bool,
    ys: Any,
    inputs: Inputs,
    order: int | None,
    measured: Any,
) -> Any:
    """The model on another engine than nodes, if that is wanted or "auto" finds one; else None."""
    if engine == "generalized":
        from .blocks.generalized_learn import learn_free_shapes

        if renormalize:
            raise ValueError('renormalize must be False for engine="generalized"')
        return learn_free_shapes(ssm, float(tol), observation, order)
    linear = ssm.structure is not None and observation == "each"
    if engine == "blocks" or (engine == "auto" and linear):
        from .blocks.choice import learn_blocks

        blocks = learn_blocks(ssm, engine, float(tol), order=order, measured=measured)
        if blocks is not None:
            return blocks
    if isinstance(ssm.structure, AdditiveGaussian):
        from .blocks.noise_share import require_grid

        require_grid(ssm, "nodes" if engine == "auto" else engine)
    if engine == "closed":
        from .closed_plan import learn_closed

        if renormalize:
            raise ValueError('renormalize must be False for engine="closed": no PSD model results')
        if observation == "joint":
            raise ValueError('observation="joint" is served by engine="nodes", got "closed"')
        return learn_closed(ssm, float(tol), ys=ys, inputs=inputs)
    return None


def _check_choices(ssm: Any, tol: Any, engine: str, observation: str) -> None:
    require_x64()
    if not isinstance(ssm, StateSpaceModel):
        raise ValueError(f"ssm must be a StateSpaceModel, got {type(ssm).__name__}")
    if not (isinstance(tol, int | float) and 0 < tol < 2):
        raise ValueError(f"tol must lie in (0, 2), got {tol!r}")
    if engine not in ("auto", "nodes", "closed", "blocks", "generalized"):
        raise ValueError(
            f'engine must be "auto", "nodes", "closed", "blocks" or "generalized", got {engine!r}'
        )
    if observation not in ("each", "joint"):
        raise ValueError(f'observation must be "each" or "joint", got {observation!r}')


def _learn_on_nodes(
    ssm: StateSpaceModel,
    tol: float,
    observation: str,
    renormalize: bool,
    ys: Any,
    inputs: Inputs,
    multiple: int = 1,
) -> LearnedModel:
    if tol < LEAST_TOL:
        raise ValueError(
            f"tol must be at least {LEAST_TOL:g} on quadrature nodes, got {tol:g}: rounding in "
            "double precision leaves errors of that size"
        )
    started = time.perf_counter()
    try:
        paths = simulate_typical(ssm, inputs=inputs)
    except (TracerArrayConversionError, ConcretizationTypeError) as error:
        raise ValueError(
            "ssm must be concrete where grids are chosen, but learn was called under jax.jit, grad "
            "or vmap: call it outside, and for a function of parameters use psdfilter.likelihood"
        ) from error
    if not renormalize:
        _warn_of_mass(paths)
    if observation == "joint":
        paths = observed_paths(ssm, paths, inputs)
    plan = make_plan(ssm, paths, tol, inputs, multiple)
    model = _build(plan, ssm, renormalize, paths, inputs, started)
    if model.report.one_step_error > max(100 * tol, _MAX_ONE_STEP_ERROR):
        raise Unaffordable(
            f"the learned transition misses its tolerance by far (one-step error "
            f"{model.report.one_step_error:.1g}, tol {tol:g}): is state_box larger than where the "
            "states go, so that it holds states which the model throws far out of it?"
        )
    if ys is not None:
        model = resized_by(model, ys, inputs, multiple)
    return with_joint(model, paths, inputs, started) if observation == "joint" else model


def _warn_of_mass(paths: TypicalPaths) -> None:
    if paths.mass > _NO_DENSITY:
        warnings.warn(
            "log_transition must be the logarithm of a density in x, but exp(log_transition(u, .)) "
            f"has mass {paths.mass:.3g} on state_box, on average over typical u: likelihoods are "
            "too large by as much in every step",
            stacklevel=4,
        )
    if paths.leak > _LARGE_LEAK:
        warnings.warn(
            f"{100 * paths.leak:.0f} % of the mass leaves state_box in a typical step, is lost, "
            "and lowers the likelihood: choose a larger state_box, or pass renormalize=True if the "
            "model is meant to be confined to it",
            stacklevel=4,
        )


def with_joint(
    model: LearnedModel, paths: TypicalPaths, inputs: Inputs, started: float
) -> LearnedModel:
    """The same model with G learned jointly over (x, y)."""
    joint = learn_joint(model.plan, model.ssm, paths, inputs)
    report = replace(
        model.report,
        joint_anchors=tuple(r.anchors.shape[0] for r in joint.regressions),
        seconds=time.perf_counter() - started,
    )
    return replace(model, joint=joint, report=report, sizing=Sizing(by_observations=True))


def _build(
    plan: Plan,
    ssm: StateSpaceModel,
    renormalize: bool,
    paths: TypicalPaths,
    inputs: Inputs,
    started: float,
) -> LearnedModel:
    prior, tables = fill(plan, ssm, renormalize)
    report = describe(plan, ssm, paths, inputs, started)
    sizing = Sizing(paths.observations is not None)
    return LearnedModel(ssm, plan, prior, tables, renormalize, report, sizing)


def resized_by(model: LearnedModel, ys, inputs: Inputs = None, multiple: int = 1) -> LearnedModel:
    """The same model with nodes and anchors of sqrt G sized by these observations."""
    return resized_along(model, paths_of_data(model, ys, inputs), inputs, multiple)


def resized_along(
    model: LearnedModel, paths: TypicalPaths | None, inputs: Inputs, multiple: int = 1
) -> LearnedModel:
    """The same model with nodes and anchors of sqrt G sized by these paths, if there are any."""
    if paths is None:
        return model
    started = time.perf_counter()
    plan = resize_plan(model.plan, model.ssm, paths, inputs, multiple)
    return _build(plan, model.ssm, model.renormalize, paths, inputs, started)


def paths_of_data(model: LearnedModel, ys, inputs: Inputs = None) -> TypicalPaths | None:
    """Where the states of a series were, and what was seen; None if there are too few.

    A first filter on the plan at hand finds them: its highest node at each time.
    """
    from .run import run_filter

    rough = run_filter(model, ys, inputs=inputs, throw=False, resize=False)
    best = np.argmax(np.asarray(rough.densities), axis=1)
    return paths_through(model.plan, best, np.asarray(rough.series.ys), np.asarray(rough.log_kept))


def paths_through(
    plan: Plan,
    best: Int[np.ndarray, " t"],
    seen: Float[np.ndarray, "t p"],
    log_kept: Float[np.ndarray, " t"],
) -> TypicalPaths | None:
    """The path through these nodes, where observations are whole; None if there are too few."""
    states = np.asarray(plan.node_points())[best]
    usable = ~np.isnan(seen).any(axis=1) & np.isfinite(seen).all(axis=1)
    if usable.sum() < 3:
        return None
    leak = float(1.0 - np.mean(np.exp(np.minimum(log_kept, 0.0))))
    return TypicalPaths(states[None, usable], seen[None, usable], leak)


def describe(
    plan: Plan, ssm: StateSpaceModel, paths: TypicalPaths, inputs: Inputs, started: float
) -> LearnReport:
    """The report of a learned model, with one-step errors measured at typical states."""
    error, norm = one_step_error(plan, ssm, paths, inputs)
    return LearnReport(
        tol=plan.tol,
        nodes=plan.shape,
        anchors=tuple(
            tuple(r.anchors.shape[0] for r in (*part.given_regressions, *part.group_regressions))
            for part in plan.transitions
        ),
        observation_anchors=tuple(r.anchors.shape[0] for r in plan.observation),
        one_step_error=error,
        coefficient_norm=norm,
        leak=paths.leak,
        seconds=time.perf_counter() - started,
        time_varying=ssm.is_time_varying,
    )
