"""`learn`: which engine serves a model, and the plan of the one on quadrature nodes."""

import time
import warnings
from dataclasses import replace
from typing import Any

from jax.errors import ConcretizationTypeError, TracerArrayConversionError

from .._checks import require_x64
from .._statespace.model import AdditiveGaussian, Inputs, StateSpaceModel
from .joint_plan import learn_joint, observed_paths
from .model import LearnedModel, Sizing
from .plan import Unaffordable
from .resizing import build, resized_by
from .sizing import make_plan
from .typical import TypicalPaths, simulate_typical

# What rounding leaves of the fits; filters were measured to keep tolerances down to here.
LEAST_TOL = 1e-10
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
    model = build(plan, ssm, renormalize, paths, inputs, started)
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
