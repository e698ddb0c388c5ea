"""A learned model: a plan, the tables that fill it, and what was found out on the way."""

import time
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .._checks import require_x64
from .._density.anchors import TensorGrid
from .._density.psd import GaussianPSD
from .._gaussian.quadrature import legendre_rule
from .._statespace.model import Inputs, StateSpaceModel
from .._statespace.pairs import inputs_at, log_transition_pairs
from .contraction import backward_tensor
from .nodes import (
    TransitionTables,
    apply_last_axes,
    fill_prior,
    fill_transition,
    learn_coefficients,
    roots_on,
)
from .plan import Plan, grid_points
from .report import LearnReport
from .sizing import make_plan, resize_plan
from .typical import TypicalPaths, simulate_typical


class Sizing:
    """Whether a plan has been sized by observations; if not, the model that data has led to.

    An object of its own, because a model is frozen and the first data it meets decide.
    """

    def __init__(self, by_observations: bool):
        """Start without a resized model."""
        self.by_observations = by_observations
        self.resized: LearnedModel | None = None
        self.kernels: dict[str, Any] = {}  # of the online filter, compiled for this model


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


@eqx.filter_jit
def _fill(plan: Plan, ssm: StateSpaceModel, time_varying: bool, renormalize: bool):
    prior = fill_prior(plan, ssm)
    if time_varying:
        return prior, None
    return prior, maybe_renormalized(plan, fill_transition(plan, ssm), renormalize)


def learn(
    ssm: StateSpaceModel,
    tol: float = 1e-3,
    *,
    engine: str = "auto",
    observation: str = "each",
    renormalize: bool = False,
    ys=None,
    inputs: Inputs = None,
) -> LearnedModel:
    """Learn Q and the prior as PSD models, sized so that the filter's error stays below `tol`.

    Args:
        ssm: the model.
        tol: total variation error of the filtered densities (int |p - q|, no factor 1/2), and
            error of each log-likelihood increment.
        engine: "nodes", quadrature nodes and positive weights, which "auto" chooses; or "closed",
            error functions on grid midpoints and no quadrature, for d <= 2 (slower).
        observation: "each" fits sqrt G(., y) for every observation when it comes.
        renormalize: divide Q(u, .) by its mass on the box. By default the mass that leaves the box
            is measured and reported, and lowers the likelihood.
        ys: typical observations (T, p), by which the nodes are sized; without them the model's own
            simulations, if it can be simulated, or the first data that are filtered.
        inputs: typical inputs, for models that take them.
    """
    require_x64()
    if not isinstance(ssm, StateSpaceModel):
        raise ValueError(f"ssm must be a StateSpaceModel, got {type(ssm).__name__}")
    if not (isinstance(tol, int | float) and 0 < tol < 2):
        raise ValueError(f"tol must lie in (0, 2), got {tol!r}")
    if engine not in ("auto", "nodes", "closed"):
        raise ValueError(f'engine must be "auto", "nodes" or "closed", got {engine!r}')
    if observation != "each":
        raise ValueError(f'observation must be "each", got {observation!r}')
    if engine == "closed":
        from .closed_plan import learn_closed

        if renormalize:
            raise ValueError('renormalize must be False for engine="closed": no PSD model results')
        return learn_closed(ssm, float(tol), inputs=inputs)  # pyright: ignore[reportReturnType]
    started = time.perf_counter()
    paths = simulate_typical(ssm, inputs=inputs)
    plan = make_plan(ssm, paths, float(tol), inputs)
    model = _build(plan, ssm, renormalize, paths, inputs, started)
    return model if ys is None else resized_by(model, ys, inputs)


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


def resized_by(model: LearnedModel, ys, inputs: Inputs = None) -> LearnedModel:
    """The same model with nodes and anchors of sqrt G sized by these observations.

    A first filter on the plan at hand finds where the states were: its highest node at each time.
    """
    from .run import run_filter

    started = time.perf_counter()
    rough = run_filter(model, ys, inputs=inputs, throw=False, resize=False)
    best = np.argmax(np.asarray(rough.densities), axis=1)
    states = np.asarray(model.plan.node_points())[best]
    seen = np.asarray(rough.series.ys)
    usable = ~np.isnan(seen).any(axis=1) & np.isfinite(seen).all(axis=1)
    if usable.sum() < 3:
        return model
    leak = float(1.0 - np.mean(np.exp(np.minimum(np.asarray(rough.log_kept), 0.0))))
    paths = TypicalPaths(states[None, usable], seen[None, usable], leak)
    plan = resize_plan(model.plan, model.ssm, paths, inputs)
    return _build(plan, model.ssm, model.renormalize, paths, inputs, started)


def fill(plan: Plan, ssm: StateSpaceModel, renormalize: bool):
    """The prior and, for a transition fixed in time, its tables."""
    varying = ssm.is_time_varying
    if ssm.vectorized:
        prior = fill_prior(plan, ssm)
        if varying:
            return prior, None
        return prior, maybe_renormalized(plan, fill_transition(plan, ssm), renormalize)
    return _fill(plan, ssm, varying, renormalize)


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


def one_step_error(
    plan: Plan, ssm: StateSpaceModel, paths: TypicalPaths, inputs: Inputs = None
) -> tuple[float, float]:
    """int |Q - Q^|(u, x) dx from typical states u, the largest; and the largest |a|_1.

    For a transition in factors, the sum of their errors.
    """
    old = paths.states[:, ::3].reshape(-1, ssm.dim)
    old = old[np.linspace(0, len(old) - 1, min(64, len(old))).astype(int)]
    unit = plan.box.to_unit(jnp.asarray(old))
    worst, norm = np.zeros(len(old)), 0.0
    t = 1 if ssm.is_time_varying else None
    row = jax.tree.map(lambda a: a[0], inputs_at(inputs, np.ones(1, dtype=int)))
    for part in plan.transitions:
        rules = [legendre_rule(2 * plan.shape[a]) for a in part.group]
        learned, size = _factor_at(
            plan, part, ssm, unit, row, tuple(jnp.asarray(z) for z, _ in rules), t
        )
        norm = max(norm, float(size))
        points = grid_points(plan.box.keep(part.group), tuple(jnp.asarray(z) for z, _ in rules))
        u = np.repeat(old, len(points), axis=0)
        x = np.tile(np.asarray(points), (len(old), 1))
        logs = log_transition_pairs(ssm, part.group, u, x, np.ones(len(u), dtype=int), inputs)
        width = float(jnp.prod(plan.box.half_width[np.asarray(part.group)]))
        truth = np.exp(logs).reshape(len(old), -1) * width
        weights = np.ones(1)
        for _, w in rules:
            weights = np.multiply.outer(weights, w).ravel()
        worst = worst + np.abs(np.asarray(learned) - truth) @ weights
    return float(np.max(worst)), norm


def _factor_at(plan, part, ssm, unit, row, nodes, t) -> tuple[Array, Array]:
    fn = _factor_values if ssm.vectorized else eqx.filter_jit(_factor_values)
    return fn(plan, part, ssm, unit, row, nodes, t)


def _factor_values(plan, part, ssm, unit, row, nodes, t) -> tuple[Array, Array]:
    """Q^_g(u, x) for scattered u and a grid of x, and |a|_1."""
    coefficients, log_scale = learn_coefficients(plan, part, ssm, t, row)
    at_x = tuple(r.kernel(z) for r, z in zip(part.group_regressions, nodes, strict=True))
    tensor = apply_last_axes(coefficients, at_x)

    def one(z: Array) -> Array:
        values = tensor
        for axis, regression in zip(part.given, part.given_regressions, strict=True):
            values = jnp.tensordot(regression.kernel(z[axis][None])[0], values, axes=1)
        return jnp.square(values).ravel() * jnp.exp(log_scale)

    return jax.lax.map(one, unit), jnp.sum(jnp.abs(coefficients))
