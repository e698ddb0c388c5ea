"""A mixture through a nonlinear model: split where it bends, move, merge to make room.

The number of places is fixed. In every step the components that are bent most (weight times the
error of their linearisation) are split in three, as long as that gains more than it costs to empty
two places for the parts: merges of neighbours, or components of hardly any weight.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PyTree

from ... import _results
from ..._gaussian.small import semidefinite_cholesky
from ..gaussian.mixture import Mixture, normalized
from .correct import Corrected, Seen, correct
from .linearize import Pushed, expand, main_direction, push
from .merging import bend_of_merges, emptied, find_neighbours, removal, twin_pairs
from .splitting import UnitSplit, split_places

# After the first round, splits wait for the next step unless the error is this many tolerances:
# after each round the map is applied to the whole mixture again.
_PRESSING = 5.0


class Effort(NamedTuple):
    """How a mixture is refined; all static.

    Attributes:
        tol: error of a step, in total variation, that needs no further splits.
        batch: splits per round.
        rounds: rounds of splitting before each nonlinear map.
        patience: a split may cost so many times the error of one step that it removes, because that
            error would come back in the next.
        prune: components of at most this mass may be dropped.
        split: how N(0, 1) is split.
    """

    tol: float
    batch: int
    rounds: int
    patience: float
    prune: float
    split: UnitSplit


class Need(NamedTuple):
    """How far each component is from being served by one linearisation.

    Attributes:
        log_weights: of the components after the map.
        errors: total variation error of each, as if it had all the mass.
        forms: whose main direction it is best split along.
    """

    log_weights: Float[Array, " r"]
    errors: Float[Array, " r"]
    forms: Float[Array, "r d d"]

    def weights(self) -> Float[Array, " r"]:
        """Of sum one."""
        return jax.nn.softmax(self.log_weights)

    def total(self) -> Float[Array, ""]:
        """Of the mixture."""
        return jnp.sum(self.weights() * self.errors)


class Refined(NamedTuple):
    """A mixture that has been split, what it costs, and what the nonlinear map makes of it."""

    mixture: Mixture
    roots: Float[Array, "r d d"]
    image: PyTree
    loss: Float[Array, ""]


def roots_of(mixture: Mixture) -> Float[Array, "r d d"]:
    """L with L L' = S of every component."""
    return jax.vmap(semidefinite_cholesky)(mixture.covariances)


def refine(
    mixture: Mixture,
    image: Callable[[Mixture, Array], PyTree],
    need: Callable[[Mixture, PyTree], Need],
    effort: Effort,
) -> Refined:
    """Split until the error is below the tolerance, there is no room, or the rounds are over.

    Args:
        mixture: of mass one.
        image: mixture, roots -> what the map makes of every component.
        need: mixture, image -> how far each component is from being served by it.
        effort: tolerances and sizes.
    """

    def seen_through(mixture: Mixture) -> tuple[Array, PyTree]:
        roots = roots_of(mixture)
        return roots, image(mixture, roots)

    if effort.batch == 0:
        return Refined(mixture, *seen_through(mixture), jnp.zeros(()))

    # The image is computed where the mixture is new, the first time and after each split: in one
    # place of the loop, so that it is compiled once.
    def one(at: tuple[Refined, Array], k: Array) -> tuple[tuple[Refined, Array], None]:
        refined, stale = at
        roots, now = jax.lax.cond(
            stale,
            lambda: seen_through(refined.mixture),
            lambda: (refined.roots, refined.image),
        )
        needed = jax.lax.stop_gradient(need(refined.mixture, now))
        # Errors a little above the tolerance can wait for the next step.
        limit = effort.tol * jnp.where(k == 0, 1.0, _PRESSING)
        # A round that changes nothing is the last: the next would look at the same mixture.
        wanted = stale & (needed.total() > limit) & (k < effort.rounds)
        nothing = refined.mixture, jnp.zeros(()), jnp.asarray(False)
        new, loss, changed = jax.lax.cond(
            wanted,
            lambda: _split_round(refined.mixture, roots, needed, effort),
            lambda: nothing,
        )
        return (Refined(new, roots, now, refined.loss + loss), changed), None

    shapes = jax.eval_shape(seen_through, mixture)
    empty = jax.tree.map(lambda a: jnp.zeros(a.shape, a.dtype), shapes)
    start = Refined(mixture, empty[0], empty[1], jnp.zeros(())), jnp.asarray(True)
    return jax.lax.scan(one, start, jnp.arange(effort.rounds + 1))[0][0]


def _split_round(
    mixture: Mixture, roots: Array, needed: Need, effort: Effort
) -> tuple[Mixture, Float[Array, ""], Bool[Array, ""]]:
    """The worst components split where there is room; the price, and whether that changed any."""
    size, batch = mixture.size, effort.batch
    errors, importance = needed.errors, needed.weights()
    neighbours = find_neighbours(mixture)
    directions = jax.vmap(main_direction)(needed.forms)
    grown = bend_of_merges(neighbours, roots, directions, errors, importance)
    # Two that lie upon each other are merged before anything is split: one is enough to split.
    twins = twin_pairs(neighbours, grown, errors, importance, effort.patience)
    shares = jax.vmap(lambda v, form: relief(v, form, effort.split))(directions, needed.forms)
    gain_of = jnp.where(twins, 0.0, importance * errors * shares)
    gains, chosen = jax.lax.top_k(gain_of, batch)
    left = jnp.sum(importance * errors) - jnp.cumsum(gains) + gains
    wanted = (left > effort.tol) & (gains > 0)
    kept = jnp.zeros(size, bool).at[chosen].set(wanted)
    grown = jnp.where(twins, 0.0, grown)
    out = removal(mixture, neighbours, kept, grown, importance, effort.prune, effort.patience)
    lowest, free = jax.lax.top_k(-out.cost, 2 * batch)
    prices, free = -lowest.reshape(batch, 2).T, free.reshape(batch, 2).T
    own = effort.split.error * importance[chosen] / effort.patience
    used = wanted & (jnp.sum(prices, axis=0) + own <= gains)
    removed = jnp.zeros(size, bool).at[free.ravel()].set(jnp.tile(used, 2))
    removed = removed | (twins & out.merges & jnp.isfinite(out.cost))
    room = emptied(mixture, neighbours, removed, out.merges)
    new = split_places(room, roots, directions, chosen, used, free, effort.split)
    new, _ = normalized(new)
    split_loss = effort.split.error * jnp.exp(mixture.log_weights[chosen])
    loss = jnp.sum(jnp.where(removed, out.loss, 0.0)) + jnp.sum(jnp.where(used, split_loss, 0.0))
    return new, loss, jnp.any(removed)  # every split takes places, and twins merge without one


def relief(
    direction: Float[Array, " d"], form: Float[Array, "d d"], split: UnitSplit
) -> Float[Array, ""]:
    """The share of its error that a component loses by a split along v.

    The bend is |C|, C the curvature in coordinates of the component, and M = C^2 / 2 its form. The
    split shrinks v by s, so that |C|^2 / 2 = tr M loses (1 - s^4) of (v'Cv)^2 / 2 and twice
    (1 - s^2) of the rest of v'Mv: at least (1 - s^4) v'Mv.
    """
    total = jnp.trace(form)
    along = direction @ form @ direction / jnp.where(total > 0, total, 1.0)
    return 1 - jnp.sqrt(1 - (1 - split.deviation**4) * jnp.clip(along, 0.0, 1.0))


class Moved(NamedTuple):
    """A mixture after a transition."""

    mixture: Mixture
    error: Float[Array, ""]  # of the linearisations
    loss: Float[Array, ""]  # of splits and merges


def move(
    mixture: Mixture,
    f: Callable[[Array], Array],
    Q: Float[Array, "d d"],
    effort: Effort,
) -> Moved:
    """The law of f(x) + N(0, Q)."""

    def image(mixture: Mixture, roots: Array) -> Pushed:
        return jax.vmap(lambda m, L: push(expand(f, m, L), Q))(mixture.means, roots)

    def need(mixture: Mixture, image: Pushed) -> Need:
        return Need(mixture.log_weights, image.bend, image.bend_by_axis)

    refined = refine(mixture, image, need, effort)
    error = need(refined.mixture, refined.image).total()
    new = Mixture(refined.mixture.log_weights, refined.image.mean, refined.image.covariance)
    return Moved(new, error, refined.loss)


class Updated(NamedTuple):
    """A mixture after an observation."""

    mixture: Mixture
    log_mass: Float[Array, ""]
    error: Float[Array, ""]
    loss: Float[Array, ""]
    seen: Array
    code: Int[Array, ""]


def observe(
    mixture: Mixture,
    h: Callable[[Array], Array],
    R: Float[Array, "p p"],
    y: Float[Array, " p"],
    effort: Effort,
) -> Updated:
    """Bayes' rule for y = h(x) + N(0, R); NaN coordinates are not seen."""
    infinite = jnp.any(jnp.isinf(y))
    usable = jnp.where(infinite, jnp.nan, y)
    seen = Seen.of(usable, R)
    noise = jnp.eye(y.size)

    def residual(x: Array) -> Array:
        return seen.residual(h(x))

    def one(m: Array, L: Array) -> tuple[Pushed, Corrected]:
        ahead = push(expand(residual, m, L), noise)
        return ahead, correct(residual, m, L, ahead)

    def image(mixture: Mixture, roots: Array) -> tuple[Pushed, Corrected]:
        return jax.vmap(one)(mixture.means, roots)

    def need(mixture: Mixture, image: tuple[Pushed, Corrected]) -> Need:
        ahead, corrected = image
        after = mixture.log_weights + corrected.log_mass
        # The check sees the neighbourhood of one posterior; the bend over the whole component
        # says whether there may be another.
        return Need(after, corrected.error + jnp.square(ahead.bend), ahead.bend_by_axis)

    refined = refine(mixture, image, need, effort)
    error = need(refined.mixture, refined.image).total()
    _, corrected = refined.image
    new = Mixture(
        refined.mixture.log_weights + corrected.log_mass, corrected.mean, corrected.covariance
    )
    new, log_mass = normalized(new)
    return _checked(mixture, new, refined, log_mass + seen.log_height, error, seen, infinite)


def _checked(
    before: Mixture,
    after: Mixture,
    refined: Refined,
    log_mass: Array,
    error: Array,
    seen: Seen,
    infinite: Array,
) -> Updated:
    """The law before stands where the observation was missing or impossible."""
    corrected = refined.image[1]
    alive = jnp.isfinite(refined.mixture.log_weights)
    nearest = jnp.min(jnp.where(alive, corrected.distance, jnp.inf))
    # exp(-x/2) is zero in float64 beyond this: no component can explain the observation.
    possible = jnp.isfinite(log_mass) & (nearest < 1480.0)
    missing = ~jnp.any(seen.mask)
    good = possible & ~missing
    mixture = jax.tree.map(lambda a, b: jnp.where(good, a, b), after, before)
    code = jnp.where(possible | missing, _results.OK, _results.NO_MASS)
    code = jnp.where(infinite, _results.BAD_OBSERVATION, code)
    log_mass = jnp.where(good, log_mass, jnp.where(missing & ~infinite, 0.0, -jnp.inf))
    error = jnp.where(good, error, 0.0)
    return Updated(mixture, log_mass, error, jnp.where(good, refined.loss, 0.0), good, code)
