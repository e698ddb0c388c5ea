"""`learn`: which engine serves a model."""

from .._checks import Numbers, require_x64
from .._frames.table import Frame, as_table
from .._statespace.inside import inside
from .._statespace.model import Inputs, StateSpaceModel
from .._statespace.probe import refuse_no_jax
from .engine import AbstractEngine, Task
from .model import AbstractModel
from .registry import ENGINES, as_engine
from .transformed.model import in_user_units


def learn(
    ssm: StateSpaceModel,
    tol: float = 1e-3,
    *,
    engine: str | AbstractEngine = "auto",
    ys: Numbers | Frame | None = None,
    inputs: Inputs = None,
) -> AbstractModel:
    """What a filter needs to know of a model, for a stated error.

    Args:
        ssm: the model.
        tol: total variation error of the filtered densities (int |p - q|, no factor 1/2), and
            error of each log-likelihood increment.
        engine: a word, or an object with options of its own:
            "adaptive", exact values on nodes chosen at every step, d <= 2
            (`psdfilter.engines.Adaptive`);
            "nodes", PSD models at quadrature nodes of a box, d <= 4 (`Nodes`);
            "exact", linear and Gaussian on R^d, any d (`Exact`);
            "mixture", Gaussians that are split and merged, d <= 6 (`Mixture`);
            "closed", error functions and no quadrature, d <= 2, slower (`Closed`);
            "reference", Algorithm 2 to the letter, for small orders (`Reference`);
            "free", few Gaussians with free shapes, d <= 2, slower (`Free`);
            "lattice", regimes, angles and sensors of two states, d <= 2 (`Lattice`);
            "branches", linear-Gaussian regimes, any d (`Branches`).
            "auto" chooses, and the report says which and why.
        ys: typical observations (T, p), by which grids are sized; without them the model's own
            simulations, if it can be simulated, or the data of each call.
        inputs: typical inputs, for models that take them.
    """
    _check(ssm, tol)
    chosen, reason = choose_engine(inside(ssm), tol, engine)
    task = Task(ssm, float(tol), as_table("ys", ys), inputs, reason)
    return learn_inside(chosen, ssm, task)


def learn_inside(engine: AbstractEngine, ssm: StateSpaceModel, task: Task) -> AbstractModel:
    """The learned model of a state-space model, in its coordinates without walls."""
    return in_user_units(engine.learn(task._replace(ssm=inside(ssm, engine.roams))), ssm)


def choose_engine(
    ssm: StateSpaceModel, tol: float, engine: str | AbstractEngine
) -> tuple[AbstractEngine, str]:
    """The engine that was asked for, if it can serve, or the first that should; and why it."""
    _check(ssm, tol)
    refuse_no_jax(ssm)
    wanted = as_engine(engine)
    if wanted is not None:
        _refuse(wanted, ssm, tol)
        return wanted, "asked for"
    for kind in ENGINES.values():
        candidate = kind()
        if ssm.traits - candidate.traits:
            continue
        reason = candidate.choice(ssm, tol)
        if reason is not None:
            _refuse(candidate, ssm, tol)
            return candidate, reason
    raise ValueError(_nobody(ssm, tol))


def _nobody(ssm: StateSpaceModel, tol: float) -> str:
    """Why, by the engines that know the traits of the model."""
    causes = [
        f'"{name}": {kind().refusal(ssm, tol)}'
        for name, kind in ENGINES.items()
        if ssm.traits and not ssm.traits - kind.traits
    ]
    why = f" ({'; '.join(causes)})" if causes else ""
    return f"no engine serves this model{why}; a particle filter may"


def _refuse(engine: AbstractEngine, ssm: StateSpaceModel, tol: float) -> None:
    cause = engine.obstacle(ssm, tol)
    if cause is None:
        return
    others = [
        f'"{name}"'
        for name, kind in ENGINES.items()
        if name != engine.name and kind().obstacle(ssm, tol) is None
    ]
    remedy = f". These can: {', '.join(others)}" if others else ""
    raise ValueError(f'engine "{engine.name}" cannot serve this model: {cause}{remedy}')


def _check(ssm: object, tol: object) -> None:
    require_x64()
    if not isinstance(ssm, StateSpaceModel):
        raise ValueError(f"ssm must be a StateSpaceModel, got {type(ssm).__name__}")
    if not (isinstance(tol, int | float) and 0 < tol < 2):
        raise ValueError(f"tol must lie in (0, 2), got {tol!r}")
