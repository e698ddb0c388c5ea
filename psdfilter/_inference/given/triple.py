"""Three PSD models that make a filter: a prior, Q^(u, x) and G^(x, y), in the user's units."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..._density.anchors import TensorGrid, expand
from ..._density.box import Box
from ..._density.conversions import PSDModel
from ..._density.diagonal import keep_axes
from ..._density.generalized import pairwise
from ..._density.psd import AbstractDensity, GaussianPSD, over_points
from ..._gaussian.kernel import squared_distances

Anchors = Float[Array, "m d"] | TensorGrid


class Triple(eqx.Module):
    """What Algorithm 2 takes.

    Attributes:
        prior: of x_0, of any positive mass.
        transition: Q^(u, x), d coordinates of the old state and then d of the new one.
        observation: G^(x, y), d coordinates of the state and then those of y.
        box: where the state lives; None for all of space.
        observation_box: where y lives, if that is known.
    """

    prior: PSDModel
    transition: PSDModel
    observation: PSDModel
    box: Box | None
    observation_box: Box | None = None

    @property
    def dim(self) -> int:
        """Number of coordinates of the state."""
        return self.prior.dim

    @property
    def num_observed(self) -> int:
        """Number of coordinates of an observation."""
        return self.observation.dim - self.dim

    def log_likelihood(self, x: Float[Array, "n d"], y: Float[Array, " p"]) -> Float[Array, " n"]:
        """log G^(x, y) for several x."""
        return log_values(self.observation, _beside(x, y, last=True))


def _beside(x: Float[Array, "n a"], one: Float[Array, " b"], last: bool) -> Float[Array, "n c"]:
    same = jnp.broadcast_to(one[None, :], (x.shape[0], one.shape[0]))
    return jnp.concatenate([x, same] if last else [same, x], axis=1)


def log_values(f: AbstractDensity, points: Float[Array, "n d"]) -> Float[Array, " n"]:
    """log f at points that are known to be good; -inf where f is zero."""
    return over_points(f, points, "log")


def pair_values(f: PSDModel, u: Float[Array, "n a"], x: Float[Array, "k b"]) -> Float[Array, "n k"]:
    """f(u_i, x_j) for all pairs, the first coordinates being those of u.

    A `GaussianPSD` has kernels that are products: one matrix product for each column of its factor,
    sum_r (sum_i L_ir k(u, i) k(x, i))^2. Others are evaluated pair by pair.
    """
    if not isinstance(f, GaussianPSD):
        return jnp.exp(jax.lax.map(lambda one: log_values(f, _beside(x, one, last=False)), u))
    split, eta = u.shape[1], f.precision
    of_u, of_x = tuple(range(split)), tuple(range(split, f.dim))
    left = _kernels(u, keep_axes(f.anchors, of_u), eta[:split])
    right = _kernels(x, keep_axes(f.anchors, of_x), eta[split:])
    grid = isinstance(f.anchors, TensorGrid)

    def squares(total: Array, column: Float[Array, " m"]) -> tuple[Array, None]:
        if grid:
            roots = left @ column.reshape(left.shape[1], right.shape[1]) @ right.T
        else:
            roots = (left * column[None, :]) @ right.T
        return total + jnp.square(roots), None

    start = jnp.zeros((u.shape[0], x.shape[0]))
    return jnp.exp(f.log_scale) * jax.lax.scan(squares, start, f.factor.T)[0]


def _kernels(x: Float[Array, "n d"], anchors: Anchors, eta: Float[Array, " d"]) -> Array:
    return jnp.exp(-squared_distances(x, expand(anchors), eta))


def curvatures(f: PSDModel, axes: tuple[int, ...]) -> Float[np.ndarray, " k"]:
    """kappa of each axis: along it f is a sum of bumps exp(-kappa (t - m)^2) or wider ones."""
    at = np.asarray(axes, dtype=int)
    if isinstance(f, GaussianPSD):
        return 2 * np.asarray(f.precision)[at]
    diagonals = np.diagonal(np.asarray(pairwise(f).precision), axis1=-2, axis2=-1)
    return diagonals.reshape(-1, f.dim).max(axis=0)[at]


def outside(f: PSDModel, axes: tuple[int, ...], box: Box) -> Float[np.ndarray, " k"]:
    """How far the farthest anchor of f lies outside of a box of these axes."""
    if not isinstance(f, GaussianPSD):
        return np.zeros(len(axes))
    points = np.asarray(expand(f.anchors))[:, np.asarray(axes, dtype=int)]
    below, above = np.asarray(box.lower) - points, points - np.asarray(box.upper)
    return np.maximum(np.maximum(below, above).max(axis=0), 0.0)
