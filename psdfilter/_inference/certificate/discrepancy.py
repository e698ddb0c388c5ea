"""How far a learned filter is from its model, measured on points between and beyond the nodes.

All in unit coordinates (-1, 1)^d. The exact filter is that of the model on its box,

    pi_n = R_n pi_{n-1} / mass,    R_n pi(x) = G_n(x) int_box Q(u, x) pi(u) du,

with Q as it is, or divided by its mass on the box if the model was learned with `renormalize`.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..._statespace.functions import Inputs, Time
from ..._statespace.model import log_prior_table
from ..._statespace.pairs import log_observation_pairs, log_transition_pairs
from ..nodes.filled import Filled
from ..nodes.filtered import FilteredLaws, observation_fits
from ..nodes.refine import FineNodes
from ..nodes.step import series_logs
from ..numerics.grids import apply_axes, axis_kernel, flat_weights, host_points
from ..series import Series
from ..sizing.grading import finer_rule
from ..sizing.plan import AxisRegression, TransitionPlan
from ..sizing.tables import learn_coefficients
from .hilbert import hilbert_distance

# Sup norms on a grid are too small, minima too large: by less than these factors.
SUP_MARGIN, MIN_MARGIN = 1.25, 1.05
# Entries of one block of Q(u, x).
_BLOCK = 4_000_000

Values = Float[np.ndarray, "t n"]
Axes = Sequence[Array | np.ndarray]  # of unit coordinates, one array each


class Step(NamedTuple):
    """Which transition: its time and its inputs, as a table of one row."""

    time: int
    inputs: Inputs
    given: tuple[Time, Inputs]  # as the recursion sees them


# For densities that do not vary in time, any step will do.
NO_STEP = Step(1, None, (None, None))


def step_of(series: Series, i: int) -> Step:
    """The transition into entry i of a series, and its observation."""
    row = series.row(i)
    inputs = jax.tree.map(lambda a: np.asarray(a)[None], row)
    return Step(int(series.steps[i]), inputs, (series.steps[i], row))


def dense_nodes(model: Filled, factor: float, least: int = 0) -> FineNodes:
    """`factor` times the recursion's Gauss-Legendre nodes, and the faces of the box at weight 0."""
    nodes, weights = [], []
    for inner, shares in zip(model.plan.nodes, model.plan.weights, strict=True):
        finer = max(least, int(np.ceil(factor * len(inner))))
        z, w = finer_rule(np.asarray(inner), np.asarray(shares), finer)
        nodes.append(np.concatenate([[-1.0], z, [1.0]]))
        weights.append(np.concatenate([[0.0], w, [0.0]]))
    return FineNodes(tuple(nodes), tuple(weights))


def _evaluate(
    tensor: np.ndarray, regressions: Sequence[AxisRegression], axes: Axes, at: int
) -> np.ndarray:
    """Kernels of regressions applied to the axes of a tensor, from axis `at` on."""
    pairs = zip(regressions, axes, strict=True)
    kernels = [axis_kernel(r.anchors, r.precision, z, np) for r, z in pairs]
    return apply_axes(tensor, kernels, at, np)


@dataclass(frozen=True)
class Pushed:
    """Measures pushed through one transition, and what was seen of Q(u, x) on the way."""

    exact: Values  # int Q(u, x) source(du)
    learned: Values  # int Q^(u, x) source(du)
    kept: Float[np.ndarray, " s"]  # mass that stays on the box, before any renormalisation
    gap: float  # sup |Q - Q^|
    peak: float  # sup Q
    row_mass: float  # sup_u int Q(u, x) dx
    log_low: Float[np.ndarray, " n"]  # log min_u Q(u, x)
    log_high: Float[np.ndarray, " n"]


def _coefficients(model: Filled, t, row) -> list[tuple[Array, Array]]:
    return [learn_coefficients(model.plan, p, model.ssm, t, row) for p in model.plan.transitions]


_coefficients_jit = eqx.filter_jit(_coefficients)


def _learned_factor(
    model: Filled,
    part: TransitionPlan,
    fit: tuple[Array, Array],
    u_axes: Axes,
    x_axes: Axes,
) -> Float[np.ndarray, "m k"]:
    """Q^_g for u on a tensor grid and x_g on another."""
    plan = model.plan
    rows = _evaluate(np.asarray(fit[0]), part.given_regressions, [u_axes[a] for a in part.given], 0)

    def squares(axes: Axes) -> np.ndarray:
        chosen = [axes[a] for a in part.group]
        roots = _evaluate(rows, part.group_regressions, chosen, len(part.given))
        return np.square(roots).reshape(*roots.shape[: len(part.given)], -1) * np.exp(fit[1])

    values = squares(x_axes)
    if model.renormalize:
        # As the recursion does it, by its own quadrature.
        weights = flat_weights([plan.weights[a] for a in part.group], np)
        values = values / (squares(plan.nodes) @ weights)[..., None]
    sizes = tuple(len(z) for z in u_axes)
    lead = tuple(n if a in part.given else 1 for a, n in enumerate(sizes))
    columns = values.shape[-1]
    full = np.broadcast_to(values.reshape(*lead, columns), (*sizes, columns))
    return full.reshape(-1, columns)


def factor_tables(
    model: Filled, u_axes: Axes, x: FineNodes, step: Step = NO_STEP
) -> tuple[list[np.ndarray], list[np.ndarray], list[np.ndarray]]:
    """log Q_g, Q^_g, (m, n_g) each, and the masses of the true factors before renormalisation."""
    fits = (_coefficients if model.ssm.vectorized else _coefficients_jit)(model, *step.given)
    box, u = model.plan.box, host_points(model.plan.box, u_axes)
    logs, learned, masses = [], [], []
    for part, fit in zip(model.plan.transitions, fits, strict=True):
        group = box.keep(part.group)
        points = host_points(group, [x.nodes[a] for a in part.group])
        old, new = np.repeat(u, len(points), axis=0), np.tile(points, (len(u), 1))
        time = np.full(len(old), step.time)
        table = log_transition_pairs(model.ssm, part.group, old, new, time, step.inputs)
        table = table.reshape(len(u), -1) + np.sum(np.log(np.asarray(group.half_width)))
        mass = np.exp(table) @ flat_weights([x.weights[a] for a in part.group], np)
        if model.renormalize:
            table = table - np.log(np.where(mass > 0, mass, 1.0))[:, None]
        logs.append(table)
        masses.append(mass)
        learned.append(_learned_factor(model, part, fit, u_axes, x.nodes))
    return logs, learned, masses


def combine_factors(tables: list[np.ndarray], ufunc: np.ufunc) -> np.ndarray:
    """(m, n_1 n_2 ...): all x from the axes of the factors, first axis slowest."""
    total = tables[0]
    for table in tables[1:]:
        total = ufunc(total[:, :, None], table[:, None, :]).reshape(len(total), -1)
    return total


def _blocks(fine: FineNodes) -> Iterator[tuple[Axes, slice]]:
    """The dense nodes u in tensor grids, by slices of the first axis, and where they lie."""
    first, *others = fine.nodes
    rest = prod(fine.shape[1:])
    size = max(1, _BLOCK // (rest * prod(fine.shape)))
    for start in range(0, len(first), size):
        part = np.asarray(first[start : start + size])
        yield (part, *others), slice(start * rest, (start + len(part)) * rest)


def push(model: Filled, fine: FineNodes, sources: Values, step: Step = NO_STEP) -> Pushed:
    """Measures (s, n), masses at the dense nodes, through Q and Q^."""
    num = prod(fine.shape)
    exact, learned = np.zeros((len(sources), num)), np.zeros((len(sources), num))
    low, high = np.full(num, np.inf), np.full(num, -np.inf)
    kept, gap, row_mass = np.zeros(len(sources)), 0.0, 0.0
    weights = flat_weights(fine.weights, np)
    for u_axes, where in _blocks(fine):
        logs, squares, masses = factor_tables(model, u_axes, fine, step)
        log_q = combine_factors(logs, np.add)
        q = combine_factors([np.exp(a) for a in logs], np.multiply)
        fitted = combine_factors(squares, np.multiply)
        part = sources[:, where]
        exact += part @ q
        learned += part @ fitted
        kept += part @ np.prod(masses, axis=0)
        low, high = np.minimum(low, log_q.min(axis=0)), np.maximum(high, log_q.max(axis=0))
        gap = max(gap, float(np.max(np.abs(q - fitted))))
        row_mass = max(row_mass, float(np.max(q @ weights)))
    return Pushed(exact, learned, kept, gap, float(np.exp(high.max())), row_mass, low, high)


@eqx.filter_jit
def _filtered(laws: FilteredLaws, fine: FineNodes) -> tuple[Array, Array, Array]:
    """pi^_t on dense nodes, and G^(., y_t) as coefficients and peaks."""
    fits = observation_fits(laws.model, laws.series, laws.kept.host.logs)
    return (laws.values_on(fine), *fits)


@eqx.filter_jit
def _partly_seen_logs(laws: FilteredLaws, points: Float[Array, "n d"]) -> Float[Array, "t n"]:
    return series_logs(laws.model.ssm, points, laws.series)


def true_observations(laws: FilteredLaws, axes: Axes, peaks: np.ndarray) -> Values:
    """G(x, y_t) exp(-peak_t) on a grid; one where nothing is seen."""
    model, series, seen = laws.model, laws.series, np.asarray(laws.seen)
    points = host_points(model.plan.box, axes)
    if series.partly:
        logs = np.asarray(_partly_seen_logs(laws, jnp.asarray(points)))
    else:
        logs = np.zeros((len(seen), len(points)))
        for i in np.flatnonzero(seen).tolist():
            step = step_of(series, i)
            ys = np.tile(np.asarray(series.ys[i]), (len(points), 1))
            time = np.full(len(points), step.time)
            logs[i] = log_observation_pairs(model.ssm, points, ys, time, step.inputs)
    truth = np.exp(np.where(np.isnan(logs), -np.inf, logs) - peaks[:, None])
    return np.where(seen[:, None], truth, 1.0)


def fitted_observations(laws: FilteredLaws, axes: Axes, coefficients: np.ndarray) -> Values:
    """G^(x, y_t) exp(-peak_t) on a grid; one where nothing is seen."""
    roots = _evaluate(coefficients, laws.model.plan.observation, axes, 1)
    columns = coefficients.shape[laws.model.dim + 1 :]
    squares = np.square(roots).reshape(len(coefficients), -1, *columns)
    if columns:
        squares = squares.sum(axis=-1)
    return np.where(np.asarray(laws.seen)[:, None], squares, 1.0)


def prior_values(model: Filled, fine: FineNodes) -> tuple[np.ndarray, np.ndarray]:
    """The true prior, of mass one on these nodes, and the learned one."""
    points = host_points(model.plan.box, fine.nodes)
    logs = np.asarray(log_prior_table(model.ssm, jnp.asarray(points)))
    truth = np.exp(np.where(np.isnan(logs), -np.inf, logs) - np.nanmax(logs))
    root = _evaluate(np.asarray(model.prior_root), model.plan.prior, fine.nodes, 0)
    return truth / (flat_weights(fine.weights, np) @ truth), np.square(root).ravel()


@dataclass(frozen=True)
class Discrepancy:
    """Everything that is measured, with margins where bounds use it; arrays have T entries.

    Where there is no transition (the first entry, if the prior's state is observed), errors of the
    transition are zero.
    """

    num_points: int
    coefficients: np.ndarray  # of G^(., y_t)
    has_start: bool  # the first entry is the start itself
    start_error: float  # of the prior, after y_0 if that is observed
    prior_error: float
    transition_error: Float[np.ndarray, " t"]
    transition_peak: Float[np.ndarray, " t"]
    observation_error: Float[np.ndarray, " t"]  # relative to sup G(., y_t)
    leak: Float[np.ndarray, " t"]
    sigma: Float[np.ndarray, " t"]
    one_step: Float[np.ndarray, " t"]
    one_step_bound: Float[np.ndarray, " t"]
    hilbert: Float[np.ndarray, " t"]  # distance that a step inherits, after its transition


class _Dense:
    """The filter on dense nodes: what the steps below share."""

    def __init__(self, laws: FilteredLaws, fine: FineNodes):
        self.laws, self.fine, self.model = laws, fine, laws.model
        self.weights = flat_weights(fine.weights, np)
        self.values, self.coefficients, peaks = (np.asarray(a) for a in _filtered(laws, fine))
        self.mass = self.values @ self.weights
        self.truth = true_observations(laws, fine.nodes, peaks)
        self.fitted = fitted_observations(laws, fine.nodes, self.coefficients)
        self.peaks = np.where(np.asarray(laws.seen), peaks, 0.0)
        self.observed = bool(np.asarray(laws.series.hops)[0] == 0)
        exact, learned = prior_values(laws.model, fine)
        self.prior_error = self.distance(learned, exact)
        if self.observed:
            exact = self.normalize(exact * self.truth[0])
            learned = self.values[0]
        self.start_error = self.distance(learned, exact)
        self.start_exact, self.start_learned = exact, self.normalize(learned)
        self.steps = np.arange(1 if self.observed else 0, len(self.values))

    def normalize(self, values: np.ndarray) -> np.ndarray:
        return (
            values / (values @ self.weights)[..., None]
            if values.ndim > 1
            else values / (self.weights @ values)
        )

    def distance(self, learned: np.ndarray, exact: np.ndarray) -> float:
        """int |p - q|, and what p lacks to mass one, so that it holds for p scaled as well."""
        return float(self.weights @ np.abs(learned - exact) + abs(self.weights @ learned - 1.0))

    def before(self, first: np.ndarray, rest: np.ndarray) -> Values:
        """What each step starts from: `first`, then all of `rest` but the last."""
        return np.concatenate([first[None], rest[:-1]])

    def pushes(self) -> Iterator[tuple[int, Pushed, np.ndarray, np.ndarray, np.ndarray]]:
        """For each step: its index, the transition, Q pi^, Q^ pi^ and Q rho, rho the exact step."""
        mine = self.before(self.start_learned, self.normalize(self.values[self.steps]))
        if self.model.tables is not None:
            whole = push(self.model, self.fine, mine * self.weights)
            exact = self.normalize(whole.exact * self.truth[self.steps])
            theirs = self.before(self.start_exact, exact)
            again = push(self.model, self.fine, theirs * self.weights).exact
            for k, i in enumerate(self.steps.tolist()):
                one = replace(whole, kept=whole.kept[k : k + 1])
                yield i, one, whole.exact[k], whole.learned[k], again[k]
            return
        theirs = self.start_exact
        for k, i in enumerate(self.steps.tolist()):
            sources = np.stack([mine[k], theirs]) * self.weights
            both = push(self.model, self.fine, sources, step_of(self.laws.series, i))
            yield i, both, both.exact[0], both.learned[0], both.exact[1]
            theirs = self.normalize(both.exact[0] * self.truth[i])

    def one_step_bound(self, i: int, seen: Pushed, learned: np.ndarray, gap: float) -> float:
        """2 / int min_u Q G (sup |G - G^| + sup |Q - Q^| int G^ + quadrature), with margins."""
        room = self.weights @ (np.exp(seen.log_low) * self.truth[i]) / MIN_MARGIN
        scale = np.exp(float(self.laws.kept.log_norms[i]) - self.peaks[i])
        # The recursion's own quadrature, against that of the dense nodes.
        quadrature = self.weights @ np.abs(scale * self.values[i] - self.fitted[i] * learned)
        total = SUP_MARGIN * (seen.row_mass * gap + seen.gap * (self.weights @ self.fitted[i]))
        lost = abs(self.mass[i] - 1.0)
        return lost + (min(2.0, 2.0 * (total + quadrature) / room) if room > 0 else 2.0)


def measure(laws: FilteredLaws, fine: FineNodes) -> Discrepancy:
    """Everything a certificate is made of, on dense nodes."""
    dense = _Dense(laws, fine)
    num = len(dense.values)
    # Log-ratios of numbers near underflow are noise.
    tiny = 1e-280
    out = {name: np.zeros(num) for name in ("gap", "peak", "leak", "step", "bound", "hilbert")}
    sigma = np.ones(num)
    sup_g = np.max(np.abs(dense.truth - dense.fitted), axis=1)
    for i, seen, exact, learned, theirs in dense.pushes():
        out["gap"][i], out["peak"][i] = seen.gap, seen.peak
        out["leak"][i] = max(0.0, 1.0 - seen.kept[0])
        with np.errstate(invalid="ignore"):
            least = np.fmin.reduce(seen.log_low - seen.log_high)
        sigma[i] = np.sqrt(np.exp(least) / MIN_MARGIN)
        step = dense.normalize(exact * dense.truth[i])
        out["step"][i] = dense.distance(dense.values[i], step)
        out["bound"][i] = dense.one_step_bound(i, seen, learned, sup_g[i])
        out["hilbert"][i] = hilbert_distance(
            *np.where(np.minimum(exact, theirs) > tiny, (exact, theirs), 0.0)
        )
    return Discrepancy(
        num_points=len(dense.weights),
        coefficients=dense.coefficients,
        has_start=dense.observed,
        start_error=dense.start_error,
        prior_error=dense.prior_error,
        transition_error=out["gap"],
        transition_peak=out["peak"],
        observation_error=sup_g / np.max(dense.truth, axis=1),
        leak=out["leak"],
        sigma=sigma,
        one_step=out["step"],
        one_step_bound=out["bound"],
        hilbert=out["hilbert"],
    )
