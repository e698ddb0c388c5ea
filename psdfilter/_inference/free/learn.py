"""Learn Q and the prior as squares of a few Gaussians with free shapes, and size the filter.

G is learned too with observation="joint"; otherwise sqrt G(., y) is taken when y comes.
"""

import time
from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np

from ..._checks import as_count, is_traced
from ..._density.box import Box
from ..._density.generalized import GeneralizedGaussianPSD, about
from ..._learning.generalized import GeneralizedFit, learn_generalized
from ..._statespace.functions import keywords_of
from ..._statespace.model import StateSpaceModel, observation_box
from ..numerics.grids import Either
from ..report import Report
from .atoms import Atoms, TermKernel, kernel_of, log_heights, log_sizes, slices
from .compress import SquareSum
from .mass import kept_mass
from .model import FreeModel
from .observation import AbstractObservation, EachObservation, LearnedObservation
from .rules import whole_box
from .run import FitErrors
from .step import LearnedTransition, StepSizes, evaluate_slices, rule_for

# For two coordinates Q is a function of four, of 48 terms; sizes for more were never looked for.
MAX_DIM = 2
# Terms that are tried one after the other, until the L1 error of a fit is a share of `tol`.
_ORDERS = {1: (16, 32, 64), 2: (24, 48)}
_PRIOR_ORDERS = (1, 10, 24)
_SHARE = 0.02
# Terms of a slice that add less than this share of `tol` to its root are left out; so are atoms of
# a projection, once the total variation that is lost, at most 2 sqrt of the norm, is below it.
_LEFT_OUT = 0.01
_PLACES = {1: 64, 2: 160}
# In the plane one panel along each axis.
_PANELS = {1: 10, 2: 1}
_PANEL_NODES = {1: 12, 2: 36}
# Panels of the integral over the old state, for a law of one or two modes; to which those that Q^
# asks for are added, in one dimension.
_SOURCE_PANELS = {1: 6, 2: 1}
_MOST_PANELS = 24
_SOURCE_NODES = {1: 12, 2: 48}
_MOST_SOURCES = {1: 12 * _MOST_PANELS, 2: 1000}
_TABLE = {1: 128, 2: 36}
_GUARD = {1: 48, 2: 20}
_SCAN = {1: 257, 2: 49}
_GRID = {1: 401, 2: 41, 3: 17}


def learn_free_shapes(
    ssm: StateSpaceModel, tol: float, joint: bool, order: int | None, reason: str
) -> FreeModel:
    """The model of learned densities with free shapes, in one or two dimensions."""
    started = time.perf_counter()
    dim = ssm.dim
    unit = Box(-np.ones(dim), np.ones(dim))
    twice = Box(-np.ones(2 * dim), np.ones(2 * dim))
    functions = _UnitFunctions(ssm)
    given, target = tuple(range(dim)), _SHARE * tol
    options: dict[str, bool] = {"log": True, "vectorized": ssm.vectorized}
    moved = _fit(functions.transition, twice, _ORDERS[dim], target, given=given, **options)
    start = _fit(functions.prior, unit, _PRIOR_ORDERS, target, **options)
    kernel = _kernel(moved.model, given)
    mass, mass_error = kept_mass(ssm, target)
    learned = LearnedTransition(kernel, mass, jnp.asarray(_panels(kernel, dim)))
    watched, density_error, seen = _observation(ssm, functions, tol, joint)
    places = _PLACES[dim] if order is None else as_count("order", order)
    if places < start.model.order:
        raise ValueError(
            f"order must be at least {start.model.order}, which the prior takes, got {places}"
        )
    sizes = _sizes(learned, places, tol, dim)
    notes = (
        ("transition", _describe(moved, target)),
        ("its mass on the box", _with_error("", mass_error, target)),
        ("observation", seen),
        ("prior", _describe(start, target)),
    )
    seconds = time.perf_counter() - started
    return FreeModel(
        learned=learned,
        sensor=watched,
        start_law=_prior(start.model, sizes),
        state_box=ssm.state_box,
        seen_dim=ssm.num_observed,
        sizes=sizes,
        fit_errors=FitErrors((moved.report.l1_error + mass_error) / 2.0**dim, density_error, tol),
        report=Report("free", reason, tol, seconds, order=places, notes=notes),
    )


def _observation(
    ssm: StateSpaceModel, functions: "_UnitFunctions", tol: float, joint: bool
) -> tuple[AbstractObservation, float, str]:
    """G, the average of |G^ - G|, and a line for the report."""
    box = ssm.observation_box
    if not joint:
        return EachObservation(ssm=ssm, box=box), 0.0, "sqrt G(., y) for every y when it comes"
    box, target = observation_box(ssm, 'observation="joint"'), _SHARE * tol
    given, num = tuple(range(ssm.dim)), ssm.dim + box.dim
    fit = _fit(
        functions.observation(box), Box(-np.ones(num), np.ones(num)), _ORDERS[ssm.dim], target,
        given=given, log=True, vectorized=ssm.vectorized,
    )  # fmt: skip
    kernel = _kernel(fit.model, tuple(range(ssm.dim, num)))
    num_terms = _num_terms(kernel, box.dim, _LEFT_OUT * tol)
    error = fit.report.l1_error / float(box.volume)
    watched = LearnedObservation(kernel=kernel, box=box, num_terms=num_terms)
    return watched, error, _describe(fit, target)


def free_obstacle(ssm: StateSpaceModel, joint: bool) -> str | None:
    """Why the engine cannot serve; None if it can."""
    if is_traced(ssm):
        return "it fits shapes on the host and cannot be traced: learn outside jit"
    if ssm.dim > MAX_DIM:
        return (
            f'it serves states of at most {MAX_DIM} coordinates, got {ssm.dim}: use "nodes", or '
            '"mixture" for additive Gaussian noise'
        )
    if ssm.is_time_varying or keywords_of(ssm.log_observation):
        return (
            "it learns one transition and one observation density, and these take t or inputs: "
            'use "nodes"'
        )
    if joint:
        num = observation_box(ssm, 'observation="joint"').dim
        if num > max(_GRID):
            return (
                f'its observation="joint" serves at most {max(_GRID)} observed coordinates, got '
                f'{num}: use observation="each", or engine="nodes"'
            )
    elif ssm.vectorized:
        return (
            'it takes observation="joint" for NumPy models, got "each": it needs G at points that '
            "are found while it filters"
        )
    return None


class _UnitFunctions:
    """The logarithms of Q, G and the prior in unit coordinates, of one point or of many."""

    def __init__(self, ssm: StateSpaceModel):
        self._ssm, self._dim = ssm, ssm.dim
        self._center, self._half = (
            np.asarray(ssm.state_box.center),
            np.asarray(ssm.state_box.half_width),
        )

    def _state(self, z: Either) -> Either:
        return self._center + self._half * z

    def transition(self, z: Either) -> Either:
        """log Q of (u, x): a density of x in unit coordinates."""
        old, new = self._state(z[..., : self._dim]), self._state(z[..., self._dim :])
        return self._ssm.log_transition(old, new) + np.log(self._half).sum()

    def observation(self, box: Box) -> Callable[[Either], Either]:
        """log G of (x, y): a density of y in its own units, on its box."""
        center, half = np.asarray(box.center), np.asarray(box.half_width)

        def log_density(z: Either) -> Either:
            x, y = self._state(z[..., : self._dim]), center + half * z[..., self._dim :]
            return self._ssm.log_observation(x, y)

        return log_density

    def prior(self, z: Either) -> Either:
        """log of the prior, not normalised."""
        return self._ssm.log_prior(self._state(z))


def _fit(
    f: Callable, box: Box, orders: tuple[int, ...], target: float, **options: Any
) -> GeneralizedFit:
    """The first order whose L1 error is small enough, or the best."""
    fits = []
    for order in orders:
        fits.append(learn_generalized(f, box, order, **options))
        if fits[-1].report.l1_error <= target:
            return fits[-1]
    return min(fits, key=lambda fit: fit.report.l1_error)


def _describe(fit: GeneralizedFit, target: float) -> str:
    return _with_error(f"{fit.model.order} terms, L1 ", fit.report.l1_error, target)


def _with_error(what: str, error: float, target: float) -> str:
    missed = "" if error <= target else f", asked {target:.0e}: MISSED"
    return f"{what}error {error:.1e}{missed}"


def _canonical(
    model: GeneralizedGaussianPSD,
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, float]:
    model = about(model, jnp.zeros(model.dim))
    parts = (model.factor, model.precisions(), model.linear, model.offset)
    factor, precision, linear, offset = (np.asarray(part) for part in parts)
    return factor, precision, linear, offset, float(model.log_scale)


def _kernel(model: GeneralizedGaussianPSD, fixed: tuple[int, ...]) -> TermKernel:
    return kernel_of(*_canonical(model), fixed=fixed)


def _num_terms(kernel: TermKernel, dim: int, left_out: float) -> int:
    """Terms of a slice that count, at most, over a grid of what is fixed."""
    axis = np.linspace(-1.0, 1.0, _GRID[dim])
    mesh = np.meshgrid(*([axis] * dim), indexing="ij")
    points = np.stack([m.ravel() for m in mesh], axis=-1)
    logs = np.sort(np.asarray(log_sizes(kernel, jnp.asarray(points))), axis=1)
    shares = np.exp(logs - logs[:, -1:])
    small = (np.cumsum(shares, axis=1) <= left_out).sum(axis=1)
    return int(kernel.order - small.min())


def _panels(kernel: TermKernel, dim: int) -> np.ndarray:
    """Panels per unit of u that Q^(., x) asks for, on a grid: four standard deviations each.

    How fast Q^(u, .) moves, in its own standard deviations: twice the distance of the roots, as

        int (g(u + h, x) - g(u, x))^2 dx = (h s)^2 / 4   for N(x; s u, 1).
    """
    if dim > 1:
        return np.zeros(0)
    grid = np.linspace(-1.0, 1.0, _GRID[1])
    rows = slices(kernel, jnp.asarray(grid[:, None]), kernel.order)
    rule = whole_box(1, _GRID[1])
    steps = np.diff(np.asarray(evaluate_slices(rows, rule.nodes)), axis=1)
    pace = 2.0 * np.sqrt(np.asarray(rule.weights) @ steps**2) / np.diff(grid)
    return 0.25 * np.interp(grid, 0.5 * (grid[1:] + grid[:-1]), pace)


def _sizes(learned: LearnedTransition, places: int, tol: float, dim: int) -> StepSizes:
    wanted = 0.0 if dim > 1 else 2.0 * float(np.mean(np.asarray(learned.panels)))
    panels = min(_SOURCE_PANELS[dim] + int(np.ceil(wanted)), _MOST_PANELS)
    return StepSizes(
        places=places,
        left_out=(0.5 * _LEFT_OUT * tol) ** 2,
        panel_nodes=_PANEL_NODES[dim],
        source_panels=panels,
        source_nodes=_SOURCE_NODES[dim],
        sources=min(_MOST_SOURCES[dim], (_SOURCE_NODES[dim] * panels) ** dim),
        panels=_PANELS[dim],
        table_nodes=_TABLE[dim],
        guard_nodes=_GUARD[dim],
        tried=(1 + dim) * places,
        transition_terms=_num_terms(learned.roots, dim, _LEFT_OUT * tol),
        scan=_SCAN[dim],
    )


def _prior(model: GeneralizedGaussianPSD, sizes: StepSizes) -> SquareSum:
    """The prior in its places, of mass one on the box."""
    factor, precision, linear, offset, log_scale = _canonical(model)
    num, dim = linear.shape
    centers = np.linalg.solve(precision, linear[..., None])[..., 0]
    peaks = offset + np.einsum("md,md->m", linear, centers) + 0.5 * log_scale
    heights = np.asarray(log_heights(Atoms(jnp.asarray(centers), jnp.asarray(precision))))
    roots = min(sizes.places, sizes.sources)
    everyone = np.zeros((sizes.places, roots))
    everyone[:num, 0] = factor[:, 0] * np.exp(peaks - heights)
    empty = sizes.places - num
    atoms = Atoms(
        jnp.asarray(np.concatenate([centers, np.zeros((empty, dim))])),
        jnp.asarray(np.concatenate([precision, np.tile(np.eye(dim), (empty, 1, 1))])),
    )
    law = SquareSum(atoms, jnp.asarray(everyone))
    rule = rule_for(law, sizes)
    return SquareSum(atoms, law.factor / jnp.sqrt(rule.weights @ law(rule.nodes)))
