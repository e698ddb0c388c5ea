"""The law of one time as it is known: sums of squares over nodes, times likelihoods."""

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..._density import squares
from ..._density.box import Box
from ..._density.conversions import PSDModel, with_precisions
from ..._density.generalized import GeneralizedGaussianPSD, PairwiseGaussianPSD
from ..._density.mass import scale
from ..._density.operations import partial, product
from ..._density.psd import AbstractDensity, GaussianPSD
from .triple import Triple, pair_values

# Numbers in the factor of an expanded generalised model (256 MiB).
_MAX_FACTOR = 2**25


class StepDensity(AbstractDensity):
    """f(x) = exp(log_scale) p(x) prod_i G^(x, y_i) b(x), in user units.

    p(x) = sum_m v_m Q^(z_m, x) after a transition, the prior before any; for a smoothed law
    b(x) = sum_j b_j Q^(x, z_j). `expand()` multiplies out to a model of the calculus.
    """

    triple: Triple
    box: Box
    nodes: Float[Array, "n d"]  # z, user units
    source: Float[Array, " n"] | None  # v
    seen: Float[Array, "k p"]  # y_i
    sink: Float[Array, " n"] | None  # b
    log_scale: Float[Array, ""]

    @property
    def dim(self) -> int:
        """Number of coordinates."""
        return self.triple.dim

    def _scaled_value(self, x: Float[Array, " d"]) -> tuple[Float[Array, ""], Float[Array, ""]]:
        triple, log_scale = self.triple, self.log_scale
        if self.source is None:
            value, more = triple.prior._scaled_value(x)
            log_scale = log_scale + more
        else:
            value = self.source @ pair_values(triple.transition, self.nodes, x[None])[:, 0]
        for y in self.seen:
            likelihood, more = triple.observation._scaled_value(jnp.concatenate([x, y]))
            value, log_scale = value * likelihood, log_scale + more
        if self.sink is not None:
            value = value * (pair_values(triple.transition, x[None], self.nodes)[0] @ self.sink)
        return value, log_scale

    def expand(self) -> PSDModel:
        """The same density as one model: a `GaussianPSD` if Q^, G^ and the prior are such."""
        triple, dim = self.triple, self.dim
        old, new = tuple(range(dim)), tuple(range(dim, 2 * dim))
        whole = triple.prior
        if self.source is not None:
            whole = sum_over(triple.transition, (old, new), self.nodes, self.source)
        for y in self.seen:
            seen = partial(triple.observation, range(dim, dim + y.size), y)
            whole = _multiplied(whole, seen)
        if self.sink is not None:
            back = sum_over(triple.transition, (new, old), self.nodes, self.sink)
            whole = _multiplied(whole, back)
        return scale(whole, self.log_scale)


def _multiplied(f: PSDModel, g: PSDModel) -> PSDModel:
    """f g, unless it is too large to be of use."""
    order, rank = f.order * g.order, f.rank * g.rank
    if order * rank > _MAX_FACTOR:
        raise ValueError(
            f"expand would give a model of order {order} and rank {rank}, too large to multiply "
            "out: evaluate the density itself, compress the models that were given, or fit it with "
            "psdfilter.learn_rank_one(f, box, vectorized=True)"
        )
    return with_precisions(product(f, g))


Split = tuple[tuple[int, ...], tuple[int, ...]]


def sum_over(
    q: PSDModel, split: Split, nodes: Float[Array, "n d"], masses: Float[Array, " n"]
) -> PSDModel:
    """sum_m v_m q(z_m, x) as a model of x; `split` are the axes of z and those of x."""
    if isinstance(q, GaussianPSD):
        some = masses > 0
        logs = jnp.where(some, jnp.log(jnp.where(some, masses, 1.0)), -jnp.inf)
        return _sum_squares(q, split, nodes, logs)
    if isinstance(q, PairwiseGaussianPSD):
        raise ValueError(
            "expand needs a transition that is a GaussianPSD or a GeneralizedGaussianPSD: a sum of "
            "pairs over nodes has too many of them. Evaluate the density itself, or filter with "
            'learned(..., engine="reference"), box=None'
        )
    size = (q.order * nodes.shape[0]) * (q.rank * nodes.shape[0])
    if size > _MAX_FACTOR:
        raise ValueError(
            f"expand would give a model of {q.order * nodes.shape[0]} components, too many to "
            "multiply out: evaluate the density itself, or fit it with learn_rank_one"
        )
    return _sum_components(q, split, nodes, masses)


@eqx.filter_jit
def _sum_squares(
    q: GaussianPSD, split: Split, nodes: Float[Array, "n d"], logs: Float[Array, " n"]
) -> GaussianPSD:
    return squares.sum_at_nodes(q, split, nodes, logs, jnp.zeros(nodes.shape[0]))[0]


@eqx.filter_jit
def _sum_components(
    q: GeneralizedGaussianPSD, split: Split, nodes: Float[Array, "n d"], masses: Float[Array, " n"]
) -> GeneralizedGaussianPSD:
    """Components of q at every node: P_xx, h_x - P_xz z, c + 2 h_z'z - z'P_zz z."""
    z, x = (np.asarray(axes) for axes in split)
    nodes = nodes - q.origin[z][None, :]
    matrices = q.precisions()
    inner, cross = matrices[:, z][:, :, z], matrices[:, x][:, :, z]
    linear = q.linear[None, :, x] - jnp.einsum("mxz,nz->nmx", cross, nodes)
    offset = q.offset[None] + 2 * nodes @ q.linear[:, z].T
    offset = offset - jnp.einsum("nz,mzy,ny->nm", nodes, inner, nodes)
    num, order = offset.shape
    columns = jnp.sqrt(masses)[:, None, None] * q.factor[None]
    # One block of columns for each node: its square is a term of the sum.
    index = np.arange(num)
    factor = jnp.zeros((num, order, num, q.rank)).at[index, :, index, :].set(columns)
    precision = matrices[:, x][:, :, x]
    return GeneralizedGaussianPSD(
        factor.reshape(num * order, num * q.rank),
        precision[0] if q.is_shared else jnp.tile(precision, (num, 1, 1)),
        linear.reshape(num * order, -1),
        offset.ravel(),
        q.log_scale,
        q.origin[x],
    )
