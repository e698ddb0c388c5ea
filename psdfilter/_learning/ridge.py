"""Dense ridge regression on any anchors and points (maths.md 5).

    min_a |y - Phi a|^2 / n + lambda a' K a

With K = U diag(s) U', T = U s^{-1/2} over the kept eigenvalues and Phi T = W diag(sigma) V',
a = T V diag(sigma / (sigma^2 + n lambda)) W' y: the augmented least-squares problem
[Phi T; sqrt(n lambda) I] c = [y; 0] in closed form, without squaring its condition number.
"""

from types import ModuleType
from typing import TypeVar

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Float
from scipy.spatial.distance import cdist

from .._checks import as_floats, is_concrete
from .._density.anchors import as_anchors, expand
from .._density.psd import as_precision


class DenseRidge(eqx.Module):
    """The factored ridge problem; `solve(values)` may be jitted, mapped and differentiated."""

    anchors: Float[Array, "m d"]
    points: Float[Array, "n d"]
    precision: Float[Array, " d"]
    ridge: Float[Array, ""]  # lambda
    left: Float[Array, "n r"]  # W
    singular: Float[Array, " r"]  # sigma
    lift: Float[Array, "m r"]  # T V
    condition: float = eqx.field(static=True)  # of the kernel matrix

    def __init__(
        self, anchors: ArrayLike, points: ArrayLike, precision: ArrayLike, ridge: ArrayLike
    ):
        """Factor the problem: O(n m^2 + m^3) time, O(n m) memory, on the host."""
        self.anchors = expand(as_anchors("anchors", anchors))
        self.points = expand(as_anchors("points", points))
        dim = self.anchors.shape[1]
        if self.points.shape[1] != dim:
            raise ValueError(
                f"points must have {dim} coordinates, as anchors do, got {self.points.shape[1]}"
            )
        self.precision = as_precision("precision", precision, dim)
        self.ridge = as_floats("ridge", ridge, ndim=0)
        if is_concrete(self.ridge) and not float(self.ridge) >= 0:
            raise ValueError(f"ridge must be >= 0, got {float(self.ridge)}")
        # On the host throughout: sizes change from call to call, and compiling for each is slow.
        scale = np.sqrt(np.asarray(self.precision))
        centers, data = np.asarray(self.anchors) * scale, np.asarray(self.points) * scale
        values, vectors = np.linalg.eigh(np.exp(-cdist(centers, centers, "sqeuclidean")))
        kept = values > np.finfo(float).eps * values.size * values[-1]
        whiten = vectors[:, kept] / np.sqrt(values[kept])
        design = np.exp(-cdist(data, centers, "sqeuclidean"))
        left, singular, right = np.linalg.svd(design @ whiten, full_matrices=False)
        self.left, self.singular = jnp.asarray(left), jnp.asarray(singular)
        self.lift = jnp.asarray(whiten @ right.T)
        self.condition = float(values[-1] / values[kept][0])

    def solve(self, values: ArrayLike) -> Float[Array, "m ..."]:
        """Coefficients for values `(n,)`, or `(n, k)` for k right-hand sides."""
        array = jnp.asarray(values, dtype=jnp.float64)
        num = self.points.shape[0]
        if array.ndim not in (1, 2) or array.shape[0] != num:
            raise ValueError(
                f"values must have shape ({num},) or ({num}, k), one for each point, "
                f"got {array.shape}"
            )
        gain = dense_filter(self.singular, num * self.ridge, jnp)
        columns = array[:, None] if array.ndim == 1 else array
        solution = self.lift @ (gain[:, None] * (self.left.T @ columns))
        return solution[:, 0] if array.ndim == 1 else solution


A = TypeVar("A", Array, np.ndarray)


def dense_filter(singular: A, shift: A | float, xp: ModuleType = np) -> A:
    """s / (s^2 + shift), zero where s is."""
    return singular / xp.maximum(singular * singular + shift, np.finfo(float).tiny)
