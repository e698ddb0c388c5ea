"""Ridge regression on tensor grids: factor once per axis, then a few small matrix products.

With values Y on a tensor grid of nodes and coefficients on a tensor grid of anchors, per axis
P T = W diag(sigma) V' and T T' = K^+, the minimiser of |Y - P a|^2 / n + lambda a' K a is

    a = (T_1 V_1 x ... x T_D V_D) [ s / (s^2 + n lambda) o (W_1' x ... x W_D') Y ],
    s = sigma_1 x ... x sigma_D.
"""

from collections.abc import Sequence
from math import prod
from types import ModuleType
from typing import TypeVar

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Float

from .._checks import as_floats, is_concrete
from .._density.anchors import TensorGrid
from .._density.psd import as_precision
from .axes import AxisFactor, factor_axis

A = TypeVar("A", Array, np.ndarray)


def apply_along_axes(values: A, matrices: Sequence[A]) -> A:
    """(M_1 x ... x M_D) Y for Y of shape (n_1 ... n_D, k), in NumPy or JAX as the arguments are.

    Each product moves the axis it consumes to the back, so that nothing is transposed in memory;
    after D products the axes are in their old order again.
    """
    num_rhs = values.shape[-1]
    for matrix in matrices:
        values = values.reshape(matrix.shape[1], -1).T @ matrix.T
    return values.reshape(num_rhs, -1).T


def spectral_filter(singular: Sequence[A], shift: A | float, xp: ModuleType = np) -> A:
    """s / (s^2 + shift) for the tensor product s of the axes' singular values, flat."""
    total = singular[0]
    for values in singular[1:]:
        total = (total[:, None] * values[None, :]).reshape(-1)
    # In place of s / (s^2 + shift): exact zeros of s would otherwise divide zero by zero.
    return total / xp.maximum(total * total + shift, np.finfo(float).tiny)


class TensorRidge(eqx.Module):
    """The factored ridge problem on a tensor grid, as a pytree.

    `solve(values)` may be jitted, mapped and differentiated in the values.
    """

    anchors: TensorGrid
    points: TensorGrid
    precision: Float[Array, " d"]
    ridge: Float[Array, ""]  # lambda
    left: tuple[Float[Array, "_ _"], ...]  # W
    singular: tuple[Float[Array, " _"], ...]  # sigma
    lift: tuple[Float[Array, "_ _"], ...]  # T V
    condition: float = eqx.field(static=True)  # of the kernel matrix

    def __init__(
        self,
        anchors: TensorGrid,
        points: TensorGrid,
        precision: ArrayLike,
        ridge: ArrayLike,
        *,
        folds: Sequence[Float[np.ndarray, "m k"] | None] | None = None,
    ):
        """Factor the problem.

        Args:
            anchors: tensor grid of anchors.
            points: tensor grid of training points.
            precision: eta, one for each axis.
            ridge: lambda >= 0.
            folds: for each axis None, or the 0/1 matrix that ties anchors to free coefficients.
        """
        for name, grid in (("anchors", anchors), ("points", points)):
            if not isinstance(grid, TensorGrid):
                raise ValueError(
                    f"{name} must be a TensorGrid, got {type(grid).__name__}; "
                    "scattered points need DenseRidge"
                )
            if not all(is_concrete(axis) for axis in grid.axes):
                raise ValueError(
                    f"{name} must be concrete: the factorisation runs on the host, outside jit; "
                    "only `solve` can be traced"
                )
        dim = len(anchors.axes)
        if len(points.axes) != dim:
            raise ValueError(f"points must have {dim} axes, as anchors do, got {len(points.axes)}")
        self.precision = as_precision("precision", precision, dim)
        self.ridge = as_floats("ridge", ridge, ndim=0)
        if is_concrete(self.ridge) and not float(self.ridge) >= 0:
            raise ValueError(f"ridge must be >= 0, got {float(self.ridge)}")
        eta = np.asarray(self.precision)
        factors = [
            factor_axis(np.asarray(points.axes[i]), np.asarray(anchors.axes[i]), eta[i], fold)
            for i, fold in enumerate(folds if folds is not None else [None] * dim)
        ]
        self.anchors, self.points = anchors, points
        self.left, self.singular, self.lift = _as_jax(factors)
        self.condition = prod(factor.condition for factor in factors)

    def solve(self, values: ArrayLike) -> Float[Array, "m ..."]:
        """Coefficients for values `(n,)`, or `(n, k)` for k right-hand sides."""
        array = jnp.asarray(values, dtype=jnp.float64)
        num = prod(self.points.shape)
        if array.ndim not in (1, 2) or array.shape[0] != num:
            raise ValueError(
                f"values must have shape ({num},) or ({num}, k), one for each point of the grid "
                f"{self.points.shape} with the first axis slowest, got {array.shape}"
            )
        columns = array[:, None] if array.ndim == 1 else array
        solution = solve_factored(columns, self.left, self.singular, self.lift, self.ridge, jnp)
        return solution[:, 0] if array.ndim == 1 else solution


def solve_factored(
    values: A,
    left: Sequence[A],
    singular: Sequence[A],
    lift: Sequence[A],
    ridge: A | float,
    xp: ModuleType = np,
) -> A:
    """Coefficients (m, k) from values (n, k), in NumPy or JAX."""
    spectrum = apply_along_axes(values, [w.T for w in left])
    gain = spectral_filter(singular, values.shape[0] * ridge, xp)
    return apply_along_axes(xp.multiply(gain[:, None], spectrum), lift)


def _as_jax(factors: Sequence[AxisFactor]) -> tuple[tuple[Array, ...], ...]:
    return (
        tuple(jnp.asarray(f.left) for f in factors),
        tuple(jnp.asarray(f.singular) for f in factors),
        tuple(jnp.asarray(f.lift) for f in factors),
    )
