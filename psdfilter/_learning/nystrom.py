"""Nyström kernel ridge regression for many points, by preconditioned conjugate gradients.

    min_a (1/n) |y - Phi a|^2 + lambda a' K a   <=>   (Phi' Phi / n + lambda K) a = Phi' y / n

1. Whiten: K = U diag(s) U', T = U s^{-1/2} over s > m eps s_max, so that T' K T = I.
2. Precondition with a sample S of the points: C = (Phi_S T)'(Phi_S T)/|S| + lambda I = R R'.
   With |S| = rho m the preconditioned matrix has condition number about
   ((1 + rho^{-1/2}) / (1 - rho^{-1/2}))^2, whatever lambda is: each iteration divides the error by
   about sqrt(rho).
3. Conjugate gradients on R^{-1} (T' Phi' Phi T / n + lambda I) R^{-T} c = R^{-1} T' Phi' y / n,
   started from the solution on the sample. One iteration is one pass over the points.

Whitening comes before the product Phi' Phi: formed first, its rounding would be divided by
s_min, and lambda would drown for scattered anchors. The sample's size balances step 2 against the
passes of step 3; with S = all points this is the direct method, one iteration.

The loop runs on the host, not in Lineax's CG: a pass reads blocks from disk or from the user's
generator, moves the progress bar and can be interrupted; inside `lax.while_loop` each block would
be a callback into Python.
"""

import math
import time

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import scipy.linalg
from jaxtyping import Array, ArrayLike, Float
from scipy.spatial.distance import cdist

from .._checks import as_count, require_x64
from .._density.anchors import TensorGrid, as_anchors, dimension, expand
from .._density.psd import GaussianPSD, as_precision
from .blocks import BlockSource, Points, as_block_source
from .progress import Bar
from .table import AbstractReport

# Rows read at a time, and bytes of kernel values worked on at a time: the second stays in cache
# between the two products of a pass (measured at m = 2000: 6.9 s per 10^6 rows, 21 s if all
# rows of a block are expanded at once).
_ROWS_PER_READ = 65_536
_BYTES_IN_CACHE = 4 * 2**20
# One kernel value in a pass costs as much as about this many multiply-adds of a matrix product
# (measured on two cores: 3.5 ns against 1/30 ns).
_KERNEL_COST = 100.0


class NystromReport(AbstractReport):
    """What a Nyström fit did."""

    num_points: int
    num_anchors: int
    rank: int  # directions of K kept
    num_preconditioner: int  # |S|
    iterations: int
    residual: float  # relative, preconditioned: about the relative error of the fitted values
    tol: float
    seconds: float

    @property
    def converged(self) -> bool:
        """Whether the residual is below the tolerance."""
        return self.residual <= self.tol

    def rows(self) -> list[tuple[str, str]]:
        """Names and values, in the order they are shown."""
        state = "" if self.converged else ", NOT REACHED"
        return [
            ("points", f"{self.num_points}"),
            ("anchors", f"{self.num_anchors} (rank {self.rank})"),
            ("preconditioner", f"from {self.num_preconditioner} points"),
            ("residual", f"{self.residual:.1e}  (asked {self.tol:g}{state})"),
            ("iterations", f"{self.iterations}"),
            ("time", f"{self.seconds:.3g} s"),
        ]


class NystromFit(eqx.Module):
    """g(x) = a' k(x), its square as a model, and how it was found."""

    coefficients: Float[Array, " m"]  # a
    model: GaussianPSD  # (a' k(x))^2
    report: NystromReport = eqx.field(static=True)


def nystrom_ridge(
    points: Points,
    targets: ArrayLike | None,
    anchors: ArrayLike | TensorGrid,
    precision: ArrayLike,
    *,
    ridge: float,
    tol: float = 1e-8,
    max_iterations: int = 100,
    num_preconditioner: int | None = None,
    progress: bool | None = None,
    throw: bool = True,
) -> NystromFit:
    """a = argmin (1/n) sum_i (y_i - a' k(x_i))^2 + ridge a' K a, for up to millions of points.

    Memory is about 6 m^2 numbers for m anchors and does not grow with n; each iteration is one pass
    over the points.

    Args:
        points: (n, d) array or NumPy memmap; or a function without arguments that returns an
            iterator over pairs of arrays (points (k, d), targets (k,)), called once for each pass.
        targets: (n,) array or memmap, the root of a density to be learned; None for a function.
        anchors: (m, d) array or a grid.
        precision: eta, a number or one for each axis.
        ridge: lambda > 0.
        tol: relative residual at which to stop, in the coordinates of the preconditioner, where it
            is about the relative root-mean-square error of the fitted values.
        max_iterations: passes before giving up.
        num_preconditioner: size of the sample that the preconditioner is made from; by default
            what makes the whole cheapest.
        progress: show a progress bar; by default if the standard error is a terminal.
        throw: raise if `tol` is not reached, instead of saying so in the report.
    """
    require_x64()
    start = time.perf_counter()
    anchors = as_anchors("anchors", anchors)
    eta = as_precision("precision", precision, dimension(anchors))
    for name, value in (("ridge", ridge), ("tol", tol)):
        if not (np.isfinite(value) and value > 0):
            raise ValueError(f"{name} must be positive and finite, got {value!r}")
    _ = as_count("max_iterations", max_iterations)
    source = as_block_source(points, targets, dimension(anchors), _ROWS_PER_READ)
    root_eta = np.sqrt(np.asarray(eta))
    centers = np.asarray(expand(anchors)) * root_eta
    whitener = whiten(host_features(centers, centers))
    size = _preconditioner_size(num_preconditioner, source.count, whitener.shape, tol)
    index = np.sort(np.random.default_rng(0).choice(source.count, size, replace=False))
    sample_x, sample_y = source.take(index, _ROWS_PER_READ)
    root, guess, scale = _precondition(
        sample_x * root_eta, sample_y, centers, whitener, float(ridge)
    )
    normal = _NormalEquations(source, root_eta, centers, whitener, root, float(ridge), progress)
    c, iterations, residual = _conjugate_gradients(normal, guess, scale, tol, max_iterations)
    a = jnp.asarray(whitener @ scipy.linalg.solve_triangular(root.T, c))
    report = NystromReport(
        source.count,
        len(centers),
        whitener.shape[1],
        size,
        iterations,
        residual,
        float(tol),
        time.perf_counter() - start,
    )
    if throw and not report.converged:
        raise RuntimeError(
            f"nystrom_ridge stopped at residual {residual:.1e} after {iterations} iterations, "
            f"above tol={tol:.1e}; raise num_preconditioner (now {size}), ridge or max_iterations, "
            "or pass throw=False"
        )
    return NystromFit(a, GaussianPSD(anchors, a, eta), report)


def features(x: Float[Array, "n d"], centers: Float[Array, "m d"]) -> Float[Array, "n m"]:
    """exp(-|x_i - z_j|^2), summed axis by axis: one fused loop, no (n, m, d) array."""
    distance = jnp.zeros((x.shape[0], centers.shape[0]))
    for axis in range(x.shape[1]):
        distance = distance + jnp.square(x[:, axis, None] - centers[None, :, axis])
    return jnp.exp(-distance)


_features = jax.jit(features)


def host_features(x: np.ndarray, centers: np.ndarray) -> np.ndarray:
    """The same by SciPy, for arrays that are used once: nothing to compile."""
    return np.exp(-cdist(x, centers, "sqeuclidean"))


def whiten(matrix: np.ndarray) -> np.ndarray:
    """T with T' K T = I over the directions of K that are above rounding.

    The inverse Cholesky factor if K is well enough conditioned that no direction is lost; else
    eigenvectors over the eigenvalues s > m eps s_max.
    """
    cut = len(matrix) * np.finfo(float).eps
    try:
        root = np.linalg.cholesky(matrix)
    except np.linalg.LinAlgError:
        pass
    else:
        norm = np.abs(matrix).sum(axis=0).max()
        (estimate,) = scipy.linalg.get_lapack_funcs(("pocon",), (root,))
        reciprocal_condition, _ = estimate(root, norm, uplo="L")
        if reciprocal_condition > cut:
            identity = np.eye(len(matrix))
            return scipy.linalg.solve_triangular(root, identity, lower=True).T
    values, vectors = np.linalg.eigh(matrix)
    kept = values > cut * values[-1]
    return vectors[:, kept] / np.sqrt(values[kept])


def _preconditioner_size(
    requested: int | None, count: int, shape: tuple[int, int], tol: float
) -> int:
    """|S|: the requested size, or the one of least predicted cost.

    In multiply-adds: |S| (m r + r^2 / 2) for the sample, n m _KERNEL_COST for each of
    log(1/tol) / log(sqrt(rho / 2)) passes, rho = |S| / r; the 2 is measured, for points near the
    faces of the box weigh more than the average.
    """
    if requested is not None:
        return min(as_count("num_preconditioner", requested), count)
    m, rank = shape
    sizes = np.unique(np.minimum(count, rank * np.geomspace(4.0, max(4.0, count / rank), 60)))
    passes = np.ceil(
        math.log(1 / min(tol, 0.5)) / (0.5 * np.log(np.maximum(sizes / rank, 4.0) / 2))
    )
    passes = np.where(sizes == count, 1.0, passes)
    cost = sizes * (m * rank + 0.5 * rank**2) + count * m * _KERNEL_COST * passes
    return int(sizes[np.argmin(cost)])


def _precondition(
    x: np.ndarray, y: np.ndarray, centers: np.ndarray, whitener: np.ndarray, ridge: float
) -> tuple[np.ndarray, np.ndarray, float]:
    """R with R R' = C, the sample's solution R^{-1} T' Phi_S' y / |S|, and its norm."""
    rank = whitener.shape[1]
    # The lower triangle of the products comes from BLAS's symmetric update: half the work.
    matrix, right = np.zeros((rank, rank)), np.zeros(rank)
    rows = max(256, _BYTES_IN_CACHE * 8 // (8 * len(centers)))
    z = jnp.asarray(centers)
    for start in range(0, len(y), rows):
        piece = slice(start, start + rows)
        block = np.asarray(_features(jnp.asarray(x[piece]), z)) @ whitener
        matrix += block.T @ block
        right += block.T @ y[piece]
    matrix = matrix / len(y) + ridge * np.eye(rank)
    try:
        root = np.linalg.cholesky(matrix)
    except np.linalg.LinAlgError:
        raise ValueError(
            f"ridge must be above the rounding of the normal equations, about "
            f"{rank * np.finfo(float).eps * np.trace(matrix):.1e} here, got {ridge!r}"
        ) from None
    solution = scipy.linalg.solve_triangular(root, right / len(y), lower=True)
    return root, solution, float(np.linalg.norm(solution))


class _NormalEquations:
    """c -> R^{-1} (T' Phi' Phi T / n + lambda I) R^{-T} c, one pass over the points each."""

    def __init__(
        self,
        source: BlockSource,
        root_eta: np.ndarray,
        centers: np.ndarray,
        whitener: np.ndarray,
        root: np.ndarray,
        ridge: float,
        progress: bool | None,
    ):
        self.source, self.root_eta, self.centers = source, root_eta, jnp.asarray(centers)
        self.whitener, self.root, self.ridge, self.progress = whitener, root, ridge, progress
        inner = max(16, _BYTES_IN_CACHE // (8 * len(centers)))
        self.inner = min(inner, source.count)
        self.rows = self.inner * max(1, min(_ROWS_PER_READ, source.count) // self.inner)

    def apply(self, c: np.ndarray, text: str, *, with_targets: bool = False) -> np.ndarray:
        """The image of c, minus the right-hand side if `with_targets`; `text` is for the bar."""
        b = scipy.linalg.solve_triangular(self.root.T, c)
        a = jnp.asarray(self.whitener @ b)
        total = np.zeros(len(self.centers))
        with Bar(text, self.progress) as bar:
            for x, y in self.source.read(self.rows):
                scaled, target, mask = self._pad(x, y if with_targets else np.zeros_like(y))
                total += np.asarray(
                    _block_product(scaled, target, mask, self.centers, a, rows=self.inner)
                )
                bar.advance(len(y) / self.source.count)
        image = self.whitener.T @ (total / self.source.count) + self.ridge * b
        return scipy.linalg.solve_triangular(self.root, image, lower=True)

    def _pad(self, x: np.ndarray, y: np.ndarray) -> tuple[Array, Array, Array]:
        """Blocks of one shape, so that the last one does not compile anew."""
        extra = self.rows - len(y)
        scaled = np.pad(x * self.root_eta, ((0, extra), (0, 0)))
        mask = np.pad(np.ones(len(y)), (0, extra))
        return jnp.asarray(scaled), jnp.asarray(np.pad(y, (0, extra))), jnp.asarray(mask)


@eqx.filter_jit
def _block_product(
    x: Float[Array, "n d"],
    y: Float[Array, " n"],
    mask: Float[Array, " n"],
    centers: Float[Array, "m d"],
    a: Float[Array, " m"],
    *,
    rows: int,
) -> Float[Array, " m"]:
    """Phi' (mask * Phi a - y)."""

    def step(total, piece):
        points, target, keep = piece
        phi = features(points, centers)
        return total + (keep * (phi @ a) - target) @ phi, None

    pieces = (x.reshape(-1, rows, x.shape[1]), y.reshape(-1, rows), mask.reshape(-1, rows))
    return jax.lax.scan(step, jnp.zeros_like(a), pieces)[0]


def _conjugate_gradients(
    normal: _NormalEquations, guess: np.ndarray, scale: float, tol: float, max_iterations: int
) -> tuple[np.ndarray, int, float]:
    """c, iterations and |residual| / scale; the first pass yields the residual of the guess."""
    c = guess
    residual = -normal.apply(c, "residual of the first guess", with_targets=True)
    direction, square = residual, float(residual @ residual)
    scale = scale if scale > 0 else 1.0
    iterations = 0
    while math.sqrt(square) > tol * scale and iterations < max_iterations:
        text = f"iteration {iterations + 1}, residual {math.sqrt(square) / scale:.1e}"
        image = normal.apply(direction, text)
        step = square / float(direction @ image)
        c = c + step * direction
        residual = residual - step * image
        previous, square = square, float(residual @ residual)
        direction = residual + (square / previous) * direction
        iterations += 1
    return c, iterations, math.sqrt(square) / scale
