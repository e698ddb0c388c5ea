"""How far the filter at the nodes is from exact integrals of the same models, and how it forgets.

The given models are the truth here: what is measured is the quadrature, step by step, on twice the
nodes; sigma, tau and the memory are those of Q^. How far the models are from a system that they
were learned from, this cannot know.
"""

from math import prod
from typing import NamedTuple

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ... import _results
from ..certificate.accumulation import Split, accumulate, accumulate_hilbert
from ..certificate.certificate import Certificate
from ..certificate.discrepancy import MIN_MARGIN, SUP_MARGIN, Discrepancy
from ..certificate.hilbert import birkhoff_coefficient, mixing_birkhoff, mixing_constant
from ..certificate.memory import MAX_MEMORY_WORK, Memory, memory_of
from ..numerics.grids import grid_points
from ..series import Series
from ..trace import Trace
from .model import GivenModel
from .run import status
from .table import Table, log_volume, tabulate
from .triple import pair_values

_FACTOR = 2.0
# What double precision leaves in both: exponents of up to 700 have lost 1.6e-13 each, and a step is
# a product of the prior or Q^, G^ and Q^ again.
_ROUNDING = 1e-12
# Dense points, beyond which Q^ is not tabulated; and log-ratios of a projective diameter.
_MAX_POINTS, _MAX_RATIOS = 12_000, 6e8


class _Dense(NamedTuple):
    """The filter on twice the nodes."""

    table: Table
    filtered: Float[np.ndarray, "t n"]  # pi^_t, normalised as the recursion did
    steps: Float[np.ndarray, "t n"]  # the exact step off pi^_{t-1}, normalised
    kernel: Float[np.ndarray, "n n"]
    weights: Float[np.ndarray, " n"]


@eqx.filter_jit
def _likelihoods(table: Table, series: Series) -> Float[Array, "t n"]:
    """G^(z, y_t), one where nothing is seen."""

    def one(y: Float[Array, " p"]) -> Float[Array, " n"]:
        missing, _ = status(table, y)
        logs = table.triple.log_likelihood(table.points, jnp.where(missing, 0.0, y))
        return jnp.where(missing, 1.0, jnp.exp(logs))

    return jnp.stack([one(y) for y in jnp.asarray(series.ys)])


@eqx.filter_jit
def _push_onto(coarse: Table, fine: Table, sources: Float[Array, "t n"]) -> Float[Array, "t k"]:
    points = grid_points(fine.box, fine.nodes)
    rows = pair_values(coarse.triple.transition, coarse.points, points)
    return (sources * coarse.flat_weights[None]) @ rows * jnp.exp(log_volume(fine.box))


def _dense(model: GivenModel, series: Series, trace: Trace) -> _Dense:
    coarse, kept = model.table, trace.laws
    counts = tuple(int(np.ceil(_FACTOR * n)) for n in coarse.shape)
    if prod(counts) > _MAX_POINTS:
        raise ValueError(
            f"errors are measured on {_FACTOR:g} times the nodes of every axis, here "
            f"{prod(counts)} points, above the limit of {_MAX_POINTS}: raise tol of learned(...)"
        )
    fine = tabulate(coarse.triple, coarse.box, coarse.tol, counts)
    seen = np.asarray(_likelihoods(fine, series))
    norms = np.exp(-np.asarray(kept.log_norms))[:, None]
    moved = np.asarray(_push_onto(coarse, fine, kept.sources))
    kernel, weights = np.asarray(fine.kernel), np.asarray(fine.flat_weights)
    filtered = moved * seen * norms
    if int(series.hops[0]) == 0:
        filtered[0] = np.asarray(fine.start) * seen[0] * norms[0]
    before = np.concatenate([np.asarray(fine.start)[None], filtered[:-1]])
    exact = (before * weights) @ kernel * seen
    if int(series.hops[0]) == 0:
        exact[0] = np.asarray(fine.start) * seen[0]
    exact /= (exact @ weights)[:, None]
    return _Dense(fine, filtered, exact, kernel, weights)


def _check(series: Series, codes: np.ndarray) -> None:
    hops = np.asarray(series.hops)
    if np.any(hops[1:] != 1) or hops[0] > 1:
        raise ValueError(
            "errors are measured for one observation after each transition: give times in between "
            "as rows of NaN, and several sensors at one time as one observation"
        )
    failure = _results.first_failure(codes, (_results.NO_MASS,))
    if failure is not None:
        raise ValueError(f"the filter failed at ys[{failure[0]}], so it has no error")


def one_step_errors(model: GivenModel, series: Series, trace: Trace) -> Float[np.ndarray, " t"]:
    """delta_t: what the quadrature of each step adds, int |p - q|."""
    _check(series, np.asarray(trace.codes))
    return _gaps(_dense(model, series, trace))


def _gaps(dense: _Dense) -> Float[np.ndarray, " t"]:
    """Distances, and what the filter lacks to mass one, so that they hold for it scaled as well."""
    gaps = np.abs(dense.filtered - dense.steps) @ dense.weights + _ROUNDING
    return gaps + np.abs(dense.filtered @ dense.weights - 1.0)


def certify_given(
    model: GivenModel, series: Series, trace: Trace, codes: np.ndarray
) -> Certificate:
    """Bounds and estimates of the distance to Algorithm 2 with exact integrals, for every t."""
    _check(series, codes)
    dense, num = _dense(model, series, trace), series.num
    one_step, nothing = _gaps(dense), np.zeros(num)
    sigma = np.full(num, mixing_constant(dense.kernel) / np.sqrt(MIN_MARGIN))
    unknown, notes = np.full(num, np.nan), ["Q^, G^ and the prior are taken as they were given"]
    tau, small = mixing_birkhoff(sigma), model.table.kernel.shape[0] ** 3 <= _MAX_RATIOS
    learned = unknown
    if small:
        learned = np.full(num, birkhoff_coefficient(np.asarray(model.table.kernel)))
        tau = learned
    else:
        notes.append("tau is its bound through sigma: too many nodes for a projective diameter")
    found = Discrepancy(
        num_points=len(dense.weights),
        coefficients=np.zeros(0),
        has_start=int(series.hops[0]) == 0,
        start_error=0.0,
        prior_error=0.0,
        transition_error=nothing,
        transition_peak=np.full(num, dense.kernel.max()),
        observation_error=nothing,
        leak=-np.expm1(np.asarray(trace.log_kept)),
        sigma=sigma,
        one_step=one_step,
        one_step_bound=np.minimum(2.0, SUP_MARGIN * one_step),
        hilbert=unknown,
    )
    with np.errstate(divide="ignore", over="ignore"):
        inverse = 1.0 / np.square(sigma)
        paper, sharp = 2.0 / np.log(3.0) * inverse, 0.5 * (inverse - 1.0)
    worst, memory = mixing_birkhoff(sigma), _memory(model, series, trace)
    forgetting = Split(unknown, unknown)
    if memory is not None:
        forgetting = Split(*memory.errors(0.0, one_step, found.has_start))
    else:
        notes.append("no Dobrushin estimate: too many steps and nodes")

    def through(growth: np.ndarray, errors: np.ndarray) -> Split:
        return accumulate(found, growth, worst, errors, 0.0)

    return Certificate(
        theorem=through(paper, found.one_step_bound),
        sharp=through(sharp, found.one_step_bound),
        direct=through(sharp, one_step),
        birkhoff=accumulate_hilbert(found, tau),
        dobrushin=forgetting,
        one_step_bound=found.one_step_bound,
        one_step=one_step,
        transition_error=nothing,
        transition_peak=found.transition_peak,
        observation_error=nothing,
        prior_error=0.0,
        leak=found.leak,
        sigma=sigma,
        tau=tau,
        tau_learned=learned,
        num_points=found.num_points,
        points_per_node=_FACTOR,
        renormalized=False,
        notes=tuple(notes),
    )


def _memory(model: GivenModel, series: Series, trace: Trace) -> Memory | None:
    table, num = model.table, series.num
    kernel, weights = np.asarray(table.kernel), np.asarray(table.flat_weights)
    if num * float(len(weights)) ** 3 > MAX_MEMORY_WORK:
        return None
    seen = np.asarray(_likelihoods(table, series)) * weights
    densities = np.asarray(trace.laws.densities)
    if int(series.hops[0]) == 0:
        seen = seen[1:]
    else:
        densities = np.concatenate([np.asarray(table.start)[None], densities])
    return memory_of(kernel, seen / seen.max(axis=1, keepdims=True), densities * weights)
