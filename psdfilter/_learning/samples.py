"""Learning from samples instead of evaluations: densities, and transitions from pairs (u, x)."""

import time
from math import prod

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import ArrayLike, Float

from .._density.anchors import TensorGrid
from .._density.box import Box, as_finite_box
from .._density.psd import GaussianPSD, as_precision
from .progress import Bar
from .root_likelihood import ProductBasis, RootFit
from .sample_search import Limits, Search, normalised, sample_scores
from .table import AbstractReport

# Two in each of the five folds of cross-validation.
_LEAST_SAMPLES = 10


class SampleReport(AbstractReport):
    """What learning from samples did.

    Scores are means over samples of log f (densities), or of log Q(u, x) - mass(u) + 1
    (conditional densities), which is highest in expectation for the true Q.
    """

    num_samples: int
    shape: tuple[int, ...]  # anchors per axis
    num_directions: int
    truncated: bool  # more directions mattered than max_directions allows
    precision: tuple[float, ...]  # eta, in the user's units
    ridge: float  # lambda
    score: float  # by cross-validation; NaN if nothing was chosen by it
    score_error: float  # its standard error
    train_score: float
    num_settings: int
    mass: tuple[float, float, float]  # least, mean and largest integral over x at the sample's u
    duality_gap: float  # bound on objective - minimum
    newton_steps: int
    seconds: float

    def rows(self) -> list[tuple[str, str]]:
        """Names and values, in the order they are shown."""
        grid = " x ".join(map(str, self.shape))
        held_out = f"{self.score:.5g} +- {self.score_error:.1g}  ({self.num_settings} settings)"
        cut = "  (cut off by max_directions)" if self.truncated else ""
        return [
            ("samples", f"{self.num_samples}"),
            ("anchors", f"{grid} = {prod(self.shape)}" if len(self.shape) > 1 else grid),
            ("directions", f"{self.num_directions}{cut}"),
            ("precision", ", ".join(f"{p:.4g}" for p in self.precision)),
            ("ridge", f"{self.ridge:.1e}"),
            ("held-out score", held_out if self.num_settings else "not cross-validated"),
            ("training score", f"{self.train_score:.5g}"),
            ("mass", "least {:.4g}, mean {:.4g}, largest {:.4g}".format(*self.mass)),
            ("duality gap", f"{self.duality_gap:.1e} after {self.newton_steps} Newton steps"),
            ("time", f"{self.seconds:.3g} s"),
        ]


class SampleFit(eqx.Module):
    """A density or transition learned from samples, and how."""

    model: GaussianPSD
    report: SampleReport = eqx.field(static=True)


def learn_from_samples(
    samples: ArrayLike,
    box: Box | tuple[ArrayLike, ArrayLike],
    *,
    precision: ArrayLike | None = None,
    ridge: float | None = None,
    folds: int = 5,
    seed: int = 0,
    max_anchors: int = 100_000,
    max_directions: int = 1000,
    progress: bool | None = None,
) -> SampleFit:
    """argmin_a -(2/n) sum_i log a'k(x_i) + integral of (a'k)^2 over the box + ridge a'Ka, scaled.

    The penalised likelihood of Good and Gaskins: the density is the square of a function of the
    kernel's space. Convex; solved to a certified gap, then scaled to mass one. No bias at
    the faces of the box, where a kernel density estimate loses half of its mass.

    Args:
        samples: (n, d), inside the box.
        box: the support of the density.
        precision: eta, a number or one for each axis, in the units of the box; by default chosen
            by cross-validation, in a fixed ratio to the inverse variances of the samples.
        ridge: lambda; by default chosen by cross-validation.
        folds: parts that the samples are cut into for cross-validation.
        seed: of the shuffling into folds.
        max_anchors: size of the grid that must not be passed.
        max_directions: size of the basis that must not be passed.
        progress: show a progress bar; by default if the standard error is a terminal.
    """
    start = time.perf_counter()
    box = as_finite_box("box", box)
    z = _as_samples("samples", samples, box)
    limits = Limits(folds, seed, max_anchors, max_directions)
    return _learn(z, 0, box, precision, ridge, limits, progress, start)


def learn_conditional(
    u: ArrayLike,
    x: ArrayLike,
    box_u: Box | tuple[ArrayLike, ArrayLike],
    box_x: Box | tuple[ArrayLike, ArrayLike],
    *,
    precision: ArrayLike | None = None,
    ridge: float | None = None,
    folds: int = 5,
    seed: int = 0,
    max_anchors: int = 100_000,
    max_directions: int = 1000,
    progress: bool | None = None,
) -> SampleFit:
    """Q(u, x) = (a'k(u, x))^2 from pairs: x_i drawn from Q(u_i, .).

    argmin_a -(2/n) sum_i log a'k(u_i, x_i) + (1/n) sum_i integral (a'k(u_i, x))^2 dx + ridge a'Ka.

    No division of a joint by a marginal density: for every u the population's minimiser is the
    conditional density itself, integrating to one. Where the sample has no u nearby the model
    falls to zero; `report.mass` tells how far the integrals over x are from one at the sample's u,
    and their mean is made one.

    Args:
        u: (n, d_u), the old states.
        x: (n, d_x), the new states.
        box_u: where u lives.
        box_x: where x lives, the support of every Q(u, .).
        precision: eta for the axes of (u, x); by default chosen by cross-validation, one factor for
            the axes of u and another for those of x.
        ridge: lambda; by default chosen by cross-validation.
        folds: parts that the pairs are cut into for cross-validation.
        seed: of the shuffling into folds.
        max_anchors: size of the grid that must not be passed.
        max_directions: size of the basis that must not be passed.
        progress: show a progress bar; by default if the standard error is a terminal.
    """
    start = time.perf_counter()
    box_u, box_x = as_finite_box("box_u", box_u), as_finite_box("box_x", box_x)
    z_u, z_x = _as_samples("u", u, box_u), _as_samples("x", x, box_x)
    if len(z_u) != len(z_x):
        raise ValueError(f"u and x must be as many, got {len(z_u)} and {len(z_x)}")
    joint = Box(
        jnp.concatenate([box_u.lower, box_x.lower]), jnp.concatenate([box_u.upper, box_x.upper])
    )
    limits = Limits(folds, seed, max_anchors, max_directions)
    z = np.concatenate([z_u, z_x], axis=1)
    return _learn(z, box_u.dim, joint, precision, ridge, limits, progress, start)


def _as_samples(name: str, samples: ArrayLike, box: Box) -> Float[np.ndarray, "n d"]:
    """Samples in unit coordinates."""
    try:
        array = np.asarray(samples, dtype=float)
    except (TypeError, ValueError):
        raise ValueError(
            f"{name} must be an array of numbers, got {type(samples).__name__}"
        ) from None
    if array.ndim != 2 or array.shape[1] != box.dim:
        remedy = f"; write {name}[:, None]" if array.ndim == 1 and box.dim == 1 else ""
        raise ValueError(f"{name} must have shape (n, {box.dim}), got {array.shape}{remedy}")
    if len(array) < _LEAST_SAMPLES:
        raise ValueError(f"{name} must hold at least {_LEAST_SAMPLES} samples, got {len(array)}")
    finite = np.isfinite(array).all(axis=1)
    if not finite.all():
        i = int(np.argmin(finite))
        raise ValueError(f"{name} must be finite, got {array[i]} in row {i}")
    low, high = np.asarray(box.lower), np.asarray(box.upper)
    inside = ((array >= low) & (array <= high)).all(axis=1)
    if not inside.all():
        i = int(np.argmin(inside))
        raise ValueError(
            f"{name} must lie in the box from {low} to {high}, got {array[i]} in row {i} "
            f"({int((~inside).sum())} of {len(array)} outside); widen the box or drop them"
        )
    constant = np.ptp(array, axis=0) == 0
    if constant.any():
        axis = int(np.argmax(constant))
        raise ValueError(f"{name} must vary on every axis, got one value on axis {axis}")
    return (array - 0.5 * (low + high)) / (0.5 * (high - low))


def _learn(
    z: Float[np.ndarray, "n d"],
    num_given: int,
    box: Box,
    precision: ArrayLike | None,
    ridge: float | None,
    limits: Limits,
    progress: bool | None,
    start: float,
) -> SampleFit:
    if limits.folds > len(z):
        raise ValueError(
            f"folds must be at most the number of samples {len(z)}, got {limits.folds}"
        )
    if ridge is not None and not (np.isfinite(ridge) and ridge > 0):
        raise ValueError(f"ridge must be positive and finite, got {ridge!r}")
    # exp(-x^2 / (4 s^2)) is the root of a Gaussian of variance s^2: eta = 1 / (4 s^2), or finer.
    base = 1 / (4 * np.var(z, axis=0))
    factors: tuple[float, ...] = (2.0, 2.0) if num_given else (4.0,)
    free = list(range(len(factors))) if precision is None else []
    if precision is not None:
        base = _unit_precision(precision, box)
        factors = tuple(1.0 for _ in factors)
    free += [len(factors)] if ridge is None else []
    setting = (factors, float(8 / len(z)) if ridge is None else float(ridge))
    with Bar("cross-validation", progress) as bar:
        search = Search(z, num_given, base, limits, bar)
        if free:
            setting = search.climb(setting, free)
    basis = search.basis(*setting)
    if basis is None:
        raise ValueError(
            f"max_anchors must be at least {search.num_anchors(setting[0])} for this precision, "
            f"got {limits.max_anchors}"
        )
    w = basis(z)
    fit = search.fit(basis, setting[1], w=w)
    if fit is None:
        raise RuntimeError(
            "the penalised likelihood could not be maximised: no root of this precision and ridge "
            "was found that is positive on all samples; lower precision or raise ridge"
        )
    return _finish(basis, fit, z, w, box, search, setting, start)


def _unit_precision(precision: ArrayLike, box: Box) -> Float[np.ndarray, " d"]:
    return (
        np.asarray(as_precision("precision", precision, box.dim)) * np.asarray(box.half_width) ** 2
    )


def _finish(
    basis: ProductBasis,
    fit: RootFit,
    z: Float[np.ndarray, "n d"],
    w: Float[np.ndarray, "n k"],
    box: Box,
    search: Search,
    setting: tuple,
    start: float,
) -> SampleFit:
    """The model in the user's units, and the report."""
    c = normalised(basis, fit.c, z)
    half, center = np.asarray(box.half_width), np.asarray(box.center)
    axes = [center[l] + half[l] * axis.anchors for l, axis in enumerate(basis.axes)]
    eta = np.array([axis.precision for axis in basis.axes]) / half**2
    shift = -float(np.sum(np.log(half[basis.num_given :])))
    model = GaussianPSD(TensorGrid(axes), basis.coefficients(c), eta, shift)
    masses = basis.masses(c, z[:, : basis.num_given]) if basis.num_given else np.ones(1)
    held_out = search.scores.get(setting)
    report = SampleReport(
        num_samples=len(z),
        shape=tuple(len(axis.anchors) for axis in basis.axes),
        num_directions=len(c),
        truncated=len(c) >= search.most_directions,
        precision=tuple(float(p) for p in eta),
        ridge=setting[1],
        score=np.nan if held_out is None else float(np.mean(held_out)) + shift,
        score_error=np.nan if held_out is None else float(np.std(held_out) / np.sqrt(len(z))),
        train_score=float(np.mean(sample_scores(basis, c, z, w))) + shift,
        num_settings=len(search.scores),
        mass=(float(masses.min()), float(masses.mean()), float(masses.max())),
        duality_gap=fit.gap,
        newton_steps=fit.steps,
        seconds=time.perf_counter() - start,
    )
    return SampleFit(model, report)
