"""The filter in closed form: error functions on one grid of anchors, no quadrature.

The anchors of u and x of Q^ and those of G^ and of the prior are one regular grid per axis, with
one precision (midpoints.py). With a the coefficients of Q^ = (k(u)' a k(x))^2,

    V_s = int k_{2 eta}(u, s) pi_{t-1}(u) du              kernel means, all a step needs to know
    W_pp' = k_{eta/2}(u_p, u_p') V_{p+p'},  S = a' W a    predicted: k(x)' S k(x), order m
    Ĝ(x, y_t) = (k(x) . c)^2 exp(peak)
    pi_t = [k' S k] (k . c)^2 / Z_t                       a sum on the quarter grid; V from it

so that a step is a few products with fixed matrices. In one coordinate S is never formed: its sums
on the half grid are C V with a table C fixed in time.
"""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from ... import _results
from ..._density.anchors import TensorGrid
from ..._density.conversions import change_units
from ..._density.psd import GaussianPSD
from ..._gaussian.linalg import psd_root, shrink_factor
from ..._statespace.functions import Time
from ..._statespace.model import Inputs, StateSpaceModel
from ..nodes.host import Tabulated
from ..nodes.step import logs_at, observation_status
from ..numerics.grids import finite_peak
from ..series import Series
from ..sizing.plan import Plan
from ..sizing.tables import fill_prior, fit_axes, learn_coefficients
from .midpoints import MidpointAxis, Midpoints, transition_table

# Rounding of Z as a share of the sum of its absolute terms, a guess on the safe side of eps.
_ROUNDING = 1e-14

Root = tuple[Float[Array, "m m"], Float[Array, ""]]


class Grid(eqx.Module):
    """A plan whose regressions all share their anchors, filled.

    `root` are the coefficients a of the transition and the log-scale of its square; None if the
    transition varies in time.
    """

    ssm: StateSpaceModel
    plan: Plan
    midpoints: Midpoints
    prior_root: Float[Array, "..."]
    root: Root | None
    table: Float[Array, "n n"] | None  # C, of one coordinate

    @staticmethod
    def of(ssm: StateSpaceModel, plan: Plan) -> "Grid":
        """Fill a plan made by `shared_plan`."""
        axes = tuple(MidpointAxis.make(r.anchors, r.precision) for r in plan.prior)
        midpoints = Midpoints(axes)
        fill = _fill if ssm.vectorized else eqx.filter_jit(_fill)
        return Grid(ssm, plan, midpoints, *fill(midpoints, plan, ssm))

    def root_at(self, t: Time = None, inputs: Inputs = None) -> Root:
        """a (u anchors, x anchors) and the log-scale of the square, at step t."""
        if self.root is not None:
            return self.root
        return _learn_root(self.plan, self.ssm, t, inputs)

    def roots_for(self, series: Series) -> Root | None:
        """Those of a NumPy model that varies in time, stacked: made before the scan."""
        if self.root is not None or not self.ssm.vectorized:
            return None
        each = [self.root_at(int(t)) for t in np.asarray(series.steps)]
        return jax.tree.map(lambda *parts: jnp.stack(parts), *each)


def _learn_root(plan: Plan, ssm: StateSpaceModel, t: Time, inputs: Inputs) -> Root:
    tensor, log_scale = learn_coefficients(plan, plan.transitions[0], ssm, t, inputs)
    return tensor.reshape(round(tensor.size**0.5), -1), log_scale


def _fill(
    grid: Midpoints, plan: Plan, ssm: StateSpaceModel
) -> tuple[Array, Root | None, Array | None]:
    """The prior's root and, unless they vary in time, a and C."""
    prior = fill_prior(plan, ssm)
    prior = prior / jnp.sqrt(grid.mass(grid.multiply_roots(prior, prior), quarter=False))
    if ssm.is_time_varying:
        return prior, None, None
    root = _learn_root(plan, ssm, None, None)
    table = transition_table(grid.axes[0], root[0]) if ssm.dim == 1 else None
    return prior, root, table


class ClosedLaw(NamedTuple):
    """A law in closed form; `predicted` and all below belong to the time since the last transition.

    [k' S k] (k . c)^2 with S from the kernel means of `source` and c from `logs`.
    """

    means: Float[Array, "..."]  # V of the law, of mass one after an observation
    source: Float[Array, "..."]  # V before the last transition
    predicted: Float[Array, "..."]  # on the half grid, not normalised
    logs: Float[Array, " k"]  # sum of log G of the observations at this time
    log_norm: Float[Array, ""]  # log of what they have divided by so far
    used: Bool[Array, ""]  # whether there was any


class Update(NamedTuple):
    """What an observation has done, beside the law."""

    log_mass: Float[Array, ""]
    seen: Bool[Array, ""]
    code: Int[Array, ""]
    first: Float[Array, " d"]  # E z
    second: Float[Array, "d d"]  # E z z'
    c: Float[Array, "..."]  # of G^ = (k . c)^2
    log_scale: Float[Array, ""]  # of the density [k' S k] (k . c)^2


def start(grid: Grid) -> ClosedLaw:
    """The prior."""
    prior = grid.midpoints.multiply_roots(grid.prior_root, grid.prior_root)
    means = grid.midpoints.means(prior, quarter=False)
    num = grid.plan.training_points().shape[0]
    return ClosedLaw(means, means, prior, jnp.zeros(num), jnp.zeros(()), jnp.zeros((), bool))


def _apply(grid: Grid, root: Root, means: Array) -> Array:
    """int Q^(u, .) pi(u) du on the half grid, from the kernel means of pi."""
    if grid.table is not None:
        assert grid.root is not None
        return jnp.exp(grid.root[1]) * (grid.table @ means)
    a, log_scale = root
    weights = a.T @ grid.midpoints.gram(means) @ a
    return jnp.exp(log_scale) * grid.midpoints.collapse(weights)


def predict(grid: Grid, law: ClosedLaw, root: Root) -> tuple[ClosedLaw, Float[Array, ""]]:
    """One transition, and log of the mass on the box: what left it is missing until an update."""
    predicted = _apply(grid, root, law.means)
    kept = grid.midpoints.mass(predicted, quarter=False)
    safe = jnp.where(kept > 0, kept, 1.0)
    means = grid.midpoints.means(predicted, quarter=False)
    nothing = jnp.zeros(())
    new = ClosedLaw(
        means, law.means, predicted, jnp.zeros_like(law.logs), nothing, jnp.zeros((), bool)
    )
    return new, jnp.log(safe)


def _observe(grid: Grid, predicted: Array, logs: Array) -> tuple[Array, Array, Array, Array, Array]:
    """c and peak of G^ = (k . c)^2 exp(peak); pG^ exp(-peak) on the quarter grid; its mass.

    Last, whether the mass stands above the rounding of the signed sum that it is.
    """
    midpoints, plan = grid.midpoints, grid.plan
    peak = jax.lax.stop_gradient(finite_peak(logs))
    roots = jnp.exp(0.5 * (logs - peak))
    tensor = roots.reshape(tuple(r.nodes.shape[0] for r in plan.observation))
    c = fit_axes(tensor, plan.observation)
    joint = midpoints.multiply(predicted, midpoints.multiply_roots(c, c))
    mass = midpoints.mass(joint, quarter=True)
    size = midpoints.mass(jnp.abs(joint), quarter=True)
    return c, peak, joint, mass, mass * plan.tol > _ROUNDING * size


def update(
    grid: Grid, law: ClosedLaw, logs: Float[Array, " k"], y: Float[Array, " p"]
) -> tuple[ClosedLaw, Update]:
    """Bayes' rule with log G at the training points.

    Several observations at one time share one G^: each is worth what the whole gains by it.
    """
    midpoints, predicted = grid.midpoints, law.predicted
    missing, code = observation_status(y)
    kept = midpoints.mass(predicted, quarter=False)
    safe_kept = jnp.where(kept > 0, kept, 1.0)
    total = law.logs + jnp.where(missing, 0.0, logs)
    c, peak, joint, mass, clear = _observe(grid, predicted, total)
    good = (mass > 0) & jnp.isfinite(mass)
    seen = good & ~missing
    used = law.used | seen
    safe = jnp.where(good, mass, 1.0)
    norm = jnp.where(used, jnp.log(safe) + peak, jnp.log(safe_kept))
    norm = jnp.where(good | missing, norm, law.log_norm)
    code = jnp.where(clear | missing | (code != _results.OK), code, _results.UNRESOLVED)
    code = jnp.where(good | missing, code, _results.NO_MASS)
    scale = jnp.where(used, -jnp.log(safe), -jnp.log(safe_kept))
    factor = jnp.exp(scale)
    means = factor * jnp.where(
        used, midpoints.means(joint, quarter=True), midpoints.means(predicted, quarter=False)
    )
    of_joint = midpoints.moments(joint, quarter=True)
    of_predicted = midpoints.moments(predicted, quarter=False)
    first, second = jax.tree.map(
        lambda a, b: factor * jnp.where(used, a, b), of_joint, of_predicted
    )
    log_mass = jnp.where(seen, norm - law.log_norm, jnp.where(missing, 0.0, -jnp.inf))
    total = jnp.where(good | missing, total, law.logs)
    new = ClosedLaw(means, law.source, predicted, total, norm, used)
    return new, Update(log_mass, seen, code, first, second, c, scale)


class KeptSteps(NamedTuple):
    """What is kept of every step: the density [k' S k] (k . c)^2 exp(log_scale)."""

    sources: Float[Array, "t ..."]
    predictions: Float[Array, "t ..."]
    coefficients: Float[Array, "t ..."]
    log_scales: Float[Array, " t"]
    used: Bool[Array, " t"]


class Run(NamedTuple):
    """A filtered series."""

    last: ClosedLaw
    updates: Update
    log_kept: Float[Array, " t"]
    kept: KeptSteps | None


def clean_logs(
    grid: Grid, y: Float[Array, " p"], t: Time, row: Inputs, partly: bool
) -> Float[Array, " k"]:
    """log G(., y) at the training points, NaN as nothing."""
    # A gap must not put NaN into derivatives: any number in its place serves.
    safe = jnp.where(observation_status(y)[0], 0.0, y)
    logs = logs_at(grid.ssm, grid.plan.training_points(), safe, t, row, partly)
    return jnp.where(jnp.isnan(logs), -jnp.inf, logs)


@eqx.filter_jit
def run(grid: Grid, series: Series, host: Tabulated, roots: Root | None, keep: bool) -> Run:
    """All steps in one scan; `roots` are those of a NumPy model that varies in time."""

    def step(law: ClosedLaw, at: tuple[Array, Array, Array, Inputs, Array | None, Root | None]):
        y, t, hops, row, logs, root = at
        if logs is None:
            logs = clean_logs(grid, y, t, row, series.partly)

        def once(k: Array | int, now: tuple[ClosedLaw, Array]) -> tuple[ClosedLaw, Array]:
            at = grid.root_at(t - hops + 1 + k, row) if root is None else root
            return predict(grid, now[0], at)

        still = law, jnp.zeros(())
        if series.regular:
            moved = once(0, still)
            law, log_kept = jax.tree.map(lambda a, b: jnp.where(hops > 0, a, b), moved, still)
        else:
            law, log_kept = jax.lax.fori_loop(0, hops, once, still)
        law, out = update(grid, law, logs, y)
        kept = None
        if keep:
            kept = KeptSteps(law.source, law.predicted, out.c, out.log_scale, law.used)
        return law, (out, log_kept, kept)

    xs = (jnp.asarray(series.ys), series.steps, series.hops, series.rows, host.logs, roots)
    last, (updates, log_kept, kept) = jax.lax.scan(step, start(grid), xs)
    return Run(last, updates, log_kept, kept)


@eqx.filter_jit
def expand(
    grid: Grid, root: Root | None, source: Array, c: Array | None, log_scale: Array
) -> GaussianPSD:
    """[k' S k] (k . c)^2 in user units; the prior in place of S if there is no root."""
    midpoints, box = grid.midpoints, grid.plan.box
    precision = jnp.stack([axis.precision for axis in midpoints.axes])
    points = TensorGrid([axis.anchors for axis in midpoints.axes])
    factor = grid.prior_root.reshape(-1, 1)
    if root is not None:
        factor = shrink_factor(root[0].T @ psd_root(midpoints.gram(source)))
        log_scale = log_scale + root[1]
    if c is not None:
        columns = jax.vmap(
            lambda column: midpoints.multiply_roots(column.reshape(midpoints.shape), c)
        )(factor.T)
        factor = columns.reshape(columns.shape[0], -1).T
        points = TensorGrid([axis.half for axis in midpoints.axes])
        precision = 2 * precision
    unit = GaussianPSD(points, factor, precision, log_scale)
    return change_units(unit, box.center, box.half_width)
