"""Learn Q, G and the prior as squares of a few Gaussians with free shapes, and size the filter."""

import time
from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np

from ..._checks import as_count, is_traced
from ..._density.box import Box
from ..._density.generalized import GeneralizedGaussianPSD
from ..._learning.generalized import GeneralizedFit, learn_generalized
from ..._statespace.model import StateSpaceModel, keywords_of, observation_box
from .generalized_atoms import Atoms, TermKernel, kernel_of, log_heights, log_sizes
from .generalized_compress import SquareSum
from .generalized_model import FitErrors, GeneralizedModel
from .generalized_step import LearnedRoots, StepSizes, rule_for
from .report import BlocksReport

MAX_DIM = 2
# Terms that are tried one after the other, until the L1 error of a fit is a share of `tol`.
_ORDERS = {1: (16, 32, 64), 2: (24, 48)}
_PRIOR_ORDERS = (1, 10, 24)
_SHARE = 0.1
# Terms of a slice that add less than this share of `tol` to its root are left out.
_LEFT_OUT = 0.01
_PLACES = {1: 64, 2: 160}
_NODES = {1: 64, 2: 48}
_SOURCES = {1: 64, 2: 1000}
_LEAST_FINE = {1: 96, 2: 36}
_GUARD = {1: 48, 2: 20}
_SCAN = {1: 257, 2: 49}
_GRID = {1: 401, 2: 41, 3: 17}


def learn_free_shapes(ssm: StateSpaceModel, tol: float, order: int | None) -> GeneralizedModel:
    """The engine of learned models with free shapes, in one or two dimensions."""
    started = time.perf_counter()
    dim = ssm.dim
    seen = _checked(ssm)
    unit = Box(-np.ones(dim), np.ones(dim))
    both = Box(-np.ones(dim + seen.dim), np.ones(dim + seen.dim))
    twice = Box(-np.ones(2 * dim), np.ones(2 * dim))
    functions = _UnitFunctions(ssm, seen)
    given, target = tuple(range(dim)), _SHARE * tol
    options: dict[str, Any] = {"log": True, "vectorized": ssm.vectorized}
    orders = _ORDERS[dim]
    moved = _fit(functions.transition, twice, orders, target, given=given, **options)
    watched = _fit(functions.observation, both, orders, target, given=given, **options)
    start = _fit(functions.prior, unit, _PRIOR_ORDERS, target, **options)
    learned = LearnedRoots(
        _kernel(moved.model, given), _kernel(watched.model, tuple(range(dim, both.dim)))
    )
    places = _PLACES[dim] if order is None else as_count("order", order)
    if places < start.model.order:
        raise ValueError(
            f"order must be at least {start.model.order}, which the prior takes, got {places}"
        )
    sizes = _sizes(learned, places, tol, dim, seen.dim)
    prior = _prior(start.model, sizes)
    report = BlocksReport(
        "generalized",
        "asked for",
        places,
        tuple(
            (name, _describe(fit, target))
            for name, fit in (("transition", moved), ("observation", watched), ("prior", start))
        ),
        time.perf_counter() - started,
    )
    return GeneralizedModel(
        learned=learned,
        prior=prior,
        state_box=ssm.state_box,
        observation_box=seen,
        sizes=sizes,
        errors=FitErrors(
            moved.report.l1_error / 2.0**dim,
            watched.report.l1_error / float(seen.volume),
            tol,
        ),
        report=report,
    )


def _checked(ssm: StateSpaceModel) -> Box:
    """The box of y, if the engine can serve the model."""
    name = 'engine="generalized"'
    if is_traced(ssm):
        raise ValueError(f"{name} fits shapes on the host and cannot be traced: learn outside jit")
    if ssm.dim > MAX_DIM:
        raise ValueError(
            f"{name} serves states of at most {MAX_DIM} coordinates, got {ssm.dim}: use "
            '"nodes", or "blocks" for additive Gaussian noise'
        )
    if ssm.is_time_varying or keywords_of(ssm.log_observation):
        raise ValueError(
            f"{name} learns one transition and one observation density, and these take t or "
            'inputs: use "nodes"'
        )
    return observation_box(ssm, name)


class _UnitFunctions:
    """The logarithms of Q, G and the prior in unit coordinates, of one point or of many."""

    def __init__(self, ssm: StateSpaceModel, seen: Box):
        self._ssm, self._dim = ssm, ssm.dim
        self._center, self._half = (
            np.asarray(ssm.state_box.center),
            np.asarray(ssm.state_box.half_width),
        )
        self._seen_center, self._seen_half = np.asarray(seen.center), np.asarray(seen.half_width)

    def _state(self, z: Any) -> Any:
        return self._center + self._half * z

    def transition(self, z: Any) -> Any:
        """log Q of (u, x): a density of x in unit coordinates."""
        old, new = self._state(z[..., : self._dim]), self._state(z[..., self._dim :])
        return self._ssm.log_transition(old, new) + np.log(self._half).sum()

    def observation(self, z: Any) -> Any:
        """log G of (x, y): a density of y in its own units."""
        seen = self._seen_center + self._seen_half * z[..., self._dim :]
        return self._ssm.log_observation(self._state(z[..., : self._dim]), seen)

    def prior(self, z: Any) -> Any:
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
    error = fit.report.l1_error
    missed = "" if error <= target else f", asked {target:.0e}: MISSED"
    return f"{fit.model.order} terms, L1 error {error:.1e}{missed}"


def _canonical(model: GeneralizedGaussianPSD) -> tuple[Any, ...]:
    parts = (model.factor, model.precisions(), model.linear, model.offset)
    return (*(np.asarray(part) for part in parts), float(model.log_scale))


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


def _sizes(learned: LearnedRoots, places: int, tol: float, dim: int, num_seen: int) -> StepSizes:
    fine = int(np.ceil((2 * places) ** (1 / dim)))
    return StepSizes(
        places=places,
        nodes=_NODES[dim],
        sources=_SOURCES[dim],
        fine_nodes=max(_LEAST_FINE[dim], fine),
        guard_nodes=_GUARD[dim],
        tried=(1 + dim) * places,
        transition_terms=_num_terms(learned.transition, dim, _LEFT_OUT * tol),
        observation_terms=_num_terms(learned.observation, num_seen, _LEFT_OUT * tol),
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
    rule = rule_for(law, sizes, sizes.fine_nodes)
    return SquareSum(atoms, law.factor / jnp.sqrt(rule.weights @ law(rule.nodes)))
