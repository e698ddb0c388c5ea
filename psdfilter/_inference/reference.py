"""Algorithm 2 to the letter, with the generic operations on PSD models: the oracle of the others.

    predict   p(x)  = int Q^(u, x) pi(u) du         order of Q^ (x anchors, on a grid)
    correct   p(x) G^(x, y)                         order M_Q M_G
    scale     Z = int over the box,  pi = p G^ / Z

Every weight matrix is formed and every pair of anchors integrated, so the cost of a step grows like
M_Q^4 M_G^2: small orders only. Any anchors will do.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .._checks import Numbers, require_x64
from .._density.anchors import TensorGrid
from .._density.box import Box
from .._density.conversions import change_units
from .._density.moments import moments
from .._density.operations import (
    integral,
    log_integral,
    marginal,
    partial,
    positive_mass,
    product,
    scale,
    transition,
)
from .._density.psd import GaussianPSD
from .._statespace.model import Inputs
from .filtered import observation_fits
from .model import LearnedModel
from .plan import AxisRegression
from .series import as_series


class LearnedTriple(NamedTuple):
    """Q^(u, x), G^(x, y) and the prior as PSD models, and the box of the state, in user units."""

    Q: GaussianPSD
    G: GaussianPSD
    prior: GaussianPSD
    box: Box


class ReferencePosterior(eqx.Module):
    """What Algorithm 2 gives, step by step.

    Attributes:
        densities: pi_t, in user units.
        log_likelihoods: log Z_t, zero where y_t is missing.
        mean: (T, d).
        covariance: (T, d, d).
        log_kept: log of the predicted mass on the box.
        orders: number of anchors of pi_t.
        eigenvalue_ratios: smallest over largest eigenvalue of the weight matrix of pi_t.
        masses: integral of pi_t over the box.
    """

    densities: tuple[GaussianPSD, ...]
    log_likelihoods: Float[Array, " t"]
    mean: Float[Array, "t d"]
    covariance: Float[Array, "t d d"]
    log_kept: Float[Array, " t"]
    orders: tuple[int, ...] = eqx.field(static=True)
    eigenvalue_ratios: Float[Array, " t"]
    masses: Float[Array, " t"]

    @property
    def log_likelihood(self) -> Float[Array, ""]:
        """sum_t log Z_t."""
        return jnp.sum(self.log_likelihoods)


class Kernel(NamedTuple):
    """A transition Q(u_given, x): the old coordinates it depends on, and the model."""

    given: tuple[int, ...]
    model: GaussianPSD

    def apply(self, f: GaussianPSD, box: Box) -> GaussianPSD:
        """int Q(u, x) f(u) du."""
        if not self.given:
            return scale(self.model, log_integral(f, box))
        inner = box
        if len(self.given) < f.dim:
            f = marginal(f, self.given, box)
            inner = box.keep(self.given)
        return transition(self.model, f, inner)


def join_factors(
    factors: Sequence[GaussianPSD], structure: Sequence[tuple[tuple[int, ...], tuple[int, ...]]]
) -> Kernel:
    """prod_g Q_g(u_given, x_group) as one model of (u_given of all, x_0 ... x_{d-1})."""
    given = tuple(sorted({axis for of_u, _ in structure for axis in of_u}))
    place = {axis: index for index, axis in enumerate(given)}
    named = [
        tuple(place[a] for a in of_u) + tuple(len(given) + a for a in of_x)
        for of_u, of_x in structure
    ]
    if len(factors) == 1 and named[0] == tuple(range(factors[0].dim)):
        return Kernel(given, factors[0])
    # Each product must name its variables without gaps: number those met so far.
    whole, variables = factors[0], list(named[0])
    for factor, names in zip(factors[1:], named[1:], strict=True):
        met = sorted({*variables, *names})
        whole = product(
            whole, factor, [met.index(v) for v in variables], [met.index(v) for v in names]
        )
        variables = met
    return Kernel(given, whole)


def root_square(
    regressions: tuple[AxisRegression, ...], coefficients: Array, log_scale: Any = 0.0
) -> GaussianPSD:
    """|c' k(x)|^2 exp(log_scale) on the tensor grid of the regressions."""
    grid = TensorGrid([r.anchors for r in regressions])
    precision = jnp.stack([r.precision for r in regressions])
    num = int(np.prod([r.anchors.shape[0] for r in regressions]))
    return GaussianPSD(grid, coefficients.reshape(num, -1), precision, log_scale)


class _Step(NamedTuple):
    kernel: Kernel | None
    hops: int
    likelihood: GaussianPSD | None


def _observation_fits(model: LearnedModel, series: Any) -> tuple[Array, Array]:
    return _jit_unless_black_box(model, observation_fits)(model, series)


def _transition_factors(model: LearnedModel, t: int, row: Any) -> tuple[GaussianPSD, ...]:
    def factors(learned: LearnedModel, step: Any) -> tuple[GaussianPSD, ...]:
        return learned.transition_density(step, row)

    return _jit_unless_black_box(model, factors)(model, t)


def _jit_unless_black_box(model: LearnedModel, fn: Callable[..., Any]) -> Callable[..., Any]:
    return fn if model.ssm.vectorized else eqx.filter_jit(fn)


def run_reference(
    model: LearnedModel | LearnedTriple,
    ys: Numbers,
    *,
    first: str = "predict",
    inputs: Inputs = None,
    times: Numbers | None = None,
) -> ReferencePosterior:
    """Filter with every weight matrix formed.

    Args:
        model: from `learn` (of small orders), or the three PSD models themselves.
        ys: observations (T, p); a row of NaN is missing.
        first: as in `run_filter`.
        inputs: as in `run_filter`.
        times: as in `run_filter`.
    """
    require_x64()
    if isinstance(model, LearnedTriple):
        return _run_triple(model, ys, first)
    if model.renormalize:
        raise ValueError("a renormalised transition is no PSD model: learn with renormalize=False")
    series, _ = as_series(model, ys, first, inputs, times)
    plan, fixed = model.plan, None
    coefficients, peaks = _observation_fits(model, series)
    steps = []
    for index, hop in enumerate(np.asarray(series.hops)):
        row = None if series.rows is None else jax.tree.map(lambda a, i=index: a[i], series.rows)
        if fixed is None or model.tables is None:
            factors = _transition_factors(model, int(series.steps[index]), row)
            fixed = join_factors(factors, plan.structure)
        likelihood = None
        if not np.all(np.isnan(np.asarray(series.ys[index]))):
            likelihood = root_square(plan.observation, coefficients[index], peaks[index])
        steps.append(_Step(fixed, int(hop), likelihood))
    unit = Box(-np.ones(model.dim), np.ones(model.dim))
    return _run_steps(root_square(plan.prior, model.prior_root), steps, unit, plan.box)


def _run_triple(models: LearnedTriple, ys: Numbers, first: str) -> ReferencePosterior:
    rows = np.asarray(ys, dtype=float)
    rows = rows[:, None] if rows.ndim == 1 else rows
    dim = models.box.dim
    kernel = Kernel(tuple(range(dim)), models.Q)
    steps = []
    for index, y in enumerate(rows):
        likelihood = None
        if not np.all(np.isnan(y)):
            likelihood = partial(models.G, range(dim, models.G.dim), y)
        hops = 0 if index == 0 and first == "observe" else 1
        steps.append(_Step(kernel, hops, likelihood))
    return _run_steps(models.prior, steps, models.box, None)


def _run_steps(
    prior: GaussianPSD, steps: Sequence[_Step], box: Box, units: Box | None
) -> ReferencePosterior:
    """`box` is where the models live; `units`, if given, the user's box that it stands for."""
    density, rows = scale(prior, -positive_mass(prior, box)), []
    for step in steps:
        for _ in range(step.hops):
            assert step.kernel is not None
            density = step.kernel.apply(density, box)  # pyright: ignore[reportArgumentType]
        log_kept = log_norm = positive_mass(density, box)
        log_mass = jnp.zeros(())
        if step.likelihood is not None:
            density = product(density, step.likelihood)
            log_mass = log_norm = positive_mass(density, box)
        density = scale(density, -log_norm)
        rows.append((density, log_mass, log_kept))
    densities = tuple(row[0] for row in rows)
    weights = [np.linalg.eigvalsh(np.asarray(f.weights)) for f in densities]
    masses = jnp.stack([integral(f, box) for f in densities])
    if units is not None:
        densities = tuple(change_units(f, units.center, units.half_width) for f in densities)
    laws = [moments(f, box if units is None else units) for f in densities]
    return ReferencePosterior(
        densities=densities,
        log_likelihoods=jnp.stack([row[1] for row in rows]),
        mean=jnp.stack([law[0] for law in laws]),
        covariance=jnp.stack([law[1] for law in laws]),
        log_kept=jnp.stack([row[2] for row in rows]),
        orders=tuple(f.order for f in densities),
        eigenvalue_ratios=jnp.asarray([w[0] / w[-1] for w in weights]),
        masses=masses,
    )
