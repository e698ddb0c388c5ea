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

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from .. import _results
from .._checks import Numbers, is_concrete
from .._density.anchors import TensorGrid
from .._density.conversions import change_units
from .._density.psd import GaussianPSD
from .._gaussian.linalg import psd_root, shrink_factor
from .._statespace.model import Inputs, StateSpaceModel
from .filtered import FilterPosterior
from .hosted import fill
from .midpoints import MidpointAxis, Midpoints, transition_table
from .model import LearnedModel, Sizing
from .nodes import TransitionTables, apply_axes, fill_prior, fit_axes, learn_coefficients
from .plan import Plan
from .posterior import AbstractFilterPosterior
from .refine import FineNodes
from .series import as_series
from .step import observation_logs, observation_status

_EMPTY = TransitionTables((), ())


class ClosedModel(eqx.Module):
    """A model learned on one grid per axis; `run` filters with it.

    `root` are the coefficients a of the transition and the log-scale of its square; None if the
    transition varies in time.
    """

    ssm: StateSpaceModel
    plan: Plan
    grid: Midpoints
    prior_root: Float[Array, "..."]
    root: tuple[Float[Array, "m m"], Float[Array, ""]] | None
    table: Float[Array, "n n"] | None  # C, of one coordinate
    report: Any = eqx.field(static=True)

    @staticmethod
    def make(ssm: StateSpaceModel, plan: Plan, report: Any = None) -> "ClosedModel":
        """Fill a plan whose regressions all share their anchors (`shared_plan`)."""
        grid = Midpoints(tuple(MidpointAxis.make(r.anchors, r.precision) for r in plan.prior))
        fill_closed = _fill_closed if ssm.vectorized else eqx.filter_jit(_fill_closed)
        return ClosedModel(ssm, plan, grid, *fill_closed(grid, plan, ssm), report)

    @property
    def dim(self) -> int:
        """Number of coordinates of the state."""
        return self.ssm.dim

    @property
    def tol(self) -> float:
        """The tolerance that was asked for."""
        return self.plan.tol

    @property
    def renormalize(self) -> bool:
        """Never: a transition divided by its mass on the box is no PSD model."""
        return False

    def root_at(self, t: Any = None, inputs: Inputs = None) -> tuple[Array, Array]:
        """a (u anchors, x anchors) and the log-scale of the square, at step t."""
        if self.root is not None:
            return self.root
        return _learn_root(self.plan, self.ssm, t, inputs)

    def on_nodes(self) -> LearnedModel:
        """The same learned densities for the node engine, which also smooths and forecasts."""
        return self._learned(*fill(self.plan, self.ssm, False))

    def _learned(self, prior: Array, tables: TransitionTables | None) -> LearnedModel:
        sizing = Sizing(by_observations=True)
        return LearnedModel(self.ssm, self.plan, prior, tables, False, self.report, sizing)

    def run(
        self,
        ys: Numbers,
        *,
        first: str = "predict",
        inputs: Inputs = None,
        times: Numbers | None = None,
        keep: str = "densities",
        throw: bool = True,
    ) -> "ClosedPosterior":
        """`run_filter` with this engine."""
        from .run import raise_failure

        frame = self._learned(self.prior_root, _EMPTY)
        series, single_hop = as_series(frame, ys, first, inputs, times)
        if keep not in ("densities", "summaries"):
            raise ValueError(f'keep must be "densities" or "summaries", got {keep!r}')
        roots = None
        if self.root is None and self.ssm.vectorized:
            each = [self.root_at(int(t)) for t in np.asarray(series.steps)]
            roots = jax.tree.map(lambda *parts: jnp.stack(parts), *each)
        post = _run(self, series, roots, single_hop, keep == "densities")
        if throw and is_concrete(post.codes):
            raise_failure(np.asarray(post.codes))
        return post


def _learn_root(plan: Plan, ssm: StateSpaceModel, t: Any, inputs: Inputs) -> tuple[Array, Array]:
    tensor, log_scale = learn_coefficients(plan, plan.transitions[0], ssm, t, inputs)
    return tensor.reshape(round(tensor.size**0.5), -1), log_scale


def _fill_closed(
    grid: Midpoints, plan: Plan, ssm: StateSpaceModel
) -> tuple[Array, Any, Array | None]:
    """The prior's root and, unless they vary in time, a and C."""
    prior = fill_prior(plan, ssm)
    prior = prior / jnp.sqrt(grid.mass(grid.multiply_roots(prior, prior), quarter=False))
    if ssm.is_time_varying:
        return prior, None, None
    root = _learn_root(plan, ssm, None, None)
    table = transition_table(grid.axes[0], root[0]) if ssm.dim == 1 else None
    return prior, root, table


class _State(NamedTuple):
    """What goes from step to step; `predicted` and all below belong to the time of the step."""

    means: Float[Array, "..."]  # V of the filtered density
    source: Float[Array, "..."]  # V before the last transition
    predicted: Float[Array, "..."]  # on the half grid, not normalised
    logs: Float[Array, " k"]  # sum of log G of the observations at this time
    log_norm: Float[Array, ""]  # log of what they have divided by so far
    used: Array  # whether there was any


class _Output(NamedTuple):
    log_mass: Float[Array, ""]
    log_kept: Float[Array, ""]
    log_norm: Float[Array, ""]
    seen: Array
    code: Int[Array, ""]
    first: Float[Array, " d"]
    second: Float[Array, "d d"]
    kept: Any  # source, prediction, c, log-scale and whether anything was used


def _predict(model: ClosedModel, grid: Midpoints, root: Any, means: Array) -> Array:
    """int Q^(u, .) pi(u) du on the half grid, from the kernel means of pi."""
    if model.table is not None:
        assert model.root is not None
        return jnp.exp(model.root[1]) * (model.table @ means)
    a, log_scale = root
    return jnp.exp(log_scale) * grid.collapse(a.T @ grid.gram(means) @ a)


def _observe(model: ClosedModel, grid: Midpoints, predicted: Array, logs: Array):
    """c and peak of G^ = (k . c)^2 exp(peak); pG^ exp(-peak) on the quarter grid; its mass.

    Last, whether the mass stands above the rounding of the signed sum that it is.
    """
    peak = jax.lax.stop_gradient(jnp.max(logs))
    peak = jnp.where(jnp.isfinite(peak), peak, 0.0)
    roots = jnp.exp(0.5 * (logs - peak))
    tensor = roots.reshape(tuple(r.nodes.shape[0] for r in model.plan.observation))
    c = fit_axes(tensor, model.plan.observation)
    joint = grid.multiply(predicted, grid.multiply_roots(c, c))
    mass = grid.mass(joint, quarter=True)
    size = grid.mass(jnp.abs(joint), quarter=True)
    clear = mass * model.tol > _ROUNDING * size
    return c, peak, joint, mass, clear


# Rounding of Z as a share of the sum of its absolute terms, a guess on the safe side of eps.
_ROUNDING = 1e-14


def _step(model: ClosedModel, grid: Midpoints, single_hop: bool, keep: bool, state: _State, xs):
    root, logs, missing, code, hop = xs
    moved = hop > 0
    source = state.means
    if not single_hop:

        def hop_once(_: Any, v: Array) -> Array:
            return grid.means(_predict(model, grid, root, v), quarter=False)

        source = jax.lax.fori_loop(0, hop - 1, hop_once, source)
    source = jnp.where(moved, source, state.source)
    predicted = jnp.where(moved, _predict(model, grid, root, source), state.predicted)
    kept = grid.mass(predicted, quarter=False)
    safe_kept = jnp.where(kept > 0, kept, 1.0)
    before = jnp.where(moved, 0.0, state.logs)
    used_before = state.used & ~moved
    total = before + jnp.where(missing, 0.0, logs)
    c, peak, joint, mass, clear = _observe(model, grid, predicted, total)
    good = (mass > 0) & jnp.isfinite(mass)
    seen = good & ~missing
    used = used_before | seen
    safe = jnp.where(good, mass, 1.0)
    # Several observations at one time share one G^: each is worth what the whole gains by it.
    norm = jnp.where(seen | used_before, jnp.log(safe) + peak, jnp.log(safe_kept))
    already = jnp.where(moved, 0.0, state.log_norm)
    norm = jnp.where(good | missing, norm, already)
    code = jnp.where(clear | missing | (code != _results.OK), code, _results.UNRESOLVED)
    code = jnp.where(good | missing, code, _results.NO_MASS)
    scale = jnp.where(used, -jnp.log(safe), -jnp.log(safe_kept))
    factor = jnp.exp(scale)
    means = factor * jnp.where(
        used, grid.means(joint, quarter=True), grid.means(predicted, quarter=False)
    )
    of_joint, of_predicted = (
        grid.moments(joint, quarter=True),
        grid.moments(predicted, quarter=False),
    )
    first, second = jax.tree.map(
        lambda a, b: factor * jnp.where(used, a, b), of_joint, of_predicted
    )
    out = _Output(
        log_mass=jnp.where(seen, norm - already, jnp.where(missing, 0.0, -jnp.inf)),
        log_kept=jnp.where(moved, jnp.log(safe_kept), 0.0),
        log_norm=norm,
        seen=seen,
        code=code,
        first=first,
        second=second,
        kept=(source, predicted, c, scale, used) if keep else None,
    )
    total = jnp.where(good | missing, total, before)
    return _State(means, source, predicted, total, norm, used), out


@eqx.filter_jit
def _run(model: ClosedModel, series: Any, roots: Any, single_hop: bool, keep: bool):
    grid = model.grid
    prior = grid.multiply_roots(model.prior_root, model.prior_root)
    start_means = grid.means(prior, quarter=False)
    num = model.plan.training_points().shape[0]
    start = _State(
        start_means, start_means, prior, jnp.zeros(num), jnp.zeros(()), jnp.zeros((), bool)
    )

    def step(state: _State, at):
        y, t, hop, row, given_logs, root = at
        missing, code = observation_status(y)
        logs = given_logs
        if logs is None:
            # A gap must not put NaN into derivatives: any number in its place serves.
            safe = jnp.where(missing, 0.0, y)
            logs = observation_logs(model, safe, t, row, series.partly)  # pyright: ignore
        logs = jnp.where(jnp.isnan(logs), -jnp.inf, logs)
        root = model.root_at(t, row) if root is None else root
        return _step(model, grid, single_hop, keep, state, (root, logs, missing, code, hop))

    xs = (series.ys, series.steps, series.hops, series.rows, series.logs, roots)
    _, out = jax.lax.scan(step, start, xs)
    box = model.plan.box
    spread = out.second - out.first[:, :, None] * out.first[:, None, :]
    kept = out.kept if keep else (None,) * 5
    return ClosedPosterior(
        model=model,
        series=series,
        log_likelihoods=out.log_mass,
        mean=box.center[None, :] + box.half_width[None, :] * out.first,
        covariance=spread * jnp.outer(box.half_width, box.half_width)[None],
        codes=out.code,
        log_kept=out.log_kept,
        log_normalizers=out.log_kept,
        seen=out.seen,
        sources=kept[0],
        predictions=kept[1],
        coefficients=kept[2],
        log_scales=kept[3],
        used=kept[4],
    )


@eqx.filter_jit
def _expand(model: ClosedModel, root: Any, means: Array, c: Array | None, log_scale: Array):
    """[k' S k] (k . c)^2 in user units; the prior in place of S if there is no root."""
    grid, box = model.grid, model.plan.box
    precision = jnp.stack([axis.precision for axis in grid.axes])
    points = TensorGrid([axis.anchors for axis in grid.axes])
    factor = model.prior_root.reshape(-1, 1)
    if root is not None:
        factor = shrink_factor(root[0].T @ psd_root(grid.gram(means)))
        log_scale = log_scale + root[1]
    if c is not None:
        columns = jax.vmap(lambda column: grid.multiply_roots(column.reshape(grid.shape), c))(
            factor.T
        )
        factor = columns.reshape(columns.shape[0], -1).T
        points, precision = TensorGrid([axis.half for axis in grid.axes]), 2 * precision
    unit = GaussianPSD(points, factor, precision, log_scale)
    return change_units(unit, box.center, box.half_width)


class ClosedPosterior(AbstractFilterPosterior):
    """p(x_t | y_1 ... y_t) for t = 1 ... T, as `FilterPosterior` has it."""

    model: ClosedModel
    series: Any
    log_likelihoods: Float[Array, " t"]
    mean: Float[Array, "t d"]
    covariance: Float[Array, "t d d"]
    codes: Int[Array, " t"]
    log_kept: Float[Array, " t"]
    log_normalizers: Float[Array, " t"]
    seen: Array
    sources: Float[Array, "t ..."] | None  # V before the last transition
    predictions: Float[Array, "t ..."] | None  # on the half grid, not normalised
    coefficients: Float[Array, "t ..."] | None  # c
    log_scales: Float[Array, " t"] | None
    used: Array | None  # whether the density has a factor (k . c)^2

    def _kept(self) -> tuple[Array, ...]:
        kept = (self.sources, self.predictions, self.coefficients, self.log_scales, self.used)
        arrays = tuple(a for a in kept if a is not None)
        if len(arrays) < len(kept):
            raise ValueError('this needs the densities: filter with keep="densities"')
        return arrays

    def _root(self, t: Any, row: Any) -> tuple[Array, Array]:
        return self.model.root_at(int(t) if self.model.ssm.vectorized else t, row)

    def _values_on(self, fine: FineNodes) -> Float[Array, "t n"]:
        _, *kept = self._kept()
        grid = self.model.grid
        kernels = tuple(
            r.kernel(z) for r, z in zip(self.model.plan.observation, fine.nodes, strict=True)
        )

        def one(xs: Any) -> Array:
            predicted, c, log_scale, used = xs
            # A signed sum: rounding can leave it below zero where the density vanishes.
            values = jnp.maximum(grid.values(predicted, fine.nodes), 0.0)
            likelihood = jnp.where(used, jnp.square(apply_axes(c, kernels)), 1.0)
            return (values * likelihood * jnp.exp(log_scale)).ravel()

        return jax.lax.map(one, tuple(kept))

    def on_nodes(self) -> FilterPosterior:
        """The same learned densities filtered by the node engine."""
        from .run import filter_series

        hops = self.series.hops
        single_hop = is_concrete(hops) and bool(np.all(np.asarray(hops) <= 1))
        return filter_series(self.model.on_nodes(), self.series, single_hop, True)

    def density(self, t: int) -> GaussianPSD:
        """The filtered density at index t in user units: order 2 m - 1 per axis, exactly.

        The root of S times k . c is a sum on the half grid, column by column.
        """
        sources, _, coefficients, log_scales, used = self._kept()
        num = sources.shape[0]
        if not -num <= t < num:
            raise ValueError(f"t must lie in 0..{num - 1}, got {t}")
        t = t % num
        row = None if self.series.rows is None else jax.tree.map(lambda a: a[t], self.series.rows)
        moved = int(self.series.steps[t]) > 0
        root = self._root(self.series.steps[t], row) if moved else None
        c = coefficients[t] if bool(used[t]) else None
        return _expand(self.model, root, sources[t], c, log_scales[t])
