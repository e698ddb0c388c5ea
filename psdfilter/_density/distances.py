"""Entropy, distances and level sets. None has a closed form: all are quadratures on a box.

The rule is a tensor Gauss-Legendre rule with positive weights, in at most three coordinates. By
default an axis of half-width w has 10 + 8 sqrt(2 eta) w nodes, which integrates f itself to about
1e-9, and at least 2048, 256 or 64 of them in one, two or three coordinates, because roots, |p - q|
and level sets have kinks, where the error falls only like the square of the node spacing.
"""

import math
from collections.abc import Callable, Mapping

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .._checks import Numbers, as_count, as_floats, check_values, is_concrete, verified
from .._gaussian.quadrature import gauss_legendre
from .anchors import TensorGrid
from .box import Box
from .conversions import PSDModel, with_precisions
from .generalized import pairwise
from .mass import BoxLike, as_model, optional_box, positive_mass, verified_model
from .operations import Model
from .psd import GaussianPSD, over_points
from .support import effective_box

# Points with their values take 130 MB in three coordinates.
_MAX_NODES = 4_000_000
# |f - g| has kinks, on which rules converge slowly: 2048 nodes gave a total variation on a line to
# 1e-6, 512 to 2e-5. In the plane that would be 4e6 points, in space 9e9: fewer have to do.
_LEAST_NODES = {1: 2048, 2: 256, 3: 64}
# A level cuts through a step: 65536 nodes gave it to 7e-5 on a line, 2048 to 5e-4.
_LEAST_LEVEL_NODES = {1: 65536, 2: 512, 3: 96}


def resolution(f: PSDModel) -> Float[Array, " d"]:
    """sqrt(kappa): the inverse length of the narrowest bump of f along each axis."""
    if isinstance(f, GaussianPSD):
        return jnp.sqrt(2 * f.precision)
    diagonal = jnp.diagonal(pairwise(f).precision, axis1=-2, axis2=-1)
    return jnp.sqrt(jnp.max(diagonal, axis=(0, 1)))


def _node_counts(
    models: tuple[PSDModel, ...],
    box: Box,
    num_nodes: int | None,
    least: Mapping[int, int] = _LEAST_NODES,
) -> list[int]:
    """Nodes on each axis, fine enough for all `models` on `box`."""
    dim = box.dim
    if dim > 3:
        raise ValueError(
            f"f must have at most 3 coordinates for quadrature, got {dim}; use sample() and "
            "average instead"
        )
    if num_nodes is not None:
        counts = [as_count("num_nodes", num_nodes)] * dim
    else:
        sharpest = jnp.max(jnp.stack([resolution(m) for m in models]), axis=0)
        if not is_concrete(sharpest) or not is_concrete(box.half_width):
            raise ValueError("num_nodes must be given under jit, vmap or grad: it sets array sizes")
        needed = [10 + math.ceil(8 * float(c)) for c in sharpest * box.half_width]
        counts = [max(n, least[dim]) for n in needed]
    if math.prod(counts) > _MAX_NODES:
        raise ValueError(
            f"num_nodes would be {' x '.join(map(str, counts))}, more than {_MAX_NODES} in all: "
            "pass num_nodes, a smaller box, or sample"
        )
    return counts


def quadrature_nodes(
    models: tuple[PSDModel, ...], box: Box, num_nodes: int | None
) -> tuple[Float[Array, "n d"], Float[Array, " n"]]:
    """Nodes and weights fine enough for all `models` on `box`."""
    return gauss_legendre(box.lower, box.upper, _node_counts(models, box, num_nodes))


def _verified_pair(
    p: Model, q: Model, box: BoxLike | None
) -> tuple[PSDModel, PSDModel, Box | None]:
    p, q = as_model("p", p), as_model("q", q)
    if p.dim != q.dim:
        raise ValueError(f"p and q must have equally many coordinates, got {p.dim} and {q.dim}")
    p, q = with_precisions(p), with_precisions(q)
    return verified(p=p, q=q, box=optional_box(box, p.dim))


def _verified_one(f: Model, box: BoxLike | None) -> tuple[PSDModel, Box | None]:
    model, domain = verified_model(f, box)
    return with_precisions(model), domain


def _whole_box(p: PSDModel, q: PSDModel, domain: Box | None) -> Box:
    """The box itself, where that is bounded."""
    # A traced box cannot be looked at, and is taken for a bounded one.
    if domain is not None and not (is_concrete(domain.lower) and is_concrete(domain.upper)):
        return domain
    if domain is not None and np.all(np.isfinite(np.asarray(domain.half_width))):
        return domain
    return _shared_box(p, q, domain)


def _shared_box(p: PSDModel, q: PSDModel, domain: Box | None) -> Box:
    """Where one of both has mass: nodes anywhere else would be missing there."""
    a, b = effective_box(p, domain), effective_box(q, domain)
    return Box(jnp.minimum(a.lower, b.lower), jnp.maximum(a.upper, b.upper))


def _log_normalized(f: Model, nodes: Float[Array, "n d"], domain: Box | None) -> Array:
    return over_points(f, nodes, "log") - positive_mass(f, domain)


def _compare(
    p: Model,
    q: Model,
    box: BoxLike | None,
    num_nodes: int | None,
    reduce: Callable[[Array, Array, Array], Array],
) -> Array:
    """reduce(weights, log p, log q) on nodes, p and q normalised."""
    p, q, domain = _verified_pair(p, q, box)
    nodes, weights = quadrature_nodes((p, q), _shared_box(p, q, domain), num_nodes)
    log_p, log_q = _log_normalized(p, nodes, domain), _log_normalized(q, nodes, domain)
    return reduce(weights, log_p, log_q)


def total_variation(
    p: Model, q: Model, box: BoxLike | None = None, *, num_nodes: int | None = None
) -> Float[Array, ""]:
    """int |p - q| of the two normalised densities: between 0 and 2 (no factor 1/2). Quadrature."""
    return _compare(
        p, q, box, num_nodes, lambda w, a, b: jnp.sum(w * jnp.abs(jnp.exp(a) - jnp.exp(b)))
    )


def hellinger(
    p: Model, q: Model, box: BoxLike | None = None, *, num_nodes: int | None = None
) -> Float[Array, ""]:
    """sqrt(int (sqrt p - sqrt q)^2 / 2) of the normalised densities, in [0, 1]. Quadrature."""

    def reduce(w: Array, a: Array, b: Array) -> Array:
        gap = jnp.exp(0.5 * a) - jnp.exp(0.5 * b)
        return jnp.sqrt(0.5 * jnp.sum(w * jnp.square(gap)))

    return _compare(p, q, box, num_nodes, reduce)


def kl_divergence(
    p: Model, q: Model, box: BoxLike | None = None, *, num_nodes: int | None = None
) -> Float[Array, ""]:
    """int p log(p / q) of the normalised densities; inf where q vanishes on p. Quadrature."""

    def reduce(w: Array, a: Array, b: Array) -> Array:
        present = jnp.exp(a) > 0
        gap = jnp.where(present, jnp.where(present, a, 0.0) - b, 0.0)
        return jnp.sum(jnp.where(present, w * jnp.exp(a) * gap, 0.0))

    return _compare(p, q, box, num_nodes, reduce)


def hilbert_metric(
    p: Model, q: Model, box: BoxLike, *, num_nodes: int | None = None
) -> Float[Array, ""]:
    """sup log(p/q) - inf log(p/q) on the box, read off a grid: an estimate from below.

    Scale-free; bounds the total variation by 2 tanh(h / 4). The grid holds the edges of the box,
    where the ratio of two densities tends to be largest.
    """
    p, q, domain = _verified_pair(p, q, box)
    room = _whole_box(p, q, domain)
    counts = _node_counts((p, q), room, num_nodes)
    unit = TensorGrid([np.linspace(-1.0, 1.0, max(n, 2)) for n in counts]).points()
    nodes = room.center[None, :] + room.half_width[None, :] * unit
    a, b = _log_normalized(p, nodes, domain), _log_normalized(q, nodes, domain)
    # Two normalised densities cross, so that zero lies between the infimum and the supremum.
    ratio = jnp.where(jnp.isneginf(a) & jnp.isneginf(b), 0.0, a - b)
    return jnp.max(ratio) - jnp.min(ratio)


def entropy(
    f: Model, box: BoxLike | None = None, *, num_nodes: int | None = None
) -> Float[Array, ""]:
    """-int p log p of p = f / int f. Quadrature."""
    f, domain = _verified_one(f, box)
    nodes, weights = quadrature_nodes((f,), effective_box(f, domain), num_nodes)
    log_p = _log_normalized(f, nodes, domain)
    safe = jnp.where(jnp.isfinite(log_p), log_p, 0.0)
    return -jnp.sum(weights * jnp.where(jnp.isfinite(log_p), jnp.exp(log_p) * safe, 0.0))


@eqx.filter_jit
def _levels(log_p: Array, mass: Array) -> Array:
    values = jnp.exp(-jnp.sort(-log_p))
    covered = jnp.cumsum(values)
    # A node stands for the middle of its own share; between two nodes the level is interpolated.
    return jnp.interp(mass * covered[-1], covered - 0.5 * values, values)


def hdr_level(
    f: Model, mass: Numbers, box: BoxLike | None = None, *, num_nodes: int | None = None
) -> Float[Array, "..."]:
    """The level c with int over {p > c} of p = mass: its region is the smallest of that mass.

    p = f / int f. Quadrature by the midpoint rule, whose equal weights suit a set with an unknown
    edge; the level is interpolated between the values of p at the nodes.
    """
    f, domain = _verified_one(f, box)
    shares = as_floats("mass", mass)
    shares = check_values(
        shares, (shares > 0) & (shares < 1), f"mass must lie in (0, 1), got {mass}"
    )
    room = effective_box(f, domain)
    counts = _node_counts((f,), room, num_nodes, _LEAST_LEVEL_NODES)
    unit = TensorGrid([(2 * np.arange(n) + 1) / n - 1 for n in counts]).points()
    nodes = room.center[None, :] + room.half_width[None, :] * unit
    log_p = _log_normalized(f, nodes, domain)
    return _levels(log_p, shares)
