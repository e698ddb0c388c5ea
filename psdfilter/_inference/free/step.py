"""One step of the filter with a learned Q^ = g_Q^2 of free shapes.

    predict   p(x)  = sum_m v_m g_Q(z_m, x)^2,    v_m = w_m pi(z_m) m(z_m) / m^(z_m)
    correct   pi(x) = p(x) sqrt(G(x, y))^2 / Z

with nodes z_m and positive weights w_m on the part of the box where pi is, and m, m^ the masses of
Q(z_m, .) and Q^(z_m, .) on the box. Each line is a sum of squares, the first one of Gaussians, of
order M_Q N, and is projected back to M places. On all of R^d the integral over the old state has a
closed form, with one Gaussian for each pair of terms; but a state that lives on a box leaks there,
and box integrals of coupled Gaussians do not stay closed. The rule keeps the state on the box, and
the sum a sum of squares of single Gaussians.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .atoms import (
    Atoms,
    Slices,
    TermKernel,
    evaluate,
    inverse,
    log_heights,
    slices,
)
from .compress import SquareSum, fewer_roots, project, spread_choice
from .mass import MassSeries
from .observation import AbstractObservation
from .rules import (
    NOTHING,
    Region,
    Rule,
    find_region,
    graded_atoms,
    joined,
    region_between,
    rule_on,
    whole_box,
)

# Masses of Q^(u, .) are mended by this factor at most: where nearly all of it leaves the box, what
# is left of it is error.
_ASTRAY = 2.0
# Slices that are integrated at a time.
_BATCH = 64


class StepSizes(NamedTuple):
    """Static sizes of a filter."""

    places: int  # atoms that are kept, at most
    left_out: float  # share of the squared norm of the roots that may be lost for fewer
    panel_nodes: int  # nodes of a panel, per axis
    source_panels: int  # of the integral over the old state, per axis
    source_nodes: int  # nodes of these
    sources: int  # of its nodes, the ones with most mass that are used
    panels: int  # of projections, masses and moments, per axis
    table_nodes: int  # of quantiles and draws, in a single panel, per axis
    guard_nodes: int  # of projections, all over the box, per axis
    tried: int  # atoms among which those kept are looked for
    transition_terms: int  # of g_Q(u, .) for one u
    scan: int  # points per axis on which the part of the box in use is looked for


class LearnedTransition(NamedTuple):
    """g_Q with u fixed first, in unit coordinates, and the mass that Q^(u, .) is given."""

    roots: TermKernel
    mass: MassSeries
    panels: Float[Array, " g"]  # per unit of u, that Q^(., x) asks for, on a grid; or empty

    def panels_at(self, u: Float[Array, " n"]) -> Float[Array, " n"]:
        """Panels per unit at u, in one dimension."""
        if self.panels.size == 0:
            return jnp.zeros_like(u)
        return jnp.interp(u, jnp.asarray(np.linspace(-1.0, 1.0, self.panels.size)), self.panels)

    def mended(self, u: Float[Array, "n d"], own: Float[Array, " n"]) -> Float[Array, " n"]:
        """What Q^(u, .), of mass `own` on the box, is multiplied by."""
        return jnp.clip(self.mass(u) / jnp.where(own > 0, own, 1.0), 1.0 / _ASTRAY, _ASTRAY)


class Record(NamedTuple):
    """What a transition or an observation leaves behind."""

    log_mass: Float[Array, ""]  # on the box
    loss: Float[Array, ""]  # int |before - after| the projection, and what the nodes have missed
    mean: Float[Array, " d"]
    covariance: Float[Array, "d d"]
    log_spread: Float[Array, ""]  # of int G^(x, y) dx over the box; -inf for a transition


def guarded(rule: Rule, sizes: StepSizes) -> Rule:
    """The rule and a coarse one all over the box, next to each other.

    A projection that only looks where the density is may do anything elsewhere.
    """
    whole = whole_box(rule.nodes.shape[1], sizes.guard_nodes)
    return Rule(*(jnp.concatenate(pair) for pair in zip(rule, whole, strict=True)))


def region_of(law: SquareSum, sizes: StepSizes) -> Region:
    """The part of the box that holds a law."""
    return find_region(lambda x: jnp.log(law(x)), law.atoms.dim, sizes.scan, sizes.panels)[0]


def projection_rule(region: Region, sizes: StepSizes) -> Rule:
    """Nodes for a projection onto atoms that may be as narrow as the panels of a region.

    In one dimension with margins, where the coarse rule could miss what such atoms do. In the plane
    they are too many nodes, and atoms wider.
    """
    wanted = region.with_margins() if len(region.edges) == 1 else region
    return rule_on(wanted, sizes.panel_nodes)


def rule_for(law: SquareSum, sizes: StepSizes) -> Rule:
    """Nodes for masses and moments of a law."""
    return rule_on(region_of(law, sizes), sizes.panel_nodes)


def _reach(roots: Slices) -> tuple[Float[Array, " d"], Float[Array, " d"]]:
    """Corners outside of which no term of sum_n g_n^2 is above a share of the largest one.

    (a k(x))^2 falls to exp(-2 t) of its peak within sqrt(t S_ll) along axis l.
    """
    atoms = roots.flat()
    logs = jnp.log(jnp.abs(roots.amplitudes).ravel()) + log_heights(atoms)
    fall = jnp.maximum(logs - jnp.max(logs) - 0.5 * float(np.log(NOTHING)), 0.0)
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
    return scaled, Record(jnp.log(mass), loss, mean, covariance, jnp.full((), -jnp.inf))


def evaluate_slices(roots: Slices, x: Float[Array, "k d"]) -> Float[Array, "k n"]:
    """g_n = sum_j a_nj k_nj at all points, a term of all roots at a time."""

    def add(total: Array, term: Slices) -> tuple[Array, None]:
        atoms = Atoms(term.centers, term.precision)
        return total + evaluate(atoms, x) * term.amplitudes[None, :], None

    nothing = jnp.zeros((x.shape[0], roots.amplitudes.shape[0]))
    by_term = jax.tree.map(lambda a: jnp.moveaxis(a, 1, 0), roots)
    return jax.lax.scan(add, nothing, by_term)[0]


def own_masses(roots: Slices, num: int) -> Float[Array, " n"]:
    """int g_n^2 over the box, for each n by `num` nodes an axis where g_n is."""

    def one(root: Slices) -> Array:
        low, high = _reach(jax.tree.map(lambda a: a[None], root))
        rule = rule_on(Region(tuple(jnp.stack(ends) for ends in zip(low, high, strict=True))), num)
        values = evaluate(Atoms(root.centers, root.precision), rule.nodes) @ root.amplitudes
        return rule.weights @ jnp.square(values)

    return jax.lax.map(one, roots, batch_size=_BATCH)


def source_region(law: SquareSum, learned: LearnedTransition, sizes: StepSizes) -> Region:
    """Panels where the law is, short enough for Q^(., x) too."""
    return find_region(
        lambda u: jnp.log(law(u)), law.atoms.dim, sizes.scan, sizes.source_panels,
        learned.panels_at,
    )[0]  # fmt: skip


def _sources(
    law: SquareSum, learned: LearnedTransition, sizes: StepSizes
) -> tuple[Float[Array, " n"], Float[Array, "n d"]]:
    """Masses w pi at nodes where the law is, and these: all, or the heaviest."""
    rule = rule_on(source_region(law, learned, sizes), sizes.source_nodes)
    v, sources = rule.weights * law(rule.nodes), rule.nodes
    if sizes.sources < v.size:
        v, heaviest = jax.lax.top_k(v, sizes.sources)
        sources = sources[heaviest]
    return v, sources


def _heads(roots: Slices, sizes: StepSizes) -> Atoms:
    """The largest terms of every slice: slices lie side by side, so that they cover the new law."""
    num_slices = roots.amplitudes.shape[0]
    per_slice = min(-(-sizes.tried // num_slices), sizes.transition_terms)
    heads = Slices(*(part[:, :per_slice] for part in roots))
    tried = heads.flat()
    if tried.centers.shape[0] <= sizes.tried:
        return tried
    return spread_choice(tried, jnp.square(heads.amplitudes).ravel(), sizes.tried)


def predict_law(
    law: SquareSum, learned: LearnedTransition, sizes: StepSizes
) -> tuple[SquareSum, Record]:
    """The law of the next state, of mass one on the box; the mass it had there is in the record."""
    v, sources = _sources(law, learned, sizes)
    total = jnp.sum(v)
    shares = v / total
    part = slices(learned.roots, sources, sizes.transition_terms)
    roots = part._replace(amplitudes=jnp.sqrt(shares)[:, None] * part.amplitudes)
    largest_terms = Slices(*(a[:, :1] for a in roots))
    new, _ = region_between(
        lambda x: jnp.log(jnp.sum(jnp.square(evaluate_slices(largest_terms, x)), axis=1)),
        *_reach(roots), sizes.scan, sizes.panels,
    )  # fmt: skip
    ahead = projection_rule(new, sizes)
    everywhere = guarded(ahead, sizes)
    values = evaluate_slices(roots, everywhere.nodes)
    kept = ahead.weights @ jnp.square(values[: ahead.weights.size])
    own = kept / jnp.where(shares > 0, shares, 1.0)
    values = values * jnp.sqrt(learned.mended(sources, own))[None, :]
    tried = joined(_heads(roots, sizes), graded_atoms(new, sizes.places))
    after = project(tried, values, everywhere, sizes.places, sizes.left_out)
    after = SquareSum(after.atoms, fewer_roots(after.factor, law.factor.shape[1]))
    values = values[: ahead.weights.size]
    after, record = settle(after, ahead, jnp.sum(jnp.square(values), axis=1))
    # The law has mass one by finer nodes: what these miss of it counts as lost.
    return after, record._replace(loss=record.loss + jnp.abs(total - 1.0))


def update_law(
    law: SquareSum, observation: AbstractObservation, y: Float[Array, " p"], sizes: StepSizes
) -> tuple[SquareSum, Record]:
    """Bayes' rule."""
    region, peak = find_region(
        lambda x: jnp.log(law(x)) + observation.logs(x, y), law.atoms.dim, sizes.scan, sizes.panels
    )
    rule = projection_rule(region, sizes)
    everywhere = guarded(rule, sizes)
    seen = observation.roots(everywhere.nodes, y, peak)
    values = (evaluate(law.atoms, everywhere.nodes) @ law.factor) * seen[:, None]
    tried = observation.tried(law, y, region, sizes.places)
    after = project(tried, values, everywhere, sizes.places, sizes.left_out)
    num = rule.weights.size
    after, record = settle(after, rule, jnp.sum(jnp.square(values[:num]), axis=1))
    log_spread = _log_spread(observation, y, law.atoms.dim, sizes)
    return after, record._replace(log_mass=record.log_mass + peak, log_spread=log_spread)


def _log_spread(
    observation: AbstractObservation, y: Float[Array, " p"], dim: int, sizes: StepSizes
) -> Float[Array, ""]:
    """log int G(x, y) dx, in panels where G(., y) is, which need not be where the law is."""
    region, _ = find_region(lambda x: observation.logs(x, y), dim, sizes.scan, sizes.panels)
    rule = rule_on(region, sizes.panel_nodes)
    logs = observation.logs(rule.nodes, y)
    logs = jnp.where(jnp.isnan(logs), -jnp.inf, logs)
    return jax.scipy.special.logsumexp(logs, b=rule.weights)
