"""Densities from samples: penalised likelihood of a root (Good and Gaskins), a convex problem.

The model is f = g^2, g(z) = c' w(z) with w a basis of the kernel's space that is orthonormal there:

    min_c  -(2/n) sum_i log c' w(z_i) + c' (G + lambda I) c

over {c : c' w(z_i) > 0}, with G the integrals of w w'. It is convex, and n/2 times it is
self-concordant, so that Newton's decrement bounds the distance from the minimum. The population's
minimiser needs no constraint on the mass: -2 p log g + g^2 is least at g^2 = p, point by point.
The same holds for conditional densities Q(u, x) if the integral is taken over x only and averaged
over the sample's u: minimise -2 Q log g + g^2 at every u.

On a grid everything factors by axes. Per axis T' K T = I and T' Gamma T = V diag(l) V'; products of
the functions w = (T V)' k have kernel norm one and variances prod l. A direction whose variance is
far below lambda is shrunk to nothing, so only those with the largest variances are kept: in four
dimensions a few hundred of thousands.
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float
from scipy.special import erf

from .axes import features

# Grid behind the basis: eta h^2 and the reach past the box in kernel lengths.
_SPREAD, _PAD = 0.35, 1.5
# Directions of variance below this share of lambda are dropped.
_SHARE = 0.01
# Newton stops when the decrement t of n/2 times the objective is below this; the objective is then
# within t^2 / n of its minimum. Held-out scores vary by far more than the second allows.
DECREMENT, ROUGH_DECREMENT = 1e-4, 0.05
_MAX_STEPS = 200


@dataclass(frozen=True)
class AxisBasis:
    """w_k(z) = sum_j lift_jk k_eta(z, anchor_j), orthonormal in the kernel's space."""

    anchors: Float[np.ndarray, " m"]
    precision: float
    lift: Float[np.ndarray, "m r"]
    variances: Float[np.ndarray, " r"]  # diagonal of the averages of w w'

    def __call__(self, z: Float[np.ndarray, " n"]) -> Float[np.ndarray, "n r"]:
        return features(z, self.anchors, self.precision) @ self.lift


def axis_size(precision: float) -> int:
    """Anchors of the padded grid on (-1, 1) for this precision."""
    return int(np.ceil((2 * np.sqrt(precision) + 2 * _PAD) / np.sqrt(_SPREAD))) + 1


def axis_basis(precision: float, sample: Float[np.ndarray, " n"] | None) -> AxisBasis:
    """Basis of one axis; variances over the interval, or over the sample if there is one."""
    num = axis_size(precision)
    anchors = np.sqrt(_SPREAD / precision) * (np.arange(num) - 0.5 * (num - 1))
    kernel = features(anchors, anchors, precision)
    values, vectors = np.linalg.eigh(kernel)
    kept = values > num * np.finfo(float).eps * values[-1]
    whitener = vectors[:, kept] / np.sqrt(values[kept])
    if sample is None:
        second = whitener.T @ _interval_gram(anchors, precision) @ whitener
    else:
        white = features(sample, anchors, precision) @ whitener
        second = white.T @ white / len(sample)
    variances, rotation = np.linalg.eigh(0.5 * (second + second.T))
    order = np.argsort(-variances)
    lift = whitener @ rotation[:, order]
    return AxisBasis(anchors, precision, lift, np.clip(variances[order], 0.0, None))


def _interval_gram(anchors: np.ndarray, eta: float) -> np.ndarray:
    """Integrals over (-1, 1) of k(z, a) k(z, b) = k_{eta/2}(a, b) k_{2 eta}(z, (a + b)/2)."""
    middle = 0.5 * (anchors[:, None] + anchors[None, :])
    root = np.sqrt(2 * eta)
    mass = 0.5 * np.sqrt(np.pi) / root * (erf(root * (1 - middle)) - erf(root * (-1 - middle)))
    return features(anchors, anchors, eta / 2) * mass


@dataclass(frozen=True)
class ProductBasis:
    """Products of axis functions; row k of `index` names the factor of direction k on each axis.

    The first `num_given` axes are conditioned on: averaged over a sample, never integrated.
    """

    axes: tuple[AxisBasis, ...]
    index: Float[np.ndarray, "k d"]
    num_given: int

    def part(self, z: Float[np.ndarray, "n d"], first: int, last: int) -> Float[np.ndarray, "n k"]:
        """prod over the axes first..last-1 of w_{k_l}(z_l)."""
        out = np.ones((len(z), len(self.index)))
        for l in range(first, last):
            out *= self.axes[l](z[:, l])[:, self.index[:, l]]
        return out

    def __call__(self, z: Float[np.ndarray, "n d"]) -> Float[np.ndarray, "n k"]:
        return self.part(z, 0, len(self.axes))

    def integrals(self, given: Float[np.ndarray, "n g"] | None) -> Float[np.ndarray, "k k"]:
        """G: w w' integrated over the free axes, averaged over the sample of the given ones."""
        free = np.ones((len(self.index), len(self.index)))
        for l in range(self.num_given, len(self.axes)):
            # The free axes' functions are orthogonal over the interval.
            same = self.index[:, None, l] == self.index[None, :, l]
            free *= np.where(same, self.axes[l].variances[self.index[:, l]][:, None], 0.0)
        if given is None:
            return free
        w = self.part(given, 0, self.num_given)
        return free * (w.T @ w / len(given))

    def masses(
        self, c: Float[np.ndarray, " k"], given: Float[np.ndarray, "n g"]
    ) -> Float[np.ndarray, " n"]:
        """Integrals of g(u, x)^2 over x, one for each given u."""
        free_index, place = np.unique(self.index[:, self.num_given :], axis=0, return_inverse=True)
        spread = np.zeros((len(c), len(free_index)))
        spread[np.arange(len(c)), place.ravel()] = c
        variances = np.ones(len(free_index))
        for j, axis in enumerate(self.axes[self.num_given :]):
            variances = variances * axis.variances[free_index[:, j]]
        return np.square(self.part(given, 0, self.num_given) @ spread) @ variances

    def coefficients(self, c: Float[np.ndarray, " k"]) -> Float[np.ndarray, " m"]:
        """a on the grid's anchors, flat, first axis slowest."""
        tensor = np.zeros([axis.lift.shape[1] for axis in self.axes])
        tensor[tuple(self.index.T)] = c
        for axis in self.axes:
            tensor = np.tensordot(tensor, axis.lift, axes=(0, 1))
        return tensor.ravel()


def product_basis(
    axes: tuple[AxisBasis, ...], num_given: int, ridge: float, most: int
) -> ProductBasis:
    """Directions of variance above `_SHARE * ridge`, at most `most`, the largest first."""
    floor = _SHARE * ridge
    tails = [1.0]
    for axis in reversed(axes[1:]):
        tails.append(tails[-1] * axis.variances[0])
    tails.reverse()
    index, variances = np.zeros((1, 0), dtype=int), np.ones(1)
    # Axis by axis, dropping at once what no continuation can bring above the floor.
    for axis, tail in zip(axes, tails, strict=True):
        products = np.multiply.outer(variances, axis.variances)
        keep = np.argwhere(products * tail > floor)
        if len(keep) == 0:
            keep = np.array([np.unravel_index(np.argmax(products), products.shape)])
        variances = products[tuple(keep.T)]
        index = np.concatenate([index[keep[:, 0]], keep[:, 1:]], axis=1)
        if len(variances) > 50 * most:
            best = np.argsort(-variances)[: 50 * most]
            index, variances = index[best], variances[best]
    order = np.argsort(-variances)[:most]
    return ProductBasis(axes, index[order], num_given)


@dataclass(frozen=True)
class RootFit:
    """Minimiser of the penalised likelihood, and a bound on how far its objective is from least."""

    c: Float[np.ndarray, " k"]
    gap: float
    steps: int


def fit_root(
    w: Float[np.ndarray, "n k"],
    integrals: Float[np.ndarray, "k k"],
    ridge: float,
    start: Float[np.ndarray, " k"] | None = None,
    tol: float = DECREMENT,
) -> RootFit | None:
    """argmin_c -(2/n) sum log c' w_i + c' (G + ridge I) c by Newton; None if it does not settle."""
    n = len(w)
    penalty = integrals + ridge * np.eye(len(integrals))
    c = _feasible(w, penalty, ridge, start)
    if c is None:
        return None
    g = w @ c
    decrement, steps = np.inf, 0
    while True:
        gradient = penalty @ c - w.T @ (1 / (n * g))
        scaled = w / (np.sqrt(n) * g)[:, None]
        hessian = scaled.T @ scaled + penalty
        direction = -np.linalg.solve(hessian, gradient)
        # Of the objective times n/2: its gradient is n times `gradient`, its Hessian n times this.
        decrement = np.sqrt(max(-n * (gradient @ direction), 0.0))
        if decrement < tol or steps >= _MAX_STEPS:
            break
        length = _step_length(w, penalty, c, g, direction, decrement)
        c = c + length * direction
        g = w @ c
        steps += 1
    if not decrement < 1:
        return None
    return RootFit(c, float(-2 / n * (decrement + np.log1p(-decrement))), steps)


def _feasible(
    w: Float[np.ndarray, "n k"],
    penalty: Float[np.ndarray, "k k"],
    ridge: float,
    start: Float[np.ndarray, " k"] | None,
) -> Float[np.ndarray, " k"] | None:
    """A point where g > 0 on the sample: the given one, a near constant, or a kernel average."""
    average = np.mean(w, axis=0)

    def constant() -> np.ndarray:
        return np.linalg.solve(w.T @ w / len(w) + ridge * np.eye(w.shape[1]), average)

    for guess in (lambda: start, constant, lambda: average):
        c = guess()
        if c is not None and np.min(w @ c) > 0:
            # The best multiple of c: c' P c = 1.
            return c / np.sqrt(c @ penalty @ c)
    return None


def _step_length(
    w: Float[np.ndarray, "n k"],
    penalty: Float[np.ndarray, "k k"],
    c: Float[np.ndarray, " k"],
    g: Float[np.ndarray, " n"],
    direction: Float[np.ndarray, " k"],
    decrement: float,
) -> float:
    """The best of a few steps between 1 / (1 + decrement), which is always safe, and 1."""
    n, change = len(g), w @ direction
    linear, quadratic = penalty @ c @ direction, direction @ penalty @ direction

    def objective(t: float) -> float:
        ratio = 1 + t * change / g
        if np.min(ratio) <= 0:
            return np.inf
        return t * (linear + 0.5 * t * quadratic) - np.sum(np.log(ratio)) / n

    damped = 1 / (1 + decrement)
    trials = [damped, *(t for t in (2 * damped, 4 * damped, 0.25, 0.5, 1.0) if damped < t <= 1)]
    return min(trials, key=objective)
