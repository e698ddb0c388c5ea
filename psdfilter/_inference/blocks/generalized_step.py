"""One step of the filter with a learned Q^ = g_Q^2 and G^ = g_G^2, both of free shapes.

    predict   p(x)  = sum_m v_m g_Q(z_m, x)^2,    v_m = w_m pi(z_m)
    correct   pi(x) = p(x) g_G(x, y)^2 / Z

with nodes z_m and positive weights w_m on the part of the box where pi is. Each line is a sum of
squares of Gaussians whose precisions come from the learned models, of order M_Q N and M M_G, and is
projected back to M places. On all of R^d the integral over the old state has a closed form, with
one Gaussian for each pair of terms; but a state that lives on a box leaks there, and box integrals
of coupled Gaussians do not stay closed. The rule keeps the state on the box, and the sum a sum of
squares of single Gaussians.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..._gaussian.quadrature import legendre_rule
from .generalized_atoms import (
    Atoms,
    Slices,
    TermKernel,
    evaluate,
    inverse,
    log_heights,
    products,
    slices,
)
from .generalized_compress import Rule, SquareSum, fewer_roots, project, spread_choice

# Where the density is below this share of its peak, no nodes are spent.
_NOTHING = 1e-10


class StepSizes(NamedTuple):
    """Static sizes of a filter."""

    places: int  # atoms that are kept
    nodes: int  # of the integral over the old state, per axis
    sources: int  # of these, the ones with most mass that are used
    fine_nodes: int  # of projections, masses and moments, per axis
    guard_nodes: int  # of projections, all over the box, per axis
    tried: int  # atoms among which those kept are looked for
    transition_terms: int  # of g_Q(u, .) for one u
    observation_terms: int  # of g_G(., y) for one y
    scan: int  # points per axis on which the part of the box in use is looked for


class LearnedRoots(NamedTuple):
    """g_Q with u fixed first, g_G with y fixed first, in unit coordinates."""

    transition: TermKernel
    observation: TermKernel


class Record(NamedTuple):
    """What a transition or an observation leaves behind."""

    log_mass: Float[Array, ""]  # on the box
    loss: Float[Array, ""]  # int |before - after| the projection, and what the nodes have missed
    mean: Float[Array, " d"]
    covariance: Float[Array, "d d"]
    spread: Float[Array, ""]  # int over the box of G^(x, y) dx; zero for a transition


def _mesh(axes: list[np.ndarray]) -> np.ndarray:
    return np.stack([m.ravel() for m in np.meshgrid(*axes, indexing="ij")], axis=-1)


def rule_between(low: Float[Array, " d"], high: Float[Array, " d"], num: int) -> Rule:
    """The tensor Gauss-Legendre rule between two corners."""
    nodes, weights = legendre_rule(num)
    half, middle = 0.5 * (high - low), 0.5 * (high + low)
    unit = jnp.asarray(_mesh([nodes] * low.size))
    volumes = np.prod(_mesh([weights] * low.size), axis=1)
    return Rule(middle[None, :] + half[None, :] * unit, jnp.prod(half) * jnp.asarray(volumes))


def guarded(rule: Rule, sizes: StepSizes) -> Rule:
    """The rule and a coarse one all over the box, next to each other.

    A projection that only looks where the density is may do anything elsewhere.
    """
    box = jnp.ones(rule.nodes.shape[1])
    whole = rule_between(-box, box, sizes.guard_nodes)
    return Rule(*(jnp.concatenate(pair) for pair in zip(rule, whole, strict=True)))


def corners_of(values: Float[Array, " n"], dim: int, scan: int) -> tuple[Array, Array]:
    """The smallest part of the box that holds a density, from its values on a scan."""
    edges = jnp.linspace(-1.0, 1.0, scan)
    alive = (values > _NOTHING * jnp.max(values)).reshape((scan,) * dim)
    low, high = [], []
    for axis in range(dim):
        line = jnp.any(alive, axis=tuple(i for i in range(dim) if i != axis))
        low.append(edges[jnp.maximum(jnp.argmax(line) - 1, 0)])
        high.append(edges[jnp.minimum(scan - jnp.argmax(line[::-1]), scan - 1)])
    return jnp.stack(low), jnp.stack(high)


def scan_points(dim: int, scan: int) -> Float[Array, "n d"]:
    """The points of a scan."""
    return jnp.asarray(_mesh([np.linspace(-1.0, 1.0, scan)] * dim))


def rule_for(law: SquareSum, sizes: StepSizes, num: int) -> Rule:
    """A rule on the part of the box that holds a law."""
    dim = law.atoms.dim
    values = law(scan_points(dim, sizes.scan))
    return rule_between(*corners_of(values, dim, sizes.scan), num)


def _reach(roots: Slices) -> tuple[Float[Array, " d"], Float[Array, " d"]]:
    """Corners outside of which no term of sum_n g_n^2 is above a share of the largest one.

    (a k(x))^2 falls to exp(-2 t) of its peak within sqrt(t S_ll) along axis l.
    """
    atoms = roots.flat()
    logs = jnp.log(jnp.abs(roots.amplitudes).ravel()) + log_heights(atoms)
    fall = jnp.maximum(logs - jnp.max(logs) - 0.5 * float(np.log(_NOTHING)), 0.0)
    spread = jnp.diagonal(inverse(atoms.precision), axis1=1, axis2=2)
    reach, used = jnp.sqrt(fall[:, None] * spread), (fall > 0)[:, None]
    low = jnp.min(jnp.where(used, atoms.centers - reach, jnp.inf), axis=0)
    high = jnp.max(jnp.where(used, atoms.centers + reach, -jnp.inf), axis=0)
    low, high = jnp.maximum(low, -1.0), jnp.minimum(high, 1.0)
    # All of it outside: the whole box, where the mass will be found to be nothing.
    inside = jnp.all(high > low)
    return jnp.where(inside, low, -1.0), jnp.where(inside, high, 1.0)


def settle(law: SquareSum, rule: Rule, target: Float[Array, " n"]) -> tuple[SquareSum, Record]:
    """`law` with mass one on the box, and how far it is from the target."""
    mass, values = rule.weights @ target, law(rule.nodes)
    own = rule.weights @ values
    safe, own_safe = jnp.where(mass > 0, mass, 1.0), jnp.where(own > 0, own, 1.0)
    loss = rule.weights @ jnp.abs(target / safe - values / own_safe)
    v = rule.weights * values / own_safe
    mean = v @ rule.nodes
    delta = rule.nodes - mean[None, :]
    covariance = (delta * v[:, None]).T @ delta
    scaled = SquareSum(law.atoms, law.factor * jax.lax.rsqrt(own_safe))
    return scaled, Record(jnp.log(mass), loss, mean, covariance, jnp.zeros(()))


def _evaluate(roots: Slices, x: Float[Array, "k d"]) -> Float[Array, "k n"]:
    """g_n = sum_j a_nj k_nj at all points, a term of all roots at a time."""

    def add(total: Array, term: Slices) -> tuple[Array, None]:
        atoms = Atoms(term.centers, term.precision)
        return total + evaluate(atoms, x) * term.amplitudes[None, :], None

    nothing = jnp.zeros((x.shape[0], roots.amplitudes.shape[0]))
    by_term = jax.tree.map(lambda a: jnp.moveaxis(a, 1, 0), roots)
    return jax.lax.scan(add, nothing, by_term)[0]


def predict_law(
    law: SquareSum, learned: LearnedRoots, sizes: StepSizes
) -> tuple[SquareSum, Record]:
    """The law of the next state, of mass one on the box; the mass it had there is in the record."""
    rule = rule_for(law, sizes, sizes.nodes)
    v, sources = rule.weights * law(rule.nodes), rule.nodes
    if sizes.sources < v.size:
        v, largest = jax.lax.top_k(v, sizes.sources)
        sources = sources[largest]
    total = jnp.sum(v)
    part = slices(learned.transition, sources, sizes.transition_terms)
    roots = part._replace(amplitudes=jnp.sqrt(v / total)[:, None] * part.amplitudes)
    ahead = rule_between(*_reach(roots), sizes.fine_nodes)
    everywhere = guarded(ahead, sizes)
    values = _evaluate(roots, everywhere.nodes)
    # The largest terms of every slice: slices lie side by side, so that they cover the new law.
    per_node = min(-(-sizes.tried // v.size), sizes.transition_terms)
    heads = Slices(*(a[:, :per_node] for a in roots))
    tried = heads.flat()
    if tried.centers.shape[0] > sizes.tried:
        tried = spread_choice(tried, jnp.square(heads.amplitudes).ravel(), sizes.tried)
    after = project(tried, values, everywhere, sizes.places)
    after = SquareSum(after.atoms, fewer_roots(after.factor, law.factor.shape[1]))
    values = values[: ahead.weights.size]
    after, record = settle(after, ahead, jnp.sum(jnp.square(values), axis=1))
    # The law has mass one by finer nodes: what these miss of it counts as lost.
    return after, record._replace(loss=record.loss + jnp.abs(total - 1.0))


def update_law(
    law: SquareSum, learned: LearnedRoots, y: Float[Array, " p"], sizes: StepSizes
) -> tuple[SquareSum, Record]:
    """Bayes' rule; y in unit coordinates."""
    part = slices(learned.observation, y[None], sizes.observation_terms)
    likelihood, amplitudes = Atoms(part.centers[0], part.precision[0]), part.amplitudes[0]

    def roots(x: Float[Array, "k d"]) -> Float[Array, "k c"]:
        return (evaluate(law.atoms, x) @ law.factor) * (evaluate(likelihood, x) @ amplitudes)[
            :, None
        ]

    def target(x: Float[Array, "k d"]) -> Float[Array, " k"]:
        return jnp.sum(jnp.square(roots(x)), axis=1)

    dim = law.atoms.dim
    corners = corners_of(target(scan_points(dim, sizes.scan)), dim, sizes.scan)
    rule = rule_between(*corners, sizes.fine_nodes)
    atoms, factors = products(law.atoms, likelihood)
    used = jnp.any(law.factor != 0, axis=1)[:, None] & jnp.ones(factors.shape, bool)
    # Centres may lie outside, where nothing is known of the learned models.
    nearest = jnp.clip(atoms.centers, *(corner[None, :] for corner in corners))
    masses = target(nearest) * jnp.exp(-2.0 * log_heights(atoms))
    tried = spread_choice(atoms, jnp.where(used.ravel(), masses, 0.0), sizes.tried)
    everywhere = guarded(rule, sizes)
    values = roots(everywhere.nodes)
    after = project(tried, values, everywhere, sizes.places)
    num = rule.weights.size
    after, record = settle(after, rule, jnp.sum(jnp.square(values[:num]), axis=1))
    seen = jnp.square(evaluate(likelihood, everywhere.nodes[num:]) @ amplitudes)
    return after, record._replace(spread=everywhere.weights[num:] @ seen)
