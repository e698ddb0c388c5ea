"""What can be said about the error of a filter: bounds that hold, estimates that are sharper.

With delta_k = ||pi^_k - R_k pi^_{k-1}||, the distance of each learned step from the exact step off
the same density, and a transition with sigma xi <= Q <= xi / sigma,

    ||pi_n - pi^_n|| <= c tau^{n-1} ||pi_0 - pi^_0|| + delta_n + c sum_{k<n} tau^{n-k-1} delta_k,

tau = (1 - sigma^2) / (1 + sigma^2), c = 2 / (sigma^2 log 3) in the theorem, (sigma^-2 - 1) / 2 when
no step of its proof is rounded up. The first term is what is left of a wrong start, the rest what
the steps add. Everything else here replaces a worst case by something measured.
"""

from dataclasses import dataclass
from math import prod
from typing import NamedTuple

import equinox as eqx
import numpy as np
from jaxtyping import Array, Int

from ... import _results
from ..._checks import is_traced
from ..nodes.filtered import FilteredLaws, observation_fits
from ..numerics.grids import flat_weights
from .accumulation import Split, Times, accumulate, accumulate_hilbert
from .discrepancy import (
    MIN_MARGIN,
    SUP_MARGIN,
    Discrepancy,
    combine_factors,
    dense_nodes,
    factor_tables,
    fitted_observations,
    measure,
    prior_values,
    step_of,
    true_observations,
)
from .hilbert import (
    birkhoff_of,
    log_projective_diameter,
    mixing_birkhoff,
)
from .memory import MAX_MEMORY_WORK, Memory, smoothing_memory

# Dense points per node and axis, by dimension; fewer if there are very many nodes.
_FACTORS = {1: (4.0, 3.0), 2: (2.0, 2.0)}
_LEAST_POINTS = {1: 64, 2: 24}
_MANY_NODES, _MAX_POINTS = 400, 12_000
# Largest number of log-ratios for a projective diameter.
_MAX_RATIOS = 6e8


@dataclass(frozen=True)
class Certificate:
    """Errors of a filter against the filter of its model on the box, int |p - q| for every t.

    Bounds are proved, given the sup norms and minima over the box: those are taken on a dense grid
    and widened by `sup_margin` and `min_margin`. Estimates use integrals on that grid as they are.
    NaN where something was too large to compute; `notes` says what and why. Densities are those of
    unit coordinates, the box being (-1, 1)^d.

    Attributes:
        theorem: bound, with the theorem's constant.
        sharp: bound, with the sharp constant.
        direct: estimate, sharp constant, with `one_step` for the errors of the steps.
        birkhoff: estimate, with measured Hilbert distances and the Birkhoff coefficients `tau`.
        dobrushin: estimate, with Dobrushin coefficients of the smoothing kernels.
        one_step_bound: bound of delta_t from sup norms.
        one_step: delta_t, measured.
        transition_error: sup |Q - Q^|.
        transition_peak: sup Q.
        observation_error: sup_x |G - G^|(x, y_t) / sup_x G(x, y_t).
        prior_error: distance of the learned prior.
        leak: mass that a step sends out of the box; the filter on the box loses it as well.
        sigma: mixing constant of Q.
        tau: Birkhoff coefficient used in `birkhoff`: the larger of those of Q and Q^ at the nodes.
        tau_learned: that of Q^.
        num_points: dense points.
        points_per_node: on each axis.
        renormalized: whether Q is divided by its mass on the box.
        notes: what is missing, and why.
    """

    theorem: Split
    sharp: Split
    direct: Split
    birkhoff: Split
    dobrushin: Split
    one_step_bound: Times
    one_step: Times
    transition_error: Times
    transition_peak: Times
    observation_error: Times
    prior_error: float
    leak: Times
    sigma: Times
    tau: Times
    tau_learned: Times
    num_points: int
    points_per_node: float
    renormalized: bool
    notes: tuple[str, ...]
    sup_margin: float = SUP_MARGIN
    min_margin: float = MIN_MARGIN

    @property
    def bound(self) -> Times:
        """The smallest bound at every t."""
        return np.fmin(self.theorem.total, self.sharp.total)

    @property
    def estimate(self) -> Times:
        """The smallest estimate at every t."""
        both = np.fmin(self.direct.total, self.birkhoff.total)
        return np.fmin(both, self.dobrushin.total)

    def __str__(self) -> str:
        return _describe(self)


def certificate(laws: FilteredLaws, codes: Int[Array, " t"]) -> Certificate:
    """Bounds and estimates of the error of a filter, for every t.

    The error is the distance to the filter of the model restricted to its box. Outside jit only: Q
    is tabulated on dense grids, up to two dimensions. In more, only what is affordable.
    """
    _check(laws, codes)
    model = laws.model
    factors = _FACTORS.get(model.dim)
    if factors is None:
        return _partial(laws, f"a state of {model.dim} dimensions")
    many = model.plan.num_nodes > _MANY_NODES
    factor = factors[1] if many else factors[0]
    fine = dense_nodes(model, factor, _LEAST_POINTS[model.dim])
    if prod(fine.shape) > _MAX_POINTS:
        return _partial(laws, f"{model.plan.num_nodes} nodes")
    found = measure(laws, fine)
    contraction = _contraction(laws, found)
    return _assemble(found, contraction, factor, model.renormalize)


def _check(laws: FilteredLaws, codes: Int[Array, " t"]) -> None:
    if is_traced((laws, codes)):
        raise ValueError("certificate cannot be traced: call it outside jit")
    hops = np.asarray(laws.series.hops)
    if np.any(hops[1:] != 1) or hops[0] > 1:
        raise ValueError(
            "certificate needs one observation after each transition: give times in between as "
            "rows of NaN, and several sensors at one time as one observation"
        )
    failure = _results.first_failure(np.asarray(codes), (_results.NO_MASS,))
    if failure is not None:
        raise ValueError(f"certificate: the filter failed at ys[{failure[0]}], so it has no error")
    if laws.model.ssm.vectorized and laws.model.tables is None:
        raise ValueError(
            "certificate is not available for NumPy models whose transition varies in time"
        )


class _Contraction(NamedTuple):
    """What is read off matrices at the nodes and the faces of the box."""

    tau: Times
    tau_learned: Times
    memory: Memory | None
    notes: tuple[str, ...]


def _contraction(laws: FilteredLaws, found: Discrepancy) -> _Contraction:
    """Birkhoff coefficients for every step, and Dobrushin coefficients between all times."""
    model, num = laws.model, len(found.sigma)
    grid = dense_nodes(model, 1.0)
    points = prod(grid.shape)
    varying = model.tables is None
    work = points**2 * sum(grid.shape if len(model.plan.transitions) > 1 else (points,))
    small = work * (num if varying else 1) <= _MAX_RATIOS
    tau, tau_learned, notes = mixing_birkhoff(found.sigma), np.full(num, np.nan), []
    if not small:
        notes.append("tau is its bound through sigma: too many nodes for a projective diameter")
    if varying and small:
        tables = [
            factor_tables(model, grid.nodes, grid, step_of(laws.series, i)) for i in range(num)
        ]
        pairs = np.asarray([_birkhoff_pair(logs, learned) for logs, learned, _ in tables])
        tau, tau_learned = np.max(pairs, axis=1), pairs[:, 1]
    if varying:
        notes.append("no Dobrushin estimate: the transition varies in time")
        return _Contraction(tau, tau_learned, None, tuple(notes))
    logs, learned, _ = factor_tables(model, grid.nodes, grid)
    if small:
        pair = _birkhoff_pair(logs, learned)
        tau, tau_learned = np.full(num, max(pair)), np.full(num, pair[1])
    if num * float(points) ** 3 > MAX_MEMORY_WORK:
        notes.append(f"no Dobrushin estimate: {num} steps on {points} nodes are too many")
        return _Contraction(tau, tau_learned, None, tuple(notes))
    kernel = combine_factors(learned, np.multiply)
    memory = smoothing_memory(laws, kernel, found.coefficients)
    return _Contraction(tau, tau_learned, memory, tuple(notes))


def _birkhoff_pair(logs: list[np.ndarray], learned: list[np.ndarray]) -> tuple[float, float]:
    """tau of Q and of Q^."""
    with np.errstate(divide="ignore"):
        fitted = [np.log(table) for table in learned]
    return birkhoff_of(log_projective_diameter(logs)), birkhoff_of(log_projective_diameter(fitted))


def _assemble(
    found: Discrepancy, contraction: _Contraction, factor: float, renormalized: bool
) -> Certificate:
    # A transition that hardly mixes has constants beyond all numbers: infinite, and vacuous.
    with np.errstate(divide="ignore", over="ignore"):
        inverse = 1.0 / np.square(found.sigma)
        paper, sharp = 2.0 / np.log(3.0) * inverse, 0.5 * (inverse - 1.0)
    worst = mixing_birkhoff(found.sigma)
    unknown, memory = np.full(len(worst), np.nan), contraction.memory
    forgetting = Split(unknown, unknown)
    if memory is not None:
        forgetting = Split(*memory.errors(found.start_error, found.one_step, found.has_start))

    def through(growth: Times, one_step: Times) -> Split:
        return accumulate(found, growth, worst, one_step, found.start_error)

    return Certificate(
        theorem=through(paper, found.one_step_bound),
        sharp=through(sharp, found.one_step_bound),
        direct=through(sharp, found.one_step),
        birkhoff=accumulate_hilbert(found, contraction.tau),
        dobrushin=forgetting,
        one_step_bound=found.one_step_bound,
        one_step=found.one_step,
        transition_error=found.transition_error,
        transition_peak=found.transition_peak,
        observation_error=found.observation_error,
        prior_error=found.prior_error,
        leak=found.leak,
        sigma=found.sigma,
        tau=contraction.tau,
        tau_learned=contraction.tau_learned,
        num_points=found.num_points,
        points_per_node=factor,
        renormalized=renormalized,
        notes=contraction.notes,
    )


@eqx.filter_jit
def _fits(laws: FilteredLaws):
    return observation_fits(laws.model, laws.series, laws.kept.host.logs)


def _partial(laws: FilteredLaws, what: str) -> Certificate:
    """Errors of the prior and of G^, which need no pairs of points."""
    model = laws.model
    fine = dense_nodes(model, 1.0 if model.dim > 2 else 2.0)
    coefficients, peaks = (np.asarray(a) for a in _fits(laws))
    truth = true_observations(laws, fine.nodes, peaks)
    fitted = fitted_observations(laws, fine.nodes, coefficients)
    exact, learned = prior_values(model, fine)
    weights = flat_weights(fine.weights, np)
    unknown = np.full(laws.series.num, np.nan)
    nothing = Split(unknown, unknown)
    note = (
        f"no bounds and no estimates of the filter: Q(u, x) is not tabulated for {what}; see "
        "post.error_estimate"
    )
    return Certificate(
        **dict.fromkeys(("theorem", "sharp", "direct", "birkhoff", "dobrushin"), nothing),
        one_step_bound=unknown,
        one_step=unknown,
        transition_error=unknown,
        transition_peak=unknown,
        observation_error=np.max(np.abs(truth - fitted), axis=1) / np.max(truth, axis=1),
        prior_error=float(weights @ np.abs(exact - learned)),
        leak=-np.expm1(np.asarray(laws.log_kept)),
        sigma=unknown,
        tau=unknown,
        tau_learned=unknown,
        num_points=len(weights),
        points_per_node=1.0 if model.dim > 2 else 2.0,
        renormalized=model.renormalize,
        notes=(note,),
    )


def _describe(c: Certificate) -> str:
    """A table: what was measured, then bounds and estimates, each said to be one."""
    law = "divided by its mass there" if c.renormalized else "as it is"

    def row(name: str, values, kind: str, worst=np.nanmax) -> str:
        values = np.asarray(values)
        if np.all(np.isnan(values)):
            return f"  {name:<34}{'':>11}{'':>11}  not computed"
        pair = "".join(f"{v:>11.1e}" if v < 2.0 else f"{'>= 2':>11}" for v in
                       (worst(values), values.ravel()[-1]))  # fmt: skip
        return f"  {name:<34}{pair}  {kind}"

    def split(name: str, part: Split, kind: str) -> list[str]:
        if not np.all(np.isnan(part.total)) and part.is_vacuous.any():
            share = int(part.is_vacuous.sum())
            kind += f", vacuous at {share} of {len(part.total)} times"
        lines = [row(name, part.total, kind)]
        if not np.all(np.isnan(part.total)) and not part.is_vacuous.all():
            lines.append(row("    of which the start", part.start, ""))
        return [line.rstrip() for line in lines]

    grid = f"{c.num_points} points (at least {c.points_per_node:g} to a node and axis, and faces)"
    head = [
        f"distance to the filter of the model on its box (Q {law}), {len(c.sigma)} times",
        f"measured on {grid};",
        f"bounds widen sup norms by {c.sup_margin:g} and minima by {c.min_margin:g}",
        f"  {'':<34}{'largest':>11}{'last':>11}",
        row("sup |Q - Q^| / sup Q", _ratio(c.transition_error, c.transition_peak), "estimate"),
        row("sup |G - G^| / sup G", c.observation_error, "estimate"),
        row("distance of the prior", c.prior_error, "estimate"),
        row("leak of a step", c.leak, "estimate"),
        row("mixing constant sigma, smallest", c.sigma, "estimate", np.nanmin),
        row("1 - Birkhoff coefficient, smallest", 1.0 - c.tau, "estimate", np.nanmin),
        row("error of one step, measured", c.one_step, "estimate"),
        row("error of one step, from sup norms", c.one_step_bound, "bound"),
    ]
    body = [
        *split("error, theorem's constant", c.theorem, "bound"),
        *split("error, sharp constant", c.sharp, "bound"),
        *split("error, measured steps", c.direct, "estimate"),
        *split("error, Birkhoff", c.birkhoff, "estimate"),
        *split("error, Dobrushin", c.dobrushin, "estimate"),
    ]
    return "\n".join([*head, *body, *(f"note: {text}" for text in c.notes)])


def _ratio(a: Times, b: Times) -> Times:
    return a / np.where(b == 0.0, 1.0, b)
