"""Where a model has its mass: the finite box that quadrature, bisection and starts live on."""

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from .anchors import expand
from .box import Box
from .generalized import GeneralizedGaussianPSD, PairwiseGaussianPSD, pairwise
from .psd import GaussianPSD

# exp(-6.5^2) = 4e-19: a bump this many widths away is nothing next to itself in float64.
REACH = 6.5


@eqx.filter_jit
def effective_box(
    f: GaussianPSD | GeneralizedGaussianPSD | PairwiseGaussianPSD,
    box: Box | None = None,
    reach: float = REACH,
) -> Box:
    """A finite box outside of which f holds no share of its mass that float64 could see.

    The anchors and `reach` widths 1 / sqrt(2 eta) around them, cut to `box`; for generalised models
    the centres of all pairs and as many of their widths. In a box out in the tail the mass sits at
    the edge next to the anchors and falls from there at least as fast as a bump does, so as many
    widths from that edge are kept.
    """
    if isinstance(f, GaussianPSD):
        points = expand(f.anchors)
        margin = reach / jnp.sqrt(2 * f.precision)
        low, high = jnp.min(points, axis=0) - margin, jnp.max(points, axis=0) + margin
    else:
        pairs = pairwise(f)
        chol = jnp.linalg.cholesky(pairs.precision)
        inverse = jnp.linalg.solve(chol, jnp.broadcast_to(jnp.eye(f.dim), chol.shape))
        centers = jnp.einsum("ijkd,ijke,ije->ijd", inverse, inverse, pairs.linear)
        centers = centers + f.origin[None, None, :]
        margins = reach * jnp.sqrt(jnp.sum(jnp.square(inverse), axis=-2))
        low, high = jnp.min(centers - margins, (0, 1)), jnp.max(centers + margins, (0, 1))
        margin = jnp.max(margins, (0, 1))
    return _cut(low, high, margin, box)


def _cut(
    low: Float[Array, " d"], high: Float[Array, " d"], margin: Float[Array, " d"], box: Box | None
) -> Box:
    if box is not None:
        low, high = (
            jnp.maximum(box.lower, jnp.minimum(low, box.upper - margin)),
            jnp.minimum(box.upper, jnp.maximum(high, box.lower + margin)),
        )
    return Box(low, high)
