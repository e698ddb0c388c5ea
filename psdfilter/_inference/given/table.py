"""A triple at quadrature nodes of its box: positive numbers, whatever the signs inside the models.

    p = (w pi)'E,   pi = p G^(z, y) / Z,   Z = w'(p G^),          E[m, j] = Q^(z_m, z_j)

Nodes are Gauss-Legendre in unit coordinates, as many on each axis as the integrals need.
"""

from math import prod
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..._density.anchors import expand
from ..._density.box import Box
from ..._density.conversions import PSDModel
from ..._density.generalized import pairwise
from ..._density.psd import GaussianPSD
from ..._gaussian.quadrature import legendre_rule
from ..numerics.grids import flat_weights, grid_points, half_of, host_points, mesh_points
from ..numerics.observed import observation_grid
from ..sizing.plan import Unaffordable
from .host import host_pairs, host_values
from .triple import Triple, curvatures, outside

# A table of nodes by nodes: 2^26 numbers are 512 MiB.
_MAX_ENTRIES = 2**26
# Counts grow by this factor until two of them agree.
_GROWTH = 1.3
# Rounding in the values of models that is put up with, as by the operations of the calculus.
_DIGITS = 1e-6
# Places on each axis where integrals are compared, by dimension, and observations for them.
_PROBES = {1: 24, 2: 6, 3: 3}
_SEEN = 5


class Table(eqx.Module):
    """A triple tabulated; densities are those of unit coordinates.

    Attributes:
        triple: the models.
        box: of the state.
        nodes: on each axis, in (-1, 1).
        weights: likewise.
        kernel: E.
        start: the prior at the nodes, of mass one.
        log_start: log of the mass that the prior had.
        seen_mass: int G^(x, y) dy over the box of y at the nodes, if that box is known.
        tol: relative error of the integrals: as asked for, or what rounding leaves of it.
    """

    triple: Triple
    box: Box
    nodes: tuple[Float[Array, " _"], ...]
    weights: tuple[Float[Array, " _"], ...]
    kernel: Float[Array, "n n"]
    start: Float[Array, " n"]
    log_start: Float[Array, ""]
    seen_mass: Float[Array, " n"] | None
    tol: float = eqx.field(static=True)

    @property
    def shape(self) -> tuple[int, ...]:
        """Number of nodes on each axis."""
        return tuple(z.shape[0] for z in self.nodes)

    @property
    def flat_weights(self) -> Float[Array, " n"]:
        """Weights of all nodes, first axis slowest."""
        return flat_weights(self.weights)

    @property
    def unit_points(self) -> Float[Array, "n d"]:
        """All nodes in unit coordinates."""
        return mesh_points(self.nodes)

    @property
    def points(self) -> Float[Array, "n d"]:
        """All nodes in user units."""
        return grid_points(self.box, self.nodes)

    @property
    def row_masses(self) -> Float[Array, " n"]:
        """int Q^(u, x) dx over the box, at the nodes u."""
        return self.kernel @ self.flat_weights


def log_volume(box: Box) -> Float[Array, ""]:
    """log prod of the half-widths: from user units to unit coordinates."""
    return jnp.sum(jnp.log(box.half_width))


def _rules(counts: tuple[int, ...]) -> tuple[list[np.ndarray], list[np.ndarray]]:
    pairs = [legendre_rule(n) for n in counts]
    return [z for z, _ in pairs], [w for _, w in pairs]


def tabulate(triple: Triple, box: Box, tol: float, counts: tuple[int, ...] | None = None) -> Table:
    """The table for a relative error `tol` of integrals; or on a given number of nodes."""
    found = sized(triple, box, tol) if counts is None else Sized(counts, tol)
    nodes, weights = _rules(found.counts)
    points, flat = host_points(box, nodes), flat_weights(weights, np)
    volume = float(np.prod(half_of(box)))
    start = volume * host_values(triple.prior, points)
    mass = float(flat @ start)
    if not (mass > 0 and np.isfinite(mass)):
        raise ValueError(
            f"prior must have a positive and finite mass on the box, got {mass:g} by "
            f"{' x '.join(map(str, found.counts))} nodes: is the box in the units of the models, "
            "and not far wider than the prior?"
        )
    seen_mass = None
    if triple.observation_box is not None:
        ys, shares = observation_grid(triple.observation_box)
        seen_mass = host_pairs(triple.observation, points, np.asarray(ys)) @ np.asarray(shares)
    arrays = (
        tuple(nodes),
        tuple(weights),
        volume * host_pairs(triple.transition, points, points),
        start / mass,
        np.log(mass),
        seen_mass,
    )
    z, w, kernel, start, log_start, masses = jax.device_put(arrays)
    return Table(triple, box, z, w, kernel, start, log_start, masses, max(tol, found.gap))


def first_counts(triple: Triple, box: Box, tol: float) -> np.ndarray:
    """Nodes on each axis that a step of the worst bumps needs for a relative error `tol`.

    Along an axis a step integrates bumps of total precision kappa: those of Q^ in u, of Q^ in x
    (the prediction) and of G^ in x. On a half-width h, with b = h sqrt(kappa), n nodes leave
    exp(-n^2 / b^2); a bump centred outside by D is an exponential of rate R = 2 kappa D h there,
    and leaves exp(-2 n^2 / R).
    """
    dim, half = triple.dim, np.asarray(box.half_width)
    old, new = tuple(range(dim)), tuple(range(dim, 2 * dim))
    kappa = (
        curvatures(triple.transition, old)
        + curvatures(triple.transition, new)
        + curvatures(triple.observation, old)
    )
    far = np.maximum.reduce(
        [
            outside(triple.transition, old, box),
            outside(triple.transition, new, box),
            outside(triple.observation, old, box),
        ]
    )
    # Before the first step it is the prior that meets Q^ and G^.
    start = (
        curvatures(triple.prior, old)
        + curvatures(triple.transition, old)
        + curvatures(triple.observation, old)
    )
    kappa = np.maximum(kappa, start)
    far = np.maximum(far, outside(triple.prior, old, box))
    size = np.log(1.0 / tol)
    return 4 + half * np.sqrt(kappa * size) + np.sqrt(kappa * far * half * size)


class Sized(NamedTuple):
    """Nodes on each axis, and the relative difference that was left between two rules."""

    counts: tuple[int, ...]
    gap: float


def sized(triple: Triple, box: Box, tol: float) -> Sized:
    """Nodes on each axis: the smallest of a ladder at which two rungs agree.

    Models are often smoother than their bumps, and sometimes rougher than bumps with large
    coefficients are when these cancel: so the ladder starts where the bumps would be right to two
    digits, and ends where the integrals say so. Large coefficients leave rounding in the values of
    a model: differences then cease to fall above `tol`, and more nodes do not help.
    """
    counts = first_counts(triple, box, 1e-2)
    seen = _typical_observations(triple)
    now, last = _as_counts(counts), np.inf
    _check_size(now, triple, tol)
    here = _probe(triple, box, now, seen)
    while True:
        counts = _GROWTH * counts
        then = _as_counts(counts)
        _check_size(then, triple, tol)
        there = _probe(triple, box, then, seen)
        if not np.isfinite(there).all():
            raise ValueError(
                "transition and observation must be finite on the box, but some of their values "
                "overflow float64 or are not numbers: put their size into log_scale"
            )
        # Relative to the largest of each observation: what a filter divides by is of that size.
        scale = np.abs(there).max(axis=(1, 2), keepdims=True)
        gap = float((np.abs(here - there) / np.where(scale > 0, scale, 1.0)).max())
        if gap <= tol:
            return Sized(then, gap)
        if gap < _DIGITS and gap > 0.5 * last:
            return Sized(then, gap)
        here, last = there, gap


def _as_counts(counts: np.ndarray) -> tuple[int, ...]:
    return tuple(int(np.ceil(n)) for n in counts)


def _narrowest(triple: Triple) -> str:
    """Which of the models has the narrowest bumps."""
    models = {
        "the transition": triple.transition,
        "the observation": triple.observation,
        "the prior": triple.prior,
    }
    return max(models, key=lambda name: curvatures(models[name], tuple(range(triple.dim))).max())


def _check_size(counts: tuple[int, ...], triple: Triple, tol: float) -> None:
    if prod(counts) ** 2 <= _MAX_ENTRIES:
        return
    sizes = " x ".join(map(str, counts))
    raise Unaffordable(
        f"tol = {tol:g} needs {sizes} nodes for these models on this box, and a table of "
        f"{prod(counts) ** 2:.1g} numbers, above the limit of {_MAX_ENTRIES:.1g}. Raise tol, "
        f"choose a smaller box, or fit models of smaller precision ({_narrowest(triple)} is the "
        'narrowest of them); "reference" needs no nodes'
    )


def _typical_observations(triple: Triple) -> Float[np.ndarray, "k p"]:
    """Observations at which integrals are compared: spread over where G^ has its components."""
    dim, model = triple.dim, triple.observation
    box = triple.observation_box
    if box is None:
        box = places_of(model).keep(tuple(range(dim, model.dim)))
    levels = np.linspace(-0.9, 0.9, _SEEN)[:, None]
    return np.asarray(box.center) + np.asarray(box.half_width) * levels


def places_of(f: PSDModel) -> Box:
    """A box around the anchors, or around where the components have their peaks."""
    if isinstance(f, GaussianPSD):
        points = np.asarray(expand(f.anchors))
    else:
        pairs = pairwise(f)
        matrices = np.asarray(pairs.precision).reshape(-1, f.dim, f.dim)
        linear = np.asarray(pairs.linear).reshape(-1, f.dim)
        # A precision may be singular, as that of a conditional density: its shortest centre.
        inverses = np.linalg.pinv(matrices, hermitian=True)
        points = np.asarray(f.origin) + np.einsum("nde,ne->nd", inverses, linear)
        width = 1.0 / np.sqrt(np.maximum(np.linalg.eigvalsh(matrices).max(axis=-1), 1e-300))
        points = np.concatenate([points - 2 * width[:, None], points + 2 * width[:, None]])
    low, high = points.min(axis=0), points.max(axis=0)
    some = np.where(high > low, 0.0, 1.0)
    return Box(low - some, high + some)


def _probe(triple: Triple, box: Box, counts: tuple[int, ...], seen: np.ndarray) -> np.ndarray:
    """int Q^(u, x) G^(x, y) Q^(x, x') dx for every y, and u, x' on a coarse grid of the box.

    Then the same with the prior in place of Q^(u, x), and without a y.
    """
    nodes, weights = _rules(counts)
    points, flat = host_points(box, nodes), flat_weights(weights, np)
    num = _PROBES.get(triple.dim, 2)
    coarse = host_points(box, [np.linspace(-0.98, 0.98, num)] * triple.dim)
    into = host_pairs(triple.transition, coarse, points) * flat
    out = host_pairs(triple.transition, points, coarse)
    likelihoods = host_pairs(triple.observation, points, seen)
    steps = [(into * column) @ out for column in likelihoods.T]
    # The first step starts from the prior instead.
    start = flat * host_values(triple.prior, points)
    first = [np.broadcast_to((start * column) @ out, steps[0].shape) for column in likelihoods.T]
    first.append(np.broadcast_to(start @ out, steps[0].shape))
    return np.stack([*steps, *first])
