"""Cross-validated choice of precision and ridge for learning from samples."""

from dataclasses import dataclass, field
from math import prod

import numpy as np
from jaxtyping import Float

from .._checks import as_count
from .progress import Bar
from .root_likelihood import (
    DECREMENT,
    ROUGH_DECREMENT,
    ProductBasis,
    RootFit,
    axis_basis,
    axis_size,
    fit_root,
    product_basis,
)

# Memory for the features of all samples, and its copy inside a Newton step.
_MAX_BYTES = 2**30
# Factors of the search: precision by 2, ridge by 4, a few dozen settings at most.
_PRECISION_STEP, _RIDGE_STEP, _MAX_SETTINGS = 2.0, 4.0, 60

# Precision factors of the groups of axes (given, free), and the ridge.
Setting = tuple[tuple[float, ...], float]


@dataclass(frozen=True)
class Limits:
    folds: int
    seed: int
    max_anchors: int
    max_directions: int

    def __post_init__(self) -> None:
        _ = as_count("folds", self.folds, least=2)
        _ = as_count("seed", self.seed, least=0)
        _ = as_count("max_anchors", self.max_anchors)
        _ = as_count("max_directions", self.max_directions)


@dataclass
class Search:
    """Cross-validated scores of settings (precision factors of the groups of axes, ridge)."""

    z: Float[np.ndarray, "n d"]
    num_given: int
    base: Float[np.ndarray, " d"]  # precision at factor one, unit coordinates
    limits: Limits
    bar: Bar
    scores: dict[Setting, Float[np.ndarray, " n"] | None] = field(default_factory=dict)

    @property
    def most_directions(self) -> int:
        """What the caller and the memory allow."""
        return max(1, min(self.limits.max_directions, _MAX_BYTES // (16 * len(self.z))))

    def precision(self, factors: tuple[float, ...]) -> Float[np.ndarray, " d"]:
        """eta for the factors of (given, free) axes, or of all axes."""
        given = np.full(self.num_given, factors[0])
        free = np.full(self.z.shape[1] - self.num_given, factors[-1])
        return self.base * np.concatenate([given, free])

    def num_anchors(self, factors: tuple[float, ...]) -> int:
        """Size of the grid behind the basis."""
        return prod(axis_size(p) for p in self.precision(factors))

    def basis(self, factors: tuple[float, ...], ridge: float) -> ProductBasis | None:
        """The basis of a setting; None if its grid is over the limit."""
        if self.num_anchors(factors) > self.limits.max_anchors:
            return None
        axes = tuple(
            axis_basis(float(p), self.z[:, l] if l < self.num_given else None)
            for l, p in enumerate(self.precision(factors))
        )
        return product_basis(axes, self.num_given, ridge, self.most_directions)

    def fit(
        self,
        basis: ProductBasis,
        ridge: float,
        part: np.ndarray | slice = slice(None),
        w: np.ndarray | None = None,
        start: np.ndarray | None = None,
        tol: float = DECREMENT,
    ) -> RootFit | None:
        """Fit a part of the samples, with features w if they are known."""
        z = self.z[part]
        given = z[:, : self.num_given] if self.num_given else None
        w = basis(z) if w is None else w
        return fit_root(w, basis.integrals(given), ridge, start, tol)

    def held_out(self, setting: Setting) -> float:
        """Mean score over the folds' held-out samples; -inf if a fold cannot be fitted."""
        if setting not in self.scores:
            self.scores[setting] = self._score_all(*setting)
            self.bar.advance(1 / _MAX_SETTINGS)
        scores = self.scores[setting]
        return -np.inf if scores is None else float(np.mean(scores))

    def _score_all(self, factors: tuple[float, ...], ridge: float) -> np.ndarray | None:
        basis = self.basis(factors, ridge)
        if basis is None:
            return None
        w, scores = basis(self.z), np.empty(len(self.z))
        whole = self.fit(basis, ridge, w=w, tol=ROUGH_DECREMENT)
        if whole is None:
            return None
        fold = np.random.default_rng(self.limits.seed).permutation(len(self.z)) % self.limits.folds
        for k in range(self.limits.folds):
            test, train = fold == k, fold != k
            # The fit to all samples is a Newton step or two away from the fold's.
            fit = self.fit(basis, ridge, train, w[train], whole.c, ROUGH_DECREMENT)
            if fit is None:
                return None
            c = normalised(basis, fit.c, self.z[train])
            scores[test] = sample_scores(basis, c, self.z[test], w[test])
        return scores if np.isfinite(scores).all() else None

    def climb(self, setting: Setting, free: list[int]) -> Setting:
        """Hill climbing over the free coordinates (groups of axes, then ridge), one at a time."""
        best = self.held_out(setting)
        improved = True
        while improved and len(self.scores) < _MAX_SETTINGS:
            improved = False
            for which in free:
                for sign in (1, -1):
                    while len(self.scores) < _MAX_SETTINGS:
                        moved = _move(setting, which, sign)
                        score = self.held_out(moved)
                        if not score > best:
                            break
                        setting, best, improved = moved, score, True
        return setting


def _move(setting: Setting, which: int, sign: int) -> Setting:
    factors, ridge = list(setting[0]), setting[1]
    if which < len(factors):
        factors[which] *= _PRECISION_STEP**sign
    else:
        ridge *= _RIDGE_STEP**sign
    return tuple(factors), ridge


def normalised(basis: ProductBasis, c: np.ndarray, z: np.ndarray) -> np.ndarray:
    """c scaled to mass one, on average over the sample's u."""
    given = z[:, : basis.num_given] if basis.num_given else None
    return c / np.sqrt(c @ basis.integrals(given) @ c)


def sample_scores(
    basis: ProductBasis, c: np.ndarray, z: np.ndarray, w: np.ndarray
) -> Float[np.ndarray, " n"]:
    """log g^2 - mass + 1; the mass of a density is one."""
    with np.errstate(divide="ignore"):
        scores = 2 * np.log(np.abs(w @ c))
    if basis.num_given:
        scores = scores - basis.masses(c, z[:, : basis.num_given]) + 1
    return scores
